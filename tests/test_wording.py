"""Ratios, intervals and lists of names as sentences and tables say them."""

import pytest

from draftmark.schema import Estimate
from draftmark.wording import basis, counted, interval, listed


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (1.304, 1.551, "95 % 1.30–1.55"),
        (0.9996, 1.0004, "95 % <1.00–>1.00"),
        (1.0, 1.1, "95 % 1.00–1.10"),
        (None, None, "no interval"),
    ],
)
def test_an_interval_shows_on_which_side_of_one_it_ends(
    low: float | None, high: float | None, said: str
) -> None:
    """An end just off 1 has a sign, 1 itself has none, and a missing interval is said without a label."""
    estimate = Estimate(value=1.0, low=low, high=high, n=4)
    assert interval(estimate, "95 % ") == said
    assert basis(estimate, "95 % ") == f"{said}, n=4"


@pytest.mark.parametrize(
    ("names", "said"),
    [("", ""), ("a", "a"), ("ab", "a and b"), ("abc", "a, b and c"), ("abcde", "a, b, c and 2 more")],
)
def test_many_names_are_counted(names: str, said: str) -> None:
    """Up to three are named; of more the first three, and how many are left."""
    assert listed(names, 3) == said
    assert [name for name in counted(names, 3) if len(name) == 1] == list(names[:3])
