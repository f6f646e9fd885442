"""The life of a server: real processes that behave badly, and a fake host with a stepped clock."""
# ruff: noqa: ARG002 - a fake takes what the protocol gives it

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmark.engines.types import Command, Readiness
from draftmark.errors import ServiceError
from draftmark.hosts import TOKEN, Answer, Host, Local, Process
from draftmark.services import (
    TRANSITIONS,
    Event,
    Progress,
    Record,
    Server,
    State,
    advance,
    end_orphans,
    records,
)

TESTS = Path(__file__).parent
MARKERS = (
    ("loaded weights", "weights loaded"),
    ("loaded cache", "cache made"),
    ("loaded graphs", "graphs captured"),
)
OWNER = """
import signal, sys, time
from pathlib import Path
from test_services import server
signal.signal(signal.SIGINT, signal.default_int_handler)
tell = lambda progress: print(progress.state, flush=True)
with server(Path(sys.argv[1]), *sys.argv[3:], port=int(sys.argv[2]), grace_s=300, tell=tell):
    time.sleep(100)
"""


@pytest.fixture(autouse=True)
def _state(tmp_path: Path) -> Iterator[None]:
    """Records of servers go to a folder of the test, which is empty again at its end."""
    before = os.environ.get("DRAFTMARK_STATE_DIR")
    os.environ["DRAFTMARK_STATE_DIR"] = str(tmp_path / "state")
    yield
    left = list(records().glob("*"))
    if before is None:
        del os.environ["DRAFTMARK_STATE_DIR"]
    else:
        os.environ["DRAFTMARK_STATE_DIR"] = before
    assert not left


def server(
    folder: Path,
    *flags: str,
    name: str = "fake",
    timeout_s: float = 30.0,
    grace_s: float = 5.0,
    port: int = 0,
    host: Host | None = None,
    tell: Callable[[Progress], None] = lambda _: None,
) -> Server:
    host = host or Local()
    port = port or host.free_port()
    program = str(TESTS / "fake_engine_server.py")
    return Server(
        service="fake-tp1-ar",
        command=Command((sys.executable, program, "--port", str(port), *flags)),
        readiness=Readiness("/health", timeout_s, MARKERS),
        host=host,
        port=port,
        served_name=name,
        log_path=folder / "server.log",
        on_event=tell,
        grace_s=grace_s,
    )


def eventually(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 30
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def forked(folder: Path) -> int:
    line = next(line for line in (folder / "server.log").read_text().splitlines() if "forked" in line)
    return int(line.split()[1])


# --- real processes --------------------------------------------------------------------------------


def test_lives_and_ends(tmp_path: Path) -> None:
    """A server is ready inside the block, and after it its process is gone and its port is free."""
    told: list[Progress] = []
    subject = server(tmp_path, tell=told.append)
    with subject:
        assert subject.state is State.READY
        assert subject.alive()
        assert subject.process is not None
        assert '"fake"' in subject.get("/v1/models")
        assert len(list(records().glob("*.json"))) == 1
    assert gone(subject.process.pid)
    assert subject.host.port_is_free(subject.port)
    assert subject.exit_status == -signal.SIGTERM
    assert subject.ready_s is not None
    assert told[-1].state is State.STOPPED
    assert subject.stop() == -signal.SIGTERM, "a second stop changes nothing"


def test_environment_and_input(tmp_path: Path) -> None:
    """The server inherits the environment, adds the command's, bears a token and has no input."""
    script = (
        f"import os, sys; print(os.environ['PATH'] != '', os.environ['EXTRA'], "
        f"len(os.environ['{TOKEN}']), repr(sys.stdin.read()), os.getsid(0) == os.getpid()); sys.exit(3)"
    )
    subject = server(tmp_path)
    subject.command = Command((sys.executable, "-c", script), {"EXTRA": "set"})
    with pytest.raises(ServiceError) as failure, subject:
        pass
    assert failure.value.log_tail == "True set 32 '' True"
    assert failure.value.exit_status == 3


def test_dies_at_once(tmp_path: Path) -> None:
    """A server that dies is noticed long before the timeout, with its status and the end of its log."""
    subject = server(tmp_path, "--die", "7", timeout_s=600)
    with pytest.raises(ServiceError, match=r"before it was ready\n  exit status 7") as failure, subject:
        pass
    assert failure.value.exit_status == 7
    assert "ERROR out of luck" in failure.value.log_tail
    assert subject.state is State.FAILED


def test_never_ready(tmp_path: Path) -> None:
    """A server that never answers is ended after the timeout, and the message names the key to raise."""
    subject = server(tmp_path, "--deaf", timeout_s=0.5)
    with pytest.raises(ServiceError, match=r"not ready after .*\n.*raise server\.ready_timeout_s") as failure:
        subject.__enter__()
    assert failure.value.exit_status is None
    assert subject.process is not None
    assert gone(subject.process.pid)


def test_answers_500(tmp_path: Path) -> None:
    """A 500 is not readiness."""
    with (
        pytest.raises(ServiceError, match="not ready after"),
        server(tmp_path, "--status", "500", timeout_s=1),
    ):
        pass


def test_slow_start(tmp_path: Path) -> None:
    """A server that answers 503 while it loads becomes ready, after each marker of its log was told."""
    told: list[Progress] = []
    with server(tmp_path, "--load-s", "0.6", tell=told.append):
        pass
    texts = [progress.text for progress in told]
    assert texts[0] == "starting"
    assert texts[2:] == ["weights loaded", "cache made", "graphs captured", "ready", "stopping", "stopped"]
    assert [progress.elapsed_s for progress in told] == sorted(progress.elapsed_s for progress in told)


def test_program_missing(tmp_path: Path) -> None:
    """A program that is not there fails the start and leaves no record."""
    subject = server(tmp_path)
    subject.command = Command(("no-such-program-here",))
    with pytest.raises(ServiceError, match="cannot start no-such-program-here"), subject:
        pass
    assert subject.state is State.FAILED


def test_port_in_use(tmp_path: Path) -> None:
    """A taken port is refused before anything is started."""
    with server(tmp_path) as first:
        second = server(tmp_path / "second", port=first.port)
        with pytest.raises(ServiceError, match=f"port {first.port} is taken"), second:
            pass
        assert second.process is None
        assert first.alive()


def test_wrong_identity(tmp_path: Path) -> None:
    """A server that does not list the name it was given is another one, and is not used."""
    with pytest.raises(ServiceError, match="another server answers on port"), server(tmp_path, name="mine"):
        pass


def test_no_identity_asked(tmp_path: Path) -> None:
    """Without a served name readiness alone counts."""
    with server(tmp_path, name="") as subject:
        assert subject.state is State.READY


def test_ignores_sigterm(tmp_path: Path) -> None:
    """A server that ignores SIGTERM is killed once the grace is over."""
    with server(tmp_path, "--ignore-term", grace_s=0.3) as subject:
        pass
    assert subject.exit_status == -signal.SIGKILL
    assert subject.state is State.STOPPED


@pytest.mark.parametrize("kind", ["child", "detached", "nameless"])
def test_forked_children(tmp_path: Path, kind: str) -> None:
    """Children end with their server, also those that left its session, its parentage or its environment."""
    with server(tmp_path, "--fork", kind):
        child = forked(tmp_path)
        assert not gone(child)
    assert eventually(lambda: gone(child))


@pytest.mark.parametrize("kind", ["child", "detached"])
def test_children_of_a_dead_leader(tmp_path: Path, kind: str) -> None:
    """Children that survive a leader which dies while loading are ended as well."""
    with pytest.raises(ServiceError), server(tmp_path, "--fork", kind, "--die", "1"):
        pass
    assert gone(forked(tmp_path))


def test_dies_while_used(tmp_path: Path) -> None:
    """A server that dies inside the block is no longer alive, and the stop says that it failed."""
    with server(tmp_path) as subject:
        subject.get("/die")
        assert eventually(lambda: not subject.alive())
        with pytest.raises(ServiceError, match="no answer"):
            subject.get("/health")
    assert subject.state is State.FAILED
    assert subject.exit_status == 5


def test_page_that_is_not_there(tmp_path: Path) -> None:
    """A page that does not answer 200 is an error, never an empty page."""
    with server(tmp_path) as subject, pytest.raises(ServiceError, match=r"/metrics on port .* answered 404"):
        subject.get("/metrics")


def test_post(tmp_path: Path) -> None:
    """A POST reaches the server as one."""
    with server(tmp_path) as subject:
        assert subject.post("/flush") == "flushed"
        with pytest.raises(ServiceError, match="answered 404"):
            subject.get("/flush")


@pytest.mark.parametrize("flags", [("--name=fake",), ("--name=another",)])
def test_listener_that_raises(tmp_path: Path, flags: tuple[str, ...]) -> None:
    """A listener that fails, such as one that prints to a closed terminal, leaves no server behind."""

    def tell(progress: Progress) -> None:
        if progress.state not in (State.STARTING, State.LOADING):
            raise BrokenPipeError

    subject = server(tmp_path, *flags, tell=tell)
    with pytest.raises(BrokenPipeError), subject:
        pass
    assert subject.process is not None
    assert gone(subject.process.pid)


# --- interrupted and killed ------------------------------------------------------------------------


@contextmanager
def owner(folder: Path, *flags: str, port: int = 0) -> Iterator[subprocess.Popen[str]]:
    """A process that runs a server as draftmark does; it prints each state that it is told."""
    program = [sys.executable, "-c", OWNER, str(folder), str(port), *flags]
    with subprocess.Popen(program, cwd=TESTS, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def read_until(process: subprocess.Popen[str], state: State) -> None:
    assert process.stdout is not None
    assert any(line.strip() == state for line in process.stdout)


def recorded() -> int:
    """Process id of the one server that is recorded."""
    (path,) = records().glob("*.json")
    process = msgspec.json.decode(path.read_bytes(), type=Record).server
    assert process is not None
    return process.pid


@pytest.mark.parametrize(("flag", "state"), [("--deaf", State.LOADING), ("--fork=detached", State.READY)])
def test_interrupt(tmp_path: Path, flag: str, state: State) -> None:
    """Ctrl-C while a server loads or serves ends the program and leaves nothing of the server."""
    with owner(tmp_path, flag) as process:
        read_until(process, state)
        pid = recorded()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == -signal.SIGINT
    assert gone(pid)
    assert state is State.LOADING or gone(forked(tmp_path))


def test_second_interrupt(tmp_path: Path) -> None:
    """A second Ctrl-C does not wait for a server that ignores SIGTERM, and still leaves nothing."""
    with owner(tmp_path, "--ignore-term") as process:
        read_until(process, State.READY)
        pid = recorded()
        process.send_signal(signal.SIGINT)
        read_until(process, State.STOPPING)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == -signal.SIGINT
    assert gone(pid)


def test_orphans_end_and_nothing_else(tmp_path: Path) -> None:
    """After kill -9 of its owner a server is ended; the same command of a living owner, or none, is not."""
    told: list[Progress] = []
    kept = server(tmp_path / "kept", "--deaf")
    with owner(tmp_path, "--deaf", port=kept.port) as process:
        read_until(process, State.LOADING)
        orphan = recorded()
        kept.start()
        bystander = subprocess.Popen(kept.command.argv, start_new_session=True)
    try:
        assert not gone(orphan)
        (ended,) = end_orphans(Local(), told.append)
        assert ended.server is not None
        assert ended.server.pid == orphan
        assert f"port {kept.port}" in told[0].text
        assert gone(orphan)
        assert kept.alive()
        assert bystander.poll() is None
        assert end_orphans(Local(), told.append) == []
    finally:
        kept.stop()
        bystander.kill()
        bystander.wait()


def test_orphans_that_left_their_session(tmp_path: Path) -> None:
    """What an orphaned server forked ends with it, also where only the environment tells whose it is."""
    with owner(tmp_path, "--fork=detached") as process:
        read_until(process, State.READY)
    child = forked(tmp_path)
    assert not gone(child)
    assert len(end_orphans(Local(), lambda _: None)) == 1
    assert gone(child)


@contextmanager
def sleeper(**env: str) -> Iterator[subprocess.Popen[bytes]]:
    program = [sys.executable, "-c", "import time; time.sleep(100)"]
    with subprocess.Popen(program, env={**os.environ, **env}, start_new_session=True) as process:
        try:
            yield process
        finally:
            process.kill()


def leave(folder: Path, **fields: Any) -> Record:
    """A record whose owner is gone."""
    record = Record(
        service="old",
        host=fields.pop("host", Local().name),
        port=1,
        log=str(folder),
        owner=Process(os.getpid(), "an earlier life of this id"),
        **fields,
    )
    record.write()
    return record


def test_process_id_used_again(tmp_path: Path) -> None:
    """A process that has the id of a recorded server but started at another time is left alone."""
    with sleeper() as stranger:
        leave(tmp_path, server=Process(stranger.pid, "an earlier life of this id"))
        assert end_orphans(Local(), lambda _: None) == []
        assert stranger.poll() is None


def test_killed_between_record_and_spawn(tmp_path: Path) -> None:
    """A record that has only the token is enough to find the server."""
    record = leave(tmp_path)
    with sleeper(**{TOKEN: record.token}) as orphan, sleeper(**{TOKEN: "another"}) as stranger:
        assert end_orphans(Local(), lambda _: None) == [record]
        assert orphan.wait(30) == -signal.SIGKILL
        assert stranger.poll() is None


def test_records_of_others(tmp_path: Path) -> None:
    """A record of another machine, or one that cannot be read, is left as it is."""
    leave(tmp_path, host="another-machine")
    (records() / "torn.json").write_text("{")
    assert end_orphans(Local(), lambda _: None) == []
    left = list(records().glob("*"))
    assert len(left) == 2
    for path in left:
        path.unlink()


def test_state_folder_that_cannot_be_written(tmp_path: Path) -> None:
    """Without a record no server is started."""
    (tmp_path / "state").write_text("a file where a folder should be")
    subject = server(tmp_path)
    with pytest.raises(ServiceError, match="set DRAFTMARK_STATE_DIR"), subject:
        pass
    assert subject.process is None
    (tmp_path / "state").unlink()


# --- a fake host with a stepped clock --------------------------------------------------------------


class FakeHost:
    """One machine on which time passes only while someone sleeps, and one process does as it is told."""

    name = "fake"

    def __init__(self, ready_at: float = 1e9, log: dict[float, str] | None = None, ends_on: int = 15) -> None:
        self.clock, self.running, self.port_free = 0.0, False, True
        self.ready_at, self.log, self.ends_on = ready_at, log or {}, ends_on
        self.signals: list[tuple[float, int]] = []
        self.leader = Process(1, "born")
        self.gpu, self.gpu_delay, self.gpu_back_at, self.gpu_kept = False, 0.0, 0.0, 0

    def free_port(self) -> int:
        return 1

    def port_is_free(self, port: int) -> bool:
        return self.port_free

    def spawn(self, argv: Sequence[str], env: Mapping[str, str], token: str, log: Path) -> Process:
        self.running = True
        return self.leader

    def alive(self, process: Process) -> bool:
        return self.running

    def reap(self, process: Process) -> int | None:
        return None if self.running else -self.signals[-1][1]

    def members(self, leader: Process | None, token: str) -> set[Process]:
        return {self.leader} if self.running else set()

    def signal(self, process: Process, number: int) -> None:
        self.signals.append((self.clock, number))
        self.running = number != self.ends_on

    def read_log(self, path: Path, offset: int) -> bytes:
        return "".join(text for at, text in self.log.items() if at <= self.clock).encode()[offset:]

    def ask(self, method: str, port: int, path: str, timeout_s: float) -> Answer:
        return Answer(200 if self.clock >= self.ready_at else 500, '{"data": [{"id": "fake"}]}')

    def now(self) -> float:
        return self.clock

    def sleep(self, seconds: float) -> None:
        self.clock += seconds

    def gpu_memory_used(self) -> list[int | None]:
        """A GPU of which a server takes 10 GiB; after its end the driver gives a part back each second."""
        if not self.gpu:
            return []
        if self.running:
            self.gpu_back_at = self.clock + self.gpu_delay
        if self.clock < self.gpu_back_at:
            return [(10 << 30) + int(self.gpu_back_at - self.clock), None]
        return [self.gpu_kept, None]

    def machine(self) -> dict[str, Any]:
        return {}


def on_fake(folder: Path, host: FakeHost, told: list[Progress]) -> Server:
    return server(folder, timeout_s=600, grace_s=30, port=1, tell=told.append, host=host)


def test_never_ready_is_explained(tmp_path: Path) -> None:
    """The error of a server that is never ready says how long it took, how far it came and what to raise."""
    host = FakeHost(log={20: "loaded weights\n", 300: "loaded cache\nstuck"})
    told: list[Progress] = []
    with pytest.raises(ServiceError) as failure, on_fake(tmp_path, host, told):
        pass
    assert "not ready after 600 s" in failure.value.message
    assert "last sign: cache made" in failure.value.message
    assert "server.ready_timeout_s (now 600)" in failure.value.hint
    assert failure.value.log_tail == "loaded weights\nloaded cache\nstuck"
    assert told[-1].state is State.FAILED


@pytest.mark.parametrize(
    ("delay", "kept", "took", "told_at_last"),
    [
        (8, 0, 8, "stopped"),
        (0, 1 << 30, 5, "stopped; GPU memory is still taken"),
        (99, 0, 30, "stopped; GPU memory is still taken"),
    ],
)
def test_a_stop_waits_for_the_gpus_memory(
    tmp_path: Path, delay: float, kept: int, took: float, told_at_last: str
) -> None:
    """It waits while memory comes back; what stays as it is, or takes too long, is told."""
    host = FakeHost(ready_at=1)
    host.gpu, host.gpu_delay = True, delay
    told: list[Progress] = []
    with on_fake(tmp_path, host, told) as running:
        running.host.gpu_memory_used()
        ready_s, host.gpu_kept = host.clock, kept
    assert told[-1].text == told_at_last
    assert took <= host.clock - ready_s <= took + 1


def test_a_long_wait_is_told(tmp_path: Path) -> None:
    """While nothing happens the last sign is told again, with the time that has passed."""
    host = FakeHost(ready_at=120, log={5: "loaded weights\n"})
    told: list[Progress] = []
    with on_fake(tmp_path, host, told) as subject:
        pass
    waits = [progress.elapsed_s for progress in told if progress.text == "weights loaded"]
    assert 6 <= len(waits) <= 9
    assert all(10 < later - sooner < 20 for sooner, later in pairwise(waits))
    assert subject.ready_s == pytest.approx(120, abs=1)


def test_grace(tmp_path: Path) -> None:
    """SIGKILL comes after the grace, and only if SIGTERM did not do."""
    polite, stubborn = FakeHost(ready_at=0), FakeHost(ready_at=0, ends_on=signal.SIGKILL)
    for host in (polite, stubborn):
        with on_fake(tmp_path, host, []):
            pass
    assert polite.signals == [(0.0, signal.SIGTERM)]
    (_, first), (killed_at, second) = stubborn.signals
    assert (first, second) == (signal.SIGTERM, signal.SIGKILL)
    assert killed_at == pytest.approx(30, abs=1)


def test_a_process_that_survives_sigkill(tmp_path: Path) -> None:
    """A process that cannot be killed is an error that names it, and its record stays."""
    host = FakeHost(ready_at=0, ends_on=0)
    with pytest.raises(ServiceError, match="processes 1 did not end"), on_fake(tmp_path, host, []):
        pass
    (path,) = records().glob("*.json")
    path.unlink()


def test_port_that_stays_taken(tmp_path: Path) -> None:
    """A port that does not come free is told, and the stop is complete all the same."""
    host = FakeHost(ready_at=0)
    told: list[Progress] = []
    with on_fake(tmp_path, host, told) as subject:
        host.port_free = False
    assert subject.state is State.STOPPED
    assert "port 1 is still taken" in told[-1].text


# --- laws ------------------------------------------------------------------------------------------


@given(st.sampled_from(State), st.sampled_from(Event))
def test_transitions(state: State, event: Event) -> None:
    """An event leads to the state in the table, or is refused in words that name both."""
    if (state, event) in TRANSITIONS:
        assert advance(state, event) is TRANSITIONS[state, event]
    else:
        with pytest.raises(RuntimeError, match=f"'{state}' cannot take the event '{event}'"):
            advance(state, event)
