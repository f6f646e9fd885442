"""Long prompts of an exact number of tokens, from passages of real documentation and code.

Each holds another choice of passages, one note that stands nowhere else, and a question on both.
"""

import lzma
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import accumulate

import msgspec

from draftmark.schema import Message
from draftmark.workload.draw import Draw
from draftmark.workload.fitting import fit
from draftmark.workload.prompts import Prompt, bases, opening
from draftmark.workload.words import fill_all

CountTokens = Callable[[Sequence[Message]], int]
"""Prompt tokens of a chat in the target's own tokenizer, its template included."""

SHORTEST, LONGEST = 400, 16_000
"""Characters of a passage; at least some lines, and in a long context enough to be about something."""
FEWEST = 4
"""Passages of a short context, as far as they do not become too short."""
SAMPLE = 8_000
"""Characters from which the tokenizer's characters per token are estimated."""
ID = re.compile(r"context-(?P<length>\d+)-(?P<index>\d+)-s(?P<seed>-?\d+)")
SURPLUS, EARLY = 1.3, 0.7
"""Text got ready, and where the note and the asked-for passage stand at the latest, in estimated lengths."""


@dataclass(frozen=True)
class Passage:
    """Part of one file."""

    name: str
    line: int
    """Line of the file at which it begins, from 1."""
    text: str

    @property
    def shown(self) -> str:
        """As it stands in a prompt."""
        return f"--- {self.name}, from line {self.line} ---\n{self.text}\n\n"


@cache
def documents() -> tuple[tuple[str, str], ...]:
    """(name, text) of every file that passages are taken from."""
    packed = files("draftmark.workload").joinpath("data/corpus.json.xz").read_bytes()
    raw = lzma.decompress(packed)
    return msgspec.json.decode(raw, type=tuple[tuple[str, str], ...])


def context(length: int, index: int, seed: int, count: CountTokens, *, warmup: bool = False) -> Prompt:
    """The prompt at a place (from 0) of the contexts, ``length`` tokens long with its chat template.

    Raises BadInput where no prompt has that length.
    """
    draw = Draw("context", length, index, seed, warmup)
    note, question, number = note_and_question(draw)
    head = f"{opening('context', index, seed, warmup=warmup)}\n{bases('context')[0].text}\n\n"
    shelf = draw.shuffled(documents())
    size = int(length * characters_per_token(shelf, count))
    longest = min(LONGEST, max(SHORTEST, size // FEWEST))
    passages = list(choose(shelf, longest, int(size * SURPLUS), draw))
    latest = size * EARLY - len(head) - len(note) - len(question)
    early = [at for at, end in enumerate(ends(passages)) if end < latest] or [0]
    spot, asked = draw.pick(early), draw.pick(early)
    shown = [one.shown for one in passages]
    shown.insert(spot + 1, note)
    question = question.replace("<passage>", f"{passages[asked].name}, line {passages[asked].line},")

    def counted(text: str) -> int:
        return count((Message(role="user", content=head + text + question),))

    kept = "".join(shown[: max(spot, asked) + 2])
    text = fit("".join(shown), length, counted, keep=len(kept))
    return Prompt(context_id(length, index, seed, warmup=warmup), head + text + question, answer=number)


def context_id(length: int, index: int, seed: int, *, warmup: bool = False) -> str:
    """Identity of a context: the same for every service."""
    return f"context-{length}-{'w' if warmup else ''}{index}-s{seed}"


def note_and_question(draw: Draw) -> tuple[str, str, int]:
    """The note among the passages, the question after them, and the number that answers it."""
    texts = (base.text for base in bases("context")[1:])
    (note, question), numbers = fill_all(texts, draw)
    return f"{note}\n\n", f"\n\n{question}", numbers["number"]


def hidden_number(identity: str) -> int | None:
    """The number that a measured context's note holds; None for any other id."""
    match = ID.fullmatch(identity)
    if match is None:
        return None
    draw = Draw("context", match["length"], match["index"], match["seed"], False)
    return note_and_question(draw)[2]


def characters_per_token(shelf: Sequence[tuple[str, str]], count: CountTokens) -> float:
    """Of the target's tokenizer, by the beginning of some files."""
    sample = "".join(text[: SAMPLE // 8] for _, text in shelf[:8])
    return len(sample) / count((Message(role="user", content=sample),))


def choose(shelf: Sequence[tuple[str, str]], longest: int, size: int, draw: Draw) -> Iterator[Passage]:
    """One passage of each file in turn, until they hold ``size`` characters or no file is left."""
    for name, text in shelf:
        if size <= 0:
            return
        found = passage(name, text, longest, draw)
        size -= len(found.shown)
        yield found


def ends(passages: Sequence[Passage]) -> Iterator[int]:
    """Where each passage ends, in characters from the first one."""
    return accumulate(len(one.shown) for one in passages)


def passage(name: str, text: str, longest: int, draw: Draw) -> Passage:
    """At most ``longest`` characters of a file, in whole lines, from the beginning of some paragraph."""
    paragraphs = (match.end() for match in re.finditer(r"\n\n+(?=\S)", text))
    start = draw.pick([0, *(at for at in paragraphs if at + longest < len(text))])
    end = len(text) if start + longest >= len(text) else text.rindex("\n", start, start + longest)
    return Passage(name, text.count("\n", 0, start) + 1, text[start:end].strip("\n"))
