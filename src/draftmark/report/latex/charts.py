"""Charts as pgfplots and TikZ source, with the values in it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby

from draftmark.report.latex.text import escaped
from draftmark.report.parts import Chart, Figure, Look, Point, State
from draftmark.report.scales import DODGE, dodge, length_ticks, ratio_ticks, shade
from draftmark.report.tables import FLAGGED

TEXT_WIDTH, PAIR_WIDTH = 170.0, 82.0
"""Of the page, and of each of two figures beside each other, in mm."""
AXIS_ROOM = 12.0
"""Left of a panel's axis for its labels, in mm."""
HEIGHT = {1: 46.0, 2: 40.0, 3: 34.0}
"""Of a panel's axis, by panels beside each other, in mm."""
FIRST, LAST = -0.6, -0.4
"""Ends of an axis of groups, from the first and from one past the last."""
MAP_COLUMNS, MAP_ROWS = 30, 40
"""Of one part of a heat map."""
ROW = 5.0
"""Height of a heat map's row, in mm."""
MARKS = {
    "circle": ("*", 0), "square": ("square*", 0), "diamond": ("diamond*", 0), "triangle-up": ("triangle*", 0),
    "triangle-down": ("triangle*", 180), "cross": ("plus*", 0), "triangle-right": ("triangle*", 270),
}  # fmt: skip
"""pgfplots' mark of each point shape, and how far it is turned."""
STATES: dict[State, str] = {
    "sure": "",
    "unsure": ", fill=white",
    "flagged": ", fill=white, draw opacity=0.5",
}
DASH_UNIT = 0.45
"""Of a dash pattern, in mm."""
Looks = dict[str, Look]


def colors(looks: Looks) -> str:
    """A named colour, and a mark for legends, for each method; the names are numbers."""
    return "".join(
        f"\\definecolor{{{ink(looks, name)}}}{{HTML}}{{{look.color.removeprefix('#')}}}\n"
        for name, look in looks.items()
    )


def ink(looks: Looks, name: str) -> str:
    """Name of a method's colour."""
    return f"method{list(looks).index(name)}"


def legend(looks: Looks, methods: Sequence[str]) -> str:
    """Marks and names of methods on one line that may break between them."""
    return " \\quad ".join(
        f"\\mbox{{\\swatch{{{ink(looks, name)}}}{{{mark(looks[name])}}}~{escaped(name)}}}"
        for name in looks
        if name in methods
    )


def mark(look: Look, state: str = "") -> str:
    """pgfplots' options for a point shape."""
    name, turned = MARKS[look.shape]
    return f"mark={name}, mark options={{solid, rotate={turned}{state}}}"


def figures(found: Sequence[Figure], looks: Looks) -> str:
    """Figures one below the other; those of a single panel stand in pairs."""
    text = ""
    waiting: Figure | None = None
    for one in found:
        small = len(one.charts) == 1 and one.charts[0].kind not in ("heat", "scatter")
        if small and waiting:
            text += pair(waiting, one, looks)
            waiting = None
        elif small:
            waiting = one
        else:
            text += figure(one, looks)
    return text + (figure(waiting, looks) if waiting else "")


def pair(left: Figure, right: Figure, looks: Looks) -> str:
    """Two figures side by side, their axes in line."""
    halves = "\\hfill\n".join(
        f"\\begin{{minipage}}[b]{{{PAIR_WIDTH:g}mm}}\n{figure(one, looks, PAIR_WIDTH)}\\end{{minipage}}"
        for one in (left, right)
    )
    return f"\\par\\addvspace{{10pt}}\\panels{{%\n{halves}}}\n"


def figure(found: Figure, looks: Looks, width: float = TEXT_WIDTH) -> str:
    """Caption, legend, and the panels in rows."""
    first = found.charts[0]
    shown = [name for chart in found.charts for name in chart.methods]
    counts = "; ".join(dict.fromkeys(chart.counts for chart in found.charts)).replace(" = ", "\u00a0=\u00a0")
    how = f"{escaped(first.interval[:1].upper() + first.interval[1:], 600)}. {escaped(counts, 200)}."
    caption = f"\\figurecaption{{{escaped(found.caption)}}}{{{how}}}\n"
    if first.kind == "heat":
        return caption + "".join(part for chart in found.charts for part in heat(chart, looks))
    beside = min(2 if first.kind == "scatter" else 3, len(found.charts))
    height = HEIGHT[2 if width < TEXT_WIDTH else beside]
    panels = [panel(chart, looks, width / beside, height) for chart in found.charts]
    rows = ["%\n".join(panels[i : i + beside]) for i in range(0, len(panels), beside)]
    drawn = "".join(f"\\panels{{%\n{row}}}\n" for row in rows)
    return f"{caption}\\legend{{{legend(looks, shown)}}}\n{drawn}"


def panel(chart: Chart, looks: Looks, width: float, height: float) -> str:
    """One chart in its share of the line, in mm."""
    options = ",\n  ".join(axis(chart, width - AXIS_ROOM, height))
    body = "\n".join([*furniture(chart), *series(chart, looks, width - AXIS_ROOM)])
    title = f"\\paneltitle{{{escaped(chart.panel)}}}{{{escaped(chart.y.label)}}}"
    return (
        f"\\begin{{minipage}}[t]{{{width:.2f}mm}}\\raggedright {title}\\\\\n"
        f"\\begin{{tikzpicture}}[baseline]\n\\begin{{axis}}[\n  {options}]\n{body}\n"
        f"\\end{{axis}}\n\\end{{tikzpicture}}\\end{{minipage}}"
    )


def axis(chart: Chart, width: float, height: float) -> Iterator[str]:
    """Options of a chart's axis."""
    yield f"panel, width={width:.2f}mm, height={height:.2f}mm"
    yield f"xlabel={{{escaped(chart.x.label)}}}"
    if chart.kind == "scatter":
        low, high = chart.across or (1.0, 2.0)
        yield f"xmode=log, xmin={low:.6g}, xmax={high:.6g}, {ticks('x', length_ticks(chart))}"
    else:
        yield f"xmin={FIRST}, xmax={len(chart.groups) + LAST:g}, xtick={{{positions(chart)}}}"
        yield f"xticklabels={{{','.join(f'{{{tick_label(name, chart, width)}}}' for name in chart.groups)}}}"
    if chart.is_ratio:
        low, high = chart.span or (0.5, 2.0)
        yield f"ymode=log, ymin={low / 1.06:.6g}, ymax={high * 1.06:.6g}, {ticks('y', ratio_ticks(chart))}"
    else:
        yield f"ymin=0, ymax={1.06 * top(chart):.6g}"


def top(chart: Chart) -> float:
    """The highest that is drawn, or that its figure's panels share."""
    ends = [end for point in chart.points for end in (point.value, point.high) if end is not None]
    return max([*ends, *(chart.span or ())], default=0.0) or 1.0


def ticks(which: str, values: Sequence[float]) -> str:
    """Ticks at round values, written plainly."""
    shown = ",".join(f"{value:g}" for value in values)
    return f"{which}tick={{{shown}}}, {which}ticklabels={{{shown}}}"


def positions(chart: Chart) -> str:
    """Where the groups stand."""
    return ",".join(map(str, range(len(chart.groups))))


def tick_label(name: str, chart: Chart, width: float) -> str:
    """A group's name, cut where its place is too narrow for it."""
    room = max(4, int(width / len(chart.groups) / 1.45))
    return escaped(name if len(name) <= room + 1 else f"{name[: room - 1]}…")


def furniture(chart: Chart) -> Iterator[str]:
    """Guides, and the line at the baseline."""
    for guide in chart.guides:
        (x0, y0), (x1, y1) = guide.start, guide.end
        yield (
            f"\\draw[guide] (axis cs:{x0:.5g},{y0:.5g}) -- (axis cs:{x1:.5g},{y1:.5g}) "
            f"node[guide label] {{{escaped(guide.label)}}};"
        )
    if chart.reference is not None:
        left, right = chart.across or (FIRST, len(chart.groups) + LAST)
        yield (
            f"\\draw[reference] (axis cs:{left:.6g},{chart.reference:g}) -- "
            f"(axis cs:{right:.6g},{chart.reference:g});"
        )


def series(chart: Chart, looks: Looks, width: float) -> Iterator[str]:
    """Every method's points with their intervals; a bar's stands before it, a mark's behind."""
    aside = dodge(chart, looks) if chart.kind in ("bars", "ratios", "crossings") else {}
    for name in looks:
        own = [point for point in chart.points if point.method == name and drawable(chart, point)]
        offset = aside.get(name, 0.0)
        if chart.kind == "bars":
            yield from by_state(chart, own, offset, bar_style(looks, name, bar_width(chart, width)))
            continue
        yield from whiskers(chart, own, ink(looks, name), aside)
        if chart.kind in ("lines", "crossings") and own:
            yield line(chart, own, looks, name, offset)
            own = [point for point in own if point.state != "sure"]
        yield from by_state(chart, own, offset, point_style(looks, name))
    if chart.kind == "bars":
        everyone = [point for name in aside for point in chart.points if point.method == name]
        yield from whiskers(chart, everyone, "whisker", aside)


def by_state(
    chart: Chart, own: Sequence[Point], aside: float, style: Callable[[State], str]
) -> Iterator[str]:
    """One plot for the points of each state."""
    ordered = sorted(own, key=lambda point: point.state)
    for state, some in groupby(ordered, key=lambda point: point.state):
        yield f"\\addplot[{style(state)}] coordinates {{{places(chart, list(some), aside)}}};"


def drawable(chart: Chart, point: Point) -> bool:
    """It has a place on its axes: a logarithmic one has none for zero."""
    return point.value > 0 if chart.is_ratio else True


def bar_width(chart: Chart, width: float) -> float:
    """Of one bar in mm, in an axis of the given width."""
    return 0.92 * DODGE / max(1, len(chart.methods)) * width / (len(chart.groups) + LAST - FIRST)


def bar_style(looks: Looks, name: str, width: float) -> Callable[[State], str]:
    """A bar in the method's colour."""
    color = ink(looks, name)
    pale = ", fill opacity=0.2, densely dashed"
    return lambda state: (
        f"ybar, bar width={width:.3f}mm, draw={color}, fill={color}{pale if state == 'flagged' else ''}"
    )


def point_style(looks: Looks, name: str) -> Callable[[State], str]:
    """A mark in the method's colour."""
    return lambda state: f"only marks, {ink(looks, name)}, {mark(looks[name], STATES[state])}"


def whiskers(chart: Chart, own: Sequence[Point], color: str, aside: Mapping[str, float]) -> Iterator[str]:
    """Intervals as one plot of separate strokes; pgfplots' own error bars take several times as long."""
    strokes = " ".join(
        f"({x},{point.low:.5g}) ({x},{point.high:.5g}) ({x},nan)"
        for point in own
        if point.low is not None and point.high is not None and (point.low > 0 or not chart.is_ratio)
        for x in [place(chart, point, aside.get(point.method, 0.0))]
    )
    if strokes:
        yield f"\\addplot[whiskers, {color}] coordinates {{{strokes}}};"


def line(chart: Chart, own: Sequence[Point], looks: Looks, name: str, aside: float) -> str:
    """A method's points, solid, and the line that joins them."""
    look = looks[name]
    strokes = " ".join(
        f"{'off' if index % 2 else 'on'} {length * DASH_UNIT:.2f}mm" for index, length in enumerate(look.dash)
    )
    dash = f", dash pattern={strokes}" if strokes else ""
    ordered = sorted(own, key=lambda point: chart.groups.index(point.x))
    return (
        f"\\addplot[{ink(looks, name)}, line width=0.8pt{dash}, {mark(look)}] "
        f"coordinates {{{places(chart, ordered, aside)}}};"
    )


def places(chart: Chart, own: Sequence[Point], aside: float) -> str:
    """Coordinates of some points."""
    return " ".join(f"({place(chart, point, aside)},{point.value:.5g})" for point in own)


def place(chart: Chart, point: Point, aside: float) -> str:
    """Where a point stands on the x axis."""
    return f"{point.at:.5g}" if point.at is not None else f"{chart.groups.index(point.x) + aside:.4f}"


def heat(chart: Chart, looks: Looks) -> Iterator[str]:
    """A heat map, in parts where it is wider or higher than a page."""
    methods = [name for name in looks if name in chart.methods]
    label = 2.0 + 1.55 * max(map(len, methods))
    for first in range(0, len(chart.groups), MAP_COLUMNS):
        cells = chart.groups[first : first + MAP_COLUMNS]
        for top in range(0, len(methods), MAP_ROWS):
            rows = methods[top : top + MAP_ROWS]
            width = min(13.0, (TEXT_WIDTH - label - 6) / len(cells))
            boxes = "\n".join(heat_parts(chart, cells, rows, width))
            yield (
                f"\\panels{{\\begin{{minipage}}{{\\linewidth}}"
                f"\\paneltitle{{{escaped(chart.panel)}}}{{{escaped(chart.y.label)}}}\\\\\n"
                f"\\begin{{tikzpicture}}[x={width:.3f}mm, y={ROW:g}mm]\n{boxes}\n\\end{{tikzpicture}}"
                f"\\end{{minipage}}}}\n"
            )


def heat_parts(chart: Chart, cells: Sequence[str], rows: Sequence[str], width: float) -> Iterator[str]:
    """Names along two sides, and a box with its number for each speedup."""
    for column, name in enumerate(cells):
        yield f"\\node[column name] at ({column + 0.5:g},0.1) {{{escaped(name)}}};"
    for row, name in enumerate(rows):
        yield f"\\node[row name] at (-0.1,{-row - 0.5:g}) {{{escaped(name)}}};"
    for point in chart.points:
        if point.x in cells and point.method in rows:
            yield box(point, cells.index(point.x), rows.index(point.method), width)


def box(point: Point, column: int, row: int, width: float) -> str:
    """One speedup: shade, number, and its doubts."""
    _, strength = shade(point.value)
    name = "faster" if point.value >= 1 else "slower"
    fill = "white" if point.flags else f"{name}shade!{100 * strength:.0f}"
    size = "\\heatsmall" if width < 7 else "\\heatlarge"
    number = f"{point.value:.2f}"
    text = (
        f"\\soft{{{number}{escaped(FLAGGED)}}}"
        if point.flags
        else number
        if point.sure
        else f"\\soft{{({number})}}"
    )
    return (
        f"\\filldraw[fill={fill}, draw=white, line width=0.6pt] ({column},{-row}) rectangle +(1,-1) "
        f"node[midway] {{{size} {text}}};"
    )
