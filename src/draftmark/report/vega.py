"""Chart specifications in the grammar of Vega-Lite, as plain JSON values."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from draftmark.report.parts import Chart, Guide, Look, Point
from draftmark.report.scales import length_ticks, ratio_ticks, shade
from draftmark.report.tables import FLAGGED
from draftmark.wording import times

Spec = dict[str, Any]

HEIGHT = 230
STEP = 24
"""Height of one row of a heat map."""
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
    layers = LAYERS[chart.kind](chart, looks)
    reference = [] if chart.reference is None else [reference_layer(chart.reference)]
    return {
        "description": f"{chart.title}, {chart.panel}. {chart.counts}; {chart.interval}.",
        "width": "container",
        "height": STEP * len(chart.methods) if chart.kind == "heat" else HEIGHT,
        "autosize": {"type": "fit-x" if chart.kind == "heat" else "fit", "contains": "padding"},
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
        "mark": point.state,
        "tip": tip(chart, point),
        **({"at": point.at} if chart.kind == "scatter" else {}),
        **(heat_datum(point) if chart.kind == "heat" else {}),
    }


def heat_datum(point: Point) -> Spec:
    """How a heat map shows a speedup: colour, strength, and the number with its doubts."""
    hue, strength = shade(point.value)
    return {"hue": hue, "strength": 0 if point.flags else strength, "label": heat_label(point)}


def heat_label(point: Point) -> str:
    """The ratio, in brackets where it cannot tell, marked where flagged."""
    text = f"{point.value:.2f}"
    return f"{text}{FLAGGED}" if point.flags else text if point.sure else f"({text})"


def tip(chart: Chart, point: Point) -> str:
    """The point in words, one fact a line."""
    ratio = chart.is_ratio
    show = times if ratio else quantity
    place = point.cell or f"{chart.x.title.lower()} {point.x}"
    lines = [f"{point.method}, {place}", f"{show(point.value)}{'' if ratio else f' {chart.y.unit}'}"]
    if point.at is not None:
        lines.append(f"{chart.x.title.lower()} {point.at:.2f}")
    if point.low is not None and point.high is not None:
        lines.append(f"{'95 % ' if ratio else 'whiskers '}{show(point.low)} to {show(point.high)}")
    lines.append("n not recorded" if point.n is None else f"n = {point.n} {chart.counted}")
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


def ratio_axis(chart: Chart, encoding: Spec) -> Spec:
    """A logarithmic axis: twice as fast and half as fast are as far from 1."""
    scale = {**encoding["scale"], "type": "log", "base": 2, "nice": False, "padding": 12}
    return {
        **encoding,
        "scale": scale,
        "axis": {**encoding["axis"], "values": ratio_ticks(chart), "format": "~g"},
    }


def ratio_layers(chart: Chart, looks: Mapping[str, Look]) -> Sequence[Spec]:
    """Points with intervals, side by side within each group."""
    encoding = grouped(chart, looks)
    encoding["y"] = ratio_axis(chart, encoding["y"])
    return [*whiskers(chart, encoding), points(encoding, looks)]


def crossing_layers(chart: Chart, looks: Mapping[str, Look]) -> Sequence[Spec]:
    """The same, joined by a line for each method: where it meets 1 the method stops paying."""
    layers = ratio_layers(chart, looks)
    return [line_layer(layers[-1]["encoding"], looks), *layers]


def scatter_layers(chart: Chart, looks: Mapping[str, Look]) -> Sequence[Spec]:
    """Both axes logarithmic, so that equal step costs lie on parallel lines."""
    x = {
        "field": "at",
        "type": "quantitative",
        "title": chart.x.label,
        "scale": {"type": "log", "base": 2, "nice": False, "domain": list(chart.across or (1, 2))},
        "axis": {"values": length_ticks(chart), "format": "~g", "grid": False},
    }
    encoding: Spec = {
        "x": x,
        "y": ratio_axis(chart, y_axis(chart)),
        "color": color(looks),
        "tooltip": {"field": "tip", "type": "nominal"},
    }
    pale = [{**rule, "mark": {**rule["mark"], "opacity": 0.35}} for rule in whiskers(chart, encoding)]
    return [*(layer for guide in chart.guides for layer in guide_layers(guide, encoding)), *pale,
            points(encoding, looks)]  # fmt: skip


def guide_layers(guide: Guide, encoding: Spec) -> Sequence[Spec]:
    """A thin line with its name at the far end."""
    ends = [{"at": x, "value": y} for x, y in (guide.start, guide.end)]
    place = {"x": encoding["x"], "y": encoding["y"]}
    ink: Spec = {"color": "currentColor", "opacity": 0.5}
    text = {"type": "text", "text": guide.label, "align": "right", "dx": -2, "dy": -6, "fontSize": 10, **ink}
    return [
        {
            "data": {"values": ends},
            "mark": {"type": "line", "strokeWidth": 0.8, **ink, "opacity": 0.35},
            "encoding": place,
        },
        {"data": {"values": ends[1:]}, "mark": text, "encoding": place},
    ]


def heat_layers(chart: Chart, looks: Mapping[str, Look]) -> Sequence[Spec]:
    """A shaded box with its number for each method and cell."""
    order = [name for name in looks if name in chart.methods]
    bare = {"domain": False, "ticks": False, "grid": False, "title": None}
    place: Spec = {
        "x": {**x_axis(chart), "axis": {**bare, "labelAngle": -50, "labelLimit": 140}},
        "y": {"field": "method", "type": "nominal", "sort": order, "axis": {**bare, "labelLimit": 150}},
        "tooltip": {"field": "tip", "type": "nominal"},
    }
    box = {
        **place,
        "fill": {"field": "hue", "type": "nominal", "scale": None},
        "fillOpacity": {"field": "strength", "type": "quantitative", "scale": None, "legend": None},
    }
    faint = {"condition": {"test": "datum.mark == 'sure'", "value": 1}, "value": 0.65}
    text = {**place, "text": {"field": "label", "type": "nominal"}, "opacity": faint}
    return [
        {"mark": {"type": "rect", "stroke": "currentColor", "strokeOpacity": 0.12}, "encoding": box},
        {"mark": {"type": "text", "color": "currentColor", "fontSize": 11}, "encoding": text},
    ]


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
    encoding: Spec = {
        "x": {**x_axis(chart), "scale": {"type": "point", "padding": 0.3}},
        "y": y_axis(chart),
        "color": color(looks),
        "tooltip": {"field": "tip", "type": "nominal"},
    }
    return [line_layer(encoding, looks), *whiskers(chart, encoding), points(encoding, looks)]


def line_layer(encoding: Spec, looks: Mapping[str, Look]) -> Spec:
    """A line for each method, with dashes where colours repeat."""
    dash = {"domain": list(looks), "range": [list(look.dash) or [1, 0] for look in looks.values()]}
    kept = {key: encoding[key] for key in ("x", "xOffset", "y", "color") if key in encoding}
    return {
        "mark": {"type": "line", "strokeWidth": 2},
        "encoding": {
            **kept,
            "strokeDash": {"field": "method", "type": "nominal", "scale": dash, "legend": None},
        },
    }


def reference_layer(value: float) -> Spec:
    """A line at the baseline."""
    return {
        "data": {"values": [{}]},
        "mark": {"type": "rule", "color": "currentColor", "opacity": 0.55, "strokeDash": [5, 4]},
        "encoding": {"y": {"datum": value}},
    }


LAYERS: dict[str, Callable[[Chart, Mapping[str, Look]], Sequence[Spec]]] = {
    "bars": bar_layers,
    "lines": line_layers,
    "ratios": ratio_layers,
    "crossings": crossing_layers,
    "scatter": scatter_layers,
    "heat": heat_layers,
}
