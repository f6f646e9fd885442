"""Whether a rate got worse by more than is tolerated, from its interval and the noise."""

from collections.abc import Sequence
from math import atan, cos, log, log1p, pi, sin, sqrt

from draftmark import stats
from draftmark.compare import log_error
from draftmark.versus.types import Outcome

LEVEL = 0.025
"""One side of a 95 % interval."""


def outcome(ratio: stats.Interval | None, noise: float | None, tolerance: float) -> Outcome:
    """PASS where the whole interval is above the limit; REGRESSION where it is below, beyond the noise."""
    if ratio is None or ratio.low is None or ratio.high is None:
        return "INCONCLUSIVE"
    if ratio.low >= 1 - tolerance:
        return "PASS"
    beyond = -log(ratio.value) > log1p(noise or 0)
    return "REGRESSION" if ratio.high < 1 - tolerance and beyond else "INCONCLUSIVE"


def certain(ratio: stats.Interval, tolerance: float, judged: int) -> bool:
    """A regression remains one where so many cells were looked at that some seem to regress by chance."""
    error, below = log_error(ratio), log(1 - tolerance) - log(ratio.value)
    if error is None or below <= 0:
        return False
    return error == 0 or judged * tail(below / error, ratio.n - 1) <= LEVEL


def tail(t: float, freedom: int) -> float:
    """Probability of Student's t above ``t`` (Abramowitz and Stegun 26.7.3 and 26.7.4)."""
    angle = atan(t / sqrt(freedom))
    odd = freedom % 2
    term = total = cos(angle) if odd else 1.0
    if freedom == 1:
        total = 0.0
    for k in range(2 if odd else 1, freedom - 1, 2):
        term *= k / (k + 1) * cos(angle) ** 2
        total += term
    inside = 2 / pi * (angle + sin(angle) * total) if odd else sin(angle) * total
    return max(0.0, (1 - inside) / 2)


def worst(outcomes: Sequence[Outcome]) -> Outcome:
    """REGRESSION before INCONCLUSIVE before PASS; nothing is inconclusive."""
    order: tuple[Outcome, ...] = ("REGRESSION", "INCONCLUSIVE", "PASS")
    return min(outcomes, key=order.index, default="INCONCLUSIVE")
