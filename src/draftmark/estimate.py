"""How long a campaign takes: from what has been measured where there is something, from priors otherwise."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import mean

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


def work(cell: Cell) -> float:
    """A cell's size in generated tokens one after another; it weighs cells against each other."""
    passes = 1 + cell.control + cell.asks_margins
    per_request = cell.max_tokens + (cell.length or 0) / PREFILL_PER_DECODE
    return passes * cell.requests * per_request / cell.concurrency


@dataclass(frozen=True)
class Pace:
    """What this or an earlier run took: seconds of each start, and (work, seconds) of each cell."""

    starts_s: tuple[float, ...] = ()
    cells: tuple[tuple[float, float], ...] = ()

    def started(self, seconds: float) -> "Pace":
        """With one more server start."""
        return replace(self, starts_s=(*self.starts_s, seconds))

    def measured(self, cell: Cell, seconds: float) -> "Pace":
        """With one more measured cell."""
        return replace(self, cells=(*self.cells, (work(cell), seconds)))

    def start_s(self, engine: EngineKind) -> float:
        """Seconds until a server is ready."""
        return mean(self.starts_s) if self.starts_s else START_S[engine]

    def cell_s(self, engine: EngineKind, cell: Cell) -> float:
        """Seconds for a cell, all around it included."""
        done = sum(size for size, _ in self.cells)
        per_token = sum(seconds for _, seconds in self.cells) / done if done else TOKEN_S[engine]
        return work(cell) * per_token + CELL_S


@dataclass(frozen=True)
class Estimate:
    """Seconds by phase and service, and what they rest on."""

    services: Mapping[str, float] = field(default_factory=dict)
    phases: Mapping[str, float] = field(default_factory=dict)
    guessed: bool = True
    """Nothing of this plan was measured yet: starts or rates are priors."""

    @property
    def total_s(self) -> float:
        """Of all services."""
        return sum(self.services.values())


def learned(services: Iterable[ServiceResult], cells: Iterable[CellResult]) -> Pace:
    """The pace of earlier results."""
    pace = Pace()
    for service in services:
        if service.ready_s is not None:
            pace = pace.started(service.ready_s)
    for result in cells:
        if result.status == "ok":
            pace = pace.measured(result.cell, result.wall_s or result.duration_s)
    return pace


def estimate(services: Sequence[Service], pace: Pace) -> Estimate:
    """Time for these services with the cells that they have; one without cells takes none."""
    times = {
        service.id: pace.start_s(service.engine.kind)
        + sum(pace.cell_s(service.engine.kind, cell) for cell in service.cells)
        for service in services
        if service.cells
    }
    phases: dict[str, float] = {}
    for service in services:
        phases[service.phase] = phases.get(service.phase, 0.0) + times.get(service.id, 0.0)
    return Estimate(services=times, phases=phases, guessed=not (pace.starts_s and pace.cells))
