"""Whether a method changed the greedy output.

A rounding difference flips a choice only where two tokens are about equally likely, so a difference at a
narrow margin says nothing against a method and one at a wide margin does. Without margins the two cannot
be told apart: a baseline that repeats itself to the bit is no proof, since only another batch shape rounds
differently. Such a cell is "not checked", with its counts.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from math import inf

from draftmark.compare.pairs import Key, Pair, Side, keyed, paired
from draftmark.schema import Cell, Chunk, Lossless, Losslessness, Parting, RequestRecord

NEAR_TIE = 0.1
"""Nats between the two likeliest tokens; flips were measured at up to 0.072, the median token at 1 to 4."""
WORD, LONGEST_WORD = re.compile(r"(?:\s?\S+|\s+)\Z"), 64
"""A word at the end of a text, with the space ahead of it; characters."""
EXCERPT = 80
"""Characters shown of each side from the first difference on."""


def lossless(cell: Cell, base: Side, other: Side) -> Lossless:
    """The method's outputs against the baseline's, with the baseline's own repetition as control."""
    measured, control = base.of("measured"), base.of("control")
    pairs = list(_comparable(paired(measured, other.of("measured")))) if cell.temperature == 0 else []
    controls = list(_comparable(paired(measured, control))) if cell.temperature == 0 else []
    tokens = bool(pairs) and all(_ids(pair.base) and _ids(pair.other) for pair in (*pairs, *controls))
    differing = [(pair, place) for pair in pairs if (place := _first_difference(pair, tokens)) is not None]
    repeats = keyed(base.of("margins") or control)
    partings = [_shown(pair, place, tokens, repeats) for pair, place in differing]
    margins = [parting.margin for parting in partings]
    return Lossless(
        service=other.service.id,
        method=other.service.method.name,
        cell=cell.id,
        verdict=_verdict(len(pairs), margins),
        compared=len(pairs),
        differing=len(differing),
        control_compared=len(controls),
        control_differing=sum(_first_difference(pair, tokens) is not None for pair in controls),
        partings=tuple(sorted(partings, key=_gravity, reverse=True)),
        near_ties=None if None in margins else sum(m is not None and m < NEAR_TIE for m in margins),
        unit="token" if tokens else "character",
    )


def _gravity(parting: Parting) -> float:
    """Its margin; one that is not known stands between the wide ones and the narrow."""
    return NEAR_TIE if parting.margin is None else parting.margin


def _verdict(compared: int, margins: Sequence[float | None]) -> Losslessness:
    """Of the margins of all differences: one wide margin decides, an unknown one forbids the all-clear."""
    if not compared:
        return "not checked"
    if any(margin is not None and margin >= NEAR_TIE for margin in margins):
        return "diverges"
    if None in margins:
        return "not checked"
    return "near-ties only" if margins else "identical"


def _comparable(pairs: Sequence[Pair]) -> Iterator[Pair]:
    """Pairs that were asked the same: a session's turns up to the first that was answered differently."""
    parted: set[tuple[str, int]] = set()
    for pair in sorted(pairs, key=lambda pair: pair.key):
        session = pair.key[0], pair.key[2]
        if session not in parted:
            yield pair
        if pair.base.turn is not None and pair.base.chunks.whole_text != pair.other.chunks.whole_text:
            parted.add(session)


def _first_difference(pair: Pair, tokens: bool) -> int | None:
    """Where the outputs part, counted in tokens or characters; None where they do not."""
    base, other = _said(pair.base, tokens), _said(pair.other, tokens)
    return None if base == other else _parting(base, other)


def _parting(base: Sequence[object], other: Sequence[object]) -> int:
    """The first place that differs; the end of the shorter one where it begins the longer."""
    ends = min(len(base), len(other))
    return next((i for i, (a, b) in enumerate(zip(base, other, strict=False)) if a != b), ends)


def _said(record: RequestRecord, tokens: bool) -> Sequence[object]:
    return _ids(record) if tokens else record.chunks.whole_text


def _ids(record: RequestRecord) -> tuple[int, ...]:
    """All token ids; empty unless every chunk that has text has them."""
    if any(not chunk.ids and (chunk.text or chunk.reasoning) for chunk in record.chunks):
        return ()
    return tuple(token for chunk in record.chunks for token in chunk.ids)


def _margin(pair: Pair, place: int, tokens: bool, repeats: Mapping[Key, RequestRecord]) -> float | None:
    """The baseline's margin where the outputs part, from its own record or from its repetition."""
    said = _said(pair.base, tokens)[:place]
    begin = place if tokens else _choice(pair.other, place)
    for record in (pair.base, repeats.get(pair.key)):
        if record and _said(record, tokens)[:place] == said:
            margin = _narrowest(record, begin, place, tokens)
            if margin is not None:
                return margin
    return None


def _choice(other: RequestRecord, place: int) -> int:
    """The earliest character at which the token was chosen that holds the first one that differs.

    The tokens " S", "ower" and " Sw", "arm" part at their second letter and were chosen at the space. A token
    begins no earlier than the piece that it came in, and hardly ever before the space ahead of its word.
    """
    text, begin = other.chunks.whole_text, 0
    for size in _sizes(other, tokens=False):
        if begin + size > place:
            break
        begin += size
    word = WORD.search(text[:place][-LONGEST_WORD:])
    return min(place, max(begin, place - len(word[0]) if word else place))


def _narrowest(record: RequestRecord, begin: int, end: int, tokens: bool) -> float | None:
    """The least margin of what holds any of these places, both included; None where it is not known."""
    past = [*accumulate(_sizes(record, tokens))]
    margins = [
        chunk.margins[begin - start] if tokens and len(chunk.margins) == len(chunk.ids) else _sole(chunk)
        for chunk, start, after in zip(record.chunks, [0, *past], past, strict=False)
        if start <= end and begin <= max(start, after - 1) and (after > start or chunk.margins)
    ]
    known = [margin for margin in margins if margin is not None]
    sure = len(known) == len(margins) or any(margin < NEAR_TIE for margin in known)
    return min(known, default=None) if sure else None


def _sole(chunk: Chunk) -> float | None:
    """The margin of a chunk of one token; of several tokens only what is true of each of them."""
    least, most = min(chunk.margins, default=inf), max(chunk.margins, default=-inf)
    if least <= most < NEAR_TIE or NEAR_TIE <= least <= most:
        return least
    return None


def _sizes(record: RequestRecord, tokens: bool) -> Iterator[int]:
    """Tokens or characters of each chunk."""
    for chunk in record.chunks:
        yield len(chunk.ids) if tokens else len(chunk.reasoning) + len(chunk.text)


def _shown(pair: Pair, place: int, tokens: bool, repeats: Mapping[Key, RequestRecord]) -> Parting:
    """The place, and what each side said from there."""
    base, other = pair.base.chunks.whole_text, pair.other.chunks.whole_text
    start = _parting(base, other) if tokens else place
    return Parting(
        prompt=pair.key[0],
        turn=pair.base.turn,
        position=place,
        margin=_margin(pair, place, tokens, repeats),
        baseline=base[start : start + EXCERPT],
        method=other[start : start + EXCERPT],
    )
