"""Facts of the model that a path holds."""

import json
from pathlib import Path

from draftmark.errors import BadInput
from draftmark.models.config import config_facts
from draftmark.models.facts import Attention, ModelFacts, Recurrent
from draftmark.models.gguf import Gguf, read_gguf

INDEX = "model.safetensors.index.json"


def facts_of(path: Path) -> ModelFacts:
    """Facts of a model's folder, or of a GGUF file or config.json.

    Raises BadInput where there is none, or where what there is cannot be read.
    """
    if path.is_dir():
        return _of_folder(path)
    if path.suffix == ".gguf":
        return _of_gguf(path)
    return config_facts(_text(path), str(path))


def _of_folder(folder: Path) -> ModelFacts:
    config = folder / "config.json"
    if config.is_file():
        return config_facts(_text(config), str(config), _stored(folder))
    models = sorted(folder.glob("*.gguf"))
    if len(models) == 1:
        return _of_gguf(models[0])
    held = "it holds several GGUF files; name one" if models else "it holds neither"
    raise BadInput(f"{folder}: expected a model's config.json or one GGUF file", held)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(
            f"{path}: cannot be read: {error}", "expected a model's folder, config or GGUF file"
        ) from error


def _of_gguf(path: Path) -> ModelFacts:
    try:
        with path.open("rb") as file:
            return gguf_facts(read_gguf(file, str(path)), str(path))
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error}") from error


def _stored(folder: Path) -> tuple[int, str] | None:
    """Bytes of the weights, and where that is from: the index, else the files."""
    index = folder / INDEX
    if index.is_file() and (total := index_bytes(_text(index), str(index))):
        return total, INDEX
    sizes = [file.stat().st_size for file in folder.glob("*.safetensors")]
    return (sum(sizes), "size of the safetensors files") if sizes else None


def index_bytes(text: str, name: str = INDEX) -> int | None:
    """Bytes of all tensors from the text of a safetensors index; None where it does not state them."""
    try:
        index = json.loads(text)
    except json.JSONDecodeError as error:
        raise BadInput(f"{name}:{error.lineno}: not JSON: {error.msg}") from error
    metadata = index.get("metadata") if isinstance(index, dict) else None
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    return int(total) if isinstance(total, int | float) and total > 0 else None


_SHORT_CONVOLUTION = ("lfm2", "lfm2moe")
_MAMBA2 = ("mamba2", "nemotron_h", "nemotron_h_moe", "falcon-h1", "granitehybrid", "plamo2")
_GDN = ("qwen3next", "qwen35", "qwen35moe")


def gguf_facts(header: Gguf, name: str) -> ModelFacts:
    """Facts from a GGUF header; ``mtp_bytes`` stays 0, since llama.cpp loads the whole file."""
    attention, recurrent = _GgufLayers(header).kinds()
    known = attention or recurrent
    return ModelFacts(
        source=name,
        architecture=header.architecture,
        layers=header.layers,
        hidden=header.embedding,
        heads=header.heads,
        attention=attention,
        recurrent=recurrent,
        experts=_number(header, "expert_count") or None,
        expert_width=_number(header, "expert_feed_forward_length"),
        vocabulary=header.vocabulary,
        context=header.context_length,
        parameters=header.parameters,
        weight_bytes=header.tensor_bytes,
        weight_source="tensors of the GGUF file",
        mtp_layers=_number(header, "nextn_predict_layers") or 0,
        block_size=header.block_size,
        reads_hidden=header.embedding if header.block_size else None,
        unknown=() if known else ("what its layers keep of a token",),
    )


def _number(header: Gguf, key: str) -> int | None:
    value = header.metadata.get(f"{header.architecture}.{key}")
    return value if isinstance(value, int) and not isinstance(value, bool) else None


class _GgufLayers:
    """What the layers of a GGUF model keep."""

    def __init__(self, header: Gguf) -> None:
        self.header = header
        self.count = max(0, (header.layers or 0) - (_number(header, "nextn_predict_layers") or 0))

    def kinds(self) -> tuple[tuple[Attention, ...], tuple[Recurrent, ...]]:
        per_layer = self.kv_heads()
        attending = [heads for heads in per_layer if heads]
        state = self.state(self.count if self.header.architecture == "falcon-h1" else per_layer.count(0))
        attention = self.attention(attending) if attending else ()
        return attention, (state,) if state else ()

    def kv_heads(self) -> list[int]:
        """KV heads of each layer, 0 for a recurrent one; empty where not stated."""
        kept = self.header.metadata.get(f"{self.header.architecture}.attention.head_count_kv")
        if isinstance(kept, tuple):
            return [int(heads) for heads in kept][: self.count]
        heads = self.header.kv_heads or self.header.heads
        if not heads:
            return []
        interval = _number(self.header, "full_attention_interval") or (4 if self.recurs() else 1)
        return [0 if (layer + 1) % interval else heads for layer in range(self.count)]

    def recurs(self) -> bool:
        return self.header.architecture in _GDN

    def attention(self, attending: list[int]) -> tuple[Attention, ...]:
        header = self.header
        if rank := _number(header, "attention.kv_lora_rank"):
            rope = _number(header, "rope.dimension_count") or 0
            return (Attention(len(attending), 1, rank + rope, 0, latent=True),)
        heads = header.heads or max(attending)
        key = _number(header, "attention.key_length") or (header.embedding or 0) // heads
        value = _number(header, "attention.value_length") or key
        return tuple(
            Attention(attending.count(kept), kept, key, value)
            for kept in sorted(set(attending), reverse=True)
        )

    def state(self, layers: int) -> Recurrent | None:
        header, architecture = self.header, self.header.architecture or ""
        if not layers:
            return None
        if architecture in _SHORT_CONVOLUTION:
            kernel = _number(header, "shortconv.l_cache") or 3
            return Recurrent("short convolution", layers, 1, header.embedding or 0, 0, 0, kernel)
        inner, wide = _number(header, "ssm.inner_size"), _number(header, "ssm.state_size")
        if not inner or not wide:
            return None
        kernel = _number(header, "ssm.conv_kernel") or 4
        heads = _number(header, "ssm.time_step_rank") or 1
        if architecture in (*_GDN, *_MAMBA2):
            kind, groups = (
                "GDN" if architecture in _GDN else "Mamba2",
                _number(header, "ssm.group_count") or 1,
            )
            return Recurrent(kind, layers, heads, inner // heads, groups, wide, kernel)
        return Recurrent("Mamba", layers, inner, 1, 0, wide, kernel)
