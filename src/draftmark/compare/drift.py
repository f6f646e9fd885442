"""Whether the machine was still the same at the end of a phase: the baseline measured once more."""

from collections.abc import Sequence

from draftmark import stats
from draftmark.compare.intervals import estimate, interval
from draftmark.compare.pairs import Side
from draftmark.compare.speed import noise_of, ratio, verdict
from draftmark.schema import Cell, Drift

MOVED = 0.03
"""Relative change of the baseline beyond which the comparisons of its phase are not ranked."""


def drift(cell: Cell, first: Side, again: Side) -> Drift | None:
    """How the baseline moved between its two measurements; None where a rate is missing."""
    found = ratio(cell, first, again)
    if found is None:
        return None
    told = verdict(found, noise_of(cell, first)) != "cannot tell"
    return Drift(
        service=first.service.id,
        cell=cell.id,
        ratio=estimate(found),
        moved=told and (stats.reach(stats.Interval(found.value, None, None, 1)) or 0) > MOVED,
    )


def bearing(cell: Cell, found: Sequence[tuple[Cell, Drift]]) -> list[Drift]:
    """What is known of the drift under a cell: its own, else that of its workload's cells."""
    own = [drift for repeated, drift in found if repeated.id == cell.id]
    return own or [drift for repeated, drift in found if repeated.workload == cell.workload]


def reach(drifts: Sequence[Drift]) -> float | None:
    """How far from 1 the drift may have been; None where none was measured."""
    ends = [stats.reach(interval(drift.ratio)) or 0.0 for drift in drifts]
    return max(ends) if ends else None
