"""What is stored of cells, services and campaigns."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from draftmark.schema.common import SCHEMA_VERSION, Frozen, Scalar
from draftmark.schema.exchange import LoadHealth, RequestRecord, Speculation
from draftmark.schema.matrix import Cell, Matrix, Service
from draftmark.schema.plan import Plan

FlagKind = Literal[
    "early-stop",
    "cache-hit",
    "degenerate",
    "client-bound",
    "foreign-load",
    "capped",
    "synthetic",
    "no-draft",
    "drift",
    "implausible",
    "few-samples",
    "adjusted",
]


class Flag(Frozen, frozen=True, kw_only=True):
    """A reason to doubt a cell's numbers."""

    kind: FlagKind
    detail: str


class Diagnosis(Frozen, frozen=True, kw_only=True):
    """Why something failed."""

    cause: str
    """Short stable name, e.g. ``port-in-use``."""
    summary: str
    evidence: tuple[str, ...] = ()
    """Lines of the log, or what was observed."""
    remedy: str = ""
    adjust: dict[str, Scalar] = {}
    """Settings of the service that would avoid it, where changing them is safe."""


Status = Literal["ok", "failed", "interrupted"]


class CellResult(Frozen, frozen=True, kw_only=True):
    """One cell, as stored."""

    schema_version: int = SCHEMA_VERSION
    service: str
    cell: Cell
    status: Status
    started_at: str
    """UTC, ISO 8601."""
    duration_s: float
    """From the start of the clock to the end of the last measured request."""
    wall_s: float | None = None
    """All around it too: load client, warm-up, control."""
    metrics: dict[str, float] = {}
    """Keys of ``metrics.METRICS``; what could not be measured is absent."""
    speculation: Speculation | None = None
    flags: tuple[Flag, ...] = ()
    health: LoadHealth | None = None
    foreign_cpu: float | None = None
    """CPU cores that other processes used while it was measured."""
    diagnosis: Diagnosis | None = None
    attempts: int = 1
    requests_sha256: str = ""
    """Of the compressed request records beside it."""


class ServiceResult(Frozen, frozen=True, kw_only=True):
    """One start of a service, as stored."""

    schema_version: int = SCHEMA_VERSION
    service: Service
    status: Status
    argv: tuple[str, ...] = ()
    env: dict[str, str] = {}
    """What was set beyond the inherited environment; secrets masked."""
    engine_version: str | None = None
    started_at: str
    ready_s: float | None = None
    facts: dict[str, Any] = {}
    """What the server says of itself: caps, memory, versions."""
    warnings: tuple[Diagnosis, ...] = ()
    """What it does otherwise than it was asked to, by its log at the time when it was ready."""
    adjusted: dict[str, Scalar | None] = {}
    """Settings that were changed as ``first_failure`` advised, after a start under the plan's own."""
    first_failure: Diagnosis | None = None
    exit_status: int | None = None
    diagnosis: Diagnosis | None = None
    log_tail: str = ""


class CampaignInfo(Frozen, frozen=True, kw_only=True):
    """What a result tree was made from."""

    schema_version: int = SCHEMA_VERSION
    draftmark: str
    """Version."""
    plan: Plan
    plan_text: str
    files: dict[str, str] = {}
    """Of each file that the plan names, by its word: a scenario's text, a trace's digest."""
    started_at: str
    machine: dict[str, Any] = {}


class CampaignResult(Frozen, frozen=True, kw_only=True):
    """A whole result tree, read back; what a report is made from."""

    info: CampaignInfo
    matrix: Matrix
    services: tuple[ServiceResult, ...] = ()
    cells: tuple[CellResult, ...] = ()
    records: Mapping[str, Sequence[RequestRecord]] = {}
    """By ``service/cell``; only where they were asked for. From a result tree they are read at each use."""
