"""The life of one server on a host: started, watched until it is ready, and always ended.

Use a :class:`Server` as a context manager: inside the block it is ready, after it nothing of it is left.
A record on disk outlives draftmark itself, so that :func:`end_orphans` ends what a killed run left behind.
"""

import json
import os
import signal
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import msgspec
import platformdirs

from draftmark.engines.types import Command, Readiness
from draftmark.errors import ServiceError
from draftmark.hosts import Host, LogReader, Process, is_alive, this_process
from draftmark.schema import Frozen

POLL_S = 0.1
"""How often a server that starts or stops is looked at; less often once it takes long."""
GRACE_S = 30.0
"""Between SIGTERM and SIGKILL."""
_ORPHAN_GRACE_S = 5.0
_KILL_S = 20.0
_PORT_S = 10.0
_GPU_S, _GPU_STILL_S = 30.0, 5.0
"""Memory that stays as it is for so long is someone else's."""
_GPU_SLACK = 256 << 20
"""Bytes that other programs may have taken meanwhile."""
_ANSWER_S = 5.0
_REMIND_S = 15.0


class State(StrEnum):
    """Where a server is in its life."""

    PLANNED = "planned"
    STARTING = "starting"
    LOADING = "loading"
    READY = "ready"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"


class Event(StrEnum):
    """What moves it on."""

    START = "start"
    SPAWN = "spawn"
    ANSWER = "answer"
    STOP = "stop"
    END = "end"
    FAIL = "fail"


TRANSITIONS: dict[tuple[State, Event], State] = {
    (State.PLANNED, Event.START): State.STARTING,
    (State.STARTING, Event.SPAWN): State.LOADING,
    (State.LOADING, Event.ANSWER): State.READY,
    (State.STARTING, Event.STOP): State.STOPPING,
    (State.LOADING, Event.STOP): State.STOPPING,
    (State.READY, Event.STOP): State.STOPPING,
    (State.STOPPING, Event.END): State.STOPPED,
    (State.STARTING, Event.FAIL): State.FAILED,
    (State.LOADING, Event.FAIL): State.FAILED,
    (State.READY, Event.FAIL): State.FAILED,
}


def advance(state: State, event: Event) -> State:
    """The state after an event; an illegal one is a bug and raises RuntimeError."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise RuntimeError(f"a server that is '{state}' cannot take the event '{event}'") from None


@dataclass(frozen=True)
class Progress:
    """Something about a server that a person who waits wants to see."""

    service: str
    state: State
    text: str
    elapsed_s: float
    """Since its start."""


OnEvent = Callable[[Progress], None]


@dataclass(kw_only=True)
class Server:
    """One server of one service; single use.

    Raises ServiceError from the ``with`` line when it does not become ready; then, too, nothing is left.
    """

    service: str
    command: Command
    readiness: Readiness
    host: Host
    port: int
    """From ``host.free_port()``; the command was made for it."""
    served_name: str
    """What ``readiness.models_path`` must list; empty where the engine has no such page."""
    log_path: Path
    on_event: OnEvent
    grace_s: float = GRACE_S

    state: State = field(default=State.PLANNED, init=False)
    ready_s: float | None = field(default=None, init=False)
    """From the start until it was ready."""
    exit_status: int | None = field(default=None, init=False)
    """Once ended; says nothing about health when the state is STOPPED: some engines kill themselves."""
    process: Process | None = field(default=None, init=False)
    """Leader of the server's process tree."""
    _record: "Record | None" = field(default=None, init=False)
    _started_s: float = field(default=0.0, init=False)
    _gpu_before: Sequence[int | None] = field(default=(), init=False)
    _log: LogReader = field(init=False)

    def __post_init__(self) -> None:
        self._log = LogReader(self.host, self.log_path)

    def __enter__(self) -> "Server":
        try:
            self.start()
            self.wait_ready()
        except BaseException as error:
            try:
                if isinstance(error, ServiceError) and self.state is not State.FAILED:
                    self._move(Event.FAIL, error.message)
            finally:
                self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Spawn it; raises ServiceError when the port is taken or the program cannot be run."""
        self._started_s = self.host.now()
        self._move(Event.START, "starting")
        if not self.host.port_is_free(self.port):
            raise ServiceError(f"{self.service}: port {self.port} is taken by another program")
        self._gpu_before = self.host.gpu_memory_used()
        with interrupts_held():
            record = Record(service=self.service, host=self.host.name, port=self.port, log=str(self.log_path))
            record.write()
            self._record = record
            self.process = self.host.spawn(self.command.argv, self.command.env, record.token, self.log_path)
            self._record = msgspec.structs.replace(record, server=self.process)
            self._record.write()
        self._move(Event.SPAWN, f"started as process {self.process.pid} on port {self.port}")

    def wait_ready(self) -> None:
        """Return once it answers as itself; raises ServiceError when it does not."""
        told_s, phase = 0.0, "no sign of progress in its log yet"
        while True:
            ready = self._answers()
            for phase in self._log.reached(self.readiness.markers):
                told_s = self._tell(phase)
            self._check_alive(phase)
            if ready:
                break
            self._check_time(phase)
            if self.elapsed_s - told_s >= _REMIND_S:
                told_s = self._tell(phase)
            self.host.sleep(min(5 * POLL_S, max(POLL_S, self.elapsed_s / 20)))
        self.ready_s = self.elapsed_s
        self._move(Event.ANSWER, "ready")

    def alive(self) -> bool:
        """Its leading process has not ended."""
        return self.process is not None and self.host.alive(self.process)

    def get(self, path: str, timeout_s: float = _ANSWER_S) -> str:
        """Text of one of its pages; raises ServiceError unless the answer is 200."""
        return self._ask("GET", path, timeout_s)

    def post(self, path: str, timeout_s: float = _ANSWER_S) -> str:
        """The same for a POST without a body."""
        return self._ask("POST", path, timeout_s)

    def log_tail(self) -> str:
        """The last lines of its log, newest last."""
        return self._log.tail()

    def stop(self) -> int | None:
        """End all of it and return the leader's exit status; a second call changes nothing.

        A leader that had already ended makes the state FAILED. An interrupt meanwhile skips the grace and
        is delivered afterwards. Raises ServiceError when a process survives SIGKILL.
        """
        if self._record is None:
            return self.exit_status
        with interrupts_held() as hurried:
            try:
                if self.state in (State.LOADING, State.READY) and not self.alive():
                    self._move(Event.FAIL, "ended by itself")
                elif (self.state, Event.STOP) in TRANSITIONS:
                    self._move(Event.STOP, "stopping")
            finally:
                # Whatever the listener raises, a closed terminal for one, the server ends.
                end_tree(self.host, self.process, self._record.token, self.grace_s, hurried)
                self.exit_status = self.host.reap(self.process) if self.process else None
                self._record.remove()
                self._record = None
            memory_back = hurried() or self._gpu_memory_comes_back(hurried)
            if self.state is State.STOPPING:
                freed = wait(self.host, lambda: self.host.port_is_free(self.port), _PORT_S)
                taken = [f"port {self.port}"] * (not freed) + ["GPU memory"] * (not memory_back)
                self._move(Event.END, "; ".join(("stopped", *(f"{what} is still taken" for what in taken))))
        return self.exit_status

    def _gpu_memory_comes_back(self, hurried: Callable[[], bool]) -> bool:
        """Whether each GPU soon holds no more than before the start, as far as that is told.

        A driver gives a dead process's memory back late; the next server would find it taken.
        """
        if not self._gpu_before:
            return True
        started_s = changed_s = self.host.now()
        now = self.host.gpu_memory_used()
        while not (back := self._no_more_than_before(now)) and not hurried():
            self.host.sleep(5 * POLL_S)
            last, now = now, self.host.gpu_memory_used()
            changed_s = self.host.now() if now != last else changed_s
            if self.host.now() - changed_s >= _GPU_STILL_S or self.host.now() - started_s >= _GPU_S:
                break
        return back

    def _no_more_than_before(self, now: Sequence[int | None]) -> bool:
        known = (
            (a, b) for a, b in zip(self._gpu_before, now, strict=False) if a is not None and b is not None
        )
        return all(used <= before + _GPU_SLACK for before, used in known)

    @property
    def elapsed_s(self) -> float:
        """Seconds since its start."""
        return self.host.now() - self._started_s

    def _move(self, event: Event, text: str) -> None:
        self.state = advance(self.state, event)
        self._tell(text)

    def _tell(self, text: str) -> float:
        self.on_event(Progress(self.service, self.state, text, elapsed_s := self.elapsed_s))
        return elapsed_s

    def _ask(self, method: str, path: str, timeout_s: float) -> str:
        answer = self.host.ask(method, self.port, path, timeout_s)
        if answer.status != 200:
            raise ServiceError(f"{self.service}: {path} on port {self.port} answered {answer.status}")
        return answer.body

    def _answers(self) -> bool:
        """Whether it is ready and, where that can be told, itself."""
        try:
            self.get(self.readiness.path)
            models = self.get(self.readiness.models_path) if self.served_name else ""
        except ServiceError:
            return False
        if self.served_name and json.dumps(self.served_name) not in models:
            raise ServiceError(
                f"{self.service}: another server answers on port {self.port}",
                f"{self.readiness.models_path} does not list '{self.served_name}'; end it or run again",
                log_tail=self.log_tail(),
            )
        return True

    def _check_alive(self, phase: str) -> None:
        if not self.alive():
            message = f"{self.service} ended {self.elapsed_s:.1f} s after its start, before it was ready"
            status = self.stop()
            hint = f"exit status {status}; last sign: {phase}; log: {self.log_path}"
            raise ServiceError(message, hint, log_tail=self.log_tail(), exit_status=status)

    def _check_time(self, phase: str) -> None:
        limit_s = self.readiness.timeout_s
        if self.elapsed_s >= limit_s:
            message = f"{self.service} was not ready after {self.elapsed_s:.0f} s; last sign: {phase}"
            hint = f"to wait longer raise server.ready_timeout_s (now {limit_s:g}); log: {self.log_path}"
            raise ServiceError(message, hint, log_tail=self.log_tail())


def wait(host: Host, done: Callable[[], bool], timeout_s: float) -> bool:
    """Poll until ``done``; False if that takes longer than ``timeout_s``."""
    deadline = host.now() + timeout_s
    while not done():
        if host.now() >= deadline:
            return False
        host.sleep(POLL_S)
    return True


def end_tree(
    host: Host, leader: Process | None, token: str, grace_s: float, hurried: Callable[[], bool]
) -> None:
    """SIGTERM to the leader, then SIGKILL to every process that is left of the server until none is.

    ``hurried`` ends the grace early. Raises ServiceError when a process survives.
    """
    # Taken now: a child that left the session and hid its environment is known by its parent alone.
    known = host.members(leader, token)
    if leader:
        host.signal(leader, signal.SIGTERM)
        wait(host, lambda: hurried() or not host.alive(leader), grace_s)

    def left() -> set[Process]:
        return {process for process in known if host.alive(process)} | host.members(leader, token)

    def killed() -> bool:
        for process in left():
            host.signal(process, signal.SIGKILL)
        return not left()

    if not wait(host, killed, _KILL_S):
        pids = ", ".join(str(process.pid) for process in left())
        raise ServiceError(
            f"processes {pids} did not end {_KILL_S:.0f} s after SIGKILL",
            "they hang in the kernel, often in a device driver; look at the machine before going on",
        )


@contextmanager
def interrupts_held() -> Iterator[Callable[[], bool]]:
    """Hold SIGINT, SIGTERM and SIGHUP back while the block runs, deliver one after; yields whether one came.

    Only the main thread receives them; elsewhere there is nothing to hold.
    """
    came: list[int] = []
    in_main = threading.current_thread() is threading.main_thread()
    numbers = (signal.SIGINT, signal.SIGTERM) if in_main else ()
    before = {number: signal.signal(number, lambda number, _: came.append(number)) for number in numbers}
    try:
        yield lambda: bool(came)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0])


class Record(Frozen, frozen=True, kw_only=True):
    """A server that runs, as the draftmark that started it keeps it on disk.

    Written before the spawn without ``server`` and after it with, so that a kill at any moment leaves one.
    """

    service: str
    host: str
    port: int
    log: str
    token: str = msgspec.field(default_factory=lambda: uuid.uuid4().hex)
    owner: Process = msgspec.field(default_factory=this_process)
    """The draftmark that started it."""
    server: Process | None = None
    """Leader of its session and process group."""

    def write(self) -> None:
        """Create or replace the file; raises ServiceError if that is not possible."""
        try:
            records().mkdir(parents=True, exist_ok=True)
            fresh = self._path.with_suffix(".new")
            fresh.write_bytes(msgspec.json.encode(self))
            fresh.replace(self._path)
        except OSError as error:
            raise ServiceError(
                f"cannot record the server before its start: {error}",
                "set DRAFTMARK_STATE_DIR to a folder that can be written",
            ) from error

    def remove(self) -> None:
        """Delete the file; one that stays is harmless once its processes are gone."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)

    @property
    def _path(self) -> Path:
        return records() / f"{self.token}.json"


def records() -> Path:
    """Folder of the records: under ``DRAFTMARK_STATE_DIR``, else the user's state directory."""
    state = os.environ.get("DRAFTMARK_STATE_DIR") or platformdirs.user_state_dir("draftmark")
    return Path(state) / "servers"


def end_orphans(host: Host, on_event: OnEvent) -> list[Record]:
    """End servers on this host whose draftmark is gone, and return those of which something still ran.

    Touches a process only if it is the recorded one (id and start) or bears the recorded token, and
    none whose draftmark lives. A record that cannot be read is left alone. Raises ServiceError when a
    process survives SIGKILL; its record stays.
    """
    ended = []
    for record in _orphans(host):
        if host.members(record.server, record.token):
            ended.append(record)
            text = f"ending it: a draftmark that was killed left it running on port {record.port}"
            on_event(Progress(record.service, State.STOPPING, text, 0.0))
            with interrupts_held() as hurried:
                end_tree(host, record.server, record.token, _ORPHAN_GRACE_S, hurried)
        record.remove()
    return ended


def _orphans(host: Host) -> Iterator[Record]:
    for path in sorted(records().glob("*.json")):
        try:
            record = msgspec.json.decode(path.read_bytes(), type=Record)
        except (OSError, msgspec.DecodeError):
            continue
        if record.host == host.name and not is_alive(record.owner):
            yield record
