"""The header of a GGUF file: what a model is, without its weights.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (versions 2 and 3, little-endian).
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import BinaryIO

from draftmark.errors import BadInput

Value = bool | int | float | str | tuple[bool | int | float, ...]

_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_KEPT = 4096
"""Longer arrays, such as vocabularies, are counted and not kept."""
_MAX_DIMENSIONS = 8
_ALIGNMENT = 32


@dataclass(frozen=True)
class Gguf:
    """What the header says; None where it does not."""

    version: int
    metadata: Mapping[str, Value]
    """Numbers, texts and short arrays of numbers, by their full keys."""
    lengths: Mapping[str, int]
    """Elements of each array."""
    tensors: int
    parameters: int
    tensor_bytes: int
    """From the first tensor to the end of the file."""

    @property
    def architecture(self) -> str | None:
        """Which graph llama.cpp builds for it, e.g. ``llama``."""
        return self._text("general.architecture")

    @property
    def name(self) -> str | None:
        """As its makers call it."""
        return self._text("general.name")

    @property
    def layers(self) -> int | None:
        """Transformer blocks."""
        return self._number("block_count")

    @property
    def embedding(self) -> int | None:
        """Width of the hidden state."""
        return self._number("embedding_length")

    @property
    def context_length(self) -> int | None:
        """Tokens that it was trained for."""
        return self._number("context_length")

    @property
    def heads(self) -> int | None:
        """Attention heads; None where layers differ."""
        return self._number("attention.head_count")

    @property
    def kv_heads(self) -> int | None:
        """Key-value heads; None where layers differ."""
        return self._number("attention.head_count_kv")

    @property
    def block_size(self) -> int | None:
        """Tokens of a block, for drafters that propose blocks."""
        return self._number("block_size")

    @property
    def tokenizer(self) -> str | None:
        """Kind of tokenizer, e.g. ``gpt2``."""
        return self._text("tokenizer.ggml.model")

    @property
    def vocabulary(self) -> int | None:
        """Tokens that the tokenizer knows."""
        return self.lengths.get("tokenizer.ggml.tokens")

    def _text(self, key: str) -> str | None:
        value = self.metadata.get(key)
        return value if isinstance(value, str) else None

    def _number(self, key: str) -> int | None:
        value = self.metadata.get(f"{self.architecture}.{key}")
        return value if isinstance(value, int) else None


def read_gguf(file: BinaryIO, name: str) -> Gguf:
    """The header of an open file, from its start; ``name`` stands in errors.

    Raises BadInput where it is no GGUF file, is cut short, or states what cannot be. Reads no more than the
    header and keeps no long array, whatever the file states.
    """
    return _Reader(file, name).header()


class _Reader:
    """Reads forward and believes no length that the file has no room for."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self.file, self.name = file, name
        self.size = file.seek(0, 2)
        file.seek(0)
        self.lengths: dict[str, int] = {}

    def header(self) -> Gguf:
        if self.take(4) != b"GGUF":
            raise BadInput(f"{self.name}: not a GGUF file", "expected a model in llama.cpp's format")
        version = int(self.number("I"))
        if version not in (2, 3):
            raise self.wrong(f"version {version}; 2 and 3 are known")
        tensors, pairs = self.count(smallest=24), self.count(smallest=13)
        metadata: dict[str, Value] = {}
        for _ in range(pairs):
            key = self.text()
            value = self.value(key, int(self.number("I")))
            if value is not None:
                metadata[key] = value
        parameters = sum(self.tensor() for _ in range(tensors))
        start = _aligned(self.file.tell(), metadata.get("general.alignment", _ALIGNMENT))
        return Gguf(version, metadata, self.lengths, tensors, parameters, max(0, self.size - start))

    def wrong(self, what: str) -> BadInput:
        return BadInput(
            f"{self.name}: damaged GGUF header at byte {self.file.tell()}: {what}", "fetch it again"
        )

    def take(self, count: int) -> bytes:
        if count > self.size - self.file.tell():
            raise self.wrong(f"{count} bytes expected, {self.size - self.file.tell()} left")
        return self.file.read(count)

    def number(self, code: str) -> int | float | bool:
        value: int | float | bool = struct.unpack("<" + code, self.take(struct.calcsize("<" + code)))[0]
        return value

    def count(self, smallest: int) -> int:
        """How many things of at least ``smallest`` bytes follow."""
        count = int(self.number("Q"))
        if count * smallest > self.size - self.file.tell():
            raise self.wrong(f"{count} entries do not fit into the file")
        return count

    def text(self) -> str:
        return self.take(self.count(smallest=1)).decode("utf-8", "replace")

    def value(self, key: str, kind: int) -> Value | None:
        """One value; None for an array that is not kept."""
        if kind == _STRING:
            return self.text()
        if kind == _ARRAY:
            return self.array(key)
        if kind not in _NUMBERS:
            raise self.wrong(f"'{key}' has the unknown type {kind}")
        return self.number(_NUMBERS[kind])

    def array(self, key: str) -> Value | None:
        kind = int(self.number("I"))
        if kind == _STRING:
            self.lengths[key] = self.count(smallest=8)
            for _ in range(self.lengths[key]):
                self.file.seek(self.count(smallest=1), 1)
            return None
        if kind not in _NUMBERS:
            raise self.wrong(f"'{key}' is an array of the unknown type {kind}")
        width = struct.calcsize("<" + _NUMBERS[kind])
        self.lengths[key] = count = self.count(smallest=width)
        if count > _KEPT:
            self.file.seek(count * width, 1)
            return None
        return struct.unpack(f"<{count}{_NUMBERS[kind]}", self.take(count * width))

    def tensor(self) -> int:
        """Elements of the next tensor."""
        name, dimensions = self.text(), int(self.number("I"))
        if dimensions > _MAX_DIMENSIONS:
            raise self.wrong(f"tensor '{name[:60]}' has {dimensions} dimensions")
        shape = [int(self.number("Q")) for _ in range(dimensions)]
        self.take(12)
        return prod(shape)


def _aligned(position: int, alignment: Value) -> int:
    unit = alignment if isinstance(alignment, int) and alignment > 0 else _ALIGNMENT
    return -(-position // unit) * unit
