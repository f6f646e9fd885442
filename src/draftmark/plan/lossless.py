"""A smaller plan on the same servers that only asks whether speculation changes the greedy output."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from draftmark.errors import BadInput
from draftmark.plan.expand import arms, expand
from draftmark.plan.grid import SHORT_PROMPT_TOKENS, cells_of, streams, tokens
from draftmark.schema import (
    PROMPT_KINDS,
    Api,
    ConcurrencyWorkload,
    Match,
    Matrix,
    Method,
    Plan,
    PromptKind,
    PromptsWorkload,
    Rule,
)

MAX_TOKENS = 128
"""Of an answer, where the plan has no prompts of its own: room for drafts of every length."""
PROMPTS = 2
"""Of each kind."""


def lossless_plan(
    plan: Plan, *, kinds: Sequence[PromptKind] = (), max_tokens: int | None = None, prompts: int = PROMPTS
) -> Plan:
    """A plan of one workload, ``prompts`` of each kind at temperature 0, for every server of ``plan``.

    Servers have as many slots as the plan gives them, since another batch shape rounds differently; the
    requests come one at a time.

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
    slots = plan.server.max_running_requests or streams(cells_of(plan))
    return replace(
        plan,
        name=f"{plan.name}-lossless",
        description=f"Does speculation change the greedy output of {plan.name}?",
        server=replace(plan.server, max_running_requests=slots),
        workloads=(PromptsWorkload(prompts=asked, max_tokens=(limit,), repetitions=prompts, api=api),),
        select=tuple(_left_out(plan)),
        slo=None,
    )


def with_baselines(whole: Matrix, part: Matrix) -> Matrix:
    """The part of a matrix whose outputs are asked about, with the baselines' cells to hold them against.

    Raises BadInput where it has baselines alone.
    """
    kept = {one.id: one for one in part.services if not one.baseline and one.repeats is None}
    wanted: defaultdict[tuple[str, int], set[str]] = defaultdict(set)
    for service in kept.values():
        wanted[service.host, service.tp] |= {cell.id for cell in service.cells}
    if not kept:
        raise BadInput("no method but the baseline: nothing to compare with it")
    services = []
    for service in whole.services:
        if service.baseline and service.repeats is None:
            cells = tuple(cell for cell in service.cells if cell.id in wanted[service.host, service.tp])
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


def _left_out(plan: Plan) -> Iterator[Rule]:
    """What ``select`` leaves no cell at all, and what is simulated."""
    started = {(one.host, one.tp, one.method.name) for one in expand(plan).services}
    for host, tp, method in arms(plan):
        match = Match(host=host, tp=tp, method=method.name)
        if simulated(method):
            yield Rule(drop=match, why="its acceptance is simulated, which changes the output by design")
        elif (host, tp, method.name) not in started:
            yield Rule(drop=match, why=f"{plan.name} has no cell for it")
