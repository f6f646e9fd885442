"""Statistics of a handful of numbers, in plain Python; what is too few for an answer gives None.

Speed is compared by ratios, so everything about comparisons works on their logarithms. Prompts are the
independent units; repetitions of one prompt are averaged first. Intervals are Student's t over those
units because a percentile bootstrap is far too narrow for three, five or eight of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, fsum, log, sqrt
from statistics import NormalDist, fmean

CONFIDENCE = 0.95
_Z = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)

# Student's t at 0.975 for 1 to 8 degrees of freedom, where the expansion below is not exact enough.
_T_FEW = (12.70620, 4.30265, 3.18245, 2.77645, 2.57058, 2.44691, 2.36462, 2.30600)


@dataclass(frozen=True)
class Interval:
    """A centre with its 95 % interval; the bounds are None where ``n`` is below 2."""

    value: float
    low: float | None
    high: float | None
    n: int
    """Independent units."""


def percentile(values: Sequence[float], percent: float) -> float | None:
    """The percentile, 0 to 100, with linear interpolation between the closest ranks; None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    rank = (len(ordered) - 1) * percent / 100
    below = int(rank)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (rank - below) * (ordered[above] - ordered[below])


def mean(values: Sequence[float]) -> float | None:
    """The arithmetic mean, exact to the last bit whatever the order; None of nothing."""
    return fmean(values) if values else None


def std(values: Sequence[float]) -> float | None:
    """The sample's standard deviation, with n − 1; None of fewer than two."""
    if len(values) < 2:
        return None
    centre = fmean(values)
    return sqrt(fsum((value - centre) ** 2 for value in values) / (len(values) - 1))


def geometric_mean(values: Sequence[float]) -> float | None:
    """The geometric mean of positive values; None of nothing."""
    return exp(fsum(map(log, values)) / len(values)) if values else None


def t_quantile(freedom: int) -> float:
    """Student's t at 0.975 with ``freedom`` ≥ 1, to three decimals (Abramowitz and Stegun 26.7.5 above 8)."""
    if freedom <= len(_T_FEW):
        return _T_FEW[freedom - 1]
    z, v = _Z, freedom
    return (
        z
        + (z**3 + z) / (4 * v)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * v**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * v**3)
    )


def t_interval(values: Sequence[float]) -> Interval | None:
    """The mean with Student's 95 % interval; None of nothing."""
    if not values:
        return None
    centre, spread, n = fmean(values), std(values), len(values)
    if spread is None:
        return Interval(centre, None, None, n)
    half = t_quantile(n - 1) * spread / sqrt(n)
    return Interval(centre, centre - half, centre + half, n)


def ratio_interval(log_ratios: Mapping[str, Sequence[float]]) -> Interval | None:
    """The geometric mean of paired ratios with its 95 % interval; None of nothing.

    Args:
        log_ratios: natural logarithms of the ratios, by the unit (prompt) that they belong to. Ratios
            of one unit are averaged first: repeating a prompt does not make it more prompts.
    """
    return _exponential(t_interval([fmean(of_unit) for of_unit in log_ratios.values() if of_unit]))


def total_ratio_interval(units: Sequence[tuple[float, float, float, float]]) -> Interval | None:
    """A ratio of two rates, each amount over effort in total, with its 95 % interval; None without any.

    The units enter by their influence on the logarithm of the ratio of totals (the delta method), so that
    what was slow in both arms cancels.

    Args:
        units: amount and effort of one arm, then of the other; e.g. tokens and seconds.
    """
    if not units:
        return None
    amount, effort, base_amount, base_effort = means = [fmean(column) for column in zip(*units, strict=True)]
    if min(means) <= 0:
        return None
    ratio = log(amount / effort) - log(base_amount / base_effort)
    return _exponential(
        t_interval(
            [ratio + a / amount - e / effort - ba / base_amount + be / base_effort for a, e, ba, be in units]
        )
    )


def reach(interval: Interval | None) -> float | None:
    """How far from 1 a ratio's interval reaches, as a relative change: 0.04 where it ends at 1.04."""
    if interval is None:
        return None
    ends = (interval.value, interval.low or interval.value, interval.high or interval.value)
    return exp(max(abs(log(end)) for end in ends)) - 1


def _exponential(interval: Interval | None) -> Interval | None:
    """The interval of a ratio from that of its logarithm."""
    if interval is None or interval.low is None or interval.high is None:
        return interval and Interval(exp(interval.value), None, None, interval.n)
    return Interval(exp(interval.value), exp(interval.low), exp(interval.high), interval.n)
