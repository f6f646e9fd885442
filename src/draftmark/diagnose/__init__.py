"""Why a server failed, told from its log and its exit status; nothing here reads a file.

The known failures are tables: :mod:`sglang`, :mod:`vllm`, :mod:`llamacpp`, and :mod:`general` for all of
them. Reading takes time in proportion to the log, whatever is in it.
"""

from collections.abc import Iterator

from draftmark.diagnose import phases, reason
from draftmark.diagnose.log import Log
from draftmark.diagnose.reason import UNCLASSIFIED, Case, Hit
from draftmark.schema import Diagnosis, Service

__all__ = ["UNCLASSIFIED", "diagnose", "explain", "guess_engine", "refusal", "warnings"]


def diagnose(
    log: str,
    engine: str | None,
    exit_status: int | None,
    *,
    ready: bool | None,
    stopped: bool = False,
    service: Service | None = None,
) -> Diagnosis | None:
    """Why a server failed; None where it did not, or where nothing tells that it did.

    Args:
        log: all of its output.
        engine: None to tell it from the log.
        exit_status: negative for a signal; None where it is not known or the server still runs.
        ready: it had become ready; None to tell it from the log.
        stopped: it was ended on purpose. One that was ready did then not fail; one that was not was given
            up while it started.
        service: what was started; settings to adjust are only named for a known one.
    """
    # A stop that was asked for leaves a status that says nothing.
    case = _case(log, engine, None if stopped else exit_status, ready, service)
    if case.ready and (stopped or not (case.failed or case.hits("root", "wrapper"))):
        return None
    return next(reason.causes(case), None) or _silent(case, stopped)


def _case(
    log: str, engine: str | None, status: int | None, ready: bool | None, service: Service | None
) -> Case:
    read = Log(log)
    engine = engine if engine in reason.OWN else phases.guess_engine(read)
    mark = phases.ready_at(read, engine)
    was_ready = mark is not None if ready is None else ready
    return Case(
        log=read,
        engine=engine,
        status=status,
        since=(mark or 0) if was_ready else 0,
        ready=was_ready,
        failed=status is not None or ready is False,
        service=service,
    )


def _silent(case: Case, stopped: bool) -> Diagnosis | None:
    """For a log that says nothing."""
    where = case.phase(case.end)
    if case.status is not None:
        return Diagnosis(
            cause=reason.UNCLASSIFIED,
            summary=f"the server ended with status {case.status} while {where}, and its log does not say why",
            evidence=case.log.tail(reason.TAIL),
            remedy="run its command by hand",
        )
    if stopped:
        return Diagnosis(
            cause="not-ready",
            summary=f"the server was still {where} when the time to become ready was over",
            evidence=case.log.tail(reason.TAIL),
            remedy="raise server.ready_timeout_s if the log shows that it went on",
        )
    return None


def warnings(log: str, engine: str | None = None) -> tuple[Diagnosis, ...]:
    """What a server that serves does otherwise than it was asked to, in the order of the log.

    The running cap was lowered, speculation is off, requests were refused. Each is named once.
    """
    case = _case(log, engine, None, False, None)
    return tuple(reason.told(case, hit) for hit in case.hits("setback", "warning", "http"))


def refusal(detail: str, engine: str | None = None) -> Diagnosis | None:
    """Why a server refused a request, from the text of its answer; None where that is not known."""
    case = _case(detail, engine, None, False, None)
    hit: Hit | None = next(iter(case.hits("http")), None)
    return reason.told(case, hit) if hit else None


def guess_engine(log: str) -> str | None:
    """The engine that wrote a log; None where it cannot be told."""
    return phases.guess_engine(Log(log))


def explain(diagnosis: Diagnosis) -> Iterator[str]:
    """Lines that tell a diagnosis to a person."""
    yield f"{diagnosis.cause}: {diagnosis.summary}"
    yield from (f"    {line}" for line in diagnosis.evidence)
    if diagnosis.remedy:
        yield f"  what to do: {diagnosis.remedy}"
    if diagnosis.adjust:
        settings = ", ".join(f"{name}: {value}" for name, value in diagnosis.adjust.items())
        yield f"  settings that would avoid it: {settings}"
