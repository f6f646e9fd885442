"""One cell on one ready server: load, counters, health → a CellResult with its records."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from msgspec.structs import replace

from draftmark import metrics, workload
from draftmark.campaign.servers import Ready, utc_now
from draftmark.engines import ENGINES
from draftmark.errors import DraftmarkError, ServiceError
from draftmark.load import LoadJob, measure_apart
from draftmark.schema import (
    Cell,
    CellResult,
    Diagnosis,
    Flag,
    LoadResult,
    RequestRecord,
    Speculation,
    Work,
)
from draftmark.telemetry import CpuWatch

TOLERATED_FAILURES = 0.01
"""Share of a cell's requests that may fail before it is not a result."""
GIVE_UP = 3
"""Failures in a row after which the rest of a cell is not tried."""
EVIDENCE = 3
"""Failed requests that a diagnosis quotes."""


@dataclass(frozen=True)
class Measurement:
    """What measuring a cell gave."""

    result: CellResult
    records: tuple[RequestRecord, ...]


def measure_cell(
    server: Ready, cell: Cell, work: Work, attempt: int, on_progress: Callable[[int], None]
) -> Measurement:
    """Measure a cell; whatever goes wrong with the server or the requests is in the result."""
    started_at, started_s = utc_now(), time.monotonic()
    try:
        server.flush()
        _load(server, cell, Work(requests=work.warmup))
        before = _counters(server)
        with CpuWatch() as watch:
            load = _load(server, cell, replace(work, warmup=()), on_progress)
        after = _counters(server)
        control = _load(server, cell, workload.control_of(work)).records if cell.control else ()
    except DraftmarkError as error:
        return failed(server, cell, started_at, attempt, _told(error))
    records = (*load.records, *control)
    if problem := failure(records):
        return failed(server, cell, started_at, attempt, problem, records)
    spoken = ENGINES[server.service.engine.kind].speculation(before, after, load.records)
    measured = metrics.measure(cell, load, spoken)
    result = CellResult(
        service=server.service.id,
        cell=cell,
        status="ok",
        started_at=started_at,
        duration_s=load.duration_s,
        wall_s=time.monotonic() - started_s,
        metrics=measured,
        speculation=spoken,
        flags=_flags(server, cell, load, measured, spoken, watch.foreign_cpu),
        health=load.health,
        foreign_cpu=watch.foreign_cpu,
        attempts=attempt,
    )
    return Measurement(result, records)


def _flags(
    server: Ready,
    cell: Cell,
    load: LoadResult,
    measured: Mapping[str, float],
    speculation: Speculation | None,
    foreign_cpu: float | None,
) -> tuple[Flag, ...]:
    method = server.service.method
    found = metrics.flags(
        cell,
        load,
        measured,
        speculation=speculation,
        speculative=ENGINES[server.service.engine.kind].METHODS[method.kind].speculative,
        synthetic=any(name.startswith("synthetic") for name in method.params),
        facts=server.facts,
        foreign_cpu=foreign_cpu,
    )
    if not server.adjusted:
        return found
    change = ", ".join(f"{name} {value}" for name, value in server.adjusted.items())
    return (*found, Flag(kind="adjusted", detail=f"not as planned, to avoid a failed start: {change}"))


def _load(
    server: Ready, cell: Cell, work: Work, on_progress: Callable[[int], None] = lambda _: None
) -> LoadResult:
    job = LoadJob(
        base_url=server.base_url,
        headers=dict(server.headers),
        service=server.service,
        served_name=server.served_name,
        work=work,
        concurrency=cell.concurrency,
        timeout_s=60.0 + 2.0 * cell.max_tokens + 0.05 * (cell.length or 0),
        stall_s=30.0 + 0.05 * (cell.length or 0),
        give_up=GIVE_UP,
    )
    return measure_apart(job, on_progress)


def _counters(server: Ready) -> str:
    path = ENGINES[server.service.engine.kind].readiness(server.service).metrics_path
    return server.get(path) if path else ""


def failure(records: Sequence[RequestRecord]) -> Diagnosis | None:
    """Why a cell is no result: nothing was measured, or more requests failed than is tolerated."""
    failed = [record for record in records if not record.ok]
    if len(failed) <= TOLERATED_FAILURES * len(records) and len(failed) < len(records):
        return None
    if not records:
        return Diagnosis(cause="nothing-measured", summary="no request was sent")
    kind, _ = Counter(record.error or "" for record in failed).most_common(1)[0]
    examples = [record for record in failed if record.error == kind]
    return Diagnosis(
        cause=kind,
        summary=f"{len(failed)} of {len(records)} requests failed: {examples[0].error_detail or kind}",
        evidence=tuple(f"{record.request}: {record.error_detail}" for record in examples[:EVIDENCE]),
        remedy="look into server.log beside this file, then run the same command again",
    )


def _told(error: DraftmarkError) -> Diagnosis:
    cause = "server-page" if isinstance(error, ServiceError) else "load-client"
    return Diagnosis(cause=cause, summary=error.message, remedy=error.hint)


def failed(
    server: Ready,
    cell: Cell,
    started_at: str,
    attempt: int,
    diagnosis: Diagnosis,
    records: tuple[RequestRecord, ...] = (),
) -> Measurement:
    """A cell that is no result."""
    result = CellResult(
        service=server.service.id,
        cell=cell,
        status="failed",
        started_at=started_at,
        duration_s=(datetime.now(UTC) - datetime.fromisoformat(started_at)).total_seconds(),
        diagnosis=diagnosis,
        attempts=attempt,
    )
    return Measurement(result, records)
