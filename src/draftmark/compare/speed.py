"""How much faster a method is than the baseline on one cell, how surely, and why."""

from collections import defaultdict
from collections.abc import Sequence
from math import fsum, log, log1p
from typing import Literal

from draftmark import stats
from draftmark.compare.intervals import estimate
from draftmark.compare.pairs import Pair, Side, doubts, paired
from draftmark.metrics import of_request, steady_window, within
from draftmark.schema import Cell, RequestRecord, Speedup, Verdict

Rate = Literal["decode_tok_s", "steady_tok_s"]
CHEAPER_STEP = 1.02
"""The baseline's step time over the method's that is still taken for one that costs nothing more."""


def speedup(cell: Cell, base: Side, other: Side, drift: float | None = None) -> Speedup | str:
    """The method's speedup with its interval and verdict, or why there is none.

    Args:
        drift: how far from 1 the baseline may have moved until the end of the phase; None where unknown.
    """
    found = ratio(cell, base, other)
    if found is None:
        return f"not compared, {rate_of(cell)} is missing on one side"
    noise = max((known for known in (noise_of(cell, base), drift) if known is not None), default=None)
    step_ratio = _step_ratio(base, other)
    doubted = _implausible(cell, found, step_ratio)
    return Speedup(
        service=other.service.id,
        method=other.service.method.name,
        tp=other.service.tp,
        host=other.service.host,
        cell=cell.id,
        metric=rate_of(cell),
        ratio=estimate(found),
        verdict=verdict(found, noise),
        noise=noise,
        tau=other.result.metrics.get("tau"),
        step_ratio=step_ratio,
        flags=(*doubts(base, other), *(("implausible",) if doubted else ())),
    )


def noise_of(cell: Cell, base: Side) -> float | None:
    """How far from 1 the baseline's repetition reaches; None where it was not repeated."""
    return stats.reach(repetition(cell, base))


def repetition(cell: Cell, base: Side) -> stats.Interval | None:
    """The baseline's repetition against itself, compared as a method would be; None where there is none."""
    return _paired_ratio(cell, paired(base.of("measured"), base.of("control")))


def rate_of(cell: Cell) -> Rate:
    """What a cell is compared by: with several streams what they get together, else what one gets.

    In open loop the arrivals set the throughput, so the single request's rate is what a method can change.
    """
    return "steady_tok_s" if cell.concurrency > 1 and cell.rate is None else "decode_tok_s"


def verdict(ratio: stats.Interval, noise: float | None) -> Verdict:
    """Faster or slower where the interval excludes 1 and the effect is beyond the noise, else cannot tell."""
    if ratio.low is None or ratio.high is None or abs(log(ratio.value)) <= log1p(noise or 0):
        return "cannot tell"
    if ratio.low > 1:
        return "faster"
    return "slower" if ratio.high < 1 else "cannot tell"


def ratio(cell: Cell, base: Side, other: Side) -> stats.Interval | None:
    """From pairs where there are records, else of the two cells' own numbers, without an interval."""
    found = _paired_ratio(cell, paired(base.of("measured"), other.of("measured")))
    if found is not None:
        return found
    rates = base.result.metrics.get(rate_of(cell)), other.result.metrics.get(rate_of(cell))
    return stats.Interval(rates[1] / rates[0], None, None, 1) if rates[0] and rates[1] else None


def _paired_ratio(cell: Cell, pairs: Sequence[Pair]) -> stats.Interval | None:
    return _steady_ratio(cell, pairs) if rate_of(cell) == "steady_tok_s" else _decode_ratio(pairs)


def _decode_ratio(pairs: Sequence[Pair]) -> stats.Interval | None:
    """Over prompts: all turns and repetitions of one are one unit."""
    logs = defaultdict(list)
    for pair in pairs:
        base, other = of_request(pair.base), of_request(pair.other)
        if "tpot_s" in base and "tpot_s" in other:
            logs[pair.key[0]].append(log(base["tpot_s"] / other["tpot_s"]))
    return stats.ratio_interval(logs)


def _steady_ratio(cell: Cell, pairs: Sequence[Pair]) -> stats.Interval | None:
    """Of the tokens over the seconds in flight that lie in the steady window of each side.

    There the streams are busy throughout, so that this is the ratio of the steady throughputs. What
    disturbs the server disturbs all that run at that moment: a unit is therefore a wave of neighbouring
    requests, one per stream, and not a request.
    """
    base = _in_window(cell, [pair.base for pair in pairs])
    other = _in_window(cell, [pair.other for pair in pairs])
    waves = defaultdict(list)
    for place, both in enumerate(zip(other, base, strict=True) if base and other else ()):
        waves[_unit(cell, place, pairs)].append((*both[0], *both[1]))
    return stats.total_ratio_interval([_sums(wave) for wave in waves.values()])


def _sums(rows: Sequence[tuple[float, float, float, float]]) -> tuple[float, float, float, float]:
    amount, effort, base_amount, base_effort = map(fsum, zip(*rows, strict=True))
    return amount, effort, base_amount, base_effort


def _in_window(cell: Cell, records: Sequence[RequestRecord]) -> list[tuple[float, float]]:
    """Tokens and seconds in flight of each request in the steady window; empty where that is not known."""
    window = steady_window(records, cell.concurrency)
    if window is None or any(record.output_tokens is None for record in records):
        return []
    return [within(record, window) for record in records]


def _unit(cell: Cell, place: int, pairs: Sequence[Pair]) -> str:
    """What a pair is averaged in: a wave, the rest with the last one; or its session, which is long."""
    if cell.workload == "agentic":
        return pairs[place].key[0]
    return str(min(place // cell.concurrency, max(len(pairs) // cell.concurrency - 1, 0)))


def _implausible(cell: Cell, ratio: stats.Interval, step_ratio: float | None) -> bool:
    """Whether a step is surely cheaper than one of the baseline, though it does all that one does and more.

    Then the machine was faster, or the engine took another path. With several streams, or arrivals that do
    not wait, a step's cost depends on how many are in flight, and a faster method has fewer.
    """
    if cell.concurrency > 1 or cell.open_loop or step_ratio is None or ratio.low is None:
        return False
    return step_ratio * ratio.low / ratio.value > CHEAPER_STEP


def _step_ratio(base: Side, other: Side) -> float | None:
    """The baseline's step time over the method's; a baseline that never drafts takes a step per token."""
    before = base.result.metrics.get("step_ms")
    if before is None and base.service.method.kind == "none":
        before = base.result.metrics.get("token_ms")
    after = other.result.metrics.get("step_ms")
    return before / after if before and after else None
