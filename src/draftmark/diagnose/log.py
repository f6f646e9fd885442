"""A log as text: searched whole at the speed of C, quoted by line numbers, secrets masked."""

import re
from collections.abc import Iterator

_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*+[ -/]*+[@-~]|\][^\x07\x1b\n]*+(?:\x07|\x1b\\)?)")
_BEFORE, _AFTER = 1000, 4000
"""Characters of a line that are looked at, around what was found in it."""
_SHOWN = 300
_SECRET = re.compile(
    r"""(?ix)
    (?P<kept> \b bearer \s+
      | (?: api[-_]?keys? | access[-_]?key | secret\w{0,20} | passw(?:or)?d
          | (?:hf|hub|auth|access|github|api)[-_]?token | \btoken ) ["']? \s*[=:]\s* ["'(\[]*
      | --(?: api-key | admin-api-key | hf-token | token ) \s+
      | ://[^\s/:@]{1,100}: (?=[^\s/@]{1,100}@)
    )
    (?! (?:none|null|true|false)\b )
    [^\s"',;)\]@]{6,}
    | \b(?: hf_ | sk- | ghp_ | nvapi- ) [A-Za-z0-9_-]{16,}
    """
)
"""A value behind the name of a secret, or one that is a secret by its form."""


class Log:
    """A server's output. Offsets are those of ``text``; only ``\\n`` ends a line that is counted."""

    def __init__(self, raw: str) -> None:
        self.text = _ESCAPE.sub("", raw) if "\x1b" in raw else raw

    def first(
        self, needle: str, pattern: re.Pattern[str], since: int = 0
    ) -> tuple[int, re.Match[str]] | None:
        """Offset and match of the first line from ``since`` on that has the needle and fits the pattern."""
        at = self.text.find(needle, since)
        while at >= 0:
            start, end = self.span(at)
            if found := pattern.search(self.text, start, end):
                return start, found
            at = self.text.find(needle, end)
        return None

    def span(self, at: int) -> tuple[int, int]:
        """Start and end of the line around an offset, or of the part of it that is looked at.

        A carriage return ends a line here: progress bars put many of them in what counts as one.
        """
        lowest, highest = max(0, at - _BEFORE), at + _AFTER
        start = max(self.text.rfind("\n", lowest, at), self.text.rfind("\r", lowest, at), lowest - 1) + 1
        ends = (self.text.find(mark, at, highest) for mark in "\n\r")
        return start, min((end for end in ends if end >= 0), default=min(highest, len(self.text)))

    def lines(self, at: int, most: int) -> Iterator[tuple[int, str]]:
        """Offset and text of the lines that follow the one around ``at``."""
        for _ in range(most):
            at = self.text.find("\n", at) + 1
            if at == 0 or at >= len(self.text):
                return
            yield at, self.text[slice(*self.span(at))]

    def line(self, at: int) -> str:
        """The line around an offset as it can be shown."""
        return shown(self.text[slice(*self.span(at))])

    def quote(self, at: int, before: int = 2, after: int = 3, mark: str = ">") -> tuple[str, ...]:
        """The line around an offset with its neighbours, each with its number, and a mark before it."""
        number = self.text.count("\n", 0, at) + 1
        earlier: list[str] = []
        end = self.text.rfind("\n", 0, at)
        while end > 0 and len(earlier) < before:
            start = self.text.rfind("\n", 0, end) + 1
            earlier.append(f"  {number - len(earlier) - 1}: {self._last_part(start, end)}")
            end = start - 1
        later = (
            f"  {number + index}: {self._last_part(start, self._end(start))}"
            for index, (start, _) in enumerate(self.lines(at, after), 1)
        )
        return (*reversed(earlier), f"{mark} {number}: {self.line(at)}", *later)

    def tail(self, lines: int) -> tuple[str, ...]:
        """The last lines, each with its number."""
        end = len(self.text.rstrip())
        return self.quote(end, before=lines - 1, after=0, mark=" ") if end else ()

    def _end(self, start: int) -> int:
        end = self.text.find("\n", start)
        return end if end >= 0 else len(self.text)

    def _last_part(self, start: int, end: int) -> str:
        """What a terminal would still show of a line with carriage returns."""
        return shown(self.text[max(start, end - _AFTER) : end].rstrip("\r").rpartition("\r")[2])


def shown(text: str) -> str:
    """A line as it can be shown: without control characters, secrets masked, not too long."""
    plain = "".join(char for char in text[: _BEFORE + _AFTER] if char.isprintable() or char == "\t").rstrip()
    masked = _SECRET.sub(lambda found: f"{found['kept'] or ''}***", plain)
    return masked if len(masked) <= _SHOWN else f"{masked[:_SHOWN]}…"
