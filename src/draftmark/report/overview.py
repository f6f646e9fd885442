"""Every speedup of a campaign in one picture: as a heat map, and against acceptance."""

from collections.abc import Iterator
from dataclasses import replace

from draftmark.report.charts import speedup_point
from draftmark.report.parts import Axis, Chart, Figure, Guide, Point
from draftmark.report.view import WORKLOADS, View
from draftmark.schema import Cell, Service

MOST_CELLS = 30
"""Columns of one heat map; more are drawn workload by workload, and of a workload in parts."""
COSTS = (0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 6.0)
"""Step costs that a scatter has lines for."""
SPEEDUP = Axis("Speedup", "×")
HEAT_INTERVAL = (
    "blue is faster, orange slower, the stronger the further from 1; in brackets where it cannot tell, "
    "† where flagged; no interval here, the tables have each"
)
SCATTER_INTERVAL = (
    "each point one cell; whiskers: 95 % interval over n prompts; hollow where it cannot tell, hollow and "
    "pale where flagged; on a line a decode step costs the same multiple of the baseline's"
)


Members = list[tuple[Service, Cell]]
"""Cells that are drawn together."""


def overview(view: View) -> tuple[Figure, ...]:
    """The heat map and the scatter, as far as there are speedups."""
    return tuple(figure for figure in (heat_figure(view), scatter_figure(view)) if figure.charts)


def heat_figure(view: View) -> Figure:
    """Methods down, cells across, one map for each place; several where cells are many."""
    maps = dict(part for place, members in view.located.items() for part in parted(place, members))
    charts = tuple(
        Chart(
            id=f"fig-heat-{number}",
            kind="heat",
            title="Speedup",
            panel=name,
            x=Axis("Cell"),
            y=SPEEDUP,
            groups=tuple(dict.fromkeys(cell.id for _, cell in members)),
            points=points,
            interval=HEAT_INTERVAL,
            counted="prompts",
        )
        for number, (name, members) in enumerate(maps.items(), 1)
        if (points := speedup_points(view, members))
    )
    return Figure("fig-heat", f"Speedup over {view.baseline or 'the baseline'}, all cells", charts, "cells")


def parted(place: str, members: Members) -> Iterator[tuple[str, Members]]:
    """The maps of a place by their names: one, or one of each workload, or several of each."""
    many = len({cell.id for _, cell in members}) > MOST_CELLS
    groups: dict[str, Members] = {}
    for service, cell in members:
        groups.setdefault(WORKLOADS[cell.workload] if many else "", []).append((service, cell))
    for name, group in groups.items():
        columns = list(dict.fromkeys(cell.id for _, cell in group))
        for first in range(0, len(columns), MOST_CELLS):
            part = columns[first : first + MOST_CELLS]
            span = f"cells {first + 1} to {first + len(part)}" if len(part) < len(columns) else ""
            title = ", ".join(filter(None, (place, name, span))) or "All cells"
            yield title, [(service, cell) for service, cell in group if cell.id in part]


def speedup_points(view: View, members: Members) -> tuple[Point, ...]:
    """The speedups of some cells."""
    made = (speedup_point(view, service, cell, cell.id) for service, cell in members)
    return tuple(point for point in made if point)


def scatter_figure(view: View) -> Figure:
    """Speedup against acceptance length: how high a point lies says what a step costs."""
    charts = [
        Chart(
            id=f"fig-scatter-{number}",
            kind="scatter",
            title="Speedup against acceptance",
            panel=place or "All cells",
            x=Axis("Acceptance length", "tok/step"),
            y=SPEEDUP,
            groups=(),
            points=points,
            interval=SCATTER_INTERVAL,
            reference=1.0,
            counted="prompts",
        )
        for number, (place, members) in enumerate(view.located.items(), 1)
        if (points := lengths(view, members))
    ]
    everything = [point for chart in charts for point in chart.points]
    across = ends([1.0] + [point.at for point in everything if point.at is not None])
    span = ends(
        [1.0] + [end for p in everything for end in (p.value, p.low, p.high) if end is not None and end > 0]
    )
    caption = f"Speedup over {view.baseline or 'the baseline'} against acceptance length"
    whole = (replace(c, span=span, across=across, guides=guides(across, span)) for c in charts)
    return Figure("fig-scatter", caption, tuple(whole), "cells")


def lengths(view: View, members: Members) -> tuple[Point, ...]:
    """The speedups whose acceptance length is known, placed by it."""
    return tuple(
        replace(point, at=speedup.tau)
        for service, cell in members
        if (speedup := view.speedups.get((service.id, cell.id))) and speedup.tau and speedup.tau > 0
        if (point := speedup_point(view, service, cell, cell.id)) and point.value > 0
    )


def ends(values: list[float]) -> tuple[float, float]:
    """Least and greatest, a little apart."""
    return min(values) / 1.05, max(values) * 1.05


def guides(across: tuple[float, float], span: tuple[float, float]) -> tuple[Guide, ...]:
    """Lines of equal step cost, as far as they run through what is drawn."""
    found = []
    for cost in COSTS:
        left, right = max(across[0], span[0] * cost), min(across[1], span[1] * cost)
        if right > left * 1.1:
            found.append(Guide(f"{cost:g}×", (left, left / cost), (right, right / cost)))
    return tuple(found)
