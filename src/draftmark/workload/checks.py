"""Whether an answer is right, where that can be told from its text."""

import ast
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

from draftmark.schema import RequestRecord
from draftmark.workload.contexts import hidden_number
from draftmark.workload.prompts import Prompt, recall

FENCE = re.compile(r"^```[ \t]*(\w*)[ \t]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
ANSWER_LINE = re.compile(r"^[^\w\n]*answer\W{0,9}?(-?\d+)\b(?=.)", re.IGNORECASE | re.MULTILINE | re.DOTALL)
NUMBER_AFTER_ANSWER = re.compile(r"answer\W{0,9}?(-?\d+)", re.IGNORECASE)
STRING_OR_BRACE = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\Z)|[{}]')
MOST_OBJECTS = 1_000
"""Braces at which one is looked for: each look may read to the end."""
UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)
"""What Python's parsers raise on any text: the last two on text that nests deeply."""
SEPARATOR = re.compile(r"(?<=\d)[,' \u00a0\u202f](?=\d{3}(?!\d))")


def _arithmetic(prompt: Prompt, text: str) -> bool:
    return str(prompt.answer) in NUMBER_AFTER_ANSWER.findall(_plain(text))


def _first_answer(prompt: Prompt, text: str) -> bool | None:
    """Whether the first line that says "Answer:", as was asked for, has the right number."""
    found = ANSWER_LINE.search(_plain(text))
    return found and found[1] == str(prompt.answer)


def _plain(text: str) -> str:
    """Numbers without separators, with the minus that Python knows."""
    return SEPARATOR.sub("", text).replace("−", "-")


def _sorted(prompt: Prompt, text: str) -> bool:
    """The items stand somewhere in the right order with none of them in between."""
    longest_first = sorted(map(re.escape, prompt.ordered), key=len, reverse=True)
    # An item is whole: not part of a longer number, code or date.
    mention = re.compile(rf"(?<![\w])(?<!\d\.)(?<!\w-)(?:{'|'.join(longest_first)})(?!\w)(?!\.\d)(?!-\w)")
    found = tuple(mention.findall(text))
    count = len(prompt.ordered)
    return any(found[at : at + count] == prompt.ordered for at in range(len(found) - count + 1))


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """The JSON objects in a text, inner ones too."""
    for match in islice(re.finditer(r"\{", text), MOST_OBJECTS):
        with suppress(*UNREADABLE):
            yield json.JSONDecoder().raw_decode(text, match.start())[0]


def _json(prompt: Prompt, text: str) -> bool:
    return any(set(prompt.keys) <= found.keys() for found in _objects(text))


def _first_object(prompt: Prompt, text: str) -> bool | None:
    """Whether the first thing in braces that ends is JSON with the asked-for keys."""
    braced = _braced(text)
    if braced is None:
        return None
    with suppress(*UNREADABLE):
        return set(prompt.keys) <= set(json.loads(braced))
    return False


def _braced(text: str) -> str | None:
    """From the first brace to the one that closes it, those within strings aside."""
    begin, depth = text.find("{"), 0
    for part in STRING_OR_BRACE.finditer(text, begin) if begin >= 0 else ():
        depth += {"{": 1, "}": -1}.get(part[0], 0)
        if depth == 0:
            return text[begin : part.end()]
    return None


def _code(_: Prompt, text: str) -> bool | None:
    """All Python blocks that were closed can be compiled; None where there is no such block."""
    blocks = _blocks(text)
    return all(map(_parses, blocks)) if blocks else None


def _first_block(_: Prompt, text: str) -> bool | None:
    """The same of the first such block."""
    return next(map(_parses, _blocks(text)), None)


def _blocks(text: str) -> list[str]:
    return [body for language, body in FENCE.findall(text) if language.lower() in ("python", "py")]


def _parses(block: str) -> bool:
    try:
        ast.parse(block)
    except UNREADABLE:
        return False
    return True


Check = Callable[[Prompt, str], bool | None]
CHECKS: Mapping[str, Check] = {"arithmetic": _arithmetic, "sorting": _sorted, "json": _json, "code": _code}
CUT_CHECKS: Mapping[str, Check] = {"arithmetic": _first_answer, "json": _first_object, "code": _first_block}
"""Of answers that go on to their token limit: by what they said first and to its end, right or wrong."""


def check(prompt_id: str, text: str, *, cut: bool = False) -> bool | None:
    """Whether an answer is right; None where nothing can be said.

    Arithmetic has the right number after the word "answer", sorting the list in order, json an object with
    the asked-for keys, code Python blocks that parse, a context the number that its note holds. An answer
    that was ``cut`` at its token limit is judged by the first answer, object or block that it finished;
    sorting and contexts not at all, as more of the text could still make them right.
    """
    prompt, kind = recall(prompt_id), prompt_id.partition("-")[0]
    number = hidden_number(prompt_id)
    if number is not None:
        return None if cut else str(number) in SEPARATOR.sub("", text)
    checker = (CUT_CHECKS if cut else CHECKS).get(kind)
    return checker(prompt, text) if prompt and checker else None


def sane_share(records: Sequence[RequestRecord]) -> float | None:
    """Share of right answers among those that can be checked; None where there are none."""
    checks = [check(record.prompt_id, record.text, cut=record.finish_reason != "stop") for record in records]
    told = [right for right in checks if right is not None]
    return sum(told) / len(told) if told else None
