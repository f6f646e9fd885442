"""Results as tables: speedups at a glance, every number of a workload, losslessness, flags."""

from collections.abc import Iterable, Sequence
from itertools import chain

from draftmark.metrics import METRICS
from draftmark.report.parts import Column, Entry, Row, Table, Tone
from draftmark.report.view import WORKLOADS, View, measured, method_of
from draftmark.schema import Cell, CellResult, Service, Speedup, WorkloadKind
from draftmark.wording import basis, interval, times

FLAGGED = "†"
FLAG_NOTE = f"{FLAGGED} flagged: shown, and left out of every count and ranking."
SPEEDUP_NOTE = (
    "Speedup over the baseline on the same prompts, with its 95 % interval; n is the number of prompts. "
    "The verdict is “cannot tell” where the interval holds 1 or the effect is within the measured noise."
)
STEP_NOTE = (
    "Speedup is acceptance length over step cost: a low acceptance length means a poor draft, "
    "a high step cost an expensive draft or verification."
)
TONES: dict[str, Tone] = {"faster": "faster", "slower": "slower", "cannot tell": "unsure"}

# Which numbers of METRICS a workload's table shows.
SHOWN: dict[WorkloadKind, tuple[str, ...]] = {
    "prompts": ("decode_tok_s", "median_ttft_ms", "median_tpot_ms", "tau", "step_ms"),
    "concurrency": (
        "steady_tok_s", "decode_tok_s", "effective_concurrency", "median_ttft_ms", "p99_ttft_ms",
        "median_tpot_ms", "tau", "step_ms",
    ),
    "context": ("decode_tok_s", "median_ttft_ms", "median_tpot_ms", "tau", "step_ms"),
    "agentic": ("decode_tok_s", "median_ttft_ms", "median_e2el_ms", "median_tpot_ms", "tau", "step_ms"),
    "trace": ("decode_tok_s", "output_throughput", "median_ttft_ms", "p99_ttft_ms", "median_tpot_ms", "tau"),
}  # fmt: skip


def speedup_entry(speedup: Speedup) -> Entry:
    """A speedup with its interval and n, toned by its verdict, marked where flagged."""
    mark = FLAGGED if speedup.flags else ""
    return Entry(
        times(speedup.ratio.value) + mark,
        basis(speedup.ratio),
        speedup.ratio.value,
        "flagged" if speedup.flags else TONES[speedup.verdict],
    )


def absent_entry(view: View, service: Service, cell: str) -> Entry:
    """What stands where a cell has no speedup: the baseline itself, a failure, or nothing yet."""
    result = view.cells.get((service.id, cell))
    if result is None:
        started = view.starts.get(service.id)
        died = started is not None and started.status == "failed"
        return Entry("server failed", tone="failed") if died else Entry("not run", tone="muted")
    if result.status != "ok":
        return Entry(result.status, result.diagnosis.cause if result.diagnosis else "", tone="failed")
    again = " again" if service.repeats else ""
    return Entry(f"baseline{again}" if service.method.name in view.baselines else "–", tone="muted")


def speedup_matrix(view: View, workload: WorkloadKind) -> Table:
    """Methods down, cells across: the speedup of each."""
    planned = list(view.planned(workload))
    cells = tuple(dict.fromkeys(cell.id for _, cell in planned))
    services = [
        service
        for service in view.services.values()
        if service.method.name not in view.baselines
        and any(cell.workload == workload for cell in service.cells)
    ]
    return Table(
        id=f"speedups-{workload}",
        title=f"{WORKLOADS[workload]}: speedup over {view.baseline or 'the baseline'}",
        columns=(Column("Method"), *(Column(cell, numeric=True) for cell in cells)),
        rows=tuple(matrix_row(view, service, cells) for service in services),
        notes=notes(view, services, SPEEDUP_NOTE),
    )


def matrix_row(view: View, service: Service, cells: Sequence[str]) -> Row:
    """One service's speedups; a cell that its plan does not have is empty."""
    own = {cell.id for cell in service.cells}
    entries = [
        Entry("", tone="muted")
        if cell not in own
        else speedup_entry(view.speedups[service.id, cell])
        if (service.id, cell) in view.speedups
        else absent_entry(view, service, cell)
        for cell in cells
    ]
    return Row((Entry(view.name(service)), *entries), service.method.name)


def notes(view: View, services: Iterable[Service], *first: str) -> tuple[str, ...]:
    """The given notes, and what the flag mark means if one of the services has a flag."""
    ids = {service.id for service in services}
    flagged = any(view.flags(*key) for key in (*view.cells, *view.speedups) if key[0] in ids)
    return (*first, FLAG_NOTE) if flagged else first


def numbers(view: View, workload: WorkloadKind) -> Table:
    """Every cell of a workload with all that was measured of it."""
    planned = list(view.planned(workload))
    keys = SHOWN[workload]
    return Table(
        id=f"numbers-{workload}",
        title=f"{WORKLOADS[workload]}: every number",
        columns=(
            Column("Cell"),
            *((Column("Where"),) if any(view.places.values()) else ()),
            Column("Method"),
            Column("Speedup", "95 %", numeric=True),
            Column("Verdict"),
            *(Column(METRICS[key].title, METRICS[key].unit, numeric=True) for key in keys),
            Column("Step cost", "× baseline's", numeric=True),
            Column("n", "requests", numeric=True),
            Column("Flags"),
        ),
        rows=tuple(number_row(view, service, cell, keys) for service, cell in planned),
        notes=notes(view, (service for service, _ in planned), SPEEDUP_NOTE, STEP_NOTE),
    )


def number_row(view: View, service: Service, cell: Cell, keys: Sequence[str]) -> Row:
    """One cell's numbers; where it failed, how."""
    result = view.cells.get((service.id, cell.id))
    speedup = view.speedups.get((service.id, cell.id))
    flags, own = view.flags(service.id, cell.id), view.own_flags(service.id, cell.id)
    verdict = Entry(speedup.verdict, tone=TONES[speedup.verdict]) if speedup else Entry("")
    return Row(
        (
            Entry(cell.id),
            *((Entry(view.places[service.id]),) if any(view.places.values()) else ()),
            Entry(service.method.name),
            speedup_entry(speedup) if speedup else absent_entry(view, service, cell.id),
            Entry("not ranked", tone="flagged") if speedup and speedup.flags else verdict,
            *(metric_entry(result, key, own) for key in keys),
            step_cost_entry(speedup),
            metric_entry(result, "completed", ()),
            Entry(", ".join(flags), tone="flagged" if flags else ""),
        ),
        service.method.name,
        f"{service.id}/{cell.id}",
    )


def step_cost_entry(speedup: Speedup | None) -> Entry:
    """The method's time per decode step over the baseline's."""
    if speedup is None or not speedup.step_ratio:
        return Entry("–", tone="muted")
    cost = 1 / speedup.step_ratio
    return Entry(times(cost) + (FLAGGED if speedup.flags else ""), sort=cost)


def metric_entry(result: CellResult | None, key: str, flags: Sequence[str]) -> Entry:
    """One number as METRICS writes it; a dash where it was not measured, a mark where the cell is flagged."""
    cell = measured(result)
    value = cell.metrics.get(key) if cell else None
    mark = FLAGGED if flags and value is not None else ""
    return Entry(METRICS[key].show(value) + mark, sort=value, tone="muted" if value is None else "")


def glance(view: View) -> Table:
    """Each method over everything: how often faster, slower or neither, and its extremes."""
    rows = [
        glance_row(view, service, speedups)
        for service in view.services.values()
        if (speedups := [s for s in view.comparison.speedups if s.service == service.id])
    ]
    titles = ("faster", "cannot tell", "slower", "flagged")
    return Table(
        id="verdicts",
        title=f"Cells on which each method is faster or slower than {view.baseline or 'the baseline'}",
        columns=(
            Column("Method"),
            *(Column(title, "cells", numeric=True) for title in titles),
            Column("Highest", numeric=True),
            Column("Lowest", numeric=True),
        ),
        rows=tuple(rows),
        notes=notes(
            view, view.services.values(), "Highest and lowest are single cells with their 95 % interval."
        ),
    )


def glance_row(view: View, service: Service, speedups: Sequence[Speedup]) -> Row:
    """Counts of one service's verdicts, and its highest and lowest speedup that is not flagged."""
    ranked = sorted((s for s in speedups if not s.flags), key=lambda s: s.ratio.value)
    counts = [
        Entry(
            str(count := sum(s.verdict == verdict for s in ranked)),
            sort=count,
            tone=tone if count else "muted",
        )
        for verdict, tone in (("faster", TONES["faster"]), ("cannot tell", ""), ("slower", TONES["slower"]))
    ]
    flagged = len(speedups) - len(ranked)
    ends = (ranked[-1], ranked[0]) if ranked else ()
    return Row(
        (
            Entry(view.name(service)),
            *counts,
            Entry(str(flagged), sort=flagged, tone="flagged" if flagged else "muted"),
            *(Entry(times(s.ratio.value), f"{s.cell}, {interval(s.ratio)}", s.ratio.value) for s in ends),
            *((Entry("–", tone="muted"),) * (2 - len(ends))),
        ),
        service.method.name,
    )


def browser(view: View) -> Table:
    """Every planned cell in one table, for searching and for opening one by one."""
    planned = chain.from_iterable(map(view.planned, view.workloads))
    rows = tuple(browser_row(view, service, cell) for service, cell in chain(planned, view.repeated))
    keys = ("decode_tok_s", "median_ttft_ms", "tau")
    return Table(
        id="cells",
        title="Every cell",
        columns=(
            Column("Cell"),
            Column("Workload"),
            *((Column("Where"),) if any(view.places.values()) else ()),
            Column("Method"),
            Column("Outcome"),
            Column("Speedup", "95 %", numeric=True),
            *(Column(METRICS[key].title, METRICS[key].unit, numeric=True) for key in keys),
            Column("Flags"),
        ),
        rows=rows,
        notes=notes(view, view.services.values()),
    )


def browser_row(view: View, service: Service, cell: Cell) -> Row:
    """One cell's outcome in a word, and its main numbers."""
    result = view.cells.get((service.id, cell.id))
    speedup = view.speedups.get((service.id, cell.id))
    flags, own = view.flags(service.id, cell.id), view.own_flags(service.id, cell.id)
    keys = ("decode_tok_s", "median_ttft_ms", "tau")
    return Row(
        (
            Entry(cell.id),
            Entry(cell.workload),
            *((Entry(view.places[service.id]),) if any(view.places.values()) else ()),
            Entry(method_of(service)),
            outcome(view, service, cell.id),
            speedup_entry(speedup) if speedup else Entry("–", tone="muted"),
            *(metric_entry(result, key, own) for key in keys),
            Entry(", ".join(flags), tone="flagged" if flags else ""),
        ),
        service.method.name,
        f"{service.id}/{cell.id}",
    )


def outcome(view: View, service: Service, cell: str) -> Entry:
    """One word for a cell: its verdict where it has one that counts."""
    if view.flags(service.id, cell):
        return Entry("flagged", tone="flagged")
    speedup = view.speedups.get((service.id, cell))
    return (
        Entry(speedup.verdict, tone=TONES[speedup.verdict]) if speedup else absent_entry(view, service, cell)
    )
