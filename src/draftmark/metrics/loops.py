"""Whether a text ends in a loop."""

_LONGEST = 6_000
_FEWEST_REPEATS = 3
_SHORTEST = 48
_PROBE = 16


def loop_length(text: str) -> int:
    """Characters at the end of a text that are one passage repeated at least three times, else 0.

    A greedy decoder that falls into a loop stays in it, so the repetition is exact and reaches the end.
    The passage must be seen three times in the last 6,000 characters, the whole be 48 long: less is style.
    A loop that counts on (``7. Water``, ``8. Water``) is not recognised, as sorted numbers look the same.
    """
    tail = text[-_LONGEST:]
    # A loop has its own last characters in it once more, which is quickly ruled out for most texts.
    if tail.find(tail[-_PROBE:]) == len(tail) - _PROBE:
        return 0
    run, period = max(
        (
            (period + match, period)
            for period, match in enumerate(_matches(tail[::-1]))
            if match >= (_FEWEST_REPEATS - 1) * period > 0
        ),
        default=(0, 0),
    )
    if run < _SHORTEST:
        return 0
    while run < len(text) and text[-run - 1] == text[period - run - 1]:
        run += 1
    return run


def _matches(text: str) -> list[int]:
    """For each shift, how far the shifted text agrees with the text: the Z function, in linear time."""
    reach = [0] * len(text)
    left = right = 0
    for i in range(1, len(text)):
        length = min(right - i, reach[i - left]) if i < right else 0
        while i + length < len(text) and text[length] == text[i + length]:
            length += 1
        reach[i] = length
        if i + length > right:
            left, right = i, i + length
    return reach
