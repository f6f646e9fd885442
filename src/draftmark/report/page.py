"""A report as one HTML page that holds all that it needs: text, tables, chart specifications, scripts."""

import json
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from html import escape
from importlib.resources import files
from itertools import count, groupby
from string import Template
from typing import Any

from draftmark.report.packing import packed
from draftmark.report.parts import (
    Block,
    Chart,
    Column,
    Document,
    Entry,
    Figure,
    Finding,
    Listing,
    Look,
    Problem,
    Row,
    Section,
    Sides,
    Table,
)
from draftmark.report.vega import spec

SCRIPTS = ("vega.min.js", "vega-lite.min.js", "vega-embed.min.js", "page.js")
SURROGATES = re.compile("[\ud800-\udfff]")
"""Half characters, which no file could hold."""
BEYOND_LATIN = re.compile("[\u0590-\u1fff\u200e\u200f\u202a-\u202e\u2066-\u2069\u2e80-\U0010ffff]")
"""Scripts that may be written from right to left, and all others but Europe's."""
TEXT_LIMIT = 2_000
"""Characters of one entry."""
LISTING_LIMIT = 200_000
LONG = 500
"""Rows of a table from which on the page makes them when they are looked at."""
BROAD = 10
"""Columns of a heat map that a telephone has room for."""
FOLDED = ("numbers-", "scaling-", "models-", "dropped", "metrics")
"""Tables that open on demand."""
HEADED = {"faster": "faster: ", "slower": "slower: ", "unsure": "cannot tell: ", "flagged": "flagged: "}
"""What a screen reader says where the eye sees a colour."""

# SVG paths of Vega's point shapes within a box of 12, for the legend.
SHAPES = {
    "circle": "M6 1.5A4.5 4.5 0 1 1 5.99 1.5Z",
    "square": "M2 2H10V10H2Z",
    "triangle-up": "M6 1.5L11 10.5H1Z",
    "triangle-down": "M6 10.5L1 1.5H11Z",
    "triangle-right": "M10.5 6L1.5 11V1Z",
    "diamond": "M6 0.5L10.5 6L6 11.5L1.5 6Z",
    "cross": "M4.2 1H7.8V4.2H11V7.8H7.8V11H4.2V7.8H1V4.2H4.2Z",
}


def write(document: Document, evidence: Mapping[str, Any]) -> str:
    """The whole page; ``evidence`` has the ``cells`` that can be opened and what their ``metrics`` mean."""
    blocks = [block for part in (document.advice, *document.sections) for block in part.blocks]
    charts = [chart for block in blocks if isinstance(block, Figure) for chart in block.charts]
    data = {
        "charts": {chart.id: packed(spec(chart, document.looks)) for chart in charts},
        "rows": {
            table.id: packed(rows_html(table))
            for table in blocks
            if isinstance(table, Table) and is_long(table)
        },
        **evidence,
    }
    scripts = [static(name) for name in SCRIPTS]
    shown = [section for section in document.sections if section.blocks or section.text]
    numbers = count(1)
    html = Template(static("page.html")).substitute(
        csp=escape(policy(scripts)),
        title=escape(document.title),
        css=static("page.css"),
        description=f"<p class='description' dir='auto'>{trimmed(document.description)}</p>"
        if document.description
        else "",
        facts="".join(
            f"<div><dt>{escape(k)}</dt><dd dir='auto'>{escape(v)}</dd></div>" for k, v in document.facts
        ),
        nav="".join(f"<a href='#{section.id}'>{escape(section.title)}</a>" for section in shown),
        advice=section_html(document.advice, numbers),
        findings="".join(map(finding, document.findings)),
        large=" class='large'" if data["rows"] else "",
        methods="".join(choice(name, look) for name, look in document.looks.items()),
        sections="".join(section_html(section, numbers) for section in shown),
        data=embedded(data),
        scripts="".join(f"<script>{script}</script>" for script in scripts),
    )
    return SURROGATES.sub("\ufffd", html)


def static(name: str) -> str:
    """The text of a file shipped beside this module, without source-map comments: they cause requests."""
    text = files("draftmark.report").joinpath("static", name).read_text(encoding="utf-8")
    return "\n".join(line for line in text.splitlines() if not line.startswith("//# sourceMappingURL"))


def policy(scripts: Sequence[str]) -> str:
    """A content security policy: no network, and no script but these."""
    hashes = " ".join(f"'sha256-{b64encode(sha256(s.encode()).digest()).decode()}'" for s in scripts)
    rest = "style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    return f"default-src 'none'; script-src {hashes}; {rest}"


def embedded(data: Any) -> str:
    """JSON that can stand in a script element: nothing in it can end the element or start a comment."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return SURROGATES.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def finding(found: Finding) -> str:
    """One finding as a list item."""
    return f"<li{method_attribute(found.method)}><b>{escape(found.subject)}</b> {trimmed(found.text)}</li>"


def choice(name: str, look: Look) -> str:
    """A checkbox for one method, which is also its legend."""
    path = f"<path d='{SHAPES[look.shape]}' fill='{look.color}'/>"
    swatch = f"<svg viewBox='0 0 12 12' aria-hidden='true'>{path}</svg>"
    return f"<label><input type='checkbox' checked value='{escape(name)}'>{swatch}{escape(name)}</label>"


def section_html(section: Section, numbers: "count[int]") -> str:
    """A section with its blocks."""
    blocks = "".join(
        f"<div class='figures'>{html}</div>" if together else html
        for together, html in (
            (together, "".join(block_html(block, numbers) for block in group))
            for together, group in groupby(section.blocks, lambda block: isinstance(block, Figure))
        )
    )
    lead = f"<p class='lead' dir='auto'>{trimmed(section.lead)}</p>" if section.lead else ""
    text = f"<p dir='auto'>{trimmed(section.text)}</p>" if section.text else ""
    return f"<section id='{section.id}'><h2>{escape(section.title)}</h2>{lead}{text}{blocks}</section>"


def block_html(block: Block, numbers: "count[int]") -> str:
    """One block."""
    match block:
        case Table():
            return table_html(block)
        case Figure():
            return figure_html(block, next(numbers))
        case Listing():
            text = f"<pre dir='auto' tabindex='0'>{trimmed(block.text, LISTING_LIMIT)}</pre>"
            return f"<details><summary>{escape(block.title)}</summary>{text}</details>"
        case Sides():
            return sides_html(block)
        case Problem():
            return problem_html(block)


def figure_html(figure: Figure, number: int) -> str:
    """Chart panels under one caption; the table of the same numbers is their alternative."""
    panels = "".join(
        f"<div class='panel'><h3>{escape(chart.panel)} <span class='n'>{escape(chart.counts)}</span></h3>"
        f"<div class='chart {breadth(chart)}' id='{chart.id}' role='img' "
        f"aria-describedby='{figure.table}-title' "
        f"aria-label='{escape(f'{figure.caption}, {chart.panel}')}'></div></div>"
        for chart in figure.charts
    )
    broad = any(chart.kind in ("heat", "scatter") for chart in figure.charts)
    several = 1 if any(map(breadth, figure.charts)) else len(figure.charts)
    return (
        f"<figure id='{figure.id}' class='figure figure-{2 if broad else min(several, 2)}'>"
        f"<figcaption><b>Figure {number}.</b> {escape(figure.caption)}. "
        f"<span class='how'>{escape(sentence(figure.charts[0].interval))}. "
        f"<a href='#{figure.table}'>The numbers</a></span></figcaption>"
        f"<div class='panels panels-{min(several, 3)}'>{panels}</div></figure>"
    )


def breadth(chart: Chart) -> str:
    """Class of a chart that wants the page's whole width, and to scroll where there is less."""
    if chart.kind != "heat":
        return ""
    return "broad" if len(chart.groups) <= BROAD else "broader"


def sides_html(sides: Sides) -> str:
    """Two texts beside each other."""
    texts = "".join(
        f"<div><h4 dir='auto'>{escape(whose)}</h4><pre dir='auto' tabindex='0'>{trimmed(text)}</pre></div>"
        for whose, text in (sides.left, sides.right)
    )
    return f"<article class='sides'><h3>{escape(sides.title)}</h3><div>{texts}</div></article>"


def sentence(text: str) -> str:
    """The text with a capital."""
    return text[:1].upper() + text[1:]


def table_html(table: Table) -> str:
    """A table that scrolls within itself, folded where only some readers want it."""
    heads = "".join(map(head, table.columns))
    rows = "" if is_long(table) else rows_html(table)
    notes = "".join(f"<p class='note'>{escape(note)}</p>" for note in table.notes)
    title = f"<span id='{table.id}-title'>{escape(table.title)}</span>"
    body = (
        f"<div class='scroll' tabindex='0' role='region' aria-labelledby='{table.id}-title'>"
        f"<table aria-labelledby='{table.id}-title'><thead><tr>{heads}</tr></thead>"
        f"<tbody>{rows}</tbody></table></div>{notes}"
    )
    if table.id.startswith(FOLDED):
        summary = f"<summary>{title} ({len(table.rows)} rows)</summary>"
        return f"<details class='table' id='{table.id}'>{summary}{body}</details>"
    return f"<div class='table' id='{table.id}'><p class='caption'>{title}</p>{body}</div>"


def is_long(table: Table) -> bool:
    """It has more rows than a page should lay out at once."""
    return len(table.rows) > LONG


def rows_html(table: Table) -> str:
    """All rows."""
    return "".join(row_html(row, table.columns) for row in table.rows)


def head(column: Column) -> str:
    """A column's head with its unit."""
    unit = f" <span class='unit'>{escape(column.unit)}</span>" if column.unit else ""
    numeric = " class='num'" if column.numeric else ""
    return f"<th scope='col'{numeric}>{escape(column.title)}{unit}</th>"


def row_html(row: Row, columns: Sequence[Column]) -> str:
    """A row; its first entry is its head."""
    key = f" data-key='{escape(row.key)}'" if row.key else ""
    cells = "".join(
        entry_html(entry, column, "td" if index else "th scope='row'")
        for index, (entry, column) in enumerate(zip(row.entries, columns, strict=True))
    )
    return f"<tr{method_attribute(row.method)}{key}>{cells}</tr>"


def entry_html(entry: Entry, column: Column, tag: str) -> str:
    """An entry with its detail, and its tone in words for who does not see it."""
    classes = " ".join(filter(None, ("num" if column.numeric else "", entry.tone)))
    sort = f" data-sort='{entry.sort:.7g}'" if entry.sort is not None else ""
    spoken = HEADED.get(entry.tone, "") if entry.sort is not None else ""
    hidden = f"<span class='spoken'>{spoken}</span>" if spoken else ""
    detail = f"<small{direction(entry.detail)}>{trimmed(entry.detail)}</small>" if entry.detail else ""
    attribute = f" class='{classes}'" if classes else ""
    own = direction(entry.text)
    return f"<{tag}{attribute}{sort}{own}>{hidden}{trimmed(entry.text)}{detail}</{tag[:2]}>"


def direction(text: str) -> str:
    """An attribute where a text may be written from right to left."""
    return " dir='auto'" if BEYOND_LATIN.search(text) else ""


def problem_html(found: Problem) -> str:
    """A failure with its evidence."""
    evidence = "\n".join(found.evidence)
    shown = f"<pre dir='auto' tabindex='0'>{trimmed(evidence, 20_000)}</pre>" if evidence else ""
    remedy = (
        f"<p class='remedy' dir='auto'><b>What helps:</b> {trimmed(found.remedy)}</p>" if found.remedy else ""
    )
    return (
        f"<article class='problem'><h3>{escape(found.title)}</h3>"
        f"<p dir='auto'><code>{escape(found.cause)}</code> {trimmed(found.summary)}</p>"
        f"{remedy}{shown}</article>"
    )


def method_attribute(method: str) -> str:
    """What the method filter goes by."""
    return f" data-method='{escape(method)}'" if method else ""


def trimmed(text: str, limit: int = TEXT_LIMIT) -> str:
    """The text escaped, or its beginning with a note of how much is left out."""
    if len(text) <= limit:
        return escape(text)
    return f"{escape(text[:limit])} <em>[… {len(text) - limit:,} more characters]</em>"
