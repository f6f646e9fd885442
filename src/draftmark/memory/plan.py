"""Whether a service fits its GPUs, by the arithmetic of its own engine."""

from collections.abc import Callable, Iterator

from draftmark.engines import ENGINES, llamacpp
from draftmark.memory import llamacpp as llamacpp_memory
from draftmark.memory import sglang, vllm
from draftmark.memory.gpus import Gpu
from draftmark.memory.propose import proposals, serves
from draftmark.memory.shard import indivisible
from draftmark.memory.types import Assumed, Fit, MemoryPlan
from draftmark.memory.width import sglang_width
from draftmark.models.facts import ModelFacts, mismatches
from draftmark.schema import Service

_FITS: dict[str, Callable[[Service, ModelFacts, ModelFacts | None, Gpu, Assumed], Fit]] = {
    "sglang": sglang.fit,
    "vllm": vllm.fit,
    "llamacpp": llamacpp_memory.fit,
}
_OWN_DRAFT = ("mtp", "nextn")
ASSUMED = Assumed()
"""What is assumed where nothing else is said."""


def plan_memory(
    service: Service,
    target: ModelFacts,
    draft: ModelFacts | None,
    gpu: Gpu,
    assumed: Assumed = ASSUMED,
) -> MemoryPlan:
    """The plan of one service on GPUs of one kind, and changes that make it fit where it does not.

    Args:
        service: what is to run.
        target: facts of its model.
        draft: facts of its draft model, where the method has one.
        gpu: each of the ``service.tp`` GPUs.
        assumed: what no file says.

    Raises BadInput where the service has flags that its engine does not know.
    """
    context = _context(service, target)
    if unknown := tuple(_unknown(service, target, draft)):
        return MemoryPlan(service, gpu, context, unknown=unknown)
    fits = _FITS[service.engine.kind]

    def fitted(changed: Service) -> Fit:
        refused = _refused(changed, target, draft)
        return Fit((), refused) if refused else fits(changed, target, draft, gpu, assumed)

    fit = fitted(service)
    asked = () if serves(service, fit) else proposals(service, target, draft, gpu, fitted)
    return MemoryPlan(service, gpu, context, fit, proposals=asked)


def _context(service: Service, target: ModelFacts) -> int:
    if service.engine.kind == "llamacpp":
        return llamacpp.slot_context(service)
    if service.engine.kind == "vllm":
        return vllm.context_of(service)
    return service.context_length or target.context or service.context_needed


def _refused(service: Service, target: ModelFacts, draft: ModelFacts | None) -> str | None:
    """Why no memory would help: a model that cannot be split, a draft that does not belong to it."""
    if split := indivisible(target, service.tp):
        return f"cannot be split over {service.tp} GPUs: {'; '.join(split)}"
    wrong = mismatches(target, draft) if draft else ()
    return f"the draft does not belong to the target: {'; '.join(wrong)}" if wrong else None


def _unknown(service: Service, target: ModelFacts, draft: ModelFacts | None) -> Iterator[str]:
    """What the arithmetic needs and nobody said."""
    kind = service.engine.kind
    if kind not in _FITS:
        yield f"how the engine '{kind}' uses memory"
        return
    method = ENGINES[kind].METHODS[service.method.kind]
    yield from _unknown_model("target", target)
    if draft:
        yield from _unknown_model("draft", draft)
    elif method.needs_draft:
        yield f"the draft model: {service.method.kind} needs one"
    if kind == "sglang" and method.speculative:
        width = sglang_width(service.method, target, draft, sglang.held_flags(service))
        if width is None:
            yield f"how many tokens a step verifies: set a parameter of methods.{service.method.name}"
    for flag in ("pp-size", "pipeline-parallel-size"):
        if int(service.args.get(flag) or 1) > 1:
            yield f"how the layers are spread with {flag}"


def _unknown_model(which: str, facts: ModelFacts) -> Iterator[str]:
    yield from (f"{which}: {what}" for what in facts.unknown)
    if facts.weight_bytes is None:
        yield f"{which}: bytes of its weights"
