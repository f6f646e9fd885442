"""Requests from recorded traffic: ShareGPT conversations and Mooncake traces."""

import json
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from math import ceil
from typing import Annotated

import msgspec
from msgspec import Meta

from draftmark.errors import BadInput
from draftmark.schema import Message, Request
from draftmark.workload.contexts import LONGEST, documents, passage
from draftmark.workload.draw import Draw
from draftmark.workload.prompts import sampling_seed

Encode = Callable[[str], Sequence[int]]
"""Text to token ids in the target's own tokenizer, without special tokens."""

BLOCK = 512
"""Tokens that one hash id of a Mooncake trace stands for (Mooncake's FAST'25 traces)."""

Count = Annotated[int, Meta(ge=1)]


class Said(msgspec.Struct, frozen=True):
    """One turn of a ShareGPT conversation."""

    speaker: str = msgspec.field(name="from")
    value: str


class Conversation(msgspec.Struct, frozen=True):
    """One entry of a ShareGPT file; other fields are left alone."""

    conversations: tuple[Said, ...]
    id: str | int | None = None


class Arrived(msgspec.Struct, frozen=True):
    """One line of a Mooncake trace; other fields are left alone."""

    timestamp: Annotated[float, Meta(ge=0)]
    """Milliseconds."""
    input_length: Count
    output_length: Count
    hash_ids: tuple[int, ...]
    """One for each block of the prompt; equal ones stand for equal blocks after equal prefixes."""


def sharegpt(text: str, source: str, max_tokens: int) -> tuple[Request, ...]:
    """The first question of each conversation of a ShareGPT file, as requests of a closed loop.

    Conversations that a person does not open are left out. Raises BadInput, with the line or the entry, where
    ``text`` is no such file or no conversation is left.
    """
    try:
        entries = msgspec.convert(json.loads(text), tuple[Conversation, ...])
    except json.JSONDecodeError as error:
        raise BadInput(f"{source}:{error.lineno}: not valid JSON: {error.msg}") from None
    except msgspec.ValidationError as error:
        hint = 'expected [{"id": …, "conversations": [{"from": "human", "value": …}, …]}, …]'
        raise BadInput(f"{source}: {error}", hint) from None
    requests = tuple(_questions(entries, max_tokens))
    if not requests:
        raise BadInput(f"{source}: no conversation in it is opened by 'human' or 'user'")
    return requests


def _questions(entries: Sequence[Conversation], max_tokens: int) -> Iterator[Request]:
    for number, entry in enumerate(entries):
        if not entry.conversations or entry.conversations[0].speaker not in ("human", "user"):
            continue
        name = f"sharegpt-{number}" if entry.id is None else f"sharegpt-{number}-{entry.id}"
        yield Request(
            id=f"measured-{number}",
            prompt_id=name,
            kind="sharegpt",
            messages=(Message(role="user", content=entry.conversations[0].value),),
            max_tokens=max_tokens,
            seed=sampling_seed(name),
        )


def mooncake(text: str, source: str, encode: Encode, seed: int) -> tuple[Request, ...]:
    """The lines of a Mooncake trace as requests of an open loop, the first one sent at 0.

    A prompt is token ids of real text, as long as the trace says, and prompts share exactly the blocks whose
    hash ids they share. The text is not the one that was recorded: acceptance is not the recorded traffic's.
    Raises BadInput with the line where ``text`` is no such trace.
    """
    lines = [
        _arrived(line, f"{source}:{number}")
        for number, line in enumerate(text.splitlines(), start=1)
        if line.strip()
    ]
    if not lines:
        raise BadInput(f"{source}: the file is empty")
    start = min(line.timestamp for line in lines)

    @cache
    def block(hash_id: int) -> tuple[int, ...]:
        return _block(hash_id, encode, seed)

    return tuple(
        Request(
            id=f"measured-{number}",
            prompt_id=f"mooncake-{number}-s{seed}",
            kind="mooncake",
            prompt=tuple(token for name in line.hash_ids for token in block(name))[: line.input_length],
            max_tokens=line.output_length,
            seed=number,
            send_at_s=(line.timestamp - start) / 1000,
        )
        for number, line in enumerate(lines)
    )


def _arrived(line: str, place: str) -> Arrived:
    try:
        found = msgspec.json.decode(line, type=Arrived)
    except msgspec.MsgspecError as error:
        hint = 'expected {"timestamp": …, "input_length": …, "output_length": …, "hash_ids": […]}'
        raise BadInput(f"{place}: {error}", hint) from None
    if len(found.hash_ids) != (blocks := ceil(found.input_length / BLOCK)):
        raise BadInput(
            f"{place}: hash_ids: expected {blocks} of them for {found.input_length} tokens, "
            f"got {len(found.hash_ids)}",
            f"a hash id stands for {BLOCK} tokens, the last one for what is left",
        )
    return found


def _block(hash_id: int, encode: Encode, seed: int) -> tuple[int, ...]:
    """The tokens of real text that one hash id stands for."""
    draw = Draw("block", hash_id, seed)
    text = f"Part {hash_id}.\n"
    tokens: tuple[int, ...] = ()
    while len(tokens) < BLOCK:
        text += passage(*draw.pick(documents()), LONGEST, draw).text
        tokens = tuple(encode(text))
    return tokens[:BLOCK]
