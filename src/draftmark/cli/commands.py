"""Commands on a plan: init, plan, run, check-lossless; each reads, hands over and prints."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from draftmark import campaign, staging
from draftmark.campaign.budget import budget, draft_problems, gpu_of
from draftmark.cli.print import JSON, print_json, print_lines
from draftmark.cli.progress import Progress
from draftmark.cli.results import matrix_of, write_report
from draftmark.cli.show import again_text, lossless_text, memory_lines, outcome_text, plan_text
from draftmark.compare import check_lossless, compare
from draftmark.errors import EXIT_FAILED, BadInput, ResultError, nearest
from draftmark.estimate import Pace, estimate, learned
from draftmark.hosts import Local
from draftmark.memory import gpu_named
from draftmark.plan import (
    check_paths,
    covered,
    expand,
    lossless_plan,
    named_files,
    notes,
    read_plan,
    starter,
    with_baselines,
    write_plan,
)
from draftmark.schema import PROMPT_KINDS, Matrix, Plan, PromptKind
from draftmark.store import ResultTree
from draftmark.workload import check_files, read_tokenizer

PLAN = click.argument("plan_file", metavar="PLAN", type=click.Path(path_type=Path))
FOLDER = click.Path(file_okay=False, path_type=Path)
OUTPUT = click.option("-o", "--output", metavar="DIR", type=FOLDER, help="Result tree [results/NAME].")
PHASE = click.option("--phase", metavar="NAME", help="Only this phase (`draftmark plan` names them).")
ONLY = click.option(
    "--only", metavar="PATTERN", help="Only what matches SERVICE, CELL or SERVICE/CELL: '*-ngram-*/code-*'."
)


@click.command()
@click.argument("plan_file", metavar="[PLAN]", type=click.Path(path_type=Path), default="plan.yaml")
def init(plan_file: Path) -> None:
    """Write a commented plan for this machine to PLAN (plan.yaml when not given; - prints it)."""
    text = starter(Local().machine(), staging.engines_present(), plan_file.stem)
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
@click.option("--gpu", metavar="NAME", help="Plan memory for this GPU [this machine's], e.g. H100 or 96GB.")
@JSON
def plan(
    plan_file: Path, output: Path | None, phase: str | None, only: str | None, gpu: str | None, as_json: bool
) -> None:
    """Show what a plan starts and measures, what it leaves out, how long it takes, and whether it fits.

    Memory is planned where a GPU is known and the model's config.json or GGUF file is on this machine.
    """
    asked, _ = _read(plan_file)
    matrix = campaign.narrow(_expanded(asked, _texts(asked)), phase, only)
    if as_json:
        print_json(matrix)
        return
    times = estimate(matrix.services, _pace(ResultTree(output or Path("results") / asked.name), matrix))
    print_lines(plan_text(matrix, times, (*notes(matrix), *draft_problems(matrix.services))))
    chosen = gpu_named(gpu) if gpu else gpu_of(Local().machine())
    print_lines(memory_lines([budget(s, chosen) for s in matrix.services if s.repeats is None]))


@click.command()
@PLAN
@OUTPUT
@PHASE
@ONLY
@click.option("--dry-run", is_flag=True, help="Show what would be started and measured; start nothing.")
@click.option("--fresh", is_flag=True, help="Measure everything anew; earlier results are kept, renamed.")
@click.option("--keep-failed", is_flag=True, help="Do not try again what failed in an earlier run.")
@click.option(
    "--again-flagged", is_flag=True, help="Measure again what is flagged foreign-load or client-bound."
)
def run(
    plan_file: Path,
    output: Path | None,
    phase: str | None,
    only: str | None,
    dry_run: bool,
    fresh: bool,
    keep_failed: bool,
    again_flagged: bool,
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
        print_lines(plan_text(matrix, estimate(matrix.services, _pace(tree, matrix)), notes(matrix)))
        print_lines(("", "commands:", *campaign.commands(matrix, Local())))
        return
    console = Console(stderr=True, highlight=False)
    if fresh and (moved := tree.set_aside()):
        console.print(f"earlier results are in {moved}", soft_wrap=True)
    with tree.locked():
        outcome = _campaign(matrix, text, files, tree, console, keep_failed, again_flagged)
        result = tree.load(whole, records=True)
        page = write_report(tree, result)
    for line in (outcome_text(outcome), *again_text(result.cells, str(plan_file))):
        console.print(line, soft_wrap=True)
    click.echo(page)
    if outcome.failed:
        sys.exit(EXIT_FAILED)


def _kinds(_: click.Context, __: click.Parameter, text: str | None) -> tuple[PromptKind, ...] | None:
    if text is None:
        return None
    for kind in (asked := text.split(",")):
        if kind not in PROMPT_KINDS:
            raise BadInput(f"--kinds: there is no prompt kind '{kind}'", nearest(kind, PROMPT_KINDS))
    return tuple(kind for kind in PROMPT_KINDS if kind in asked)


@click.command("check-lossless")
@click.argument("source", metavar="PLAN|DIR", type=click.Path(path_type=Path))
@click.option("-o", "--output", metavar="DIR", type=FOLDER, help="Result tree [results/NAME-lossless].")
@PHASE
@click.option("--only", metavar="PATTERN", help="Only what matches, and its baseline: '*-ngram-*'.")
@click.option(
    "--kinds",
    metavar="KIND,…",
    callback=_kinds,
    help=f"Of {', '.join(PROMPT_KINDS)} [the plan's own, else all].",
)
@click.option(
    "--tokens", "max_tokens", type=click.IntRange(1), help="Of an answer [the plan's fewest, else 128]."
)
@click.option("--prompts", type=click.IntRange(1), help="Different prompts of each kind [2].")
@JSON
def check_outputs(
    source: Path, output: Path | None, phase: str | None, only: str | None, as_json: bool, **given: Any
) -> None:
    """Check that speculation leaves the greedy output as it is, and show where it does not.

    Starts each server of PLAN once, sends all of them the same few prompts at temperature 0, one at a
    time, and holds each method's answers against the baseline's. The same command goes on after an
    interruption. A result tree DIR is judged by what it holds, and nothing is started.

    \b
    identical       every output is the baseline's
    near-ties only  outputs part only where two tokens were less than 0.1 nats apart: rounding, no fault
    diverges        one parts where the baseline was sure: shown with both texts and the margin
    not checked     no output, no margin where one parts, or a server that never drafted

    Exit codes: 0 identical or near-ties only, 1 something diverges or failed, 3 something was not
    checked, 2 bad input, 130 interrupted.
    """
    asked = {name: value for name, value in given.items() if value is not None}
    if source.is_dir():
        if output or asked:
            raise BadInput(
                f"{source}: a result tree is judged as it is",
                "-o, --kinds, --tokens, --prompts: only with a plan",
            )
        tree = ResultTree(source)
        matrix = _pairs(matrix_of(tree), phase, only)
    else:
        plan, _ = _read(source)
        small = lossless_plan(plan, **asked)
        tree = ResultTree(output or Path("results") / small.name)
        text = f"# Derived from the plan {plan.name} by draftmark check-lossless.\n{write_plan(small)}"
        matrix = _checked(small, text, tree, phase, only)
    result = tree.load(matrix, records=True)
    found = check_lossless(result, compare(result))
    if as_json:
        print_json(found)
    else:
        print_lines(lossless_text(found))
    sys.exit(found.exit_code)


def _pairs(whole: Matrix, phase: str | None, only: str | None) -> Matrix:
    """What is asked for of a matrix, and what it is held against."""
    return with_baselines(whole, campaign.narrow(whole, phase, only))


def _checked(small: Plan, text: str, tree: ResultTree, phase: str | None, only: str | None) -> Matrix:
    """Measure what is asked for of a derived plan, kept as ``text``; gives that part of its matrix."""
    files = _texts(small)
    whole = _expanded(small, files)
    matrix = _pairs(whole, phase, only)
    console = Console(stderr=True, highlight=False)
    for note in dict.fromkeys(f"! {drop.service}: {drop.why}" for drop in whole.dropped):
        console.print(note, soft_wrap=True)
    with tree.locked():
        outcome = _campaign(matrix, text, files, tree, console)
    console.print(outcome_text(outcome), soft_wrap=True)
    return matrix


def _campaign(
    matrix: Matrix,
    text: str,
    files: Mapping[str, str],
    tree: ResultTree,
    console: Console,
    keep_failed: bool = False,
    again_flagged: bool = False,
) -> campaign.Outcome:
    with Progress(console, sum(len(service.cells) for service in matrix.services)) as progress:
        running = campaign.Campaign(matrix, tree, Local(), progress, files, keep_failed, again_flagged)
        try:
            return running.run(text)
        except KeyboardInterrupt:
            console.print(
                f"{outcome_text(running.outcome)}; the same command goes on from here", soft_wrap=True
            )
            raise


def _read(path: Path) -> tuple[Plan, str]:
    """A plan from a file, checked against the file system, and its text."""
    text = _text(str(path), "`draftmark init` writes a plan")
    plan = read_plan(text, str(path))
    check_paths(text, str(path), lambda name: Path(name).expanduser().exists(), staging.located)
    return plan, text


def _texts(plan: Plan) -> dict[str, str]:
    """Text of the files that a plan names, by its word."""
    return {name: _text(name) for name in sorted(named_files(plan))}


def _text(name: str, if_missing: str = "") -> str:
    try:
        return Path(name).expanduser().read_text()
    except FileNotFoundError:
        raise BadInput(f"{name}: no such file", if_missing) from None
    except IsADirectoryError:
        raise BadInput(f"{name}: is a directory", "give a file in it") from None
    except UnicodeDecodeError:
        raise BadInput(f"{name}: is not a text file") from None
    except OSError as error:
        raise BadInput(f"{name}: cannot read: {error.strerror}") from error


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
