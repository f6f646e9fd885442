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
from draftmark.engines import ENGINES, Command, Launch, Post, attach
from draftmark.errors import ServiceError
from draftmark.hosts import Host
from draftmark.schema import Diagnosis, Service, ServiceResult
from draftmark.store import ResultTree

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
    log_tail: Callable[[], str]
    facts: Mapping[str, Any]
    ready_s: float | None


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


@contextmanager
def ready(
    service: Service, host: Host, cores: int, tree: ResultTree, on_progress: OnProgress
) -> Iterator[Ready]:
    """A ready server while the block runs, and ``service.json``; DraftmarkError when there is none."""
    attached = service.engine.kind == "attach"
    serve = _attached(service, tree) if attached else _started(service, host, cores, tree, on_progress)
    with serve as server:
        yield server


@contextmanager
def _started(
    service: Service, host: Host, cores: int, tree: ResultTree, on_progress: OnProgress
) -> Iterator[Ready]:
    served_name = f"{service.id}-{uuid.uuid4().hex[:8]}"
    command, port = launch(
        service,
        host,
        cores,
        served_name,
        lambda name: staging.model_path(name, lambda text: on_progress(text, 0.0)),
    )
    server = services.Server(
        service=service.id,
        command=command,
        readiness=ENGINES[service.engine.kind].readiness(service),
        host=host,
        port=port,
        served_name=served_name,
        log_path=tree.new_log(service.id),
        on_event=lambda progress: on_progress(progress.text, progress.elapsed_s),
    )
    stored = ServiceResult(
        service=service, status="ok", argv=command.argv, env=masked(command.env), started_at=utc_now()
    )
    try:
        with server:
            facts = _facts(service, server.get, server.log_path.read_text(errors="replace"))
            stored = replace(stored, ready_s=server.ready_s, facts=facts, engine_version=facts.get("version"))
            tree.write_service(stored)
            yield Ready(
                service=service,
                base_url=f"http://127.0.0.1:{port}",
                headers={},
                served_name=served_name,
                get=lambda path: server.get(path, PAGE_S),
                post=lambda path, body: _posted(f"http://127.0.0.1:{port}{path}", {}, body),
                flush=lambda: _flush(service, server),
                alive=server.alive,
                log_tail=server.log_tail,
                facts=facts,
                ready_s=server.ready_s,
            )
        if server.state is services.State.FAILED:
            stored = replace(stored, status="failed", diagnosis=died(service, server.exit_status))
    except ServiceError as error:
        stored = replace(stored, status="failed", diagnosis=failed_start(error))
        raise
    except KeyboardInterrupt:
        stored = replace(stored, status="interrupted")
        raise
    finally:
        tail = "" if stored.status == "ok" else server.log_tail()
        tree.write_service(replace(stored, exit_status=server.exit_status, log_tail=tail))


@contextmanager
def _attached(service: Service, tree: ResultTree) -> Iterator[Ready]:
    headers, url = attach.headers(service, os.environ), attach.base_url(service)

    def get(path: str) -> str:
        return _fetched(f"{url}{path}", headers)

    stored = ServiceResult(service=service, status="ok", started_at=utc_now())
    try:
        facts = _facts(service, get, "")
        tree.write_service(replace(stored, facts=facts))
    except ServiceError as error:
        tree.write_service(replace(stored, status="failed", diagnosis=failed_start(error)))
        raise
    yield Ready(
        service=service,
        base_url=url,
        headers=headers,
        served_name=service.model.served_name or service.model.target,
        get=get,
        post=lambda path, body: _posted(f"{url}{path}", headers, body),
        flush=lambda: None,
        alive=lambda: True,
        log_tail=str,
        facts=facts,
        ready_s=None,
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


def failed_start(error: ServiceError) -> Diagnosis:
    """Why a server did not become ready."""
    return Diagnosis(
        cause="server-start",
        summary=error.message,
        evidence=tuple(error.log_tail.splitlines()[-EVIDENCE:]),
        remedy=error.hint,
    )


def died(service: Service, exit_status: int | None) -> Diagnosis:
    """Why a server that was ready is no more."""
    how = f"signal {-exit_status}" if exit_status is not None and exit_status < 0 else f"status {exit_status}"
    return Diagnosis(
        cause="server-died",
        summary=f"the server ended with {how} while it was measured",
        remedy=f"read {service.id}/server.log in the result folder, then run the same command again",
    )


def masked(env: Mapping[str, str]) -> dict[str, str]:
    """An environment that can be shown: what looks like a secret by its name is hidden."""
    return {key: "***" if any(word in key.upper() for word in SECRET) else env[key] for key in env}


def utc_now() -> str:
    """ISO 8601, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")
