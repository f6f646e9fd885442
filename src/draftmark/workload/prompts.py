"""Endless sequences of short prompts, one for each kind, in which no two begin alike.

A prompt is one of its kind's base texts, filled with names, numbers and data of its own. When the base texts
have all been used, they come again with other data, so that the right answer is another one.
"""

import re
from dataclasses import dataclass
from functools import cache
from typing import Literal
from zlib import crc32

from draftmark.schema import PROMPT_KINDS, Message, PromptKind
from draftmark.workload.arithmetic import ANSWERS
from draftmark.workload.draw import Draw
from draftmark.workload.sorting import ROWS
from draftmark.workload.words import data_text, fill, lists

Stream = PromptKind | Literal["context", "agentic"]
STREAMS: tuple[Stream, ...] = (*PROMPT_KINDS, "context", "agentic")

OPENINGS = (
    "{name} from the {{team}} team asks:",
    "{name} writes from {{city}}:",
    "{name}, who works for a {{trade}}, asks:",
    "{name} sent this on {{weekday}}:",
    "{name} would like some help with this:",
    "{name} in {{city}} has a request:",
    "{name} left this note for us:",
    "{name}, new in {{team}}, writes:",
)
ENDING = "\nPlease end with a line that says “Answer:” and then the number alone."
STRIDE = 6_181
"""Odd and no multiple of five, so that it visits each of the 10,000 names once, neighbours far apart."""
ID = re.compile(r"(?P<stream>[a-z]+)-(?P<warmup>w?)(?P<index>\d+)-s(?P<seed>-?\d+)")


@dataclass(frozen=True)
class Base:
    """One base text, as it stands in its kind's file."""

    name: str
    keys: tuple[str, ...]
    """Top-level keys of the JSON that it asks for."""
    text: str


@dataclass(frozen=True)
class Prompt:
    """One prompt, and what is known of its answer."""

    id: str
    """Names its kind, place and seed, e.g. ``code-12-s0``; ``code-w0-s0`` is the first for warming up."""
    text: str
    answer: int | None = None
    """The number that is right (arithmetic)."""
    ordered: tuple[str, ...] = ()
    """The items in the right order (sorting)."""
    keys: tuple[str, ...] = ()
    """Keys that the answer must have (json)."""

    @property
    def messages(self) -> tuple[Message, ...]:
        """The chat that asks it."""
        return (Message(role="user", content=self.text),)


@cache
def bases(kind: PromptKind | Literal["warmup", "context"]) -> tuple[Base, ...]:
    """The base texts of a kind, in the order in which they are used; for contexts, their parts."""
    parts = re.split(r"^=== ([a-z-]+)(?:: (.+))?\n", data_text(f"prompts/{kind}.txt"), flags=re.MULTILINE)
    found = zip(parts[1::3], parts[2::3], parts[3::3], strict=True)
    return tuple(Base(name, tuple((keys or "").split(", ")), text.strip()) for name, keys, text in found)


def prompt_id(stream: Stream, index: int, seed: int, *, warmup: bool = False) -> str:
    """Identity of a prompt: the same for every service, and enough to make the prompt again."""
    return f"{stream}-{'w' if warmup else ''}{index}-s{seed}"


def sampling_seed(identity: str) -> int:
    """Seed of a request's sampling, by its prompt; every engine takes 31 bits."""
    return crc32(identity.encode()) & 0x7FFF_FFFF


def sender(stream: Stream, index: int, seed: int, *, warmup: bool = False) -> str:
    """A person's name that no other prompt of the same seed has.

    The first 714 prompts of each stream differ from each other, and from all of the other streams, within
    their first eleven characters; later ones have a middle initial too.
    """
    given, family = lists()["given"], lists()["family"]
    slot = (2 * index + warmup) * len(STREAMS) + STREAMS.index(stream)
    again, place = divmod(slot, len(given) * len(family))
    first, last = divmod((place * STRIDE + seed) % (len(given) * len(family)), len(family))
    return " ".join((given[first], *_initials(again), family[last]))


def _initials(number: int) -> tuple[str, ...]:
    """Nothing for 0, then A to Z, then two letters and so on."""
    letters = ""
    while number:
        number, letter = divmod(number - 1, 26)
        letters = chr(ord("A") + letter) + letters
    return (f"{letters}.",) if letters else ()


def opening(stream: Stream, index: int, seed: int, *, warmup: bool = False) -> str:
    """First sentence of a prompt, which tells it apart from every other one."""
    draw = Draw("opening", stream, index, seed, warmup)
    template = draw.pick(OPENINGS).replace("{name}", sender(stream, index, seed, warmup=warmup))
    return fill(template, draw)[0]


def prompt(kind: PromptKind, index: int, seed: int) -> Prompt:
    """The prompt at a place (from 0) of a kind's sequence."""
    base = bases(kind)[index % len(bases(kind))]
    draw = Draw(kind, index, seed)
    rows, ordered = ROWS[base.name].make(draw) if kind == "sorting" else ("", ())
    text, numbers = fill(base.text + (ENDING if kind == "arithmetic" else ""), draw)
    return Prompt(
        id=prompt_id(kind, index, seed),
        text=f"{opening(kind, index, seed)}\n{text.replace('<rows>', rows)}",
        answer=ANSWERS[base.name](numbers) if kind == "arithmetic" else None,
        ordered=ordered,
        keys=base.keys if kind == "json" else (),
    )


def warmup(stream: Stream, index: int, seed: int) -> Prompt:
    """A prompt to warm a server up with; its task is none of the measured ones."""
    base = bases("warmup")[(index * len(STREAMS) + STREAMS.index(stream)) % len(bases("warmup"))]
    text, _ = fill(base.text, Draw("warmup", stream, index, seed))
    return Prompt(
        id=prompt_id(stream, index, seed, warmup=True),
        text=f"{opening(stream, index, seed, warmup=True)}\n{text}",
    )


def recall(identity: str) -> Prompt | None:
    """The measured prompt of one of the five kinds that an id names, made again; None for any other id."""
    match = ID.fullmatch(identity)
    if match is None or match["warmup"] or match["stream"] not in PROMPT_KINDS:
        return None
    kind = next(kind for kind in PROMPT_KINDS if kind == match["stream"])
    return prompt(kind, int(match["index"]), int(match["seed"]))
