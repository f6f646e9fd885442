"""Ratios with their intervals, of one cell and of several together."""

from collections.abc import Sequence
from math import exp, fsum, log, sqrt
from statistics import fmean

from draftmark import stats
from draftmark.schema import Estimate


def estimate(found: stats.Interval) -> Estimate:
    """An interval as it is stored."""
    return Estimate(value=found.value, low=found.low, high=found.high, n=found.n)


def interval(found: Estimate) -> stats.Interval:
    """A stored estimate to compute with."""
    return stats.Interval(found.value, found.low, found.high, found.n)


def inverse(found: stats.Interval) -> stats.Interval:
    """The ratio the other way round."""
    low, high = (None if end is None else 1 / end for end in (found.high, found.low))
    return stats.Interval(1 / found.value, low, high, found.n)


def scaled(found: stats.Interval, factor: float) -> stats.Interval:
    """The ratio times a known positive number."""
    low, high = (None if end is None else end * factor for end in (found.low, found.high))
    return stats.Interval(found.value * factor, low, high, found.n)


def together(ratios: Sequence[stats.Interval]) -> stats.Interval | None:
    """The geometric mean of the ratios of several cells with its 95 % interval; None of nothing.

    The cells are what was asked for and not a sample, so each counts the same and only what was measured
    within them is uncertain. Their units are independent, as no two cells share a prompt; the degrees of
    freedom are Welch and Satterthwaite's, rounded down. One ratio without an interval leaves them all
    without.
    """
    if not ratios:
        return None
    value, n = fmean(log(ratio.value) for ratio in ratios), sum(ratio.n for ratio in ratios)
    errors = [log_error(ratio) for ratio in ratios]
    known = [error for error in errors if error is not None]
    if len(known) < len(errors):
        return stats.Interval(exp(value), None, None, n)
    half = stats.t_quantile(freedom(ratios)) * sqrt(fsum(error**2 for error in known)) / len(ratios)
    return stats.Interval(exp(value), exp(value - half), exp(value + half), n)


def log_error(ratio: stats.Interval) -> float | None:
    """Standard error of a ratio's logarithm, back from its interval; None where it has none."""
    if ratio.low is None or ratio.high is None:
        return None
    return log(ratio.high / ratio.low) / 2 / stats.t_quantile(ratio.n - 1)


def freedom(ratios: Sequence[stats.Interval]) -> int:
    """Degrees of freedom of the mean of ratios with intervals; where nothing spreads, as if all alike."""
    squares = [(log_error(ratio) or 0.0) ** 2 for ratio in ratios]
    weight = fsum(s**2 / (ratio.n - 1) for s, ratio in zip(squares, ratios, strict=True))
    if weight == 0:
        return sum(ratio.n - 1 for ratio in ratios)
    return max(1, int(fsum(squares) ** 2 / weight + 1e-9))
