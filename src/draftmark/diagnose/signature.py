"""What a known failure looks like in a log, and what is known about it."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from draftmark.schema import Scalar, Service

Kind = Literal["root", "wrapper", "setback", "warning", "http"]
"""What a line with this text means for the server.

root: it cannot go on. wrapper: it tells of a failure whose cause stands elsewhere. setback: it goes on
without something, or tries to: a warning where it becomes ready, the cause where it does not. warning: it
serves, but not as it was asked to. http: it refused one request.
"""
Found = Mapping[str, str]
"""What the pattern's groups matched, and ``phase``."""
Adjust = Callable[[Service, Found], dict[str, Scalar]]


def nothing(_service: Service, _found: Found) -> dict[str, Scalar]:
    """No setting of a service is safe to change for it."""
    return {}


@dataclass(frozen=True)
class Signature:
    """A text by which a failure is known."""

    cause: str
    """Stable name; several signatures may have the same."""
    kind: Kind
    needle: str
    """Literal text on the line. It is searched for first, so that a long log is read at the speed of C."""
    summary: str
    """One sentence, with the pattern's groups and ``phase`` in braces."""
    remedy: str
    regex: str = ""
    """Of the line around the needle; the needle itself when not given."""
    adjust: Adjust = field(default=nothing, repr=False)

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Compiled ``regex``; it sees one line of bounded length."""
        return re.compile(self.regex or re.escape(self.needle))
