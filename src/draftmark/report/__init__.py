"""Results in, text out: the same tables, charts and findings as Markdown and as one page.

Nothing here reads a result file or asks a clock.
"""

from draftmark.report import markdown as _markdown
from draftmark.report import page as _page
from draftmark.report.document import document
from draftmark.report.evidence import evidence
from draftmark.report.parts import Document
from draftmark.report.view import View
from draftmark.schema import CampaignResult, Comparison

__all__ = ["Document", "document", "markdown", "page"]


def markdown(result: CampaignResult, comparison: Comparison) -> str:
    """Findings, speedups, doubts and failures as GitHub-flavoured Markdown."""
    return _markdown.write(document(result, comparison))


def page(result: CampaignResult, comparison: Comparison) -> str:
    """One self-contained HTML page that needs no network; single requests are in it where ``records`` are."""
    return _page.write(document(result, comparison), evidence(View(result, comparison)))
