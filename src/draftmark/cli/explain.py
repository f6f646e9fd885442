"""Commands that explain without starting anything: will it fit, and why did it fail."""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, get_args

import click
import msgspec
import yaml

from draftmark import diagnose as diagnosis
from draftmark.campaign.budget import gpu_of, known_facts
from draftmark.cli.print import print_lines
from draftmark.engines import ENGINES
from draftmark.errors import EXIT_FAILED, BadInput, ResultError, nearest
from draftmark.hosts import Local
from draftmark.memory import GPUS, Gpu, gpu_named, memory_text, plan_memory
from draftmark.models.facts import ModelFacts, mismatches
from draftmark.plan import tokens
from draftmark.schema import Diagnosis, EngineKind, EngineSpec, Method, ModelSpec, Scalar, Service, TokenCount
from draftmark.store import ResultTree

FITTING = ("sglang", "vllm", "llamacpp")


def _length(_: click.Context, __: click.Parameter, text: str) -> int:
    try:
        return tokens(msgspec.convert(int(text) if text.isdecimal() else text, TokenCount))
    except ValueError:
        hint = "a positive number or thousands, such as 8192 or 30k"
        raise BadInput(f"--context: '{text}' is no number of tokens", hint) from None


@click.command()
@click.argument("model")
@click.option("--engine", type=click.Choice(FITTING), required=True)
@click.option("--gpu", help=f"Name or size such as 80GB [this machine's]. Known: {', '.join(GPUS)}.")
@click.option("--draft", help="Draft model, given as MODEL is.")
@click.option("--tp", type=click.IntRange(1), default=1, help="Tensor-parallel degree [1].")
@click.option("--method", default="none", help="Method kind, as in a plan [none].")
@click.option("--param", multiple=True, metavar="NAME=VALUE", help="Of the method: block_size=16.")
@click.option(
    "--context", default="32768", callback=_length, help="Tokens of one request, such as 8192 or 30k [32768]."
)
@click.option("--concurrency", type=click.IntRange(1), default=8, help="Requests at once [8].")
@click.option("--memory-fraction", type=click.FloatRange(0, 1, min_open=True), help="[the engine's own]")
@click.option("--arg", multiple=True, metavar="FLAG=VALUE", help="Engine flag: disable-radix-cache=true.")
@click.option("--engine-version", help="Versions count differently: 0.5.17.")
def memory(model: str, gpu: str | None, draft: str | None, **given: Any) -> None:
    """Say whether one configuration fits its GPUs: the sums, and what to change if not.

    MODEL is a folder with a config.json, a config.json, or a GGUF file; a hub id works if the hub's
    cache has it. Exit code 1 if it does not fit.

    \b
    draftmark memory ./Qwen3.6-27B --engine sglang --gpu RTX-PRO-6000 \\
        --method dflash --param block_size=16 --memory-fraction 0.75
    """
    target, drafter = _facts(model), _facts(draft) if draft else None
    for problem in mismatches(target, drafter) if drafter else ():
        click.echo(f"! {problem}", err=True)
    plan = plan_memory(_service(model, draft, **given), target, drafter, _gpu(gpu))
    print_lines(memory_text(plan))
    if plan.verdict not in ("fits", "fits with less concurrency"):
        sys.exit(EXIT_FAILED)


def _service(
    model: str,
    draft: str | None,
    *,
    engine: EngineKind,
    tp: int,
    method: str,
    param: tuple[str, ...],
    context: int,
    concurrency: int,
    memory_fraction: float | None,
    arg: tuple[str, ...],
    engine_version: str | None,
) -> Service:
    known = ENGINES[engine].METHODS
    if method not in known:
        raise BadInput(f"{engine} has no method '{method}'", nearest(method, known))
    params = dict(_pairs(param))
    for name in params:
        if name not in known[method].params:
            raise BadInput(f"{method} has no parameter '{name}'", nearest(name, known[method].params))
    return Service(
        id=f"{engine}-tp{tp}-{method}",
        phase=f"tp{tp}",
        host="local",
        tp=tp,
        engine=EngineSpec(kind=engine, version=engine_version),
        model=ModelSpec(target=model, draft=draft),
        method=Method(name=method, kind=method, draft=draft, params=params),
        context_length=context,
        context_needed=context,
        memory_fraction=memory_fraction,
        max_running_requests=concurrency,
        ready_timeout_s=1.0,
        args=dict(_pairs(arg)),
    )


def _pairs(given: Iterable[str]) -> Iterator[tuple[str, Scalar]]:
    """NAME=VALUE with the value as YAML has it."""
    for text in given:
        name, equals, value = text.partition("=")
        found = yaml.safe_load(value)
        if not equals or not isinstance(found, get_args(Scalar)):
            raise BadInput(f"'{text}': expected NAME=VALUE", "for example block_size=16")
        yield name, found


def _facts(name: str) -> ModelFacts:
    found = known_facts(name)
    if found is None:
        raise BadInput(
            f"model '{name}' is not on this machine", "give a folder, a config.json or a GGUF file"
        )
    return found


def _gpu(name: str | None) -> Gpu:
    if name:
        return gpu_named(name)
    found = gpu_of(Local().machine())
    if found is None:
        raise BadInput("this machine has no GPU that nvidia-smi lists", "say which one is meant with --gpu")
    return found


@click.command()
@click.argument("path", metavar="LOG|DIR", type=click.Path(path_type=Path))
@click.option("--engine", type=click.Choice(FITTING), help="Whose log it is [told from the log].")
def diagnose(path: Path, engine: str | None) -> None:
    """Say why a server failed, from any log, or from a service's folder in a result tree.

    Exit code 1 if it failed, 0 if nothing says that it did. Its warnings follow.
    """
    found, log, engine = _of_service(path, engine) if path.is_dir() else _of_log(path, engine)
    print_lines(diagnosis.explain(found) if found else ("nothing in it says that the server failed",))
    for warning in diagnosis.warnings(log, engine):
        print_lines(("", f"warning: {warning.summary}"))
    if found:
        sys.exit(EXIT_FAILED)


def _of_log(path: Path, engine: str | None) -> tuple[Diagnosis | None, str, str | None]:
    log = _log(path)
    if not log.strip():
        remedy = "look where the server's standard error went, or run its command by hand"
        empty = Diagnosis(cause=diagnosis.UNCLASSIFIED, summary="the log is empty", remedy=remedy)
        return empty, log, engine
    return diagnosis.diagnose(log, engine, None, ready=None), log, engine


def _of_service(folder: Path, engine: str | None) -> tuple[Diagnosis | None, str, str | None]:
    """What was stored, since it knows the exit status and whether the end was asked for."""
    stored = ResultTree(folder.parent).service(folder.name)
    if stored is None:
        raise ResultError(f"{folder}: no service.json", "give a log, or a service's folder of a result tree")
    log = folder / "server.log"
    return stored.diagnosis, _log(log) if log.exists() else "", engine or stored.service.engine.kind


def _log(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError as error:
        raise BadInput(f"{path}: cannot read: {error.strerror}") from error
