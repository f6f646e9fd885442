"""Statistics of small samples, held against laws, known values and simulation."""

import random
from collections.abc import Callable
from math import exp, inf, log
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmark import stats

numbers = st.floats(-1e6, 1e6)
ratios = st.floats(0.1, 10)
Draw = Callable[[random.Random], float]


def quiet(rng: random.Random) -> float:
    return rng.gauss(0, 0.05)


def with_outliers(rng: random.Random) -> float:
    return rng.gauss(0, 0.03) + (rng.gauss(0, 0.12) if rng.random() < 0.1 else 0)


def flat(rng: random.Random) -> float:
    return rng.uniform(-0.1, 0.1)


def ends(interval: stats.Interval | None) -> tuple[float, float, float]:
    assert interval is not None
    assert interval.low is not None
    assert interval.high is not None
    return interval.value, interval.low, interval.high


def coverage(draw: Draw, n: int, simulations: int) -> float:
    """How often the interval of ``n`` prompts of two repetitions holds the planted speedup of 1.3."""
    rng, held = random.Random(n), 0
    for _ in range(simulations):
        effects = {f"p{i}": log(1.3) + draw(rng) for i in range(n)}
        interval = stats.ratio_interval(
            {p: [e + rng.gauss(0, 0.01) for _ in range(2)] for p, e in effects.items()}
        )
        assert interval is not None
        assert interval.n == n
        held += (interval.low or inf) <= 1.3 <= (interval.high or -inf)
    return held / simulations


@given(values=st.lists(numbers, min_size=1, max_size=50), percent=st.floats(0, 100))
def test_a_percentile_lies_within_the_values(values: list[float], percent: float) -> None:
    """It is never outside, and the ends are the extremes."""
    assert min(values) <= (stats.percentile(values, percent) or 0) <= max(values)
    assert stats.percentile(values, 0) == min(values)
    assert stats.percentile(values, 100) == max(values)


def test_percentiles_are_interpolated_linearly() -> None:
    """Between the ranks, as the benchmark tools of the engines do it."""
    assert stats.percentile([4, 1, 3, 2], 50) == 2.5
    assert stats.percentile(range(101), 99) == 99
    assert stats.percentile([10, 20], 90) == pytest.approx(19)


def test_too_few_values_give_no_answer() -> None:
    """Nothing has no mean, one has no spread and no interval."""
    assert stats.percentile([], 50) is None
    assert stats.mean([]) is None
    assert stats.geometric_mean([]) is None
    assert stats.t_interval([]) is None
    assert stats.ratio_interval({}) is None
    assert stats.total_ratio_interval([]) is None
    assert stats.reach(None) is None
    assert stats.std([1.0]) is None
    assert stats.t_interval([2.0]) == stats.Interval(2.0, None, None, 1)
    assert stats.total_ratio_interval([(2, 1, 1, 1)]) == stats.Interval(2.0, None, None, 1)


def test_repeating_one_prompt_does_not_make_it_more_prompts() -> None:
    """A hundred repetitions of one prompt have a ratio and no interval."""
    interval = stats.ratio_interval({"p": [log(2)] * 100})
    assert interval is not None
    assert (interval.low, interval.high, interval.n) == (None, None, 1)
    assert interval.value == pytest.approx(2)


@pytest.mark.parametrize(
    ("freedom", "expected"),
    [(1, 12.706), (2, 4.303), (4, 2.776), (8, 2.306), (9, 2.262), (12, 2.179), (30, 2.042), (1000, 1.962)],
)
def test_students_t_is_that_of_the_tables(freedom: int, expected: float) -> None:
    """Three decimals, as printed in any table."""
    assert stats.t_quantile(freedom) == pytest.approx(expected, abs=6e-4)


@given(ratio=ratios, logs=st.lists(st.floats(-1, 1), min_size=2, max_size=12))
def test_swapping_the_arms_inverts_the_interval(ratio: float, logs: list[float]) -> None:
    """A over B is the inverse of B over A, bounds included."""
    one = stats.ratio_interval({str(i): [log(ratio) + value] for i, value in enumerate(logs)})
    other = stats.ratio_interval({str(i): [-log(ratio) - value] for i, value in enumerate(logs)})
    inverted = [1 / end for end in ends(other)]
    assert ends(one) == pytest.approx((inverted[0], inverted[2], inverted[1]))
    assert stats.reach(one) == pytest.approx(stats.reach(other))


@given(
    units=st.lists(st.tuples(ratios, ratios, ratios, ratios), min_size=2, max_size=12),
    speed=ratios,
)
def test_a_ratio_of_totals_scales_with_the_speed_of_one_arm(
    units: list[tuple[float, float, float, float]], speed: float
) -> None:
    """Doing everything twice as fast doubles the ratio and both bounds."""
    before = stats.total_ratio_interval(units)
    after = stats.total_ratio_interval([(a, e / speed, ba, be) for a, e, ba, be in units])
    assert ends(after) == pytest.approx([speed * end for end in ends(before)])


def test_what_slows_both_arms_of_a_pair_cancels() -> None:
    """Prompts that differ tenfold in both arms leave no doubt about a ratio that is the same for each."""
    interval = stats.total_ratio_interval([(x, x, x, 1.5 * x) for x in (1.0, 3.0, 10.0)])
    assert interval is not None
    assert (interval.low, interval.high) == (pytest.approx(1.5), pytest.approx(1.5))


def test_reach_is_the_far_end_of_an_interval() -> None:
    """A ratio of 0.98 to 1.01 reaches as far as its inverse would."""
    assert stats.reach(stats.Interval(0.99, 0.98, 1.01, 3)) == pytest.approx(1 / 0.98 - 1)
    assert stats.reach(stats.Interval(exp(0.1), None, None, 1)) == pytest.approx(exp(0.1) - 1)


@pytest.mark.parametrize("draw", [quiet, with_outliers, flat])
@pytest.mark.parametrize("n", [3, 5, 8])
def test_the_interval_holds_the_truth(draw: Draw, n: int) -> None:
    """For 3, 5 and 8 prompts, 1,000 simulations: 93 to 97 in 100, give or take one."""
    assert 0.93 - 0.01 <= coverage(draw, n, 1_000) <= 0.97 + 0.01


@pytest.mark.slow
@pytest.mark.parametrize("draw", [quiet, with_outliers, flat])
@pytest.mark.parametrize("n", [3, 5, 8, 16])
def test_the_interval_holds_the_truth_at_length(draw: Draw, n: int) -> None:
    """20,000 simulations: 93 to 97 in 100, and at least 92 for three prompts spread evenly."""
    least = 0.92 if (draw, n) == (flat, 3) else 0.93
    assert least <= coverage(draw, n, 20_000) <= 0.97


def test_a_percentile_bootstrap_would_not() -> None:
    """Why Student's t: resampling five prompts holds the truth in fewer than 88 of 100."""
    rng, held = random.Random(0), 0
    for _ in range(200):
        sample = [quiet(rng) for _ in range(5)]
        means = [fmean(rng.choices(sample, k=5)) for _ in range(200)]
        low, high = stats.percentile(means, 2.5), stats.percentile(means, 97.5)
        assert low is not None
        assert high is not None
        held += low <= 0 <= high
    assert held / 200 < 0.88
