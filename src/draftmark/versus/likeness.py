"""Whether two campaigns measured the same thing, and what is known to have changed between them."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from draftmark.errors import ResultError
from draftmark.schema import CampaignResult, Cell, CellResult, Service
from draftmark.versus.types import Difference

Place = tuple[str, int, str]
"""Host, tensor-parallel degree and method: what makes two services counterparts."""

TOKENS = 0.05
"""Relative difference of tokens per request beyond which two cells did not do the same work."""
_CELL = (
    "workload", "prompts", "concurrency", "rate", "arrival", "burstiness", "length",
    "scenario", "turns", "first_prompt", "temperature", "seed",
)  # fmt: skip
_AROUND = ("hostname", "os", "memory_bytes")

Counterparts = tuple[tuple[Service, Service], ...]


def counterparts(before: CampaignResult, after: CampaignResult) -> Counterparts:
    """The services of both that are the same method at the same place; ResultError where there are none."""
    others = {_place(service): service for service in after.matrix.services if service.repeats is None}
    found = tuple(
        (service, others[_place(service)])
        for service in before.matrix.services
        if service.repeats is None and _place(service) in others
    )
    if not found:
        raise ResultError(
            "the two results have no service in common",
            f"before: {_listed(before)}; after: {_listed(after)}; names of methods and hosts must agree",
        )
    return found


def check_alike(
    before: CampaignResult, after: CampaignResult, pairs: Counterparts, allow: Collection[str]
) -> None:
    """Raise ResultError naming the first key that differs and is not allowed to.

    Args:
        allow: keys such as ``machine.cpu``, or their beginnings such as ``machine``.
    """
    for found in _unlike(before, after, pairs):
        if not any(found.key == key or found.key.startswith(f"{key}.") for key in allow):
            raise ResultError(
                f"the two results did not measure the same: {found.key} is {found.before} before and"
                f" {found.after} after",
                f"measure both alike, or allow it with --allow {found.key} if this is the change to judge",
            )


def changes(before: CampaignResult, after: CampaignResult, pairs: Counterparts) -> Iterator[Difference]:
    """What differs though the two can be compared: versions, settings, surroundings."""
    yield from _unlike(before, after, pairs)
    yield from _differing("draftmark", before.info.draftmark, after.info.draftmark)
    yield from _differing("GPU driver", _drivers(before.info.machine), _drivers(after.info.machine))
    for key in _AROUND:
        yield from _differing(f"machine.{key}", before.info.machine.get(key), after.info.machine.get(key))
    seen = set()
    for found in _settings(before, after, pairs):
        if found not in seen:
            seen.add(found)
            yield found


def _unlike(before: CampaignResult, after: CampaignResult, pairs: Counterparts) -> Iterator[Difference]:
    """Each key that must be the same and is not."""
    yield from _mappings("machine", _hardware(before.info.machine), _hardware(after.info.machine))
    first, second = pairs[0]
    yield from _differing("engine.kind", first.engine.kind, second.engine.kind)
    for key in ("target", "draft", "tokenizer"):
        yield from _differing(f"model.{key}", getattr(first.model, key), getattr(second.model, key))
    cells: dict[str, tuple[Cell, Cell]] = {}
    for one, other in pairs:
        yield from _methods(one, other)
        others = {cell.id: cell for cell in other.cells}
        cells |= {cell.id: (cell, others[cell.id]) for cell in one.cells if cell.id in others}
    for name, (cell, again) in cells.items():
        for key in _CELL:
            yield from _differing(f"cell.{key}", getattr(cell, key), getattr(again, key), f" ({name})")
        if abs(cell.max_tokens / again.max_tokens - 1) > TOKENS:
            yield from _differing("cell.max_tokens", cell.max_tokens, again.max_tokens, f" ({name})")
    yield from _tokens(before, after, pairs)


def _hardware(machine: Mapping[str, Any]) -> dict[str, Any]:
    """What a machine computes with."""
    gpus = [gpu.get("name") for gpu in machine.get("gpus") or ()]
    return {"cpu": machine.get("cpu"), "cores": machine.get("cores"), "gpus": gpus}


def _drivers(machine: Mapping[str, Any]) -> list[Any]:
    return sorted({gpu.get("driver") or "" for gpu in machine.get("gpus") or ()})


def _methods(one: Service, other: Service) -> Iterator[Difference]:
    name = f" ({one.method.name})"
    yield from _differing("method.kind", one.method.kind, other.method.kind, name)
    yield from _differing("method.draft", one.method.draft, other.method.draft, name)
    yield from _mappings("method", one.method.params, other.method.params, name)


def _tokens(before: CampaignResult, after: CampaignResult, pairs: Counterparts) -> Iterator[Difference]:
    """Tokens per request that were measured; sessions end their turns where the model does."""
    earlier, later = (
        {(found.service, found.cell.id): found for found in result.cells if found.cell.turns is None}
        for result in (before, after)
    )
    for one, other in pairs:
        for cell in one.cells:
            both = earlier.get((one.id, cell.id)), later.get((other.id, cell.id))
            yield from _counts("tokens", "total_output_tokens", *both)
            yield from _counts("prompt_tokens", "total_input_tokens", *both)


def _counts(
    key: str, total: str, first: CellResult | None, second: CellResult | None
) -> Iterator[Difference]:
    before, after = _each(first, total), _each(second, total)
    if first and before and after and abs(before / after - 1) > TOKENS:
        where = f"{first.service}/{first.cell.id}"
        yield Difference(
            key=key, before=f"{before:.0f} per request ({where})", after=f"{after:.0f} per request"
        )


def _each(found: CellResult | None, total: str) -> float | None:
    """A total over the completed requests; None where it is not known, or nothing completed."""
    if found is None or not found.metrics.get(total) or not found.metrics.get("completed"):
        return None
    return found.metrics[total] / found.metrics["completed"]


def _settings(before: CampaignResult, after: CampaignResult, pairs: Counterparts) -> Iterator[Difference]:
    starts = [
        {start.service.id: start.engine_version for start in result.services} for result in (before, after)
    ]
    for one, other in pairs:
        versions = (starts[0].get(one.id), starts[1].get(other.id))
        yield from _differing("engine version", *versions)
        yield from _mappings("args", one.args, other.args)
        yield from _mappings("env", one.env, other.env)
        for key in ("context_length", "memory_fraction", "max_running_requests", "threads"):
            yield from _differing(key, getattr(one, key), getattr(other, key))


def _mappings(
    prefix: str, before: Mapping[str, Any], after: Mapping[str, Any], where: str = ""
) -> Iterator[Difference]:
    for key in sorted(before.keys() | after.keys()):
        yield from _differing(f"{prefix}.{key}", before.get(key), after.get(key), where)


def _differing(key: str, before: object, after: object, where: str = "") -> Iterator[Difference]:
    if before != after:
        yield Difference(key=key, before=f"{_said(before)}{where}", after=_said(after))


def _said(value: object) -> str:
    return "not given" if value in (None, (), []) else repr(value) if isinstance(value, str) else str(value)


def _place(service: Service) -> Place:
    return service.host, service.tp, service.method.name


def _listed(result: CampaignResult) -> str:
    return ", ".join(service.id for service in result.matrix.services[:4]) or "none"
