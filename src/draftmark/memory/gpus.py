"""Memory of GPUs, by name."""

import re
from dataclasses import dataclass

from draftmark.errors import BadInput, nearest

GIB = 1 << 30
_GB = 10**9


@dataclass(frozen=True)
class Gpu:
    """One GPU."""

    name: str
    total_bytes: int
    """As CUDA reports it, before anything is taken."""


_TOTAL_GIB = {
    "A10": 22.06,
    "A100-40GB": 39.49,
    "A100-80GB": 79.25,
    "B200": 178.35,
    "H100": 79.10,
    "H100-NVL": 93.10,
    "H200": 139.80,
    "L4": 22.03,
    "L40S": 44.39,
    "RTX-3090": 23.58,
    "RTX-4090": 23.53,
    "RTX-5090": 31.36,
    "RTX-6000-Ada": 47.37,
    "RTX-A6000": 47.40,
    "RTX-PRO-6000": 94.97,
    "T4": 14.57,
}
"""Total memory as CUDA reports it, which PyTorch prints as ``total capacity`` when memory runs out.

It is less than the name says and than ``nvidia-smi`` shows, and differs by up to 0.5 % between drivers.
"""

GPUS = {name: Gpu(name, round(gib * GIB)) for name, gib in _TOTAL_GIB.items()}
"""By the name that is used on the command line."""


def gpu_named(text: str) -> Gpu:
    """A GPU by its name, such as ``H100`` or ``RTX PRO 6000``, or by its memory, such as ``79.1GiB``.

    Raises BadInput for anything else.
    """
    if size := re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(GB|GiB|MiB)\s*", text):
        unit = {"GB": _GB, "GiB": GIB, "MiB": 1 << 20}[size[2]]
        if not (total := round(float(size[1]) * unit)):
            raise BadInput(f"GPU '{text}': has no memory", "give its memory: 96GB")
        return Gpu(text.strip(), total)
    plain = _plain(text)
    for name, gpu in GPUS.items():
        if plain == _plain(name):
            return gpu
    raise BadInput(
        f"GPU '{text}': not known by this name", f"{nearest(text, GPUS)}; or give its memory: 96GB"
    )


def _plain(name: str) -> str:
    words = re.sub(r"nvidia|geforce|tesla|blackwell", "", name.lower())
    return re.sub(r"[^a-z0-9]", "", words)
