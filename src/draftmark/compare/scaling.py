"""What more GPUs for one server bring: each method against itself at the lowest degree."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from draftmark.compare.intervals import estimate
from draftmark.compare.pairs import Side, doubts
from draftmark.compare.speed import rate_of, ratio
from draftmark.schema import Cell, Scaling, Service


def scaling(services: Sequence[Service], sides: Mapping[tuple[str, str], Side]) -> Iterator[Scaling]:
    """Each method's rate at each tensor-parallel degree, where two or more degrees have the cell."""
    groups: dict[tuple[str, str], list[Service]] = defaultdict(list)
    for service in services:
        groups[service.host, service.method.name].append(service)
    for group in groups.values():
        ladder = sorted(group, key=lambda service: service.tp)
        for cell in dict.fromkeys(cell.id for service in ladder for cell in service.cells):
            steps = [sides[service.id, cell] for service in ladder if (service.id, cell) in sides]
            yield from _ladder([side for side in steps if rate_of(side.result.cell) in side.result.metrics])


def _ladder(steps: Sequence[Side]) -> Iterator[Scaling]:
    for side in steps if len(steps) > 1 else ():
        yield _step(side.result.cell, steps[0], side)


def _step(cell: Cell, lowest: Side, side: Side) -> Scaling:
    found = None if side is lowest else ratio(cell, lowest, side)
    return Scaling(
        service=side.service.id,
        method=side.service.method.name,
        host=side.service.host,
        tp=side.service.tp,
        over=lowest.service.tp,
        cell=cell.id,
        metric=rate_of(cell),
        rate=side.result.metrics[rate_of(cell)],
        ratio=None if found is None else estimate(found),
        flags=doubts(lowest, side),
    )
