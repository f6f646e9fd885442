"""When a cell's numbers are doubted, and when they are not."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from draftmark.metrics import flags, measure
from draftmark.metrics.loops import loop_length
from draftmark.schema import Cell, Chunk, LoadHealth, RequestRecord, Speculation
from made_records import HEALTHY, cell, chunks, loaded, record

ANSWERS = json.loads((Path(__file__).parent / "data" / "answers.json").read_text())
THREE = tuple(record(prompt) for prompt in "abc")


def raised(
    records: Sequence[RequestRecord] = THREE,
    *,
    of: Cell | None = None,
    health: LoadHealth = HEALTHY,
    **known: Any,
) -> dict[str, str]:
    """Kind and detail of each flag of a cell."""
    asked, load = of or cell(), loaded(*records, health=health)
    return {flag.kind: flag.detail for flag in flags(asked, load, measure(asked, load, None), **known)}


def saying(text: str, prompt: str = "a") -> RequestRecord:
    return record(prompt, chunks=(Chunk(t_s=0.5, text=text[:1]), Chunk(t_s=1.4, text=text[1:])))


def several(count: int, start_s: float = 0.0) -> list[RequestRecord]:
    return [record(f"p{i}", start_s=start_s * i) for i in range(count)]


def served_alone(turn: int) -> RequestRecord:
    """One of four in flight, of which the server serves one a second."""
    start = max(turn - 3, 0)
    times = chunks([turn + 0.1 - start, turn + 0.9 - start])
    return record(f"p{turn}", start_s=start, chunks=times)


def test_a_sound_cell_has_no_flag() -> None:
    """Nothing is doubted where everything known is in order, nor where nothing is known."""
    spoke = Speculation(source="t", drafted=30, accepted=10, steps=20)
    facts = {"max_running_requests": 8, "speculation": True}
    assert raised(speculation=spoke, speculative=True, facts=facts, foreign_cpu=0.1) == {}
    assert raised(facts={"max_running_requests": None, "speculation": None}) == {}


def test_an_answer_shorter_than_asked_is_an_early_stop() -> None:
    """Where a length was asked for; a session's turn may end when it likes."""
    short = (*THREE, record("d", output_tokens=4))
    assert "1 of 4 answers" in raised(short)["early-stop"]
    assert "after 4" in raised(short)["early-stop"]
    assert "early-stop" not in raised(short, of=cell(workload="agentic"))


def test_cached_prompt_tokens_are_a_cache_hit() -> None:
    """More than the common header of a chat template; a session's own history may be cached."""
    cached = [replace(one, cached_tokens=60) for one in THREE]
    assert "60%" in raised(cached)["cache-hit"]
    assert raised([replace(one, cached_tokens=8) for one in THREE]) == {}
    assert "cache-hit" not in raised(cached, of=cell(workload="agentic"))


@pytest.mark.parametrize("name", ANSWERS["loops"])
def test_real_loops_are_degenerate(name: str) -> None:
    """Answers of a small model that got stuck."""
    assert "degenerate" in raised([saying(ANSWERS["loops"][name], p) for p in "abc"])


@pytest.mark.parametrize("name", ANSWERS["varied"])
def test_real_tables_code_lists_and_verse_are_not(name: str) -> None:
    """Much alike from line to line, and still no passage repeats to the end."""
    assert loop_length(ANSWERS["varied"][name]) == 0


def test_one_looping_answer_of_many_does_not_condemn_a_cell() -> None:
    """The share is of the cell's output: it takes more than a fifth of all characters."""
    varied = [saying(text, name) for name, text in ANSWERS["varied"].items()]
    assert "degenerate" not in raised([*varied, saying(ANSWERS["loops"]["repeat"])])


@given(
    start=st.text(max_size=200),
    passage=st.text(min_size=1, max_size=60),
    repeats=st.integers(3, 30),
    cut=st.integers(0, 59),
)
def test_a_loop_is_found_wherever_it_begins_and_is_cut(
    start: str, passage: str, repeats: int, cut: int
) -> None:
    """Any passage three times or more at the end counts, with what of it was cut off."""
    loop = passage * repeats + passage[: cut % len(passage)]
    found = loop_length(start + loop)
    assert found <= len(start + loop)
    if len(loop) >= 48:
        assert found >= len(loop)
    assert loop_length(start + loop + "\x00\x01\x02") == 0


def test_a_long_loop_is_all_of_it() -> None:
    """A megabyte of one word loops throughout, and what went before it does not."""
    assert loop_length("Roma, " * 170_000) == 6 * 170_000
    assert loop_length("All roads lead to: " + "Roma, " * 10_000) == 6 * 10_000 + 1


@pytest.mark.parametrize(
    ("health", "word"),
    [
        (LoadHealth(cpu_share=0.95), "95% of a core"),
        (LoadHealth(cpu_share=0.1, loop_lag_p99_s=0.03), "30.0 ms"),
        (LoadHealth(cpu_share=0.1, late_sends=2), "2 of 3 sends"),
    ],
)
def test_a_busy_client_is_named(health: LoadHealth, word: str) -> None:
    """CPU, loop lag and late sends each say what was measured and what is allowed."""
    assert word in raised(health=health)["client-bound"]
    assert "limit" in raised(health=health)["client-bound"]


def test_a_lag_far_below_the_gap_between_chunks_is_forgiven() -> None:
    """8 ms of lag does not matter where chunks are 100 ms apart."""
    assert raised(health=LoadHealth(cpu_share=0.1, loop_lag_p99_s=0.008)) == {}


def test_where_the_kernel_takes_the_times_only_waiting_streams_matter() -> None:
    """A lag changes no time then: in closed loop 1 % of an answer may pass before the next request."""
    napping = LoadHealth(cpu_share=0.1, loop_lag_p99_s=0.013, kernel_times=True)  # answers take 1.4 s
    assert raised(health=napping) == {}
    assert "limit 10.0 ms" in raised(health=replace(napping, kernel_times=False))["client-bound"]
    slow = replace(napping, loop_lag_p99_s=0.03)
    assert "limit 14.0 ms" in raised(health=slow)["client-bound"]


def test_in_open_loop_it_is_late_sends_that_matter() -> None:
    """There nothing waits for an answer; times that the client takes itself are distorted all the same."""
    rate = cell(workload="concurrency", rate=2.0)
    slow = LoadHealth(cpu_share=0.1, loop_lag_p99_s=0.03, kernel_times=True)
    assert raised(health=slow, of=rate) == {}
    assert "sends were late" in raised(health=replace(slow, late_sends=2), of=rate)["client-bound"]
    assert "lagged" in raised(health=replace(slow, kernel_times=False), of=rate)["client-bound"]


@pytest.mark.parametrize(("cpus", "limit"), [(1, 0.1), (2, 0.2), (8, 0.8), (16, 1.0), (192, 1.0)])
def test_foreign_load_is_named_in_cores(cpus: int, limit: float) -> None:
    """More than a tenth of the CPUs or than one core; unknown is no reason."""
    said = raised(foreign_cpu=limit + 0.05, cpus=cpus)["foreign-load"]
    assert f"{limit + 0.05:.2f} of {cpus} cores" in said
    assert f"(limit {limit})" in said
    assert raised(foreign_cpu=limit - 0.05, cpus=cpus) == {}
    assert raised(foreign_cpu=None, cpus=cpus) == {}


def test_a_server_that_runs_fewer_is_capped() -> None:
    """By its own word, by too little in flight, or by answers that wait in its queue."""
    four = cell(workload="concurrency", concurrency=4)
    assert raised(several(4), of=four) == {}
    assert "at most 2" in raised(several(4), of=four, facts={"max_running_requests": 2})["capped"]
    assert "on average of 4" in raised(several(4, start_s=1.4), of=four)["capped"]
    queued = [served_alone(turn) for turn in range(12)]
    assert "never more than 1 answers" in raised(queued, of=four)["capped"]
    assert "capped" not in raised(several(4, start_s=1.4), of=replace(four, rate=2.0))


def test_synthetic_acceptance_is_always_named() -> None:
    """Whatever else is known."""
    assert "what-if" in raised(synthetic=True)["synthetic"]


def test_speculation_that_never_drafted_is_named() -> None:
    """By the server's word or by its counters, and only where it was asked for."""
    nothing = Speculation(source="counters", drafted=0)
    assert "counters" in raised(speculation=nothing, speculative=True)["no-draft"]
    assert "off" in raised(facts={"speculation": False}, speculative=True)["no-draft"]
    assert raised(speculation=nothing, facts={"speculation": False}) == {}
    assert raised(speculation=Speculation(source="counters"), speculative=True) == {}


def test_few_prompts_are_few_samples_however_often_repeated() -> None:
    """Three different prompts at least; nothing at all is flagged and not a crash."""
    assert (
        "1 different prompt was answered" in raised([record(request=str(i)) for i in range(9)])["few-samples"]
    )
    assert "0 different prompts were answered" in raised([])["few-samples"]
