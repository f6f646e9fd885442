"""Where along concurrency, arrival rate or context a method stops paying, as far as it was measured."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Literal

from msgspec.structs import replace

from draftmark.schema import Cell, Course, Crossover, Service, Speedup, Verdict

Axis = Literal["concurrency", "rate", "context"]


def crossovers(service: Service, speedups: Mapping[str, Speedup]) -> Iterator[Crossover]:
    """One for each set of cells that differ in one axis only and of which two or more were compared.

    Args:
        speedups: the service's own, by cell.
    """
    groups: dict[tuple[Axis, Cell], list[Cell]] = defaultdict(list)
    for cell in service.cells:
        if cell.id in speedups and (axis := _axis(cell)):
            groups[axis, _without(cell, axis)].append(cell)
    for (axis, _), cells in groups.items():
        if len(cells) > 1:
            ordered = sorted(cells, key=lambda cell: _level(cell, axis))
            yield _crossover(service, axis, ordered, speedups)


def _axis(cell: Cell) -> Axis | None:
    if cell.workload == "concurrency":
        return "concurrency" if cell.rate is None else "rate"
    return "context" if cell.workload == "context" else None


def _level(cell: Cell, axis: Axis) -> float:
    level = {"concurrency": cell.concurrency, "rate": cell.rate, "context": cell.length}[axis]
    return float(level or 0)


def _without(cell: Cell, axis: Axis) -> Cell:
    """What cells along one axis have in common."""
    cell = replace(cell, id="", hash="", first_prompt=0, requests=0, repetitions=0)
    if axis == "concurrency":
        return replace(cell, concurrency=1)
    return replace(cell, rate=None) if axis == "rate" else replace(cell, length=None)


def _crossover(
    service: Service, axis: Axis, cells: Sequence[Cell], speedups: Mapping[str, Speedup]
) -> Crossover:
    clean = [cell for cell in cells if not speedups[cell.id].flags]
    points = tuple((_level(cell, axis), speedups[cell.id].verdict) for cell in clean)
    course, between = _course(points)
    return Crossover(
        service=service.id,
        method=service.method.name,
        tp=service.tp,
        host=service.host,
        axis=axis,
        cells=tuple(cell.id for cell in clean),
        points=points,
        left_out=tuple(_level(cell, axis) for cell in cells if cell not in clean),
        course=course,
        between=between,
        last_faster=max((level for level, verdict in points if verdict == "faster"), default=None),
        first_slower=min((level for level, verdict in points if verdict == "slower"), default=None),
    )


def _course(points: Sequence[tuple[float, Verdict]]) -> tuple[Course, tuple[float, float] | None]:
    """How the verdict runs, and where it turns if it does so once."""
    told = [(level, verdict) for level, verdict in points if verdict != "cannot tell"]
    runs = [
        (verdict, [level for level, _ in run]) for verdict, run in groupby(told, key=lambda point: point[1])
    ]
    if len(runs) == 1 and len(told) == len(points):
        return ("faster" if runs[0][0] == "faster" else "slower"), None
    if len(runs) < 2:
        return "cannot tell", None
    if len(runs) > 2:
        return "back and forth", None
    turn = runs[0][1][-1], runs[1][1][0]
    return ("stops paying" if runs[0][0] == "faster" else "starts paying"), turn
