"""Where ended exchanges wait to be read: in memory, and beyond a bound in a temporary file."""

import marshal
import sys
from collections import deque
from collections.abc import Callable, Iterator
from math import ceil
from typing import IO

from draftmark.client import Exchange
from draftmark.schema import Request

IN_MEMORY = 64 << 20
"""Bytes of answers."""
HASTE = 64
"""Of so many that wait one goes into the file at a time, which takes a fraction of a millisecond."""


class Shelf:
    """Takes exchanges in during a run, and gives each out once after it."""

    def __init__(self, in_memory: int = IN_MEMORY) -> None:
        self._room = in_memory
        self._kept: deque[Exchange] = deque()
        self._excess: deque[Exchange] = deque()
        self._overflow: _Overflow | None = None

    def add(self, exchange: Exchange) -> None:
        """Costs next to nothing: what does not fit into memory waits for ``tidy``."""
        exchange.wire = b""
        self._room -= sum(map(len, exchange.log[1::2])) if self._room > 0 else 0
        (self._kept if self._room > 0 else self._excess).append(exchange)

    def tidy(self) -> None:
        """Put some of those that wait into the file, between two polls: the more of them, the more wait."""
        for _ in range(ceil(len(self._excess) / HASTE)):
            self._overflow = self._overflow or _Overflow()
            self._overflow.put(self._excess.popleft())

    def take_all(self) -> Iterator[Exchange]:
        """Each exchange, which is then no longer here."""
        while self._kept:
            yield self._kept.popleft()
        if self._overflow:
            yield from self._overflow.take_all()
        while self._excess:
            yield self._excess.popleft()


class _Overflow:
    """A temporary file of compressed answers; streams shrink to a twentieth."""

    def __init__(self) -> None:
        # Imported here because few runs need them: they would be a third of the client's start-up.
        from tempfile import TemporaryFile

        if sys.version_info >= (3, 14):
            from compression import zstd
        else:
            from backports import zstd
        self._pack: Callable[[bytes, int], bytes] = zstd.compress
        self._unpack: Callable[[bytes], bytes] = zstd.decompress
        self._file: IO[bytes] = TemporaryFile()  # noqa: SIM115 - closed when all is taken
        self._put: deque[tuple[Request, int]] = deque()

    def put(self, exchange: Exchange) -> None:
        data = self._pack(marshal.dumps(exchange.stowed()), 1)
        self._file.write(data)
        self._put.append((exchange.request, len(data)))

    def take_all(self) -> Iterator[Exchange]:
        self._file.seek(0)
        while self._put:
            request, size = self._put.popleft()
            yield Exchange.restored(request, marshal.loads(self._unpack(self._file.read(size))))
        self._file.close()
