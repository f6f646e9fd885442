"""How many parameters a model has, from its shape; good to about a hundredth.

Norms, biases and routing corrections are left out.
"""

from dataclasses import dataclass

from draftmark.models.facts import BYTES, ModelFacts, Recurrent
from draftmark.models.keys import Config

UNKNOWN_BITS = 0.0
"""In place of bits per weight: quantised in a way that is not known here."""


@dataclass(frozen=True)
class Counts:
    """Parameters of the layers, and of the embeddings, which quantisation leaves alone."""

    layers: int
    embeddings: int
    mtp: int = 0
    """Of next-token layers, beside the others."""

    @property
    def all(self) -> int:
        """Every one of them."""
        return self.layers + self.embeddings + self.mtp


def count(config: Config, facts: ModelFacts, kinds: tuple[str, ...]) -> Counts | None:
    """Parameters of a model; None where its shape is not known.

    Args:
        config: for the widths that only matter here.
        facts: of the same config.
        kinds: what each layer keeps: full, sliding, linear, both, mlp or moe.
    """
    if facts.unknown or not (facts.hidden and facts.vocabulary and facts.heads):
        return None
    apart = "mlp" in kinds or "moe" in kinds
    layers = sum(_mixer(config, facts, kind) for kind in kinds)
    if apart:
        layers += kinds.count("mlp") * _dense(config, facts) + kinds.count("moe") * _experts(config, facts)
    else:
        layers += sum(_feed_forward(config, facts, layer) for layer in range(len(kinds)))
    one_mtp = _mixer(config, facts, "full") + _feed_forward(config, facts, len(kinds)) + 2 * facts.hidden**2
    return Counts(layers + _bridge(config, facts), _embeddings(config, facts), facts.mtp_layers * one_mtp)


def stored_bytes(counts: Counts, bits: float | None, dtype: str | None) -> int | None:
    """Bytes in a checkpoint with ``bits`` per quantised weight; None where they are not known."""
    width = BYTES.get(dtype or "bfloat16")
    if width is None or bits == UNKNOWN_BITS:
        return None
    per_weight = width if bits is None else bits / 8
    return round((counts.layers + counts.mtp) * per_weight + counts.embeddings * width)


def _embeddings(config: Config, facts: ModelFacts) -> int:
    """A drafter that reads hidden states shares the target's, save a head over a vocabulary of its own."""
    width = facts.hidden or 0
    if facts.reads_hidden is not None:
        return (config.whole("draft_vocab_size") or 0) * width
    # Absent, the key means true: so transformers reads it.
    tied = config.value("tie_word_embeddings")
    return (facts.vocabulary or 0) * width * (2 if tied is False else 1)


def _bridge(config: Config, facts: ModelFacts) -> int:
    """What joins the target's hidden states for a drafter."""
    if facts.reads_hidden is None:
        return 0
    taken = (
        config.group("dflash_config").get("target_layer_ids") or config.value("target_layer_ids") or (0,) * 3
    )
    return len(taken) * facts.reads_hidden * (facts.hidden or 0)


def _mixer(config: Config, facts: ModelFacts, kind: str) -> int:
    attention = _attend(config, facts) if kind in ("full", "sliding", "both") else 0
    recurrent = sum(_recur(facts, each) for each in facts.recurrent) if kind in ("linear", "both") else 0
    return attention + recurrent


def _attend(config: Config, facts: ModelFacts) -> int:
    hidden, heads = facts.hidden or 0, facts.heads or 0
    if rank := config.whole("kv_lora_rank"):
        return _attend_latent(config, hidden, heads, rank)
    if not facts.attention:
        return 0
    kind = facts.attention[0]
    queries = heads * kind.key_dim * (2 if config.value("attn_output_gate") else 1)
    kept = kind.kv_heads * (kind.key_dim + kind.value_dim)
    return hidden * (queries + kept + heads * kind.value_dim)


def _attend_latent(config: Config, hidden: int, heads: int, rank: int) -> int:
    rope, plain = config.whole("qk_rope_head_dim") or 0, config.whole("qk_nope_head_dim") or 0
    value = config.whole("v_head_dim") or 0
    queries = heads * (plain + rope)
    low = config.whole("q_lora_rank")
    into = low * (hidden + queries) if low else hidden * queries
    return into + hidden * (rank + rope) + rank * heads * (plain + value) + heads * value * hidden


def _recur(facts: ModelFacts, kind: Recurrent) -> int:
    hidden, inner = facts.hidden or 0, kind.heads * kind.head_dim
    keys = 2 * kind.groups * kind.state_dim
    if kind.kind == "short convolution":
        return 4 * hidden**2 + hidden * kind.kernel
    gates = 2 * kind.heads if kind.kind in ("GDN", "KDA") else kind.heads * (kind.kind == "Mamba2")
    return hidden * (2 * inner + keys + gates) + kind.channels() * kind.kernel + inner * hidden


def _feed_forward(config: Config, facts: ModelFacts, layer: int) -> int:
    """Of one layer, with experts where it has them."""
    dense_first = config.whole("first_k_dense_replace") or 0
    dense = config.value("mlp_only_layers") or ()
    step = config.whole("decoder_sparse_step") or 1
    if facts.experts and layer >= dense_first and layer not in dense and (layer + 1) % step == 0:
        return _experts(config, facts)
    return _dense(config, facts)


def _dense(config: Config, facts: ModelFacts) -> int:
    gated = config.text("mlp_hidden_act") != "relu2"
    return (3 if gated else 2) * (facts.hidden or 0) * (config.whole("intermediate_size", "n_inner") or 0)


def _experts(config: Config, facts: ModelFacts) -> int:
    hidden, experts, width = facts.hidden or 0, facts.experts or 0, facts.expert_width or 0
    shared = config.whole("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size")
    if shared is None:
        shared = (config.whole("n_shared_experts") or 0) * width
    gated = config.text("mlp_hidden_act") != "relu2"
    return (3 if gated else 2) * hidden * (experts * width + shared) + hidden * experts
