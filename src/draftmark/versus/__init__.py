"""Two result trees, before and after a change: did anything get slower?

The same services and cells are paired, and within them the same prompts. What is compared is the rate, as a
method is compared with its baseline; a service is judged by all its cells together.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from draftmark import stats
from draftmark.compare import Side, doubts, estimate, rate_of, ratio, repetition, together
from draftmark.errors import BadInput
from draftmark.schema import CampaignResult, Cell, CellResult, Service
from draftmark.versus.judge import certain, outcome, worst
from draftmark.versus.likeness import changes, check_alike, counterparts
from draftmark.versus.types import EXIT_CODES, CellChange, Outcome, ServiceChange, Versus
from draftmark.versus.words import lines, markdown

__all__ = ["EXIT_CODES", "CellChange", "ServiceChange", "Versus", "lines", "markdown", "versus"]

TOLERANCE = 0.03
NAMED = 4
"""Services or cells that the reason names before it counts them."""


def versus(
    before: CampaignResult,
    after: CampaignResult,
    *,
    tolerance: float = TOLERANCE,
    allow: Collection[str] = (),
) -> Versus:
    """Judge each cell, each service and the whole; both results with their request records.

    Args:
        tolerance: loss of rate that is accepted, as a share below 1.
        allow: keys that may differ, such as ``model.target`` or ``machine``.

    Raises:
        ResultError: the two did not measure the same; names the key.
        BadInput: the tolerance is no share.
    """
    if not 0 <= tolerance < 1:
        raise BadInput(
            f"a tolerance of {tolerance:g} is no share", "give one from 0 to below 1, such as 0.03"
        )
    pairs = counterparts(before, after)
    check_alike(before, after, pairs, allow)
    trees = _Tree(before), _Tree(after)
    rows = [_service_rows(one, other, trees, tolerance) for one, other in pairs]
    cells = _settled([row for found in rows for row in found], tolerance)
    services = tuple(
        _service(one, found, trees, tolerance) for (one, _), found in zip(pairs, rows, strict=True) if found
    )
    whole, why = _whole(services, cells)
    return Versus(
        before=_name(before),
        after=_name(after),
        tolerance=tolerance,
        outcome=whole,
        why=why,
        services=services,
        cells=cells,
        differences=tuple(changes(before, after, pairs)),
        notes=tuple(_unpaired(before, after, pairs)),
    )


class _Tree:
    """One result, by service and cell."""

    def __init__(self, result: CampaignResult) -> None:
        self.cells: Mapping[tuple[str, str], CellResult] = {(c.service, c.cell.id): c for c in result.cells}
        self.records = result.records
        self.baselines = result.matrix.baselines

    def side(self, service: Service, cell: Cell) -> Side | None:
        """The cell if it has a result."""
        found = self.cells.get((service.id, cell.id))
        if found is None or found.status != "ok":
            return None
        return Side(service=service, result=found, records=self.records.get(f"{service.id}/{cell.id}", ()))

    def repetition(self, service: Service, cell: Cell) -> stats.Interval | None:
        """The repetition of the cell by the baseline of a service's place."""
        baseline = self.baselines.get(service.place)
        side = baseline and self.side(baseline, cell)
        return repetition(cell, side) if side else None


_Trees = tuple[_Tree, _Tree]


@dataclass(frozen=True)
class _Row:
    """A cell's change, and what it was judged from."""

    change: CellChange
    cell: Cell
    ratio: stats.Interval | None = None
    """Only where it is judged."""
    open: bool = False
    """It had a result before that can be believed, and has none after."""
    failed: bool = False


def _service_rows(one: Service, other: Service, trees: _Trees, tolerance: float) -> list[_Row]:
    later = {cell.id: cell for cell in other.cells}
    return [_row(one, other, cell, trees, tolerance) for cell in one.cells if cell.id in later]


def _row(one: Service, other: Service, cell: Cell, trees: _Trees, tolerance: float) -> _Row:
    first, second = trees[0].side(one, cell), trees[1].side(other, cell)
    change = CellChange(service=one.id, cell=cell.id, outcome="INCONCLUSIVE")
    if first is None:
        return _Row(replace(change, why="no result before"), cell)
    if second is None:
        return _lost(change, cell, trees[1].cells.get((other.id, cell.id)), bool(doubts(first)))
    if flags := doubts(first, second):
        flagged = replace(change, flags=flags, why=f"flagged {', '.join(flags)}")
        return _Row(flagged, cell, open=not doubts(first))
    found = ratio(cell, first, second)
    noise = _noise([cell], one, trees)
    if found is None:
        return _Row(_by_throughput(change, first, second), cell, open=True)
    change = replace(
        change,
        metric=rate_of(cell),
        ratio=estimate(found),
        noise=noise,
        outcome=outcome(found, noise, tolerance),
        why="" if found.low is not None else "a single unit has no interval",
    )
    return _Row(change, cell, found, open=found.low is None)


def _lost(change: CellChange, cell: Cell, found: CellResult | None, doubted: bool) -> _Row:
    """A cell that had a result before and has none now."""
    if found is None or found.status == "interrupted":
        return _Row(replace(change, why="not measured after"), cell, open=not doubted)
    cause = found.diagnosis.summary if found.diagnosis else "no cause known"
    return _Row(replace(change, outcome="REGRESSION", why=f"fails now: {cause}"), cell, failed=True)


def _by_throughput(change: CellChange, first: Side, second: Side) -> CellChange:
    """What is left without request records or rates: two totals, which show a change and decide nothing."""
    rates = [side.result.metrics.get("output_throughput") for side in (first, second)]
    if not rates[0] or not rates[1]:
        return replace(change, why="a rate is missing on one side")
    shown = estimate(stats.Interval(rates[1] / rates[0], None, None, 1))
    why = "two totals of one run each have no interval"
    return replace(change, metric="output_throughput", ratio=shown, why=why)


def _noise(cells: Sequence[Cell], place: Service, trees: _Trees) -> float | None:
    """How far from 1 the baseline's repetitions of these cells together reach, in the worse of the trees."""
    found = [
        stats.reach(together([r for cell in cells if (r := tree.repetition(place, cell)) is not None]))
        for tree in trees
    ]
    return max((reach for reach in found if reach is not None), default=None)


def _settled(rows: Sequence[_Row], tolerance: float) -> tuple[CellChange, ...]:
    """The changes, those regressions marked that are certain among all cells that were judged."""
    judged = sum(row.ratio is not None for row in rows)
    return tuple(
        replace(row.change, certain=row.failed or _is_certain(row, tolerance, judged)) for row in rows
    )


def _is_certain(row: _Row, tolerance: float, judged: int) -> bool:
    if row.ratio is None or row.change.outcome != "REGRESSION":
        return False
    return certain(row.ratio, tolerance, judged)


def _service(one: Service, rows: Sequence[_Row], trees: _Trees, tolerance: float) -> ServiceChange:
    """A service by its judged cells together; a failed or a lost cell speaks for itself."""
    judged = [row for row in rows if row.ratio is not None]
    whole = together([row.ratio for row in judged if row.ratio is not None])
    told: list[Outcome] = [outcome(whole, _noise([row.cell for row in judged], one, trees), tolerance)]
    told += ["REGRESSION" for row in rows if row.failed]
    told += ["INCONCLUSIVE" for row in rows if row.open]
    return ServiceChange(
        service=one.id,
        outcome=worst(told),
        ratio=None if whole is None else estimate(whole),
        cells=len(judged),
    )


def _whole(services: Sequence[ServiceChange], cells: Sequence[CellChange]) -> tuple[Outcome, str]:
    """The verdict on everything, and what decides it."""
    regressed = [one.service for one in services if one.outcome == "REGRESSION"]
    regressed += [
        f"{one.service}/{one.cell}" for one in cells if one.certain and one.service not in regressed
    ]
    if regressed:
        return "REGRESSION", f"slower or failing: {_some(regressed)}"
    doubtful = [f"{one.service}/{one.cell}" for one in cells if one.outcome == "REGRESSION"]
    if doubtful:
        return "INCONCLUSIVE", f"seems slower, as some cells do by chance: {_some(doubtful)}"
    unsure = [one.service for one in services if one.outcome != "PASS"]
    if unsure or not services:
        return "INCONCLUSIVE", f"cannot tell for {_some(unsure) or 'anything'}"
    return "PASS", "no service is slower by more than is tolerated"


def _some(names: Sequence[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")


def _unpaired(
    before: CampaignResult, after: CampaignResult, pairs: Sequence[tuple[Service, Service]]
) -> list[str]:
    """What only one side has."""
    paired = {one.id for one, _ in pairs}, {other.id for _, other in pairs}
    found = []
    for when, result, ids in (("before", before, paired[0]), ("after", after, paired[1])):
        services = [s for s in result.matrix.services if s.repeats is None]
        found += [f"{service.id}: only {when}" for service in services if service.id not in ids]
    for one, other in pairs:
        cells = {cell.id for cell in one.cells} ^ {cell.id for cell in other.cells}
        found += [f"{one.id}/{cell}: only on one side" for cell in sorted(cells)]
    return found


def _name(result: CampaignResult) -> str:
    return (
        f"{result.info.plan.name} ({result.info.started_at})"
        if result.info.started_at
        else result.info.plan.name
    )
