"""Every error that draftmark raises on purpose.

    DraftmarkError                exit 1
    ├── BadInput                  exit 2: the user's file, flag or path is wrong
    │   ├── PlanError             a plan file, with file:line and key
    │   └── ResultError           a result tree that cannot be read or does not match
    ├── StageError                a model or tool that could not be made present
    ├── ServiceError              a server that did not start, become ready, or stop
    ├── RequestError              one HTTP exchange that failed; becomes data in a RequestRecord
    └── StoreError                a result that could not be written

A failure of a server or a request is expected and becomes a stored result; only bad input and a
result that cannot be written end a campaign.
"""

from collections.abc import Iterable
from difflib import get_close_matches

EXIT_OK, EXIT_FAILED, EXIT_BAD_INPUT, EXIT_INTERRUPTED = 0, 1, 2, 130


class DraftmarkError(Exception):
    """Base of the tree: a message a person can act on, an optional hint, and an exit code."""

    exit_code = EXIT_FAILED

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  {self.hint}" if self.hint else self.message


class BadInput(DraftmarkError):
    """Something the user gave is wrong; nothing was started or written."""

    exit_code = EXIT_BAD_INPUT


class PlanError(BadInput):
    """A plan file is wrong: names the file, the line, the key and what was expected."""


class ResultError(BadInput):
    """A result tree is missing, of another version, or belongs to another plan."""


class StageError(DraftmarkError):
    """A model file or an engine's program could not be made present."""


class ServiceError(DraftmarkError):
    """A server did not start, did not become ready, died, or did not stop.

    Args:
        message: one sentence that a person can act on.
        log_tail: the last lines of the server's log, newest last.
        exit_status: the process's return code if it ended, negative for a signal.
    """

    def __init__(
        self, message: str, hint: str = "", *, log_tail: str = "", exit_status: int | None = None
    ) -> None:
        super().__init__(message, hint)
        self.log_tail = log_tail
        self.exit_status = exit_status


class RequestError(DraftmarkError):
    """One HTTP exchange failed; ``kind`` is a short stable word such as ``connect`` or ``http-500``."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class StoreError(DraftmarkError):
    """A result could not be written; what was there before is untouched."""


def nearest(name: str, known: Iterable[str]) -> str:
    """``; did you mean 'x'?`` for the closest known name, or the list of known ones if none is close."""
    names = sorted(known)
    close = get_close_matches(name, names, n=1, cutoff=0.6)
    if close:
        return f"did you mean '{close[0]}'?"
    return f"known: {', '.join(names)}" if names else "none is known here"
