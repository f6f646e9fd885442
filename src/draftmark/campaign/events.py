"""What a campaign says while it runs; whoever listens decides how to show it."""

from dataclasses import dataclass

from draftmark.estimate import Span
from draftmark.schema import Cell, CellResult, Diagnosis, Service


@dataclass(frozen=True)
class ServiceStarting:
    """A server is about to be started for so many cells."""

    service: Service
    cells: int


@dataclass(frozen=True)
class ServiceProgress:
    """Where a starting server is."""

    service: Service
    text: str
    elapsed_s: float


@dataclass(frozen=True)
class ServiceReady:
    """A server answers."""

    service: Service
    ready_s: float


@dataclass(frozen=True)
class ServiceFailed:
    """A server did not start, or died; its cells that were not measured are stored as failed."""

    service: Service
    diagnosis: Diagnosis


@dataclass(frozen=True)
class CellStarted:
    """A cell is being measured."""

    service: Service
    cell: Cell
    attempt: int


@dataclass(frozen=True)
class CellProgress:
    """So many of a cell's requests are done."""

    service: Service
    cell: Cell
    done: int
    total: int


@dataclass(frozen=True)
class CellDone:
    """A cell was stored, measured or failed."""

    service: Service
    result: CellResult
    remaining: Span


@dataclass(frozen=True)
class CellKept:
    """A cell is already stored and counts."""

    service: Service
    result: CellResult


@dataclass(frozen=True)
class CellAgain:
    """A stored cell does not count and is measured again."""

    service: Service
    cell: Cell
    why: str


@dataclass(frozen=True)
class Note:
    """Something a person should know."""

    text: str


Event = (
    ServiceStarting
    | ServiceProgress
    | ServiceReady
    | ServiceFailed
    | CellStarted
    | CellProgress
    | CellDone
    | CellKept
    | CellAgain
    | Note
)
