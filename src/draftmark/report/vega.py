"""Chart specifications in the grammar of Vega-Lite, as plain JSON values."""

from collections.abc import Mapping, Sequence
from typing import Any

from draftmark.report.parts import Chart, Look, Point
from draftmark.report.tables import times

Spec = dict[str, Any]

HEIGHT = 230
CONFIG: Spec = {
    "background": None,
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "axis": {
        "labelColor": "currentColor",
        "titleColor": "currentColor",
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": 500,
        "titlePadding": 8,
        "labelPadding": 6,
        "labelLimit": 120,
        "domainColor": "currentColor",
        "domainOpacity": 0.4,
        "tickColor": "currentColor",
        "tickOpacity": 0.4,
        "gridColor": "currentColor",
        "gridOpacity": 0.1,
    },
}
"""Colours follow the page's text, so that one drawing serves light, dark and print."""


def spec(chart: Chart, looks: Mapping[str, Look]) -> Spec:
    """The Vega-Lite specification of a chart; its points are the data set ``points``."""
    layers = {"bars": bar_layers, "lines": line_layers, "ratios": ratio_layers}[chart.kind](chart, looks)
    reference = [] if chart.reference is None else [reference_layer(chart.reference)]
    return {
        "description": f"{chart.title}, {chart.panel}. {chart.counts}; {chart.interval}.",
        "width": "container",
        "height": HEIGHT,
        "autosize": {"type": "fit", "contains": "padding"},
        "config": CONFIG,
        "data": {"name": "points", "values": [datum(chart, point) for point in chart.points]},
        "layer": [*reference, *layers],
    }


def datum(chart: Chart, point: Point) -> Spec:
    """One point as a data row; ``tip`` is what a person reads of it."""
    return {
        "x": point.x,
        "method": point.method,
        "value": point.value,
        "low": point.low,
        "high": point.high,
        "mark": "flagged" if point.flags else "sure" if point.sure else "unsure",
        "tip": tip(chart, point),
    }


def tip(chart: Chart, point: Point) -> str:
    """The point in words, one fact a line."""
    ratio = chart.kind == "ratios"
    show = times if ratio else quantity
    lines = [f"{point.method}, {point.cell}", f"{show(point.value)}{'' if ratio else f' {chart.y.unit}'}"]
    if point.low is not None and point.high is not None:
        lines.append(f"{'95 % ' if ratio else 'whiskers '}{show(point.low)} to {show(point.high)}")
    lines.append(
        "n not recorded" if point.n is None else f"n = {point.n} {'prompts' if ratio else 'requests'}"
    )
    if ratio and not point.sure:
        lines.append("cannot tell")
    if point.flags:
        lines.append(f"flagged: {', '.join(point.flags)}; not ranked")
    return "\n".join(lines)


def quantity(value: float) -> str:
    """A value to about three digits."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def color(looks: Mapping[str, Look]) -> Spec:
    """One colour for each method, the same in every chart."""
    scale = {"domain": list(looks), "range": [look.color for look in looks.values()]}
    return {"field": "method", "type": "nominal", "scale": scale, "legend": None}


def x_axis(chart: Chart) -> Spec:
    """Groups in their order; a line chart's steps are evenly spaced whatever their values."""
    axis: Spec = {"labelAngle": 0, "labelOverlap": False, "ticks": chart.kind == "lines", "grid": False}
    return {"field": "x", "type": "ordinal", "title": chart.x.label, "sort": list(chart.groups), "axis": axis}


def y_axis(chart: Chart) -> Spec:
    """Values with their unit; rates and times from zero."""
    axis: Spec = {"tickCount": 6, "grid": True, "domain": False, "ticks": False}
    scale = {"domain": list(chart.span)} if chart.span else {}
    return {"field": "value", "type": "quantitative", "title": chart.y.label, "axis": axis, "scale": scale}


def grouped(chart: Chart, looks: Mapping[str, Look]) -> Spec:
    """Encoding of methods side by side within each group."""
    return {
        "x": {**x_axis(chart), "scale": {"paddingInner": 0.22, "paddingOuter": 0.12}},
        "xOffset": {"field": "method", "type": "nominal", "sort": list(looks)},
        "y": y_axis(chart),
        "color": color(looks),
        "tooltip": {"field": "tip", "type": "nominal"},
    }


def whiskers(chart: Chart, encoding: Spec) -> Sequence[Spec]:
    """The interval of each point as a thin line; nothing where no point has one."""
    if all(point.low is None or point.high is None for point in chart.points):
        return []
    return [
        {
            "transform": [{"filter": "isValid(datum.low) && isValid(datum.high)"}],
            "mark": {"type": "rule", "strokeWidth": 1.5},
            "encoding": {**encoding, "y": {**encoding["y"], "field": "low"}, "y2": {"field": "high"}},
        }
    ]


def bar_layers(chart: Chart, looks: Mapping[str, Look]) -> Sequence[Spec]:
    """Bars from zero with whiskers in the text's colour; a flagged bar is pale with a dashed outline."""
    encoding = grouped(chart, looks)
    bars: Spec = {
        "mark": {"type": "bar", "cornerRadiusEnd": 1},
        "encoding": {
            **encoding,
            "fillOpacity": {"condition": {"test": "datum.mark == 'flagged'", "value": 0.2}, "value": 1},
            "stroke": {**color(looks)},
            "strokeDash": {
                "condition": {"test": "datum.mark == 'flagged'", "value": [4, 3]},
                "value": [1, 0],
            },
        },
    }
    return [bars, *whiskers(chart, {**encoding, "color": {"value": "currentColor"}})]


def ratio_layers(chart: Chart, looks: Mapping[str, Look]) -> Sequence[Spec]:
    """Points with intervals on a logarithmic axis: twice as fast and half as fast are as far from 1."""
    encoding = grouped(chart, looks)
    scale = {**encoding["y"]["scale"], "type": "log", "base": 2, "nice": False, "padding": 12}
    encoding["y"] = {**encoding["y"], "scale": scale}
    encoding["y"]["axis"] = {**encoding["y"]["axis"], "values": ratio_ticks(chart), "format": "~g"}
    return [*whiskers(chart, encoding), points(encoding, looks)]


def ratio_ticks(chart: Chart) -> list[float]:
    """Round ratios within what is drawn, few enough to read, 1 among them."""
    low, high = chart.span or (0.5, 2.0)
    near = (0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.3, 1.4, 1.5)
    wide = (0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4, 6, 8, 12, 16)
    choice = near if high / low < 1.9 else wide
    return [tick for tick in choice if low * 0.97 <= tick <= high * 1.03]


def points(encoding: Spec, looks: Mapping[str, Look]) -> Spec:
    """A shape and colour for each method; filled only where the point says something."""
    shape = {"domain": list(looks), "range": [look.shape for look in looks.values()]}
    return {
        "mark": {"type": "point", "size": 64, "strokeWidth": 1.8},
        "encoding": {
            **encoding,
            "shape": {"field": "method", "type": "nominal", "scale": shape, "legend": None},
            "fill": {
                **color(looks),
                "condition": {"test": "datum.mark != 'sure'", "value": "transparent"},
            },
            "opacity": {"condition": {"test": "datum.mark == 'flagged'", "value": 0.5}, "value": 1},
        },
    }


def line_layers(chart: Chart, looks: Mapping[str, Look]) -> Sequence[Spec]:
    """One line for each method from zero, with points and whiskers; dashes where colours repeat."""
    dash = {"domain": list(looks), "range": [list(look.dash) or [1, 0] for look in looks.values()]}
    encoding: Spec = {
        "x": {**x_axis(chart), "scale": {"type": "point", "padding": 0.3}},
        "y": y_axis(chart),
        "color": color(looks),
        "tooltip": {"field": "tip", "type": "nominal"},
    }
    line = {
        "mark": {"type": "line", "strokeWidth": 2},
        "encoding": {
            **{key: encoding[key] for key in ("x", "y", "color")},
            "strokeDash": {"field": "method", "type": "nominal", "scale": dash, "legend": None},
        },
    }
    return [line, *whiskers(chart, encoding), points(encoding, looks)]


def reference_layer(value: float) -> Spec:
    """A line at the baseline."""
    return {
        "data": {"values": [{}]},
        "mark": {"type": "rule", "color": "currentColor", "opacity": 0.55, "strokeDash": [5, 4]},
        "encoding": {"y": {"datum": value}},
    }
