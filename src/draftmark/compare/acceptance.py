"""How far a method's steps get, by what it was asked: prompt kind, turn, context depth, draft position.

Acceptance is a matter of text and drafter. Flags about time leave it true; flags that make the text or the
acceptance itself untrue leave a cell out.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from math import fsum
from typing import Literal

from draftmark import stats
from draftmark.compare.intervals import estimate
from draftmark.compare.pairs import Side
from draftmark.schema import (
    Acceptance,
    Cell,
    Estimate,
    FlagKind,
    Positions,
    RequestRecord,
    Service,
    Speculation,
    WorkloadKind,
)

UNTRUE: frozenset[FlagKind] = frozenset({"synthetic", "degenerate", "no-draft"})

By = Literal["kind", "turn", "context"]
Slice = tuple[WorkloadKind, By, str | int]
Part = tuple[str | None, int, int]
"""(prompt, tokens, steps); the prompt is None for the sum over a cell."""


def acceptance(service: Service, cells: Sequence[Side]) -> Iterator[Acceptance]:
    """The service's acceptance length on each slice of its workloads."""
    parts: dict[Slice, list[Part]] = defaultdict(list)
    units: dict[Slice, int] = defaultdict(int)
    for side in _true(cells):
        for where, part in _parts(side):
            parts[where].append(part)
            units[where] += side.result.cell.requests if part[0] is None else 0
    for where, found in parts.items():
        workload, by, value = where
        yield Acceptance(
            service=service.id,
            method=service.method.name,
            workload=workload,
            by=by,
            value=value,
            tau=_tau(found, units[where]),
            steps=sum(steps for _, _, steps in found),
        )


def positions(service: Service, cells: Sequence[Side]) -> Iterator[Positions]:
    """The share of drafts that were accepted at each position, where the engine counts them."""
    told: dict[WorkloadKind, list[Speculation]] = defaultdict(list)
    for side in _true(cells):
        found = side.result.speculation
        if found and found.accepted_per_position and (found.draft_steps or found.steps):
            told[side.result.cell.workload].append(found)
    for workload, parts in told.items():
        steps = sum(part.draft_steps or part.steps or 0 for part in parts)
        columns = zip_longest(*(part.accepted_per_position for part in parts), fillvalue=0)
        yield Positions(
            service=service.id,
            method=service.method.name,
            workload=workload,
            accepted=tuple(sum(column) / steps for column in columns),
            steps=steps,
        )


def _true(cells: Sequence[Side]) -> Iterator[Side]:
    return (side for side in cells if UNTRUE.isdisjoint(flag.kind for flag in side.result.flags))


def _parts(side: Side) -> Iterator[tuple[Slice, Part]]:
    """Of each request if every one that decoded tells, else of the cell where it is one slice as a whole."""
    cell = side.result.cell
    decoded = [record for record in side.of("measured") if record.output_tokens != 1]
    told = [(record, counted) for record in decoded if (counted := _counted(record.speculation))]
    if told and len(told) == len(decoded):
        for record, (tokens, steps) in told:
            for by, value in _slices(cell, record):
                yield (cell.workload, by, value), (record.prompt_id, tokens, steps)
    elif counted := _counted(side.result.speculation):
        for by, value in _whole(cell):
            yield (cell.workload, by, value), (None, *counted)


def _counted(speculation: Speculation | None) -> tuple[int, int] | None:
    """Tokens and steps; None where either is not known."""
    if speculation is None or not speculation.steps:
        return None
    if speculation.tokens is not None:
        return speculation.tokens, speculation.steps
    return (
        None
        if speculation.accepted is None
        else (speculation.steps + speculation.accepted, speculation.steps)
    )


def _slices(cell: Cell, record: RequestRecord) -> Iterator[tuple[By, str | int]]:
    """The slices that a request belongs to."""
    if record.turn is None:
        if cell.workload == "context":
            yield from _whole(cell)
        else:
            yield "kind", record.kind
        return
    yield "turn", record.turn
    if record.prompt_tokens:
        yield "context", 1 << (record.prompt_tokens.bit_length() - 1)


def _whole(cell: Cell) -> Iterator[tuple[By, str | int]]:
    """The slice that a cell is as a whole, if it is one."""
    if cell.length is not None:
        yield "context", cell.length
    elif len(cell.prompts) == 1:
        yield "kind", cell.prompts[0]


def _tau(parts: Sequence[Part], untold: int) -> Estimate:
    """All tokens over all steps, with an interval over prompts unless some prompts are only told in sum."""
    units: dict[str, list[Part]] = defaultdict(list)
    for part in parts:
        units[part[0] or ""].append(part)
    sums = [(fsum(p[1] for p in unit), fsum(p[2] for p in unit), 1.0, 1.0) for unit in units.values()]
    found = stats.total_ratio_interval(sums)
    if found is not None and not untold:
        return estimate(found)
    value = sum(part[1] for part in parts) / sum(part[2] for part in parts)
    return Estimate(value=value, n=untold + len(units.keys() - {""}))
