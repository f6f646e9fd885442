"""What a cell sends: the same for every service, fixed by the cell and the target's tokenizer alone."""

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Literal

from msgspec import structs

from draftmark.errors import BadInput
from draftmark.schema import Cell, PromptKind, Request, Role, Work
from draftmark.workload.arrivals import arrivals
from draftmark.workload.contexts import CountTokens, context
from draftmark.workload.prompts import Prompt, prompt, sampling_seed, warmup
from draftmark.workload.sessions import Scenario, first_opening, scenario_of, session

WARMUP_TOKENS = 64
"""Enough for every graph and kernel of decoding to have run."""
WARMUP_LENGTH = 8_000
"""Prompt tokens; beyond one chunk of every engine's prefill a longer prompt warms nothing more up."""


def work(
    cell: Cell,
    role: Literal["measured", "control"] = "measured",
    *,
    count_tokens: CountTokens | None = None,
    scenarios: Mapping[str, Scenario] | None = None,
) -> Work:
    """Everything that a cell sends; as ``control`` what :func:`control_of` makes of it.

    Args:
        count_tokens: prompt tokens of a chat in the target's own tokenizer; only ``context`` cells ask.
        scenarios: scenarios that do not ship with draftmark, by the name that the plan gives them.

    Raises:
        BadInput: no prompt has the length, or there is no such scenario or not with so many turns.
    """
    match cell.workload:
        case "prompts" | "concurrency":
            made = _short(cell)
        case "context":
            made = _contexts(cell, count_tokens)
        case "agentic":
            made = _sessions(cell, scenario_of(cell, scenarios or {}))
    return made if role == "measured" else control_of(made)


def control_of(measured: Work) -> Work:
    """The measured requests and sessions of a cell once more, under other ids; no warm-up."""
    return Work(
        requests=tuple(
            structs.replace(one, id=f"control-{number}", role="control")
            for number, one in enumerate(measured.requests)
        ),
        sessions=tuple(
            structs.replace(one, id=f"control-{number}", role="control")
            for number, one in enumerate(measured.sessions)
        ),
    )


def prompts_used(cell: Cell) -> int:
    """How far a cell moves on in the sequence of each of its kinds."""
    return cell.repetitions if cell.turns else ceil(cell.requests / max(1, len(cell.prompts)))


def _short(cell: Cell) -> Work:
    first = [warmup(kind, place, cell.seed) for kind, place in _places(cell, _warmups(cell))]
    asked = [prompt(kind, place, cell.seed) for kind, place in _places(cell, cell.requests)]
    requests = _requests(cell, asked)
    if cell.rate is not None:
        requests = _timed(cell, cell.rate, requests)
    return Work(warmup=_requests(cell, first, "warmup"), requests=requests)


def _contexts(cell: Cell, count_tokens: CountTokens | None) -> Work:
    if count_tokens is None or cell.length is None:
        raise BadInput(
            f"{cell.id}: contexts need the server to count tokens",
            "use an engine with a tokenizer endpoint, or leave 'context' out of the workloads",
        )
    length, seed, places = cell.length, cell.seed, range(cell.first_prompt, cell.first_prompt + cell.requests)
    short = min(length, WARMUP_LENGTH)
    first = [context(short, place, seed, count_tokens, warmup=True) for place in places[: _warmups(cell)]]
    asked = [context(length, place, seed, count_tokens) for place in places]
    return Work(warmup=_requests(cell, first, "warmup"), requests=_requests(cell, asked))


def _sessions(cell: Cell, scenario: Scenario) -> Work:
    start = first_opening(cell.scenario or "") + cell.first_prompt
    first = [warmup("agentic", start + number, cell.seed) for number in range(_warmups(cell))]
    sessions = tuple(session(cell, scenario, number) for number in range(cell.repetitions))
    return Work(warmup=_requests(cell, first, "warmup"), sessions=sessions)


def _warmups(cell: Cell) -> int:
    """As many as run at once."""
    return min(cell.concurrency, cell.repetitions if cell.turns else cell.requests)


def _places(cell: Cell, count: int) -> list[tuple[PromptKind, int]]:
    """(kind, place in its sequence) of the first ``count`` requests, kinds taking turns."""
    kinds = cell.prompts
    return [(kinds[n % len(kinds)], cell.first_prompt + n // len(kinds)) for n in range(count)]


def _requests(cell: Cell, prompts: Sequence[Prompt], role: Role = "measured") -> tuple[Request, ...]:
    """Prompts as requests of a cell, with a fixed length of answer."""
    limit = min(cell.max_tokens, WARMUP_TOKENS) if role == "warmup" else cell.max_tokens
    return tuple(
        Request(
            id=f"{role}-{number}",
            prompt_id=asked.id,
            kind=asked.id.partition("-")[0],
            role=role,
            messages=asked.messages,
            max_tokens=limit,
            temperature=cell.temperature,
            seed=sampling_seed(asked.id),
        )
        for number, asked in enumerate(prompts)
    )


def _timed(cell: Cell, rate: float, requests: tuple[Request, ...]) -> tuple[Request, ...]:
    """Requests of an open loop, with the times at which to send them."""
    key = f"{cell.seed}/{cell.id}"
    times = arrivals(len(requests), rate, cell.arrival or "poisson", cell.burstiness, key)
    return tuple(structs.replace(one, send_at_s=at) for one, at in zip(requests, times, strict=True))
