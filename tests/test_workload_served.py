"""Every way of sending a prompt, through the command line to llama.cpp; skipped without ``xllamacpp``."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tiny_gguf
from draftmark.metrics import decode_half_width
from draftmark.plan import covered, expand
from draftmark.schema import CampaignInfo, RequestRecord
from draftmark.store import ResultTree

pytest.importorskip("xllamacpp", reason="the llamacpp extra is not installed")

PLAN = """
name: ways
engine: {kind: llamacpp}
model: {target: MODEL}
server: {threads: 1}
methods: [{name: none, kind: none}]
workloads:
  - {kind: prompts, prompts: [json], max_tokens: [9], repetitions: 2, precision: 0.2, max_repetitions: 5,
     api: completions}
  - {kind: concurrency, levels: [2], max_tokens: 8, requests: 4, precision: 0.9, max_requests: 8, api: tokens}
  - {kind: context, lengths: [2000], max_tokens: 4, repetitions: 1}
  - {kind: context, lengths: [2000], max_tokens: 4, repetitions: 1, api: completions}
  - {kind: context, lengths: [2000], max_tokens: 4, repetitions: 1, api: tokens}
  - {kind: trace, file: talks.json, format: sharegpt, requests: 2, levels: [2], max_tokens: 8}
  - {kind: trace, file: mooncake.jsonl, format: mooncake, requests: 3, speedup: 100, longest: 2k}
"""
TALKS = [{"conversations": [{"from": "human", "value": f"What is {n} and {n}?"}]} for n in range(3)]
LINES = [
    {"timestamp": 50 * n, "input_length": 700 + n, "output_length": 3 + n, "hash_ids": [1, n]}
    for n in range(2, 5)
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the plan has run."""
    made = tmp_path_factory.mktemp("ways")
    (made / "plan.yaml").write_text(PLAN.replace("MODEL", str(tiny_gguf.write(made / "tiny.gguf"))))
    (made / "talks.json").write_text(json.dumps(TALKS))
    (made / "mooncake.jsonl").write_text("\n".join(map(json.dumps, LINES)))
    ended = run(made)
    assert ended.returncode == 0, ended.stderr
    return made


def run(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "draftmark", "run", "plan.yaml", *arguments],
        cwd=folder,
        env={**os.environ, "DRAFTMARK_STATE_DIR": str(folder / "state")},
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )


def read(folder: Path, cell: str) -> tuple[dict[str, float], list[RequestRecord], list[RequestRecord]]:
    """A cell's numbers, its measured records and its control's."""
    tree = ResultTree(folder / "results" / "ways")
    info: CampaignInfo = tree.info()
    result = tree.load(expand(info.plan, info.files), records=True)
    (found,) = (found for found in result.cells if found.cell.id == cell)
    records = result.records[f"{found.service}/{cell}"]
    by_role = [[record for record in records if record.role == role] for role in ("measured", "control")]
    return found.metrics, *by_role


@pytest.mark.parametrize(
    ("cell", "precision", "most"), [("json-9-completions", 0.2, 5), ("c2-8-tokens", 0.9, 8)]
)
def test_rounds_end_when_the_rate_is_known_or_none_are_left(
    folder: Path, cell: str, precision: float, most: int
) -> None:
    """No round follows one that was enough, the control repeats those that were sent, all are counted."""
    numbers, measured, control = read(folder, cell)
    assert numbers["completed"] == len(measured)
    rounds = sorted({record.round for record in measured})
    widths = [decode_half_width([r for r in measured if r.round <= number]) or 1 for number in rounds]
    assert widths[-1] == numbers["decode_half_width"]
    assert widths[-1] <= precision or len(measured) == most
    assert all(width > precision for width in widths[:-1])
    for number in rounds:
        ids = [{r.prompt_id for r in records if r.round == number} for records in (measured, control)]
        assert ids[0] == ids[1] != set()


@pytest.mark.parametrize("way", ["", "-completions", "-tokens"])
def test_contexts_are_exact_however_they_are_sent(folder: Path, way: str) -> None:
    """The server counts as many prompt tokens as the plan asks for: chat, raw text and token ids."""
    _, measured, _ = read(folder, f"ctx-2k-4{way}")
    assert [record.prompt_tokens for record in measured] == [2000]


def test_traces_are_sent_as_recorded(folder: Path) -> None:
    """Recorded lengths arrive, at the recorded times where they are asked for, and talks as they are."""
    _, measured, _ = read(folder, "trace-mooncake-x100")
    assert [record.prompt_tokens for record in measured] == [line["input_length"] for line in LINES]
    assert [record.output_tokens for record in measured] == [line["output_length"] for line in LINES]
    assert None not in [record.sent_late_s for record in measured]
    _, measured, _ = read(folder, "trace-talks-c2")
    assert sorted(record.prompt_id for record in measured) == ["sharegpt-0", "sharegpt-1"]


def test_a_trace_that_changes_is_measured_again(folder: Path) -> None:
    """What is stored counts for the file that it was measured with, and a result keeps no trace's text."""
    assert "What is" not in (folder / "results" / "ways" / "campaign.json").read_text()
    plan = ResultTree(folder / "results" / "ways").info().plan
    files = {path.name: path.read_text() for path in (folder / "talks.json", folder / "mooncake.jsonl")}
    seals = {
        cell.id: cell.hash
        for service in expand(plan, covered(plan, files)).services
        for cell in service.cells
    }
    files["talks.json"] = json.dumps(TALKS[::-1])
    for service in expand(plan, covered(plan, files)).services:
        assert {cell.id for cell in service.cells if seals[cell.id] != cell.hash} == {"trace-talks-c2"}


def test_a_bad_trace_is_one_error_before_anything_starts(tmp_path: Path) -> None:
    """The file and line are named, and no result is written."""
    (tmp_path / "plan.yaml").write_text(PLAN.replace("MODEL", str(tiny_gguf.write(tmp_path / "tiny.gguf"))))
    (tmp_path / "talks.json").write_text('[\n{"conversations": 3}]')
    (tmp_path / "mooncake.jsonl").write_text("")
    ended = run(tmp_path)
    assert ended.returncode == 2
    assert "talks.json:2: Expected `array`" in ended.stderr
    assert not (tmp_path / "results").exists()
