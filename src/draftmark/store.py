"""The result tree on disk: written atomically, read with suspicion.

    DIR/campaign.json                  what was asked, of which machine
    DIR/journal.jsonl                  what happened when; explains, never decides
    DIR/SERVICE/service.json           one start of a server
    DIR/SERVICE/server.log
    DIR/SERVICE/telemetry.csv          each GPU once a second, while the server was ready
    DIR/SERVICE/CELL.json              one measured cell
    DIR/SERVICE/CELL.requests.jsonl.zst

A file is written to a temporary name beside it, synced and renamed, so that it is either whole or not
there. A JSON file carries a checksum of its own content: one that was cut or edited is not believed.
"""

import fcntl
import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import IO, Any, TypeVar, overload

import msgspec

from draftmark.errors import ResultError, StoreError
from draftmark.schema import (
    SCHEMA_VERSION,
    CampaignInfo,
    CampaignResult,
    Cell,
    CellResult,
    Matrix,
    RequestRecord,
    Service,
    ServiceResult,
    chunks_in,
    chunks_out,
)

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_line = msgspec.json.Encoder(enc_hook=chunks_out)
_record = msgspec.json.Decoder(RequestRecord, dec_hook=chunks_in)
Stored = TypeVar("Stored", CampaignInfo, CellResult, ServiceResult)

KEPT = 8
"""Cells whose requests are kept in memory; a comparison holds a baseline's and a method's together."""


@dataclass(frozen=True)
class Unusable:
    """A stored cell that does not count, and why."""

    why: str


class _Requests(Sequence[RequestRecord]):
    """One cell's requests, read each time that they are looked at: all of a campaign may be gigabytes."""

    def __init__(
        self, read: Callable[[str, str], tuple[RequestRecord, ...]], service: str, cell: str
    ) -> None:
        self._read = partial(read, service, cell)

    @overload
    def __getitem__(self, index: int) -> RequestRecord: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[RequestRecord, ...]: ...
    def __getitem__(self, index: int | slice) -> RequestRecord | tuple[RequestRecord, ...]:
        return self._read()[index]

    def __len__(self) -> int:
        return len(self._read())

    def __iter__(self) -> Iterator[RequestRecord]:
        return iter(self._read())


class ResultTree:
    """One campaign's results under ``root``."""

    def __init__(self, root: Path) -> None:
        self.root = root

    # --- writing ---

    def create(self, info: CampaignInfo) -> None:
        """Make the folder and write ``campaign.json``; an existing tree keeps its cells."""
        self._write(self.root / "campaign.json", [_sealed(info)])

    def set_aside(self) -> Path | None:
        """Rename the whole tree, so that a fresh one can take its place; None where there is none."""
        if not self.root.exists():
            return None
        with self.locked():
            number = 1 + len(list(self.root.parent.glob(f"{self.root.name}.old-*")))
            aside = self.root.with_name(f"{self.root.name}.old-{number}")
            with _translated(self.root):
                self.root.rename(aside)
        return aside

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the tree for one campaign; raises ResultError while another one runs in it."""
        with _translated(self.root):
            self._make_folder()
            handle = (self.root / ".lock").open("w")
        with handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ResultError(
                    f"{self.root}: another draftmark is running in this folder",
                    "wait for it, or give another folder with -o",
                ) from None
            yield

    def _make_folder(self) -> None:
        try:
            self.root.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            hint = "move it, or give another folder with -o"
            raise ResultError(f"{self.root}: a file is where a folder is needed", hint) from None

    def write_service(self, result: ServiceResult) -> None:
        """Store one start of a service."""
        self._write(self._folder(result.service.id) / "service.json", [_sealed(result)])

    def write_cell(self, result: CellResult, records: Iterable[RequestRecord]) -> None:
        """Store a cell with its requests; the cell's file comes last and makes it count."""
        stem = self._folder(result.service) / result.cell.id
        digest = self._write(self._requests(result.service, result.cell.id), _packed(records))
        result = msgspec.structs.replace(result, requests_sha256=digest)
        self._write(stem.with_name(f"{result.cell.id}.json"), [_sealed(result)])

    def write_report(self, name: str, content: bytes) -> Path:
        """Store one file of the report and say where."""
        path = self.root / "report" / name
        self._write(path, [content])
        return path

    def journal(self, entry: Mapping[str, Any]) -> None:
        """Append one line to the journal."""
        with _translated(self.root / "journal.jsonl"), (self.root / "journal.jsonl").open("a") as handle:
            handle.write(json.dumps(entry, ensure_ascii=False, default=str) + "\n")

    def new_log(self, service: str) -> Path:
        """Where a starting server's output goes; an earlier start's log and samples are kept beside it."""
        folder = self._folder(service)
        log, samples = folder / "server.log", folder / "telemetry.csv"
        with _translated(log):
            folder.mkdir(parents=True, exist_ok=True)
            earlier = len(list(folder.glob("server-*.log"))) + 1
            for kept in filter(Path.exists, (log, samples)):
                kept.rename(folder / f"{kept.stem}-{earlier}{kept.suffix}")
        return log

    # --- reading ---

    def info(self) -> CampaignInfo:
        """The campaign's own file; ResultError where there is none or it is damaged."""
        path = self.root / "campaign.json"
        found = _opened(path, CampaignInfo)
        if found is None:
            raise ResultError(
                f"{self.root}: no results here (no campaign.json)", "give the folder of `draftmark run -o`"
            )
        if isinstance(found, Unusable):
            raise ResultError(f"{path}: {found.why}", "run the plan again into this folder to write it anew")
        return found

    def cell(self, service: Service, cell: Cell) -> CellResult | Unusable | None:
        """The stored result of a cell, None where there is none, and why it does not count otherwise."""
        found = _opened(self._folder(service.id) / f"{cell.id}.json", CellResult)
        if found is None or isinstance(found, Unusable):
            return found
        if found.cell.hash != cell.hash or found.service != service.id:
            return Unusable("measured under other settings")
        if _digest(self._requests(service.id, cell.id)) != found.requests_sha256:
            return Unusable("its request records are missing or damaged")
        return found

    def service(self, name: str) -> ServiceResult | None:
        """The last start of a service; None where there is none that can be believed."""
        found = _opened(self._folder(name) / "service.json", ServiceResult)
        return None if isinstance(found, Unusable) else found

    def records(self, service: str, cell: str) -> tuple[RequestRecord, ...]:
        """Every request of a cell; ResultError where they are damaged."""
        try:
            with zstd.open(self._requests(service, cell)) as lines:
                return tuple(map(_record.decode, lines))
        except (zstd.ZstdError, EOFError, OSError, msgspec.DecodeError) as error:
            raise ResultError(f"{self._folder(service)}/{cell}: damaged request records ({error})") from error

    def load(self, matrix: Matrix, *, records: bool = False) -> CampaignResult:
        """Everything that counts, in the plan's order; requests are read when they are looked at."""
        info = self.info()
        services, cells = [], []
        for service in matrix.services:
            if start := self.service(service.id):
                services.append(start)
            for cell in service.cells:
                found = self.cell(service, cell)
                if not isinstance(found, CellResult):
                    continue
                cells.append(found)
        read = lru_cache(KEPT)(self.records)
        kept = {
            f"{found.service}/{found.cell.id}": _Requests(read, found.service, found.cell.id)
            for found in (cells if records else ())
        }
        return CampaignResult(
            info=info, matrix=matrix, services=tuple(services), cells=tuple(cells), records=kept
        )

    def _requests(self, service: str, cell: str) -> Path:
        return self._folder(service) / f"{cell}.requests.jsonl.zst"

    def _folder(self, service: str) -> Path:
        return self.root / service

    def _write(self, path: Path, parts: Iterable[bytes]) -> str:
        """Whole or not at all: temporary name, sync, rename; gives the SHA-256 of what was written."""
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        with _translated(path):
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                with temporary.open("wb") as handle:
                    digest = _write_synced(handle, parts)
                temporary.replace(path)
            except OSError:
                with suppress(OSError):
                    temporary.unlink()
                raise
        return digest


def _write_synced(handle: IO[bytes], parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        handle.write(part)
        digest.update(part)
    handle.flush()
    os.fsync(handle.fileno())
    return digest.hexdigest()


def _packed(records: Iterable[RequestRecord]) -> Iterator[bytes]:
    """One line of JSON each, compressed, without ever having all of them in memory."""
    packer = zstd.ZstdCompressor(level=6)
    for record in records:
        yield packer.compress(_line.encode(record) + b"\n")
    yield packer.flush()


def _digest(path: Path) -> str | None:
    """SHA-256 of a file's content; None where it cannot be read."""
    try:
        with path.open("rb") as handle:
            return hashlib.file_digest(handle, "sha256").hexdigest()
    except OSError:
        return None


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    """Turn the system's word on a failed write into one that says what is safe and what to do."""
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"{path}: cannot write: {error.strerror or error}",
            "nothing stored before is lost; free space or mend permissions, then run the same command",
        ) from error


def _sealed(value: msgspec.Struct) -> bytes:
    """Readable JSON with a checksum of its content."""
    content = msgspec.to_builtins(value)
    content["checksum"] = _checksum(content)
    return json.dumps(content, indent=1, ensure_ascii=False).encode() + b"\n"


def _checksum(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(msgspec.json.encode(content, order="sorted")).hexdigest()


def _opened(path: Path, kind: type[Stored]) -> Stored | Unusable | None:
    """A stored value, None where there is no file, or why it cannot be believed."""
    try:
        content = msgspec.json.decode(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (msgspec.DecodeError, OSError) as error:
        return Unusable(f"damaged ({error})")
    if not isinstance(content, dict):
        return Unusable("damaged (not an object)")
    if content.get("schema_version") != SCHEMA_VERSION:
        return Unusable(f"of format {content.get('schema_version')}, this draftmark reads {SCHEMA_VERSION}")
    if content.pop("checksum", None) != _checksum(content):
        return Unusable("edited or damaged (its checksum differs)")
    try:
        return msgspec.convert(content, type=kind)
    except msgspec.ValidationError as error:
        return Unusable(f"damaged ({error})")
