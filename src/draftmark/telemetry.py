"""What else the machine did while a block ran."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import psutil

from draftmark.hosts import Process, identify

SHORTEST_S = 0.5
"""The kernel counts CPU time in hundredths of a second; over less than this the error would be large."""
GPU_COLUMNS = ("timestamp", "index", "utilization.gpu", "memory.used", "power.draw")
"""Of ``telemetry.csv``, as ``nvidia-smi`` names them: percent, MiB, W."""
_STOP_S = 5.0


@dataclass(frozen=True)
class _Used:
    """CPU seconds of one process and of its children that ended and were waited for."""

    cpu_s: float
    parent: Process | None


class CpuWatch:
    """CPU cores that other processes used while the block ran: all use, less ours and the servers'.

    Reads counters at both ends and nothing between. Ours are this process, ``roots`` and their descendants;
    one that ends inside the block counts through its parent. Only CPUs that this process may run on are
    counted; in a container they may be shared with neighbours, whose use is then foreign use.

    Args:
        roots: leading processes of servers that are not children of this process.
    """

    foreign_cpu: float | None = None
    """Cores, after the block; None for a block too short to tell, or where this process cannot be read."""
    cpus: int
    """That are counted."""

    def __init__(self, roots: Iterable[int] = ()) -> None:
        self._roots = (os.getpid(), *roots)

    def __enter__(self) -> Self:
        self._before = self._read()
        return self

    def __exit__(self, *_: object) -> None:
        started_s, busy_s, ours = self._before
        ended_s, busy_after_s, ours_after = self._read()
        if (wall_s := ended_s - started_s) < SHORTEST_S:
            return
        # The time of a process that nobody of ours waited for is lost, and must not count as negative use.
        known = sum(
            used.cpu_s for who, used in ours.items() if who in ours_after or used.parent in ours_after
        )
        ours_s = sum(used.cpu_s for used in ours_after.values()) - known
        self.foreign_cpu = max(0.0, busy_after_s - busy_s - ours_s) / wall_s

    def _read(self) -> tuple[float, float, dict[Process, _Used]]:
        cpus = _cpus()
        self.cpus = len(cpus)
        return time.monotonic(), sum(map(_busy_s, cpus)), dict(_tree(self._roots))


def _cpus() -> list[Any]:
    """Times of the CPUs that this process may run on."""
    cpus = psutil.cpu_times(percpu=True)
    affinity = getattr(os, "sched_getaffinity", None)
    allowed = affinity(0) if affinity else set()
    # Where some CPUs are offline the list has gaps that its positions do not show.
    return [cpus[number] for number in allowed] if allowed and max(allowed) < len(cpus) else cpus


def _busy_s(cpu: Any) -> float:
    """Seconds that a CPU was busy since boot."""
    extra = getattr(cpu, "irq", 0.0) + getattr(cpu, "softirq", 0.0)
    return float(cpu.user + cpu.system + cpu.nice + extra)


def _tree(roots: Iterable[int]) -> Iterator[tuple[Process, _Used]]:
    for root in roots:
        with suppress(psutil.Error):
            top = psutil.Process(root)
            for process in (top, *top.children(recursive=True)):
                yield from _used(process)


def _used(process: psutil.Process) -> Iterator[tuple[Process, _Used]]:
    with suppress(psutil.Error):
        who, parent, cpu = identify(process.pid), identify(process.ppid()), process.cpu_times()
        if who:
            yield who, _Used(cpu.user + cpu.system + cpu.children_user + cpu.children_system, parent)


def listeners(url: str) -> tuple[int, ...]:
    """Processes of this machine that serve a URL; empty where it is another one's, or they cannot be seen."""
    parts = urlsplit(url)
    if parts.hostname not in ("localhost", "127.0.0.1", "::1", socket.gethostname()):
        return ()
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        found = psutil.net_connections("tcp")
    except (psutil.Error, OSError):
        return ()
    serving = (
        one for one in found if one.status == psutil.CONN_LISTEN and one.laddr and one.laddr.port == port
    )
    return tuple({one.pid for one in serving if one.pid})


class GpuWatch:
    """Samples each GPU once a second into a CSV file while the block runs; does nothing without a GPU.

    The samples are taken by ``nvidia-smi`` itself, in a process that ends with this one, however it ends.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._sampler: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        program = shutil.which("nvidia-smi")
        if program is None:
            return self
        query = [f"--query-gpu={','.join(GPU_COLUMNS)}", "--format=csv,noheader,nounits", "--loop=1"]
        with self._path.open("w") as samples:
            samples.write(",".join(GPU_COLUMNS) + "\n")
            samples.flush()
            self._sampler = subprocess.Popen(
                # The shell waits for the end of its input, which comes when this process closes it or dies.
                ["/bin/sh", "-c", '"$@" </dev/null & read _; kill $!; wait', "sh", program, *query],
                stdin=subprocess.PIPE,
                stdout=samples,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        return self

    def __exit__(self, *_: object) -> None:
        if self._sampler is None:
            return
        assert self._sampler.stdin is not None
        self._sampler.stdin.close()
        try:
            self._sampler.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._sampler.pid, 9)
            self._sampler.wait()
