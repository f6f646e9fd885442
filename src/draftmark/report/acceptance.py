"""Where drafts are accepted, as ``compare`` has it: by what was asked, by turn and depth, by position."""

from collections.abc import Iterator, Sequence
from typing import Literal

from draftmark.report.parts import Axis, Chart, Column, Entry, Figure, Point, Row, Table
from draftmark.report.view import WORKLOADS, View, short_count
from draftmark.schema import Acceptance, Estimate, Positions, WorkloadKind
from draftmark.wording import basis

By = Literal["kind", "turn", "context"]
SLICES: dict[By, str] = {
    "kind": "prompt kind",
    "turn": "turn of the session, the first is 0",
    "context": "tokens of context",
}
POOLED = "pooled over all n, so no interval"
TURNS = "whiskers: 95 % interval over n prompts; none where single requests do not tell their steps"


def slices(view: View, workload: WorkloadKind) -> Iterator[Table]:
    """Acceptance length by prompt kind, turn and depth of context, and the share by position, where known."""
    for by in SLICES:
        found = [one for one in view.comparison.acceptance if (one.workload, one.by) == (workload, by)]
        if found:
            yield slice_table(view, workload, by, found)
    if counted := [one for one in view.comparison.positions if one.workload == workload]:
        yield position_table(view, workload, counted)


def slice_table(view: View, workload: WorkloadKind, by: By, found: Sequence[Acceptance]) -> Table:
    """Methods down, slices across."""
    values = list(dict.fromkeys(one.value for one in found))
    ordered = values if by == "kind" else sorted(values, key=int)
    at = {(one.service, one.value): one.tau for one in found}
    services = [service for service in view.services.values() if any(key[0] == service.id for key in at)]
    return Table(
        id=f"acceptance-{by}-{workload}",
        title=f"{WORKLOADS[workload]}: acceptance length by {SLICES[by]}",
        columns=(
            Column("Method"),
            *(Column(title(by, value), "tok/step", numeric=True) for value in ordered),
        ),
        rows=tuple(
            Row(
                (
                    Entry(view.name(service)),
                    *(length(at.get((service.id, value))) for value in ordered),
                ),
                service.method.name,
            )
            for service in services
        ),
        notes=(
            "All tokens over all steps. The 95 % interval is over n prompts; there is none where the engine "
            "counts a whole cell and not each request.",
        ),
    )


def position_table(view: View, workload: WorkloadKind, found: Sequence[Positions]) -> Table:
    """Methods down, positions across."""
    most = max(len(one.accepted) for one in found)
    return Table(
        id=f"positions-{workload}",
        title=f"{WORKLOADS[workload]}: drafts accepted by position",
        columns=(
            Column("Method"),
            *(Column(str(place), "%", numeric=True) for place in range(1, most + 1)),
            Column("Drafts", numeric=True),
        ),
        rows=tuple(
            Row(
                (
                    Entry(view.name(view.services[one.service])),
                    *(shares(one, place) for place in range(most)),
                    Entry(f"{one.steps:,}", sort=one.steps),
                ),
                one.method,
            )
            for one in found
        ),
        notes=(
            "Share of the drafts that were accepted up to that position; under it, of those that were "
            "accepted up to the one before. Pooled over the cells, so without an interval.",
        ),
    )


def shares(one: Positions, place: int) -> Entry:
    """Of all drafts, and of those that came so far."""
    if place >= len(one.accepted):
        return Entry("–", tone="muted")
    then = f"{one.conditional[place]:.0%} of those" if place < len(one.conditional) else ""
    return Entry(f"{one.accepted[place]:.0%}", then, one.accepted[place])


def title(by: By, value: str | int) -> str:
    """A slice as a column's head."""
    if by == "context":
        return short_count(int(value))
    return f"turn {value}" if by == "turn" else str(value)


def length(found: Estimate | None) -> Entry:
    """One acceptance length with its interval and n."""
    if found is None:
        return Entry("–", tone="muted")
    return Entry(f"{found.value:.2f}", basis(found), found.value)


def by_position(view: View, workload: WorkloadKind) -> Figure:
    """Share of the drafting steps whose draft was accepted up to each position, pooled over the cells."""
    points: dict[str, list[Point]] = {}
    for one in view.comparison.positions:
        if one.workload == workload:
            points.setdefault(view.places[one.service], []).extend(
                Point(str(index), one.method, 100 * share, None, None, one.steps)
                for index, share in enumerate(one.accepted, 1)
            )
    return figure(
        f"fig-positions-{workload}",
        f"{WORKLOADS[workload]}: drafts accepted by position",
        points,
        Axis("Position in the draft"),
        Axis("Accepted that far", "% of drafts"),
        f"positions-{workload}",
        POOLED,
        "drafts",
    )


def by_turn(view: View, workload: WorkloadKind) -> Figure:
    """Acceptance length over the turns of a session."""
    points: dict[str, list[Point]] = {}
    for one in view.comparison.acceptance:
        if (one.workload, one.by) == (workload, "turn"):
            tau = one.tau
            points.setdefault(view.places[one.service], []).append(
                Point(str(one.value), one.method, tau.value, tau.low, tau.high, tau.n)
            )
    return figure(
        f"fig-turns-{workload}",
        f"{WORKLOADS[workload]}: acceptance length by turn",
        points,
        Axis("Turn, the first is 0"),
        Axis("Acceptance length", "tok/step"),
        f"acceptance-turn-{workload}",
        TURNS,
        "prompts",
    )


def figure(
    id_: str,
    caption: str,
    points: dict[str, list[Point]],
    x: Axis,
    y: Axis,
    table: str,
    whiskers: str,
    counted: str,
) -> Figure:
    """One chart of lines for each place that has points, on one y axis."""
    drawn = [
        end for place in points.values() for p in place for end in (p.value, p.low, p.high) if end is not None
    ]
    top = max([100.0 if y.unit.startswith("%") else 0.0, *drawn])
    charts = (
        Chart(
            id=f"{id_}-{number}",
            kind="lines",
            title=y.title,
            panel=place or "All cells",
            x=x,
            y=y,
            groups=tuple(sorted({point.x for point in found}, key=int)),
            points=tuple(found),
            interval=whiskers,
            span=(0.0, top),
            counted=counted,
        )
        for number, (place, found) in enumerate(points.items(), 1)
    )
    return Figure(id_, caption, tuple(charts), table)
