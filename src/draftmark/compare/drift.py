"""Whether the machine was still the same at the end of a phase: the baseline measured once more."""

from collections.abc import Sequence
from typing import NamedTuple

from draftmark import stats
from draftmark.compare.intervals import estimate, interval
from draftmark.compare.pairs import Side
from draftmark.compare.speed import ratio, verdict
from draftmark.schema import Cell, Drift

MOVED = 0.03
"""Relative change of the baseline beyond which the comparisons of its phase are not ranked."""


class Reading(NamedTuple):
    """The drift of one cell, and when it was read (ISO 8601, UTC)."""

    cell: Cell
    at: str
    drift: Drift


def drift(cell: Cell, first: Side, again: Side) -> Drift | None:
    """How the baseline moved between its two measurements; None where a rate is missing."""
    found = ratio(cell, first, again)
    if found is None:
        return None
    # A repetition that differed is no excuse: then the machine moved even sooner.
    told = verdict(found, None) != "cannot tell"
    return Drift(
        service=first.service.id,
        cell=cell.id,
        ratio=estimate(found),
        moved=told and (stats.reach(stats.Interval(found.value, None, None, 1)) or 0) > MOVED,
    )


def bearing(cell: Cell, measured_at: str, found: Sequence[Reading]) -> list[Drift]:
    """What is known of the drift under a method's cell: of the same cell, else of its workload's.

    A reading from before the method was measured says nothing of it.
    """
    later = [reading for reading in found if reading.at >= measured_at]
    own = [reading.drift for reading in later if reading.cell.id == cell.id]
    return own or [reading.drift for reading in later if reading.cell.workload == cell.workload]


def drift_reach(drifts: Sequence[Drift]) -> float | None:
    """How far from 1 the drift may have been; None where none was measured."""
    ends = [stats.reach(interval(drift.ratio)) or 0.0 for drift in drifts]
    return max(ends) if ends else None
