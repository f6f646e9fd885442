"""What the load client's processes say to each other: a letter, a length, and msgpack."""

import pickle
import struct
from collections.abc import Iterator
from typing import Any

import msgspec

from draftmark.schema import Chunks, RequestRecord

JOB, GO = b"J", b"G"
"""Down: a LoadJob; the time from which the cell counts."""
READY, PROGRESS, RECORD, DONE, BAD = b"R", b"P", b"X", b"D", b"B"
"""Up: connected; requests ended so far; a RequestRecord; duration and LoadHealth; a BadInput's two texts."""

_HEAD = struct.Struct("<cI")


def _out(value: object) -> bytes:
    """An answer's chunks go as they lie in memory: the two ends are one program on one machine."""
    if isinstance(value, Chunks):
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    raise NotImplementedError(type(value).__name__)


def _in(kind: type, data: bytes) -> Any:
    if kind is Chunks:
        return pickle.loads(data)
    raise NotImplementedError(kind.__name__)


_encoder = msgspec.msgpack.Encoder(enc_hook=_out)
record = msgspec.msgpack.Decoder(RequestRecord, dec_hook=_in).decode
"""A RECORD's payload as the record."""


def encode(kind: bytes, value: Any) -> bytes:
    """A message as it goes through a pipe."""
    payload = _encoder.encode(value)
    return _HEAD.pack(kind, len(payload)) + payload


class Messages:
    """Messages out of a pipe's bytes, however they are split."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        """(kind, payload) of the messages that end in these bytes."""
        self._rest += data
        while len(self._rest) >= _HEAD.size:
            kind, size = _HEAD.unpack_from(self._rest)
            end = _HEAD.size + size
            if len(self._rest) < end:
                return
            payload = bytes(self._rest[_HEAD.size : end])
            del self._rest[:end]
            yield kind, payload
