"""One cell on one ready server: load, counters, health → a CellResult with its records."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from draftmark import metrics, workload
from draftmark.campaign.rounds import in_rounds
from draftmark.campaign.servers import Ready, utc_now
from draftmark.engines import ENGINES
from draftmark.errors import DraftmarkError, ServiceError
from draftmark.load import LoadJob, measure_apart
from draftmark.plan import simulated
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
    parts = workload.rounds(cell, work)
    try:
        server.flush()
        _load(server, cell, Work(requests=work.warmup))
        before = _counters(server)
        with CpuWatch(server.processes) as watch:
            load, used = in_rounds(
                parts,
                lambda part, ended: _load(server, cell, part, lambda more: on_progress(ended + more)),
                lambda load: _enough(cell, load),
            )
        after = _counters(server)
        control = _control(server, cell, work, used)
    except DraftmarkError as error:
        return failed(server, cell, started_at, attempt, _told(error))
    records = (*load.records, *control)
    if problem := failure([record for record in records if record.role != "margins"]):
        return failed(server, cell, started_at, attempt, problem, records)
    spoken = ENGINES[server.service.engine.kind].speculation(before, after, load.records)
    measured = metrics.measure(cell, load, spoken) | _sanity(load)
    result = CellResult(
        service=server.service.id,
        cell=cell,
        status="ok",
        started_at=started_at,
        duration_s=load.duration_s,
        wall_s=time.monotonic() - started_s,
        metrics=measured,
        speculation=spoken,
        flags=_flags(server, cell, load, measured, spoken, watch),
        health=load.health,
        foreign_cpu=watch.foreign_cpu,
        attempts=attempt,
    )
    return Measurement(result, records)


def _enough(cell: Cell, load: LoadResult) -> bool:
    """Whether a cell needs no more rounds: its decode rate is known closely enough, or it is no result."""
    width = metrics.decode_half_width(metrics.completed(load.records))
    known = cell.precision is not None and width is not None and width <= cell.precision
    return known or failure(load.records) is not None


def _control(server: Ready, cell: Cell, work: Work, used: int) -> tuple[RequestRecord, ...]:
    """The same requests once more under the same load, and once for how close each choice was."""
    again = [workload.control_of(work)] if cell.control else []
    if cell.asks_margins:
        again.append(workload.margins_of(work))
    passes = [in_rounds(workload.rounds(cell, one)[:used], _plain(server, cell), _broken) for one in again]
    return tuple(record for found, _ in passes for record in found.records)


def _plain(server: Ready, cell: Cell) -> Callable[[Work, int], LoadResult]:
    return lambda part, _: _load(server, cell, part)


def _broken(load: LoadResult) -> bool:
    return failure(load.records) is not None


def _sanity(load: LoadResult) -> dict[str, float]:
    share = workload.sane_share(metrics.completed(load.records))
    return {} if share is None else {"sane_share": share}


def _flags(
    server: Ready,
    cell: Cell,
    load: LoadResult,
    measured: Mapping[str, float],
    speculation: Speculation | None,
    watch: CpuWatch,
) -> tuple[Flag, ...]:
    method = server.service.method
    found = metrics.flags(
        cell,
        load,
        measured,
        speculation=speculation,
        speculative=ENGINES[server.service.engine.kind].METHODS[method.kind].speculative,
        synthetic=simulated(method),
        facts=server.facts,
        foreign_cpu=watch.foreign_cpu,
        cpus=watch.cpus,
    )
    if not server.adjusted:
        return found
    change = ", ".join(f"{name} {value}" for name, value in server.adjusted.items())
    return (*found, Flag(kind="adjusted", detail=f"not as planned, to avoid a failed start: {change}"))


def _load(
    server: Ready, cell: Cell, work: Work, on_progress: Callable[[int], None] = lambda _: None
) -> LoadResult:
    prompt = cell.length or cell.longest or 0
    job = LoadJob(
        base_url=server.base_url,
        headers=dict(server.headers),
        service=server.service,
        served_name=server.served_name,
        work=work,
        concurrency=cell.concurrency,
        timeout_s=60.0 + 2.0 * cell.max_tokens + 0.05 * prompt,
        stall_s=30.0 + 0.05 * prompt,
        give_up=GIVE_UP,
    )
    return measure_apart(job, on_progress)


def _counters(server: Ready) -> str:
    path = ENGINES[server.service.engine.kind].readiness(server.service).metrics_path
    return server.get(path) if path else ""


def failure(records: Sequence[RequestRecord]) -> Diagnosis | None:
    """Why a cell is no result: nothing was measured, no token came, or more failed than is tolerated."""
    failed = [record for record in records if not record.ok]
    if len(failed) <= TOLERATED_FAILURES * len(records) and len(failed) < len(records):
        return None if any(record.chunks.token_times_s for record in records) else _silent(records)
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


def _silent(records: Sequence[RequestRecord]) -> Diagnosis:
    counted = sum(record.output_tokens or 0 for record in records)
    return Diagnosis(
        cause="no-output",
        summary=f"{len(records)} requests completed and none brought any text",
        evidence=(f"tokens by the server's count: {counted}",),
        remedy="tokens without text cannot be timed: do the tokenizer and the weights belong together?",
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
