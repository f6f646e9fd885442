"""Which of several services is best on a set of cells, and which it cannot be told from."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import log, log1p, sqrt

from draftmark import stats
from draftmark.compare import Side, drift_reach, inverse, ratio, repetition, scaled, together
from draftmark.schema import (
    CampaignResult,
    CellResult,
    Comparison,
    Drift,
    Estimate,
    Matrix,
    Service,
    Slo,
)

COVERAGE = Fraction(1, 2)
"""Share of a scope's cells on which a service must have been judged to be ranked there."""
EQUAL = 0.03
"""Relative difference that does not matter to a deployment."""
MOST = 10_000
"""Times as many requests, beyond which no measurement is proposed."""

Cells = Mapping[str, Side]


@dataclass(frozen=True)
class Candidate:
    """One service, its cells sorted by what they say about it; flagged ones say nothing."""

    service: Service
    within: Cells
    """Measured, not flagged, and within the target."""
    missed: Mapping[str, str]
    """Failed, or not within the target, and how."""
    flagged: Mapping[str, tuple[str, ...]]
    drift: float | None = None
    """Of a baseline: how far from 1 it may have moved until the end of its phase."""

    def share(self, cells: frozenset[str]) -> Fraction:
        """How much of the cells that it was judged on it serves within the target."""
        judged = self.judged(cells)
        return Fraction(len(cells & self.within.keys()), len(judged)) if judged else Fraction(0)

    def seen(self, cells: frozenset[str]) -> frozenset[str]:
        """Those of the cells that have any result."""
        return cells & (self.within.keys() | self.missed.keys() | self.flagged.keys())

    def judged(self, cells: frozenset[str]) -> frozenset[str]:
        """Those of the cells that tell how it does."""
        return cells & (self.within.keys() | self.missed.keys())


@dataclass(frozen=True)
class Ranking:
    """The best candidate, and its rate per GPU over each rival's, None where they share no cell."""

    best: Candidate
    over: Mapping[str, stats.Interval | None]
    noise: float | None
    tied: tuple[str, ...]
    equal: tuple[str, ...]


def candidates(result: CampaignResult, comparison: Comparison) -> tuple[Candidate, ...]:
    """Every service, its cells judged by their flags and by the plan's target."""
    found = {(one.service, one.cell.id): one for one in result.cells}
    services = [service for service in result.matrix.services if service.repeats is None]
    doubts: dict[tuple[str, str], list[str]] = defaultdict(list)
    for place, kind in _doubts(result.matrix, comparison):
        doubts[place].append(kind)
    drifts: dict[str, list[Drift]] = defaultdict(list)
    for one in comparison.drift:
        drifts[one.service].append(one)
    return tuple(
        replace(_candidate(service, found, doubts, result), drift=drift_reach(drifts[service.id]))
        for service in services
    )


def _doubts(matrix: Matrix, comparison: Comparison) -> Iterator[tuple[tuple[str, str], str]]:
    """The cells that their comparison puts in doubt; drift a baseline's too, where it was compared with."""
    yield from (((one.service, one.cell), "drift") for one in comparison.drift if one.moved)
    baselines = matrix.baselines
    for one in comparison.speedups:
        for kind in ("drift", "implausible"):
            if kind in one.flags:
                yield (one.service, one.cell), kind
        if "drift" in one.flags:
            yield (baselines[one.host, one.tp].id, one.cell), "drift"


def _candidate(
    service: Service,
    found: Mapping[tuple[str, str], CellResult],
    doubts: Mapping[tuple[str, str], Sequence[str]],
    result: CampaignResult,
) -> Candidate:
    within: dict[str, Side] = {}
    missed: dict[str, str] = {}
    flagged: dict[str, tuple[str, ...]] = {}
    for cell in service.cells:
        one = found.get((service.id, cell.id))
        if one is None or one.status == "interrupted":
            continue
        if one.status == "failed":
            missed[cell.id] = f"failed ({one.diagnosis.cause if one.diagnosis else 'no cause known'})"
        elif flags := [*(flag.kind for flag in one.flags), *doubts.get((service.id, cell.id), ())]:
            flagged[cell.id] = tuple(dict.fromkeys(flags))
        elif miss := beyond(one.metrics, result.info.plan.slo):
            missed[cell.id] = miss
        else:
            records = result.records.get(f"{service.id}/{cell.id}", ())
            within[cell.id] = Side(service=service, result=one, records=records)
    return Candidate(service, within, missed, flagged)


def limits(slo: Slo | None) -> dict[str, float]:
    """The target as upper limits of metrics: 90th percentiles, as a cell has too few requests for more."""
    if slo is None:
        return {}
    given = {"ttft": slo.ttft_ms, "tpot": slo.tpot_ms, "e2el": slo.e2e_ms}
    return {f"p90_{name}_ms": limit for name, limit in given.items() if limit is not None}


def beyond(metrics: Mapping[str, float], slo: Slo | None) -> str:
    """How a cell misses the target; empty where it does not. What is not known is not within it."""
    for key, limit in limits(slo).items():
        if key not in metrics:
            return f"{key} is not known"
        if metrics[key] > limit:
            return f"{key} is {metrics[key]:.0f}, the target {limit:g}"
    return ""


@dataclass
class Duels:
    """The ratio of two candidates on a cell, each computed once."""

    known: dict[tuple[str, str, str], stats.Interval | None] = field(default_factory=dict)

    def over(self, one: Candidate, other: Candidate, cells: frozenset[str]) -> stats.Interval | None:
        """Rate per GPU of one candidate over the other's on the cells both serve; None without any."""
        shared = [cell for cell in one.within if cell in cells and cell in other.within]
        found = [self._on(cell, one.within[cell], other.within[cell]) for cell in shared]
        whole = together([ratio for ratio in found if ratio is not None])
        return whole and scaled(whole, other.service.tp / one.service.tp)

    def _on(self, cell: str, one: Side, other: Side) -> stats.Interval | None:
        key, back = (cell, one.service.id, other.service.id), (cell, other.service.id, one.service.id)
        if key not in self.known:
            found = ratio(one.result.cell, other, one)
            self.known[key], self.known[back] = found, found and inverse(found)
        return self.known[key]


def rank(field: Sequence[Candidate], cells: frozenset[str], duels: Duels) -> Ranking | None:
    """The best of the field on these cells; None where nobody can be ranked.

    Those that serve the largest share of their cells within the target are in the running; among them the
    highest rate per GPU wins, on the cells that two of them share.
    """
    out = behind(field, cells)
    running = [one for one in field if one.service.id not in out]
    if not running:
        return None
    best = running[0]
    for one in running[1:]:
        found = duels.over(one, best, cells)
        best = one if found and found.value > 1 else best
    over = {one.service.id: duels.over(best, one, cells) for one in running if one is not best}
    noise = noise_of(best, field, cells)
    equal = tuple(name for name, found in over.items() if is_equal(found))
    tied = tuple(name for name, found in over.items() if name not in equal and not is_over(found, noise))
    return Ranking(best, over, noise, tied, equal)


def behind(field: Sequence[Candidate], cells: frozenset[str]) -> dict[str, str]:
    """Who is not in the running on these cells, and why."""
    return dict(_behind(field, cells))


def _behind(field: Sequence[Candidate], cells: frozenset[str]) -> Iterator[tuple[str, str]]:
    judged = frozenset().union(*(one.judged(cells) for one in field))
    able = [one for one in field if _is_able(one, cells, judged)]
    most = max((one.share(cells) for one in able), default=Fraction(0))
    for one in field:
        if one not in able:
            yield one.service.id, _unable(one, cells, judged)
        elif one.share(cells) < most or most == 0:
            yield one.service.id, _misses(one, cells)


def _is_able(one: Candidate, cells: frozenset[str], judged: frozenset[str]) -> bool:
    own = one.judged(cells)
    return bool(own) and len(own) >= COVERAGE * len(judged)


def _unable(one: Candidate, cells: frozenset[str], judged: frozenset[str]) -> str:
    flags = sorted({flag for cell, kinds in one.flagged.items() if cell in cells for flag in kinds})
    if not one.judged(cells):
        return f"every result is flagged ({', '.join(flags)})" if flags else "it has no result"
    doubt = f"; flagged {', '.join(flags)}" if flags else ""
    return f"judged on {len(one.judged(cells))} of {len(judged)} cells{doubt}"


def _misses(one: Candidate, cells: frozenset[str]) -> str:
    missed = {cell: how for cell, how in one.missed.items() if cell in cells}
    cell, how = next(iter(missed.items()))
    return f"misses {len(missed)} of {len(one.judged(cells))} cells ({cell}: {how})"


def noise_of(best: Candidate, field: Sequence[Candidate], cells: frozenset[str]) -> float | None:
    """How far from 1 the baseline's repetitions on all cells reach, or its drift; None of neither."""
    baselines = [one for one in field if one.service.baseline and one.service.place == best.service.place]
    found = [
        repeat
        for one in baselines
        for cell, side in one.within.items()
        if cell in cells and (repeat := repetition(side.result.cell, side))
    ]
    reaches = (stats.reach(together(found)), *(one.drift for one in baselines))
    return max((reach for reach in reaches if reach is not None), default=None)


def is_over(found: stats.Interval | None, noise: float | None) -> bool:
    """The ratio is above 1 beyond doubt: its interval leaves out 1, and it exceeds the noise."""
    return bool(found and found.low and found.low > 1 and log(found.value) > log1p(noise or 0))


def is_equal(found: stats.Interval | Estimate | None) -> bool:
    """The ratio is within 3 % of 1 beyond doubt."""
    return bool(found and found.low and found.high and found.low > 1 / (1 + EQUAL) and found.high < 1 + EQUAL)


def times_more(found: stats.Interval, cells: int) -> int | None:
    """How many times as many units would show a ratio to differ from 1, or to be equal; None if unknown.

    The spread is taken to stay what it is, and each cell's units to grow alike.
    """
    if found.low is None or found.high is None:
        return None
    effect = abs(log(found.value))
    enough = max(effect, log1p(EQUAL) - effect)
    freedom = max(found.n - cells, 1)
    spread = log(found.high / found.low) / 2 / stats.t_quantile(freedom)
    return next(
        (
            times
            for times in range(2, MOST)
            if stats.t_quantile(freedom + (times - 1) * found.n) * spread / sqrt(times) < enough
        ),
        None,
    )
