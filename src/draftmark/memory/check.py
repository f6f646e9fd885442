"""A plan against what the server says once it runs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from draftmark.memory.gpus import GIB
from draftmark.memory.types import Fit, MemoryPlan

CLOSE = 0.03
"""Relative difference up to which prediction and report agree."""


@dataclass(frozen=True)
class Reported:
    """One number, predicted and reported."""

    label: str
    predicted: float
    reported: float
    unit: str = ""

    @property
    def error(self) -> float | None:
        """Relative to what the server reports; None where that is nothing."""
        return self.predicted / self.reported - 1 if self.reported else None

    @property
    def close(self) -> bool:
        """The two agree."""
        error = self.error
        return self.predicted == self.reported if error is None else abs(error) <= CLOSE


def reported(plan: MemoryPlan, facts: Mapping[str, Any]) -> tuple[Reported, ...]:
    """Every number that both the plan and the server's own facts have.

    Args:
        plan: made before the start.
        facts: what the engine's ``facts`` read from the running server.
    """
    return tuple(_pairs(plan, facts))


LABELS = {
    "kv_tokens": ("KV tokens", ""),
    "max_running_requests": ("requests at once", ""),
    "recurrent_slots": ("state slots", ""),
    "weights_gib": ("weights", "GiB"),
    "kv_gib": ("KV cache", "GiB"),
}
"""(what it is called, unit) of each fact that a plan predicts."""


def predictions(plan: MemoryPlan) -> dict[str, float]:
    """What a plan says of a server, by the names of its facts."""
    fit = plan.fit
    found = {
        "kv_tokens": fit.kv_tokens,
        "max_running_requests": fit.running,
        "recurrent_slots": fit.recurrent_slots,
        "weights_gib": _gib(fit, "target weights", "draft weights"),
        "kv_gib": _gib(fit, "left for the KV cache"),
    }
    return {name: float(value) for name, value in found.items() if value is not None}


def _pairs(plan: MemoryPlan, facts: Mapping[str, Any]) -> Iterator[Reported]:
    for name, predicted in predictions(plan).items():
        said, (label, unit) = facts.get(name), LABELS[name]
        if isinstance(said, int | float) and not isinstance(said, bool):
            yield Reported(label, predicted, float(said), unit)


def _gib(fit: Fit, *labels: str) -> float | None:
    found = [line.bytes for line in fit.lines if line.label in labels]
    return sum(found) / GIB if found else None
