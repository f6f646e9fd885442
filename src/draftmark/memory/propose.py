"""What to change so that everything that was asked for fits, checked by the same arithmetic."""

from collections.abc import Callable, Iterable, Iterator

from msgspec.structs import replace

from draftmark.memory import sglang, vllm
from draftmark.memory.gpus import Gpu
from draftmark.memory.shard import indivisible
from draftmark.memory.types import Fit, Proposal
from draftmark.memory.width import sglang_width
from draftmark.models.facts import ModelFacts
from draftmark.schema import Scalar, Service

Change = tuple[str, Service, str]
"""What to write in the plan, the service with it, and what else it does."""
Fits = Callable[[Service], Fit]
_TPS = (1, 2, 4, 8, 16)
_CONTEXT_STEP = 256
_STEP = 0.01
_HIGHEST_UTILISATION = 0.97
_WIDTHS = {
    "dflash": ("block_size", 2),
    "dspark": ("block_size", 1),
    "ddtree": ("budget", 1),
    "ngram": ("num_draft_tokens", 2),
}
"""The parameter that sets SGLang's verified tokens, and its smallest value; ``num_steps`` for the others."""


def proposals(
    service: Service, target: ModelFacts, draft: ModelFacts | None, gpu: Gpu, fits: Fits
) -> tuple[Proposal, ...]:
    """The smallest change of each kind with which every request that was asked for runs."""
    found = (_first(changes, fits) for changes in _kinds(service, target, draft, gpu))
    now = fits(service)
    return tuple(proposal for proposal in found if proposal and _gains(proposal.fit, now))


def _gains(fit: Fit, now: Fit) -> bool:
    """Whether a change gives more requests or more tokens than there are without it."""
    if now.failure:
        return True
    return (fit.running or 0) > (now.running or 0) or (fit.kv_tokens or 0) > (now.kv_tokens or 0)


def serves(service: Service, fit: Fit) -> bool:
    """Whether it runs as many requests at once as it was told to, and one of the full length."""
    longest = service.context_length or service.context_needed
    long_enough = fit.kv_tokens is None or fit.kv_tokens >= longest
    return fit.failure is None and (fit.running or 0) >= service.max_running_requests and long_enough


def _first(changes: Iterable[Change], fits: Fits) -> Proposal | None:
    for change, changed, caution in changes:
        fit = fits(changed)
        if serves(changed, fit):
            return Proposal(change, changed, fit, caution)
    return None


def _kinds(
    service: Service, target: ModelFacts, draft: ModelFacts | None, gpu: Gpu
) -> Iterator[Iterator[Change]]:
    """Ways to change a service, each from the smallest change to the largest."""
    engine = service.engine.kind
    if engine == "llamacpp":
        yield from (_requests(service), _context(service))
        return
    yield _fraction(service, target, gpu)
    yield _requests(service)
    if engine == "sglang":
        yield _width(service, target, draft)
        yield from _states(service, target)
    else:
        yield _drafts(service)
        yield _context(service)
    yield _tp(service, target)


def _fraction(service: Service, target: ModelFacts, gpu: Gpu) -> Iterator[Change]:
    """Upwards, to what the engine itself would choose."""
    if service.engine.kind == "sglang":
        highest = sglang.safe_fraction(sglang.held_flags(service), service.tp, target, gpu)
    else:
        highest = _HIGHEST_UTILISATION
    now = service.memory_fraction or (vllm.UTILISATION if service.engine.kind == "vllm" else highest)
    steps = int((highest - now) / _STEP + 1e-9)
    for step in range(1, steps + 1):
        share = round(now + step * _STEP, 4)
        yield f"server.memory_fraction: {share:g}", replace(service, memory_fraction=share), ""


def _requests(service: Service) -> Iterator[Change]:
    for count in range(service.max_running_requests - 1, 0, -1):
        change = f"server.max_running_requests: {count}"
        yield change, replace(service, max_running_requests=count), "more than that wait"


def _width(service: Service, target: ModelFacts, draft: ModelFacts | None) -> Iterator[Change]:
    """Fewer verified tokens."""
    method = service.method
    width = sglang_width(method, target, draft, sglang.held_flags(service))
    if not width:
        return
    name, least = _WIDTHS.get(method.kind, ("num_steps", 1))
    now = width if name in ("block_size", "num_draft_tokens") and method.kind != "dspark" else width - 1
    if name == "num_steps" and int(method.params.get("topk", 1)) > 1:
        name, least, now = "num_draft_tokens", 2, width
    for value in range(now - 1, least - 1, -1):
        yield _with_param(service, name, value)


def _drafts(service: Service) -> Iterator[Change]:
    for value in range(int(service.method.params.get("num_speculative_tokens", 1)) - 1, 0, -1):
        yield _with_param(service, "num_speculative_tokens", value)


def _with_param(service: Service, name: str, value: Scalar) -> Change:
    # The verified tokens of a chain follow from its steps.
    kept = {
        key: old
        for key, old in service.method.params.items()
        if (name, key) != ("num_steps", "num_draft_tokens")
    }
    method = replace(service.method, params=kept | {name: value})
    return f"methods.{method.name}.{name}: {value}", replace(service, method=method), ""


def _with_arg(service: Service, name: str, value: Scalar, caution: str = "") -> Change:
    change = f"server.args: {{{name}: {str(value).lower()}}}"
    return change, replace(service, args=service.args | {name: value}), caution


def _states(service: Service, target: ModelFacts) -> Iterator[Iterator[Change]]:
    """Smaller, more or other recurrent states."""
    if not target.recurrent:
        return
    flags = sglang.held_flags(service)
    if flags.get("mamba-ssm-dtype") in (None, "float32"):
        yield iter([_with_arg(service, "mamba-ssm-dtype", "bfloat16", "answers may differ")])
    if not flags.get("disable-radix-cache"):
        slots = service.max_running_requests * sglang.slots_per_request(flags, target)
        yield iter([_with_arg(service, "max-mamba-cache-size", slots)])
        yield iter([_with_arg(service, "disable-radix-cache", True, "prefixes are not reused")])


def _context(service: Service) -> Iterator[Change]:
    """Shorter contexts, down to the longest request that the workloads make."""
    if service.context_length:
        highest = (service.context_length - 1) // _CONTEXT_STEP
        lowest = -(-service.context_needed // _CONTEXT_STEP)
        for steps in range(highest, lowest - 1, -1):
            length = steps * _CONTEXT_STEP
            yield f"server.context_length: {length}", replace(service, context_length=length), ""


def _tp(service: Service, target: ModelFacts) -> Iterator[Change]:
    for tp in _TPS:
        if tp != service.tp and not indivisible(target, tp):
            yield f"tensor_parallel: [{tp}]", replace(service, tp=tp), f"on {tp} GPUs"
