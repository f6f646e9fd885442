"""How long a campaign takes: from what has been measured where there is something, from priors otherwise.

How many rounds a cell with a ``precision`` needs is not known before: times are from the first to the last.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import mean
from typing import NamedTuple

from draftmark.schema import Cell, CellResult, EngineKind, Service, ServiceResult

PREFILL_PER_DECODE = 20.0
"""Prompt tokens that take about as long as one generated token; only weighs cells against each other."""
START_S: Mapping[EngineKind, float] = {
    "llamacpp": 5.0,
    "vllm": 120.0,
    "sglang": 90.0,
    "reference": 10.0,
    "attach": 0.0,
}
"""Priors: from start to ready, models of some billion parameters on local disk."""
TOKEN_S: Mapping[EngineKind, float] = {
    "llamacpp": 1 / 40,
    "vllm": 1 / 60,
    "sglang": 1 / 60,
    "reference": 1 / 10,
    "attach": 1 / 60,
}
"""Priors: seconds per generated token of one stream."""
CELL_S = 1.5
"""Around each cell: load client, warm-up, writing."""


class Span(NamedTuple):
    """Seconds, if every cell is known closely enough after its first round, and if every round is needed."""

    least_s: float
    most_s: float


def together(spans: Iterable[Span]) -> Span:
    """One after another."""
    both = list(spans)
    return Span(sum(span.least_s for span in both), sum(span.most_s for span in both))


def work(cell: Cell, requests: float) -> float:
    """The size of so many of a cell's requests in generated tokens one after another, control included."""
    passes = 1 + cell.control + cell.asks_margins
    per_request = cell.max_tokens + (cell.length or 0) / PREFILL_PER_DECODE
    return passes * requests * per_request / cell.concurrency


@dataclass(frozen=True)
class Pace:
    """What this or an earlier run took: seconds of each start, and (work, seconds) of each cell."""

    starts_s: tuple[float, ...] = ()
    cells: tuple[tuple[float, float], ...] = ()

    def started(self, seconds: float) -> "Pace":
        """With one more server start."""
        return replace(self, starts_s=(*self.starts_s, seconds))

    def measured(self, result: CellResult) -> "Pace":
        """With one more measured cell, and all the rounds that it took."""
        size = work(result.cell, result.metrics.get("completed", result.cell.requests))
        return replace(self, cells=(*self.cells, (size, result.wall_s or result.duration_s)))

    def start_s(self, engine: EngineKind) -> float:
        """Seconds until a server is ready."""
        return mean(self.starts_s) if self.starts_s else START_S[engine]

    def cell(self, engine: EngineKind, cell: Cell) -> Span:
        """Time for a cell, all around it included."""
        done = sum(size for size, _ in self.cells)
        per_token = sum(seconds for _, seconds in self.cells) / done if done else TOKEN_S[engine]
        one, all_ = (work(cell, count) * per_token + CELL_S for count in (cell.requests, cell.most_requests))
        return Span(one, all_)


@dataclass(frozen=True)
class Estimate:
    """Times by phase and service, and what they rest on."""

    services: Mapping[str, Span] = field(default_factory=dict)
    phases: Mapping[str, Span] = field(default_factory=dict)
    guessed: bool = True
    """Nothing of this plan was measured yet: starts or rates are priors."""

    @property
    def total(self) -> Span:
        """Of all services."""
        return together(self.services.values())


def learned(services: Iterable[ServiceResult], cells: Iterable[CellResult]) -> Pace:
    """The pace of earlier results."""
    pace = Pace()
    for service in services:
        if service.ready_s is not None:
            pace = pace.started(service.ready_s)
    for result in cells:
        if result.status == "ok":
            pace = pace.measured(result)
    return pace


def estimate(services: Sequence[Service], pace: Pace) -> Estimate:
    """Time for these services with the cells that they have; one without cells takes none."""
    times = {service.id: _service(service, pace) for service in services if service.cells}
    phases = {
        phase: together(times[s.id] for s in services if s.phase == phase and s.id in times)
        for phase in dict.fromkeys(service.phase for service in services)
    }
    return Estimate(services=times, phases=phases, guessed=not (pace.starts_s and pace.cells))


def _service(service: Service, pace: Pace) -> Span:
    engine = service.engine.kind
    start = Span(pace.start_s(engine), pace.start_s(engine))
    return together((start, *(pace.cell(engine, cell) for cell in service.cells)))
