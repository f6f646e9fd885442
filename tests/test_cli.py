"""The command line from outside: one clear error for bad input, and output that can be piped."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from draftmark.plan import read_plan
from known_models import QWEN36

GOOD = """name: small
engine: {kind: llamacpp}
model: {target: smollm2-135m}
methods: [{name: none, kind: none}]
workloads: [{kind: prompts}]
"""


def draftmark(folder: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "draftmark", *arguments],
        cwd=folder,
        env={**os.environ, "DRAFTMARK_STATE_DIR": str(folder / "state"), **env},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("kind: llamacpp", "kind: llamacp"), "plan.yaml:2: engine.kind"),
        (("workloads:", "workload:"), "did you mean 'workloads'?"),
        (("kind: none}", "kind: ngram-smple}"), "did you mean 'ngram-simple'?"),
        (("[{name: none, kind: none}]", "[]"), "plan.yaml:4: methods"),
        (("none, kind: none}]", "none, kind: none}, {name: none, kind: ngram-mod}]"), "methods[1].name"),
        (("kind: none}", "kind: ngram-simple, size_m: 0}"), "size_m"),
        (("smollm2-135m", "./missing.gguf"), "no such file"),
        (("smollm2-135m", "smollm2-136m"), "plan.yaml:3: model.target"),
        (("smollm2-135m", "smollm2-136m"), "did you mean 'smollm2-135m'?"),
        (("llamacpp}\nmodel: {target: smollm2-135m", "vllm}\nmodel: {target: smollm2"), "model.target"),
        (("kind: none}", "kind: draft-model, draft: smollm}"), "methods[0].draft"),
        (("kind: prompts", "kind: prompts, repetitions: three"), "repetitions"),
        (("name: small", "name: [small"), "plan.yaml:"),
        (("kind: prompts", "kind: prompts, max_tokens: [0]"), "at least 1"),
        (("methods:", "server: {args: {port: 8099}}\nmethods:"), "server.args.port: draftmark picks"),
    ],
)
def test_a_broken_plan_is_one_error(tmp_path: Path, change: tuple[str, str], says: str) -> None:
    """Exit code 2, one message that names the place, nothing written, no traceback."""
    (tmp_path / "plan.yaml").write_text(GOOD.replace(*change))
    ended = draftmark(tmp_path, "run", "plan.yaml")
    assert ended.returncode == 2, ended.stderr
    assert says in ended.stderr
    assert ended.stderr.count("draftmark: ") == 1
    assert "Traceback" not in ended.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["plan.yaml"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "missing.yaml"),
        ("status", "nowhere"),
        ("report", "nowhere"),
        ("plan", "plan.yaml", "--phase", "tp9"),
        ("plan", "plan.yaml", "--only", "nothing-like-it"),
        ("memory", "./nowhere", "--engine", "sglang", "--gpu", "H100"),
        ("diagnose", "nowhere.log"),
        ("run", "plan.yaml", "--no-such-flag"),
    ],
)
def test_what_is_not_there_is_bad_input(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """Exit code 2 and a sentence, never a traceback."""
    (tmp_path / "plan.yaml").write_text(GOOD)
    ended = draftmark(tmp_path, *arguments)
    assert ended.returncode == 2, ended.stderr
    assert ended.stderr.strip()
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        *(("--context", text) for text in ("abc", "", "30kk", "-5", "0", "0k")),
        *(("--gpu", text) for text in ("0GB", "1.2.3GB")),
        ("--tp", "0"),
        ("--concurrency", "0"),
    ],
)
def test_memory_refuses_what_is_no_size(tmp_path: Path, flag: str, value: str) -> None:
    """Exit code 2 and one error that names what was given wrongly."""
    (tmp_path / "config.json").write_text(json.dumps(QWEN36))
    ended = draftmark(tmp_path, "memory", ".", "--engine", "vllm", "--gpu", "T4", flag, value)
    assert ended.returncode == 2, ended.stderr
    assert (flag if flag != "--gpu" else f"GPU '{value}'") in ended.stderr
    assert "Traceback" not in ended.stderr


def test_init_writes_a_plan_that_is_valid_and_never_overwrites(tmp_path: Path) -> None:
    """What init writes can be planned; a second init leaves it alone."""
    assert draftmark(tmp_path, "init", "mine.yaml").returncode == 0
    text = (tmp_path / "mine.yaml").read_text()
    assert read_plan(text, "mine.yaml").name == "mine"
    assert draftmark(tmp_path, "init", "mine.yaml").returncode == 2
    assert (tmp_path / "mine.yaml").read_text() == text


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("run", "plan.yaml", "-o", "plan.yaml"), "'plan.yaml' is a file"),
        (("plan", "plan.yaml", "-o", "plan.yaml"), "'plan.yaml' is a file"),
        (("run", "plan.yaml", "-o", "plan.yaml/deeper"), "a file is where a folder is needed"),
        (("status", "plan.yaml"), "no results here"),
        (("plan", "."), ".: is a directory"),
        (("plan", "binary"), "binary: is not a text file"),
    ],
)
def test_a_file_is_no_folder_and_a_folder_no_plan(
    tmp_path: Path, arguments: tuple[str, ...], says: str
) -> None:
    """Exit code 2, and what is wrong with the path in words."""
    (tmp_path / "plan.yaml").write_text(GOOD)
    (tmp_path / "binary").write_bytes(b"\x7fELF\xd0\x00")
    ended = draftmark(tmp_path, *arguments)
    assert ended.returncode == 2, ended.stderr
    assert says in ended.stderr
    assert "Errno" not in ended.stderr


def test_plan_refuses_a_model_that_is_not_there_as_run_does(tmp_path: Path) -> None:
    """To plan is enough to learn of a misspelt bundled name."""
    (tmp_path / "plan.yaml").write_text(GOOD.replace("135m", "136m"))
    ended = draftmark(tmp_path, "plan", "plan.yaml")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "did you mean 'smollm2-135m'?" in ended.stderr


def test_a_hub_id_is_taken_as_it_is(tmp_path: Path) -> None:
    """A plan for an engine that loads from the hub names a model that is not here."""
    (tmp_path / "plan.yaml").write_text(GOOD.replace("llamacpp", "sglang").replace("smollm2-135m", "a/b"))
    ended = draftmark(tmp_path, "plan", "plan.yaml")
    assert ended.returncode == 0, ended.stderr


def test_a_dry_run_shows_where_a_bundled_model_will_lie(tmp_path: Path) -> None:
    """The commands name its file in the cache, and nothing is fetched."""
    server = tmp_path / "llama-server"
    server.write_text("#!/bin/sh\n")
    server.chmod(0o755)
    (tmp_path / "plan.yaml").write_text(GOOD.replace("llamacpp}", f"llamacpp, binary: {server}}}"))
    ended = draftmark(tmp_path, "run", "plan.yaml", "--dry-run", XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert ended.returncode == 0, ended.stderr
    assert re.search(r"--model \S*/models/SmolLM2-135M-Instruct\.Q4_1\.gguf ", ended.stdout)
    assert {path.name for path in tmp_path.iterdir()} == {"llama-server", "plan.yaml"}


@pytest.mark.parametrize(
    ("log", "says"),
    [
        ("loading\nSegmentation fault (core dumped)\n", "native-crash: "),
        ("Killed\n", "killed: "),
        ('ModuleNotFoundError: No module named "flashinfer"\n', "lacks the Python module flashinfer"),
        ("", "the log is empty"),
        (" \n", "the log is empty"),
    ],
)
def test_a_log_of_a_line_is_diagnosed(tmp_path: Path, log: str, says: str) -> None:
    """Exit code 1 and the cause, where the log is the one word that the system had, or none."""
    (tmp_path / "server.log").write_text(log)
    ended = draftmark(tmp_path, "diagnose", "server.log")
    assert (ended.returncode, ended.stderr) == (1, "")
    assert says in ended.stdout


def test_plan_prints_json_for_programs(tmp_path: Path) -> None:
    """Standard output is one JSON value with services and their cells."""
    (tmp_path / "plan.yaml").write_text(GOOD)
    matrix = json.loads(draftmark(tmp_path, "plan", "plan.yaml", "--json").stdout)
    assert [service["id"] for service in matrix["services"]] == ["llamacpp-tp1-none"]
    assert len(matrix["services"][0]["cells"]) == 5


def test_plan_promises_no_less_than_it_may_take(tmp_path: Path) -> None:
    """Where rounds go on until an interval is narrow enough, requests and times are from first to last."""
    (tmp_path / "plan.yaml").write_text(
        GOOD.replace("prompts}", "prompts, precision: 0.05, max_repetitions: 30}")
    )
    told = draftmark(tmp_path, "plan", "plan.yaml").stdout
    assert "15 to 150 measured requests" in told
    assert re.search(r"time: about .* to .*, a guess", told)
    (tmp_path / "plan.yaml").write_text(GOOD)
    told = draftmark(tmp_path, "plan", "plan.yaml").stdout
    assert "15 measured requests" in told
    assert " to " not in told


def test_plan_warns_of_cells_that_cannot_be_ranked(tmp_path: Path) -> None:
    """Two prompts or sessions are too few, which is better known before than after."""
    (tmp_path / "plan.yaml").write_text(GOOD.replace("prompts}", "prompts, prompts: [code], repetitions: 2}"))
    assert "fewer than 3 different prompts" in draftmark(tmp_path, "plan", "plan.yaml").stdout
    (tmp_path / "plan.yaml").write_text(GOOD.replace("prompts}", "agentic}"))
    assert "fewer than 3" not in draftmark(tmp_path, "plan", "plan.yaml").stdout


def test_one_cell_is_no_plural(tmp_path: Path) -> None:
    """A single cell is counted as one."""
    (tmp_path / "plan.yaml").write_text(GOOD.replace("prompts}", "prompts, prompts: [code]}"))
    told = draftmark(tmp_path, "plan", "plan.yaml").stdout
    assert "1 cell, all" in told
    assert "1 cells" not in told


def test_plan_can_be_piped_into_something_that_stops_reading(tmp_path: Path) -> None:
    """A reader that goes away is no error worth a traceback."""
    (tmp_path / "plan.yaml").write_text(GOOD)
    command = f"{sys.executable} -m draftmark plan plan.yaml | head -1"
    ended = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ended.stdout.startswith("small: 1 service start")
    assert ended.stderr == ""


def test_help_names_every_command(tmp_path: Path) -> None:
    """--help teaches what there is."""
    told = draftmark(tmp_path, "--help").stdout
    for name in ("init", "plan", "run", "status", "report", "check-lossless", "memory", "diagnose"):
        assert f"\n  {name} " in told
