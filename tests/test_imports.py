"""Files as other tools write them, read as results and compared."""

import json
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftmark.errors import BadInput, ResultError
from draftmark.imports import read_benchmark
from draftmark.metrics import METRICS
from draftmark.schema import CampaignResult, CellResult
from draftmark.versus import versus

VLLM = {
    "date": "20260101-120000",
    "backend": "openai-chat",
    "model_id": "m/One",
    "num_prompts": 40,
    "request_rate": "inf",
    "burstiness": 1.0,
    "max_concurrency": 8,
    "duration": 12.5,
    "completed": 39,
    "failed": 1,
    "total_input_tokens": 3900,
    "total_output_tokens": 9984,
    "request_throughput": 3.12,
    "output_throughput": 798.7,
    "total_token_throughput": 1110.7,
    "mean_ttft_ms": 45.0,
    "median_ttft_ms": 40.0,
    "std_ttft_ms": 9.0,
    "p99_ttft_ms": 80.0,
    "mean_tpot_ms": 9.5,
    "median_tpot_ms": 9.4,
    "mean_itl_ms": 25.0,
    "p99_e2el_ms": 3100.0,
    "spec_decode_acceptance_length": 2.7,
}
SGLANG = {
    "backend": "sglang",
    "request_rate": float("inf"),
    "max_concurrency": 4,
    "random_output_len": 256,
    "duration": 10.0,
    "completed": 32,
    "total_input_tokens": 3200,
    "total_output_tokens": 8192,
    "request_throughput": 3.2,
    "output_throughput": 819.2,
    "mean_e2e_latency_ms": 1200.0,
    "p99_e2e_latency_ms": 2000.0,
    "mean_ttft_ms": 50.0,
    "mean_tpot_ms": 4.5,
    "mean_itl_ms": 4.4,
    "accept_length": 3.1,
}
AIPERF = {
    "schema_version": "1.3",
    "request_throughput": {"unit": "requests/sec", "avg": 0.82},
    "request_latency": {
        "unit": "ms",
        "avg": 2413.5,
        "p50": 2431.75,
        "p90": 2438.5,
        "p99": 2439.45,
        "std": 30.0,
    },
    "request_count": {"unit": "requests", "avg": 10.0},
    "time_to_first_token": {"unit": "sec", "avg": 0.19584, "p50": 0.175},
    "inter_token_latency": {"unit": "ms", "avg": 35.2, "p90": 36.0},
    "output_token_throughput": {"unit": "tokens/sec", "avg": 52.69},
    "total_osl": {"unit": "tokens", "avg": 640.0},
    "benchmark_duration": {"unit": "sec", "avg": 12.14},
    "start_time": "2026-06-13T05:11:41",
    "input_config": {"endpoint": {"model_names": ["m/One"]}, "loadgen": {"concurrency": 2}},
}
FILES: Mapping[str, dict[str, Any]] = {"vllm": VLLM, "sglang": SGLANG, "aiperf": AIPERF}


def read(data: object, name: str = "b.json") -> CampaignResult:
    return read_benchmark(json.dumps(data), name)


def only(data: object) -> CellResult:
    (found,) = read(data).cells
    return found


def detailed(seed: int, slowdown: float = 1.0, streams: int = 1) -> dict[str, Any]:
    """vLLM's file with its single requests, of which each has its own speed."""
    work, luck = Random(0), Random(seed)
    ttfts, itls, starts, free = [], [], [], [0.0] * streams
    for _ in range(40):
        gap = 0.01 * slowdown * work.uniform(0.7, 1.3) * luck.uniform(0.99, 1.01)
        ttfts.append(0.05)
        itls.append([gap] * 63)
        free.sort()
        starts.append(free[0])
        free[0] += 0.05 + 63 * gap
    rest = {
        "input_lens": [100] * 40,
        "output_lens": [64] * 40,
        "errors": [""] * 40,
        "max_concurrency": streams,
    }
    return VLLM | rest | {"ttfts": ttfts, "itls": itls, "start_times": [1e4 + start for start in starts]}


def test_vllm_keys_keep_their_meaning() -> None:
    """Totals and latencies as they are, what it calls ITL as the gap between chunks, acceptance as tau."""
    found = only(VLLM)
    assert (found.cell.id, found.cell.concurrency, found.cell.requests) == ("c8", 8, 40)
    assert found.metrics["output_throughput"] == 798.7
    assert found.metrics["p99_e2el_ms"] == 3100
    assert found.metrics["mean_icl_ms"] == 25
    assert found.metrics["tau"] == 2.7
    assert found.started_at == "20260101-120000"
    assert read(VLLM).info.plan.model.target == "m/One"


def test_sglang_keys_keep_their_meaning() -> None:
    """End to end under our name; its ITL has meant different things and is left out."""
    found = only(SGLANG)
    assert (found.cell.concurrency, found.cell.max_tokens, found.cell.rate) == (4, 256, None)
    assert found.metrics["mean_e2el_ms"] == 1200
    assert found.metrics["tau"] == 3.1
    assert not [key for key in found.metrics if "icl" in key or "itl" in key]


def test_aiperf_units_are_read_not_guessed() -> None:
    """Seconds and milliseconds both become milliseconds; its mean time between tokens is our TPOT."""
    found = only(AIPERF)
    assert found.metrics["mean_ttft_ms"] == pytest.approx(195.84)
    assert found.metrics["p90_tpot_ms"] == pytest.approx(36)
    assert found.metrics["median_e2el_ms"] == 2431.75
    assert found.metrics["duration"] == 12.14
    assert (found.cell.concurrency, found.cell.max_tokens) == (2, 64)
    assert read(AIPERF).info.plan.model.target == "m/One"
    phases = {"models": {"items": [{"name": "m/Two"}]}, "phases": [{"name": "warmup", "concurrency": 1}]}
    phases["phases"].append({"name": "profiling", "concurrency": 16})  # type: ignore[attr-defined]
    newer = read(AIPERF | {"input_config": phases})
    assert (newer.info.plan.model.target, newer.cells[0].cell.concurrency) == ("m/Two", 16)


@pytest.mark.parametrize("name", FILES)
def test_only_known_metrics_come_out(name: str) -> None:
    """Each has a definition."""
    assert only(FILES[name]).metrics.keys() <= METRICS.keys()


def test_one_run_in_each_line() -> None:
    """SGLang appends to its file: each line is a cell, equal ones are numbered."""
    lines = [SGLANG, SGLANG | {"max_concurrency": 8}, SGLANG]
    found = read_benchmark("\n".join(json.dumps(line) for line in lines) + "\n", "b.jsonl")
    assert [one.cell.id for one in found.cells] == ["c4", "c8", "c4-2"]


def test_open_loop_has_a_rate() -> None:
    """A finite request rate is one; without any limit all requests are there at once."""
    assert only(VLLM | {"request_rate": 2.5}).cell.rate == 2.5
    assert only(VLLM | {"max_concurrency": None}).cell.concurrency == 40


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("vllm", "duration"),
        ("vllm", "mean_ttft_ms"),
        ("sglang", "output_throughput"),
        ("sglang", "completed"),
        ("aiperf", "benchmark_duration"),
        ("aiperf", "output_token_throughput"),
    ],
)
def test_a_missing_key_is_named(name: str, key: str) -> None:
    """With the file; nothing is taken for 0."""
    data = {k: v for k, v in FILES[name].items() if k != key}
    with pytest.raises(BadInput, match=rf"b\.json: '{key}' is missing"):
        read(data)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", r"b:1: not JSON"),
        ("{", r"b:1: not JSON"),
        ("[1]", "not an object"),
        ("{}", "neither 'completed' nor 'request_count'"),
        (json.dumps(VLLM | {"duration": "long"}), "'duration' is 'long', no number"),
        (json.dumps(VLLM | {"duration": float("nan")}), "'duration' is nan, no number"),
        (json.dumps(SGLANG) + "\n{broken\n", "b:2: not JSON"),
        (json.dumps(VLLM) + "\n" + json.dumps(VLLM | {"model_id": "m/Two"}), "several models"),
        (json.dumps(AIPERF | {"request_latency": {"unit": "h", "avg": 1}}), "request_latency is in 'h'"),
        (json.dumps(detailed(1) | {"itls": [[0.1]]}), "do not fit together"),
    ],
)
def test_a_wrong_file_is_one_clear_error(text: str, said: str) -> None:
    """It says where, what, and what was expected."""
    with pytest.raises(BadInput, match=said) as caught:
        read_benchmark(text, "b")
    assert caught.value.hint


@given(
    st.text(max_size=60)
    | st.recursive(st.none() | st.integers() | st.text(max_size=4), st.lists).map(json.dumps)
)
@settings(max_examples=60)
def test_whatever_is_in_the_file_nothing_but_bad_input_comes_of_it(text: str) -> None:
    """No traceback, and no number."""
    with pytest.raises(BadInput):
        read_benchmark(text, "b")


def test_a_run_without_an_answer_is_no_result() -> None:
    """vLLM writes its file for a dead server as well; such a cell failed and has no numbers."""
    empty = dict.fromkeys(("completed", "total_output_tokens", "output_throughput", "mean_ttft_ms"), 0)
    found = only(VLLM | empty)
    assert (found.status, found.metrics) == ("failed", {})


@pytest.mark.parametrize("streams", [1, 4])
def test_two_files_with_requests_are_compared_in_pairs(streams: int) -> None:
    """10 % slower requests are a regression though prompts differ by a factor of two; equal ones pass."""
    before, same, slow = (read(detailed(n, 1.1 if n == 3 else 1.0, streams)) for n in (1, 2, 3))
    assert versus(before, same).outcome == "PASS"
    found = versus(before, slow)
    assert found.outcome == "REGRESSION"
    assert found.cells[0].metric == ("decode_tok_s" if streams == 1 else "steady_tok_s")


def test_two_files_of_totals_decide_nothing() -> None:
    """The change is shown without an interval."""
    found = versus(read(VLLM), read(VLLM | {"output_throughput": 400.0}))
    assert found.outcome == "INCONCLUSIVE"
    assert found.cells[0].ratio is not None
    assert found.cells[0].ratio.value == pytest.approx(400 / 798.7)


def test_files_of_two_tools_or_loads_are_refused() -> None:
    """Their definitions differ, or what they asked."""
    with pytest.raises(ResultError, match=r"model\.target"):
        versus(read(VLLM), read(VLLM | {"model_id": "m/Two"}))
    with pytest.raises(ResultError, match=r"method\.kind"):
        versus(read(VLLM), read(SGLANG), allow=["model"])
    with pytest.raises(ResultError, match="tokens"):
        versus(read(VLLM), read(VLLM | {"total_output_tokens": 5000}))


def test_a_request_that_failed_is_none() -> None:
    """It has no part in the rates, and does not pair."""
    data = detailed(1)
    data["errors"][3], data["output_lens"][3], data["itls"][3] = "timeout", 0, []
    (records,) = read(data).records.values()
    assert [record.error for record in records if not record.ok] == ["failed"]
