"""A LaTeX source to a PDF, by the pdflatex of the machine where it has one."""

import os
import re
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from draftmark.errors import StoreError

RUNS = 4
"""At most: one to measure the tables, one to draw, and two more if the log asks for them."""
LIMIT_S = 180.0
"""For all runs together."""
EXCERPT_LINES = 30
HOW_TO_GET = (
    "Debian, Ubuntu: apt install --no-install-recommends texlive-latex-recommended texlive-pictures "
    "texlive-fonts-recommended lmodern; "
    "macOS: brew install --cask mactex-no-gui; "
    "conda: conda install -c conda-forge tectonic, then tectonic report.tex by hand. "
    "Or compile report.tex anywhere else: it needs no other file"
)
# The source holds text from models: no command is run, and nothing is read or written outside of the folder.
_SAFE = {"openin_any": "p", "openout_any": "p", "shell_escape": "f", "MKTEXPK": "0", "MKTEXTFM": "0"}
_PROGRAM = ("pdflatex", "-no-shell-escape", "-interaction=nonstopmode", "-halt-on-error", "-file-line-error")
_FIRST = r"\def\withoutfigures{}\input{report.tex}"
_AGAIN = re.compile(r"Rerun to get|Rerun LaTeX|Table widths have changed|\(re\)run", re.IGNORECASE)
_FAULT = re.compile(r"^(!|.*?:\d+: )")


@dataclass(frozen=True)
class NoTex:
    """Why there is no PDF, what to do, and what the log says where TeX ran."""

    message: str
    hint: str = ""
    log: str = ""


def compile_pdf(tex: str, folder: Path, *, limit_s: float = LIMIT_S) -> Path | NoTex:
    """Compile in a temporary folder and put ``report.pdf`` into ``folder``; nothing is left of a failure.

    Args:
        tex: a source that needs no file but itself.
        limit_s: seconds after which TeX is ended.

    Raises:
        StoreError: the PDF could not be written.
    """
    if shutil.which(_PROGRAM[0]) is None:
        return NoTex("no PDF was made: pdflatex is not installed", HOW_TO_GET)
    with tempfile.TemporaryDirectory(prefix="draftmark-tex-") as name:
        place = Path(name)
        (place / "report.tex").write_text(tex, encoding="utf-8")
        fault = _runs(place, time.monotonic() + limit_s, limit_s)
        return fault or _kept(place / "report.pdf", folder)


def _runs(place: Path, deadline: float, limit_s: float) -> NoTex | None:
    """Run TeX until its log asks for no more; None where it went well."""
    for number in range(RUNS):
        source = _FIRST if number == 0 else "report.tex"
        try:
            status = _run(place, source, deadline - time.monotonic())
        except subprocess.TimeoutExpired:
            return NoTex(f"no PDF was made: pdflatex took longer than {limit_s:g} s", "", _excerpt(place))
        if status != 0:
            return NoTex(
                f"no PDF was made: pdflatex ended with status {status}",
                "a missing package? " + HOW_TO_GET,
                _excerpt(place),
            )
        if number > 0 and not _AGAIN.search(_log(place)):
            break
    return None


def _run(place: Path, source: str, left_s: float) -> int:
    """One run of TeX in a folder; it starts no process of its own, so that ending it ends everything."""
    return subprocess.run(
        [*_PROGRAM, "-jobname=report", source],
        cwd=place,
        env={**os.environ, **_SAFE, "TEXMFOUTPUT": str(place), "max_print_line": "1000"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=max(0.0, left_s),
        check=False,
    ).returncode


def _log(place: Path) -> str:
    """The log of the last run; empty where there was none."""
    log = place / "report.log"
    return log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""


def _excerpt(place: Path) -> str:
    """The log from its first error on, or its end."""
    lines = _log(place).splitlines()
    first = next(
        (index for index, line in enumerate(lines) if _FAULT.match(line)), len(lines) - EXCERPT_LINES
    )
    return "\n".join(lines[max(0, first) :][:EXCERPT_LINES])


def _kept(made: Path, folder: Path) -> Path:
    """The PDF in its folder, replaced as a whole."""
    target = folder / made.name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".report-", delete=False) as copy:
            copy.write(made.read_bytes())
        Path(copy.name).chmod(0o644)
        Path(copy.name).replace(target)
    except OSError as error:
        raise StoreError(f"{target}: cannot write: {error}") from error
    return target
