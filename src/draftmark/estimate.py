"""How long what is left will take, learned from what this campaign has measured so far."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from statistics import mean

from draftmark.schema import Cell

PREFILL_PER_DECODE = 20.0
"""Prompt tokens that take about as long as one generated token; only weighs cells against each other."""


def work(cell: Cell) -> float:
    """A cell's size in generated tokens one after another; it weighs cells against each other."""
    passes = 2 if cell.control else 1
    per_request = cell.max_tokens + (cell.length or 0) / PREFILL_PER_DECODE
    return passes * cell.requests * per_request / cell.concurrency


@dataclass(frozen=True)
class Pace:
    """Observed times: seconds of each server start, and (work, seconds) of each cell."""

    starts_s: tuple[float, ...] = ()
    cells: tuple[tuple[float, float], ...] = ()

    def started(self, seconds: float) -> "Pace":
        """With one more server start."""
        return replace(self, starts_s=(*self.starts_s, seconds))

    def measured(self, cell: Cell, seconds: float) -> "Pace":
        """With one more measured cell."""
        return replace(self, cells=(*self.cells, (work(cell), seconds)))

    def remaining_s(self, starts: int, cells: Iterable[Cell]) -> float | None:
        """Seconds for so many server starts and these cells; None while nothing is known of them."""
        left = sum(map(work, cells))
        if (left and not self.cells) or (starts and not self.starts_s):
            return None
        done = sum(size for size, _ in self.cells)
        pace = sum(seconds for _, seconds in self.cells) / done if done else 0.0
        return starts * (mean(self.starts_s) if starts else 0.0) + left * pace
