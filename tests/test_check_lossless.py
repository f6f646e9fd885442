"""``draftmark check-lossless``: a fault in one answer is found and located, and its absence is said too."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import altering_llama
import tiny_gguf
from draftmark.cli.show import lossless_text
from draftmark.compare import Answer, CheckedCell, LosslessCheck, check_lossless, compare
from draftmark.engines import ENGINES, Launch
from draftmark.errors import BadInput
from draftmark.plan import expand, lossless_plan, read_plan, with_baselines
from draftmark.recommend import recommend
from draftmark.recommend.rank import candidates
from draftmark.schema import Chunk, Lossless, PromptsWorkload
from draftmark.store import ResultTree
from draftmark.workload.prompts import prompt
from trees import Arm, ar, code, tree

TESTS = Path(__file__).parent
FAKE = """
name: small
engine:
  kind: llamacpp
  binary: {fake}
  env: {{{env}}}
model: {{target: {folder}/model.gguf}}
server: {{threads: 1, ready_timeout_s: 20}}
methods:
  - {{name: none, kind: none}}
  - {{name: simple, kind: ngram-simple}}
  - {{name: mod, kind: ngram-mod}}
workloads:
  - {{kind: prompts, prompts: [code, json], max_tokens: [12, 64], repetitions: 5}}
  - {{kind: context, lengths: [3k]}}
select:
  - {{drop: {{method: simple}}, why: not of interest}}
drift: true
"""
CASES = ["llamacpp-tp1-mod/code-12", "llamacpp-tp1-mod/json-12"]


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def answers(self) -> dict[str, str]:
        """By SERVICE/CELL, from what was printed."""
        rows = re.findall(r"^  (\w+(?: \w+)*|near-ties only) {2,}(\S+/\S+) ", self.stdout, re.MULTILINE)
        return {name: answer for answer, name in rows}


def started(folder: Path, *arguments: str, command: str = "check-lossless") -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "draftmark", command, *arguments],
        cwd=folder,
        env={**os.environ, "DRAFTMARK_STATE_DIR": str(folder / "state")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def checked(folder: Path, *arguments: str, command: str = "check-lossless") -> Ended:
    process = started(folder, *arguments, command=command)
    stdout, stderr = process.communicate(timeout=300)
    return Ended(process.returncode, stdout, stderr)


def write_fake(folder: Path, **env: str) -> None:
    """A plan for the stand-in server."""
    (folder / "model.gguf").touch()
    env["FAKE_STARTS"] = str(folder / "starts")
    pairs = ", ".join(f"{key}: {json.dumps(value)}" for key, value in env.items())
    (folder / "plan.yaml").write_text(FAKE.format(fake=TESTS / "fake_llama.py", env=pairs, folder=folder))


def opening(kind: Any, place: int, seed: int) -> str:
    """The first line of a prompt, which no other prompt has."""
    return prompt(kind, place, seed).text.splitlines()[0]


def test_an_interrupted_check_goes_on_and_finds_no_difference(tmp_path: Path) -> None:
    """130 at Ctrl-C; then the same command ends with 0; to judge the tree nothing starts."""
    write_fake(tmp_path, FAKE_TOKEN_S="0.02")
    results = tmp_path / "results" / "small-lossless"
    first = started(tmp_path, "plan.yaml")
    while not [*results.glob("*/*-12.json")]:
        assert first.poll() is None
        time.sleep(0.02)
    first.send_signal(signal.SIGINT)
    assert "the same command goes on from here" in first.communicate(timeout=60)[1]
    assert first.returncode == 130
    kept = {path: path.stat().st_mtime_ns for path in results.glob("*/*-12.json")}
    second = checked(tmp_path, "plan.yaml")
    assert second.code == 0, second.stderr
    assert second.answers == dict.fromkeys(CASES, "identical")
    assert second.stdout.startswith("identical: small-lossless, 0 of 4 outputs differ from none's\n")
    assert kept.items() <= {path: path.stat().st_mtime_ns for path in results.glob("*/*-12.json")}.items()
    starts = (tmp_path / "starts").read_text()
    assert checked(tmp_path, str(results)).stdout == second.stdout
    assert (tmp_path / "starts").read_text() == starts


def test_the_tree_describes_what_was_measured(tmp_path: Path) -> None:
    """None of its cells is missing, and its report's plan is its own: run, it finds everything measured."""
    write_fake(tmp_path)
    assert checked(tmp_path, "plan.yaml").code == 0
    results = tmp_path / "results" / "small-lossless"
    assert "4 of 4 cells measured" in checked(tmp_path, str(results), command="status").stdout
    page = checked(tmp_path, str(results), command="report").stdout.strip()
    shown = (Path(page).parent / "report.md").read_text().split("## Reproduce")[1]
    listing = re.search(r"```\w*\n(.*?)```", shown, re.DOTALL)
    assert listing is not None
    (tmp_path / "small-lossless.yaml").write_text(listing[1])
    starts = (tmp_path / "starts").read_text()
    again = checked(tmp_path, "small-lossless.yaml", command="run")
    assert again.code == 0, again.stderr
    assert (tmp_path / "starts").read_text() == starts


def test_one_changed_word_is_found_and_located(tmp_path: Path) -> None:
    """Exit code 1, and of the one answer that differs the method, prompt, character and both texts."""
    where = opening("code", 1, 0)
    write_fake(tmp_path, FAKE_FAULT="alter", FAKE_PROMPTS=where, FAKE_MARGIN="2.5")
    ended = checked(tmp_path, "plan.yaml", "--only", "*-mod")
    assert ended.code == 1, ended.stderr
    assert ended.answers == dict(zip(CASES, ["diverges", "identical"], strict=True))
    place = len("".join(f" word{number}" for number in range(6))) + 1
    assert f"code-1-s0: from character {place} on, margin 2.5000 nats\n" in ended.stdout
    assert "none  'word6 word7" in ended.stdout
    assert "mod   'fault word7" in ended.stdout
    told = json.loads(checked(tmp_path, "results/small-lossless", "--only", "*/code-*", "--json").stdout)
    assert [(cell["cell"], cell["answer"]) for cell in told["cells"]] == [("code-12", "diverges")]
    assert [part["position"] for part in told["cells"][0]["found"]["partings"]] == [place]


REAL = """
name: real
engine:
  kind: llamacpp
  binary: {binary}
  env: {{ALTER_PYTHON: {python}}}
model: {{target: {model}}}
server: {{threads: 1, context_length: 4096}}
methods:
  - {{name: none, kind: none}}
  - {{name: map, kind: ngram-map-k, size_n: 2, size_m: 4}}
  - {{name: mod, kind: ngram-mod, n_match: 2, n_min: 1, n_max: 4, env: {{{env}}}}}
workloads:
  - {{kind: prompts, prompts: [code], max_tokens: [48]}}
seed: 1
"""


@pytest.mark.parametrize(
    ("compared", "said"), [(1, "0 of 1 output differs from none's"), (2, "0 of 2 outputs differ from none's")]
)
def test_outputs_are_counted_in_words_that_fit(compared: int, said: str) -> None:
    """One output differs, several differ."""
    names = {"service": "s", "method": "m", "cell": "c"}
    counts = {"compared": compared, "differing": 0, "control_compared": 0, "control_differing": 0}
    found = Lossless(**names, **counts, verdict="identical")
    cell = CheckedCell(**names, answer="identical", found=found)
    first, second = lossless_text(LosslessCheck(name="p", baseline="none", answer="identical", cells=(cell,)))
    assert first == f"identical: p, {said}"
    assert f"0 of {compared} differ{'s' * (compared == 1)};" in second


def write_real(folder: Path, model: str, **env: str) -> None:
    """A plan for the real server behind the program that alters one token of ``mod``."""
    pairs = ", ".join(f"{key}: {json.dumps(value)}" for key, value in env.items())
    binary = TESTS / "altering_llama.py"
    text = REAL.format(binary=binary, python=sys.executable, model=model, env=pairs)
    (folder / "plan.yaml").write_text(text)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("model", ["tiny", pytest.param("smollm2-135m", marks=pytest.mark.llamacpp_slow)])
def test_a_planted_fault_is_located_on_a_real_server(model: str, tmp_path: Path) -> None:
    """One token of one answer of llama.cpp is another one: without it 0, with it 1 and its exact place."""
    pytest.importorskip("xllamacpp", reason="the llamacpp extra is not installed")
    model = str(tiny_gguf.write(tmp_path / "tiny.gguf")) if model == "tiny" else model
    write_real(tmp_path, model)
    before = checked(tmp_path, "plan.yaml")
    assert before.code == 0, before.stdout
    records = ResultTree(tmp_path / "results" / "real-lossless").records("llamacpp-tp1-none", "code-48")
    (sure,) = (one for one in records if one.role == "margins" and one.prompt_id == "code-1-s1")
    token = surest(sure.chunks[:16])
    place = sum(len(chunk.text) for chunk in sure.chunks[:token])

    write_real(tmp_path, model, ALTER_PROMPT=opening("code", 1, 1), ALTER_PLACE=str(token))
    after = checked(tmp_path, "plan.yaml")
    assert after.code == 1, after.stderr
    assert after.answers == before.answers | {"llamacpp-tp1-mod/code-48": "diverges"}
    assert f"code-1-s1: from character {place} on, margin {sure.chunks[token].margins[0]:.4f}" in after.stdout
    assert re.search(rf"^ +mod  +['\"]{altering_llama.FAULT}", after.stdout, re.MULTILINE)


def surest(chunks: Sequence[Chunk]) -> int:
    """The place of the token that had the widest margin."""
    return max(range(len(chunks)), key=lambda at: min(chunks[at].margins, default=0.0))


# --- what is judged ----------------------------------------------------------------------------------


def answer_of(arms: Sequence[Arm], **fields: Any) -> LosslessCheck:
    result = tree([code(**fields), code("code-64", **fields)], arms)
    return check_lossless(result, compare(result))


@pytest.mark.parametrize(
    ("arms", "answers", "exit_code"),
    [
        ([ar(), Arm()], ["identical", "identical"], 0),
        ([ar(), Arm(failed=["code-64"])], ["identical", "failed"], 1),
        ([ar(failed=["code-64"]), Arm()], ["identical", "failed"], 1),
        ([ar(), Arm(absent=["code-64"])], ["identical", "not checked"], 3),
        ([Arm()], ["not checked", "not checked"], 3),
        ([ar(), Arm(flags={"code-256": "no-draft"})], ["identical", "identical"], 0),
        ([ar(), Arm(flags=dict.fromkeys(("code-256", "code-64"), "no-draft"))], ["not checked"] * 2, 3),
        ([ar(), Arm(flags={"code-256": "no-draft"}, failed=["code-64"])], ["not checked", "failed"], 1),
        ([ar(), Arm(flags={"code-256": "no-draft"}, absent=["code-64"])], ["not checked"] * 2, 3),
    ],
    ids=[
        "same",
        "failed",
        "baseline failed",
        "absent",
        "no baseline",
        "one idle",
        "all idle",
        "idle, else failed",
        "idle, else absent",
    ],
)
def test_every_cell_gets_an_answer(arms: list[Arm], answers: list[Answer], exit_code: int) -> None:
    """What failed fails the whole, and what could not be put to the test is never an all-clear."""
    found = answer_of(arms)
    assert [one.answer for one in found.cells] == answers
    assert all(bool(one.why) == (one.answer in ("failed", "not checked")) for one in found.cells)
    assert found.exit_code == exit_code


def test_of_two_baselines_in_a_place_the_first_is_compared_with_everywhere() -> None:
    """Speedups, answers, doubts and the recommendation hold a method against the same one."""
    arms = [ar(), Arm(name="slow", kind="none", speed=0.5, failed=["code-64"]), Arm(speed=2.0)]
    result = tree([code(), code("code-64")], arms)
    comparison = compare(result)
    assert comparison.baseline == "ar"
    assert [one.answer for one in check_lossless(result, comparison).cells] == ["identical"] * 2
    over = recommend(result, comparison).overall.over_baseline
    assert over is not None
    assert 1.9 < over.value < 2.1
    moved = tree([code(), code("code-64")], [*arms, ar(0.7, repeats="ar-tp1")])
    doubted = {one.service.id for one in candidates(moved, compare(moved)) if one.flagged}
    assert doubted == {"ar-tp1", "fast-tp1"}


def test_what_has_no_greedy_output_is_left_out_and_named() -> None:
    """Sampling and simulated acceptance change the output by design; without others nothing is checked."""
    sampled = answer_of([ar(), Arm()], temperature=0.7)
    assert (sampled.cells, sampled.answer, sampled.exit_code) == ((), "not checked", 3)
    assert "temperature 0.7" in sampled.notes[0]
    for failed in (), ("code-64",), ("code-256", "code-64"):
        simulated = answer_of([ar(), Arm(params={"synthetic_length": 2.0}, failed=failed)])
        assert (simulated.cells, simulated.answer, len(simulated.notes)) == ((), "not checked", 1)


# --- what is derived ---------------------------------------------------------------------------------

PLAN = """
name: p
engine: {kind: vllm}
model: {target: org/model, draft: org/draft}
methods:
  - {name: none, kind: none}
  - {name: "ngram-{num_speculative_tokens}", kind: ngram, num_speculative_tokens: [3, 5]}
  - {name: draft, kind: draft-model, num_speculative_tokens: 3}
tensor_parallel: [1, 2]
workloads:
  - {kind: concurrency, levels: [4, 16], max_tokens: 512, prompts: [json, code]}
  - {kind: prompts, prompts: [code], max_tokens: [256, 1k]}
  - {kind: agentic}
select:
  - {drop: {method: ngram-3, tp: 2}, why: no}
  - {keep: {method: draft, tp: 1, workload: agentic}}
  - {drop: {method: draft}, why: no}
slo: {tpot_ms: 10}
"""


COMMANDS = """
name: p
engine: {{kind: {kind}}}
model: {{target: m.gguf}}
server: {server}
methods:
  - {{name: none, kind: none}}
  - {{name: ngram, kind: {method}}}
workloads:
  - {{kind: context, lengths: [9k], concurrency: 3}}
  - {{kind: prompts}}
"""
METHODS = {"llamacpp": "ngram-mod", "vllm": "ngram, num_speculative_tokens: 3", "sglang": "ngram"}


def workload(**asked: Any) -> PromptsWorkload:
    (found,) = lossless_plan(read_plan(PLAN, "p.yaml"), **asked).workloads
    assert isinstance(found, PromptsWorkload)
    return found


def test_the_smaller_plan_starts_the_same_servers() -> None:
    """Each one that the plan gives any cell, of the same hash; `draft` only where it has a session."""
    plan = read_plan(PLAN, "p.yaml")
    matrix = expand(lossless_plan(plan))
    assert [(one.id, one.hash) for one in matrix.services] == [
        (one.id, one.hash) for one in expand(plan).services
    ]
    assert "vllm-tp1-draft" in [one.id for one in matrix.services]
    assert {one.max_running_requests for one in matrix.services} == {16}
    assert {cell.id for one in matrix.services for cell in one.cells} == {"json-256", "code-256"}
    assert matrix.plan.name == "p-lossless"


@pytest.mark.parametrize("kind", ["llamacpp", "vllm", "sglang"])
@pytest.mark.parametrize("server", ["{}", "{context_length: 16k}"])
def test_a_server_s_command_is_the_plan_s(kind: str, server: str) -> None:
    """To the word, whether the context is given, or left to the longest request or to the model."""
    text = COMMANDS.format(kind=kind, server=server, method=METHODS[kind])
    plan = read_plan(text, "p.yaml")
    small = lossless_plan(plan)
    launch = Launch(port=1, served_name="m", model="m.gguf", draft=None, program=("server",), cores=2)
    ours, theirs = (
        [ENGINES[kind].command(service, launch).argv for service in expand(one).services]
        for one in (small, plan)
    )
    assert ours == theirs


def test_longer_answers_than_the_plan_s_get_the_room_they_need() -> None:
    """What is asked for beyond the plan's longest request makes the servers' context longer."""
    longer = expand(lossless_plan(read_plan(PLAN, "p.yaml"), max_tokens=15_000))
    assert min(one.context_needed for one in longer.services) >= 15_000 + 1024


def test_a_baseline_without_a_method_is_left_out() -> None:
    """Where `select` leaves a place the baseline alone there is nothing to compare."""
    alone = read_plan(PLAN.replace("select:", "select:\n  - {drop: {method: [ngram-5], tp: 2}}"), "p.yaml")
    assert {one.phase for one in expand(alone).services} == {"tp1", "tp2"}
    assert {one.phase for one in expand(lossless_plan(alone)).services} == {"tp1"}


def test_its_one_workload_is_the_plan_s_own_or_what_is_asked() -> None:
    """The plan's kinds and its fewest tokens, greedy; all kinds and 128 tokens where it has no prompts."""
    assert workload() == PromptsWorkload(prompts=("json", "code"), max_tokens=(256,), repetitions=2)
    asked = workload(kinds=("creative",), max_tokens=32, prompts=7)
    assert asked == PromptsWorkload(prompts=("creative",), max_tokens=(32,), repetitions=7)
    bare = read_plan(re.sub(r"  - \{kind: (prompts|conc).*\n", "", PLAN), "p.yaml")
    assert lossless_plan(bare).workloads == (PromptsWorkload(max_tokens=(128,), repetitions=2),)


def test_a_baseline_comes_along_with_what_is_compared_with_it() -> None:
    """Of each place, with the same cells; a baseline alone is nothing to check."""
    whole = expand(lossless_plan(read_plan(PLAN, "p.yaml")))
    (method,) = (one for one in whole.services if one.id == "vllm-tp2-ngram-5")
    part = type(whole)(plan=whole.plan, services=(method,))
    assert [one.id for one in with_baselines(whole, part).services] == ["vllm-tp2-none", "vllm-tp2-ngram-5"]
    alone = type(whole)(plan=whole.plan, services=tuple(one for one in whole.services if one.baseline))
    with pytest.raises(BadInput, match="nothing to compare"):
        with_baselines(whole, alone)


@pytest.mark.parametrize(
    ("change", "arguments", "says"),
    [
        (("", ""), ["--kinds", "prose"], "no prompt kind 'prose'"),
        (("kind: none", "kind: ngram-cache"), [], "no baseline"),
        (
            ("threads: 1", "context_length: 4096"),
            ["--tokens", "4000"],
            "context_length: 4096 tokens are too few",
        ),
        (("", ""), ["--only", "*-none"], "nothing to compare"),
        (("", ""), ["--phase", "tp9"], "no phase 'tp9'"),
    ],
)
def test_what_cannot_be_checked_is_bad_input(
    tmp_path: Path, change: tuple[str, str], arguments: list[str], says: str
) -> None:
    """Exit code 2 and one sentence; nothing is started or written."""
    write_fake(tmp_path)
    plan = tmp_path / "plan.yaml"
    plan.write_text(plan.read_text().replace(*change))
    ended = checked(tmp_path, "plan.yaml", *arguments)
    assert (ended.code, ended.stderr.count("draftmark: ")) == (2, 1), ended.stderr
    assert says in ended.stderr
    assert not (tmp_path / "results").exists()


def test_a_folder_is_judged_as_it_is(tmp_path: Path) -> None:
    """What would be measured cannot be asked of results, nor anything of a folder without them."""
    for arguments, says in ([], "no campaign.json"), (["--tokens", "64"], "judged as it is"):
        ended = checked(tmp_path, ".", *arguments)
        assert ended.code == 2
        assert says in ended.stderr
