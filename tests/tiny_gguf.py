"""Writes real but meaningless models of half a megabyte, which llama.cpp loads in milliseconds."""

import random
import struct
from array import array
from pathlib import Path

WIDTH, LAYERS, HEADS, HIDDEN, CONTEXT = 64, 2, 4, 128, 4096
END, MASK = "<|end|>", "<|mask|>"
CHAT = "{% for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{% endfor %}assistant: "
BLOCK = 4
U32, I32, F32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9

Shape = tuple[int, ...]


def byte_tokens() -> list[str]:
    """The letters by which GPT-2's tokenizer writes each byte, token i being byte i."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in shown else chr(next(others)) for byte in range(256)]


def text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def pair(key: str, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def texts(key: str, values: list[str]) -> bytes:
    return pair(key, ARRAY, struct.pack("<IQ", STRING, len(values)) + b"".join(map(text, values)))


def common(architecture: str, layers: int) -> list[bytes]:
    """What llama.cpp needs to know of either model, its byte-level tokenizer included."""
    tokens = [*byte_tokens(), END, MASK]
    kinds = [1] * 256 + [3, 3]
    sizes = {
        "block_count": layers,
        "context_length": CONTEXT,
        "embedding_length": WIDTH,
        "feed_forward_length": HIDDEN,
        "attention.head_count": HEADS,
        "attention.head_count_kv": HEADS,
        "attention.key_length": WIDTH // HEADS,
        "attention.value_length": WIDTH // HEADS,
        "rope.dimension_count": WIDTH // HEADS,
    }
    return [
        pair("general.architecture", STRING, text(architecture)),
        pair("general.name", STRING, text("tiny")),
        *(pair(f"{architecture}.{key}", U32, struct.pack("<I", value)) for key, value in sizes.items()),
        pair(f"{architecture}.attention.layer_norm_rms_epsilon", F32, struct.pack("<f", 1e-5)),
        pair("tokenizer.ggml.model", STRING, text("gpt2")),
        pair("tokenizer.ggml.pre", STRING, text("gpt-2")),
        texts("tokenizer.ggml.tokens", tokens),
        pair("tokenizer.ggml.token_type", ARRAY, struct.pack(f"<IQ{len(kinds)}i", I32, len(kinds), *kinds)),
        texts("tokenizer.ggml.merges", ["a b"]),
        pair("tokenizer.ggml.bos_token_id", U32, struct.pack("<I", 256)),
        pair("tokenizer.ggml.eos_token_id", U32, struct.pack("<I", 256)),
        pair("tokenizer.ggml.add_bos_token", BOOL, b"\0"),
        pair("tokenizer.chat_template", STRING, text(CHAT)),
    ]


def shapes() -> dict[str, Shape]:
    vocabulary = 258
    found: dict[str, Shape] = {
        "token_embd.weight": (WIDTH, vocabulary),
        "output_norm.weight": (WIDTH,),
        "output.weight": (WIDTH, vocabulary),
    }
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        found |= {f"{block}{name}.weight": (WIDTH,) for name in ("attn_norm", "ffn_norm")}
        found |= {f"{block}attn_{name}.weight": (WIDTH, WIDTH) for name in ("q", "k", "v", "output")}
        found |= {f"{block}ffn_{name}.weight": (WIDTH, HIDDEN) for name in ("gate", "up")}
        found[f"{block}ffn_down.weight"] = (HIDDEN, WIDTH)
    return found


def weights(name: str, shape: Shape, chance: random.Random) -> bytes:
    count = shape[0] * (shape[1] if len(shape) > 1 else 1)
    if len(shape) == 1:
        return array("f", [1.0] * count).tobytes()
    scale = shape[0] ** -0.5
    values = array("f", [chance.gauss(0, scale) for _ in range(count)])
    if name == "output.weight":
        silence(values, width=shape[0])
    return values.tobytes()


def silence(output: "array[float]", width: int) -> None:
    """Leave only printable ASCII a chance, so that the text is whole in every chunk."""
    for token in range(len(output) // width):
        if not 32 <= token < 127:
            output[token * width : (token + 1) * width] = array("f", [0.0] * width)


def write(path: Path, seed: int = 0) -> Path:
    """A model file at ``path``; the same ``seed`` gives the same bytes."""
    return save(path, common("llama", LAYERS), shapes(), seed)


def write_dflash(path: Path, seed: int = 1) -> Path:
    """A drafter for it of one layer, in blocks of ``BLOCK`` tokens, with drafts as random as its weights."""
    layers = list(range(LAYERS))
    own = [
        pair("dflash.block_size", U32, struct.pack("<I", BLOCK)),
        pair("dflash.target_layers", ARRAY, struct.pack(f"<IQ{len(layers)}i", I32, len(layers), *layers)),
        pair("dflash.rope.freq_base", F32, struct.pack("<f", 10000.0)),
        pair("tokenizer.ggml.mask_token_id", U32, struct.pack("<I", 257)),
    ]
    block = {name: shape for name, shape in shapes().items() if name.startswith("blk.0.")}
    head = (WIDTH // HEADS,)
    tensors = block | {
        "fc.weight": (len(layers) * WIDTH, WIDTH),
        "enc.output_norm.weight": (WIDTH,),
        "output_norm.weight": (WIDTH,),
        "blk.0.attn_q_norm.weight": head,
        "blk.0.attn_k_norm.weight": head,
    }
    return save(path, common("dflash", 1) + own, tensors, seed)


def save(path: Path, pairs: list[bytes], tensors: dict[str, Shape], seed: int) -> Path:
    chance = random.Random(seed)
    infos, data = b"", b""
    for name, shape in tensors.items():
        infos += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, len(data))
        data += weights(name, shape, chance)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs)) + b"".join(pairs) + infos
    path.write_bytes(head + b"\0" * (-len(head) % 32) + data)
    return path
