"""Requests from recorded traffic: ShareGPT conversations and Mooncake traces."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import islice
from math import ceil
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from draftmark.errors import BadInput
from draftmark.schema import Cell, Message, Request
from draftmark.workload.contexts import documents, passage
from draftmark.workload.draw import Draw
from draftmark.workload.prompts import sampling_seed

BLOCK = 512
"""Tokens that one hash id of a Mooncake trace stands for (Mooncake's FAST'25 traces)."""
PASSAGE = 3_000
"""Characters; as a rule some more than a block has."""

CONVERSATION = 'expected [{"id": …, "conversations": [{"from": "human", "value": …}, …]}, …]'
LINE = 'expected {"timestamp": …, "input_length": …, "output_length": …, "hash_ids": […]}'
PEOPLE = ("human", "user")
_SPACE = re.compile(r"\s*")

Count = Annotated[int, Meta(ge=1)]
Encode = Callable[[str], Sequence[int]]
"""Text to token ids in the target's own tokenizer, without special tokens."""


class Said(msgspec.Struct, frozen=True):
    """One turn of a ShareGPT conversation."""

    speaker: str = msgspec.field(name="from")
    value: str


class Conversation(msgspec.Struct, frozen=True):
    """One entry of a ShareGPT file; other fields are left alone."""

    conversations: tuple[Said, ...]
    id: str | int | None = None

    @property
    def question(self) -> str:
        """What a person opens it with; empty where nobody does."""
        first = self.conversations[:1]
        return first[0].value.strip() if first and first[0].speaker in PEOPLE else ""


class Arrived(msgspec.Struct, frozen=True):
    """One line of a Mooncake trace; other fields are left alone."""

    timestamp: Annotated[float, Meta(ge=0)]
    """Milliseconds."""
    input_length: Count
    output_length: Count
    hash_ids: tuple[int, ...]
    """One for each block of the prompt; equal ones stand for equal blocks after equal prefixes."""


def recorded(cell: Cell, text: str, encode: Encode) -> tuple[Request, ...]:
    """The requests of a ``trace`` cell, from the text of its file.

    Raises BadInput with file and line where ``text`` is no such file, or has not enough requests.
    """
    if cell.format == "mooncake":
        return _prompts(cell, text, encode)
    return tuple(_question(cell, *entry) for entry in questions(cell, text))


def check_trace(cell: Cell, text: str) -> None:
    """Raise BadInput where ``recorded`` would, without a tokenizer."""
    _ = lines(cell, text) if cell.format == "mooncake" else questions(cell, text)


# --- ShareGPT --------------------------------------------------------------------------------------


def questions(cell: Cell, text: str) -> list[tuple[int, Conversation]]:
    """(place in the file, conversation) of the cell's own ones among those that can be used.

    Usable is what a person opens with at most ``longest`` bytes: no tokenizer makes more tokens of it.
    Raises BadInput with file and line; what comes after the cell's own is not read.
    """
    usable = (
        (place, entry)
        for place, entry in enumerate(_conversations(text, str(cell.trace)))
        if 0 < len(entry.question.encode()) <= (cell.longest or 0)
    )
    needed = cell.first_prompt + cell.requests
    found = list(islice(usable, needed))
    if len(found) < needed:
        hint = "no two cells share one: lower 'requests', or raise 'longest'"
        raise BadInput(
            f"{cell.trace}: '{cell.id}' needs {needed} conversations that a person opens with at most "
            f"{cell.longest} bytes, and it has {len(found)}",
            hint,
        )
    return found[cell.first_prompt :]


def _conversations(text: str, source: str) -> Iterator[Conversation]:
    for entry, line in _entries(text, source):
        try:
            yield msgspec.convert(entry, Conversation)
        except msgspec.ValidationError as error:
            raise BadInput(f"{source}:{line}: {error}", CONVERSATION) from None


def _entries(text: str, source: str) -> Iterator[tuple[Any, int]]:
    """(value, line) of each item of a JSON list, decoded one at a time."""
    decode, at = json.JSONDecoder().raw_decode, _after(text, 0)
    if text[at : at + 1] != "[":
        raise BadInput(f"{source}:{_line(text, at)}: not a JSON list", CONVERSATION)
    at = _after(text, at + 1)
    more = text[at : at + 1] != "]"
    while more:
        try:
            entry, end = decode(text, at)
        except json.JSONDecodeError as error:
            raise BadInput(f"{source}:{error.lineno}: not valid JSON: {error.msg}", CONVERSATION) from None
        yield entry, _line(text, at)
        end = _after(text, end)
        if text[end : end + 1] not in (",", "]"):
            raise BadInput(f"{source}:{_line(text, end)}: not valid JSON: expected ',' or ']'", CONVERSATION)
        more, at = text[end] == ",", _after(text, end + 1)


def _after(text: str, at: int) -> int:
    """The next place that is not white."""
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def _question(cell: Cell, place: int, entry: Conversation) -> Request:
    name = f"sharegpt-{place}" if entry.id is None else f"sharegpt-{place}-{entry.id}"
    return Request(
        id=f"measured-{place}",
        prompt_id=name,
        kind="sharegpt",
        messages=(Message(role="user", content=entry.question),),
        max_tokens=cell.max_tokens,
        temperature=cell.temperature,
        seed=sampling_seed(name),
    )


# --- Mooncake --------------------------------------------------------------------------------------


def lines(cell: Cell, text: str) -> list[Arrived]:
    """The first lines whose prompts have at most ``longest`` tokens, the same for each cell of a trace.

    Raises BadInput with file and line; what comes after them is not read.
    """
    arrived = (
        _arrived(line, f"{cell.trace}:{number}")
        for number, line in enumerate(text.splitlines(), start=1)
        if line.strip()
    )
    usable = (line for line in arrived if line.input_length <= (cell.longest or 0))
    found = list(islice(usable, cell.requests))
    if len(found) < cell.requests:
        raise BadInput(
            f"{cell.trace}: '{cell.id}' needs {cell.requests} requests with at most {cell.longest} tokens, "
            f"and it has {len(found)}",
            "lower 'requests', or raise 'longest'",
        )
    return found


def _prompts(cell: Cell, text: str, encode: Encode) -> tuple[Request, ...]:
    """Token ids of real text: each prompt as long as it was recorded, with the blocks that it shared.

    The text is not the one that was recorded: acceptance is not the recorded traffic's. No block of one cell
    is that of another.
    """
    found = lines(cell, text)
    start = min(line.timestamp for line in found)

    @cache
    def block(hash_id: int) -> tuple[int, ...]:
        return _block(hash_id, encode, Draw("block", hash_id, cell.first_prompt, cell.seed))

    def request(number: int, line: Arrived) -> Request:
        name = f"mooncake-{cell.first_prompt + number}-s{cell.seed}"
        return Request(
            id=f"measured-{number}",
            prompt_id=name,
            kind="mooncake",
            prompt=tuple(token for one in line.hash_ids for token in block(one))[: line.input_length],
            max_tokens=min(line.output_length, cell.max_tokens),
            temperature=cell.temperature,
            seed=sampling_seed(name),
            send_at_s=cell.speedup and (line.timestamp - start) / 1000 / cell.speedup,
        )

    return tuple(request(number, line) for number, line in enumerate(found))


def _arrived(line: str, place: str) -> Arrived:
    try:
        found = msgspec.json.decode(line, type=Arrived)
    except msgspec.MsgspecError as error:
        raise BadInput(f"{place}: {error}", LINE) from None
    if len(found.hash_ids) != (blocks := ceil(found.input_length / BLOCK)):
        raise BadInput(
            f"{place}: hash_ids: expected {blocks} of them for {found.input_length} tokens, "
            f"got {len(found.hash_ids)}",
            f"a hash id stands for {BLOCK} tokens, the last one for what is left",
        )
    return found


def _block(hash_id: int, encode: Encode, draw: Draw) -> tuple[int, ...]:
    """The tokens of real text that one hash id stands for."""
    text = f"Part {hash_id} of {draw.between(100_000, 999_999)}.\n"
    tokens: tuple[int, ...] = ()
    while len(tokens) < BLOCK:
        text += passage(*draw.pick(documents()), PASSAGE, draw).text
        tokens = tuple(encode(text))
    return tokens[:BLOCK]
