"""Choices that come out the same wherever they are made."""

from collections.abc import Sequence
from random import Random
from typing import TypeVar

T = TypeVar("T")


class Draw:
    """A stream of choices, fixed by its key.

    Only ``Random.random`` is promised to stay the same in every version of Python: all choices are made
    from it.
    """

    def __init__(self, *key: object) -> None:
        self.uniform = Random("/".join(map(str, key))).random

    def between(self, low: int, high: int) -> int:
        """A whole number from ``low`` to ``high``, both included."""
        return low + int(self.uniform() * (high - low + 1))

    def pick(self, items: Sequence[T]) -> T:
        """One of ``items``."""
        return items[self.between(0, len(items) - 1)]

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """All of ``items`` in another order."""
        return [
            item for _, item in sorted(((self.uniform(), item) for item in items), key=lambda pair: pair[0])
        ]
