"""The commands; each reads, hands over and prints."""

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import click
import msgspec
from rich.console import Console

from draftmark import campaign, staging
from draftmark import report as reports
from draftmark.cli.progress import Progress
from draftmark.cli.show import outcome_text, plan_text, status_text
from draftmark.compare import compare
from draftmark.errors import EXIT_FAILED, BadInput, ResultError
from draftmark.estimate import Pace, estimate, learned
from draftmark.hosts import Local
from draftmark.plan import check_paths, covered, expand, named_files, notes, read_plan, starter
from draftmark.schema import CellResult, Matrix, Plan
from draftmark.store import ResultTree, Unusable
from draftmark.workload import check_files, read_tokenizer

PLAN = click.argument("plan_file", metavar="PLAN", type=click.Path(path_type=Path))
TREE = click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
OUTPUT = click.option(
    "-o", "--output", metavar="DIR", type=click.Path(path_type=Path), help="Result tree [results/NAME]."
)
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON for other programs.")
PHASE = click.option("--phase", metavar="NAME", help="Only this phase (`draftmark plan` names them).")
ONLY = click.option(
    "--only", metavar="PATTERN", help="Only what matches SERVICE, CELL or SERVICE/CELL: '*-ngram-*/code-*'."
)


@click.command()
@click.argument("plan_file", metavar="[PLAN]", type=click.Path(path_type=Path), default="plan.yaml")
def init(plan_file: Path) -> None:
    """Write a commented plan for this machine to PLAN (plan.yaml when not given; - prints it)."""
    text = starter(Local().machine(), staging.engines_present())
    if str(plan_file) == "-":
        click.echo(text, nl=False)
        return
    try:
        with plan_file.open("x") as handle:
            handle.write(text)
    except FileExistsError:
        raise BadInput(f"{plan_file} exists already", "give another name") from None
    except OSError as error:
        raise BadInput(f"{plan_file}: cannot write: {error.strerror}") from error
    click.echo(f"wrote {plan_file}\nnext: draftmark plan {plan_file}", err=True)


@click.command()
@PLAN
@OUTPUT
@PHASE
@ONLY
@JSON
def plan(plan_file: Path, output: Path | None, phase: str | None, only: str | None, as_json: bool) -> None:
    """Show what a plan starts and measures, what it leaves out and why, and how long it takes."""
    asked, _ = _read(plan_file)
    matrix = campaign.narrow(_expanded(asked, _texts(asked)), phase, only)
    if as_json:
        _print_json(matrix)
        return
    times = estimate(matrix.services, _pace(ResultTree(output or Path("results") / asked.name), matrix))
    _print(plan_text(matrix, times, notes(matrix)))


@click.command()
@PLAN
@OUTPUT
@PHASE
@ONLY
@click.option("--dry-run", is_flag=True, help="Show what would be started and measured; start nothing.")
@click.option("--fresh", is_flag=True, help="Measure everything anew; earlier results are kept, renamed.")
@click.option("--keep-failed", is_flag=True, help="Do not try again what failed in an earlier run.")
def run(
    plan_file: Path,
    output: Path | None,
    phase: str | None,
    only: str | None,
    dry_run: bool,
    fresh: bool,
    keep_failed: bool,
) -> None:
    """Measure a plan, then write the report and print where it is.

    What is already measured under the same settings is kept: run the same command again to go on
    after an interruption, or to try again what failed.
    """
    plan, text = _read(plan_file)
    files = _texts(plan)
    whole = _expanded(plan, files)
    matrix = campaign.narrow(whole, phase, only)
    tree = ResultTree(output or Path("results") / plan.name)
    if dry_run:
        _print(plan_text(matrix, estimate(matrix.services, _pace(tree, matrix)), notes(matrix)))
        _print(("", "commands:", *campaign.commands(matrix, Local())))
        return
    console = Console(stderr=True, highlight=False)
    if fresh and (moved := tree.set_aside()):
        console.print(f"earlier results are in {moved}", soft_wrap=True)
    with tree.locked():
        outcome = _campaign(matrix, text, files, tree, console, keep_failed)
        page = _write_report(tree, whole)
    console.print(outcome_text(outcome), soft_wrap=True)
    click.echo(page)
    if outcome.failed:
        sys.exit(EXIT_FAILED)


@click.command()
@TREE
@JSON
def status(folder: Path, as_json: bool) -> None:
    """Say what a result tree holds of its plan, what failed and what is missing."""
    tree = ResultTree(folder)
    matrix = _matrix(tree)
    found = {
        f"{service.id}/{cell.id}": tree.cell(service, cell)
        for service in matrix.services
        for cell in service.cells
    }
    cells = [result for result in found.values() if isinstance(result, CellResult)]
    problems = {name: result.why for name, result in found.items() if isinstance(result, Unusable)}
    if as_json:
        _print_json(
            {"cells": cells, "unusable": problems, "missing": [n for n, r in found.items() if r is None]}
        )
        return
    _print(status_text(matrix, cells, problems))


@click.command()
@TREE
def report(folder: Path) -> None:
    """Write the report of a result tree (Markdown and one HTML page) and print where the page is."""
    tree = ResultTree(folder)
    click.echo(_write_report(tree, _matrix(tree)))


def _campaign(
    matrix: Matrix,
    text: str,
    files: Mapping[str, str],
    tree: ResultTree,
    console: Console,
    keep_failed: bool,
) -> campaign.Outcome:
    with Progress(console, sum(len(service.cells) for service in matrix.services)) as progress:
        running = campaign.Campaign(matrix, tree, Local(), progress, files, keep_failed)
        try:
            return running.run(text)
        except KeyboardInterrupt:
            console.print(
                f"{outcome_text(running.outcome)}; the same command goes on from here", soft_wrap=True
            )
            raise


def _read(path: Path) -> tuple[Plan, str]:
    """A plan from a file, checked against the file system, and its text."""
    try:
        text = path.read_text()
    except FileNotFoundError:
        raise BadInput(f"{path}: no such plan file", "`draftmark init` writes one") from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: cannot read: {error}") from error
    plan = read_plan(text, str(path))
    check_paths(text, str(path), lambda name: Path(name).expanduser().exists())
    return plan, text


def _texts(plan: Plan) -> dict[str, str]:
    """Text of the files that a plan names, by its word."""
    return {name: _text(name) for name in sorted(named_files(plan))}


def _text(name: str) -> str:
    try:
        return Path(name).expanduser().read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{name}: cannot read: {error}") from error


def _expanded(plan: Plan, files: Mapping[str, str]) -> Matrix:
    """A plan's matrix; BadInput where a file is not what one of its cells needs."""
    matrix = expand(plan, covered(plan, files))
    for cell in {cell.id: cell for service in matrix.services for cell in service.cells}.values():
        check_files(cell, files)
    if (tokenizer := plan.model.tokenizer) and tokenizer in files:
        read_tokenizer(files[tokenizer], tokenizer)
    return matrix


def _pace(tree: ResultTree, matrix: Matrix) -> Pace:
    """What earlier results in the tree say of this plan's times."""
    try:
        earlier = tree.load(matrix)
    except ResultError:
        return Pace()
    return learned(earlier.services, earlier.cells)


def _matrix(tree: ResultTree) -> Matrix:
    """What the plan of a result tree expands to."""
    info = tree.info()
    return expand(info.plan, info.files)


def _write_report(tree: ResultTree, matrix: Matrix) -> Path:
    result = tree.load(matrix, records=True)
    comparison = compare(result)
    tree.write_report("report.md", reports.markdown(result, comparison))
    return tree.write_report("report.html", reports.page(result, comparison))


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(line)


def _print_json(value: object) -> None:
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2))
