"""Every number that is shown, declared once: name, unit, format, direction and definition.

Keys are those of the benchmark files of vLLM and SGLang where the meaning is the same.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from draftmark import stats

Better = Literal["higher", "lower"] | None


@dataclass(frozen=True)
class Metric:
    """One number: what it is called, how it is written, and what it means."""

    key: str
    title: str
    """Short, for a table's head or an axis, without the unit."""
    unit: str
    """Empty for pure numbers."""
    format: str
    """Format specification of ``format()``."""
    better: Better
    definition: str
    validity: str = ""
    """When it is absent, or what it must not be used for."""

    def show(self, value: float | None) -> str:
        """The value as written in a table, without its unit; a dash where it is missing."""
        return "–" if value is None else format(value, self.format)


def _percentile(percent: float) -> Callable[[Sequence[float]], float | None]:
    return lambda values: stats.percentile(values, percent)


SUMMARIES: Mapping[str, tuple[str, Callable[[Sequence[float]], float | None]]] = {
    "mean": ("Mean", stats.mean),
    "median": ("Median", _percentile(50)),
    "std": ("Sample standard deviation", stats.std),
    "p90": ("90th percentile", _percentile(90)),
    "p95": ("95th percentile", _percentile(95)),
    "p99": ("99th percentile", _percentile(99)),
}
"""What a latency is summarised by: the prefix of its key, the words, and the function."""

_TAIL = "A p99 of fewer than 100 requests is close to their maximum."

_TTFT = (
    "arrival of the first chunk that carries a generated token, reasoning included, after the request's start"
)
_TTFO = "arrival of the first chunk with text that is not reasoning, after the request's start"
_TPOT = "time per output token after the first chunk: (e2e − ttft) / (tokens − tokens of the first chunk)"
_LATE = "In open loop it counts from the planned send time."
_NO_TPOT = "Absent where no request generated more than its first chunk, or the server gave no token counts."


def _family(name: str, title: str, what: str, validity: str) -> Iterator[Metric]:
    """The summaries of one latency over a cell's requests, in milliseconds."""
    for prefix, (words, _) in SUMMARIES.items():
        yield Metric(
            key=f"{prefix}_{name}_ms",
            title=f"{title} {prefix}",
            unit="ms",
            format=".2f",
            better=None if prefix == "std" else "lower",
            definition=f"{words} over the completed requests of the {what}.",
            validity=f"{validity} {_TAIL}".strip() if prefix == "p99" else validity,
        )


_ALL: tuple[Metric, ...] = (
    Metric("completed", "completed", "", ".0f", "higher", "Measured requests that ended well, with a token."),
    Metric("failed", "failed", "", ".0f", "lower", "Measured requests with an error or without a token."),
    Metric(
        "duration",
        "duration",
        "s",
        ".2f",
        None,
        "First start to last arrival of a token, over the completed requests.",
    ),
    Metric(
        "total_input_tokens",
        "input tokens",
        "",
        ".0f",
        None,
        "Prompt tokens of the completed requests.",
        "Absent unless the server counted every one.",
    ),
    Metric(
        "total_output_tokens",
        "output tokens",
        "",
        ".0f",
        None,
        "Generated tokens of the completed requests, as the server counted them; chunks are never tokens.",
        "Absent unless the server counted every one.",
    ),
    Metric(
        "request_throughput",
        "requests per second",
        "req/s",
        ".2f",
        "higher",
        "Completed requests per second of the duration.",
    ),
    Metric(
        "output_throughput",
        "output throughput",
        "tok/s",
        ".1f",
        "higher",
        "Generated tokens of the completed requests over the duration, ramp-up and drain included.",
        "Absent without token counts. In open loop the arrivals set it unless the server is saturated.",
    ),
    Metric(
        "steady_tok_s",
        "steady throughput",
        "tok/s",
        ".1f",
        "higher",
        "Tokens that arrived per second between the first and the last moment at which the asked-for"
        " concurrency was in flight, in each round of the load.",
        "Absent in open loop, without token counts, and where the concurrency was never reached.",
    ),
    Metric(
        "effective_concurrency",
        "effective concurrency",
        "",
        ".2f",
        None,
        "Mean number of requests in flight: their total time from start to last token over the duration.",
    ),
    Metric(
        "decode_tok_s",
        "decode rate",
        "tok/s",
        ".1f",
        "higher",
        "Geometric mean over requests of 1 / tpot, so that the ratio of two cells with the same prompts"
        " is the paired speedup.",
        _NO_TPOT,
    ),
    Metric(
        "decode_half_width",
        "decode rate ±",
        "",
        ".1%",
        "lower",
        "Half of the 95 % interval of the decode rate over prompts, as a share of it.",
        "Absent where fewer than two prompts have a decode rate.",
    ),
    Metric(
        "tau",
        "acceptance length",
        "tok/step",
        ".2f",
        "higher",
        "Tokens committed per decode step, the target's own token included: all tokens over all steps.",
        "Absent where the engine does not say. Sources differ in what they count, so it is named beside it.",
    ),
    Metric(
        "token_ms",
        "time per token",
        "ms",
        ".2f",
        "lower",
        "All decode time over all tokens after each first chunk.",
        _NO_TPOT,
    ),
    Metric(
        "step_ms",
        "step time",
        "ms",
        ".2f",
        "lower",
        "Time of one decode step: the cell's time per token, times tau.",
        "Absent without tau or without tpot.",
    ),
    Metric(
        "cached_share",
        "cached prompt share",
        "",
        ".1%",
        None,
        "Share of the prompt tokens that the server took from its prefix cache.",
        "Absent where the server does not say.",
    ),
    Metric(
        "loop_share",
        "looping share",
        "",
        ".1%",
        "lower",
        "Share of the output's characters that are one passage repeated up to the end of its answer.",
        "Absent where no answer has text.",
    ),
    Metric(
        "sane_share",
        "right answers",
        "",
        ".0%",
        "higher",
        "Share of right answers among those that can be checked; of a cut one counts what it finished first.",
        "Absent where there are none: creative ones cannot be checked, nor those that were cut too soon.",
    ),
    *_family("ttft", "TTFT", f"time to first token: {_TTFT}", _LATE),
    *_family("ttfo", "TTFO", f"time to first token that is not reasoning: {_TTFO}", _LATE),
    *_family("tpot", "TPOT", _TPOT, _NO_TPOT),
    *_family("e2el", "end to end", "arrival of the last token after the request's start", _LATE),
    *_family(
        "icl",
        "inter-chunk",
        "gaps between neighbouring token-carrying chunks, all requests together",
        "With speculation a gap is a step or less, not a token; not comparable between engines.",
    ),
)

METRICS: Mapping[str, Metric] = {metric.key: metric for metric in _ALL}

REQUEST_METRICS: Mapping[str, Metric] = {
    metric.key: metric
    for metric in (
        Metric("ttft_s", "TTFT", "s", ".4f", "lower", f"Time to first token: {_TTFT}.", _LATE),
        Metric("ttfo_s", "TTFO", "s", ".4f", "lower", f"Time to first output: {_TTFO}.", _LATE),
        Metric(
            "e2e_s", "end to end", "s", ".4f", "lower", "Arrival of the last token, after the start.", _LATE
        ),
        Metric("n", "tokens", "", ".0f", None, "Generated tokens, as the server counted them."),
        Metric(
            "n_first", "first", "", ".0f", None, "Tokens of the first chunk; 1 where the engine does not say."
        ),
        Metric("tpot_s", "TPOT", "s", ".5f", "lower", f"The {_TPOT}.", "Absent where nothing came after it."),
        Metric("decode_tok_s", "decode rate", "tok/s", ".1f", "higher", "1 / tpot."),
        Metric("tau", "acceptance length", "tok/step", ".2f", "higher", "Tokens committed per decode step."),
        Metric("step_s", "step time", "s", ".5f", "lower", "tpot × tau."),
    )
}
