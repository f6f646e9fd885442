"""What an engine module takes and gives."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from draftmark.schema import Scalar

Post = Callable[[str, object], Any]
"""Send a JSON body to a path of the server and give its JSON answer; raises ServiceError."""


@dataclass(frozen=True)
class Param:
    """One parameter of a method kind."""

    type: type[int] | type[float] | type[str] | type[bool]
    doc: str
    default: Scalar | None = None
    """The engine's own default; None where it has none."""
    minimum: float | None = None
    maximum: float | None = None


@dataclass(frozen=True)
class MethodKind:
    """A way of decoding that an engine has."""

    doc: str
    params: Mapping[str, Param] = field(default_factory=dict)
    needs_draft: bool = False
    speculative: bool = True
    synthetic: bool = False
    """Acceptance is simulated; the output is meaningless and the speed is a what-if."""


@dataclass(frozen=True)
class Launch:
    """What is known only when a server is about to start; all paths are on the host."""

    port: int
    served_name: str
    """Unique, so that another server on the same port cannot be mistaken for this one."""
    model: str
    """Path of the target, or the plan's own word where the engine fetches it."""
    draft: str | None
    program: tuple[str, ...]
    """Interpreter or binary, with fixed leading arguments."""
    cores: int


@dataclass(frozen=True)
class Command:
    """What to execute."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    """Set beyond the inherited environment."""


@dataclass(frozen=True)
class Readiness:
    """How to tell that a server is ready."""

    path: str
    """Answers 200 once it is; polled cheaply."""
    timeout_s: float
    markers: tuple[tuple[str, str], ...] = ()
    """(text in the log, what it means to a person), in the order in which they appear."""
    fact_paths: tuple[str, ...] = ()
    """Pages to read once it is ready."""
    metrics_path: str | None = None
    """Page of counters to read before and after each cell."""
    models_path: str = "/v1/models"
    """Lists the served name; the identity check."""
    flush_path: str | None = None
    """A POST here makes the idle server forget what earlier requests taught it: prefixes, n-grams."""
