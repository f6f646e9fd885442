"""How many tokens a method verifies in one step, and what it keeps a KV cache for."""

from collections.abc import Mapping

from draftmark.models.facts import ModelFacts
from draftmark.schema import Method, Scalar

DEFAULT_BLOCK = 16
"""SGLang's block of a DFlash drafter that does not state one."""
_AUTO_CHAIN, _AUTO_LLAMA = 4, 8
"""Tokens that SGLang verifies per step where no number is given: a chain of three, a tree for Llama."""
_VLLM_SUFFIX = 24
_LLAMACPP_DRAFTS = 3

Flags = Mapping[str, Scalar | None]


def sglang_width(method: Method, target: ModelFacts, draft: ModelFacts | None, flags: Flags) -> int | None:
    """Tokens that SGLang verifies per step, the root included; 0 without speculation, None if not known."""
    if method.kind == "none":
        return 0
    params = method.params
    given = flags.get("speculative-num-draft-tokens") or params.get("num_draft_tokens")
    if given is not None:
        return int(given)
    if method.kind == "ddtree":
        return int(params["budget"]) + 1 if "budget" in params else None
    if method.kind in ("dflash", "dspark"):
        return _block(method, draft)
    if method.kind == "ngram":
        return 12
    if "num_steps" in params:
        return int(params["num_steps"]) + 1
    tree = target.architecture == "LlamaForCausalLM" and method.kind not in ("standalone", "draft-model")
    return _AUTO_LLAMA if tree else _AUTO_CHAIN


def _block(method: Method, draft: ModelFacts | None) -> int | None:
    """Of a DFlash block the root is one; a DSpark block comes after it."""
    size = method.params.get("block_size") or (draft.block_size if draft else None)
    if method.kind == "dspark":
        return int(size) + 1 if size else None
    return int(size or DEFAULT_BLOCK)


def vllm_drafts(method: Method) -> int:
    """Tokens that vLLM drafts per step."""
    if method.kind == "none":
        return 0
    return int(method.params.get("num_speculative_tokens") or _VLLM_SUFFIX)


def llamacpp_drafts(method: Method) -> int:
    """Most tokens that llama.cpp drafts per step with a draft model."""
    if "block_size" in method.params:
        return int(method.params["block_size"]) - 1
    return int(method.params.get("n_max", _LLAMACPP_DRAFTS))


def draft_layers(method: Method, target: ModelFacts, draft: ModelFacts | None) -> int:
    """Layers of the draft that keep keys and values."""
    if method.kind in ("mtp", "nextn"):
        return max(1, target.mtp_layers)
    return draft.kv_layers if draft else 0
