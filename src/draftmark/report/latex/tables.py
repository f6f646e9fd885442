"""Tables as ``longtable``: as wide as their text where that fits, else smaller, wrapped, or in parts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from textwrap import wrap

from draftmark.report.latex.text import escaped
from draftmark.report.parts import Column, Entry, Row, Table, Tone

TEXT_WIDTH, WIDE_WIDTH = 170.0, 253.0
"""Of the page and of a landscape page, in mm."""
GAP = 3.4
"""Between two columns, in mm."""
LEAST = 24.0
"""Of a column that is wrapped, in mm."""
SIZES = (("small", 1.65), ("footnotesize", 1.48), ("scriptsize", 1.3), ("tiny", 0.98))
"""Sizes to try, each with the mean width of a character in mm."""
HEAD_WIDTH = 12
"""Characters of one line of a column's head."""
INLINE = "numbers-"
"""Tables of one line per row, whose details stand beside their entries."""
TEXT_LIMIT = 600
"""Characters of one entry."""
TONES: dict[Tone, str] = {
    "faster": r"\faster{{{}}}",
    "slower": r"\slower{{{}}}",
    "unsure": r"\soft{{{}}}",
    "flagged": r"\soft{{\textit{{{}}}}}",
    "failed": r"\slower{{\textit{{{}}}}}",
    "muted": r"\soft{{{}}}",
}


@dataclass(frozen=True)
class Fit:
    """How a table is set: its size, and the width of each column in mm; None for as wide as its text."""

    size: str
    widths: tuple[float | None, ...]


def table(found: Table, width: float = TEXT_WIDTH) -> str:
    """The table, in as many parts as its columns need."""
    if not found.rows:
        return ""
    inline = found.id.startswith(INLINE)
    parts = list(split(found, width, inline))
    blocks = [
        part(piece, fit(piece, width, inline), inline, f", part {number} of {len(parts)}" * (len(parts) > 1))
        for number, piece in enumerate(parts, 1)
    ]
    notes = "".join(f"\\tablenote{{{escaped(note, 1_000)}}}\n" for note in found.notes)
    return "".join(blocks) + notes


def part(found: Table, fitted: Fit, inline: bool, which: str) -> str:
    """One ``longtable`` whose head is repeated on each page."""
    columns = "".join(
        f">{{\\raggedright\\arraybackslash}}p{{{width:.1f}mm}}" if width else "r" if column.numeric else "l"
        for column, width in zip(found.columns, fitted.widths, strict=True)
    )
    # The last, empty column takes up what is left of the line, so that the rules span it.
    heads = " & ".join([*map(head, found.columns), ""])
    body = "\n".join(row(line, found.columns, inline) for line in found.rows)
    return (
        f"\\tablecaption{{{escaped(found.title)}{which}}}\n\\begingroup\\{fitted.size}\n"
        f"\\begin{{longtable}}{{@{{}}{columns}@{{\\extracolsep{{\\fill}}}}l@{{}}}}\n"
        f"\\toprule\n{heads}\\\\\n\\midrule\n\\endhead\n\\bottomrule\n\\endlastfoot\n"
        f"{body}\n\\end{{longtable}}\\endgroup\n"
    )


def row(line: Row, columns: Sequence[Column], inline: bool) -> str:
    """One row."""
    cells = (
        cell(entry, column.numeric and not inline)
        for entry, column in zip(line.entries, columns, strict=True)
    )
    return " & ".join(cells) + (r"\\" if inline else r"\\[2pt]")


def cell(entry: Entry, stacked: bool) -> str:
    """An entry in its tone; the detail follows, or stands below in small."""
    text = escaped(entry.text, TEXT_LIMIT)
    toned = TONES[entry.tone].format(text) if entry.tone else text
    if not entry.detail:
        return toned
    detail = escaped(entry.detail, TEXT_LIMIT)
    return f"\\stacked{{{toned}}}{{{detail}}}" if stacked else f"{toned} \\detail{{{detail}}}"


def head(column: Column) -> str:
    """A column's head on short lines, its unit below."""
    lines = [escaped(line) for line in wrap(column.title, HEAD_WIDTH, break_long_words=False)]
    unit = [rf"\soft{{{escaped(column.unit)}}}"] if column.unit else []
    side = "r" if column.numeric else "l"
    return rf"\begin{{tabular}}[b]{{@{{}}{side}@{{}}}}" + r"\\".join(lines + unit) + r"\end{tabular}"


def split(found: Table, width: float, inline: bool) -> Iterator[Table]:
    """The table itself, or its columns in parts that fit, each with the first column."""
    size = SIZES[2][1] if inline else SIZES[1][1]
    needs = [min(need, LEAST if not column.numeric else need)
             for need, column in zip(natural(found, size, inline), found.columns, strict=True)]  # fmt: skip
    if sum(needs) <= width or inline:
        yield found
        return
    groups: list[list[int]] = [[]]
    used = needs[0]
    for index in range(1, len(needs)):
        if groups[-1] and used + needs[index] > width:
            groups.append([])
            used = needs[0]
        groups[-1].append(index)
        used += needs[index]
    for group in groups:
        yield chosen(found, [0, *group])


def chosen(found: Table, columns: Sequence[int]) -> Table:
    """The table with some of its columns."""
    return replace(
        found,
        columns=tuple(found.columns[i] for i in columns),
        rows=tuple(replace(line, entries=tuple(line.entries[i] for i in columns)) for line in found.rows),
    )


def fit(found: Table, width: float, inline: bool) -> Fit:
    """The largest size at which no column is wrapped; else the smallest readable one with text wrapped."""
    for size, character in SIZES[1:3] if not inline else SIZES[2:]:
        needs = natural(found, character, inline)
        if sum(needs) <= width:
            return Fit(size, (None,) * len(needs))
    size, character = SIZES[1] if not inline else SIZES[3]
    return Fit(size, wrapped(found.columns, natural(found, character, inline), width))


def wrapped(columns: Sequence[Column], needs: Sequence[float], width: float) -> tuple[float | None, ...]:
    """Widths where the columns of text share what the others leave, narrow ones first."""
    text = sorted((i for i, column in enumerate(columns) if not column.numeric), key=lambda i: needs[i])
    left = width - sum(need for i, need in enumerate(needs) if i not in text)
    widths: list[float | None] = [None] * len(needs)
    for place, i in enumerate(text):
        share = max(LEAST, left / (len(text) - place))
        if needs[i] > share:
            widths[i] = share - GAP
        left -= min(needs[i], share)
    return tuple(widths)


def natural(found: Table, character: float, inline: bool) -> list[float]:
    """Width in mm of each column with its gap where nothing is wrapped."""
    needs = []
    for i, column in enumerate(found.columns):
        stacked = column.numeric and not inline
        lengths = (length(line.entries[i], stacked) for line in found.rows)
        needs.append(GAP + character * max([head_length(column), *lengths]))
    return needs


def head_length(column: Column) -> int:
    """Characters of the longest line of a head."""
    return max(map(len, [*wrap(column.title, HEAD_WIDTH, break_long_words=False), column.unit]))


def length(entry: Entry, stacked: bool) -> float:
    """Characters of an entry; details are set smaller."""
    detail = 0.85 * len(entry.detail)
    if not entry.detail or stacked:
        return max(len(entry.text), detail)
    return len(entry.text) + detail + 1
