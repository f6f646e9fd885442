"""The report as a LaTeX article: what it says, and that no text can break it."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from shutil import which

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sample_results
from draftmark import report
from draftmark.report.latex.text import escaped, listing
from draftmark.report.parts import Figure
from draftmark.texing import NoTex, compile_pdf
from test_report import HOSTILE, with_text

SMALL, BIG = sample_results.quickstart(), sample_results.big()
BIG_TEX = report.latex(*BIG)
TEX_HOSTILE = (
    *HOSTILE,
    r"\end{document} \input{/etc/passwd} \write18{id} \csname x\endcsname",
    r"\\[3cm] & % # _ ^ ~ { } $ \verb|x| ^^M ^^5c",
    "--- ``quotes'' <<a>> ?` !` ,, 'x'",
    "汉字かな 한국어 ελληνικά кириллица ﬁ ½ ｆｕｌｌ é ő ß ŋ",
    "e\u0301\u0301\u0301 \u200b\u200d\ufeff\U0010ffff\x7f\x85",
    "x" * 3_000,
    "/very/long/path" * 60,
    "[",
    "*",
    "",
)
COMMAND = re.compile(r"\\([A-Za-z]+|.)", re.DOTALL)


def environments(tex: str) -> Iterator[str]:
    """Names of the environments in the order in which they begin and end."""
    for kind, name in re.findall(r"\\(begin|end)\{(\w+\*?)\}", tex):
        yield f"{kind} {name}"


def balanced(tex: str) -> bool:
    """Every group that is opened is closed, and none before."""
    depth = 0
    for brace in re.findall(r"\\.|[{}]", tex):
        depth += {"{": 1, "}": -1}.get(brace, 0)
        if depth < 0:
            return False
    return depth == 0


def test_article_has_every_part() -> None:
    """What to deploy, findings, setup, method, results in this order; cells and failures in the appendix."""
    heads = re.findall(r"\\section\*?\{([^}]*)\}", BIG_TEX)
    assert heads[:5] == ["What to deploy", "Findings", "Setup", "Method", "At a glance"]
    before, after = BIG_TEX.split("\\appendix")
    assert {"Losslessness", "Flags and gaps"} <= set(re.findall(r"\\section\{([^}]*)\}", before))
    assert {"Every cell", "Failures", "Definitions"} <= set(re.findall(r"\\section\{([^}]*)\}", after))
    assert "max\\_\\brk{}running\\_\\brk{}request" in after


def test_every_cell_is_in_the_appendix() -> None:
    """Each planned cell of each service is one row of the appendix, failed and unmeasured ones too."""
    result, _ = BIG
    landscape = BIG_TEX.split("\\begin{landscape}")[1].split("\\end{landscape}")[0]
    planned = sum(len(service.cells) for service in result.matrix.services)
    parts = re.findall(r": every number\.?\}.*?\\endlastfoot\n(.*?)\\end\{longtable\}", landscape, re.DOTALL)
    assert sum(part.count("\\\\\n") for part in parts) == planned


def test_every_chart_is_drawn_with_n_and_interval() -> None:
    """Every chart of the document is one axis or heat map, and every caption says n and the interval."""
    figures = [b for s in report.document(*BIG).sections for b in s.blocks if isinstance(b, Figure)]
    kinds = [chart.kind for figure in figures for chart in figure.charts]
    assert {"bars", "lines", "ratios", "crossings", "scatter", "heat"} == set(kinds)
    assert BIG_TEX.count("\\begin{axis}") == sum(kind != "heat" for kind in kinds)
    captions = re.findall(r"\\figurecaption\{.*?\}\{(.*)\}\n", BIG_TEX)
    assert len(captions) == len(figures)
    for caption in captions:
        assert re.search(r"n~=~\d+", caption)
        assert re.search(r"[Ww]hiskers|no interval", caption)


def test_colours_are_those_of_the_page() -> None:
    """Each method has the colour that it has in the page, the baseline's grey among them."""
    looks = report.document(*BIG).looks
    defined = re.findall(r"\\definecolor\{method\d+\}\{HTML\}\{(\w+)\}", BIG_TEX)
    assert [f"#{color}" for color in defined] == [look.color for look in looks.values()]


def test_no_number_of_a_failed_cell() -> None:
    """A method whose server never started has no point in any chart."""
    figures = [b for s in report.document(*BIG).sections for b in s.blocks if isinstance(b, Figure)]
    assert all("ddtree-b64" not in chart.methods for figure in figures for chart in figure.charts)


def test_same_results_same_source() -> None:
    """The same results give the same source: nothing depends on the clock."""
    assert report.latex(*sample_results.big()) == BIG_TEX


@pytest.mark.parametrize("text", TEX_HOSTILE)
def test_text_stays_text(text: str) -> None:
    """Whatever a model, log or plan says, the article has the structure of our own and is plain ASCII."""
    tex, plain = report.latex(*with_text(text)), report.latex(*with_text("plain"))
    body = tex.split("\\begin{document}")[1]
    assert body.isascii()
    assert balanced(tex)
    assert list(environments(tex)) == list(environments(plain))
    assert not {"input", "write", "csname", "verb"} & set(COMMAND.findall(body))


@given(st.text(max_size=300))
@settings(deadline=None)
def test_escaped_uses_known_commands_only(text: str) -> None:
    """Any text becomes printable ASCII in which every special character is one that we wrote."""
    for tex in (escaped(text), listing(text)):
        assert re.fullmatch(r"[\n -~]*", tex)
        assert balanced(tex)
        bare = re.sub(r"\\[A-Za-z]+|\\[^A-Za-z]|\$\\?[A-Za-z-]+\$", "", tex)
        assert not set(bare) & set("$&#%_^\\")


def test_missing_characters_are_visible() -> None:
    """A character that the fonts lack is a box, once each, and the article says what a box is."""
    assert escaped("a漢b\u202ec") == r"a\missing{}b\missing{}c"
    assert "stands for a character" in report.latex(*with_text("漢"))
    assert "stands for a character" not in report.latex(*SMALL)


def test_long_words_can_break() -> None:
    """In a long word there is a place to break at least every dozen characters."""
    pieces = escaped("x" * 300).split(r"\brk{}")
    assert max(map(len, pieces)) <= 12
    assert "".join(pieces) == "x" * 300


def test_huge_text_is_trimmed_with_a_note() -> None:
    """A megabyte in any one place makes no megabyte of source."""
    tex = report.latex(*with_text("é" * 1_000_000))
    assert len(tex) < 1_000_000
    assert "1{,}000{,}000 characters" in tex


def test_without_tex_it_says_how_to_get_it(tmp_path: Path) -> None:
    """Where there is no pdflatex on the path no file is written, and the hint names packages."""
    program = (
        "from pathlib import Path; from draftmark.texing import compile_pdf\n"
        "found = compile_pdf('', Path('.')); print(type(found).__name__, found.hint)"
    )
    said = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={"PATH": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert said.startswith("NoTex Debian")
    assert "texlive-pictures" in said
    assert list(tmp_path.iterdir()) == []


# --- with TeX ---


needs_tex = pytest.mark.skipif(which("pdflatex") is None, reason="needs pdflatex on the path")


def log_of(folder: Path, source: str) -> str:
    """The log of a source compiled by hand: a run without the drawings, then one with them."""
    (folder / "report.tex").write_text(source, encoding="utf-8")
    for what in (r"\def\withoutfigures{}\input{report.tex}", "report.tex"):
        subprocess.run(
            ["pdflatex", "-no-shell-escape", "-interaction=nonstopmode", "-jobname=report", what],
            cwd=folder,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "max_print_line": "999"},
            check=True,
        )
    return (folder / "report.log").read_text(encoding="utf-8", errors="replace")


@needs_tex
@pytest.mark.latex
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["quickstart", "big"])
def test_compiles_clean(tmp_path: Path, name: str) -> None:
    """No error, no undefined reference, no missing character, no box that sticks out by more than 3 pt."""
    log = log_of(tmp_path, report.latex(*getattr(sample_results, name)()))
    assert not re.search(r"^!|undefined|Missing character|Rerun to|Rerun LaTeX", log, re.MULTILINE)
    too_wide = [float(points) for points in re.findall(r"Overfull \\hbox \(([\d.]+)pt", log)]
    assert [points for points in too_wide if points > 3] == []


@needs_tex
@pytest.mark.latex
@pytest.mark.timeout(300)
@pytest.mark.parametrize("text", ["".join(TEX_HOSTILE), "é" * 1_000_000], ids=["hostile", "megabyte"])
def test_hostile_text_compiles(tmp_path: Path, text: str) -> None:
    """An article full of hostile text still becomes a PDF, and nothing but the PDF is left."""
    found = compile_pdf(report.latex(*with_text(text)), tmp_path)
    assert found == tmp_path / "report.pdf"
    assert found.read_bytes().startswith(b"%PDF")
    assert [path.name for path in tmp_path.iterdir()] == ["report.pdf"]


@needs_tex
@pytest.mark.latex
def test_failure_brings_the_log(tmp_path: Path) -> None:
    """A source with an error gives no PDF and the log from the error on."""
    found = compile_pdf("\\documentclass{article}\\begin{document}\\nosuch\\end{document}", tmp_path)
    assert isinstance(found, NoTex)
    assert "Undefined control sequence" in found.log
    assert list(tmp_path.iterdir()) == []


@needs_tex
@pytest.mark.latex
def test_endless_source_is_ended(tmp_path: Path) -> None:
    """A source that never ends is ended at the limit."""
    found = compile_pdf("\\def\\x{\\x}\\x", tmp_path, limit_s=2.0)
    assert isinstance(found, NoTex)
    assert "longer than 2 s" in found.message


@needs_tex
@pytest.mark.latex
def test_source_reads_and_runs_nothing(tmp_path: Path) -> None:
    """TeX itself may read no file outside of its folder and run no command."""
    outside = tmp_path / "secret.tex"
    outside.write_text("secret")
    source = "\\documentclass{{article}}\\begin{{document}}x{}\\end{{document}}"
    read = compile_pdf(source.format(f"\\input{{{outside}}}"), tmp_path / "out")
    assert isinstance(read, NoTex)
    ran = compile_pdf(source.format(f"\\immediate\\write18{{touch {tmp_path}/ran}}"), tmp_path / "out")
    assert isinstance(ran, Path)
    assert not (tmp_path / "ran").exists()
