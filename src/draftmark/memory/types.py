"""What a memory plan is made of."""

from dataclasses import dataclass, field
from typing import Literal

from draftmark.memory.gpus import GIB, Gpu
from draftmark.schema import Service

LineKind = Literal["has", "takes", "leaves", "each"]
"""``each`` is a size that other lines multiply."""
Verdict = Literal["fits", "fits with less concurrency", "does not fit", "unknown"]


@dataclass(frozen=True)
class Assumed:
    """What no file says, in bytes of one GPU; each may be replaced by what a server's log says."""

    context_bytes: int = round(0.8 * GIB)
    """Taken by CUDA and the communication between GPUs before the weights are loaded."""
    loading_bytes: int = round(0.6 * GIB)
    """Taken beside the weights while they are loaded: workspaces, fragments."""
    activation_bytes: int = round(1.2 * GIB)
    """vLLM: most that one step needs beside weights and cache."""
    graph_bytes: int = round(0.6 * GIB)
    """vLLM: what it sets aside for CUDA graphs."""
    compute_bytes: int = round(0.6 * GIB)
    """llama.cpp: compute buffers of a context."""


@dataclass(frozen=True)
class Line:
    """One number of the sum."""

    label: str
    bytes: float
    """Of one GPU; negative where more is needed than there is."""
    how: str
    """How it was computed, or where it is from."""
    kind: LineKind = "takes"
    assumed: bool = False


@dataclass(frozen=True)
class Fit:
    """What an engine's own arithmetic comes to."""

    lines: tuple[Line, ...]
    failure: str | None = None
    """Why the server would not start, or could not serve the longest request; None where it would."""
    running: int | None = None
    """Requests that it runs at once; None where it would not start."""
    running_why: str = ""
    """What limits them, where that is not what was asked for."""
    kv_tokens: int | None = None
    """Tokens that the KV cache holds, of all requests together."""
    recurrent_slots: int | None = None
    """States of requests that it keeps."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Proposal:
    """A change with which everything that was asked for fits, by the same arithmetic."""

    change: str
    """As it is written in the plan."""
    service: Service
    fit: Fit
    caution: str = ""
    """What else it does."""


@dataclass(frozen=True)
class MemoryPlan:
    """Whether one service fits its GPUs, and why."""

    service: Service
    gpu: Gpu
    context: int
    """Tokens that one request may have."""
    fit: Fit = field(default_factory=lambda: Fit(()))
    unknown: tuple[str, ...] = ()
    """What would have to be known; with any of it there is no verdict."""
    proposals: tuple[Proposal, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """In one word or a few."""
        if self.unknown:
            return "unknown"
        if self.fit.failure:
            return "does not fit"
        running = self.fit.running
        capped = running is not None and running < self.service.max_running_requests
        return "fits with less concurrency" if capped else "fits"

    @property
    def full_length_requests(self) -> float | None:
        """How many requests of the full context the KV cache holds at once."""
        tokens = self.fit.kv_tokens
        return tokens / self.context if tokens is not None and self.context else None
