"""What a cell sends: the same for every service, fixed by the cell and the target's tokenizer alone."""

from collections.abc import Mapping, Sequence
from math import ceil
from types import MappingProxyType
from typing import Any, Literal

from msgspec import structs

from draftmark.errors import BadInput
from draftmark.schema import Cell, PromptKind, Request, Role, Work
from draftmark.workload.arrivals import arrivals
from draftmark.workload.contexts import context
from draftmark.workload.prompts import Prompt, prompt, sampling_seed, warmup
from draftmark.workload.sessions import Scenario, first_opening, scenario_of, session
from draftmark.workload.tokenizer import Tokenizer
from draftmark.workload.traces import check_trace, recorded

WARMUP_TOKENS = 64
"""Enough for every graph and kernel of decoding to have run."""
WARMUP_LENGTH = 8_000
"""Prompt tokens; beyond one chunk of every engine's prefill a longer prompt warms nothing more up."""


def work(
    cell: Cell,
    role: Literal["measured", "control"] = "measured",
    *,
    tokenizer: Tokenizer | None = None,
    files: Mapping[str, str] = MappingProxyType({}),
) -> Work:
    """Everything that a cell sends; as ``control`` what :func:`control_of` makes of it.

    Args:
        tokenizer: the target's own; asked for contexts, token-id prompts and Mooncake traces.
        files: text of the scenarios and traces that the plan names, by its word.

    Raises:
        BadInput: no prompt has the length, the tokenizer cannot be asked, or a file is wrong or missing.
    """
    match cell.workload:
        case "prompts" | "concurrency":
            made = _short(cell, tokenizer)
        case "context":
            made = _contexts(cell, _needed(cell, tokenizer))
        case "agentic":
            made = _sessions(cell, scenario_of(cell, files))
        case "trace":
            made = _recorded(cell, _trace_of(cell, files), tokenizer)
    return made if role == "measured" else control_of(made)


def check_files(cell: Cell, files: Mapping[str, str]) -> None:
    """Raise BadInput where a file that the cell needs is wrong, missing, or holds too little for it."""
    if cell.workload == "agentic":
        scenario_of(cell, files)
    elif cell.workload == "trace":
        check_trace(cell, _trace_of(cell, files))


def rounds(cell: Cell, whole: Work) -> tuple[Work, ...]:
    """A cell's work, without its warm-up, in the parts that are sent until enough is known."""
    if cell.max_requests is None:
        return (structs.replace(whole, warmup=()),)
    starts = range(0, len(whole.requests), cell.requests)
    return tuple(Work(requests=_from_zero(whole.requests[at : at + cell.requests])) for at in starts)


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


def margins_of(measured: Work) -> Work:
    """The measured requests once more, asking how close each choice was; not for timing."""
    return Work(
        requests=tuple(
            structs.replace(one, id=f"margins-{number}", role="margins", margins=True)
            for number, one in enumerate(measured.requests)
        )
    )


def prompts_used(cell: Cell) -> int:
    """How far a cell moves on in the sequence of each of its kinds."""
    return cell.repetitions if cell.turns else ceil(cell.most_requests / max(1, len(cell.prompts)))


def _short(cell: Cell, tokenizer: Tokenizer | None) -> Work:
    first = [warmup(kind, place, cell.seed) for kind, place in _places(cell, _warmups(cell))]
    asked = [prompt(kind, place, cell.seed) for kind, place in _places(cell, cell.most_requests)]
    requests = _timed(cell, _requests(cell, asked, tokenizer))
    return Work(warmup=_requests(cell, first, tokenizer, "warmup"), requests=requests)


def _contexts(cell: Cell, tokenizer: Tokenizer) -> Work:
    count = tokenizer.count_raw if cell.api else tokenizer.count
    length, seed = cell.length or 0, cell.seed
    places = range(cell.first_prompt, cell.first_prompt + cell.most_requests)
    short = min(length, WARMUP_LENGTH)
    first = [context(short, place, seed, count, warmup=True) for place in places[: _warmups(cell)]]
    asked = [context(length, place, seed, count) for place in places]
    return Work(
        warmup=_requests(cell, first, tokenizer, "warmup"), requests=_requests(cell, asked, tokenizer)
    )


def _recorded(cell: Cell, text: str, tokenizer: Tokenizer | None) -> Work:
    """A trace has no prompts to spare for a warm-up."""
    start = first_opening(cell.trace or "") + cell.first_prompt
    first = [warmup("agentic", start + number, cell.seed) for number in range(_warmups(cell))]
    requests = recorded(cell, text, lambda text: _needed(cell, tokenizer).encode(text, False))
    return Work(warmup=_requests(cell, first, tokenizer, "warmup"), requests=_timed(cell, requests))


def _trace_of(cell: Cell, files: Mapping[str, str]) -> str:
    name = cell.trace or ""
    if name not in files:
        raise BadInput(f"{cell.id}: the file {name} was not read", "run the plan again where it lies")
    return files[name]


def _needed(cell: Cell, tokenizer: Tokenizer | None) -> Tokenizer:
    if tokenizer is None:
        raise BadInput(
            f"{cell.id}: its prompts need the target's tokenizer",
            "use an engine with a tokenizer endpoint, or leave the cell out",
        )
    return tokenizer


def _sessions(cell: Cell, scenario: Scenario) -> Work:
    start = first_opening(cell.scenario or "") + cell.first_prompt
    first = [warmup("agentic", start + number, cell.seed) for number in range(_warmups(cell))]
    sessions = tuple(session(cell, scenario, number) for number in range(cell.repetitions))
    return Work(warmup=_requests(cell, first, None, "warmup"), sessions=sessions)


def _warmups(cell: Cell) -> int:
    """As many as run at once."""
    return min(cell.concurrency, cell.repetitions if cell.turns else cell.requests)


def _places(cell: Cell, count: int) -> list[tuple[PromptKind, int]]:
    """(kind, place in its sequence) of the first ``count`` requests, kinds taking turns."""
    kinds = cell.prompts
    return [(kinds[n % len(kinds)], cell.first_prompt + n // len(kinds)) for n in range(count)]


def _requests(
    cell: Cell, prompts: Sequence[Prompt], tokenizer: Tokenizer | None, role: Role = "measured"
) -> tuple[Request, ...]:
    """Prompts as requests of a cell, with a fixed length of answer."""
    limit = min(cell.max_tokens, WARMUP_TOKENS) if role == "warmup" else cell.max_tokens
    return tuple(
        Request(
            id=f"{role}-{number}",
            prompt_id=asked.id,
            kind=asked.id.partition("-")[0],
            role=role,
            **_sent(cell, asked, tokenizer),
            max_tokens=limit,
            temperature=cell.temperature,
            seed=sampling_seed(asked.id),
        )
        for number, asked in enumerate(prompts)
    )


def _sent(cell: Cell, asked: Prompt, tokenizer: Tokenizer | None) -> dict[str, Any]:
    """The field of a request that holds the prompt."""
    if cell.api is None:
        return {"messages": asked.messages}
    if cell.api == "completions":
        return {"prompt": asked.text}
    return {"prompt": tuple(_needed(cell, tokenizer).encode(asked.text, True))}


def _from_zero(requests: Sequence[Request]) -> tuple[Request, ...]:
    """The same, an open loop's times counted from the first one."""
    start = requests[0].send_at_s
    if start is None:
        return tuple(requests)
    return tuple(structs.replace(one, send_at_s=(one.send_at_s or 0.0) - start) for one in requests)


def _timed(cell: Cell, requests: tuple[Request, ...]) -> tuple[Request, ...]:
    """The same with the times at which to send them, where the cell has a rate."""
    if cell.rate is None:
        return requests
    key = f"{cell.seed}/{cell.id}"
    times = arrivals(len(requests), cell.rate, cell.arrival or "poisson", cell.burstiness, key)
    return tuple(structs.replace(one, send_at_s=at) for one, at in zip(requests, times, strict=True))
