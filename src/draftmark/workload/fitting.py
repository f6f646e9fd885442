"""Text cut so that a prompt has exactly the asked-for number of tokens."""

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache

from draftmark.errors import BadInput

PAD = " ."
"""Marks what was left out, as in ". . ."; nearly every tokenizer makes one token of each."""
ODD = ("", ".", "\n", " -")
"""One of these stands before the padding where ``PAD`` alone changes the count by more than one."""
TRIES = 6
"""Word ends to go back over; each leaves another remainder to pad."""


def fit(text: str, tokens: int, count: Callable[[str], int], keep: int = 0) -> str:
    """The beginning of ``text``, cut at a word and padded, for which ``count`` is exactly ``tokens``.

    The first ``keep`` characters stay. ``count`` may merge over word boundaries and need not grow with every
    character; what is returned has been counted. Raises BadInput where ``text`` is too short, or too long in
    what must stay, or no padding gives the number.
    """

    @cache
    def over(end: int) -> int:
        return count(text[:end]) - tokens

    if over(keep) > 0:
        least = over(keep) + tokens
        raise BadInput(
            f"a context of {tokens} tokens is too short: what it must hold takes {least}",
            f"ask for a length of at least {2 * least}",
        )
    if over(len(text)) < 0:
        raise BadInput(f"a context of {tokens} tokens is longer than the text that draftmark has for it")
    for end in _word_ends(text, keep, over):
        for padded in _padded(text[:end].rstrip(), tokens, count):
            return padded
    raise BadInput(
        f"no prompt of exactly {tokens} tokens could be made with this model's tokenizer",
        "ask for a length that differs by some tokens",
    )


def _word_ends(text: str, keep: int, over: Callable[[int], int]) -> list[int]:
    """The last places to cut that are not over, the last one first."""
    lines = [keep, *_ends("\n", text, keep), len(text)]
    line = last_within(over, lines)
    words = [lines[line], *_ends(r"\s+", text, *lines[line : line + 2])]
    return words[last_within(over, words) :: -1][:TRIES]


def _ends(separator: str, text: str, start: int, stop: int = sys.maxsize) -> Iterator[int]:
    return (match.end() for match in re.compile(separator).finditer(text, start, stop))


def last_within(over: Callable[[int], int], ends: Sequence[int]) -> int:
    """Index of the last of ``ends`` that is not over, where the first one is not.

    Regula falsi in the form called Illinois: ``over`` is nearly a straight line, and each call of it may take
    a server a second.
    """
    low, high = 0, len(ends) - 1
    if over(ends[high]) <= 0:
        return high
    under, above, last = float(-over(ends[low])), float(over(ends[high])), 0
    while high - low > 1:
        guess = low + round((high - low) * under / (under + above))
        guess = min(max(guess, low + 1), high - 1)
        excess = over(ends[guess])
        if excess <= 0:
            low, under, above = guess, float(-excess), above / 2 if last < 0 else above
        else:
            high, above, under = guess, float(excess), under / 2 if last > 0 else under
        last = -1 if excess <= 0 else 1
    return low


def _padded(text: str, tokens: int, count: Callable[[str], int]) -> Iterator[str]:
    """``text`` with each padding that makes it exactly ``tokens`` long."""
    for odd in ODD:
        missing = tokens - count(text + odd)
        for times in range(missing, -1, -1):
            if count(text + odd + PAD * times) == tokens:
                yield text + odd + PAD * times
