"""Results in, text out: the same tables, charts and findings as Markdown, page and article; and the data.

Nothing here reads a result file or asks a clock.
"""

from collections.abc import Iterator

from draftmark.report import latex as _latex
from draftmark.report import markdown as _markdown
from draftmark.report import page as _page
from draftmark.report.data import cells_csv, cells_parquet, requests_parquet
from draftmark.report.document import document
from draftmark.report.evidence import evidence
from draftmark.report.parts import Document
from draftmark.report.view import View
from draftmark.schema import CampaignResult, Comparison

__all__ = [
    "Document",
    "cells_csv",
    "cells_parquet",
    "document",
    "files",
    "latex",
    "markdown",
    "page",
    "requests_parquet",
]


def files(result: CampaignResult, comparison: Comparison) -> Iterator[tuple[str, str]]:
    """Every form that needs no other program, by its file's name; the page comes last."""
    whole = document(result, comparison)
    yield "report.md", _markdown.write(whole)
    yield "report.tex", _latex.write(whole)
    yield "data.csv", cells_csv(result, comparison)
    yield "report.html", _page.write(whole, evidence(View(result, comparison)))


def markdown(result: CampaignResult, comparison: Comparison) -> str:
    """Findings, speedups, doubts and failures as GitHub-flavoured Markdown."""
    return _markdown.write(document(result, comparison))


def page(result: CampaignResult, comparison: Comparison) -> str:
    """One self-contained HTML page that needs no network; single requests are in it where ``records`` are."""
    return _page.write(document(result, comparison), evidence(View(result, comparison)))


def latex(result: CampaignResult, comparison: Comparison) -> str:
    """A standalone LaTeX article with every chart as pgfplots source and every cell in its appendix."""
    return _latex.write(document(result, comparison))
