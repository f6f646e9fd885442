"""The committed results of real runs can be read, and their reports are what is made of them today."""

import csv
from itertools import chain
from math import isclose
from pathlib import Path

import pytest

from draftmark import report
from draftmark.compare import compare
from draftmark.plan import expand
from draftmark.schema import CampaignResult, Comparison, Matrix
from draftmark.store import ResultTree, Unusable
from test_report import Page

TREES = sorted(path.parent for path in Path(__file__).parents[1].glob("examples/*/campaign.json"))
assert TREES, "the examples are gone"

pytestmark = pytest.mark.parametrize("root", TREES, ids=lambda path: path.name)


def planned(tree: ResultTree) -> Matrix:
    info = tree.info()
    return expand(info.plan, info.files)


def results(root: Path) -> tuple[CampaignResult, Comparison]:
    tree = ResultTree(root)
    result = tree.load(planned(tree), records=True)
    return result, compare(result)


def same(ours: str, theirs: str) -> bool:
    """Equal but for the last digits of a number, in which machines differ."""
    try:
        return isclose(float(ours), float(theirs), rel_tol=1e-9)
    except ValueError:
        return ours == theirs


def test_every_cell_counts(root: Path) -> None:
    """Each planned cell is stored, whole, and as its plan asks today; so are its requests."""
    tree = ResultTree(root)
    found = {(s.id, c.id): tree.cell(s, c) for s in planned(tree).services for c in s.cells}
    assert found
    assert [key for key, cell in found.items() if cell is None or isinstance(cell, Unusable)] == []
    assert all(tree.service(service) for service, _ in found)
    assert sum(len(tree.records(*key)) for key in found) > 0


def test_the_markdown_is_what_is_made_today(root: Path) -> None:
    """The committed summary, letter for letter."""
    assert (root / "report" / "report.md").read_text() == report.markdown(*results(root))


def test_the_page_is_what_is_made_today(root: Path) -> None:
    """The committed page has the same elements, text, cells and charts.

    Packing, and the last digits of what is drawn, may differ between machines.
    """
    ours, theirs = Page(report.page(*results(root))), Page((root / "report" / "report.html").read_text())
    assert (ours.tags, ours.text) == (theirs.tags, theirs.text)
    for part in ("cells", "metrics", "rows"):
        assert ours.data[part] == theirs.data[part]
    assert ours.data["charts"].keys() == theirs.data["charts"].keys()


def test_the_data_is_what_is_made_today(root: Path) -> None:
    """The committed table has the same entries."""
    ours = list(csv.reader(report.cells_csv(*results(root)).splitlines()))
    theirs = list(csv.reader((root / "report" / "data.csv").read_text().splitlines()))
    assert [len(row) for row in ours] == [len(row) for row in theirs]
    pairs = zip(chain.from_iterable(ours), chain.from_iterable(theirs), strict=True)
    assert [pair for pair in pairs if not same(*pair)] == []
