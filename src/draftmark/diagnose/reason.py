"""From a log to the one thing that made the server fail.

The earliest root cause is the cause; what comes after it are consequences. An exception in the traceback
behind a wrapper counts as one even where it is not known.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from draftmark.diagnose.exits import Exit, meaning
from draftmark.diagnose.general import GENERAL
from draftmark.diagnose.llamacpp import LLAMACPP
from draftmark.diagnose.log import Log, shown
from draftmark.diagnose.phases import phase
from draftmark.diagnose.sglang import SGLANG
from draftmark.diagnose.signature import Kind, Signature
from draftmark.diagnose.tracebacks import HEAD, last_raised, message, raised
from draftmark.diagnose.vllm import VLLM
from draftmark.schema import Diagnosis, Service

OWN = {"sglang": SGLANG, "vllm": VLLM, "llamacpp": LLAMACPP}
UNCLASSIFIED = "unclassified"
_ERRORS = ("ERROR", "Error:", "error:", "FATAL", "Fatal", "Exception:", " E ")
"""What a line that tells of an error has in it, in one engine or another."""
_NEAR = 3
"""Lines after a wrapper within which its traceback begins."""
TAIL = 6
"""Last lines of a log that are quoted where none of them stands out."""


@dataclass(frozen=True)
class Hit:
    """A signature, and where it stands."""

    at: int
    signature: Signature
    groups: dict[str, str]


@dataclass(frozen=True)
class Case:
    """One server's log and what is known beside it."""

    log: Log
    engine: str | None
    status: int | None
    since: int
    """Where in the log the failure can begin: at the sign of readiness, for a server that was ready."""
    ready: bool
    failed: bool
    """It is known, apart from the log, that it ended or never became ready."""
    service: Service | None

    @property
    def end(self) -> int:
        """Length of the log."""
        return len(self.log.text)

    def hits(self, *kinds: Kind) -> list[Hit]:
        """The first place of each signature of these kinds, earliest first."""
        return [hit for hit in self._hits if hit.signature.kind in kinds]

    @cached_property
    def _hits(self) -> list[Hit]:
        found = (self._hit(signature) for signature in signatures(self.engine))
        # The sort is stable: of two on one line the one that stands first in its table stays first.
        return sorted((hit for hit in found if hit), key=lambda hit: hit.at)

    def _hit(self, signature: Signature) -> Hit | None:
        if found := self.log.first(signature.needle, signature.pattern, self.since):
            groups = {name: shown(text or "") for name, text in found[1].groupdict().items()}
            return Hit(found[0], signature, groups)
        return None

    @property
    def wrappers(self) -> list[Hit]:
        """Lines that tell of a failure whose cause stands elsewhere."""
        return self.hits("wrapper")

    @property
    def exit(self) -> Exit | None:
        """What the exit status says."""
        return meaning(self.status, self.engine)

    def phase(self, at: int) -> str:
        """What the server was doing at an offset."""
        return phase(self.log, self.engine, at)


def signatures(engine: str | None) -> tuple[Signature, ...]:
    """Those of an engine, or of all where it is not known, before those that all share."""
    if engine in OWN:
        return (*OWN[engine], *GENERAL)
    return (*(signature for table in OWN.values() for signature in table), *GENERAL)


def causes(case: Case) -> Iterator[Diagnosis]:
    """What can have made it fail, the most telling first; the first one is the answer."""
    yield from root(case)
    if not case.ready:
        known = case.failed or case.wrappers
        yield from (told(case, hit) for hit in case.hits("setback") if known or _ends(case.log, hit))
    # SGLang kills all of itself when a part of it fails, so that its SIGKILL says less than its log.
    if case.exit is None or (case.engine == "sglang" and case.exit.cause == "killed"):
        yield from exception(case)
        yield from (told(case, hit) for hit in case.wrappers)
    if case.exit:
        yield by_exit(case, case.exit)


def root(case: Case) -> Iterator[Diagnosis]:
    """The earliest root cause, or the exception behind the earliest wrapper where that comes before it."""
    first = next(iter(case.hits("root")), None)
    ends = (wrapped(case.log, hit.at) for hit in case.wrappers)
    behind = min((end for end in ends if end is not None), default=None)
    if first and (behind is None or first.at <= behind):
        yield told(case, first)
    elif behind is not None:
        yield unclassified(case, behind)


def _ends(log: Log, hit: Hit) -> bool:
    """Whether it is an exception on the log's last line: nothing went on after it."""
    rest = log.text[hit.at :].strip()
    return "\n" not in rest and message(rest).startswith(hit.signature.needle)


def wrapped(log: Log, at: int) -> int | None:
    """Offset of the exception whose traceback begins at a wrapper, or right after it."""
    near = [at, *(start for start, _ in log.lines(at, _NEAR))]
    heads = (start for start in near if HEAD in log.text[slice(*log.span(start))])
    head = next(heads, None)
    return None if head is None else raised(log, head)


def exception(case: Case) -> Iterator[Diagnosis]:
    """The last exception, or else the last error line, before anything only points back to it."""
    limit = min((hit.at for hit in case.wrappers), default=case.end)
    found, limit = last_raised(case.log, case.since, limit)
    if found is None and case.failed:
        line = max(case.log.text.rfind(mark, case.since, limit) for mark in _ERRORS)
        found = line if line >= 0 else None
    if found is not None:
        yield unclassified(case, found)


def unclassified(case: Case, at: int) -> Diagnosis:
    """What an error line says, for want of anything known."""
    return Diagnosis(
        cause=UNCLASSIFIED,
        summary=f"not a failure that is known; while {case.phase(at)}: {message(case.log.line(at))}",
        evidence=case.log.quote(at),
        remedy="read the lines around it in the log",
    )


def told(case: Case, hit: Hit) -> Diagnosis:
    """What a signature says, with what stands in the log."""
    found = hit.groups | {"phase": case.phase(hit.at)}
    return Diagnosis(
        cause=hit.signature.cause,
        summary=hit.signature.summary.format(**found),
        evidence=(*_earlier(case, hit), *case.log.quote(hit.at)),
        remedy=hit.signature.remedy,
        adjust=hit.signature.adjust(case.service, found) if case.service else {},
    )


def _earlier(case: Case, hit: Hit) -> Iterator[str]:
    """Setbacks and warnings before a root cause: often they began it."""
    if hit.signature.kind == "root":
        for before in case.hits("setback", "warning"):
            if before.at < hit.at:
                yield from case.log.quote(before.at, before=0, after=0)


def by_exit(case: Case, exit_: Exit) -> Diagnosis:
    """What the exit status says, with the end of the log."""
    return Diagnosis(
        cause=exit_.cause,
        summary=exit_.summary.format(phase=case.phase(case.end)),
        evidence=case.log.tail(TAIL),
        remedy=exit_.remedy,
    )
