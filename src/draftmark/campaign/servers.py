"""A ready server for a service: one that is started and ended here, or one that already runs."""

import os
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from draftmark import services, staging
from draftmark.campaign.budget import budget, gpu_of
from draftmark.diagnose import UNCLASSIFIED, diagnose, warnings
from draftmark.engines import ENGINES, Command, Launch, Post, attach
from draftmark.errors import DraftmarkError, ServiceError, StageError
from draftmark.hosts import Host
from draftmark.memory import predictions
from draftmark.schema import Diagnosis, Scalar, Service, ServiceResult
from draftmark.store import ResultTree
from draftmark.telemetry import GpuWatch, listeners

SECRET = ("KEY", "TOKEN", "SECRET", "PASSWORD")
PAGE_S = 30.0
EVIDENCE = 12
"""Lines of a log that a diagnosis quotes."""

OnProgress = Callable[[str, float], None]


@dataclass(frozen=True)
class Ready:
    """What a cell needs of a server that is ready."""

    service: Service
    base_url: str
    headers: Mapping[str, str]
    served_name: str
    get: Callable[[str], str]
    """Text of one of its pages; raises ServiceError."""
    post: Post
    flush: Callable[[], None]
    """Make it forget what earlier requests taught it, where it can."""
    alive: Callable[[], bool]
    died: Callable[[], Diagnosis]
    """Why it is no more."""
    facts: Mapping[str, Any]
    adjusted: Mapping[str, Scalar | None]
    """Settings that are not the plan's."""
    ready_s: float | None
    warnings: tuple[Diagnosis, ...] = ()
    """What it does otherwise than it was asked to."""
    processes: tuple[int, ...] = ()
    """Ids of its leading processes, where they run here and are not ours."""


def launch(
    service: Service, host: Host, cores: int, served_name: str, staged: Callable[[str], str]
) -> tuple[Command, int]:
    """The command for a free port, and that port; ``staged`` gives a model's path on the host."""
    engine = ENGINES[service.engine.kind]
    port = host.free_port()
    known = Launch(
        port=port,
        served_name=served_name,
        model=staged(service.model.target),
        draft=staged(service.method.draft) if service.method.draft else None,
        program=staging.program(service.engine),
        cores=cores,
    )
    return engine.command(service, known), port


class NotServed(DraftmarkError):
    """A service has no server; says why, and ``service.json`` says it too."""

    def __init__(self, diagnosis: Diagnosis) -> None:
        super().__init__(diagnosis.summary, diagnosis.remedy)
        self.diagnosis = diagnosis


@dataclass(frozen=True)
class Site:
    """Where servers run and results go."""

    host: Host
    machine: Mapping[str, Any]
    """Facts of the host."""
    tree: ResultTree


@contextmanager
def ready(
    service: Service, site: Site, on_progress: OnProgress, first_failure: Diagnosis | None = None
) -> Iterator[Ready]:
    """A ready server while the block runs, and ``service.json``; raises NotServed when there is none.

    Args:
        first_failure: why it did not start before; then it starts with the settings that this advises.
    """
    change = first_failure.adjust if first_failure else {}
    stored = ServiceResult(
        service=replace(service, **change),
        status="ok",
        started_at=utc_now(),
        adjusted=dict(change),
        first_failure=first_failure,
    )
    attached = service.engine.kind == "attach"
    serve = _attached(stored, site.tree) if attached else _started(stored, site, on_progress)
    try:
        with serve as server:
            yield server
    except StageError as error:
        diagnosis = Diagnosis(cause="not-staged", summary=error.message, remedy=error.hint)
        site.tree.write_service(replace(stored, status="failed", diagnosis=diagnosis))
        raise NotServed(diagnosis) from error


@contextmanager
def _started(stored: ServiceResult, site: Site, on_progress: OnProgress) -> Iterator[Ready]:
    service = stored.service
    server = _server(service, site, on_progress)
    stored = replace(stored, argv=server.command.argv, env=masked(server.command.env))
    try:
        with server:
            facts = _facts(service, server.get, _log(server))
            if plan := budget(service, gpu_of(site.machine)):
                facts["predicted"] = predictions(plan)
            stored = replace(
                stored,
                ready_s=server.ready_s,
                facts=facts,
                engine_version=facts.get("version"),
                warnings=warnings(_log(server), service.engine.kind),
            )
            site.tree.write_service(stored)
            with GpuWatch(server.log_path.with_name("telemetry.csv")):
                yield _ready(stored, server)
        if server.state is services.State.FAILED:
            stored = replace(stored, status="failed", diagnosis=died(service, server))
    except ServiceError as error:
        stored = replace(stored, status="failed", diagnosis=not_started(service, server, error))
        raise NotServed(stored.diagnosis or _told(error)) from error
    except KeyboardInterrupt:
        stored = replace(stored, status="interrupted")
        raise
    finally:
        tail = "" if stored.status == "ok" else server.log_tail()
        site.tree.write_service(replace(stored, exit_status=server.exit_status, log_tail=tail))


def _server(service: Service, site: Site, on_progress: OnProgress) -> services.Server:
    served_name = f"{service.id}-{uuid.uuid4().hex[:8]}"

    def staged(name: str) -> str:
        return staging.model_path(name, lambda text: on_progress(text, 0.0))

    command, port = launch(service, site.host, int(site.machine["cores"]), served_name, staged)
    return services.Server(
        service=service.id,
        command=command,
        readiness=ENGINES[service.engine.kind].readiness(service),
        host=site.host,
        port=port,
        served_name=served_name,
        log_path=site.tree.new_log(service.id),
        on_event=lambda progress: on_progress(progress.text, progress.elapsed_s),
    )


def _ready(stored: ServiceResult, server: services.Server) -> Ready:
    service = stored.service
    url = f"http://127.0.0.1:{server.port}"
    return Ready(
        service=service,
        base_url=url,
        headers={},
        served_name=server.served_name,
        get=lambda path: server.get(path, PAGE_S),
        post=lambda path, body: _posted(f"{url}{path}", {}, body),
        flush=lambda: _flush(service, server),
        alive=server.alive,
        died=lambda: died(service, server),
        facts=stored.facts,
        adjusted=stored.adjusted,
        ready_s=server.ready_s,
        warnings=stored.warnings,
    )


@contextmanager
def _attached(stored: ServiceResult, tree: ResultTree) -> Iterator[Ready]:
    service = stored.service
    headers, url = attach.headers(service, os.environ), attach.base_url(service)

    def get(path: str) -> str:
        return _fetched(f"{url}{path}", headers)

    try:
        facts = _facts(service, get, "")
        tree.write_service(replace(stored, facts=facts))
    except ServiceError as error:
        tree.write_service(replace(stored, status="failed", diagnosis=_told(error)))
        raise NotServed(_told(error)) from error
    yield Ready(
        service=service,
        base_url=url,
        headers=headers,
        served_name=service.model.served_name or service.model.target,
        get=get,
        post=lambda path, body: _posted(f"{url}{path}", headers, body),
        flush=lambda: None,
        alive=lambda: True,
        died=lambda: Diagnosis(cause="server-died", summary=f"{url} answers no more"),
        facts=facts,
        adjusted={},
        ready_s=None,
        processes=listeners(url),
    )


def _flush(service: Service, server: services.Server) -> None:
    if path := ENGINES[service.engine.kind].readiness(service).flush_path:
        server.post(path, PAGE_S)


def _facts(service: Service, get: Callable[[str], str], log: str) -> dict[str, Any]:
    engine = ENGINES[service.engine.kind]
    return engine.facts(log, {path: get(path) for path in engine.readiness(service).fact_paths})


def _posted(url: str, headers: Mapping[str, str], body: object) -> Any:
    data = msgspec.json.encode(body)
    answer = _fetched(url, {"content-type": "application/json", **headers}, data)
    try:
        return msgspec.json.decode(answer)
    except msgspec.DecodeError as error:
        raise ServiceError(f"the answer from {url} is not JSON: {answer[:80]!r}") from error


def _fetched(url: str, headers: Mapping[str, str], data: bytes | None = None) -> str:
    try:
        asked = urllib.request.Request(url, data, dict(headers))
        with urllib.request.urlopen(asked, timeout=PAGE_S) as answer:
            return str(answer.read().decode(errors="replace"))
    except OSError as error:
        raise ServiceError(
            f"no answer from {url}: {error}", "is the server running, and its URL right?"
        ) from error


def not_started(service: Service, server: services.Server, error: ServiceError) -> Diagnosis:
    """Why a server did not become ready: from its log, else what was seen from outside."""
    gave_up = error.exit_status is None
    found = diagnose(
        _log(server), service.engine.kind, error.exit_status, ready=False, stopped=gave_up, service=service
    )
    if found is None or found.cause == UNCLASSIFIED:
        return replace(_told(error), evidence=tuple(error.log_tail.splitlines()[-EVIDENCE:]))
    return replace(found, summary=f"{error.message}: {found.summary}")


def died(service: Service, server: services.Server) -> Diagnosis:
    """Why a server that was ready is no more."""
    status = server.exit_status
    found = diagnose(_log(server), service.engine.kind, status, ready=True, service=service)
    how = "" if status is None else f" with signal {-status}" if status < 0 else f" with status {status}"
    seen = f"the server ended{how} while it was measured"
    if found is None or found.cause == UNCLASSIFIED:
        return Diagnosis(
            cause="server-died",
            summary=seen,
            evidence=tuple(server.log_tail().splitlines()[-EVIDENCE:]),
            remedy=f"read {service.id}/server.log in the result folder, then run the same command again",
        )
    return replace(found, summary=f"{seen}: {found.summary}")


def _told(error: ServiceError) -> Diagnosis:
    return Diagnosis(cause="server-start", summary=error.message, remedy=error.hint)


def _log(server: services.Server) -> str:
    try:
        return server.log_path.read_text(errors="replace")
    except FileNotFoundError:
        return ""


def masked(env: Mapping[str, str]) -> dict[str, str]:
    """An environment that can be shown: what looks like a secret by its name is hidden."""
    return {key: "***" if any(word in key.upper() for word in SECRET) else env[key] for key in env}


def utc_now() -> str:
    """ISO 8601, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")
