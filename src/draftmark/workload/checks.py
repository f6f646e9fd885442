"""Whether an answer is right, where that can be told from its text."""

import ast
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from draftmark.schema import RequestRecord
from draftmark.workload.contexts import hidden_number
from draftmark.workload.prompts import Prompt, recall

FENCE = re.compile(r"^```[ \t]*(\w*)[ \t]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
NUMBER_AFTER_ANSWER = re.compile(r"answer\W{0,9}?(-?\d+)", re.IGNORECASE)
SEPARATOR = re.compile(r"(?<=\d)[,' \u00a0\u202f](?=\d{3}(?!\d))")


def _arithmetic(prompt: Prompt, text: str) -> bool:
    plain = SEPARATOR.sub("", text).replace("−", "-")
    return str(prompt.answer) in NUMBER_AFTER_ANSWER.findall(plain)


def _sorted(prompt: Prompt, text: str) -> bool:
    """The items stand somewhere in the right order with none of them in between."""
    longest_first = sorted(map(re.escape, prompt.ordered), key=len, reverse=True)
    # An item is whole: not part of a longer number, code or date.
    mention = re.compile(rf"(?<![\w])(?<!\d\.)(?<!\w-)(?:{'|'.join(longest_first)})(?!\w)(?!\.\d)(?!-\w)")
    found = tuple(mention.findall(text))
    count = len(prompt.ordered)
    return any(found[at : at + count] == prompt.ordered for at in range(len(found) - count + 1))


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """Every JSON object in a text, inner ones too."""
    for match in re.finditer(r"\{", text):
        with suppress(ValueError):
            yield json.JSONDecoder().raw_decode(text, match.start())[0]


def _json(prompt: Prompt, text: str) -> bool:
    return any(set(prompt.keys) <= found.keys() for found in _objects(text))


def _code(_: Prompt, text: str) -> bool | None:
    """All Python blocks that were closed can be compiled; None where there is no such block."""
    blocks = [body for language, body in FENCE.findall(text) if language.lower() in ("python", "py")]
    if not blocks:
        return None
    try:
        for block in blocks:
            ast.parse(block)
    except (SyntaxError, ValueError):
        return False
    return True


CHECKS: Mapping[str, Callable[[Prompt, str], bool | None]] = {
    "arithmetic": _arithmetic,
    "sorting": _sorted,
    "json": _json,
    "code": _code,
}


def check(prompt_id: str, text: str, *, cut: bool = False) -> bool | None:
    """Whether an answer is right; None where nothing can be said.

    Arithmetic has the right number after the word "answer", sorting the list in order, json an object with
    the asked-for keys, code Python blocks that parse. An answer that was ``cut`` at its token limit may be
    right, never wrong; a context's answer has the number that its note holds.
    """
    verdict = _verdict(prompt_id, text)
    return None if cut and verdict is False else verdict


def sane_share(records: Sequence[RequestRecord]) -> float | None:
    """Share of right answers among those that can be checked; None where there are none.

    Only answers that the model ended itself count: of the others none can be wrong, so their share would
    be 1 whatever they say.
    """
    checks = [check(record.prompt_id, record.text) for record in records if record.finish_reason == "stop"]
    told = [right for right in checks if right is not None]
    return sum(told) / len(told) if told else None


def _verdict(prompt_id: str, text: str) -> bool | None:
    number = hidden_number(prompt_id)
    if number is not None:
        return str(number) in SEPARATOR.sub("", text)
    prompt = recall(prompt_id)
    checker = CHECKS.get(prompt_id.partition("-")[0])
    return checker(prompt, text) if prompt and checker else None
