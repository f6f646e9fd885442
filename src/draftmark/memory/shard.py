"""What one GPU of a tensor-parallel group holds of a model."""

from collections.abc import Iterator

from draftmark.models.facts import BYTES, Attention, ModelFacts, Recurrent

_INDEX_BLOCK = 128
"""Numbers of an index row that share a scale of four bytes."""


def heads_held(kv_heads: int, tp: int) -> int:
    """KV heads on each GPU: where there are fewer than GPUs, each is held by several."""
    return max(1, kv_heads // tp)


def layer_token_bytes(kind: Attention, tp: int, kv_bytes: float) -> float:
    """Bytes of one token in one layer, on each GPU."""
    held = 1 if kind.latent else heads_held(kind.kv_heads, tp)
    index = kind.index_dim + 4 * (kind.index_dim // _INDEX_BLOCK)
    return held * (kind.key_dim + kind.value_dim) * kv_bytes + index


def token_bytes(facts: ModelFacts, tp: int, kv_bytes: float) -> float:
    """Bytes of one token in all layers, on each GPU."""
    return sum(kind.layers * layer_token_bytes(kind, tp, kv_bytes) for kind in facts.attention)


def state_bytes(kind: Recurrent, tp: int, dtype: str | None, columns: int, conv_bytes: float = 2.0) -> float:
    """Bytes of one request's state in one layer, on each GPU.

    Args:
        kind: of layer.
        tp: GPUs that share it.
        dtype: of the temporal state; float32 when not given.
        columns: tokens that the convolution remembers.
        conv_bytes: of one number that it remembers.
    """
    temporal = kind.state_numbers(tp) * BYTES.get(dtype or "float32", 4.0)
    return temporal + kind.channels(tp) * columns * conv_bytes


HALF = 2.0
"""Bytes of a number that both engines serve a float32 model with on a GPU, unless they are told otherwise."""


def request_bytes(facts: ModelFacts, tp: int, dtype: str | None) -> float:
    """Bytes of one request's state in all layers, on each GPU, in bfloat16 save the temporal state."""
    return sum(
        kind.layers * state_bytes(kind, tp, dtype or kind.dtype, kind.kernel - 1) for kind in facts.recurrent
    )


def kv_number_bytes(name: object, facts: ModelFacts) -> float:
    """Bytes of one number in the KV cache: of the flag's type, else of the model's."""
    text = "auto" if name is None else str(name)
    if text.startswith(("fp8", "float8", "int8")):
        return 1.0
    return BYTES.get(text) or min(BYTES.get(facts.dtype or "bfloat16", 2.0), HALF)


def indivisible(facts: ModelFacts, tp: int) -> tuple[str, ...]:
    """Why the model cannot be split over so many GPUs; empty where it can."""
    return tuple(_indivisible(facts, tp))


def _indivisible(facts: ModelFacts, tp: int) -> Iterator[str]:
    if facts.heads and facts.heads % tp:
        yield f"{facts.heads} query heads do not divide by {tp}"
    for attention in facts.attention:
        kept = attention.kv_heads
        if not attention.latent and kept % tp and tp % kept:
            yield f"{kept} KV heads neither divide by {tp} nor repeat to it"
    for kind in facts.recurrent:
        if kind.state_dim and kind.heads % tp:
            yield f"{kind.heads} {kind.kind} heads do not divide by {tp}"
        if kind.kind == "GDN" and kind.groups % tp:
            yield f"{kind.groups} {kind.kind} key heads do not divide by {tp}"
    if facts.experts and facts.expert_width and facts.expert_width % tp:
        yield f"experts of width {facts.expert_width} do not divide by {tp}"


def weights(facts: ModelFacts, tp: int, with_mtp: bool) -> tuple[float, str]:
    """Bytes of weights on each GPU, and how they come about."""
    whole = facts.weight_bytes or 0
    without = 0 if with_mtp else facts.mtp_bytes
    less = f" less {without / 1e9:.2f} GB of next-token layers" if without else ""
    return (whole - without) / tp, f"{whole / 1e9:.2f} GB ({facts.weight_source}){less}, over {tp}"
