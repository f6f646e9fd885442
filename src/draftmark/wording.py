"""Ratios, their intervals, counts and lists of names, as every sentence and table says them."""

from collections.abc import Sequence

from draftmark.schema import Estimate


def times(ratio: float) -> str:
    """A ratio as ``1.42×``."""
    return f"{ratio:.2f}×"


def interval(estimate: Estimate, label: str = "") -> str:
    """The 95 % interval as ``1.30–1.55`` behind the label, or that there is none."""
    if estimate.low is None or estimate.high is None:
        return "no interval"
    return f"{label}{bound(estimate.low)}–{bound(estimate.high)}"


def bound(ratio: float) -> str:
    """An end of an interval; where rounding would put it on 1, a sign says on which side it lies."""
    text = f"{ratio:.2f}"
    return text if text != "1.00" or ratio == 1 else f"{'>' if ratio > 1 else '<'}{text}"


def basis(estimate: Estimate, label: str = "") -> str:
    """The interval and n that an estimate stands on, as ``1.30–1.55, n=5``."""
    return f"{interval(estimate, label)}, n={estimate.n}"


def plural(count: int, word: str) -> str:
    """``1 cell``, ``2 cells``."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def counted(names: Sequence[str], most: int) -> list[str]:
    """The first names, and as the last one how many more there are."""
    more = len(names) - most
    return [*names[:most], *([f"{more} more"] if more > 0 else [])]


def listed(names: Sequence[str], most: int) -> str:
    """``a, b and c``; of more than ``most`` the first, as ``a, b and 4 more``; empty for none."""
    shown = counted(names, most)
    return " and ".join(filter(None, (", ".join(shown[:-1]), *shown[-1:])))
