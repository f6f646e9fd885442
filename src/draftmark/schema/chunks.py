"""The pieces of one answer: one by one, and in columns, which take a fraction of the memory."""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, compress, pairwise, repeat
from typing import Any, overload

import msgspec

from draftmark.schema.common import Frozen


class Chunk(Frozen, frozen=True, kw_only=True, array_like=True):
    """One token-carrying piece of a stream."""

    t_s: float
    """Arrival, seconds after the request's start."""
    text: str = ""
    reasoning: str = ""
    tokens: int | None = None
    """Tokens in it, where the engine says so; never guessed."""
    ids: tuple[int, ...] = ()
    margins: tuple[float, ...] = ()
    """Of each token, its log-probability over that of the runner-up, in nats, where they were asked for."""


class _Texts:
    """Texts end to end, and where each ends; no ends where all are empty."""

    __slots__ = ("ends", "whole")

    def __init__(self, texts: Sequence[str]) -> None:
        self.whole = "".join(texts)
        self.ends = array("I", accumulate(map(len, texts)) if self.whole else ())

    def __getitem__(self, index: int) -> str:
        return self.whole[self.ends[index - 1] if index else 0 : self.ends[index]] if self.ends else ""

    def __iter__(self) -> Iterator[str]:
        if not self.ends:
            return repeat("")
        return (self.whole[begin:end] for begin, end in pairwise(chain((0,), self.ends)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Texts) and (self.whole, self.ends) == (other.whole, other.ends)


class Chunks(Sequence[Chunk]):
    """All chunks of an answer; one that has nothing but a time and a few letters takes some 20 bytes.

    A column of which no chunk has anything is left out.
    """

    __slots__ = ("_ids", "_margins", "_reasoning", "_texts", "_tokens", "t_s")

    def __init__(self, chunks: Iterable[Chunk] = ()) -> None:
        rows = list(chunks)
        self.t_s = array("d", [row.t_s for row in rows])
        """Arrival of each, seconds after the request's start."""
        self._texts = _Texts([row.text for row in rows])
        self._reasoning = _Texts([row.reasoning for row in rows])
        tokens, ids = [row.tokens for row in rows], [row.ids for row in rows]
        margins = [row.margins for row in rows]
        self._tokens = tokens if tokens.count(None) < len(tokens) else None
        self._ids = ids if any(ids) else None
        self._margins = margins if any(margins) else None

    @property
    def text(self) -> str:
        """All text, reasoning excluded."""
        return self._texts.whole

    @property
    def reasoning(self) -> str:
        """All reasoning."""
        return self._reasoning.whole

    @property
    def whole_text(self) -> str:
        """All that was generated, reasoning and answer in the order of arrival."""
        if self.text and self.reasoning:
            return "".join(chain.from_iterable(zip(self._reasoning, self._texts, strict=True)))
        return self.text or self.reasoning

    @property
    def counts(self) -> list[int | None]:
        """Tokens of each: as the engine says, else as many as there are ids, else None."""
        told = self._tokens or [None] * len(self)
        if self._ids is None:
            return told
        ids = zip(told, self._ids, strict=True)
        return [len(known) or None if tokens is None else tokens for tokens, known in ids]

    @property
    def token_times_s(self) -> "array[float]":
        """Arrivals of those that carry tokens: all but where the engine says that one holds none."""
        if self._tokens is None or 0 not in self._tokens:
            return self.t_s
        return array("d", compress(self.t_s, [tokens != 0 for tokens in self._tokens]))

    def rows(self) -> list[tuple[Any, ...]]:
        """Each chunk as its fields in their order."""
        tokens = self._tokens or repeat(None)
        ids, margins = self._ids or repeat(()), self._margins or repeat(())
        return list(zip(self.t_s, self._texts, self._reasoning, tokens, ids, margins, strict=False))

    def __len__(self) -> int:
        return len(self.t_s)

    @overload
    def __getitem__(self, index: int) -> Chunk: ...
    @overload
    def __getitem__(self, index: slice) -> list[Chunk]: ...
    def __getitem__(self, index: int | slice) -> Chunk | list[Chunk]:
        if isinstance(index, slice):
            return [self[i] for i in range(len(self))[index]]
        place = range(len(self))[index]
        return Chunk(
            t_s=self.t_s[place],
            text=self._texts[place],
            reasoning=self._reasoning[place],
            tokens=self._tokens[place] if self._tokens else None,
            ids=self._ids[place] if self._ids else (),
            margins=self._margins[place] if self._margins else (),
        )

    def __iter__(self) -> Iterator[Chunk]:
        return iter(msgspec.convert(self.rows(), list[Chunk]))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Chunks) and all(
            getattr(self, column) == getattr(other, column) for column in self.__slots__
        )


def chunks_out(value: object) -> list[tuple[Any, ...]]:
    """For msgspec's ``enc_hook``: an answer's chunks are stored one by one."""
    if isinstance(value, Chunks):
        return value.rows()
    raise NotImplementedError(f"{type(value).__name__} is not stored")


def chunks_in(kind: type, stored: Any) -> Chunks:
    """For msgspec's ``dec_hook``: the reverse; a ValidationError says what is wrong with them."""
    if kind is Chunks:
        return Chunks(msgspec.convert(stored, list[Chunk]))
    raise NotImplementedError(f"{kind.__name__} is not stored")
