"""From what happened to requests to a cell's numbers; what cannot be measured is absent, never 0."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from math import fsum, log

from draftmark import stats
from draftmark.metrics.loops import loop_length
from draftmark.metrics.table import SUMMARIES
from draftmark.schema import Cell, LoadResult, RequestRecord, Role, Speculation

Window = tuple[tuple[float, float], ...]
"""Spans (begin, end) in seconds of the cell, in order."""


def of_request(record: RequestRecord) -> dict[str, float]:
    """One request's numbers, keys of ``REQUEST_METRICS``, times in seconds; empty if no token arrived."""
    times = record.chunks.token_times_s
    if not times:
        return {}
    late = record.sent_late_s or 0.0
    spoken = next((chunk.t_s + late for chunk in record.chunks if chunk.text and chunk.tokens != 0), None)
    first = next(count for count in record.chunks.counts if count != 0) or 1
    tpot = _tpot(record, times[-1] - times[0], first)
    length = tau(record.speculation)
    return _known(
        ttft_s=times[0] + late,
        ttfo_s=spoken,
        e2e_s=times[-1] + late,
        n=record.output_tokens,
        n_first=first,
        tpot_s=tpot,
        decode_tok_s=tpot and 1 / tpot,
        tau=length,
        step_s=tpot and length and tpot * length,
    )


def measure(cell: Cell, result: LoadResult, speculation: Speculation | None) -> dict[str, float]:
    """A cell's numbers, keys of ``METRICS``, from its measured requests that completed.

    Args:
        speculation: of the whole cell, as the engine reports it; summed over the requests when None.
    """
    measured = [record for record in result.records if record.role == "measured"]
    done = completed(measured)
    counts = {"completed": float(len(done)), "failed": float(len(measured) - len(done))}
    if not done:
        return counts
    requests = [of_request(record) for record in done]
    acceptance = tau(speculation or pooled([record.speculation for record in done]))
    tpot = _pooled_tpot(requests)
    return (
        counts
        | _totals(done)
        | _known(
            steady_tok_s=None if cell.open_loop else steady_tok_s(done, cell.concurrency),
            decode_tok_s=stats.geometric_mean(_column(requests, "decode_tok_s")),
            decode_half_width=decode_half_width(done),
            tau=acceptance,
            token_ms=tpot and 1e3 * tpot,
            step_ms=tpot and acceptance and 1e3 * tpot * acceptance,
            cached_share=cached_share(done),
            loop_share=loop_share(done),
        )
        | _summaries(done, requests)
    )


def completed(records: Sequence[RequestRecord], role: Role = "measured") -> list[RequestRecord]:
    """The records of a role that ended well and hold at least one token."""
    return [record for record in records if record.role == role and record.ok and record.chunks.token_times_s]


def tau(speculation: Speculation | None) -> float | None:
    """Tokens per decode step, or 1 + accepted / steps where the tokens are not told; None if neither is."""
    if speculation is None or not speculation.steps:
        return None
    if speculation.tokens is not None:
        return speculation.tokens / speculation.steps
    return None if speculation.accepted is None else 1 + speculation.accepted / speculation.steps


def pooled(parts: Sequence[Speculation | None]) -> Speculation | None:
    """The sum of requests' acceptance; a field that one of them lacks is None, and None if all is missing."""
    known = [part for part in parts if part is not None]
    if not known or len(known) < len(parts):
        return None
    return Speculation(
        source=known[0].source,
        tokens=_sum([part.tokens for part in known]),
        steps=_sum([part.steps for part in known]),
        accepted=_sum([part.accepted for part in known]),
        drafted=_sum([part.drafted for part in known]),
        draft_steps=_sum([part.draft_steps for part in known]),
    )


def steady_tok_s(records: Sequence[RequestRecord], concurrency: int) -> float | None:
    """Tokens per second of the :func:`steady_window`; None where there is none, or tokens were not counted.

    A chunk counts where it arrived; tokens that the engine did not place are spread evenly over the
    request's other chunks.
    """
    window = steady_window(records, concurrency)
    if window is None or any(record.output_tokens is None for record in records):
        return None
    return fsum(within(record, window)[0] for record in records) / sum(end - begin for begin, end in window)


def within(record: RequestRecord, window: Window) -> tuple[float, float]:
    """A completed request's tokens that arrived in a window, and its seconds in flight there."""
    arrivals = list(_arrivals(record))
    tokens = fsum(weight for begin, end in window for t, weight in arrivals if begin < t <= end)
    return tokens, sum(max(min(_end(record), end) - max(record.start_s, begin), 0.0) for begin, end in window)


def steady_window(records: Sequence[RequestRecord], concurrency: int) -> Window | None:
    """Of each round the first to the last moment at which ``concurrency`` requests were in flight.

    The short gaps in which a stream passes from one request to its next lie inside. None where no round
    had as many.
    """
    rounds = defaultdict(list)
    for record in records:
        rounds[record.round].append((record.start_s, _end(record)))
    spans = [_steady_span(rounds[number], concurrency) for number in sorted(rounds)]
    return tuple(span for span in spans if span) or None


def _steady_span(spans: Iterable[tuple[float, float]], concurrency: int) -> tuple[float, float] | None:
    begin = end = None
    running = 0
    for t, change in _changes(spans):
        if change < 0 and running >= concurrency:
            end = t
        running += change
        if begin is None and running >= concurrency:
            begin = t
    return (begin, end) if begin is not None and end is not None and end > begin else None


def peak(spans: Iterable[tuple[float, float]]) -> int:
    """The most spans (begin, end) that overlap at any moment; 0 of nothing."""
    return max(accumulate(change for _, change in _changes(spans)), default=0)


def _changes(spans: Iterable[tuple[float, float]]) -> list[tuple[float, int]]:
    """When, in order, a span begins (+1) or ends (−1); ends first at the same moment."""
    return sorted((t, change) for begin, end in spans for t, change in ((begin, 1), (end, -1)))


def decode_half_width(records: Sequence[RequestRecord]) -> float | None:
    """Half of the 95 % interval of the decode rate over prompts, as a share of it; None of fewer than two."""
    rates = defaultdict(list)
    for record in records:
        if (rate := of_request(record).get("decode_tok_s")) is not None:
            rates[record.prompt_id].append(log(rate))
    found = stats.ratio_interval(rates)
    if found is None or found.low is None or found.high is None:
        return None
    return (found.high - found.low) / 2 / found.value


def cached_share(records: Sequence[RequestRecord]) -> float | None:
    """Share of prompt tokens that came from a prefix cache, over the records that say so."""
    told = [
        (r.cached_tokens, r.prompt_tokens) for r in records if r.cached_tokens is not None and r.prompt_tokens
    ]
    return sum(cached for cached, _ in told) / sum(prompt for _, prompt in told) if told else None


def loop_share(records: Sequence[RequestRecord]) -> float | None:
    """Share of the output's characters that lie in a repeating passage at the end of an answer."""
    texts = [record.chunks.whole_text for record in records]
    total = sum(map(len, texts))
    return sum(map(loop_length, texts)) / total if total else None


def _totals(done: Sequence[RequestRecord]) -> dict[str, float]:
    """Sums over the cell, and their rates over its duration."""
    duration = max(map(_end, done)) - min(record.start_s for record in done)
    output = _sum([record.output_tokens for record in done])
    return _known(
        duration=duration,
        total_input_tokens=_sum([record.prompt_tokens for record in done]),
        total_output_tokens=output,
        request_throughput=_over(len(done), duration),
        output_throughput=_over(output, duration),
        effective_concurrency=_over(fsum(_end(r) - r.start_s for r in done), duration),
    )


def _summaries(done: Sequence[RequestRecord], requests: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Mean, median, spread and tails of each latency, in milliseconds."""
    families = {
        "ttft": _column(requests, "ttft_s"),
        "ttfo": _column(requests, "ttfo_s"),
        "tpot": _column(requests, "tpot_s"),
        "e2el": _column(requests, "e2e_s"),
        "icl": [b - a for record in done for a, b in pairwise(record.chunks.token_times_s)],
    }
    # Sorted once, which makes sorting again for each percentile cheap.
    milliseconds = {name: sorted(1e3 * value for value in values) for name, values in families.items()}
    return _known(
        **{
            f"{summary}_{name}_ms": summarise(values)
            for name, values in milliseconds.items()
            for summary, (_, summarise) in SUMMARIES.items()
        }
    )


def _pooled_tpot(requests: Sequence[Mapping[str, float]]) -> float | None:
    """All decode time over all tokens after each first chunk, in seconds."""
    decoded = [r for r in requests if "tpot_s" in r]
    tokens = sum(r["n"] - r["n_first"] for r in decoded)
    return fsum(r["e2e_s"] - r["ttft_s"] for r in decoded) / tokens if tokens else None


def _tpot(record: RequestRecord, decode_s: float, first: int) -> float | None:
    """Seconds per token after the first chunk; None where there are none, or no time passed."""
    if record.output_tokens is None or record.output_tokens <= first or decode_s <= 0:
        return None
    return decode_s / (record.output_tokens - first)


def _arrivals(record: RequestRecord) -> Iterator[tuple[float, float]]:
    """When, in seconds of the cell, and how many tokens arrived with each chunk."""
    told = [count for count in record.chunks.counts if count != 0]
    if told[0] is None and len(told) > 1:
        told[0] = 1
    rest = max((record.output_tokens or 0) - sum(tokens or 0 for tokens in told), 0)
    each = rest / max(told.count(None), 1)
    for t_s, tokens in zip(record.chunks.token_times_s, told, strict=True):
        yield record.start_s + t_s, each if tokens is None else tokens


def _end(record: RequestRecord) -> float:
    """When, in seconds of the cell, a completed request's last token arrived."""
    return record.start_s + record.chunks.token_times_s[-1]


def _over(amount: float | None, duration: float) -> float | None:
    """A rate; None where the amount is unknown or no time passed."""
    return None if amount is None or duration <= 0 else amount / duration


def _column(requests: Sequence[Mapping[str, float]], key: str) -> list[float]:
    return [request[key] for request in requests if key in request]


def _sum(values: Sequence[int | None]) -> int | None:
    """The sum, or None where one is missing."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _known(**values: float | None) -> dict[str, float]:
    """Those that are there."""
    return {key: float(value) for key, value in values.items() if value is not None}
