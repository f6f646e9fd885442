"""One way to look things up in a campaign's results, shared by tables, charts and findings."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from draftmark.report.parts import Look
from draftmark.schema import (
    CampaignResult,
    Cell,
    CellResult,
    Comparison,
    Service,
    ServiceResult,
    Speedup,
    WorkloadKind,
)

WORKLOADS: dict[WorkloadKind, str] = {
    "prompts": "Single requests",
    "concurrency": "Concurrent requests",
    "context": "Long contexts",
    "agentic": "Agentic sessions",
    "trace": "Recorded traffic",
}

BASELINE_COLOR = "#8C8C8C"
# Okabe and Ito's palette without black, the ones that read worst on white last.
COLORS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#D6C52B")
SHAPES = ("square", "triangle-up", "diamond", "cross", "triangle-down", "circle", "triangle-right")
DASHES: tuple[tuple[int, ...], ...] = ((), (6, 3), (2, 2))


@dataclass(frozen=True)
class Spot:
    """Where a cell is drawn: the panel it belongs to and its place on the x axis."""

    panel: str
    x: str
    order: float


def spot(cell: Cell) -> Spot:
    """Panel and x of a cell: what varies within its workload goes on the axis, the rest names the panel."""
    tokens = f"{cell.max_tokens} tokens"
    if cell.workload == "prompts":
        return Spot(tokens, " + ".join(cell.prompts), 0)
    if cell.workload == "agentic":
        turns = f"{cell.turns} turns, " if cell.turns else ""
        return Spot(turns + tokens, cell.scenario or cell.id, 0)
    if cell.workload == "context":
        streams = f", {cell.concurrency} at once" if cell.concurrency > 1 else ""
        return Spot(tokens + streams, short_count(cell.length or 0), cell.length or 0)
    name = f"{cell.trace}, " if cell.trace else ""
    if cell.speedup is not None:
        return Spot(f"{name}as recorded, {tokens}", f"{cell.speedup:g}×", cell.speedup)
    if cell.rate is not None:
        return Spot(f"{name}open loop, {tokens}", f"{cell.rate:g}", cell.rate)
    return Spot(f"{name}closed loop, {tokens}", str(cell.concurrency), cell.concurrency)


Panels = dict[str, list[tuple[Service, Cell, Spot]]]
"""Cells that are drawn together, by the panel's name."""


def short_count(count: int) -> str:
    """``30000`` as ``30k``, anything that is not whole thousands as it is."""
    return f"{count // 1000}k" if count >= 1000 and count % 1000 == 0 else str(count)


@dataclass(frozen=True)
class View:
    """A campaign's results and their comparison, indexed."""

    result: CampaignResult
    comparison: Comparison

    @cached_property
    def every(self) -> dict[str, Service]:
        """Every service by its id, in the order in which they run, baselines that were measured again too."""
        return {service.id: service for service in self.result.matrix.services}

    @cached_property
    def services(self) -> dict[str, Service]:
        """Those that are compared: a baseline measured again is none of them."""
        return {id_: service for id_, service in self.every.items() if service.repeats is None}

    @cached_property
    def starts(self) -> dict[str, ServiceResult]:
        """The last start of each service, by its id."""
        return {start.service.id: start for start in self.result.services}

    @cached_property
    def cells(self) -> dict[tuple[str, str], CellResult]:
        """By (service, cell); the last one where a cell was measured twice."""
        return {(cell.service, cell.cell.id): cell for cell in self.result.cells}

    @cached_property
    def speedups(self) -> dict[tuple[str, str], Speedup]:
        """By (service, cell)."""
        return {(speedup.service, speedup.cell): speedup for speedup in self.comparison.speedups}

    @cached_property
    def methods(self) -> tuple[str, ...]:
        """Every method, the baseline first, the others in the plan's order."""
        names = dict.fromkeys(service.method.name for service in self.services.values())
        return tuple(sorted(names, key=lambda name: name not in self.baselines))

    @property
    def baseline(self) -> str | None:
        """What the others are compared with, as text."""
        return self.comparison.baseline

    @cached_property
    def baselines(self) -> frozenset[str]:
        """Names of the methods that others are compared with; usually one."""
        return frozenset(service.method.name for service in self.services.values() if service.baseline)

    @cached_property
    def looks(self) -> dict[str, Look]:
        """How each method is drawn; the baseline is grey."""
        base = {name: Look(BASELINE_COLOR, "circle") for name in self.methods if name in self.baselines}
        others = [name for name in self.methods if name not in self.baselines]
        return base | {name: look(index) for index, name in enumerate(others)}

    @cached_property
    def places(self) -> dict[str, str]:
        """Tensor parallelism and host of every service, as far as they differ between services."""
        several_tp = len({service.tp for service in self.services.values()}) > 1
        several_hosts = len({service.host for service in self.services.values()}) > 1
        return {
            id_: ", ".join(
                ([f"TP {service.tp}"] if several_tp else []) + ([service.host] if several_hosts else [])
            )
            for id_, service in self.every.items()
        }

    @property
    def workloads(self) -> tuple[WorkloadKind, ...]:
        """Workloads that the plan has."""
        planned = {cell.workload for service in self.services.values() for cell in service.cells}
        return tuple(kind for kind in WORKLOADS if kind in planned)

    @cached_property
    def kinds(self) -> dict[str, WorkloadKind]:
        """Of each planned cell, by its id, the workload."""
        return {cell.id: cell.workload for service in self.services.values() for cell in service.cells}

    def planned(self, workload: WorkloadKind) -> Iterator[tuple[Service, Cell]]:
        """Every cell of a workload, cell by cell and within it service by service."""
        pairs = [
            (service, cell)
            for service in self.services.values()
            for cell in service.cells
            if cell.workload == workload
        ]
        order = {cell.id: index for index, cell in reversed(list(enumerate(cell for _, cell in pairs)))}
        methods = {name: index for index, name in enumerate(self.methods)}
        yield from sorted(pairs, key=lambda pair: (order[pair[1].id], methods[pair[0].method.name]))

    @property
    def repeated(self) -> Iterator[tuple[Service, Cell]]:
        """Every planned cell that a baseline is measured on again."""
        yield from ((s, cell) for s in self.every.values() if s.repeats for cell in s.cells)

    @cached_property
    def located(self) -> dict[str, list[tuple[Service, Cell]]]:
        """Every planned cell by the place of its service, workload by workload."""
        found: dict[str, list[tuple[Service, Cell]]] = {}
        for workload in self.workloads:
            for service, cell in self.planned(workload):
                found.setdefault(self.places[service.id], []).append((service, cell))
        return found

    def flags(self, service: str, cell: str) -> tuple[str, ...]:
        """Kinds of the flags of a cell and of its comparison, each once."""
        speedup = self.speedups.get((service, cell))
        return tuple(dict.fromkeys([*self.own_flags(service, cell), *(speedup.flags if speedup else ())]))

    def own_flags(self, service: str, cell: str) -> tuple[str, ...]:
        """Kinds of the flags of a cell itself; a flag of the baseline doubts the speedup and not the cell."""
        result = self.cells.get((service, cell))
        return tuple(dict.fromkeys(flag.kind for flag in result.flags)) if result else ()

    def name(self, service: Service) -> str:
        """Method and place of a service, as a person would say it."""
        place = self.places[service.id]
        return f"{method_of(service)} ({place})" if place else method_of(service)


def method_of(service: Service) -> str:
    """Its method, and whether it is the baseline again."""
    return f"{service.method.name} again" if service.repeats else service.method.name


def command_line(start: ServiceResult) -> str:
    """A server's environment and arguments as one would type them."""
    env = (f"{name}={shlex.quote(value)}" for name, value in start.env.items())
    return " ".join([*env, shlex.join(start.argv)])


def look(index: int) -> Look:
    """Look of the method that is ``index``-th after the baseline; dashes tell apart what shares a colour."""
    turn = index // len(COLORS)
    return Look(COLORS[index % len(COLORS)], SHAPES[index % len(SHAPES)], DASHES[turn % len(DASHES)])


def measured(cell: CellResult | None) -> CellResult | None:
    """The cell if it has numbers to show; what failed or was cut short has none."""
    return cell if cell is not None and cell.status == "ok" else None
