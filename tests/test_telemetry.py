"""What the machine did while a block ran."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from draftmark.telemetry import GPU_COLUMNS, CpuWatch, GpuWatch, listeners

SPIN_S = 0.6
SPIN = f"import time\nwhile time.process_time() < {SPIN_S}: pass\nprint(flush=True)\n"
SLACK_S = 0.25
"""For the ticks in which the kernel counts, and for what runs between two readings."""


def busy_s() -> float:
    """CPU seconds that all processes used since boot."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "steal", 0.0))


@contextmanager
def foreign(script: str) -> Iterator[psutil.Process]:
    """A process that is no descendant of this one and whose parent lets its used time be forgotten."""
    child = [sys.executable, "-c", script]
    parent = (
        "import signal, subprocess; signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        f"child = subprocess.Popen({child!r}, stdout=subprocess.DEVNULL); print(child.pid, flush=True)\n"
        "child.wait()"
    )
    launcher = f"import os, subprocess; subprocess.Popen([{sys.executable!r}, '-c', {parent!r}]); os._exit(0)"
    with subprocess.Popen([sys.executable, "-c", launcher], stdout=subprocess.PIPE) as launched:
        assert launched.stdout is not None
        process = psutil.Process(int(launched.stdout.readline()))
        launched.wait()
        try:
            yield process
        finally:
            with suppress(psutil.NoSuchProcess):
                process.kill()


def eventually(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 30
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_own_work_is_not_foreign() -> None:
    """What this process and its children used, ended or not, is not counted as use by others."""
    start_s, busy = time.monotonic(), busy_s()
    spinning = subprocess.Popen([sys.executable, "-c", SPIN + "time.sleep(60)"], stdout=subprocess.PIPE)
    with CpuWatch() as watch:
        subprocess.run([sys.executable, "-c", SPIN], check=True, stdout=subprocess.DEVNULL)
        until = time.process_time() + SPIN_S
        while time.process_time() < until:
            pass
        assert spinning.stdout is not None
        spinning.stdout.readline()
    wall_s, busy = time.monotonic() - start_s, busy_s() - busy
    spinning.kill()
    spinning.communicate()
    assert watch.foreign_cpu is not None
    assert watch.foreign_cpu * wall_s < busy - 3 * SPIN_S + 2 * SLACK_S


def test_foreign_work_is_counted_unless_it_is_a_server() -> None:
    """A process of someone else counts with just what it used; named as a server's, it does not."""
    with foreign("while True: pass") as process:
        used = sum(process.cpu_times()[:2])
        start_s = time.monotonic()
        with CpuWatch() as unaware, CpuWatch([process.pid]) as aware:
            time.sleep(1.0)
        wall_s = time.monotonic() - start_s
        used = sum(process.cpu_times()[:2]) - used
    assert unaware.foreign_cpu is not None
    assert aware.foreign_cpu is not None
    assert (unaware.foreign_cpu - aware.foreign_cpu) * wall_s == pytest.approx(used, abs=SLACK_S)
    assert used > SLACK_S


def test_a_server_that_ends_inside() -> None:
    """What a server used before the block does not count as use by others when it ends inside."""
    with foreign(SPIN + "time.sleep(60)") as process:
        assert eventually(lambda: sum(process.cpu_times()[:2]) >= SPIN_S - 0.1)
        start_s, busy = time.monotonic(), busy_s()
        with CpuWatch([process.pid]) as watch:
            process.kill()
            assert eventually(lambda: gone(process.pid))
            time.sleep(0.6)
        wall_s, busy = time.monotonic() - start_s, busy_s() - busy
    assert watch.foreign_cpu is not None
    assert watch.foreign_cpu * wall_s < busy + SLACK_S


def test_a_block_too_short() -> None:
    """Over a moment the kernel's counters say nothing, and nothing is said but how many CPUs there are."""
    with CpuWatch() as watch:
        pass
    assert watch.foreign_cpu is None
    assert watch.cpus == len(os.sched_getaffinity(0))


@contextmanager
def nvidia_smi(folder: Path, rows: str) -> Iterator[None]:
    """A stand-in on the search path that notes its process id and its arguments and prints rows for ever."""
    program = folder / "nvidia-smi"
    note = f'echo "$$" >"{folder}/pid"; echo "$@" >"{folder}/arguments"'
    program.write_text(f"#!/bin/sh\n{note}\nwhile :; do printf '{rows}'; sleep 0.02; done\n")
    program.chmod(0o755)
    before = os.environ["PATH"]
    os.environ["PATH"] = f"{folder}{os.pathsep}{before}"
    try:
        yield
    finally:
        os.environ["PATH"] = before


def test_gpu_samples(tmp_path: Path) -> None:
    """Samples are rows under a header, taken each second of each GPU, and the sampler ends with the block."""
    path = tmp_path / "telemetry.csv"
    with nvidia_smi(tmp_path, "2026/01/01 00:00:00.000, 0, 98, 1024, 250.5\\n"), GpuWatch(path):
        assert eventually(lambda: path.read_text().count("\n") > 2)
    header, *rows = path.read_text().splitlines()
    assert header == ",".join(GPU_COLUMNS)
    assert rows[0] == "2026/01/01 00:00:00.000, 0, 98, 1024, 250.5"
    assert "--loop=1" in (tmp_path / "arguments").read_text()
    assert eventually(lambda: gone(int((tmp_path / "pid").read_text())))


def test_gpu_sampler_ends_with_its_owner(tmp_path: Path) -> None:
    """The sampler does not outlive a draftmark that is killed."""
    script = (
        "import sys, time; from pathlib import Path; from draftmark.telemetry import GpuWatch\n"
        "with GpuWatch(Path(sys.argv[1])): time.sleep(60)\n"
    )
    with nvidia_smi(tmp_path, "row\\n"):
        owner = subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "telemetry.csv")])
        try:
            assert eventually(lambda: (tmp_path / "arguments").exists())
        finally:
            owner.kill()
            owner.wait()
    assert eventually(lambda: gone(int((tmp_path / "pid").read_text())))


def test_no_gpu(tmp_path: Path) -> None:
    """Without nvidia-smi nothing is started and no file is made."""
    before = os.environ["PATH"]
    os.environ["PATH"] = str(tmp_path)
    try:
        with GpuWatch(tmp_path / "telemetry.csv"):
            pass
    finally:
        os.environ["PATH"] = before
    assert list(tmp_path.iterdir()) == []


def test_a_server_of_this_machine_is_known_by_its_port() -> None:
    """Whoever listens on a local URL's port serves it; other machines and free ports have nobody here."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert listeners(f"http://localhost:{port}/v1") == (os.getpid(),)
        assert listeners(f"http://elsewhere.invalid:{port}") == ()
    assert listeners(f"http://localhost:{port}") == ()
