"""What llama.cpp allocates when it starts.

Source: ``llama-context.cpp``, ``llama-kv-cache.cpp`` and ``llama-memory-recurrent.cpp`` of build 11549.
"""

from draftmark.engines import llamacpp
from draftmark.engines.flags import known_flags, resolve
from draftmark.engines.llamacpp_flags import NAMES, RENAMED
from draftmark.memory.gpus import GIB, Gpu
from draftmark.memory.shard import layer_token_bytes, state_bytes, weights
from draftmark.memory.types import Assumed, Fit, Line
from draftmark.memory.width import llamacpp_drafts
from draftmark.models.facts import ModelFacts
from draftmark.schema import Scalar, Service

_TYPES = {
    "f32": 4.0,
    "f16": 2.0,
    "bf16": 2.0,
    "q8_0": 34 / 32,
    "q5_1": 24 / 32,
    "q5_0": 22 / 32,
    "q4_1": 20 / 32,
    "q4_0": 18 / 32,
}
"""Bytes of one number by ``cache-type-k`` and ``cache-type-v``; quantised ones come in blocks of 32."""
_SNAPSHOTS = frozenset(
    {
        "bailingmoe3",
        "deepseek4",
        "glm5-next",
        "kimi-k3",
        "lfm2",
        "lfm2moe",
        "nemotron_h",
        "nemotron_h_moe",
        "qwen35",
        "qwen35moe",
        "qwen4exp",
        "Qwen3_5ForConditionalGeneration",
        "Qwen3_5MoeForConditionalGeneration",
    }
)
"""Architectures that keep a state for each drafted token; others save one and decode again."""
_DRAFTERS = ("dflash", "dspark", "eagle3", "mtp")


def held_flags(service: Service) -> dict[str, Scalar | None]:
    """The plan's own flags by their present names."""
    return resolve({}, service, known_flags("llama.cpp", {"b11549": NAMES}, service, RENAMED))


def states_per_slot(service: Service, target: ModelFacts) -> int:
    """Recurrent states of one slot: one, and one for each token that a drafter may propose."""
    if service.method.kind in _DRAFTERS and target.architecture in _SNAPSHOTS:
        return 1 + llamacpp_drafts(service.method)
    return 1


def fit(service: Service, target: ModelFacts, draft: ModelFacts | None, gpu: Gpu, assumed: Assumed) -> Fit:
    """Everything that is allocated up front, on one device that holds all of it."""
    flags = held_flags(service)
    slots, context = service.max_running_requests, llamacpp.slot_context(service)
    cells = context * slots
    lines = [Line("GPU memory", gpu.total_bytes, f"{gpu.name}, as CUDA reports it", "has")]
    lines.append(Line("CUDA", assumed.context_bytes, "assumed", assumed=True))
    lines.append(Line("target weights", *weights(target, 1, with_mtp=True)))
    if draft:
        lines.append(Line("draft weights", *weights(draft, 1, with_mtp=True)))
    cell = _token_bytes(target, flags)
    lines.append(Line("KV of one token", cell, f"{target.kv_layers} layers", "each"))
    lines.append(Line("KV cache", cell * cells, f"{slots} slots × {context:,} tokens"))
    if drafted := _draft_token_bytes(service, target, draft, flags):
        lines.append(Line("KV cache of the draft", drafted * cells, "as many tokens as the target's"))
    if target.recurrent:
        lines += _states(service, target, slots)
    buffers = 2 if draft or service.method.kind == "mtp" else 1
    lines.append(
        Line("compute buffers", buffers * assumed.compute_bytes, f"assumed, {buffers} contexts", assumed=True)
    )
    left = gpu.total_bytes - sum(line.bytes for line in lines if line.kind == "takes")
    lines.append(Line("left", left, "GPU memory less all of these", "leaves"))
    if left < 0:
        needed = (gpu.total_bytes - left) / GIB
        why = f"{needed:.1f} GiB are needed and the GPU has {gpu.total_bytes / GIB:.1f} GiB"
        return Fit(tuple(lines), why, notes=_notes(flags))
    if context < service.context_needed:
        why = f"the longest request has {service.context_needed:,} tokens, a slot {context:,}"
        return Fit(tuple(lines), why, kv_tokens=cells, notes=_notes(flags))
    return Fit(tuple(lines), None, slots, "", cells, slots if target.recurrent else None, _notes(flags))


def _token_bytes(facts: ModelFacts, flags: dict[str, Scalar | None]) -> float:
    key, value = (_TYPES.get(str(flags.get(name) or "f16"), 2.0) for name in ("cache-type-k", "cache-type-v"))
    return sum(
        kind.layers * (1 if kind.latent else kind.kv_heads) * (kind.key_dim * key + kind.value_dim * value)
        for kind in facts.attention
    )


def _draft_token_bytes(
    service: Service, target: ModelFacts, draft: ModelFacts | None, flags: dict[str, Scalar | None]
) -> float:
    if service.method.kind == "mtp" and target.attention:
        return max(1, target.mtp_layers) * layer_token_bytes(target.attention[0], 1, 2.0)
    return _token_bytes(draft, flags) if draft else 0.0


def _states(service: Service, target: ModelFacts, slots: int) -> list[Line]:
    each = sum(
        kind.layers * state_bytes(kind, 1, "float32", kind.kernel - 1, conv_bytes=4.0)
        for kind in target.recurrent
    )
    kept = states_per_slot(service, target)
    return [
        Line("state of one request", each, "32-bit numbers", "each"),
        Line("recurrent states", each * kept * slots, f"{slots} slots × {kept} states"),
    ]


def _notes(flags: dict[str, Scalar | None]) -> tuple[str, ...]:
    if flags.get("gpu-layers") in (None, "all", "auto", -1):
        return ()
    return ("reckoned as if every layer were on the GPU; gpu-layers says otherwise",)
