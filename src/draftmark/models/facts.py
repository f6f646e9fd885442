"""What a model is made of, as far as memory depends on it; None where its files do not say."""

from collections.abc import Iterator
from dataclasses import dataclass

BYTES = {
    "float64": 8.0,
    "float32": 4.0,
    "bfloat16": 2.0,
    "float16": 2.0,
    "float8_e4m3fn": 1.0,
}
"""Bytes of one number, by the name that config files use."""


@dataclass(frozen=True)
class Attention:
    """Layers of one kind that keep something of each token."""

    layers: int
    kv_heads: int
    """Heads that are kept; 1 for a latent."""
    key_dim: int
    """Numbers per head; for a latent the whole row, rotary part included."""
    value_dim: int
    """Numbers per head; 0 for a latent, whose values are rebuilt from the keys."""
    window: int | None = None
    """Tokens that are attended to; None for all."""
    latent: bool = False
    """MLA: one row per token, the same on every GPU."""
    index_dim: int = 0
    """Width of the index row of sparse attention (DSA); 0 without."""


@dataclass(frozen=True)
class Recurrent:
    """Layers of one kind that keep a state of each request, whatever its length."""

    kind: str
    """``GDN``, ``KDA``, ``Mamba2``, ``Mamba`` or ``short convolution``."""
    layers: int
    heads: int
    head_dim: int
    groups: int
    """Heads of the keys, which may be fewer."""
    state_dim: int
    """Width of a key; 0 where only the convolution keeps a state."""
    kernel: int
    """Tokens that the convolution sees, the current one included."""
    dtype: str | None = None
    """Of the state, where the config names it."""

    def state_numbers(self, tp: int = 1) -> int:
        """Numbers of one layer's temporal state on each of ``tp`` GPUs."""
        return self.heads * self.head_dim * self.state_dim // tp

    def channels(self, tp: int = 1) -> int:
        """Channels of one layer's convolution on each of ``tp`` GPUs; too few groups are repeated."""
        groups = self.groups if self.groups % tp == 0 else max(self.groups, tp)
        return (self.heads * self.head_dim + 2 * groups * self.state_dim) // tp


@dataclass(frozen=True)
class ModelFacts:
    """One model."""

    source: str
    """What was read, for messages."""
    architecture: str | None = None
    """Class name of a config file, or the graph's name of a GGUF file."""
    layers: int | None = None
    hidden: int | None = None
    """Width of the hidden state."""
    heads: int | None = None
    """Query heads."""
    attention: tuple[Attention, ...] = ()
    recurrent: tuple[Recurrent, ...] = ()
    experts: int | None = None
    """Routed experts of a layer; None for a dense model."""
    expert_width: int | None = None
    """Inner width of one expert."""
    vocabulary: int | None = None
    context: int | None = None
    """Tokens that it was trained for."""
    parameters: int | None = None
    weight_bytes: int | None = None
    """Of the whole checkpoint."""
    weight_source: str = ""
    """Where ``weight_bytes`` comes from."""
    mtp_layers: int = 0
    """Next-token layers that come with it, for drafting."""
    mtp_bytes: int = 0
    """Their part of ``weight_bytes``, by arithmetic."""
    dtype: str | None = None
    quantization: str | None = None
    vision: tuple[int, int] | None = None
    """Layers and width of its image encoder."""
    block_size: int | None = None
    """Tokens of a block, for drafters that propose blocks."""
    reads_hidden: int | None = None
    """Width of the target's hidden state that a drafter reads; None for a model of its own."""
    target_layers: int | None = None
    """Layers of the target that a drafter was trained for."""
    unknown: tuple[str, ...] = ()
    """What memory depends on and the files do not say in a way that is understood."""

    @property
    def kv_layers(self) -> int:
        """Layers that keep something of each token."""
        return sum(kind.layers for kind in self.attention)

    @property
    def kv_heads(self) -> int | None:
        """Heads kept by its first kind of attention."""
        return self.attention[0].kv_heads if self.attention else None

    @property
    def family(self) -> str:
        """Such as ``GQA``, ``MLA, MoE`` or ``GQA + GDN``."""
        mixers = [self._attention_word(), *(kind.kind for kind in self.recurrent)]
        words = " + ".join(word for word in mixers if word)
        return f"{words}, MoE" if self.experts else words

    def _attention_word(self) -> str:
        if not self.attention:
            return ""
        if self.attention[0].latent:
            return "MLA"
        return "MHA" if self.attention[0].kv_heads == self.heads else "GQA"


def mismatches(target: ModelFacts, draft: ModelFacts) -> tuple[str, ...]:
    """Why ``draft`` cannot draft for ``target``; empty where nothing known speaks against it."""
    return tuple(_mismatches(target, draft))


def _mismatches(target: ModelFacts, draft: ModelFacts) -> Iterator[str]:
    for what, ours, theirs in (
        ("vocabulary", target.vocabulary, draft.vocabulary),
        ("hidden size", target.hidden, draft.reads_hidden),
        ("layers of the target", target.layers, draft.target_layers),
    ):
        if None not in (ours, theirs) and ours != theirs:
            yield f"{what}: the target's is {ours:,}, the draft was made for {theirs:,}"
