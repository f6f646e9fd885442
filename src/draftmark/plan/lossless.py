"""A smaller plan on the same servers that only asks whether speculation changes the greedy output."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from draftmark.errors import BadInput
from draftmark.plan.expand import arms, expand
from draftmark.plan.grid import SHORT_PROMPT_TOKENS, tokens
from draftmark.schema import (
    PROMPT_KINDS,
    Api,
    ConcurrencyWorkload,
    Match,
    Matrix,
    Method,
    Place,
    Plan,
    PromptKind,
    PromptsWorkload,
    Rule,
    ServerSpec,
    Service,
)

MAX_TOKENS = 128
"""Of an answer, where the plan has no prompts of its own: room for drafts of every length."""
PROMPTS = 2
"""Of each kind."""


def lossless_plan(
    plan: Plan, *, kinds: Sequence[PromptKind] = (), max_tokens: int | None = None, prompts: int = PROMPTS
) -> Plan:
    """A plan of one workload, ``prompts`` of each kind at temperature 0, for every server of ``plan``.

    Servers have the slots and the context that the plan gives them, since another batch shape or another
    kernel's split rounds differently; the requests come one at a time.

    Args:
        kinds: the plan's own when not given, all five where it has none.
        max_tokens: the smallest that the plan's prompts have when not given.

    Raises:
        BadInput: there is no baseline or no method to hold against it, or a request would not fit.
    """
    if plan.baseline is None:
        raise BadInput("no baseline: nothing to compare an output with", "name a method with 'baseline:'")
    own = [one for one in plan.workloads if isinstance(one, PromptsWorkload | ConcurrencyWorkload)]
    limit = max_tokens or min((size for one in own for size in _sizes(one)), default=MAX_TOKENS)
    _check_fits(plan, limit)
    api: Api = own[0].api if own else "chat"
    asked = tuple(kinds) or tuple(dict.fromkeys(kind for one in own for kind in one.prompts)) or PROMPT_KINDS
    services = expand(plan).services
    return replace(
        plan,
        name=f"{plan.name}-lossless",
        description=f"Does speculation change the greedy output of {plan.name}?",
        server=_settled(plan.server, services[0]),
        workloads=(PromptsWorkload(prompts=asked, max_tokens=(limit,), repetitions=prompts, api=api),),
        select=tuple(_left_out(plan, services)),
        drift=False,
        slo=None,
    )


def with_baselines(whole: Matrix, part: Matrix) -> Matrix:
    """The part of a matrix whose outputs are asked about, with the baselines' cells to hold them against.

    Raises BadInput where it has baselines alone.
    """
    kept = {one.id: one for one in part.services if not one.baseline and one.repeats is None}
    wanted: defaultdict[Place, set[str]] = defaultdict(set)
    for service in kept.values():
        wanted[service.place] |= {cell.id for cell in service.cells}
    if not kept:
        raise BadInput("no method but the baseline: nothing to compare with it")
    services = []
    for service in whole.services:
        if whole.baselines.get(service.place) == service:
            cells = tuple(cell for cell in service.cells if cell.id in wanted[service.place])
            services.append(replace(service, cells=cells))
        elif service.id in kept:
            services.append(kept[service.id])
    return replace(part, services=tuple(service for service in services if service.cells))


def simulated(method: Method) -> bool:
    """Whether its acceptance is made up, which changes the output by design."""
    return any(name.startswith("synthetic") for name in method.params)


def _sizes(workload: PromptsWorkload | ConcurrencyWorkload) -> Iterator[int]:
    given = workload.max_tokens
    return map(tokens, given if isinstance(given, tuple) else (given,))


def _check_fits(plan: Plan, max_tokens: int) -> None:
    room = plan.server.context_length
    if room is not None and SHORT_PROMPT_TOKENS + max_tokens > tokens(room):
        raise BadInput(
            f"server.context_length: {tokens(room)} tokens are too few for a prompt and {max_tokens} more",
            f"up to {SHORT_PROMPT_TOKENS} are set aside for the prompt; raise it, or ask for fewer --tokens",
        )


def _settled(server: ServerSpec, service: Service) -> ServerSpec:
    """What the plan's workloads decide of every server, spelled out for workloads that ask for less."""
    needed = service.context_needed if server.context_length is None else None
    return replace(server, max_running_requests=service.max_running_requests, context_needed=needed)


def _left_out(plan: Plan, services: Sequence[Service]) -> Iterator[Rule]:
    """What ``select`` leaves no cell, what is simulated, and baselines that nothing is held against."""
    started = {(*one.place, one.method.name) for one in services}
    methods = [one for one in services if not one.baseline and not simulated(one.method)]
    compared = {one.place for one in methods if one.repeats is None}
    for host, tp, method in arms(plan):
        match = Match(host=host, tp=tp, method=method.name)
        if simulated(method):
            yield Rule(drop=match, why="its acceptance is simulated, which changes the output by design")
        elif (host, tp, method.name) not in started:
            yield Rule(drop=match, why=f"{plan.name} has no cell for it")
        elif (host, tp) not in compared:
            yield Rule(drop=match, why="no method to compare with it")
