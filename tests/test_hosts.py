"""The machine that servers run on: its ports, processes, logs and facts."""

import json
import os
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmark.errors import ServiceError
from draftmark.hosts import Local, LogReader, Process, gpus, identify, is_alive, memory_limit, usable_cores


@contextmanager
def path_with(folder: Path, script: str) -> Iterator[None]:
    """A search path on which ``nvidia-smi`` is the given shell script, and nothing else is."""
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    before = os.environ["PATH"]
    os.environ["PATH"] = str(folder)
    try:
        yield
    finally:
        os.environ["PATH"] = before


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])
def test_ports(address: str) -> None:
    """A port is free until someone listens on it, whether on loopback or on every interface."""
    host = Local()
    port = host.free_port()
    assert host.port_is_free(port)
    with socket.socket() as listener:
        listener.bind((address, port))
        listener.listen()
        assert not host.port_is_free(port)
    assert host.port_is_free(port)


def test_port_is_free_after_a_connection() -> None:
    """A port counts as free as soon as its server is gone, though its last connection lingers."""
    host = Local()
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            listener.accept()[0].close()
            client.recv(1)
    assert host.port_is_free(port)


def test_identity(tmp_path: Path) -> None:
    """A process keeps its identity until it is reaped, and is alive only until it ends."""
    host = Local()
    process = host.spawn([sys.executable, "-c", "import sys; sys.exit(4)"], {}, "token", tmp_path / "log")
    while host.alive(process):
        host.sleep(0.01)
    assert identify(process.pid) == process
    assert host.members(process, "token") == set()
    assert host.reap(process) == 4
    assert host.reap(process) is None
    assert identify(process.pid) is None


def test_signals_only_the_process_meant(tmp_path: Path) -> None:
    """A signal to a process of the same id that started at another time goes nowhere."""
    host = Local()
    process = host.spawn([sys.executable, "-c", "import time; time.sleep(60)"], {}, "token", tmp_path / "log")
    host.signal(Process(process.pid, "another time"), 9)
    host.sleep(0.1)
    assert host.alive(process)
    assert not is_alive(Process(process.pid, "another time"))
    assert host.members(Process(process.pid, "another time"), "another token") == set()
    assert host.members(process, "another token") == {process}
    host.signal(process, 9)
    while host.alive(process):
        host.sleep(0.01)
    assert host.reap(process) == -9


def test_no_answer() -> None:
    """A page of a server that is not there is an error that names page and port."""
    host = Local()
    port = host.free_port()
    with pytest.raises(ServiceError, match=f"no answer from /health on port {port}: .*refused"):
        host.ask("GET", port, "/health", 1)


def test_silent_server() -> None:
    """A server that accepts and says nothing is given up after the timeout."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        with pytest.raises(ServiceError, match="timed out"):
            Local().ask("GET", port, "/health", 0.1)


@given(st.sets(st.integers(1, 60)))
def test_any_growth_of_a_log_reads_the_same(cuts: set[int]) -> None:
    """However a log grows, each marker is met once, in order, and the tail is the text."""
    raw = "a\nloaded weights ü\n10%\rloaded cache\nloaded weights\nrest".encode()
    markers = (("loaded weights", "weights"), ("loaded cache", "cache"))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log"
        reader = LogReader(Local(), path)
        met = reader.reached(markers)
        for start, end in pairwise([0, *sorted(cut for cut in cuts if cut < len(raw)), len(raw)]):
            with path.open("ab") as log:
                log.write(raw[start:end])
            met += reader.reached(markers)
    assert met == ["weights", "cache"]
    assert reader.tail() == "a\nloaded weights ü\n10%\nloaded cache\nloaded weights\nrest"


def test_machine_is_json_without_secrets() -> None:
    """The facts of the machine can be stored, are plausible, and hold nothing of the environment."""
    os.environ["SOME_API_KEY"] = "sk-never-shown"
    try:
        facts = Local().machine()
    finally:
        del os.environ["SOME_API_KEY"]
    text = json.dumps(facts)
    assert "sk-never-shown" not in text
    assert 1 <= facts["cores"] <= (os.cpu_count() or 1)
    assert 0 < facts["memory_bytes"] <= psutil.virtual_memory().total
    assert facts["cpu"]


def test_gpus(tmp_path: Path) -> None:
    """GPUs are what nvidia-smi lists, in bytes; memory that it does not say stays missing."""
    rows = "NVIDIA H200, 143771, 570.1\\nNVIDIA GB10, [N/A], 580.2\\n"
    with path_with(tmp_path, f"printf '{rows}'"):
        assert gpus() == [
            {"name": "NVIDIA H200", "memory_bytes": 143771 * 2**20, "driver": "570.1"},
            {"name": "NVIDIA GB10", "memory_bytes": None, "driver": "580.2"},
        ]


def test_gpus_without_a_driver(tmp_path: Path) -> None:
    """An nvidia-smi that fails means that no GPU is known, not an error."""
    with path_with(tmp_path, "echo 'Failed to initialize NVML'; exit 9"):
        assert gpus() == []


def test_quota_of_cgroup_version_2(tmp_path: Path) -> None:
    """The smallest quota on the way up counts, rounded down to whole cores, but at least one."""
    (tmp_path / "slice" / "scope").mkdir(parents=True)
    (tmp_path / "own").write_text("0::/slice/scope\n")
    (tmp_path / "slice" / "scope" / "cpu.max").write_text("max 100000\n")
    (tmp_path / "slice" / "cpu.max").write_text("150000 100000\n")
    (tmp_path / "slice" / "memory.max").write_text("1048576\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert usable_cores(tmp_path, tmp_path / "own") == 1
    assert memory_limit(tmp_path, tmp_path / "own") == 1048576


def test_quota_of_cgroup_version_1(tmp_path: Path) -> None:
    """Version 1 keeps each controller in a folder of its own, and -1 means no quota."""
    (tmp_path / "own").write_text("4:memory:/job\n2:cpu,cpuacct:/job\n1:name=systemd:/\n")
    for folder, name, text in [
        ("cpu,cpuacct", "cpu.cfs_quota_us", "-1"),
        ("cpu,cpuacct", "cpu.cfs_period_us", "100000"),
        ("cpu,cpuacct/job", "cpu.cfs_quota_us", "50000"),
        ("cpu,cpuacct/job", "cpu.cfs_period_us", "100000"),
        ("memory/job", "memory.limit_in_bytes", "4096"),
    ]:
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / name).write_text(text)
    assert usable_cores(tmp_path, tmp_path / "own") == 1
    assert memory_limit(tmp_path, tmp_path / "own") == 4096


def test_no_cgroups(tmp_path: Path) -> None:
    """Without cgroups the affinity counts."""
    expected = len(psutil.Process().cpu_affinity() or [0])
    assert usable_cores(tmp_path, tmp_path / "none") == expected
    assert memory_limit(tmp_path, tmp_path / "none") is None


def test_spawn_writes_what_the_program_says(tmp_path: Path) -> None:
    """Both outputs reach the log, whose folder is made and whose earlier content is replaced."""
    host, log = Local(), tmp_path / "new" / "server.log"
    for word in ("first", "second"):
        script = f"import os, sys; os.write(1, b'{word} '); os.write(2, b'error')"
        process = host.spawn([sys.executable, "-c", script], {}, "token", log)
        while (status := host.reap(process)) is None:
            host.sleep(0.01)
        assert status == 0
    assert log.read_text() == "second error"
    assert host.read_log(tmp_path / "missing", 0) == b""
