"""What a report is made of before it has a form; each form is written from a Document."""

from dataclasses import dataclass
from typing import Literal

Tone = Literal["", "faster", "slower", "unsure", "flagged", "failed", "muted"]
State = Literal["sure", "unsure", "flagged"]
ChartKind = Literal["bars", "lines", "ratios", "crossings", "scatter", "heat"]


@dataclass(frozen=True)
class Entry:
    """One table entry: what it says, a smaller second line, and what it sorts by."""

    text: str
    detail: str = ""
    sort: float | None = None
    tone: Tone = ""


@dataclass(frozen=True)
class Column:
    """One table column; ``unit`` is empty where the values have none."""

    title: str
    unit: str = ""
    numeric: bool = False


@dataclass(frozen=True)
class Row:
    """One line of a table, with the method that it speaks of, so that it can be filtered."""

    entries: tuple[Entry, ...]
    method: str = ""
    key: str = ""
    """``service/cell`` where the row is one cell."""


@dataclass(frozen=True)
class Table:
    """Rows under columns with units; ``notes`` explain marks and intervals."""

    id: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Axis:
    """What an axis shows, and in which unit; ``unit`` is empty for names."""

    title: str
    unit: str = ""

    @property
    def label(self) -> str:
        """Title with the unit in brackets."""
        return f"{self.title} ({self.unit})" if self.unit else self.title


@dataclass(frozen=True)
class Point:
    """One value of a chart with its interval; ``low`` and ``high`` are None where there is none."""

    x: str
    method: str
    value: float
    low: float | None
    high: float | None
    n: int | None
    sure: bool = True
    """The verdict is faster or slower, or the chart has no verdicts."""
    flags: tuple[str, ...] = ()
    cell: str = ""
    at: float | None = None
    """Where it stands on a numeric x axis (scatter)."""

    @property
    def state(self) -> State:
        """How it is drawn: solid, hollow, or hollow and pale."""
        return "flagged" if self.flags else "sure" if self.sure else "unsure"


@dataclass(frozen=True)
class Guide:
    """A straight line that helps to read a scatter: what it stands for, and its ends."""

    label: str
    start: tuple[float, float]
    end: tuple[float, float]


@dataclass(frozen=True)
class Chart:
    """One panel of values by method.

    Over named groups: ``bars``, and ``ratios`` as points on a logarithmic axis. Over ordered steps:
    ``lines``, and ``crossings`` for ratios. Methods down and groups across: ``heat``. Numeric on both
    axes: ``scatter``.
    """

    id: str
    kind: ChartKind
    title: str
    panel: str
    """What is fixed in it, e.g. ``TP 4, 256 tokens``."""
    x: Axis
    y: Axis
    groups: tuple[str, ...]
    """Every x, in order."""
    points: tuple[Point, ...]
    interval: str
    """What the whiskers are."""
    reference: float | None = None
    """Where to draw a line."""
    span: tuple[float, float] | None = None
    """Ends of the y axis where the panels of a figure share it."""
    across: tuple[float, float] | None = None
    """Ends of a numeric x axis."""
    guides: tuple[Guide, ...] = ()
    counted: str = "requests"
    """What n counts."""

    @property
    def is_ratio(self) -> bool:
        """Its values are speedups."""
        return self.kind in ("ratios", "crossings", "scatter", "heat")

    @property
    def methods(self) -> tuple[str, ...]:
        """Methods that have a point, in order of appearance."""
        return tuple(dict.fromkeys(point.method for point in self.points))

    @property
    def counts(self) -> str:
        """How many independent units stand behind its points, as text."""
        known = sorted({point.n for point in self.points if point.n is not None})
        if not known:
            return "n not recorded"
        return f"n = {known[0]}" if len(known) == 1 else f"n = {known[0]} to {known[-1]}"


@dataclass(frozen=True)
class Figure:
    """Charts of the same quantity side by side."""

    id: str
    caption: str
    charts: tuple[Chart, ...]
    table: str
    """Id of the table that has its numbers."""


@dataclass(frozen=True)
class Listing:
    """Preformatted text under a title."""

    title: str
    text: str


@dataclass(frozen=True)
class Sides:
    """Two texts that should have been the same, from where they part; each with whose it is."""

    title: str
    left: tuple[str, str]
    right: tuple[str, str]


@dataclass(frozen=True)
class Problem:
    """Something that failed: why, what shows it, and what to do."""

    title: str
    cause: str
    summary: str
    evidence: tuple[str, ...] = ()
    remedy: str = ""


@dataclass(frozen=True)
class Finding:
    """One statement that the comparison carries; ``subject`` is set off."""

    subject: str
    text: str
    method: str = ""


Block = Table | Figure | Listing | Sides | Problem


@dataclass(frozen=True)
class Section:
    """A headed part of a report; ``lead`` is what it comes to, in a sentence that is set off."""

    id: str
    title: str
    text: str = ""
    blocks: tuple[Block, ...] = ()
    lead: str = ""


@dataclass(frozen=True)
class Look:
    """How a method is drawn everywhere: colour, point shape, and dash where colours run out."""

    color: str
    shape: str
    dash: tuple[int, ...] = ()


@dataclass(frozen=True)
class Document:
    """A whole report."""

    title: str
    description: str
    facts: tuple[tuple[str, str], ...]
    """The line under the title: (name, value)."""
    advice: Section
    """What to deploy; it stands before everything else."""
    findings: tuple[Finding, ...]
    sections: tuple[Section, ...]
    looks: dict[str, Look]
    """By method, the baseline first."""
