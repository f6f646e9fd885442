"""Commands on what is stored: status, report, recommend, compare."""

import sys
from pathlib import Path

import click

from draftmark import recommend as advice
from draftmark import report as reports
from draftmark import versus as changes
from draftmark.cli.print import JSON, print_json, print_lines
from draftmark.cli.show import status_text
from draftmark.compare import compare
from draftmark.errors import BadInput
from draftmark.imports import read_benchmark
from draftmark.plan import expand
from draftmark.schema import CampaignResult, CellResult, Matrix
from draftmark.store import ResultTree, Unusable
from draftmark.texing import NoTex, compile_pdf

TREE = click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))


@click.command()
@TREE
@JSON
def status(folder: Path, as_json: bool) -> None:
    """Say what a result tree holds of its plan, what failed and what is missing."""
    tree = ResultTree(folder)
    matrix = matrix_of(tree)
    found = {
        f"{service.id}/{cell.id}": tree.cell(service, cell)
        for service in matrix.services
        for cell in service.cells
    }
    cells = [result for result in found.values() if isinstance(result, CellResult)]
    problems = {name: result.why for name, result in found.items() if isinstance(result, Unusable)}
    missing = [name for name, result in found.items() if result is None]
    if as_json:
        print_json({"cells": cells, "unusable": problems, "missing": missing})
        return
    print_lines(status_text(matrix, cells, problems))


@click.command()
@TREE
@click.option("--pdf", is_flag=True, help="Compile the article too, where LaTeX is installed.")
@click.option("--parquet", is_flag=True, help="Cells and requests as Parquet too (extra: parquet).")
def report(folder: Path, pdf: bool, parquet: bool) -> None:
    """Write the report of a result tree and print where its page is.

    DIR/report then holds the page, a Markdown summary, the LaTeX source of an article, and data.csv.
    """
    tree = ResultTree(folder)
    page = write_report(tree, tree.load(matrix_of(tree), records=True), parquet=parquet)
    if pdf:
        made = compile_pdf((page.parent / "report.tex").read_text(), page.parent)
        if isinstance(made, NoTex):
            raise BadInput(made.message, "\n  ".join(filter(None, (made.hint, made.log))))
        click.echo(made)
    click.echo(page)


@click.command()
@TREE
@JSON
def recommend(folder: Path, as_json: bool) -> None:
    """Say which configuration to deploy, how sure that is, and what would decide it where it is not."""
    result = _stored(folder)
    found = advice.recommend(result, compare(result))
    if as_json:
        print_json(found)
        return
    print_lines(advice.lines(found))


@click.command("compare")
@click.argument("before", metavar="A", type=click.Path(path_type=Path))
@click.argument("after", metavar="B", type=click.Path(path_type=Path))
@click.option("--tolerance", type=click.FloatRange(0, 1), default=0.03, help="Loss that is none [0.03].")
@click.option("--allow", multiple=True, metavar="KEY", help="A key that may differ, e.g. engine.version.")
@click.option("--markdown", is_flag=True, help="Print Markdown, for a pull request.")
@JSON
def compare_trees(
    before: Path, after: Path, tolerance: float, allow: tuple[str, ...], markdown: bool, as_json: bool
) -> None:
    """Hold two result trees together, before and after a change: PASS, REGRESSION or INCONCLUSIVE.

    A and B are folders of `draftmark run`, or result files of `vllm bench serve`, SGLang's
    bench_serving or AIPerf. Exit codes: 0 PASS, 1 REGRESSION, 3 INCONCLUSIVE, 2 bad input.
    """
    found = changes.versus(_stored(before), _stored(after), tolerance=tolerance, allow=allow)
    if as_json:
        print_json(found)
    elif markdown:
        click.echo(changes.markdown(found))
    else:
        print_lines(changes.lines(found))
    sys.exit(found.exit_code)


def matrix_of(tree: ResultTree) -> Matrix:
    """What the plan of a result tree expands to."""
    info = tree.info()
    return expand(info.plan, info.files)


def write_report(tree: ResultTree, result: CampaignResult, *, parquet: bool = False) -> Path:
    """Write every form of the report that needs no other program; gives the page's place."""
    comparison = compare(result)
    if parquet:
        tree.write_report("cells.parquet", reports.cells_parquet(result, comparison))
        tree.write_report("requests.parquet", reports.requests_parquet(result))
    for name, text in reports.files(result, comparison):
        page = tree.write_report(name, text.encode())
    return page


def _stored(path: Path) -> CampaignResult:
    """A result tree with its requests, or another tool's result file."""
    if path.is_file():
        try:
            return read_benchmark(path.read_text(), str(path))
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"{path}: cannot read: {error}") from error
    tree = ResultTree(path)
    return tree.load(matrix_of(tree), records=True)
