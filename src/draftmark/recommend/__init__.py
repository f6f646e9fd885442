"""Which configuration to deploy: per workload, per place and overall, under the plan's latency target.

Rates are compared per GPU, since what is left of a machine can serve as well. Each cell counts the same.
Flagged cells are not ranked; a service that fails a cell or misses the target there is behind those that do
not. What two services' intervals cannot tell apart is said to be undecided, with what would decide it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from draftmark.compare import estimate
from draftmark.recommend import words
from draftmark.recommend.rank import Candidate, Duels, Ranking, behind, candidates, rank, times_more
from draftmark.recommend.types import Pick, Recommendation
from draftmark.recommend.words import is_promising, lines
from draftmark.schema import CampaignResult, Comparison, Place, Service

__all__ = ["Pick", "Recommendation", "is_promising", "lines", "recommend"]


def recommend(result: CampaignResult, comparison: Comparison) -> Recommendation:
    """The configuration to deploy, from a result with its request records and the comparison of it."""
    judge = _Judge(candidates(result, comparison), comparison, result.matrix.baselines)
    every = {cell.id: cell for service in result.matrix.services for cell in service.cells}
    overall = judge.pick("overall", frozenset(every), judge.everyone)
    kinds = dict.fromkeys(cell.workload for cell in every.values())
    workloads = tuple(
        judge.with_cost(
            judge.pick(
                kind, frozenset(id for id, cell in every.items() if cell.workload == kind), judge.everyone
            ),
            overall,
        )
        for kind in kinds
    )
    places = tuple(judge.with_cost(pick, overall) for pick in judge.places(frozenset(every)))
    target = words.target(result.info.plan.slo)
    return Recommendation(
        target=target,
        overall=overall,
        workloads=workloads,
        places=places,
        excluded=tuple(behind(judge.everyone, frozenset(every)).items()),
        head=words.head(overall),
        reasons=words.reasons(overall, workloads, places, target, comparison),
    )


@dataclass(frozen=True)
class _Judge:
    """All candidates, and what is known of each two."""

    everyone: tuple[Candidate, ...]
    comparison: Comparison
    baselines: Mapping[Place, Service]
    duels: Duels = field(default_factory=Duels)

    def pick(self, scope: str, cells: frozenset[str], field: Sequence[Candidate]) -> Pick:
        """The best of a field on some cells."""
        ranking = rank(field, cells, self.duels)
        if ranking is None:
            seen = any(one.seen(cells) for one in field)
            return Pick(scope=scope, why=words.nobody(behind(field, cells) if seen else {}))
        best = ranking.best
        pick = Pick(
            scope=scope,
            service=best.service.id,
            method=best.service.method.name,
            cells=tuple(cell for cell in best.within if cell in cells),
            judged=len(best.judged(cells)),
            decided=not ranking.tied and bool(ranking.over or len(field) == 1),
            tied=ranking.tied,
            equal=ranking.equal,
            times_more=_times_more(ranking, cells),
        )
        if base := self._baseline_of(best):
            over = self.duels.over(best, base, cells)
            pick = replace(pick, over_baseline=over and estimate(over))
        pick = replace(pick, remedy=words.remedy(pick, ranking))
        return replace(pick, why=words.why(pick, ranking, self.comparison))

    def with_cost(self, pick: Pick, overall: Pick) -> Pick:
        """The pick, with what taking the overall choice in its place costs."""
        if pick.service is None or pick.service == overall.service or overall.service is None:
            return pick
        by_name = {one.service.id: one for one in self.everyone}
        cells = frozenset(pick.cells)
        cost = self.duels.over(by_name[overall.service], by_name[pick.service], cells)
        return replace(pick, cost_of_overall=cost and estimate(cost))

    def places(self, cells: frozenset[str]) -> list[Pick]:
        """The best of each host and degree, where there are several."""
        groups: dict[Place, list[Candidate]] = {}
        for one in self.everyone:
            groups.setdefault(one.service.place, []).append(one)
        hosts = len({host for host, _ in groups})
        names = {key: f"TP {key[1]}" + (f" on {key[0]}" if hosts > 1 else "") for key in groups}
        return [self.pick(names[key], cells, group) for key, group in groups.items() if len(groups) > 1]

    def _baseline_of(self, one: Candidate) -> Candidate | None:
        base = self.baselines.get(one.service.place)
        if base is None or one.service.baseline:
            return None
        return next(other for other in self.everyone if other.service.id == base.id)


def _times_more(ranking: Ranking, cells: frozenset[str]) -> int | None:
    """Of the nearest rival that is not told apart."""
    open_ = [found for name in ranking.tied if (found := ranking.over[name])]
    if not open_:
        return None
    return times_more(min(open_, key=lambda found: found.value), len(cells & ranking.best.within.keys()))
