"""A report as one LaTeX article: what to deploy, findings, method, results; every cell in the appendix.

It needs pdfTeX with pgfplots, booktabs and Bitstream Charter, and no file but itself.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from importlib.resources import files
from itertools import groupby

from draftmark.report.latex.charts import colors, figures
from draftmark.report.latex.tables import TEXT_WIDTH, WIDE_WIDTH, table
from draftmark.report.latex.text import escaped, listing
from draftmark.report.parts import Block, Document, Figure, Listing, Problem, Section, Sides, Table

FIRST = ("setup", "method")
"""Sections that come before the results."""
LAST = ("failures", "definitions", "reproduce")
"""Sections of the appendix, after every cell."""
PAGE_ONLY = ("browse",)
"""Sections that are for exploring."""
PER_CELL = ("numbers-", "scaling-")
"""Tables of every cell."""
MOST_COLUMNS = 9
"""Columns of a table of speedups that stands among the results; a wider one goes to the appendix."""
SIDES_LIMIT = 700
"""Characters of each of two texts."""
EVIDENCE_LINES = 30
MISSING_NOTE = (
    r"A box \missing{} stands for a character that this document's fonts lack; the page and the data have it."
)


def write(document: Document) -> str:
    """The whole article."""
    sections = {s.id: s for s in document.sections if s.id not in PAGE_ONLY}
    results = [s for s in document.sections if s.id not in (*FIRST, *LAST, *PAGE_ONLY)]
    body = "".join(
        (
            heading(document),
            *(main(section, document) for name in FIRST if (section := sections.get(name))),
            *(main(section, document) for section in results),
            "\\appendix\n",
            every_cell(document.sections),
            *(main(section, document) for name in LAST if (section := sections.get(name))),
            commands(document.sections),
        )
    )
    note = f"\\par\\bigskip\\tablenote{{{MISSING_NOTE}}}\n" if r"\missing{}" in body else ""
    return f"{preamble(document)}\\begin{{document}}\n{body}{note}\\end{{document}}\n"


def preamble(document: Document) -> str:
    """Packages, commands, the methods' colours and the file's title."""
    fixed = files("draftmark.report").joinpath("static", "paper.tex").read_text(encoding="utf-8")
    name = re.sub(r"[^A-Za-z0-9. -]+", " ", document.title)[:200]
    return f"{fixed}\n{colors(document.looks)}\\hypersetup{{pdftitle={{{name}}},pdfcreator={{draftmark}}}}\n"


def heading(document: Document) -> str:
    """Title, description, facts, what to deploy, and findings."""
    facts = r" \quad ".join(
        rf"\mbox{{\soft{{{escaped(name)}}}}}~{escaped(value)}" for name, value in document.facts
    )
    found = "\n".join(
        rf"\item \textbf{{{escaped(finding.subject)}}} {escaped(finding.text, 2_000)}"
        for finding in document.findings
    )
    description = (
        f"{{\\large\\soft{{{escaped(document.description, 2_000)}}}\\par}}\n" if document.description else ""
    )
    return (
        f"{{\\raggedright{{\\LARGE\\bfseries {escaped(document.title)}\\par}}\\vspace{{3pt}}\n{description}"
        f"\\vspace{{4pt}}{{\\small {facts}\\par}}}}\n\\vspace{{5pt}}\\hrule\\vspace{{-6pt}}\n"
        f"{advice(document.advice)}"
        f"\\section*{{Findings}}\n\\begin{{findings}}\n{found}\n\\end{{findings}}\n\\vspace{{4pt}}\\hrule\n"
    )


def advice(section: Section) -> str:
    """What to deploy, before the numbered sections; the command lines are in the appendix."""
    body = "".join(written(block) for block in section.blocks)
    return (
        f"\\section*{{{escaped(section.title)}}}\n{{\\large\\bfseries {escaped(section.lead)}\\par}}\n"
        f"{escaped(section.text, 4_000)}\\par\n{body}"
    )


def main(section: Section, document: Document) -> str:
    """A section without what goes to the appendix's wide tables and listings."""
    shown = [block for block in section.blocks if not apart(block)]
    if not (shown or section.text):
        return ""
    text = f"{escaped(section.text, 4_000)}\n\n" if section.text else ""
    blocks = "".join(
        figures([block for block in group if isinstance(block, Figure)], document.looks)
        if drawn
        else "".join(written(block) for block in group)
        for drawn, group in groupby(shown, lambda block: isinstance(block, Figure))
    )
    return f"\\section{{{escaped(section.title)}}}\n{text}{blocks}"


def apart(block: Block) -> bool:
    """It stands elsewhere than in its section: a listing, or a table that needs a wide page."""
    return isinstance(block, Listing) or is_wide(block)


def is_wide(block: Block) -> bool:
    """It is a table that needs a wide page, or has every cell."""
    many = isinstance(block, Table) and len(block.columns) > MOST_COLUMNS
    return isinstance(block, Table) and (block.id.startswith(PER_CELL) or many)


def written(block: Block) -> str:
    """One block that stands in its section; figures and listings are set together."""
    if isinstance(block, Table):
        return table(block, TEXT_WIDTH)
    if isinstance(block, Sides):
        return sides(block)
    return problem(block) if isinstance(block, Problem) else ""


def every_cell(sections: Iterable[Section]) -> str:
    """The wide tables, on landscape pages."""
    tables = [
        block
        for section in sections
        if section.id not in PAGE_ONLY
        for block in section.blocks
        if isinstance(block, Table) and is_wide(block)
    ]
    body = "".join(table(found, WIDE_WIDTH) for found in noted_once(tables))
    if not body:
        return ""
    return f"\\begin{{landscape}}\n\\section{{Every cell}}\n{body}\\end{{landscape}}\n"


def noted_once(tables: Iterable[Table]) -> Iterator[Table]:
    """The tables, each note with the first that has it."""
    seen: set[str] = set()
    for found in tables:
        yield replace(found, notes=tuple(note for note in found.notes if note not in seen))
        seen.update(found.notes)


def commands(sections: Iterable[Section]) -> str:
    """The listings of all sections: notes, command lines, the plan."""
    found = [block for section in sections for block in section.blocks if isinstance(block, Listing)]
    body = "".join(f"\\subsection*{{{escaped(block.title)}}}\n{listing(block.text)}" for block in found)
    return f"\\section{{Notes, command lines and plan}}\n{body}" if body else ""


def sides(found: Sides) -> str:
    """Two texts beside each other, kept on one page."""
    halves = "\\hfill".join(half(whose, text) for whose, text in (found.left, found.right))
    title = f"{{\\small\\textbf{{{escaped(found.title)}}}\\par}}"
    return f"\\keep{{30mm}}\\addvspace{{8pt}}{title}\\nopagebreak\n\\noindent{halves}\\par\n"


def half(whose: str, text: str) -> str:
    """One of two texts."""
    shown = text if len(text) <= SIDES_LIMIT else f"{text[:SIDES_LIMIT]} […]"
    return (
        f"\\begin{{minipage}}[t]{{0.485\\linewidth}}{{\\footnotesize\\soft{{{escaped(whose)}}}}}\n"
        f"{listing(shown)}\\end{{minipage}}"
    )


def problem(found: Problem) -> str:
    """A failure with its evidence."""
    return "".join(problem_parts(found))


def problem_parts(found: Problem) -> Iterator[str]:
    """Title, cause, remedy and the end of the evidence."""
    yield f"\\subsection*{{{escaped(found.title)}}}\n"
    yield f"\\texttt{{{escaped(found.cause)}}}: {escaped(found.summary, 1_500)}\\par\n"
    if found.remedy:
        yield f"\\textbf{{What helps:}} {escaped(found.remedy, 1_000)}\\par\n"
    if found.evidence:
        yield listing("\n".join(found.evidence[-EVIDENCE_LINES:]))
