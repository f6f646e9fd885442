"""Sends one cell's work and tells exactly when everything came back.

``measure`` runs in this process; ``measure_apart`` runs the same in a process of its own, so that nothing
else that this one does can disturb the timing.
"""

from draftmark.load.apart import measure_apart
from draftmark.load.job import LoadJob
from draftmark.load.measure import measure

__all__ = ["LoadJob", "measure", "measure_apart"]
