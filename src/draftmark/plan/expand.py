"""Plan → Matrix: which servers are started, in which order, and what is measured on each."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import groupby, product
from types import MappingProxyType
from typing import Any

import msgspec

from draftmark.metrics import FEWEST_PROMPTS
from draftmark.plan.grid import cell_tokens, cells_of, streams, tokens
from draftmark.plan.methods import baseline_of, expand_methods
from draftmark.plan.select import Facets, dropped_because, facets
from draftmark.schema import (
    SCENARIOS,
    AgenticWorkload,
    Cell,
    Dropped,
    Host,
    Matrix,
    Method,
    Plan,
    Service,
    TraceWorkload,
)

MEASUREMENT = 1
"""Version of the way of measuring; raised when it changes, so that old numbers are not mixed with new."""

CONTEXT_STEP = 256
"""Tokens in which the longest request is counted, so that a slightly longer one is served alike."""

AGAIN = "-again"
"""What the id of a baseline ends in where it is measured once more, to tell drift."""

LOCAL = "local"
"""Name of the machine that draftmark runs on, where a plan lists no hosts."""

READY_TIMEOUT_S = {"llamacpp": 120.0, "attach": 30.0}
READY_TIMEOUT_OTHERS_S = 900.0
"""Large weights on many GPUs, and kernels that are compiled at the first start."""


def scenario_files(plan: Plan) -> set[str]:
    """The scenarios that a plan names by their path."""
    agentic = (workload for workload in plan.workloads if isinstance(workload, AgenticWorkload))
    return {name for workload in agentic for name in workload.scenarios} - set(SCENARIOS)


def named_files(plan: Plan) -> set[str]:
    """What is to be read for a plan, by its word: scenarios, traces, and an attached server's tokenizer."""
    traces = {workload.file for workload in plan.workloads if isinstance(workload, TraceWorkload)}
    own = plan.engine.kind == "attach" and plan.model.tokenizer
    return scenario_files(plan) | traces | ({own} if own else set())


def covered(plan: Plan, texts: Mapping[str, str]) -> dict[str, str]:
    """What hashes cover of the files that a plan names: a scenario's text, a digest of what may be large."""
    whole = scenario_files(plan)
    return {
        name: text if name in whole else sha256(text.encode()).hexdigest() for name, text in texts.items()
    }


def expand(plan: Plan, files: Mapping[str, str] = MappingProxyType({})) -> Matrix:
    """The plan's services in the order in which they run, each with the cells that ``select`` leaves it.

    One phase per host and tensor-parallel degree; in a phase the baseline first, then the plan's order, and
    with ``drift`` some of the baseline's cells again.
    A hash says what a stored number depends on: what is appended to a plan leaves earlier hashes alone,
    unless a server's own limits (longest request, most streams) grow with it.

    Args:
        files: what :func:`covered` gives of the files that the plan names; a cell's hash has its part.
    """
    cells = cells_of(plan)
    services, dropped = [], []
    for host, tp, method in arms(plan):
        service = _service(plan, host, tp, method, cells)
        kept = []
        for cell in cells:
            why = _impossible(plan, service) or dropped_because(plan.select, _facets(service, cell))
            if why is None:
                kept.append(_sealed(cell, service, files))
            else:
                dropped.append(Dropped(service=service.id, cell=cell.id, phase=service.phase, why=why))
        if kept:
            services.append(msgspec.structs.replace(service, cells=tuple(kept)))
    if plan.drift:
        services = [
            service
            for _, phase in groupby(services, key=lambda service: service.phase)
            for service in _with_repeat(tuple(phase), files)
        ]
    return Matrix(plan=plan, services=tuple(services), dropped=tuple(dropped))


def grid_facets(plan: Plan) -> list[Facets]:
    """What rules can ask of each cell of the full grid."""
    cells = cells_of(plan)
    return [facets(host, tp, method.name, cell) for host, tp, method in arms(plan) for cell in cells]


def notes(matrix: Matrix) -> tuple[str, ...]:
    """What a person should know before the campaign runs, though nothing is wrong."""
    return (*_uncompared(matrix), *_few(matrix))


def _uncompared(matrix: Matrix) -> Iterator[str]:
    name = baseline_of(matrix.plan)
    if name is None:
        yield "no baseline: nothing is compared; name one with 'baseline:'"
        return
    for phase in matrix.phases:
        if not any(service.baseline and service.phase == phase for service in matrix.services):
            yield f"{phase}: the baseline '{name}' does not run, so nothing is compared there"


def _few(matrix: Matrix) -> Iterator[str]:
    """Sessions and prompts that are too few to be ranked, whatever they show."""
    cells = {cell.id: cell for service in matrix.services for cell in service.cells}
    prompts = {name: cell.repetitions if cell.turns else cell.most_requests for name, cell in cells.items()}
    if few := [name for name, count in prompts.items() if count < FEWEST_PROMPTS]:
        yield (
            f"{', '.join(few)}: fewer than {FEWEST_PROMPTS} different prompts, so flagged few-samples and "
            "not ranked; raise 'repetitions' or 'requests'"
        )


def arms(plan: Plan) -> Iterator[tuple[str, int, Method]]:
    """(host, degree, method) in the order in which they run."""
    baseline = baseline_of(plan)
    methods = sorted(expand_methods(plan), key=lambda method: method.name != baseline)
    return product(plan.hosts or {LOCAL: Host()}, plan.tensor_parallel, methods)


def _service(plan: Plan, host: str, tp: int, method: Method, cells: tuple[Cell, ...]) -> Service:
    prefix = f"{host}-" if len(plan.hosts) > 1 else ""
    server, kind = plan.server, plan.engine.kind
    longest = max(*map(cell_tokens, cells), tokens(server.context_needed or 0))
    service = Service(
        id=f"{prefix}{kind}-tp{tp}-{method.name}",
        phase=f"{prefix}tp{tp}",
        host=host,
        tp=tp,
        engine=plan.engine,
        model=plan.model,
        method=method,
        context_length=None if server.context_length is None else tokens(server.context_length),
        context_needed=-(-longest // CONTEXT_STEP) * CONTEXT_STEP,
        memory_fraction=memory_fraction(plan, tp),
        max_running_requests=server.max_running_requests or streams(cells),
        threads=server.threads,
        ready_timeout_s=server.ready_timeout_s or READY_TIMEOUT_S.get(kind, READY_TIMEOUT_OTHERS_S),
        args=server.args | method.args,
        env=plan.engine.env | method.env,
        baseline=method.name == baseline_of(plan),
    )
    address = plan.hosts.get(host, Host()).address
    return msgspec.structs.replace(service, hash=_service_hash(service, address))


def _with_repeat(phase: Sequence[Service], files: Mapping[str, str]) -> Iterator[Service]:
    """A phase's services, then its baseline again: of each kind of workload one cell that others have too."""
    yield from phase
    first, *others = phase
    theirs = {cell.id for other in others for cell in other.cells}
    kinds: dict[str, list[Cell]] = defaultdict(list)
    for cell in first.cells:
        if first.baseline and cell.id in theirs:
            kinds[cell.workload].append(cell)
    if kinds:
        again = msgspec.structs.replace(first, id=f"{first.id}{AGAIN}", repeats=first.id, baseline=False)
        cells = tuple(_sealed(_middling(cells), again, files) for cells in kinds.values())
        yield msgspec.structs.replace(again, cells=cells)


def _middling(cells: Iterable[Cell]) -> Cell:
    """The cell of middling size, of two the smaller.

    The lightest load would miss a machine that slows down only under heat, and the heaviest cost the most.
    """
    ordered = sorted(cells, key=lambda cell: cell.requests * cell_tokens(cell))
    return ordered[(len(ordered) - 1) // 2]


def memory_fraction(plan: Plan, tp: int) -> float | None:
    """The share of GPU memory that a server of this degree may take; None leaves it to the engine."""
    given = plan.server.memory_fraction
    return given.get(f"tp{tp}", given.get("default")) if isinstance(given, dict) else given


def _facets(service: Service, cell: Cell) -> Facets:
    return facets(service.host, service.tp, service.method.name, cell)


def _impossible(plan: Plan, service: Service) -> str | None:
    gpus = plan.hosts.get(service.host, Host()).gpus
    if gpus is None or service.tp <= max(gpus, 1):
        return None
    return f"tensor parallelism of {service.tp} needs as many GPUs, and {service.host} has {gpus}"


def _service_hash(service: Service, address: str | None) -> str:
    """Over what the server does, not over what it is called or when it runs."""
    engine, model, method = map(msgspec.to_builtins, (service.engine, service.model, service.method))
    return _digest(
        {
            "host": address,
            "engine": _without(engine, "env", "api_key_env"),
            "model": _without(model, "draft", "served_name"),
            "method": _without(method, "name", "args", "env"),
            "tp": service.tp,
            "context": service.context_length or service.context_needed,
            "memory_fraction": service.memory_fraction,
            "max_running_requests": service.max_running_requests,
            "threads": service.threads,
            "args": service.args,
            "env": service.env,
        }
    )


def _sealed(cell: Cell, service: Service, files: Mapping[str, str]) -> Cell:
    cell = msgspec.structs.replace(cell, control=service.baseline)
    spec = _without(msgspec.to_builtins(cell), "id", "hash")
    named = {
        "scenario": files.get(cell.scenario or ""),
        "trace": files.get(cell.trace or ""),
        "tokenizer": files.get(service.model.tokenizer or ""),
    }
    whole = {"measurement": MEASUREMENT, "service": service.hash, "cell": spec, **_without(named)}
    return msgspec.structs.replace(cell, hash=_digest(whole))


def _without(data: dict[str, Any], *keys: str) -> dict[str, Any]:
    """The rest that is given: optional keys that a later version adds leave old hashes alone."""
    return {key: value for key, value in data.items() if key not in keys and value not in (None, {}, ())}


def _digest(data: dict[str, Any]) -> str:
    """First 16 hex digits of the SHA-256 of canonical JSON."""
    return sha256(msgspec.json.encode(data, order="deterministic")).hexdigest()[:16]
