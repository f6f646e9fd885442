"""The memory plan of a service, for the models that lie on this machine and the GPUs that it has."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from draftmark import staging
from draftmark.errors import BadInput
from draftmark.memory import Gpu, MemoryPlan, gpu_named, plan_memory
from draftmark.models.facts import ModelFacts, mismatches
from draftmark.models.read import facts_of
from draftmark.schema import Service


def budget(service: Service, gpu: Gpu | None) -> MemoryPlan | None:
    """Whether a service fits; None where nothing can be said: no GPU, or a model that is not here."""
    if gpu is None:
        return None
    try:
        target = known_facts(service.model.target)
        draft = known_facts(service.method.draft) if service.method.draft else None
    except BadInput:  # the server will say it better, or not mind
        return None
    return plan_memory(service, target, draft, gpu) if target else None


def draft_problems(services: Iterable[Service]) -> tuple[str, ...]:
    """Where a draft does not fit its target, as far as both lie on this machine: vocabulary, hidden size."""
    found: dict[str, None] = {}
    for service in services:
        try:
            target = known_facts(service.model.target) if service.method.draft else None
            draft = known_facts(service.method.draft) if service.method.draft else None
        except BadInput as error:
            found[f"{service.method.name}: {error.message}"] = None
            continue
        if target and draft:
            found |= dict.fromkeys(f"{service.method.name}: {why}" for why in mismatches(target, draft))
    return tuple(found)


def known_facts(name: str) -> ModelFacts | None:
    """Facts of a model that lies on this machine, by the plan's word; None where it does not."""
    path = staging.local_copy(name)
    return _facts(path) if path else None


@cache
def _facts(path: Path) -> ModelFacts:
    """Read once, though every service of a plan asks for its target."""
    return facts_of(path)


def gpu_of(machine: Mapping[str, Any]) -> Gpu | None:
    """The machine's first GPU: one whose memory is known by its name, else as its driver says."""
    gpus: Sequence[Mapping[str, Any]] = machine.get("gpus") or ()
    if not gpus or not gpus[0]["memory_bytes"]:
        return None
    name, size = str(gpus[0]["name"]).removeprefix("NVIDIA "), int(gpus[0]["memory_bytes"])
    try:
        return gpu_named(name)
    except BadInput:
        return Gpu(name, size)
