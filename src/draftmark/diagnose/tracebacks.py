"""Python tracebacks in a log, also where every line has the prefix of its process."""

import re
from collections.abc import Iterator

from draftmark.diagnose.log import Log

HEAD = "Traceback (most recent call last):"
_PREFIX = re.compile(
    r"(?P<source>\([^()\n]{1,80}\) |\[rank\d+\]: ?)?"
    r"(?:[A-Z]{4,8} \d\d-\d\d \d\d:\d\d:\d\d )?"
    r"(?:\[[^\]\n]{1,80}\] )?"
)
"""Process and rank, level and time, place or time, as vLLM, torch and SGLang write them."""
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
_LONGEST = 2000


def raised(log: Log, head: int) -> int | None:
    """Offset of the line that names the exception of the traceback that begins on the line at ``head``.

    Of chained tracebacks it is the last. Lines of other processes in between are passed over.
    None where the log ends first.
    """
    last, open_ = None, True
    for start, body in _own_lines(log, head):
        if not body.strip() or body[0] in " \t" or body.startswith(HEAD):
            continue
        if body.startswith(_CHAINED):
            open_ = True
        elif open_:
            last, open_ = start, False
        else:
            break
    return last


def _own_lines(log: Log, head: int) -> Iterator[tuple[int, str]]:
    """Offset and text, without its prefix, of the lines that the process of a traceback wrote after its head.

    The head may have a prefix that the other lines lack, so that the first indented line tells.
    """
    source = _prefix(log.text[slice(*log.span(head))])["source"]
    prefixed = None
    for start, line in log.lines(head, _LONGEST):
        prefix = _prefix(line)
        body = line[prefix.end() :]
        if prefix["source"] != source:
            continue
        if prefixed is None and body.startswith("  "):
            prefixed = prefix.end() > 0
        if prefixed is (prefix.end() > 0):
            yield start, body


def last_raised(log: Log, since: int, before: int) -> tuple[int | None, int]:
    """The same of the last traceback that ends between two offsets, or None, and how far error lines count.

    A traceback that ends beyond them is that of the line at ``before``: what it holds is no news.
    """
    for _ in range(2):
        head = log.text.rfind(HEAD, since, before)
        found = None if head < 0 else raised(log, head)
        if found is None or found < before:
            return found, before
        before = head
    return None, before


def message(line: str) -> str:
    """A line of a log without the prefix of its process."""
    return line[_prefix(line).end() :].strip()


def _prefix(line: str) -> re.Match[str]:
    found = _PREFIX.match(line)
    assert found is not None  # every part of it is optional
    return found
