"""vLLM's own sizing of its cache, step by step.

Source: ``v1/worker/gpu_worker.py``, ``v1/core/kv_cache_utils.py`` and ``platforms/interface.py`` of 0.32.0.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from draftmark.engines import vllm
from draftmark.engines.flags import known_flags, resolve
from draftmark.engines.vllm_flags import NAMES, RENAMED
from draftmark.memory.gpus import GIB, Gpu
from draftmark.memory.shard import kv_number_bytes, layer_token_bytes, state_bytes, token_bytes, weights
from draftmark.memory.types import Assumed, Fit, Line
from draftmark.memory.width import draft_layers, vllm_drafts
from draftmark.models.facts import ModelFacts
from draftmark.schema import Scalar, Service

UTILISATION = 0.92
"""``gpu-memory-utilization`` where the plan sets none."""
BLOCK = 16
"""Tokens of a block, and what longer blocks are a multiple of."""
_ONE_GROUP = 1.5
"""Kinds of layers are padded to one group size where the larger has less than this many times the layers."""


def held_flags(service: Service) -> dict[str, Scalar | None]:
    """Flags that matter here by their present names: draftmark's, then the plan's."""
    return vllm.pins(service) | resolve({}, service, known_flags("vLLM", NAMES, service, RENAMED))


def context_of(service: Service) -> int:
    """Tokens that one request may have: the plan's, else what the engine module asks for."""
    step = vllm.CONTEXT_STEP
    return service.context_length or -(-service.context_needed // step) * step


@dataclass(frozen=True)
class Blocks:
    """How the cache is cut: one size of block for every kind of layer."""

    tokens: int
    """Of a block."""
    bytes: float
    """Of a block on each GPU, over the layers of a group."""
    attention: int
    """Blocks of a request of full length that hold keys and values."""
    state: int
    """Blocks of a request that hold recurrent state."""
    drafts: int
    """Drafted tokens that have a state of their own."""

    @property
    def per_request(self) -> int:
        """Blocks of a request of full length."""
        return self.attention + self.state


def blocks_of(service: Service, target: ModelFacts, draft: ModelFacts | None) -> Blocks:
    """The engine's blocks for one service."""
    flags = held_flags(service)
    number = kv_number_bytes(flags.get("kv-cache-dtype"), target)
    if not target.recurrent:
        return _plain_blocks(service, target, draft, number, flags)
    return _hybrid_blocks(service, target, draft, number, flags)


def _plain_blocks(
    service: Service,
    target: ModelFacts,
    draft: ModelFacts | None,
    number: float,
    flags: dict[str, Scalar | None],
) -> Blocks:
    tokens = int(flags.get("block-size") or BLOCK)
    length = context_of(service)
    counts = [kind.layers for kind in target.attention]
    if len(counts) == 1:
        size = token_bytes(target, service.tp, number) + _draft_token_bytes(service, target, draft, number)
        return Blocks(tokens, tokens * size, ceil(length / tokens), 0, 0)
    group = _group_size(counts)
    per_layer = max(layer_token_bytes(kind, service.tp, number) for kind in target.attention)
    step = int(flags.get("max-num-batched-tokens") or vllm.BATCHED_TOKENS)
    needed = 0
    for kind in target.attention:
        seen = min(kind.window - 1 + step, length) if kind.window else length
        needed += ceil(kind.layers / group) * (ceil(seen / tokens) + (1 if kind.window else 0))
    return Blocks(tokens, tokens * per_layer * group, needed, 0, 0)


def _draft_token_bytes(
    service: Service, target: ModelFacts, draft: ModelFacts | None, number: float
) -> float:
    """Bytes of one token in the draft's layers, on each GPU."""
    if service.method.kind in ("mtp", "nextn") and target.attention:
        return draft_layers(service.method, target, draft) * layer_token_bytes(
            target.attention[0], service.tp, number
        )
    tp = int(service.method.params.get("draft_tensor_parallel_size", service.tp))
    return token_bytes(draft, tp, number) if draft else 0.0


def _hybrid_blocks(
    service: Service,
    target: ModelFacts,
    draft: ModelFacts | None,
    number: float,
    flags: dict[str, Scalar | None],
) -> Blocks:
    """Blocks so long that one holds the state of a layer, and the layers of each kind in groups."""
    drafts = 0 if flags.get("use-replayssm") else vllm_drafts(service.method)
    dtype = flags.get("mamba-ssm-cache-dtype")
    dtype = None if dtype in (None, "auto") else str(dtype)
    page = max(
        state_bytes(kind, service.tp, dtype or kind.dtype, kind.kernel - 1 + drafts)
        for kind in target.recurrent
    )
    per_token = max((layer_token_bytes(kind, service.tp, number) for kind in target.attention), default=page)
    tokens = max(int(flags.get("block-size") or BLOCK), BLOCK * ceil(page / (BLOCK * per_token)))
    full = target.kv_layers + draft_layers(service.method, target, draft)
    linear = sum(kind.layers for kind in target.recurrent)
    group = _group_size([count for count in (full, linear) if count])
    attention = ceil(full / group) * ceil(context_of(service) / tokens)
    caching = flags.get("enable-prefix-caching") is not False
    state = ceil(linear / group) * ((2 if caching else 1) + drafts)
    return Blocks(tokens, group * tokens * per_token, attention, state, drafts)


def _group_size(counts: list[int]) -> int:
    return max(counts) if max(counts) < _ONE_GROUP * min(counts) else min(counts)


def fit(service: Service, target: ModelFacts, draft: ModelFacts | None, gpu: Gpu, assumed: Assumed) -> Fit:
    """What one GPU holds, and how many tokens and requests that leaves room for."""
    lines = list(_memory(service, target, draft, gpu, assumed))
    left = lines[-1].bytes
    if left <= 0:
        return Fit(tuple(lines), "weights and what a step needs leave no memory for the KV cache")
    blocks, context = blocks_of(service, target, draft), context_of(service)
    count = int(left // blocks.bytes)
    lines += [
        Line("block", blocks.bytes, f"{blocks.tokens:,} tokens of a group of layers", "each"),
        Line("KV cache", count * blocks.bytes, f"{count:,} blocks", "leaves"),
        Line(
            "request of full length", blocks.per_request * blocks.bytes, _request_how(blocks, context), "each"
        ),
    ]
    if blocks.state:
        how = f"{blocks.state} blocks, whatever the request's length"
        lines.append(Line("recurrent state of one request", blocks.state * blocks.bytes, how, "each"))
    tokens = int(count / blocks.per_request * context)
    failure = _failure(service, target, blocks, count, context)
    if failure:
        return Fit(tuple(lines), failure, kv_tokens=tokens)
    running, why = _running(service, blocks, count)
    return Fit(tuple(lines), None, running, why, tokens)


def _memory(
    service: Service, target: ModelFacts, draft: ModelFacts | None, gpu: Gpu, assumed: Assumed
) -> Iterator[Line]:
    """The sum down to what the cache may take, which is the last line."""
    share = service.memory_fraction or UTILISATION
    said = "set by the plan" if service.memory_fraction else "the engine's default"
    budget = ceil(gpu.total_bytes * share)
    mtp = service.method.kind in ("mtp", "nextn")
    loaded, how = weights(target, service.tp, with_mtp=mtp)
    yield Line("GPU memory", gpu.total_bytes, f"{gpu.name}, as CUDA reports it", "has")
    yield Line("left alone", gpu.total_bytes - budget, f"memory_fraction {share:g}, {said}")
    yield Line("target weights", loaded, how)
    taken = loaded
    if draft and not mtp:
        tp = int(service.method.params.get("draft_tensor_parallel_size", service.tp))
        drafted, how = weights(draft, tp, with_mtp=True)
        yield Line("draft weights", drafted, how)
        taken += drafted
    for label, size in (
        ("CUDA and communication", assumed.context_bytes),
        ("most that a step needs", assumed.activation_bytes),
        ("CUDA graphs", assumed.graph_bytes),
    ):
        yield Line(label, size, "assumed; measured by the server when it starts", assumed=True)
        taken += size
    yield Line(
        "left for the KV cache", budget - taken, "memory_fraction of the GPU less all of these", "leaves"
    )


def _request_how(blocks: Blocks, context: int) -> str:
    state = f" and {blocks.state} of state" if blocks.state else ""
    return f"{context:,} tokens: {blocks.attention} blocks of keys and values{state}"


def _failure(service: Service, target: ModelFacts, blocks: Blocks, count: int, context: int) -> str | None:
    if count < blocks.per_request:
        needed = blocks.per_request * blocks.bytes / GIB
        return (
            f"one request of {context:,} tokens needs {needed:.2f} GiB of cache: the server refuses to start"
        )
    if target.recurrent and service.max_running_requests > count:
        asked = service.max_running_requests
        return f"{asked} requests need as many state blocks, {count} fit: the server refuses to start"
    return None


def _running(service: Service, blocks: Blocks, count: int) -> tuple[int, str]:
    """Requests whose states and first tokens fit at once."""
    room = count // (blocks.state + 1)
    asked = service.max_running_requests
    if room >= asked:
        return asked, ""
    return room, f"{count:,} blocks, {blocks.state} of state and one of tokens per request"
