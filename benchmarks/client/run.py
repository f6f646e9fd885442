"""Hold load clients against a server of known timing: what they report beside what was true, and their cost.

Usage: python benchmarks/client/run.py [--only CLIENT ...] [--loads NAME ...] [--soak MINUTES] [--tokenizer T]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, quantiles

import psutil
from peers import PEERS, Load, Report

HERE = Path(__file__).parent
LOADS = [
    Load("one", 1, 20, 256, 20, 5000),
    Load("A", 64, 640, 128, 50, 10_000),
    Load("A4", 64, 640, 512, 50, 10_000, chunk_tokens=4),
    Load("B", 256, 1280, 256, 50, 5000),
    Load("wide", 1000, 2000, 128, 100, 50_000),
    Load("long", 8, 32, 64, 200, 10_000, characters=400_000),
]
SOAK = Load("soak", 1000, 0, 200, 100, 100_000)
"""Its requests are as many as the minutes take."""
COLUMNS = (
    "mean TTFT ms (error)",
    "p99 TTFT ms",
    "TPOT ms",
    "tok/s",
    "of offered",
    "CPU s",
    "CPU s per M tokens",
    "foreign cores",
)


@dataclass(frozen=True)
class Run:
    """One client at one load."""

    said: Report
    cpu_s: float
    wall_s: float
    foreign_cores: float


@contextmanager
def server(binary: Path, load: Load, log: Path) -> Iterator[tuple[str, psutil.Process]]:
    """The server for a load; its log is written when the block ends."""
    shape = [str(load.ttft_ms), str(load.itl_us), str(load.chunk_tokens)]
    process = subprocess.Popen([binary, "0", *shape, log], stdout=subprocess.PIPE, text=True)
    assert process.stdout
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}", psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait()


def busy_s() -> float:
    """CPU seconds that the whole machine has spent."""
    times = psutil.cpu_times()
    return times.user + times.nice + times.system + times.irq + times.softirq


def run(command: list[str], serving: psutil.Process) -> tuple[str, Run]:
    """Run a client to its end; its CPU time includes its start and all its processes."""
    served, busy, begin = sum(serving.cpu_times()[:2]), busy_s(), time.monotonic()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert child.stdout
    said = child.stdout.read()
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    wall, cpu = time.monotonic() - begin, used.ru_utime + used.ru_stime
    if child.returncode:
        raise SystemExit(f"{command[:4]} failed")
    foreign = busy_s() - busy - cpu - (sum(serving.cpu_times()[:2]) - served)
    return said, Run({}, cpu, wall, max(foreign, 0.0) / wall)


def ours(script: str, url: str, load: Load) -> list[str]:
    """A client of this folder."""
    numbers = map(str, (load.streams, load.requests, load.tokens, load.characters))
    return [sys.executable, str(HERE / script), url, *numbers]


def client(name: str, url: str, load: Load, serving: psutil.Process, folder: Path, tokenizer: str) -> Run:
    """What a client reports, and what it cost."""
    if name in ("draftmark", "floor"):
        script = "ours.py" if name == "draftmark" else "floor.py"
        said, cost = run(ours(script, url, load), serving)
        return replace(cost, said=json.loads(said))
    peer = PEERS[name]
    program = [sys.executable] if name.startswith("SGLang") else [peer.path or peer.program]
    _, cost = run([*program, *peer.command(url, load, folder, tokenizer)], serving)
    return replace(cost, said=peer.read(folder))


def truth(log: Path) -> Report:
    """The same figures from the server's own log; its throughput is what it sent."""
    rows = [tuple(map(int, line.split())) for line in log.read_text().splitlines()]
    first = [(row[1] - row[0]) / 1e6 for row in rows]
    per_token = [(row[2] - row[1]) / 1e6 / (row[4] - row[4] / row[3]) for row in rows]
    seconds = (max(row[2] for row in rows) - min(row[0] for row in rows)) / 1e9
    return {
        "ttft_ms": mean(first),
        "ttft_p99_ms": quantiles(first, n=100)[98],
        "tpot_ms": mean(per_token),
        "tok_s": sum(row[4] for row in rows) / seconds,
    }


def show(load: Load, name: str, found: Run, true: Report) -> None:
    """One line of the table: the client's figure and, in brackets, the truth less it."""
    cells = []
    for key in ("ttft_ms", "ttft_p99_ms", "tpot_ms", "tok_s"):
        said = found.said.get(key)
        cells.append("–" if said is None else f"{said:.2f} ({said - true[key]:+.2f})")
    offered = (
        load.streams
        * load.tokens
        / (load.ttft_ms / 1e3 + (load.tokens / load.chunk_tokens - 1) * load.itl_us / 1e6)
    )
    per_million = found.cpu_s / (load.requests * load.tokens) * 1e6
    cost = (
        f"{true['tok_s'] / offered:.1%} | {found.cpu_s:.2f} | {per_million:.1f} | {found.foreign_cores:.2f}"
    )
    print(f"| {load.name} | {name} | {' | '.join(cells)} | {cost} |", flush=True)


def startup(name: str) -> str:
    """CPU seconds that a client spends before it sends anything."""
    before = os.times()
    for module in ("draftmark.load", "draftmark.load.__main__"):
        subprocess.run([sys.executable, "-c", f"import {module}"], check=True)
    after = os.times()
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    return f"{name}: {spent:.2f} CPU s of each run are the start of its two processes"


def main() -> None:
    """Build the server, then run each client at each load."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="CLIENT", default=["draftmark", "floor", *PEERS])
    parser.add_argument("--loads", nargs="+", default=[load.name for load in LOADS])
    parser.add_argument(
        "--soak", type=int, metavar="MINUTES", help="1,000 streams, memory watched; 30 is long"
    )
    parser.add_argument("--tokenizer", default="gpt2", help="hub name or folder, for peers that need one")
    args = parser.parse_args()
    loads = [soak(args.soak)] if args.soak else [load for load in LOADS if load.name in args.loads]
    names = ["draftmark"] if args.soak else args.only
    for name in [name for name in names if name in PEERS and not PEERS[name].path]:
        print(f"{name}: not installed, left out")
        names.remove(name)
    with tempfile.TemporaryDirectory() as folder:
        binary = Path(folder, "timed")
        subprocess.run(["cc", "-O2", "-o", binary, HERE / "timed.c"], check=True)
        print("| load | client | " + " | ".join(COLUMNS) + " |\n|---" + (len(COLUMNS) + 1) * "|---" + "|")
        for load in loads:
            for name in names:
                measure(binary, load, name, Path(folder), args.tokenizer)
    print(startup("draftmark"))


def soak(minutes: int) -> Load:
    """The load that keeps 1,000 streams busy for so long."""
    answer_s = SOAK.ttft_ms / 1e3 + (SOAK.tokens - 1) * SOAK.itl_us / 1e6
    return replace(SOAK, requests=SOAK.streams * max(1, round(60 * minutes / answer_s)))


def measure(binary: Path, load: Load, name: str, folder: Path, tokenizer: str) -> None:
    """One client at one load, and its line."""
    log = folder / "truth"
    with (
        tempfile.TemporaryDirectory() as results,
        server(binary, load, log) as (url, serving),
        memory_watched(load.name == SOAK.name),
    ):
        found = client(name, url, load, serving, Path(results), tokenizer)
    show(load, name, found, truth(log))


@contextmanager
def memory_watched(wanted: bool) -> Iterator[None]:
    """Print every half minute what the load client and the process that it reports to have in memory."""
    over, begin = threading.Event(), time.monotonic()

    def watch() -> None:
        while not over.wait(30):
            held = [
                f"{name} {process.memory_info().rss >> 20} MiB"
                for process in psutil.Process().children(recursive=True)
                for name in ("draftmark.load", "ours.py")
                if any(word.endswith(name) for word in process.cmdline())
            ]
            print(f"after {time.monotonic() - begin:.0f} s: {', '.join(held)}", flush=True)

    watcher = threading.Thread(target=watch)
    if wanted:
        watcher.start()
    try:
        yield
    finally:
        over.set()
        if wanted:
            watcher.join()


if __name__ == "__main__":
    main()
