"""A recommendation in sentences; none goes beyond the intervals."""

from collections.abc import Iterator, Mapping, Sequence
from math import exp, log
from statistics import fmean

from draftmark.compare import estimate
from draftmark.recommend.rank import Ranking, is_equal, limits
from draftmark.recommend.types import Pick, Recommendation
from draftmark.schema import Comparison, CostModel, Estimate, Slo
from draftmark.wording import counted, interval, listed, plural

NAMED = 3
"""Services or cells that are named before they are counted."""
_TARGETS = {"p90_ttft_ms": "TTFT", "p90_tpot_ms": "TPOT", "p90_e2el_ms": "end to end"}


def target(slo: Slo | None) -> str:
    """``TTFT at most 2000 ms, TPOT at most 25 ms (90th percentiles)``."""
    asked = [f"{_TARGETS[key]} at most {limit:g} ms" for key, limit in limits(slo).items()]
    return f"{', '.join(asked)} (90th percentiles)" if asked else ""


def why(pick: Pick, ranking: Ranking, comparison: Comparison) -> str:
    """Why this one, how sure that is, and what would make it surer."""
    return " ".join(
        (
            *_gain(pick, ranking),
            *_parts(pick, comparison),
            *_served(pick, ranking),
            *_rivals(pick, ranking),
            *_turns(pick, comparison),
            *_output(pick, comparison),
        )
    )


def nobody(behind: Mapping[str, str]) -> str:
    """Why nothing is recommended."""
    reasons = [f"{name}: {reason}" for name, reason in behind.items()]
    return f"Not ranked: {'; '.join(counted(reasons, NAMED))}." if reasons else "Nothing was measured."


def head(overall: Pick) -> str:
    """The recommendation in one sentence."""
    if overall.service is None:
        return "Nothing can be recommended."
    return f"Deploy {overall.service}." if overall.decided else f"Undecided; {overall.service} leads."


def reasons(
    overall: Pick, workloads: Sequence[Pick], places: Sequence[Pick], target: str, comparison: Comparison
) -> str:
    """What speaks for it and how sure that is, what it costs, and what would be better to know."""
    if overall.service is None:
        return overall.why
    more = (*_costs(overall, workloads), *_places(places, target), *_untried(overall, comparison))
    return " ".join((overall.why, *more))


def lines(found: Recommendation) -> Iterator[str]:
    """The recommendation for a terminal."""
    if found.target:
        yield f"target: {found.target}"
    yield found.text
    for pick in (*found.workloads, *found.places):
        doubt = " (undecided)" if pick.service and not pick.decided else ""
        yield f"  {pick.scope}: {pick.service or 'nothing'}{doubt}"
        yield f"    {pick.why}"
    for service, reason in found.excluded:
        yield f"  not ranked: {service}, {reason}"


def _gain(pick: Pick, ranking: Ranking) -> Iterator[str]:
    if ranking.best.service.baseline:
        yield "The baseline: no other method is above it." if ranking.over else "It is the baseline."
    elif pick.over_baseline is None:
        yield "There is no baseline at its place to compare it with."
    else:
        cells = plural(len(pick.cells), "cell")
        yield f"It has {multiple(pick.over_baseline)} the baseline's rate over {cells}."
        if is_equal(pick.over_baseline):
            yield "That is within 3 %: speculation brings nothing here."


def _parts(pick: Pick, comparison: Comparison) -> Iterator[str]:
    """Acceptance and cost, as geometric means over the cells."""
    known = [
        (one.tau, one.step_ratio)
        for one in comparison.speedups
        if one.service == pick.service and one.cell in pick.cells and one.tau and one.step_ratio
    ]
    if known:
        tau, step = (exp(fmean(map(log, column))) for column in zip(*known, strict=True))
        yield f"A step commits {tau:.2f} tokens and takes {1 / step:.2f} times the baseline's."


def _served(pick: Pick, ranking: Ranking) -> Iterator[str]:
    if len(pick.cells) < pick.judged:
        missed = [f"{cell} ({how})" for cell, how in ranking.best.missed.items()]
        yield f"It serves {len(pick.cells)} of {pick.judged} cells as asked, not {listed(missed, NAMED)}."


def _rivals(pick: Pick, ranking: Ranking) -> Iterator[str]:
    if not ranking.over:
        yield f"Nothing else can be ranked{f'; {pick.remedy}' if pick.remedy else ''}."
    elif pick.tied:
        yield f"The data cannot tell it from {listed(pick.tied, NAMED)}; {pick.remedy}."
    if pick.equal:
        yield f"As good within 3 %: {listed(pick.equal, NAMED)}."
    beaten = {
        name: found for name, found in ranking.over.items() if found and name not in (*pick.tied, *pick.equal)
    }
    if beaten:
        nearest = min(beaten, key=lambda name: beaten[name].value)
        found = beaten[nearest]
        ahead = multiple(estimate(found))
        yield f"Of those that are slower beyond doubt {nearest} is nearest: it has {ahead} that one's rate."


def remedy(pick: Pick, ranking: Ranking) -> str:
    """What measurement would decide it; empty where it is decided."""
    if not pick.tied and not pick.decided:
        return "measure the others, without what flagged them"
    if not pick.tied:
        return ""
    if any(ranking.over[name] is None for name in pick.tied):
        return "with some of them it shares no cell without flags: measure those cells again"
    if pick.times_more:
        return f"about {pick.times_more} times as many requests per cell would tell the nearest"
    if any((found := ranking.over[name]) and found.low is None for name in pick.tied):
        return "single requests are missing or of one prompt only: measure three prompts or more per cell"
    return "the difference is too small for any measurement of this kind"


def _turns(pick: Pick, comparison: Comparison) -> Iterator[str]:
    """Where along an axis it stops paying."""
    for one in comparison.crossovers:
        own = one.service == pick.service and {*one.cells} & {*pick.cells}
        if own and one.course == "stops paying" and one.between:
            last, first = one.between
            yield f"It is faster up to {one.axis} {last:g} and slower from {first:g} on."


def _output(pick: Pick, comparison: Comparison) -> Iterator[str]:
    parted = [
        one.cell for one in comparison.lossless if one.service == pick.service and one.verdict == "diverges"
    ]
    if parted:
        yield f"Its greedy output is not the baseline's on {listed(parted, NAMED)}: find out why first."


def _costs(overall: Pick, workloads: Sequence[Pick]) -> Iterator[str]:
    """What one choice for everything costs where another one is best."""
    for pick in workloads:
        cost = pick.cost_of_overall
        if cost is not None:
            loss = f"costs {100 * (1 - cost.value):.0f} %" if cost.value < 1 else "costs nothing"
            ahead = f"On {pick.scope} {pick.service} is ahead"
            yield f"{ahead}: the one choice {loss} there, {multiple(cost)} its rate."
    if len(workloads) > 1 and all(pick.service == overall.service for pick in workloads):
        yield "It is the best on every workload, so that one choice costs nothing."


def _places(places: Sequence[Pick], target: str) -> Iterator[str]:
    """What is behind a choice between places."""
    if places:
        yield "Places are compared by rate per GPU" + (
            "." if target else "; no latency target is set, so that latency does not count ('slo:' sets one)."
        )


def _untried(overall: Pick, comparison: Comparison) -> Iterator[str]:
    """The value of a parameter that should be clearly better than all that were measured."""
    promising = [one for one in comparison.models if one.cell in overall.cells and is_promising(one)]
    if promising:
        one = max(promising, key=lambda model: model.expected)
        yield (
            f"A model expects {one.expected:.2f} times on {one.cell} from {one.kind} at {one.parameter}"
            f" {one.best:g}, not measured (error where it was: up to {100 * one.error:.0f} %); measure it."
        )


def is_promising(model: CostModel) -> bool:
    """What it expects of its best value is above every measured one by more than its error."""
    return model.expected > (1 + model.error) * max(tau / cost for _, tau, cost in model.points)


def multiple(found: Estimate) -> str:
    """``1.42 times (95 % 1.35–1.50)``."""
    return f"{found.value:.2f} times ({interval(found, '95 % ')})"
