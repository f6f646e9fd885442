"""Reasons to doubt a cell's numbers, each with the figure that gave rise to it and the limit it broke."""

from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import Any

from draftmark.metrics.records import completed, peak
from draftmark.schema import Cell, Flag, LoadHealth, LoadResult, RequestRecord, Speculation

CACHED_SHARE = 0.10
"""Of the prompt tokens; below it lies the header that a chat template puts before every prompt."""
LOOP_SHARE = 0.20
"""Of the output's characters."""
CLIENT_CPU = 0.80
"""Of one core; beyond it the load client's own queue adds to what it measures."""
CLIENT_LAG_S = 0.002
"""A lag up to it is forgiven anyway."""
TIMING_SHARE = 0.10
"""Of the mean gap between chunks: beyond it a lag distorts times that the client takes itself."""
TURN_SHARE = 0.01
"""Of the mean answer: so long a stream may wait for its next request, which costs throughput alike."""
LATE_SHARE = 0.01
FOREIGN_SHARE, FOREIGN_CORES = 0.10, 1.0
"""Of the CPUs, and cores: housekeeping grows with a host, but one busy core stalls any spinning pool."""
IN_FLIGHT_SHARE = 0.7
"""Of the asked-for concurrency; ramp-up and drain alone cost less."""
FEWEST_PROMPTS = 3


def flags(
    cell: Cell,
    result: LoadResult,
    measured: Mapping[str, float],
    *,
    speculation: Speculation | None = None,
    speculative: bool = False,
    synthetic: bool = False,
    facts: Mapping[str, Any] | None = None,
    foreign_cpu: float | None = None,
    cpus: int = 1,
) -> tuple[Flag, ...]:
    """Why a cell's numbers may not mean what they seem to; empty where nothing speaks against them.

    Args:
        measured: what :func:`draftmark.metrics.measure` made of the result.
        speculation: of the whole cell.
        speculative: the method drafts.
        synthetic: the method's acceptance is simulated.
        facts: what the server says of itself; read are ``max_running_requests`` (its cap, a number) and
            ``speculation`` (whether it speculates, a bool).
        foreign_cpu: cores that other processes used meanwhile.
        cpus: that ``foreign_cpu`` was counted on.
    """
    done = completed(result.records)
    known = facts or {}
    return (
        *_early_stop(cell, done),
        *_cache_hit(cell, measured.get("cached_share")),
        *_degenerate(measured.get("loop_share")),
        *_client_bound(result.health, _lag_limit_s(cell, result.health, measured), len(result.records)),
        *_foreign_load(foreign_cpu, cpus),
        *_capped(cell, done, known.get("max_running_requests"), measured.get("effective_concurrency")),
        *_synthetic(synthetic),
        *_no_draft(speculative, known.get("speculation"), speculation),
        *_few_samples(done),
    )


def _early_stop(cell: Cell, done: Sequence[RequestRecord]) -> Iterator[Flag]:
    """Sessions end their turns where the model ends them; everything else asks for a fixed length."""
    short = [r.output_tokens for r in done if r.output_tokens is not None and r.output_tokens < r.max_tokens]
    if short and cell.workload != "agentic":
        yield Flag(
            kind="early-stop",
            detail=f"{len(short)} of {len(done)} answers ended before the {cell.max_tokens} tokens asked for,"
            f" the shortest after {min(short)}",
        )


def _cache_hit(cell: Cell, share: float | None) -> Iterator[Flag]:
    """A session's own history is meant to be cached; nothing else is."""
    if share is not None and share > CACHED_SHARE and cell.workload != "agentic":
        yield Flag(
            kind="cache-hit",
            detail=f"{share:.0%} of the prompt tokens came from the prefix cache (limit {CACHED_SHARE:.0%})",
        )


def _degenerate(share: float | None) -> Iterator[Flag]:
    if share is not None and share > LOOP_SHARE:
        yield Flag(
            kind="degenerate",
            detail=f"{share:.0%} of the output is a passage repeated to the end (limit {LOOP_SHARE:.0%})",
        )


def _lag_limit_s(cell: Cell, health: LoadHealth, measured: Mapping[str, float]) -> float:
    """What the loop may lag by: where the kernel takes the times, a lag only delays a stream's next request.

    In open loop no request waits for an answer, and what goes out late is counted as such.
    """
    if not health.kernel_times:
        share_s = TIMING_SHARE * measured.get("mean_icl_ms", 0.0) / 1e3
    elif cell.open_loop:
        share_s = inf
    else:
        share_s = TURN_SHARE * measured.get("mean_e2el_ms", 0.0) / 1e3
    return max(CLIENT_LAG_S, share_s)


def _client_bound(health: LoadHealth, limit_s: float, requests: int) -> Iterator[Flag]:
    reasons = []
    if health.cpu_share > CLIENT_CPU:
        reasons.append(f"the load client used {health.cpu_share:.0%} of a core (limit {CLIENT_CPU:.0%})")
    lag = health.loop_lag_p99_s
    if lag is not None and lag > limit_s:
        reasons.append(f"its loop lagged {1e3 * lag:.1f} ms at p99 (limit {1e3 * limit_s:.1f} ms)")
    if health.late_sends > LATE_SHARE * requests:
        reasons.append(f"{health.late_sends} of {requests} sends were late (limit {LATE_SHARE:.0%})")
    if reasons:
        yield Flag(kind="client-bound", detail="; ".join(reasons))


def _foreign_load(cores: float | None, cpus: int) -> Iterator[Flag]:
    limit = min(FOREIGN_SHARE * cpus, FOREIGN_CORES)
    if cores is not None and cores > limit:
        yield Flag(
            kind="foreign-load",
            detail=f"other processes used {cores:.2f} of {cpus} cores meanwhile (limit {limit:.1f})",
        )


def _capped(
    cell: Cell, done: Sequence[RequestRecord], cap: float | None, in_flight: float | None
) -> Iterator[Flag]:
    """A queue in the server looks busy from outside, so what was generated at once is looked at as well."""
    if cell.open_loop or not done:
        return
    least = IN_FLIGHT_SHARE * cell.concurrency
    asked = f"of {cell.concurrency} asked for"
    if cap is not None and cap < cell.concurrency:
        yield Flag(kind="capped", detail=f"the server runs at most {cap:.0f} requests at once {asked}")
    elif in_flight is not None and in_flight < least:
        yield Flag(
            kind="capped",
            detail=f"{in_flight:.1f} requests were in flight on average {asked} (limit {least:.1f})",
        )
    elif cell.workload == "concurrency" and (generating := peak(map(_decoding, done))) < least:
        yield Flag(
            kind="capped",
            detail=f"never more than {generating} answers were generated at once {asked} (limit {least:.1f})",
        )


def _decoding(record: RequestRecord) -> tuple[float, float]:
    """From its first to its last token, in seconds of the cell."""
    times = record.chunks.token_times_s
    return record.start_s + times[0], record.start_s + times[-1]


def _synthetic(synthetic: bool) -> Iterator[Flag]:
    if synthetic:
        yield Flag(
            kind="synthetic",
            detail="acceptance was simulated: the output is meaningless and the speed is a what-if",
        )


def _no_draft(speculative: bool, on: bool | None, speculation: Speculation | None) -> Iterator[Flag]:
    if not speculative:
        return
    if on is False:
        yield Flag(kind="no-draft", detail="the server says that speculation is off")
    elif speculation is not None and speculation.drafted == 0:
        yield Flag(kind="no-draft", detail=f"0 tokens were drafted ({speculation.source})")


def _few_samples(done: Sequence[RequestRecord]) -> Iterator[Flag]:
    prompts = len({record.prompt_id for record in done})
    if prompts < FEWEST_PROMPTS:
        said = "1 different prompt was" if prompts == 1 else f"{prompts} different prompts were"
        yield Flag(
            kind="few-samples",
            detail=f"{said} answered (at least {FEWEST_PROMPTS})",
        )
