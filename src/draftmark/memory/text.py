"""A plan in words."""

from collections.abc import Iterable, Iterator

from draftmark.memory.check import Reported
from draftmark.memory.gpus import GIB
from draftmark.memory.types import Fit, Line, MemoryPlan

_SIGNS = {"has": " ", "takes": "-", "leaves": "=", "each": " "}
_MIB = 1 << 20


def memory_text(plan: MemoryPlan) -> Iterator[str]:
    """Lines for a person: the verdict, why, the sum, and what to change."""
    service = plan.service
    yield f"{service.id}: {verdict_text(plan)}"
    asked = f"{service.max_running_requests} requests of up to {plan.context:,} tokens"
    yield f"  {service.tp} × {plan.gpu.name}, {asked}"
    yield from (f"  not known: {what}" for what in plan.unknown)
    yield from (f"  {_line(line)}" for line in plan.fit.lines)
    yield from (f"  {line}" for line in _room(plan))
    yield from (f"  note: {note}" for note in plan.fit.notes)
    if plan.proposals:
        yield "  any one of these would fit:"
    for proposal in plan.proposals:
        caution = f"; {proposal.caution}" if proposal.caution else ""
        yield f"    {proposal.change}   ({_outcome(proposal.fit)}{caution})"


def verdict_text(plan: MemoryPlan) -> str:
    """The verdict in one line."""
    fit, asked = plan.fit, plan.service.max_running_requests
    if plan.verdict == "does not fit":
        return f"does not fit: {fit.failure}"
    if plan.verdict == "fits with less concurrency":
        return f"fits, but runs {fit.running} of {asked} requests at once: {fit.running_why}"
    return plan.verdict


def reported_text(pairs: Iterable[Reported]) -> Iterator[str]:
    """Lines that set what was predicted beside what the server reports."""
    for pair in pairs:
        error = "" if pair.error is None else f", {pair.error:+.1%}"
        predicted, said = (
            f"{_number(value)} {pair.unit}".strip() for value in (pair.predicted, pair.reported)
        )
        yield f"{pair.label}: {predicted} predicted, {said} reported{error}"


def _line(line: Line) -> str:
    amount = f"{line.bytes / GIB:8.2f} GiB" if line.kind != "each" else f"{_small(line.bytes):>12}"
    return f"{_SIGNS[line.kind]} {amount}  {line.label}: {line.how}"


def _small(size: float) -> str:
    return f"{size / _MIB:.1f} MiB" if size >= _MIB else f"{size:,.0f} B"


def _room(plan: MemoryPlan) -> Iterator[str]:
    """How far the KV cache reaches."""
    full, tokens = plan.full_length_requests, plan.fit.kv_tokens
    if full is None or tokens is None or plan.fit.running is None:
        return
    yield f"room for {tokens:,} tokens: {full:.1f} requests of {plan.context:,} tokens at once"
    if full < 1:
        yield f"a request longer than {tokens:,} tokens cannot be served"
    for cell in plan.service.cells:
        each = (cell.length or 0) + cell.max_tokens
        if cell.length and cell.concurrency * each > tokens:
            asked = f"{cell.concurrency} requests of {each:,} tokens do not fit at once"
            yield f"{cell.id}: {asked}; {tokens // each} do, the others wait"


def _outcome(fit: Fit) -> str:
    tokens = f", {fit.kv_tokens:,} KV tokens" if fit.kv_tokens is not None else ""
    return f"{fit.running} at once{tokens}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,.2f}"
