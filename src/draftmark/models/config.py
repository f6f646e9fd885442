"""Facts from a config.json, as Hugging Face's transformers writes it.

Sources: transformers' config classes, and what SGLang 0.5.17 and vLLM 0.32.0 read from them.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from draftmark.errors import BadInput
from draftmark.models.facts import Attention, ModelFacts, Recurrent
from draftmark.models.keys import Config, read_config
from draftmark.models.parameters import Counts, count, stored_bytes

_KINDS = {
    "full_attention": "full",
    "attention": "full",
    "global": "full",
    "sliding_attention": "sliding",
    "local": "sliding",
    "linear_attention": "linear",
    "mamba": "linear",
    "conv": "linear",
    "hybrid": "both",
    "mlp": "mlp",
    "moe": "moe",
    "M": "linear",
    "*": "full",
    "-": "mlp",
    "E": "moe",
}
"""Words and letters for a layer, and what it keeps."""
_EVERY = {"gemma2": 2, "gemma3_text": 6, "cohere2": 4}
"""Full attention in every n-th layer, where the config leaves it to the model's class."""
_MOST_LAYERS = 10_000
_STRANGE = ("lru_width", "ssm_cfg", "compress_ratios", "state_size", "rwkv_version", "attention_hidden_size")
"""Keys of models whose layers keep something that is not understood here."""


def config_facts(text: str, name: str = "config.json", stored: tuple[int, str] | None = None) -> ModelFacts:
    """Facts from a config's text.

    Args:
        text: of the file.
        name: for messages.
        stored: bytes of the checkpoint and where they are from; by arithmetic when not given.
    """
    config = read_config(text, name)
    kinds, unknown = _layers(config)
    architectures = config.outer.get("architectures") or config.inner.get("architectures")
    facts = ModelFacts(
        source=name,
        architecture=str(architectures[0]) if isinstance(architectures, list) and architectures else None,
        layers=len(kinds) or None,
        hidden=config.whole("hidden_size", "n_embd", "d_model"),
        heads=config.whole("num_attention_heads", "n_head"),
        attention=tuple(_attention(config, kinds)),
        recurrent=tuple(_recurrent(config, kinds)),
        experts=config.whole("num_experts", "n_routed_experts", "num_local_experts") or None,
        expert_width=config.whole("moe_intermediate_size", "intermediate_size"),
        vocabulary=config.whole("vocab_size"),
        context=config.whole("max_position_embeddings", "n_positions"),
        mtp_layers=config.whole("mtp_num_hidden_layers", "num_nextn_predict_layers") or 0,
        dtype=(config.text("dtype", "torch_dtype") or "").removeprefix("torch.") or None,
        quantization=_quantization(config),
        vision=_vision(config),
        unknown=unknown,
        **_drafter(config),
    )
    return _weighed(facts, config, kinds, stored)


def _weighed(
    facts: ModelFacts, config: Config, kinds: tuple[str, ...], stored: tuple[int, str] | None
) -> ModelFacts:
    """With parameters and bytes; what is stored counts before what arithmetic says."""
    facts = replace(facts, unknown=(*facts.unknown, *_missing(facts)))
    counts = count(config, facts, kinds)
    found: tuple[int, str] | None = stored
    mtp = 0
    if counts:
        bits = _bits(config)
        mtp = stored_bytes(Counts(counts.mtp, 0), bits, facts.dtype) or 0
        whole = stored_bytes(Counts(counts.layers + counts.mtp, counts.embeddings), bits, facts.dtype)
        by_arithmetic = "by arithmetic from the config" + (", image encoder not counted" * bool(facts.vision))
        found = stored or (None if whole is None else (whole, by_arithmetic))
    size, source = found or (None, "")
    parameters = counts.all if counts else None
    return replace(facts, parameters=parameters, mtp_bytes=mtp, weight_bytes=size, weight_source=source)


def _missing(facts: ModelFacts) -> tuple[str, ...]:
    missing = [] if facts.layers else ["how many layers it has"]
    if facts.layers and not facts.attention and not facts.recurrent:
        missing.append("what its layers keep of a token")
    return tuple(missing)


def _layers(config: Config) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What each layer keeps: full, sliding, linear, both, mlp or moe; and what is not understood."""
    count = config.whole("num_hidden_layers", "n_layer", "num_layers") or 0
    if count > _MOST_LAYERS:
        raise BadInput(f"{config.name}: num_hidden_layers: expected at most {_MOST_LAYERS}, got {count}")
    named = config.value("hybrid_override_pattern", "layer_types", "layers_block_type")
    if isinstance(named, list | str) and len(named) >= count:
        words = [str(word) for word in named][:count] if count else [str(word) for word in named]
        strange = sorted({word for word in words if word not in _KINDS})
        return (
            tuple(_KINDS.get(word, "unknown") for word in words),
            tuple(f"what a layer of type '{word}' keeps" for word in strange),
        )
    kinds = tuple(_kind(config, layer) for layer in range(count))
    odd = [key for key in _STRANGE if config.value(key) is not None and "linear" not in kinds]
    return kinds, tuple(f"what its layers keep (config has '{key}')" for key in odd)


def _kind(config: Config, layer: int) -> str:
    """What one layer keeps, where the config states a rule and no list."""
    if interval := config.whole("full_attention_interval"):
        return "linear" if (layer + 1) % interval else "full"
    if kda := config.group("linear_attn_config").get("kda_layers"):
        return "linear" if layer + 1 in kda else "full"
    if (indices := config.value("attn_layer_indices")) is not None:
        return "full" if layer in indices else "linear"
    if period := config.whole("attn_layer_period"):
        return "full" if layer % period == (config.whole("attn_layer_offset") or 0) else "linear"
    if config.text("model_type") == "falcon_h1":
        return "both"
    return _window_kind(config, layer)


def _window_kind(config: Config, layer: int) -> str:
    if not config.whole("sliding_window") or config.value("use_sliding_window") is False:
        return "full"
    every = config.whole("sliding_window_pattern") or _EVERY.get(config.text("model_type") or "")
    if every:
        return "sliding" if (layer + 1) % every else "full"
    return "sliding" if layer >= (config.whole("max_window_layers") or 0) else "full"


def _attention(config: Config, kinds: tuple[str, ...]) -> Iterator[Attention]:
    full = sum(kind in ("full", "both") for kind in kinds)
    sliding = kinds.count("sliding")
    if rank := config.whole("kv_lora_rank"):
        rope = config.whole("qk_rope_head_dim") or 0
        index = config.whole("index_head_dim") or 0
        if full:
            yield Attention(full, 1, rank + rope, 0, latent=True, index_dim=index)
        return
    if full and (shape := _heads(config, "global_")):
        yield Attention(full, *shape)
    if sliding and (shape := _heads(config, "swa_")):
        yield Attention(sliding, *shape, window=config.whole("sliding_window"))


def _heads(config: Config, which: str) -> tuple[int, int, int] | None:
    """KV heads and widths of a key and a value of full (``global_``) or sliding (``swa_``) attention."""
    heads = config.whole("num_attention_heads", "n_head")
    if not heads:
        return None
    hidden = config.whole("hidden_size", "n_embd", "d_model") or 0
    own = ("num_global_key_value_heads",) if which == "global_" else ("swa_num_key_value_heads",)
    key = config.whole(f"{which}head_dim", "head_dim", "attention_head_dim") or hidden // heads
    value = config.whole(f"{which}v_head_dim", "v_head_dim") or key
    kept = config.whole(*own, "num_key_value_heads", "num_kv_heads") or heads
    return (kept, key, value) if key else None


def _recurrent(config: Config, kinds: tuple[str, ...]) -> Iterator[Recurrent]:
    layers = sum(kind in ("linear", "both") for kind in kinds)
    if layers and (shape := _state(config)):
        yield Recurrent(shape[0], layers, *shape[1:], dtype=config.text("mamba_ssm_dtype"))


def _state(config: Config) -> tuple[str, int, int, int, int, int] | None:
    """Kind, heads, head width, groups, state width and kernel of its recurrent layers."""
    whole = config.whole
    if (heads := whole("linear_num_value_heads")) is not None:
        keys = whole("linear_num_key_heads") or heads
        wide, deep = whole("linear_value_head_dim") or 0, whole("linear_key_head_dim") or 0
        return "GDN", heads, wide, keys, deep, whole("linear_conv_kernel_dim") or 4
    if kda := config.nested("linear_attn_config"):
        heads, wide = kda.whole("num_heads") or 0, kda.whole("head_dim") or 0
        return "KDA", heads, wide, heads, wide, kda.whole("short_conv_kernel_size") or 4
    if (heads := whole("mamba_num_heads", "mamba_n_heads")) is not None:
        wide = whole("mamba_head_dim", "mamba_d_head") or 0
        deep = whole("ssm_state_size", "mamba_d_state") or 0
        groups = whole("n_groups", "mamba_n_groups") or 1
        return "Mamba2", heads, wide, groups, deep, whole("conv_kernel", "mamba_d_conv") or 4
    return _simple_state(config)


def _simple_state(config: Config) -> tuple[str, int, int, int, int, int] | None:
    hidden = config.whole("hidden_size") or 0
    if (kernel := config.whole("conv_L_cache")) is not None:
        return "short convolution", 1, hidden, 0, 0, kernel
    if (deep := config.whole("mamba_d_state")) is not None:
        inner = (config.whole("mamba_expand") or 2) * hidden
        return "Mamba", inner, 1, 0, deep, config.whole("mamba_d_conv") or 4
    return None


def _quantization(config: Config) -> str | None:
    found = config.group("quantization_config") or config.group("compression_config")
    method = found.get("quant_algo") or found.get("quant_method")
    return str(method) if method else None


def _bits(config: Config) -> float | None:
    """Bits of a quantised weight, scales included; None where the weights are not quantised or not known."""
    found = config.group("quantization_config")
    word = f"{found.get('quant_method', '')} {found.get('quant_algo', '')} {found.get('fmt', '')}".lower()
    if isinstance(found.get("bits"), int):
        return float(found["bits"]) + 32 / int(found.get("group_size") or 128)
    for sign, bits in (("mxfp4", 4.25), ("fp4", 4.5), ("fp8", 8.0)):
        if sign in word:
            return bits
    return None if not found else 0.0


def _vision(config: Config) -> tuple[int, int] | None:
    found = config.nested("vision_config")
    if not found:
        return None
    return found.whole("num_hidden_layers", "depth") or 24, found.whole("hidden_size") or 1024


def _drafter(config: Config) -> dict[str, Any]:
    """What only a drafter's config has."""
    block = config.whole("block_size")
    names = str(config.outer.get("architectures") or "").lower()
    bound = block is not None or any(word in names for word in ("eagle", "dflash", "dspark"))
    return {
        "block_size": block,
        "reads_hidden": config.whole("target_hidden_size", "hidden_size") if bound else None,
        "target_layers": config.whole("num_target_layers") if bound else None,
    }
