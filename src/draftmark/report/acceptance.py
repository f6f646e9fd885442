"""Where drafts are accepted: by their position, and by the turn of a session."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from draftmark.metrics import pooled, tau
from draftmark.report.parts import Axis, Chart, Figure, Point
from draftmark.report.view import WORKLOADS, Panels, View, measured
from draftmark.schema import RequestRecord, Service, Speculation, WorkloadKind

POOLED = "pooled over all n, so no interval"


@dataclass(frozen=True)
class Positions:
    """Drafts accepted at each position, and the steps that had a draft."""

    accepted: tuple[int, ...]
    steps: int


def by_position(view: View, workload: WorkloadKind) -> Figure:
    """Share of the drafting steps whose draft was accepted up to each position, pooled over the cells."""
    id_ = f"fig-positions-{workload}"
    charts = []
    for number, (place, members) in enumerate(view.located.items(), 1):
        services = {s.id: s for s, cell in members if cell.workload == workload}
        points = tuple(
            Point(str(index), service.method.name, 100 * count / found.steps, None, None, found.steps)
            for service in services.values()
            if (found := positions(own_speculation(view, service, workload)))
            for index, count in enumerate(found.accepted, 1)
        )
        if not points:
            continue
        charts.append(
            Chart(
                id=f"{id_}-{number}",
                kind="lines",
                title="Accepted by position",
                panel=place or "All cells",
                x=Axis("Position in the draft"),
                y=Axis("Accepted that far", "% of drafts"),
                groups=tuple(sorted({point.x for point in points}, key=int)),
                points=points,
                interval=POOLED,
                span=(0.0, max(100.0, *(point.value for point in points))),
                counted="drafts",
            )
        )
    return Figure(
        id_, f"{WORKLOADS[workload]}: drafts accepted by position", tuple(charts), f"numbers-{workload}"
    )


def own_speculation(view: View, service: Service, workload: WorkloadKind) -> Iterator[Speculation]:
    """What the engine says of each of a service's cells of one workload."""
    for cell in service.cells:
        result = measured(view.cells.get((service.id, cell.id)))
        if cell.workload == workload and result and result.speculation:
            yield result.speculation


def positions(found: Iterable[Speculation]) -> Positions | None:
    """The sum over cells that say how many steps had a draft; every step had one where that is not said."""
    known = [
        (one.accepted_per_position, steps)
        for one in found
        if one.accepted_per_position and (steps := one.draft_steps or one.steps)
    ]
    if not known:
        return None
    depth = max(len(accepted) for accepted, _ in known)
    sums = (sum(accepted[i] for accepted, _ in known if i < len(accepted)) for i in range(depth))
    return Positions(tuple(sums), sum(steps for _, steps in known))


def by_turn(view: View, workload: WorkloadKind, panels: Panels) -> Figure:
    """Acceptance length over the turns of a session, from its requests where they are at hand."""
    id_ = f"fig-turns-{workload}"
    scenes: Panels = {}
    for name, members in panels.items():
        for service, cell, place in members:
            if workload == "agentic":
                scenes.setdefault(f"{name}, {place.x}", []).append((service, cell, place))
    charts = []
    for number, (name, members) in enumerate(scenes.items(), 1):
        points = tuple(
            point
            for service, cell, _ in members
            if measured(view.cells.get((service.id, cell.id)))
            for point in turn_points(
                service.method.name, cell.id, view.result.records.get(f"{service.id}/{cell.id}", ())
            )
        )
        if points:
            charts.append(turn_chart(f"{id_}-{number}", name, points))
    caption = f"{WORKLOADS[workload]}: acceptance length by turn"
    return Figure(id_, caption, tuple(charts), f"numbers-{workload}")


def turn_points(method: str, cell: str, records: Sequence[RequestRecord]) -> Iterator[Point]:
    """Acceptance length of each turn, where every one of its requests tells its own."""
    turns = sorted({r.turn for r in records if r.turn is not None and r.role == "measured"})
    for turn in turns:
        said = [r.speculation for r in records if r.turn == turn and r.role == "measured" and r.ok]
        length = tau(pooled(said))
        if length is not None:
            yield Point(str(turn), method, length, None, None, len(said), cell=cell)


def turn_chart(id_: str, panel: str, points: tuple[Point, ...]) -> Chart:
    """One scenario's acceptance length over its turns."""
    return Chart(
        id=id_,
        kind="lines",
        title="Acceptance by turn",
        panel=panel,
        x=Axis("Turn"),
        y=Axis("Acceptance length", "tok/step"),
        groups=tuple(sorted({point.x for point in points}, key=int)),
        points=points,
        interval=POOLED,
    )
