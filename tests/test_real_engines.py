"""Real vLLM and SGLang servers on the CPU, measured by ``draftmark run``; minutes each, so opt-in.

DRAFTMARK_VLLM_PYTHON     interpreter that has vLLM (its CPU build will do)
DRAFTMARK_SGLANG_PYTHON   interpreter that has SGLang 0.5.17 for a CPU
DRAFTMARK_MODEL           folder of a small Llama model in safetensors
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from draftmark.plan import expand, read_plan
from draftmark.schema import CellResult
from draftmark.store import ResultTree

MODEL = os.environ.get("DRAFTMARK_MODEL", "")
PLAN = """
name: real
engine: {engine}
model: {{target: {model}}}
server: {{context_length: 2048, max_running_requests: 4, args: {args}}}
methods:
  - {{name: none, kind: none}}
  - {{name: ngram, kind: ngram, {param}}}
workloads:
  - {{kind: prompts, prompts: [code], max_tokens: [48], repetitions: 3}}
"""
VLLM_ENV = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1"}
SGLANG_ENV = {
    "SGLANG_USE_CPU_ENGINE": "1",
    "HF_HUB_OFFLINE": "1",
    "GLOO_SOCKET_IFNAME": "lo",
    "CXX": "c++ -include cstddef",
}
SGLANG_ARGS = {
    "device": "cpu",
    "attention-backend": "torch_native",
    "sampling-backend": "pytorch",
    "grammar-backend": "none",
    "disable-cuda-graph": True,
    "max-total-tokens": 20000,
    "dtype": "float32",
    "enable-metrics": True,
}


def measured(folder: Path, plan: str) -> dict[str, CellResult]:
    """Run a plan and give its cells by SERVICE/CELL."""
    (folder / "plan.yaml").write_text(plan)
    state = {"DRAFTMARK_STATE_DIR": str(folder / "state")}
    command = [sys.executable, "-m", "draftmark", "run", "plan.yaml"]
    ended = subprocess.run(command, cwd=folder, env={**os.environ, **state}, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    tree = ResultTree(folder / "results" / "real")
    stored = tree.load(expand(read_plan(plan, "plan.yaml")))
    return {f"{cell.service}/{cell.cell.id}": cell for cell in stored.cells}


@pytest.mark.vllm
@pytest.mark.timeout(1200)
def test_vllm_is_measured_and_its_acceptance_is_its_own(tmp_path: Path) -> None:
    """Plain and n-gram decoding; what the cell counts is what the requests' own figures add up to."""
    python = os.environ.get("DRAFTMARK_VLLM_PYTHON")
    if not python or not MODEL:
        pytest.skip("DRAFTMARK_VLLM_PYTHON or DRAFTMARK_MODEL is not set")
    engine = json.dumps({"kind": "vllm", "python": python, "env": VLLM_ENV})
    args = json.dumps({"dtype": "float32", "enforce-eager": True})
    plan = PLAN.format(engine=engine, model=MODEL, args=args, param="num_speculative_tokens: 5")
    cells = measured(tmp_path, plan)
    ngram = cells["vllm-tp1-ngram/code-48"]
    records = ResultTree(tmp_path / "results" / "real").records("vllm-tp1-ngram", "code-48")
    own = [record.speculation for record in records if record.role == "measured" and record.speculation]
    assert ngram.speculation is not None
    assert ngram.speculation.accepted == sum(one.accepted or 0 for one in own)
    assert ngram.speculation.drafted == sum(one.drafted or 0 for one in own)
    assert ngram.metrics["tau"] >= 1.0
    assert cells["vllm-tp1-none/code-48"].metrics["decode_tok_s"] > 0


@pytest.mark.sglang
@pytest.mark.timeout(1200)
def test_sglang_is_measured(tmp_path: Path) -> None:
    """Plain and n-gram decoding on the real server, scheduler and metrics; acceptance from its counters."""
    python = os.environ.get("DRAFTMARK_SGLANG_PYTHON")
    if not python or not MODEL:
        pytest.skip("DRAFTMARK_SGLANG_PYTHON or DRAFTMARK_MODEL is not set")
    engine = json.dumps({"kind": "sglang", "version": "0.5.17", "python": python, "env": SGLANG_ENV})
    plan = PLAN.format(engine=engine, model=MODEL, args=json.dumps(SGLANG_ARGS), param="num_draft_tokens: 8")
    cells = measured(tmp_path, plan)
    ngram = cells["sglang-tp1-ngram/code-48"]
    assert ngram.speculation is not None
    assert ngram.speculation.steps
    assert ngram.metrics["tau"] >= 1.0
    assert cells["sglang-tp1-none/code-48"].metrics["decode_tok_s"] > 0
