"""Whole campaigns through the command line, against a stand-in for llama-server that fails on demand."""

import csv
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
from msgspec.structs import replace

from draftmark.cli.results import matrix_of
from draftmark.schema import Flag
from draftmark.store import ResultTree

FAKE = Path(__file__).with_name("fake_llama.py")
PLAN = """
name: small
engine:
  kind: llamacpp
  binary: {fake}
  env: {{{env}}}
model: {{target: {model}}}
{extra}
methods:
  - {{name: none, kind: none}}
  - {{name: mod, kind: ngram-mod}}
workloads:
  - {{kind: prompts, prompts: [code, json], max_tokens: [{tokens}], repetitions: 3}}
  - {{kind: concurrency, levels: [2], max_tokens: {tokens}, requests: 16}}
"""
CELLS = ["c2-{}", "code-{}", "json-{}"]


@dataclass
class World:
    """A folder with a plan, and the command line at work in it."""

    folder: Path
    tokens: int = 12
    extra: str = "server: {threads: 1, ready_timeout_s: 20}"
    model: str = "model.gguf"
    env: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        (self.folder / "model.gguf").touch()
        self.env["FAKE_STARTS"] = str(self.folder / "starts")

    def write(self) -> None:
        env = ", ".join(f'{key}: "{value}"' for key, value in self.env.items())
        text = PLAN.format(
            fake=FAKE,
            model=self.folder / self.model,
            env=env,
            tokens=self.tokens,
            extra=self.extra,
        )
        (self.folder / "plan.yaml").write_text(text)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        self.write()
        return subprocess.Popen(
            [sys.executable, "-m", "draftmark", "run", "plan.yaml", *arguments],
            cwd=self.folder,
            env={**os.environ, "DRAFTMARK_STATE_DIR": str(self.folder / "state")},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str) -> "Ended":
        process = self.start(*arguments)
        stdout, stderr = process.communicate(timeout=100)
        return Ended(process.returncode, stdout, stderr)

    @property
    def results(self) -> Path:
        return self.folder / "results" / "small"

    def cells(self) -> dict[str, dict[str, object]]:
        """Every stored cell by SERVICE/CELL."""
        files = [path for path in self.results.glob("*/*.json") if path.name != "service.json"]
        return {f"{path.parent.name}/{path.stem}": json.loads(path.read_text()) for path in files}

    def times(self) -> dict[str, int]:
        return {
            str(path): path.stat().st_mtime_ns
            for path in self.results.glob("*/*.json")
            if path.name != "service.json"
        }

    def servers(self) -> list[int]:
        """Ids of the servers that were started and still run."""
        starts = self.folder / "starts"
        pids = [int(line) for line in starts.read_text().split()] if starts.exists() else []
        return [
            pid
            for pid in pids
            if psutil.pid_exists(pid) and FAKE.name in " ".join(psutil.Process(pid).cmdline())
        ]


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    stdout: str
    stderr: str


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    assert made.servers() == []


def eventually(true: Callable[[], object], timeout_s: float = 90) -> None:
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.02)


def statuses(world: World) -> dict[str, object]:
    return {name: cell["status"] for name, cell in world.cells().items()}


def all_cells(world: World) -> set[str]:
    return {
        f"llamacpp-tp1-{method}/{cell.format(world.tokens)}" for method in ("none", "mod") for cell in CELLS
    }


def test_a_campaign_measures_every_cell_and_reports(world: World) -> None:
    """All cells are stored as ok, standard output is the report's path alone, and the code is 0."""
    ended = world.run()
    assert ended.code == 0, ended.stderr
    assert statuses(world) == dict.fromkeys(all_cells(world), "ok")
    assert Path(world.folder / ended.stdout.strip()).read_text().startswith("<!doctype html>")
    assert (world.results / "report" / "report.md").exists()


def test_acceptance_agrees_with_tokens_and_steps(world: World) -> None:
    """With two drafts accepted in every step, three tokens are committed in each: tau is 3."""
    world.tokens = 13
    assert world.run().code == 0
    cell = world.cells()["llamacpp-tp1-mod/code-13"]
    assert cell["metrics"]["tau"] == pytest.approx(3.0)  # type: ignore[index]
    baseline = world.cells()["llamacpp-tp1-none/code-13"]
    assert baseline["metrics"].get("tau", 1.0) == 1.0  # type: ignore[union-attr, attr-defined]


def test_a_second_run_measures_nothing_again(world: World) -> None:
    """Files of measured cells keep their times, and no server is started."""
    world.run()
    times, starts = world.times(), (world.folder / "starts").read_text()
    ended = world.run()
    assert ended.code == 0
    assert "6 kept from before" in ended.stderr
    assert world.times() == times
    assert (world.folder / "starts").read_text() == starts


def test_killed_in_the_middle_and_run_again(world: World) -> None:
    """After kill -9 the same command keeps what is finished, ends the server left over, and completes."""
    world.env["FAKE_TOKEN_S"] = "0.02"
    process = world.start()
    eventually(lambda: len(world.times()) >= 2)
    process.kill()
    process.communicate()
    kept = world.times()
    assert world.servers() != []
    ended = world.run()
    assert ended.code == 0, ended.stderr
    assert statuses(world) == dict.fromkeys(all_cells(world), "ok")
    assert kept.items() <= world.times().items()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_stops_the_server_and_says_how_to_go_on(world: World, number: int) -> None:
    """Ctrl-C or SIGTERM ends with 130, leaves no server, and the finished cells stay."""
    world.env["FAKE_TOKEN_S"] = "0.02"
    process = world.start()
    eventually(lambda: len(world.times()) >= 1)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "the same command goes on from here" in stderr
    assert "Traceback" not in stderr
    assert world.servers() == []


def test_a_server_that_dies_once_is_started_again(world: World) -> None:
    """The cell that it died on is repeated once, and everything is measured."""
    world.env |= {"FAKE_FAULT": "die", "FAKE_ONCE": str(world.folder / "once")}
    ended = world.run("--only", "*-none/*")
    assert ended.code == 0, ended.stderr
    assert sorted(cell["attempts"] for cell in world.cells().values()) == [1, 1, 2]


def test_a_server_killed_from_outside_is_started_again(world: World) -> None:
    """kill -9 of the server in the middle of a cell costs that cell one repetition, and nothing else."""
    world.env["FAKE_TOKEN_S"] = "0.02"
    process = world.start("--only", "*-none/*")
    eventually(lambda: len(world.times()) == 1 and world.servers())
    os.kill(world.servers()[0], signal.SIGKILL)
    process.communicate(timeout=100)
    assert process.returncode == 0
    assert sorted(cell["attempts"] for cell in world.cells().values()) == [1, 1, 2]


def test_a_cell_that_kills_its_server_fails_and_the_others_are_measured(world: World) -> None:
    """What dies twice is stored as failed with its reason; exit code 1."""
    world.env |= {"FAKE_FAULT": "die", "FAKE_PROMPTS": "JSON"}
    ended = world.run("--only", "*-none/*-12")
    assert ended.code == 1
    found = statuses(world)
    assert found["llamacpp-tp1-none/code-12"] == "ok"
    assert found["llamacpp-tp1-none/json-12"] == "failed"
    cell = world.cells()["llamacpp-tp1-none/json-12"]
    assert cell["diagnosis"]["cause"] == "server-died"  # type: ignore[index]
    assert cell["metrics"] == {}


@pytest.mark.parametrize(
    ("fault", "cause"),
    [("error-500", "http-500"), ("cut", "cut"), ("bad-json", "bad-json"), ("silent", "no-output")],
)
def test_requests_that_fail_make_a_failed_cell_with_a_reason(world: World, fault: str, cause: str) -> None:
    """A server that answers 500, stops half-way, sends invalid JSON, no text: no number, a reason, exit 1."""
    world.env["FAKE_FAULT"] = fault
    ended = world.run("--only", "*-none/code-*")
    assert ended.code == 1
    (cell,) = world.cells().values()
    assert cell["status"] == "failed"
    assert cell["diagnosis"]["cause"] == cause  # type: ignore[index]
    assert "requests failed" in ended.stderr or "none brought any text" in ended.stderr


@pytest.mark.parametrize("key", ["address: me@elsewhere", "launcher: systemd", "preempt: [other.service]"])
def test_a_host_that_it_cannot_use_is_refused(world: World, key: str) -> None:
    """Numbers of this machine would bear another one's name: nothing is started, and the message says why."""
    world.extra = f"hosts: {{box: {{{key}}}}}"
    ended = world.run()
    assert ended.code == 2
    assert f"hosts.box: {key.partition(': [')[0].partition(': me')[0]}" in ended.stderr
    assert not (world.folder / "starts").exists()


def test_cells_that_were_disturbed_are_measured_again_on_request(world: World) -> None:
    """What is flagged for the machine's other work is kept, and with --again-flagged measured anew."""
    assert world.run("--only", "*-none/*").code == 0
    tree = ResultTree(world.results)
    service = next(one for one in matrix_of(tree).services if one.baseline)
    first, *others = (found for cell in service.cells if (found := tree.cell(service, cell)))
    for found in (first, *others):
        flags = (Flag(kind="foreign-load", detail="planted"),) if found is first else ()
        tree.write_cell(replace(found, flags=flags), tree.records(service.id, found.cell.id))
    before = world.times()
    kept = world.run("--only", "*-none/*")
    assert world.times() == before
    assert "1 cell flagged foreign-load and not ranked" in kept.stderr
    assert "--again-flagged" in kept.stderr
    again = world.run("--only", "*-none/*", "--again-flagged")
    changed = {name for name, at in world.times().items() if before[name] != at}
    assert changed == {str(world.results / service.id / f"{first.cell.id}.json")}
    assert "flagged foreign-load" in again.stderr


def test_a_folder_of_another_model_is_not_mixed_up(world: World) -> None:
    """A plan of the same name for another model is refused, and with --fresh sets the results aside."""
    assert world.run("--only", "*-none/code-*").code == 0
    started = json.loads((world.results / "campaign.json").read_text())["started_at"]
    assert world.run("--only", "*-none/code-*").code == 0
    assert json.loads((world.results / "campaign.json").read_text())["started_at"] == started
    (world.folder / "other.gguf").touch()
    world.model = "other.gguf"
    refused = world.run("--only", "*-none/code-*")
    assert refused.code == 2
    assert "holds results of" in refused.stderr
    assert world.run("--only", "*-none/code-*", "--fresh").code == 0


def test_a_server_that_dies_at_once(world: World) -> None:
    """Every cell is stored as failed, with the end of the server's log."""
    world.env["FAKE_FAULT"] = "die-at-start"
    ended = world.run("--only", "*-none/*")
    assert ended.code == 1
    assert set(statuses(world).values()) == {"failed"}
    assert "before it was ready" in ended.stderr
    service = json.loads((world.results / "llamacpp-tp1-none" / "service.json").read_text())
    assert "the fake engine refuses to start" in service["log_tail"]


def test_a_start_that_fails_is_adjusted_once_where_the_plan_says_so(world: World) -> None:
    """The advised setting is tried, what failed first is kept beside it, and the cells are flagged."""
    world.env["FAKE_FAULT"] = "no-memory"
    world.extra = "server: {threads: 1, max_running_requests: 8}\non_failure: adjust"
    assert world.run("--only", "*-none/code-*").code == 0
    service = json.loads((world.results / "llamacpp-tp1-none" / "service.json").read_text())
    assert service["adjusted"] == {"max_running_requests": 4}
    assert "kv cache" in " ".join(service["first_failure"]["evidence"])
    (cell,) = world.cells().values()
    assert "adjusted" in [flag["kind"] for flag in cell["flags"]]  # type: ignore[attr-defined]


def test_without_that_word_nothing_is_adjusted(world: World) -> None:
    """The cells fail, with the cause and what would avoid it."""
    world.env["FAKE_FAULT"] = "no-memory"
    world.extra = "server: {threads: 1, max_running_requests: 8}"
    assert world.run("--only", "*-none/code-*").code == 1
    (cell,) = world.cells().values()
    assert cell["diagnosis"]["adjust"] == {"max_running_requests": 4}  # type: ignore[index]


def test_a_server_that_never_gets_ready(world: World) -> None:
    """It is ended at the deadline, and the error names the key that sets it."""
    world.env["FAKE_FAULT"] = "never-ready"
    world.extra = "server: {threads: 1, ready_timeout_s: 1.5}"
    ended = world.run("--only", "*-none/code-*")
    assert ended.code == 1
    assert "was not ready after" in ended.stderr
    (cell,) = world.cells().values()
    assert "server.ready_timeout_s" in cell["diagnosis"]["remedy"]  # type: ignore[index]


def test_failed_cells_are_tried_again_unless_told_not_to(world: World) -> None:
    """The same command tries again what failed; --keep-failed leaves it."""
    broken = world.folder / "broken"
    broken.touch()
    world.env |= {"FAKE_FAULT": "error-500", "FAKE_WHILE": str(broken)}
    assert world.run("--only", "*-none/code-*").code == 1
    broken.unlink()
    assert world.run("--only", "*-none/code-*", "--keep-failed").code == 1
    assert world.run("--only", "*-none/code-*").code == 0


def test_a_damaged_cell_is_measured_again_and_only_that_one(world: World) -> None:
    """A truncated file and an edited one are noticed; the others keep their times."""
    world.run()
    cut, edited = sorted(world.results.glob("*/*-12.json"))[:2]
    kept = {name: at for name, at in world.times().items() if name not in (str(cut), str(edited))}
    cut.write_bytes(cut.read_bytes()[:300])
    edited.write_text(edited.read_text().replace('"completed": ', '"completed": 1'))
    ended = world.run()
    assert ended.code == 0
    assert ended.stderr.count("measuring it again") == 2
    assert kept.items() <= world.times().items()
    assert statuses(world) == dict.fromkeys(all_cells(world), "ok")


def test_a_changed_plan_measures_only_what_changed(world: World) -> None:
    """Another token count is another cell; the hash of the others still holds."""
    world.run("--only", "*-none/*")
    kept = world.times()
    world.write()
    plan = world.folder / "plan.yaml"
    text = plan.read_text() + "  - {kind: prompts, prompts: [creative], max_tokens: [16], repetitions: 2}\n"
    plan.write_text(text)
    subprocess.run(
        [sys.executable, "-m", "draftmark", "run", "plan.yaml", "--only", "*-none/*"],
        cwd=world.folder,
        check=True,
        capture_output=True,
    )
    assert kept.items() <= world.times().items()
    assert "llamacpp-tp1-none/creative-16" in world.cells()


CODE = ("--only", "*/code-*")


def drifting(world: World) -> World:
    """A campaign whose baseline is measured again, on a server that keeps to its times on the clock."""
    world.extra += "\ndrift: true"
    world.env["FAKE_TOKEN_S"] = "0.01"
    return world


def doubts(world: World) -> dict[str, str]:
    """Flags of each comparison, by service and cell."""
    rows = csv.DictReader((world.results / "report" / "data.csv").read_text().splitlines())
    return {f"{row['service']}/{row['cell']}": row["speedup_flags"] for row in rows if row["speedup"]}


def test_a_machine_that_slowed_down_is_found_out(world: World) -> None:
    """Drift turned on later measures the baseline again and nothing else; where it is slower nobody wins."""
    world.env["FAKE_TOKEN_S"] = "0.01"
    world.env["FAKE_SLOW"] = "3"
    assert world.run(*CODE).code == 0
    assert "drift" not in doubts(world)["llamacpp-tp1-mod/code-12"]
    kept = world.times()
    assert drifting(world).run(*CODE).code == 0
    assert kept.items() <= world.times().items()
    assert set(world.cells()) - all_cells(world) == {"llamacpp-tp1-none-again/code-12"}
    report = (world.results / "report" / "report.md").read_text()
    assert "1 flagged and not ranked" in report
    assert "The baseline had moved" in report
    assert "drift" in doubts(world)["llamacpp-tp1-mod/code-12"]
    told = subprocess.run(
        [sys.executable, "-m", "draftmark", "recommend", "results/small"],
        cwd=world.folder,
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.startswith("Nothing can be recommended")


def test_a_machine_that_stayed_as_it_was(world: World) -> None:
    """No comparison is flagged; if more of the phase is measured later, so is the baseline once more."""
    assert drifting(world).run(*CODE).code == 0
    report = (world.results / "report" / "report.md").read_text()
    assert "No drift is shown" in report
    assert "drift" not in doubts(world)["llamacpp-tp1-mod/code-12"]
    times = world.times()
    assert world.run(*CODE).code == 0
    assert world.times() == times
    (world.results / "llamacpp-tp1-mod" / "code-12.json").unlink()
    ended = world.run(*CODE)
    changed = {Path(name).parent.name for name, at in world.times().items() if times.get(name) != at}
    assert changed == {"llamacpp-tp1-mod", "llamacpp-tp1-none-again"}
    assert "more of its phase is measured now" in ended.stderr


def test_fresh_keeps_the_old_results_beside(world: World) -> None:
    """--fresh measures everything anew and renames what was there."""
    world.run("--only", "*-none/code-*")
    times = world.times()
    assert world.run("--only", "*-none/code-*", "--fresh").code == 0
    assert world.times().values() != times.values()
    assert (world.folder / "results" / "small.old-1" / "campaign.json").exists()


def test_status_says_what_is_missing(world: World) -> None:
    """After a part of a plan, status counts what is measured of the whole."""
    world.run("--only", "*-none/*")
    told = subprocess.run(
        [sys.executable, "-m", "draftmark", "status", "results/small"],
        cwd=world.folder,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "3 of 6 cells measured" in told.stdout


def test_a_dry_run_starts_and_writes_nothing(world: World) -> None:
    """It shows the matrix and the commands."""
    ended = world.run("--dry-run")
    assert ended.code == 0
    assert "--spec-type" in ended.stdout
    assert not world.results.exists()
    assert not (world.folder / "starts").exists()


def test_a_disk_that_fills_up_is_one_clear_error(world: World) -> None:
    """Nothing damaged is left behind, the server is ended, and the sentence says what to do."""
    world.write()
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000));"
        "from draftmark.cli import main; main(['run', 'plan.yaml'])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code],
        cwd=world.folder,
        env={**os.environ, "DRAFTMARK_STATE_DIR": str(world.folder / "state")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1
    assert "cannot write" in ended.stderr
    assert "free space" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert [path for path in world.results.rglob("*.tmp")] == []
    assert all(cell["status"] == "ok" for cell in world.cells().values())


def test_attach_measures_a_server_that_already_runs(world: World, tmp_path: Path) -> None:
    """With engine attach nothing is started or ended."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, FAKE, "--port", str(port), "--alias", "mine"], stdout=subprocess.PIPE
    )
    try:
        assert server.stdout is not None
        server.stdout.readline()
        plan = (
            f"name: small\nengine: {{kind: attach, url: 'http://127.0.0.1:{port}'}}\n"
            "model: {target: mine}\n"
            "methods: [{name: none, kind: none}]\n"
            "workloads: [{kind: prompts, prompts: [code], max_tokens: [8], repetitions: 2}]\n"
        )
        (tmp_path / "plan.yaml").write_text(plan)
        ended = subprocess.run(
            [sys.executable, "-m", "draftmark", "run", "plan.yaml"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        assert server.poll() is None
    finally:
        server.kill()
        server.communicate()
    assert statuses(world) == {"attach-tp1-none/code-8": "ok"}
