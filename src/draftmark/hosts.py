"""The machine that a server runs on: its processes, ports, logs and clock, and what it is.

Everything that ``services`` does to a machine goes through :class:`Host`.
"""

import http.client
import os
import platform
import shutil
import socket
import subprocess
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import psutil

from draftmark.errors import ServiceError

TOKEN = "DRAFTMARK_SERVICE"
"""Environment variable by which the processes of one server are recognised."""

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_CGROUPS = Path("/sys/fs/cgroup")
_SMI_TIMEOUT_S = 20.0
_TAIL_LINES = 60


@dataclass(frozen=True)
class Process:
    """A process, told apart from a later one with the same id."""

    pid: int
    birth: str
    """When it started, on a clock that does not move with the time of day."""


@dataclass(frozen=True)
class Answer:
    """What one HTTP request returned."""

    status: int
    body: str


class Host(Protocol):
    """What a server's life needs of a machine; every path is on that machine."""

    name: str
    """Unique among machines that share a home directory."""

    def free_port(self) -> int:
        """A TCP port that nothing listens on now."""

    def port_is_free(self, port: int) -> bool:
        """A server could listen on it, on loopback and on every interface."""

    def spawn(self, argv: Sequence[str], env: Mapping[str, str], token: str, log: Path) -> Process:
        """Start a program in its own session, without input, its output replacing ``log``.

        ``env`` is added to the inherited environment, and so is ``token``. Raises ServiceError.
        """

    def alive(self, process: Process) -> bool:
        """It is there and has not ended; one that ended and was not reaped is not alive."""

    def reap(self, process: Process) -> int | None:
        """Exit status, negative for a signal; None where it still runs or was started by someone else."""

    def members(self, leader: Process | None, token: str) -> set[Process]:
        """Live processes of a server: the leader's descendants and session, and bearers of the token.

        Descendants and session count only while the leader's id is its own: running or not yet reaped.
        """

    def signal(self, process: Process, number: int) -> None:
        """Signal exactly this process; nothing happens if it is gone."""

    def read_log(self, path: Path, offset: int) -> bytes:
        """What a file holds from ``offset`` on; empty where there is no more, or no file."""

    def ask(self, method: str, port: int, path: str, timeout_s: float) -> Answer:
        """One HTTP request without a body; raises ServiceError when no answer came."""

    def now(self) -> float:
        """Seconds on a monotonic clock."""

    def sleep(self, seconds: float) -> None:
        """Wait."""

    def gpu_memory_used(self) -> Sequence[int | None]:
        """Bytes in use of each GPU, by whomever; None where that is not told."""

    def machine(self) -> dict[str, Any]:
        """Facts of the machine, as JSON: cores, memory, GPUs, system."""


@cache
def _boot_id() -> str:
    """Names this boot of this kernel; empty where the system has no such thing."""
    return _BOOT_ID.read_text().strip() if _BOOT_ID.exists() else ""


def identify(pid: int) -> Process | None:
    """The process that has this id now, one that ended and was not reaped included; None if there is none."""
    try:
        if boot := _boot_id():
            # psutil adds the time of boot, which the kernel moves whenever the time of day is set.
            ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
            return Process(pid, f"{boot} {ticks}")
        return Process(pid, repr(psutil.Process(pid).create_time()))
    except (OSError, psutil.Error):
        return None


def this_process() -> Process:
    """The process that runs this code."""
    return identify(os.getpid()) or Process(os.getpid(), "")


def is_alive(process: Process) -> bool:
    """It runs on this machine and is not a zombie."""
    with suppress(psutil.Error):
        status = psutil.Process(process.pid).status()
        return status != psutil.STATUS_ZOMBIE and identify(process.pid) == process
    return False


class Local:
    """The machine draftmark itself runs on."""

    def __init__(self) -> None:
        self.name = platform.node()
        self._children: dict[Process, subprocess.Popen[bytes]] = {}

    def free_port(self) -> int:
        """See Host."""
        with socket.socket() as listener:
            listener.bind(("", 0))
            return int(listener.getsockname()[1])

    def port_is_free(self, port: int) -> bool:
        """See Host."""
        return _can_bind("127.0.0.1", port) and _can_bind("", port)

    def spawn(self, argv: Sequence[str], env: Mapping[str, str], token: str, log: Path) -> Process:
        """See Host."""
        try:
            log.parent.mkdir(parents=True, exist_ok=True)
            with log.open("wb") as output:
                child = subprocess.Popen(
                    argv,
                    env={**os.environ, **env, TOKEN: token},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except (OSError, ValueError) as error:
            raise ServiceError(f"cannot start {argv[0]}: {error}") from error
        # Never None: a child keeps its id until it is reaped.
        process = identify(child.pid) or Process(child.pid, "")
        self._children[process] = child
        return process

    def alive(self, process: Process) -> bool:
        """See Host."""
        return is_alive(process)

    def reap(self, process: Process) -> int | None:
        """See Host."""
        child = self._children.get(process)
        status = child.poll() if child else None
        if status is not None:
            del self._children[process]
        return status

    def members(self, leader: Process | None, token: str) -> set[Process]:
        """See Host."""
        session = leader.pid if leader and identify(leader.pid) == leader else None
        family = _descendants(session) if session else set()
        found = set()
        for pid in psutil.pids():
            # Identified before it is looked at: if the id changes hands meanwhile, the signal finds no one.
            process = identify(pid)
            ours = pid in family or (session and _session(pid) == session) or _token(pid) == token
            if process and ours and is_alive(process):
                found.add(process)
        return found

    def signal(self, process: Process, number: int) -> None:
        """See Host."""
        if is_alive(process):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process.pid, number)

    def read_log(self, path: Path, offset: int) -> bytes:
        """See Host."""
        with suppress(FileNotFoundError), path.open("rb") as log:
            log.seek(offset)
            return log.read()
        return b""

    def ask(self, method: str, port: int, path: str, timeout_s: float) -> Answer:
        """See Host."""
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)
        try:
            connection.request(method, path)
            response = connection.getresponse()
            return Answer(response.status, response.read().decode(errors="replace"))
        except (OSError, http.client.HTTPException) as error:
            raise ServiceError(
                f"no answer from {path} on port {port}: {error or type(error).__name__}"
            ) from error
        finally:
            connection.close()

    def now(self) -> float:
        """See Host."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """See Host."""
        time.sleep(seconds)

    def gpu_memory_used(self) -> Sequence[int | None]:
        """See Host."""
        return gpu_memory_used()

    def machine(self) -> dict[str, Any]:
        """See Host."""
        total = psutil.virtual_memory().total
        return {
            "hostname": self.name,
            "os": f"{platform.system()} {platform.release()}",
            "python": platform.python_version(),
            "cpu": _cpu_model(),
            "cores": usable_cores(),
            "memory_bytes": min(total, memory_limit() or total),
            "gpus": gpus(),
        }


def _can_bind(address: str, port: int) -> bool:
    with socket.socket() as listener:
        # As servers do; without it a port would look taken for a minute after its last connection.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError):
            listener.bind((address, port))
            return True
    return False


def _descendants(pid: int) -> set[int]:
    with suppress(psutil.Error):
        return {child.pid for child in psutil.Process(pid).children(recursive=True)}
    return set()


def _session(pid: int) -> int | None:
    with suppress(OSError):
        return os.getsid(pid)
    return None


def _token(pid: int) -> str | None:
    """The token a process was started with; None where it has none or may not be asked."""
    with suppress(psutil.Error, OSError):
        return psutil.Process(pid).environ().get(TOKEN)
    return None


class LogReader:
    """Reads a log as it grows."""

    def __init__(self, host: Host, path: Path) -> None:
        self._host, self._path = host, path
        self._offset, self._rest = 0, b""
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._seen: set[str] = set()

    def reached(self, markers: tuple[tuple[str, str], ...]) -> list[str]:
        """Meanings of the markers that appeared for the first time since the last call, in log order."""
        found = []
        for line in self._new_lines():
            for text, meaning in markers:
                if text in line and text not in self._seen:
                    self._seen.add(text)
                    found.append(meaning)
        return found

    def tail(self) -> str:
        """The last lines, an unfinished one included."""
        self._new_lines()
        rest = [self._rest.decode(errors="replace")] if self._rest else []
        return "\n".join([*self._tail, *rest][-_TAIL_LINES:])

    def _new_lines(self) -> list[str]:
        data = self._host.read_log(self._path, self._offset)
        self._offset += len(data)
        # A progress bar ends its lines with a carriage return.
        *whole, self._rest = (self._rest + data).replace(b"\r", b"\n").split(b"\n")
        lines = [line.decode(errors="replace") for line in whole]
        self._tail.extend(line for line in lines if line)
        return lines


# --- what the machine is ---------------------------------------------------------------------------


def usable_cores(cgroups: Path = _CGROUPS, own: Path = Path("/proc/self/cgroup")) -> int:
    """CPU cores that this process may use: its affinity, cut to the cgroup's quota, at least 1."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    quotas = [quota for text in _limits(cgroups, own, "cpu", "cpu.max") if (quota := _ratio(text))]
    quotas += [
        quota
        for used, period in zip(
            _limits(cgroups, own, "cpu", "cpu.cfs_quota_us"),
            _limits(cgroups, own, "cpu", "cpu.cfs_period_us"),
            strict=False,
        )
        if (quota := _ratio(f"{used} {period}"))
    ]
    return max(1, int(min([cores, *quotas])))


def memory_limit(cgroups: Path = _CGROUPS, own: Path = Path("/proc/self/cgroup")) -> int | None:
    """Bytes that the cgroup of this process may use; None where it is not limited."""
    texts = [
        *_limits(cgroups, own, "memory", "memory.max"),
        *_limits(cgroups, own, "memory", "memory.limit_in_bytes"),
    ]
    return min((int(text) for text in texts if text.isdigit()), default=None)


def _limits(cgroups: Path, own: Path, controller: str, name: str) -> Iterator[str]:
    """Contents of a control file in this process's cgroup and in each one above it, of either version."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return
    for _, controllers, path in (line.split(":", 2) for line in lines):
        if controllers and controller not in controllers.split(","):
            continue
        top = cgroups / controllers
        for folder in (top / path.strip("/"), *(top / path.strip("/")).parents):
            if folder.is_relative_to(top) and (folder / name).is_file():
                yield (folder / name).read_text().strip()


def _ratio(quota: str) -> float | None:
    """Cores of ``quota period``; None for ``max`` (version 2) and ``-1`` (version 1), which mean no limit."""
    used, period = quota.split()
    return int(used) / int(period) if used.isdigit() else None


def _cpu_model() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def gpus() -> list[dict[str, Any]]:
    """Name, memory in bytes and driver of each GPU that ``nvidia-smi`` lists; empty without it."""
    return [
        {"name": name, "memory_bytes": _bytes(mib), "driver": driver}
        for name, mib, driver in _of_gpus("name", "memory.total", "driver_version")
    ]


def gpu_memory_used() -> tuple[int | None, ...]:
    """Bytes in use of each GPU, by whomever; None where ``nvidia-smi`` does not say, empty without it."""
    return tuple(_bytes(mib) for (mib,) in _of_gpus("memory.used"))


def _of_gpus(*columns: str) -> list[list[str]]:
    """A row for each GPU; none where there is no ``nvidia-smi``, or it fails."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    query = [program, f"--query-gpu={','.join(columns)}", "--format=csv,noheader,nounits"]
    try:
        output = subprocess.run(
            query,
            capture_output=True,
            text=True,
            timeout=_SMI_TIMEOUT_S,
            check=True,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    rows = [[cell.strip() for cell in line.split(",")] for line in output.stdout.splitlines()]
    return [row for row in rows if len(row) == len(columns)]


def _bytes(mib: str) -> int | None:
    return int(mib) * 2**20 if mib.isdigit() else None
