"""The report's Markdown and page, made from made-up results."""

import base64
import json
import re
import zlib
from collections.abc import Iterator
from functools import cached_property
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

import sample_results
from draftmark import report
from draftmark.compare import compare
from draftmark.report.markdown import escaped
from draftmark.report.page import embedded
from draftmark.report.parts import Chart, Document, Figure, Table
from draftmark.schema import CampaignResult, Comparison, Diagnosis, Estimate, Flag, Parting, Speedup
from trees import Arm, ar, code, tree

SMALL, BIG = sample_results.quickstart(), sample_results.big()
BIG_DOCUMENT = report.document(*BIG)
BIG_HTML = report.page(*BIG)
HOSTILE = (
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<!--<script>",
    "| a | b |\n| --- | --- |",
    "`code` **bold** _under_ [link](http://example.org) ![i](x) ~~gone~~ # head @someone https://example.org",
    "```\nfence\n```",
    "\u202eevil\u202c \u2066isolated",
    "שלום עולם | مرحبا",
    "🙂👩\u200d👩\u200d👧\u2028line\u2029para\x00\x1b[31m",
    "\ud800 lone surrogate",
    "$x$ ${title} {{x}} %s \\",
    "- list\n1. item\n> quote",
)


class Page(HTMLParser):
    """What a browser would make of a page: elements, scripts' text, and text outside of them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text = ""
        self.inside = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:  # noqa: ARG002 (the name is the base class's)
        self.inside = ""

    def handle_data(self, data: str) -> None:
        if self.inside == "script":
            self.scripts[-1] += data
        elif self.inside != "style":
            self.text += data

    @cached_property
    def data(self) -> dict:
        """The embedded data, with all that is packed in it unpacked and cells by ``service/cell``."""
        data = json.loads(self.scripts[0])
        return data | {
            "charts": {name: unpacked(spec) for name, spec in data["charts"].items()},
            "rows": {name: unpacked(rows) for name, rows in data["rows"].items()},
            "cells": {
                f"{service}/{cell}": found
                for service, held in data["cells"].items()
                for cell, found in unpacked(held["packed"]).items()
            },
        }


def unpacked(text: str) -> Any:
    """What the page makes of a packed text."""
    return json.loads(zlib.decompress(base64.b64decode(text)))


def with_text(text: str) -> tuple[CampaignResult, Comparison]:
    """A campaign that carries a text wherever one can come from a model, a log or a plan."""
    result, comparison = sample_results.quickstart(text)
    cells = tuple(
        msgspec.structs.replace(
            cell,
            flags=(*cell.flags, Flag(kind="degenerate", detail=text)),
            diagnosis=Diagnosis(cause="odd", summary=text, evidence=(text,), remedy=text)
            if index == 0
            else None,
            status="failed" if index == 0 else cell.status,
        )
        for index, cell in enumerate(result.cells)
    )
    info = msgspec.structs.replace(result.info, plan_text=text, machine={"note": text, text[:20]: [text]})
    result = msgspec.structs.replace(result, info=info, cells=cells)
    odd = Parting(prompt="p0", position=3, margin=None, baseline=text, method=f"other {text}")
    first = msgspec.structs.replace(comparison.lossless[0], verdict="diverges", partings=(odd,))
    return result, msgspec.structs.replace(
        comparison, lossless=(first, *comparison.lossless[1:]), notes=(text,)
    )


def tokens(markdown: str) -> Iterator[Token]:
    """Block and inline tokens as GitHub would see them."""
    parser = MarkdownIt("gfm-like", {"linkify": False, "html": True})
    for token in parser.parse(markdown):
        yield token
        yield from token.children or ()


def charts(document: Document) -> Iterator[Chart]:
    for section in document.sections:
        for block in section.blocks:
            if isinstance(block, Figure):
                yield from block.charts


def tables(document: Document) -> dict[str, Table]:
    return {b.id: b for section in document.sections for b in section.blocks if isinstance(b, Table)}


def only(comparison: Comparison, **changes: object) -> Comparison:
    """A comparison of its first speedup alone, changed."""
    return Comparison(baseline="ar", speedups=(msgspec.structs.replace(comparison.speedups[0], **changes),))


def findings(result: CampaignResult, comparison: Comparison) -> str:
    return "\n".join(f"{f.subject} {f.text}" for f in report.document(result, comparison).findings)


# --- findings ---


@pytest.mark.parametrize(
    ("ratio", "verdict", "said"),
    [
        (Estimate(value=1.424, low=1.304, high=1.551, n=5), "faster",
         "ngram-mod: 1.42× faster on code-128 (95\u00a0%\u00a01.30–1.55, n=5)."),
        (Estimate(value=0.81, low=0.7, high=0.9, n=4), "slower",
         "ngram-mod: slower on code-128: 0.81× (95\u00a0%\u00a00.70–0.90, n=4)."),
        (Estimate(value=1.1, low=0.9, high=1.3, n=3), "cannot tell", "ngram-mod: cannot tell on code-128."),
    ],
)  # fmt: skip
def test_verdict_is_said_with_interval_and_n(ratio: Estimate, verdict: str, said: str) -> None:
    """A finding gives the ratio, interval and n of a verdict, and no ratio where there is none."""
    result, comparison = SMALL
    assert said in findings(result, only(comparison, ratio=ratio, verdict=verdict, flags=()))


def test_flagged_is_not_ranked() -> None:
    """A flagged speedup is never the highest, never counted, and named as flagged."""
    result, comparison = SMALL
    huge = Estimate(value=99.0, low=98.0, high=100.0, n=9)
    text = findings(result, only(comparison, ratio=huge, verdict="faster", flags=("synthetic",)))
    assert "99" not in text
    assert "0 faster than ar, 0 slower, 0 cannot tell; 1 flagged and not ranked" in text
    assert "1 cell flagged (synthetic) and not ranked" in text


def test_nothing_compared_is_said() -> None:
    """Without a comparison the report says so and why, and makes no claim."""
    result, _ = SMALL
    text = findings(result, Comparison(baseline=None, notes=("The plan has no baseline.",)))
    assert "Nothing could be compared. The plan has no baseline." in text
    assert "faster" not in text


def test_interval_never_rounds_onto_one() -> None:
    """An interval whose end lies just off 1 shows on which side."""
    result, comparison = SMALL
    ratio = Estimate(value=1.05, low=1.0004, high=1.1, n=3)
    assert ">1.00–1.10" in findings(result, only(comparison, ratio=ratio, verdict="faster", flags=()))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.sampled_from(["faster", "slower", "cannot tell"]), min_size=1, max_size=8),
    st.integers(0, 255),
)
def test_counts_add_up(verdicts: list[str], flagged: int) -> None:
    """Faster, slower, cannot tell and flagged add up to all comparisons, in the findings and in the table."""
    result, comparison = SMALL
    speedups: list[Speedup] = [
        msgspec.structs.replace(speedup, verdict=verdict, flags=("drift",) if flagged >> index & 1 else ())
        for index, (speedup, verdict) in enumerate(zip(comparison.speedups, verdicts, strict=False))
    ]
    document = report.document(result, Comparison(baseline="ar", speedups=tuple(speedups)))
    said = [
        int(number)
        for number in re.findall(r"(\d+) (?:faster|slower|cannot|flagged)", document.findings[0].text)
    ]
    shown = [int(row.entries[i].text) for row in tables(document)["verdicts"].rows for i in (1, 2, 3, 4)]
    assert sum(said) == len(speedups) == sum(shown)


# --- tables and charts ---


def test_every_chart_has_n_interval_and_unit() -> None:
    """No chart is without n, without a word on its interval, or with a unitless value axis."""
    for document in (report.document(*SMALL), BIG_DOCUMENT):
        for chart in charts(document):
            assert re.fullmatch(r"n = \d+( to \d+)?", chart.counts)
            assert "whiskers" in chart.interval or "no interval" in chart.interval
            assert chart.y.unit


def test_a_method_looks_the_same_everywhere() -> None:
    """Every chart uses one scale of colours, in which no two methods look alike and the baseline is grey."""
    document = BIG_DOCUMENT
    page = Page(BIG_HTML)
    scales = {json.dumps(scale) for scale in color_scales(page.data["charts"])}
    assert len(scales) == 1
    assert len({(look.color, look.shape, look.dash) for look in document.looks.values()}) == len(
        document.looks
    )
    red, green, blue = (document.looks["ar"].color[i : i + 2] for i in (1, 3, 5))
    assert red == green == blue


def color_scales(node: object) -> Iterator[object]:
    """Every scale of a colour channel within a specification."""
    if isinstance(node, dict):
        if "scale" in node.get("color", {}):
            yield node["color"]["scale"]
        for child in node.values():
            yield from color_scales(child)
    elif isinstance(node, list):
        for child in node:
            yield from color_scales(child)


def test_failure_has_no_number() -> None:
    """A failed cell, and the cells of a server that never started, show their status and not one number."""
    document = BIG_DOCUMENT
    for workload in ("prompts", "concurrency"):
        rows = tables(document)[f"numbers-{workload}"].rows
        bad = [
            row for row in rows if row.key in ("sglang-tp8-ddtree-b32/c8-512",) or "tp1-ddtree-b64" in row.key
        ]
        assert bad
        for row in bad:
            assert all(entry.sort is None for entry in row.entries)


def test_flagged_numbers_are_marked() -> None:
    """Every number of a flagged cell carries the mark."""
    document = report.document(*sample_results.quickstart())
    for table in (tables(document)["numbers-prompts"], tables(document)["cells"]):
        for row in table.rows:
            if row.entries[-1].text:
                marked = [entry for entry in row.entries if entry.sort is not None]
                assert [entry.text.endswith("†") for entry in marked].count(
                    False
                ) <= 1  # the count of requests
        assert any("†" in note for note in table.notes)


def test_every_cell_is_browsable() -> None:
    """The page's list of cells has every planned cell once, and data for each that ran."""
    result, _ = BIG
    page = Page(BIG_HTML)
    keys = [
        attributes["data-key"] for tag, attributes in page.tags if tag == "tr" and "data-key" in attributes
    ]
    planned = {f"{s.id}/{c.id}" for s in result.matrix.services for c in s.cells}
    assert set(keys) == planned
    assert len(keys) == 2 * len(planned)  # once among the workload's numbers, once in the list
    assert set(page.data["cells"]) == {f"{cell.service}/{cell.cell.id}" for cell in result.cells}


def test_long_tables_are_packed_and_whole() -> None:
    """Of a table of thousands of rows none is laid out at first, and all are in the page's data."""
    result, comparison = sample_results.grid(3, 30)
    page = Page(report.page(result, comparison))
    planned = {f"{s.id}/{c.id}" for s in result.matrix.services for c in s.cells}
    assert len(planned) > 500
    assert set(page.data["rows"]) == {"cells", "numbers-prompts"}
    for name, workloads in (("cells", {"prompts", "concurrency"}), ("numbers-prompts", {"prompts"})):
        keys = [a["data-key"] for tag, a in Page(page.data["rows"][name]).tags if tag == "tr"]
        wanted = {
            f"{s.id}/{c.id}" for s in result.matrix.services for c in s.cells if c.workload in workloads
        }
        assert len(keys) == len(set(keys))
        assert set(keys) == wanted
    loaded = [a for tag, a in page.tags if tag == "tr" and "data-key" in a]
    assert {a["data-key"].partition("/")[2].partition("-")[0] for a in loaded} == {
        "c1", "c2", "c4", "c8", "c16", "c32",
    }  # fmt: skip


def left_out(count: int, name: str = "method") -> tuple[CampaignResult, Comparison]:
    """One method that was measured, and so many that were not, of which what to deploy names the reason."""
    idle = [Arm(f"{name}-{i}", absent=["code-256"]) for i in range(count)]
    result = tree([code()], [ar(), Arm("fast", 1.5), *idle])
    return result, compare(result)


def test_a_long_table_of_what_to_deploy_is_whole() -> None:
    """Of 501 methods that were not ranked each has its row in the page."""
    page = Page(report.page(*left_out(501)))
    rows = Page(page.data["rows"]["unranked"]).text
    assert all(f"method-{i}it has no result" in rows for i in (0, 250, 500))
    assert ("class", "large") in [pair for _, attributes in page.tags for pair in attributes.items()]


def test_failures_keep_their_evidence() -> None:
    """Cause, evidence and remedy of every failure are in both forms."""
    for text in (report.markdown(*BIG), Page(BIG_HTML).text):
        for part in (
            "no-memory-for-requests",
            "max_running_request is zero",
            "0.88",
            "server-died",
            "Killed",
        ):
            assert part in text


def test_markdown_fits_a_comment() -> None:
    """However big the campaign, the Markdown fits a comment and says how much it leaves out."""
    text, wide = report.markdown(*BIG), report.markdown(*sample_results.grid(3, 30))
    assert max(len(text), len(wide)) < 65_536
    assert re.search(r"\d+ more rows are in the page", text)
    assert "151 columns, in the page" in wide


@pytest.mark.parametrize(("letter", "whole"), [("x", True), ("*", False)])
def test_what_to_deploy_fits_a_comment_too(letter: str, whole: bool) -> None:
    """Long names are counted after twenty; where that is not enough the end is left out, and said."""
    result, comparison = left_out(300, letter * 280)
    plan = msgspec.structs.replace(result.info.plan, description=letter * 2_000)
    info = msgspec.structs.replace(result.info, plan=plan)
    text = report.markdown(msgspec.structs.replace(result, info=info), comparison)
    assert len(text) < 65_536
    assert (
        text.index("Deploy fast-tp1.") < text.index("280 more rows are in the page") < text.index("Findings")
    )
    assert ("## Reproduce" in text) == whole
    assert text.endswith("The rest is in the page and the result files.\n") != whole
    assert text.count("<details>") == text.count("</details>")


def test_no_records_no_requests() -> None:
    """A campaign without records gives a page whose cells have no requests."""
    page = Page(BIG_HTML)
    assert all(cell["requests"] == [] for cell in page.data["cells"].values())


def test_empty_campaign() -> None:
    """A campaign of which nothing ran is a report that says so."""
    result, _ = SMALL
    result = msgspec.structs.replace(result, cells=(), services=(), records={})
    comparison = Comparison(baseline="ar")
    assert "Not measured: 32 of 32 cells." in findings(result, comparison)
    assert Page(report.page(result, comparison)).data == {
        "charts": {},
        "rows": {},
        "metrics": {},
        "cells": {},
    }
    assert "not run" in report.markdown(result, comparison)


@pytest.mark.parametrize(("speed", "said"), [(0.8, "The baseline had moved"), (1.0, "No drift is shown")])
def test_drift_is_told_in_every_form(speed: float, said: str) -> None:
    """The second measurement over the first with its interval, as a finding and a table; it is no method."""
    arms = [ar(), Arm("fast", 1.5), ar(speed, repeats="ar-tp1", absent=["json-256"])]
    result = tree([code(), code("json-256")], arms)
    comparison = compare(result)
    (found,) = comparison.drift
    page = Page(report.page(result, comparison))
    for form in (page.text, report.markdown(result, comparison), report.latex(result, comparison)):
        assert said in form
        assert "The baseline measured again at the end of its phase" in form
        assert form.count(f"{found.ratio.value:.2f}") >= 2
    assert "ar again" in page.text
    assert ("that kind of workload is not ranked" in page.text) == found.moved
    document = report.document(result, comparison)
    assert list(document.looks) == ["ar", "fast"]
    assert dict(document.facts)["Measured"] == "5 of 6 cells, 2 services, the baseline again"
    shown = tables(document)
    assert [[entry.text for entry in row.entries][:2] for row in shown["drift"].rows] == [["ar", "code-256"]]
    assert len(shown["numbers-prompts"].rows) == 4
    assert len(shown["cells"].rows) == 6
    assert set(page.data["cells"]) == {f"{cell.service}/{cell.cell.id}" for cell in result.cells}
    assert {point.method for chart in charts(document) for point in chart.points} <= {"ar", "fast"}


def test_same_results_same_text() -> None:
    """The same results give the same bytes: nothing depends on the clock or on order of hashing."""
    assert report.page(*sample_results.quickstart()) == report.page(*sample_results.quickstart())
    assert report.markdown(*sample_results.big()) == report.markdown(*BIG)


# --- hostile text ---


@pytest.mark.parametrize("text", HOSTILE)
def test_text_stays_text_in_the_page(text: str) -> None:
    """Whatever a model, log or plan says, the page has our own elements alone, and says it unchanged."""
    html = report.page(*with_text(text))
    html.encode("utf-8")
    plain, page = Page(report.page(*with_text("plain"))), Page(html)
    assert [tag for tag, _ in page.tags] == [tag for tag, _ in plain.tags]
    assert len(page.scripts) == 5
    assert page.scripts[1:] == plain.scripts[1:]
    cell = page.data["cells"]["llamacpp-tp1-ar/code-128"]
    assert cell["diagnosis"]["summary"] == text
    assert cell["requests"][0]["text"] == f"{text} "


@pytest.mark.parametrize("text", HOSTILE)
def test_text_stays_text_in_markdown(text: str) -> None:
    """Whatever a model, log or plan says, Markdown has the structure of our own, and no one is notified."""
    hostile, plain = report.markdown(*with_text(text)), report.markdown(*with_text("plain"))

    def structure(markdown: str) -> list[str]:
        return [t.type for t in tokens(markdown) if t.type not in ("text", "softbreak", "text_special")]

    assert structure(hostile) == structure(plain)
    unfenced = re.sub(r"(?ms)^(`{3,})\n.*?^\1$", "", hostile)
    assert "@someone" not in unfenced
    assert not re.search("[\u202a-\u202e\u2066-\u2069\x00\x1b]", hostile)


@given(st.text(max_size=200))
@settings(deadline=None)
def test_escaped_is_one_plain_run(text: str) -> None:
    """Any escaped text is read back by a Markdown parser as text alone, within a table as without."""
    parser = MarkdownIt("gfm-like", {"linkify": False, "html": True})
    line = f"| {escaped(text)} |"
    rows = [t for t in parser.parse(f"| a |\n| --- |\n{line}\n") if t.type == "inline"]
    assert len(rows) == 2
    assert {child.type for child in rows[1].children or ()} <= {"text", "text_special"}


@given(st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_embedded_data_survives(data: object) -> None:
    """Embedded data is read back as it was and holds nothing that ends a script element."""
    text = embedded(data)
    assert not re.search("[<>&\u2028\u2029]", text)
    assert json.loads(text) == data
    text.encode("utf-8")


def test_huge_output_is_trimmed_with_a_note() -> None:
    """Answers of a megabyte are cut, and the cut says how much is missing."""
    page = report.page(*with_text("é" * 1_000_000))
    assert len(page) < 3_000_000
    text = Page(page).data["cells"]["llamacpp-tp1-ar/code-128"]["requests"][0]["text"]
    assert "of 1,000,001 characters are left out" in text
    markdown = report.markdown(*with_text("é" * 1_000_000))
    assert len(markdown) < 65_536
    assert "1,000,000 characters" in markdown


# --- the page by itself ---


def test_page_can_load_nothing() -> None:
    """The page names no other resource, and its policy allows none and no script but its own."""
    page = Page(report.page(*sample_results.quickstart()))
    assert not [a for tag, attributes in page.tags for a in attributes if a in ("src", "srcset", "action")]
    assert all(a["href"].startswith("#") for tag, a in page.tags if tag == "a")
    policy = next(a["content"] for tag, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-eval" not in policy
    assert "'unsafe-inline'" not in policy.partition("style-src")[0]
    assert not [a for _, attributes in page.tags for a in attributes if a.startswith("on") or a == "style"]


def test_headings_leave_no_level_out() -> None:
    """What to deploy comes first under the title; no heading is more than one level below the one before."""
    for html in (BIG_HTML, report.page(*SMALL)):
        page = Page(html)
        levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch("h[1-6]", tag)]
        assert levels[:2] == [1, 2]
        assert all(below - above <= 1 for above, below in pairwise(levels))
        assert next(a["id"] for tag, a in page.tags if tag == "section") == "deploy"


def test_every_reference_has_its_target() -> None:
    """Each link and each label of the page points at an element that is there, and ids are unique."""
    page = Page(BIG_HTML)
    ids = [a["id"] for _, a in page.tags if "id" in a]
    assert len(ids) == len(set(ids))
    for _, attributes in page.tags:
        for name in ("aria-labelledby", "aria-describedby"):
            assert attributes.get(name) is None or attributes[name] in ids
        if attributes.get("href"):
            assert attributes["href"][1:] in ids
