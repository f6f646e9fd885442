"""The cells of a plan's workloads: the same for every service, before ``select`` narrows them."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from math import ceil
from pathlib import PurePosixPath
from typing import Any

import msgspec

from draftmark.schema import (
    AgenticWorkload,
    Cell,
    ConcurrencyWorkload,
    ContextWorkload,
    Plan,
    PromptKind,
    PromptsWorkload,
    RawApi,
    TraceWorkload,
    Workload,
)

SHORT_PROMPT_TOKENS = 1024
"""Room for a prompt of the five kinds, or for what one turn adds to a session."""
OPEN_LOOP_STREAMS = 64
"""Requests that a server may run at once where arrivals do not wait and the plan sets no limit."""
FEWEST_REQUESTS = 16
OPEN_LOOP_S = 30
_UNNAMELY = re.compile(r"[^A-Za-z0-9._-]+")


def tokens(count: int | str) -> int:
    """A token count as a number: ``'2.5k'`` is 2500."""
    return count if isinstance(count, int) else round(float(count.removesuffix("k")) * 1000)


def short(count: int) -> str:
    """A token count as it stands in an id: ``3k`` for 3000, ``4096`` for 4096."""
    return f"{count // 1000}k" if count % 1000 == 0 else str(count)


def cells_of(plan: Plan) -> tuple[Cell, ...]:
    """Every cell of the full grid in the plan's order, each with prompts of its own.

    Prompts are dealt out in this order, so what is appended to a plan leaves earlier prompts alone.
    """
    dealt: Counter[str] = Counter()
    return tuple(_deal(cell, dealt) for _, cell in undealt(plan))


def undealt(plan: Plan) -> Iterator[tuple[int, Cell]]:
    """(index of the workload, cell) for the full grid; prompts are not dealt out yet."""
    for index, workload in enumerate(plan.workloads):
        for cell in _cells(workload):
            yield index, msgspec.structs.replace(cell, seed=plan.seed)


def cell_tokens(cell: Cell) -> int:
    """Prompt and output tokens of a cell's longest request."""
    if cell.turns is not None:
        return cell.turns * (SHORT_PROMPT_TOKENS + cell.max_tokens)
    return (cell.length or cell.longest or SHORT_PROMPT_TOKENS) + cell.max_tokens


def streams(cells: Sequence[Cell]) -> int:
    """Requests that a server must be able to run at once for all of these cells."""
    return max(OPEN_LOOP_STREAMS if cell.open_loop else cell.concurrency for cell in cells)


def _deal(cell: Cell, dealt: Counter[str]) -> Cell:
    """Give the cell the next prompts that none of its kinds has dealt yet."""
    kinds = cell.prompts or (cell.scenario or cell.trace or cell.workload,)
    taken = cell.repetitions if cell.turns else ceil(cell.most_requests / len(kinds))
    first = max(dealt[kind] for kind in kinds)
    dealt |= Counter(dict.fromkeys(kinds, first + taken))
    return msgspec.structs.replace(cell, first_prompt=first)


def _cells(workload: Workload) -> Iterator[Cell]:
    match workload:
        case PromptsWorkload():
            return _prompts_cells(workload)
        case ConcurrencyWorkload():
            return _concurrency_cells(workload)
        case ContextWorkload():
            return _context_cells(workload)
        case AgenticWorkload():
            return _agentic_cells(workload)
        case TraceWorkload():
            return _trace_cells(workload)


def _prompts_cells(workload: PromptsWorkload) -> Iterator[Cell]:
    for kind in workload.prompts:
        for limit in map(tokens, workload.max_tokens):
            yield Cell(
                id=f"{kind}-{limit}{_raw(workload)}{_warmth(workload)}",
                workload="prompts",
                prompts=(kind,),
                max_tokens=limit,
                repetitions=workload.repetitions,
                requests=workload.repetitions,
                precision=workload.precision,
                max_requests=workload.max_repetitions,
                api=_api(workload),
                temperature=workload.temperature,
            )


def _concurrency_cells(workload: ConcurrencyWorkload) -> Iterator[Cell]:
    limit = tokens(workload.max_tokens)
    suffix = f"-{limit}{_only(workload.prompts)}{_raw(workload)}{_warmth(workload)}"
    for level in workload.levels:
        yield Cell(
            id=f"c{level}{suffix}",
            workload="concurrency",
            prompts=workload.prompts,
            max_tokens=limit,
            concurrency=level,
            requests=workload.requests or max(FEWEST_REQUESTS, 4 * level),
            precision=workload.precision,
            max_requests=workload.max_requests,
            api=_api(workload),
            temperature=workload.temperature,
        )
    for rate in workload.rates:
        yield Cell(
            id=f"r{rate:g}{suffix}",
            workload="concurrency",
            prompts=workload.prompts,
            max_tokens=limit,
            rate=rate,
            arrival=workload.arrival,
            burstiness=workload.burstiness,
            requests=workload.requests or max(FEWEST_REQUESTS, ceil(OPEN_LOOP_S * rate)),
            precision=workload.precision,
            max_requests=workload.max_requests,
            api=_api(workload),
            temperature=workload.temperature,
        )


def _context_cells(workload: ContextWorkload) -> Iterator[Cell]:
    limit, requests = tokens(workload.max_tokens), workload.repetitions * workload.concurrency
    most = workload.max_repetitions
    for length in map(tokens, workload.lengths):
        yield Cell(
            id=f"ctx-{short(length)}-{limit}{_crowd(workload)}{_raw(workload)}{_warmth(workload)}",
            workload="context",
            max_tokens=limit,
            repetitions=requests,
            concurrency=workload.concurrency,
            requests=requests,
            precision=workload.precision,
            max_requests=most and most * workload.concurrency,
            api=_api(workload),
            length=length,
            temperature=workload.temperature,
        )


def _agentic_cells(workload: AgenticWorkload) -> Iterator[Cell]:
    sessions = workload.repetitions * workload.concurrency
    for scenario in workload.scenarios:
        yield Cell(
            id=f"agentic-{_stem(scenario)}{_crowd(workload)}{_warmth(workload)}",
            workload="agentic",
            max_tokens=tokens(workload.max_tokens),
            repetitions=sessions,
            concurrency=workload.concurrency,
            requests=sessions * workload.turns,
            scenario=scenario,
            turns=workload.turns,
            temperature=workload.temperature,
        )


def _trace_cells(workload: TraceWorkload) -> Iterator[Cell]:
    every = Cell(
        id=f"trace-{_stem(workload.file)}",
        workload="trace",
        max_tokens=tokens(workload.max_tokens),
        requests=workload.requests,
        trace=workload.file,
        format=workload.format,
        longest=tokens(workload.longest),
        temperature=workload.temperature,
    )
    for name, own in _loads(workload):
        yield msgspec.structs.replace(every, id=f"{every.id}-{name}{_warmth(workload)}", **own)


def _loads(workload: TraceWorkload) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and fields of each way of sending a trace."""
    for level in workload.levels:
        yield f"c{level}", {"concurrency": level}
    for rate in workload.rates:
        arrivals = {"arrival": workload.arrival, "burstiness": workload.burstiness}
        yield f"r{rate:g}", {"rate": rate, **arrivals}
    if workload.speedup is not None:
        yield f"x{workload.speedup:g}", {"speedup": workload.speedup}


def _api(workload: PromptsWorkload | ConcurrencyWorkload | ContextWorkload) -> RawApi | None:
    """How prompts are sent, if not as a chat."""
    return None if workload.api == "chat" else workload.api


def _raw(workload: PromptsWorkload | ConcurrencyWorkload | ContextWorkload) -> str:
    return f"-{workload.api}" if workload.api != "chat" else ""


def _stem(path: str) -> str:
    """A file's name without folders and ending, as it can stand in an id."""
    return _UNNAMELY.sub("-", PurePosixPath(path).stem)


def _only(prompts: Sequence[PromptKind]) -> str:
    return f"-{prompts[0]}" if len(prompts) == 1 else ""


def _crowd(workload: ContextWorkload | AgenticWorkload) -> str:
    return f"-c{workload.concurrency}" if workload.concurrency > 1 else ""


def _warmth(workload: Workload) -> str:
    return f"-t{workload.temperature:g}" if workload.temperature else ""
