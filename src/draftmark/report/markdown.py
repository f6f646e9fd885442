"""A report as GitHub-flavoured Markdown, made for a pull request's comment."""

import re
from collections.abc import Iterator, Sequence
from itertools import accumulate

from draftmark.report.parts import Document, Entry, Figure, Finding, Listing, Problem, Section, Sides, Table

TEXT_LIMIT = 300
"""Characters of one entry."""
LISTING_LIMIT = 6_000
COMMENT_LIMIT = 60_000
"""Characters of the whole; GitHub refuses a comment of more than 65,536."""
MOST = (200, 60, 20, 5)
"""Rows of a table and failures of a section: the first of these with which the whole is short enough."""
ADVISED = 20
"""Rows that a table of what to deploy keeps, however few the others have."""
WIDE = 30
"""Columns of a table that can be read in a comment."""
EVIDENCE_LINES = 8
SIDES_LIMIT = 1_000
REPLACEMENT = "\ufffd"
FOLDED = ("numbers-", "scaling-", "models-", "acceptance-", "machine", "metrics", "dropped")
"""Tables that only some readers want."""
PAGE_ONLY = ("browse",)
"""Sections that are for exploring."""

# Bidirectional overrides could make a text read as something else; other controls have no place in one.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_MARKUP = re.compile(r"^[-+=]|[&<>|`*\[\]~#\\$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|:(?=//)|(?<=www)\.")
_TONES = {"faster": "**{}**", "failed": "_{}_", "unsure": "{} (cannot tell)", "slower": "{} (slower)"}


def write(document: Document) -> str:
    """The whole document, what to deploy first, with as many rows as a comment can hold."""
    for most in MOST:
        parts = written(document, most)
        kept = fitting(parts)
        if len(kept) == len(parts):
            break
    else:
        kept.append("The rest is in the page and the result files.")
    return "\n\n".join(kept) + "\n"


def fitting(parts: Sequence[str]) -> list[str]:
    """As many of the first parts as a comment can hold."""
    ends = accumulate(len(part) + 2 for part in parts)
    return [part for part, end in zip(parts, ends, strict=True) if end <= COMMENT_LIMIT]


def written(document: Document, most: int) -> list[str]:
    """The document's parts with at most so many rows of each table and failures of each section."""
    return [
        f"# {escaped(document.title)}",
        *([escaped(document.description, 2_000)] if document.description else []),
        " · ".join(f"{escaped(name)}: {escaped(value)}" for name, value in document.facts),
        *section_parts(document.advice, max(most, ADVISED)),
        "## Findings",
        "\n".join(finding(found) for found in document.findings),
        *(part for section in document.sections for part in section_parts(section, most)),
    ]


def finding(found: Finding) -> str:
    """A finding as a list item."""
    return f"- **{escaped(found.subject)}** {escaped(found.text, 2_000)}"


def section_parts(section: Section, most: int) -> Iterator[str]:
    """A section's heading, text and blocks; charts belong to the page."""
    blocks = [block for block in section.blocks if not isinstance(block, Figure)]
    if section.id in PAGE_ONLY or not (blocks or section.text):
        return
    yield f"## {escaped(section.title)}"
    if section.lead:
        yield f"**{escaped(section.lead)}**"
    if section.text:
        yield escaped(section.text, 2_000)
    for block in blocks[:most]:
        if isinstance(block, Table):
            yield "\n\n".join(table_parts(block, most))
        else:
            yield text_block(block)
    if len(blocks) > most:
        yield f"{len(blocks) - most} more are in the page and the result files."


def table_parts(table: Table, most: int) -> Iterator[str]:
    """A table with its notes; what only some readers want is folded, and what is too wide left out."""
    if len(table.columns) > WIDE:
        yield f"**{escaped(table.title)}**: {len(table.columns)} columns, in the page."
        return
    folded = table.id.startswith(FOLDED)
    yield f"<details><summary>{escaped(table.title)}</summary>" if folded else f"**{escaped(table.title)}**"
    heads = [escaped(f"{c.title} ({c.unit})" if c.unit else c.title) for c in table.columns]
    lines = [
        row_line(heads),
        row_line(["--:" if column.numeric else "---" for column in table.columns]),
        *(row_line([entry(e) for e in row.entries]) for row in table.rows[:most]),
    ]
    yield "\n".join(lines)
    left = len(table.rows) - most
    left_out = [f"{left} more rows are in the page and the result files."] if left > 0 else []
    yield from (f"<sub>{escaped(note, 2_000)}</sub>" for note in (*left_out, *table.notes))
    if folded:
        yield "</details>"


def row_line(entries: list[str]) -> str:
    """One line of a table."""
    return f"| {' | '.join(entries)} |"


def entry(found: Entry) -> str:
    """An entry on one line; a ratio's verdict is told by its weight or a word."""
    text = escaped(found.text)
    toned = _TONES[found.tone].format(text) if found.tone in _TONES and found.detail else text
    return f"{toned} ({escaped(found.detail)})" if found.detail else toned


def text_block(block: Listing | Sides | Problem) -> str:
    """A block that is not a table."""
    match block:
        case Listing():
            return listing(block)
        case Sides():
            return sides(block)
        case Problem():
            return problem(block)


def sides(found: Sides) -> str:
    """Two texts below each other, folded."""
    texts = "\n\n".join(
        f"{escaped(whose)}:\n\n{fenced(_CONTROLS.sub(REPLACEMENT, text[:SIDES_LIMIT]))}"
        for whose, text in (found.left, found.right)
    )
    return f"<details><summary>{escaped(found.title)}</summary>\n\n{texts}\n\n</details>"


def listing(block: Listing) -> str:
    """Preformatted text, folded."""
    text = _CONTROLS.sub(REPLACEMENT, block.text)
    if len(text) > LISTING_LIMIT:
        text = f"{text[:LISTING_LIMIT]}\n[… {len(text) - LISTING_LIMIT:,} more characters]"
    return f"<details><summary>{escaped(block.title)}</summary>\n\n{fenced(text)}\n\n</details>"


def fenced(text: str) -> str:
    """A code block whose fence is longer than any in the text."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence}\n{text}\n{fence}"


def problem(found: Problem) -> str:
    """A failure with the end of its evidence."""
    lines = [f"**{escaped(found.title)}** ({escaped(found.cause)}): {escaped(found.summary, 1_000)}"]
    if found.remedy:
        lines.append(f"What helps: {escaped(found.remedy, 1_000)}")
    if found.evidence:
        lines.append(
            fenced(
                _CONTROLS.sub(REPLACEMENT, "\n".join(line[:500] for line in found.evidence[-EVIDENCE_LINES:]))
            )
        )
    return "\n\n".join(lines)


def escaped(text: str, limit: int = TEXT_LIMIT) -> str:
    """The text on one line, trimmed, with nothing left that Markdown or HTML would act on.

    Character references show as the characters themselves and are never markup; a word joiner after ``@``
    keeps a name from being notified.
    """
    line = " ".join(_CONTROLS.sub(REPLACEMENT, text.replace("\n", " ").replace("\t", " ")).split())
    if len(line) > limit:
        line = f"{line[:limit]} … ({len(line):,} characters)"
    return _MARKUP.sub(lambda found: f"&#{ord(found[0])};", line).replace("@", "@\u2060")
