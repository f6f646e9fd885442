"""What a choice of load, context, degree or budget rests on, as tables of one workload."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from draftmark.recommend import is_promising
from draftmark.report.parts import Column, Entry, Row, Table, Tone
from draftmark.report.tables import FLAG_NOTE, FLAGGED
from draftmark.report.view import WORKLOADS, View, spot
from draftmark.schema import CostModel, Course, Crossover, Scaling, WorkloadKind
from draftmark.wording import basis, times

AXES: dict[str, tuple[WorkloadKind, str]] = {
    "concurrency": ("concurrency", "requests at once"),
    "rate": ("concurrency", "requests/s"),
    "context": ("context", "prompt tokens"),
}
"""Of each axis the workload whose cells lie along it, and what its levels count."""
COURSES: dict[Course, Tone] = {
    "faster": "faster",
    "starts paying": "faster",
    "slower": "slower",
    "stops paying": "slower",
    "back and forth": "unsure",
    "cannot tell": "unsure",
}


def choices(view: View, workload: WorkloadKind) -> Iterator[Table]:
    """Where methods stop paying, what more GPUs bring, which budget to try; only what has rows."""
    made = (stops(view, workload), scaling(view, workload), budgets(view, workload))
    return (table for table in made if table.rows)


def stops(view: View, workload: WorkloadKind) -> Table:
    """How each method's verdict changes with load or length, over the levels that were measured."""
    found = [one for one in view.comparison.crossovers if AXES[one.axis][0] == workload and one.points]
    return Table(
        id=f"stops-{workload}",
        title=f"{WORKLOADS[workload]}: where it stops paying",
        columns=(
            Column("Method"),
            Column("Along"),
            Column("Held fixed"),
            Column("Course"),
            Column("Turns between"),
            Column("Verdict at each level"),
        ),
        rows=tuple(stop_row(view, one) for one in found),
        notes=(
            "Only measured levels count, nothing is interpolated: between the two that are named the verdict "
            f"turns, the first and the last with a clear one. {FLAGGED} flagged and left out.",
        ),
    )


def stop_row(view: View, one: Crossover) -> Row:
    """One method along one axis."""
    service = view.services[one.service]
    cells = {cell.id: cell for cell in service.cells}
    fixed = spot(cells[one.cells[0]]).panel
    turn = f"{one.between[0]:g} and {one.between[1]:g}" if one.between else "–"
    return Row(
        (
            Entry(view.name(service)),
            Entry(AXES[one.axis][1]),
            Entry(fixed),
            Entry(one.course, tone=COURSES[one.course]),
            Entry(turn, tone="" if one.between else "muted"),
            Entry("; ".join(levels(one))),
        ),
        one.method,
    )


def levels(one: Crossover) -> Iterator[str]:
    """``faster at 1, 2`` for each run of equal verdicts, then the levels in doubt."""
    for verdict, run in groupby(one.points, key=lambda point: point[1]):
        yield f"{verdict} at {', '.join(f'{level:g}' for level, _ in run)}"
    if one.left_out:
        yield f"{', '.join(f'{level:g}{FLAGGED}' for level in one.left_out)} not ranked"


def scaling(view: View, workload: WorkloadKind) -> Table:
    """Each method at each tensor-parallel degree against itself at the lowest one, cell by cell."""
    found = [one for one in view.comparison.scaling if view.kinds[one.cell] == workload]
    degrees = sorted({one.tp for one in found})
    hosts = len({one.host for one in found}) > 1
    ladders = [list(ladder) for _, ladder in groupby(found, key=lambda one: (one.host, one.method, one.cell))]
    flagged = (FLAG_NOTE,) if any(one.flags for one in found) else ()
    return Table(
        id=f"scaling-{workload}",
        title=f"{WORKLOADS[workload]}: what more GPUs for one server bring",
        columns=(
            Column("Method"),
            Column("Cell"),
            *((Column("Host"),) if hosts else ()),
            *(Column(f"TP {degree}", numeric=True) for degree in degrees),
        ),
        rows=tuple(ladder_row(ladder, degrees, hosts) for ladder in ladders),
        notes=(
            "A method against itself at the lowest degree, on the same prompts, with its 95 % interval; n is "
            "the number of prompts. Per GPU: the same over the number of GPUs, 1 where they scale fully.",
            *flagged,
        ),
    )


def ladder_row(ladder: Sequence[Scaling], degrees: Sequence[int], hosts: bool) -> Row:
    """One method on one cell at all degrees."""
    at = {one.tp: one for one in ladder}
    first = ladder[0]
    return Row(
        (
            Entry(first.method),
            Entry(first.cell),
            *((Entry(first.host),) if hosts else ()),
            *(step(at[degree]) if degree in at else Entry("–", tone="muted") for degree in degrees),
        ),
        first.method,
    )


def step(one: Scaling) -> Entry:
    """The rate at the lowest degree, and times that rate at the others, whole and per GPU."""
    mark = FLAGGED if one.flags else ""
    tone: Tone = "flagged" if one.flags else ""
    if one.ratio is None or one.per_gpu is None:
        return Entry(f"{one.rate:.1f} tok/s{mark}", tone=tone)
    detail = f"{basis(one.ratio)}; per GPU {times(one.per_gpu)}"
    return Entry(times(one.ratio.value) + mark, detail, one.ratio.value, tone)


def budgets(view: View, workload: WorkloadKind) -> Table:
    """What a model expects of a parameter's values, beside the best that was measured."""
    found = [one for one in view.comparison.models if view.kinds[one.cell] == workload]
    hosts = len({one.host for one in found}) > 1
    return Table(
        id=f"models-{workload}",
        title=f"{WORKLOADS[workload]}: parameter values that were not measured, as a model expects them",
        columns=(
            Column("Cell"),
            Column("Where"),
            Column("Parameter"),
            Column("Best measured", numeric=True),
            Column("Best expected", numeric=True),
            Column("Speedup expected", "model", numeric=True),
        ),
        rows=tuple(budget_row(one, hosts) for one in found),
        notes=(
            "A model, not a measurement: acceptance that saturates over a cost that grows, fitted to the "
            "measured values and asked only between them. Its error is the largest at a measured value that "
            "was left out of the fit. A value is worth measuring where it is expected above every measured "
            "one by more than that.",
        ),
    )


def budget_row(one: CostModel, hosts: bool) -> Row:
    """One family of methods on one cell."""
    value, tau, cost = max(one.points, key=lambda point: point[1] / point[2])
    known = "measured" if one.best in {point[0] for point in one.points} else "not measured"
    advice = "; worth measuring" if is_promising(one) and known == "not measured" else ""
    return Row(
        (
            Entry(one.cell),
            Entry(f"TP {one.tp}, {one.host}" if hosts else f"TP {one.tp}"),
            Entry(f"{one.kind}: {one.parameter}"),
            Entry(f"{value:g}", times(tau / cost), value),
            Entry(f"{one.best:g}", known + advice, one.best),
            Entry(
                f"≈ {times(one.expected)}",
                f"model, error up to {100 * one.error:.0f} %",
                one.expected,
                "unsure",
            ),
        )
    )
