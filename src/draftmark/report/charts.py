"""Results as chart specifications, free of any drawing library."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from draftmark.metrics import METRICS
from draftmark.report.acceptance import by_position, by_turn
from draftmark.report.parts import Axis, Chart, ChartKind, Figure, Point
from draftmark.report.view import WORKLOADS, Panels, View, measured, spot
from draftmark.schema import Cell, CellResult, Service, WorkloadKind

AXES: dict[WorkloadKind, Axis] = {
    "prompts": Axis("Prompt kind"),
    "concurrency": Axis("Requests at once"),
    "context": Axis("Prompt length", "tokens"),
    "agentic": Axis("Scenario"),
    "trace": Axis("Requests at once"),
}
OPEN_LOOP = Axis("Arrival rate", "requests/s")
RECORDED = Axis("Speed of the recording")
ORDERED: frozenset[WorkloadKind] = frozenset({"concurrency", "context", "trace"})

Spread = Literal["time per token", "p90", "none"]
SPREADS: dict[Spread, str] = {
    "time per token": "whiskers: one standard deviation of the time per token over the n requests",
    "p90": "whiskers: up to the 90th percentile of the n requests",
    "none": "one value for the whole cell of n requests, so no interval",
}
SPEEDUP_INTERVAL = (
    "whiskers: 95 % interval over n prompts; hollow where it cannot tell, hollow and pale where flagged"
)


@dataclass(frozen=True)
class Quantity:
    """A metric that a workload's figures show, and what its whiskers are."""

    key: str
    caption: str
    spread: Spread


DECODE = Quantity("decode_tok_s", "Decode rate of one request", "time per token")
TAU = Quantity("tau", "Acceptance length: tokens committed per decode step", "none")
TTFT = Quantity("median_ttft_ms", "Time to first token, median", "p90")
STEADY = Quantity("steady_tok_s", "Throughput of all requests together, at full concurrency", "none")

QUANTITIES: dict[WorkloadKind, tuple[Quantity, ...]] = {
    "prompts": (DECODE, TAU),
    "concurrency": (STEADY, DECODE, TTFT, TAU),
    "context": (DECODE, TTFT, TAU),
    "agentic": (DECODE, TAU),
    "trace": (DECODE, TTFT, TAU),
}


def axis_of(workload: WorkloadKind, cell: Cell) -> Axis:
    """What varies along the x axis of a cell's panel."""
    if cell.speedup is not None:
        return RECORDED
    return AXES[workload] if cell.rate is None else OPEN_LOOP


def figures(view: View, workload: WorkloadKind) -> tuple[Figure, ...]:
    """Speedups first, then what was measured; a figure without a single value is left out."""
    panels = arrange(view, workload)
    made = (
        speedup_figure(view, workload, panels),
        *(quantity_figure(view, workload, panels, quantity) for quantity in QUANTITIES[workload]),
        by_turn(view, workload),
        by_position(view, workload),
    )
    return tuple(figure for figure in made if figure.charts)


def arrange(view: View, workload: WorkloadKind) -> Panels:
    """The workload's cells by panel: place of the service, then what the panel holds fixed."""
    panels: Panels = {}
    for service, cell in view.planned(workload):
        place = spot(cell)
        name = ", ".join(part for part in (view.places[service.id], place.panel) if part)
        panels.setdefault(name, []).append((service, cell, place))
    return panels


def speedup_figure(view: View, workload: WorkloadKind, panels: Panels) -> Figure:
    """Speedups over the baseline with a line at 1."""
    id_ = f"fig-speedup-{workload}"
    axis = Axis("Speedup", "×")
    kind: ChartKind = "crossings" if workload in ORDERED else "ratios"
    charts = assemble(view, workload, panels, id_, axis, speedup_point, kind, SPEEDUP_INTERVAL)
    charts = share_span(charts, 1.0)
    caption = f"{WORKLOADS[workload]}: speedup over {view.baseline or 'the baseline'}"
    return Figure(id_, caption, tuple(charts), f"numbers-{workload}")


def quantity_figure(view: View, workload: WorkloadKind, panels: Panels, quantity: Quantity) -> Figure:
    """One metric over the workload's cells."""
    metric = METRICS[quantity.key]
    id_ = f"fig-{quantity.key.replace('_', '-')}-{workload}"
    kind: ChartKind = "lines" if workload in ORDERED else "bars"

    def point(view: View, service: Service, cell: Cell, x: str) -> Point | None:
        return metric_point(view, service, cell, x, quantity)

    title = Axis(metric.title[0].upper() + metric.title[1:], metric.unit)
    charts = assemble(view, workload, panels, id_, title, point, kind, SPREADS[quantity.spread])
    if quantity is TAU:
        charts = share_span(charts, 0.0)
    caption = f"{WORKLOADS[workload]}: {quantity.caption[0].lower()}{quantity.caption[1:]}"
    return Figure(id_, caption, tuple(charts), f"numbers-{workload}")


def assemble(
    view: View,
    workload: WorkloadKind,
    panels: Panels,
    id_: str,
    y: Axis,
    point: Callable[[View, Service, Cell, str], Point | None],
    kind: ChartKind,
    whiskers: str,
) -> Iterator[Chart]:
    """One chart for each panel that has a value."""
    for number, (panel, members) in enumerate(panels.items(), 1):
        points = tuple(
            made for service, cell, place in members if (made := point(view, service, cell, place.x))
        )
        if not points:
            continue
        placed = {place.x: place.order for _, _, place in members}
        yield Chart(
            id=f"{id_}-{number}",
            kind=kind,
            title=y.title,
            panel=panel,
            x=axis_of(workload, members[0][1]),
            y=y,
            groups=tuple(sorted(placed, key=lambda x: placed[x])),
            points=points,
            interval=whiskers,
            reference=1.0 if (ratio := kind in ("ratios", "crossings")) else None,
            counted="prompts" if ratio else "requests",
        )


def share_span(charts: Iterable[Chart], origin: float) -> Iterator[Chart]:
    """The charts with one y axis, which holds ``origin`` and every whisker."""
    together = tuple(charts)
    drawn = [origin] + [
        end
        for chart in together
        for point in chart.points
        for end in (point.value, point.low, point.high)
        if end is not None
    ]
    return (replace(chart, span=(min(drawn), max(drawn))) for chart in together)


def speedup_point(view: View, service: Service, cell: Cell, x: str) -> Point | None:
    """A cell's speedup, if it has one."""
    speedup = view.speedups.get((service.id, cell.id))
    if speedup is None:
        return None
    ratio = speedup.ratio
    return Point(
        x, service.method.name, ratio.value, ratio.low, ratio.high, ratio.n,
        sure=speedup.verdict != "cannot tell",
        flags=view.flags(service.id, cell.id),
        cell=cell.id,
    )  # fmt: skip


def metric_point(view: View, service: Service, cell: Cell, x: str, quantity: Quantity) -> Point | None:
    """A cell's metric, if it was measured."""
    result = measured(view.cells.get((service.id, cell.id)))
    if result is None or quantity.key not in result.metrics:
        return None
    low, high = bounds(result.metrics, quantity)
    return Point(
        x, service.method.name, result.metrics[quantity.key], low, high, requests(result),
        flags=view.own_flags(service.id, cell.id),
        cell=cell.id,
    )  # fmt: skip


def requests(cell: CellResult) -> int | None:
    """Requests that stand behind a cell's metrics."""
    return int(cell.metrics["completed"]) if "completed" in cell.metrics else None


def bounds(metrics: Mapping[str, float], quantity: Quantity) -> tuple[float | None, float | None]:
    """Ends of the whiskers, in the metric's unit; None where the spread was not measured."""
    value = metrics[quantity.key]
    if quantity.spread == "p90":
        return value, metrics.get(quantity.key.replace("median", "p90"))
    mean, spread = metrics.get("mean_tpot_ms"), metrics.get("std_tpot_ms")
    if quantity.spread == "none" or not mean or spread is None or spread >= mean:
        return None, None
    return value * mean / (mean + spread), value * mean / (mean - spread)
