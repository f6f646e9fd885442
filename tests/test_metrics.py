"""Numbers of requests and cells, from records with known times."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from draftmark.metrics import METRICS, REQUEST_METRICS, measure, of_request
from draftmark.schema import Chunk, Chunks, FlagKind, RequestRecord, Speculation
from made_records import cell, chunks, loaded, record

gaps = st.lists(st.floats(1e-4, 1.0), min_size=2, max_size=30)


@st.composite
def a_record(draw: st.DrawFn) -> RequestRecord:
    """One chunk per token at any times, from any start."""
    times, t = [], 0.0
    for gap in draw(gaps):
        times.append(t := t + gap)
    accepted = draw(st.integers(0, 50))
    return record(
        prompt=f"p{draw(st.integers(0, 5))}",
        start_s=draw(st.floats(0, 5)),
        chunks=chunks(times),
        output_tokens=len(times),
        speculation=Speculation(source="test", tokens=accepted + 20, steps=20, accepted=accepted),
    )


def stretched(made: RequestRecord, factor: float) -> RequestRecord:
    slower = Chunks(replace(chunk, t_s=chunk.t_s * factor) for chunk in made.chunks)
    return replace(made, start_s=made.start_s * factor, chunks=slower)


def test_one_request_is_measured_as_defined() -> None:
    """TTFT, TPOT, rate and step follow from the arrival times and the server's token count alone."""
    made = record(speculation=Speculation(source="timings", tokens=9, steps=3, accepted=6))
    assert of_request(made) == pytest.approx(
        {
            "ttft_s": 0.5,
            "ttfo_s": 0.5,
            "e2e_s": 1.4,
            "n": 10,
            "n_first": 1,
            "tpot_s": 0.1,
            "decode_tok_s": 10,
            "tau": 3,
            "step_s": 0.3,
        }
    )


def test_reasoning_counts_for_the_first_token_and_not_for_the_first_output() -> None:
    """TTFT is the first token of any sort; TTFO waits for text that is not reasoning."""
    thought = Chunk(t_s=0.2, reasoning="hm")
    found = of_request(record(chunks=(thought, *chunks([0.7, 0.9])), output_tokens=3))
    assert (found["ttft_s"], found["ttfo_s"]) == (0.2, 0.7)
    assert "ttfo_s" not in of_request(record(chunks=(thought,), output_tokens=1))


def test_a_first_chunk_of_several_tokens_leaves_the_rate_true() -> None:
    """The tokens that came with the first chunk took no decode time and are not divided by."""
    whole = (Chunk(t_s=0.5, text="abcd", tokens=4), Chunk(t_s=1.1, text="efghij", tokens=6))
    assert of_request(record(chunks=whole))["tpot_s"] == pytest.approx(0.1)


@pytest.mark.parametrize(
    "made",
    [
        record(output_tokens=1),
        record(output_tokens=None),
        record(chunks=chunks([0.5])),
        record(chunks=chunks([0.5], tokens=10)),
        record(chunks=chunks([0.5, 0.5])),
    ],
    ids=["one token", "no count", "one chunk", "all in the first", "no time passed"],
)
def test_an_undefined_rate_is_absent(made: RequestRecord) -> None:
    """Without tokens after the first chunk, a count, or any time, there is no TPOT: not 0, not infinite."""
    assert not {"tpot_s", "decode_tok_s", "step_s"} & of_request(made).keys()
    assert not {"mean_tpot_ms", "decode_tok_s", "step_ms"} & measure(cell(), loaded(made), None).keys()


def test_a_request_without_tokens_has_no_numbers() -> None:
    """Nothing arrived, or only chunks that the engine says are empty: nothing is reported."""
    assert of_request(record(chunks=())) == {}
    assert of_request(record(chunks=chunks([0.1], tokens=0))) == {}


def test_open_loop_counts_from_the_planned_time() -> None:
    """A request that was sent late waited for the client too; its rate is what it was."""
    late, prompt = of_request(record(sent_late_s=0.25)), of_request(record())
    assert late["ttft_s"] == prompt["ttft_s"] + 0.25
    assert late["e2e_s"] == pytest.approx(prompt["e2e_s"] + 0.25)
    assert late["tpot_s"] == prompt["tpot_s"]


@given(made=a_record(), sizes=st.lists(st.integers(1, 5), min_size=30, max_size=30))
def test_how_tokens_are_gathered_into_later_chunks_does_not_change_the_rate(
    made: RequestRecord, sizes: Sequence[int]
) -> None:
    """Joining neighbouring chunks after the first, arriving with their last, leaves TPOT as it was."""
    first, rest = made.chunks[0], list(made.chunks[1:])
    joined = [first]
    for size in sizes:
        group, rest = rest[:size], rest[size:]
        if group:
            joined.append(Chunk(t_s=group[-1].t_s, text="x" * len(group)))
    assert of_request(replace(made, chunks=Chunks(joined)))["tpot_s"] == of_request(made)["tpot_s"]


@given(size=st.integers(1, 8), steps=st.integers(2, 20), told=st.booleans())
def test_an_even_stream_has_the_same_rate_whatever_its_chunks_hold(size: int, steps: int, told: bool) -> None:
    """``size`` tokens every ``size`` × 10 ms are 100 tokens/s if the engine says how many the first holds."""
    times = [0.3 + 0.01 * size * i for i in range(steps)]
    tokens = size if told or size > 1 else None
    made = record(chunks=chunks(times, tokens=tokens), output_tokens=size * steps)
    assert of_request(made)["decode_tok_s"] == pytest.approx(100)


@given(made=st.lists(a_record(), min_size=1, max_size=8), seed=st.integers())
def test_the_order_of_records_changes_nothing(made: list[RequestRecord], seed: int) -> None:
    """A cell's numbers are the same to the last bit in whatever order the records were kept."""
    shuffled = random.Random(seed).sample(made, len(made))
    two = cell(concurrency=2)
    assert measure(two, loaded(*made), None) == measure(two, loaded(*shuffled), None)


@given(made=st.lists(a_record(), min_size=1, max_size=6), power=st.integers(-3, 3))
def test_a_slower_clock_scales_times_and_rates(made: list[RequestRecord], power: int) -> None:
    """All times doubled: latencies double, rates halve, counts and ratios stay."""
    factor = 2.0**power
    before = measure(cell(), loaded(*made), None)
    after = measure(cell(), loaded(*(stretched(each, factor) for each in made)), None)
    scale = {"s": factor, "ms": factor, "tok/s": 1 / factor, "req/s": 1 / factor}
    assert after.keys() == before.keys()
    for key, value in before.items():
        assert after[key] == pytest.approx(value * scale.get(METRICS[key].unit, 1), rel=1e-9, abs=1e-12)


@given(made=st.lists(a_record(), min_size=1, max_size=6))
def test_every_number_is_declared_and_every_percentile_is_between(made: list[RequestRecord]) -> None:
    """What is measured stands in the table of metrics; percentiles are in order."""
    found = measure(cell(), loaded(*made), None)
    assert found.keys() <= METRICS.keys()
    assert of_request(made[0]).keys() <= REQUEST_METRICS.keys()
    for name in ("ttft", "tpot", "e2el", "icl"):
        tails = [found[f"{p}_{name}_ms"] for p in ("median", "p90", "p95", "p99")]
        assert tails == sorted(tails)


def test_only_measured_requests_that_completed_count() -> None:
    """Warm-up and control are left out, failures are counted and not measured."""
    fast = record(chunks=chunks([0.1, 0.2]), output_tokens=2)
    others = (
        replace(fast, role="warmup"),
        replace(fast, role="control"),
        replace(fast, error="cut"),
        replace(fast, chunks=Chunks()),
    )
    found = measure(cell(), loaded(record(), *others), None)
    assert (found["completed"], found["failed"]) == (1, 2)
    assert {key: value for key, value in found.items() if key != "failed"} == {
        key: value for key, value in measure(cell(), loaded(record()), None).items() if key != "failed"
    }
    assert measure(cell(), loaded(*others), None) == {"completed": 0, "failed": 2}


def test_acceptance_is_pooled_over_steps() -> None:
    """Two tokens a step for 100 steps and ten for one step are 2.08 a step, not 6; the cell's own wins."""
    long = record("a", speculation=Speculation(source="t", tokens=200, steps=100, accepted=100))
    short = record("b", speculation=Speculation(source="t", tokens=10, steps=1, accepted=9))
    assert measure(cell(), loaded(long, short), None)["tau"] == pytest.approx(210 / 101)
    own = Speculation(source="counters", steps=10, accepted=25)
    found = measure(cell(), loaded(long, short), own)
    assert found["tau"] == pytest.approx(3.5)
    assert found["step_ms"] == pytest.approx(350)
    assert "tau" not in measure(cell(), loaded(long, record("c")), None)


def test_steady_throughput_leaves_out_ramp_and_drain() -> None:
    """Two streams at 10 tok/s each are 20 tok/s while both run, however long the last one runs alone."""
    steady = tuple(0.1 * i for i in range(1, 101))
    first = record("a", chunks=chunks(steady), output_tokens=100)
    second = record("b", chunks=chunks(steady), output_tokens=100, start_s=5.0)
    found = measure(cell(concurrency=2), loaded(first, second), None)
    assert found["steady_tok_s"] == pytest.approx(20, rel=0.03)
    assert found["output_throughput"] == pytest.approx(200 / 15)
    assert found["effective_concurrency"] == pytest.approx(20 / 15)


def test_steady_throughput_spreads_what_the_engine_did_not_place() -> None:
    """Chunks without counts hold equal parts of the usage, so speculation does not hide tokens."""
    steps = tuple(0.4 * i for i in range(1, 26))
    streams = [record(p, chunks=chunks(steps), output_tokens=1 + 24 * 4) for p in "ab"]
    assert measure(cell(concurrency=2), loaded(*streams), None)["steady_tok_s"] == pytest.approx(19.4)


def test_steady_throughput_is_absent_where_the_load_was_never_reached_or_is_open() -> None:
    """No window, no number."""
    assert "steady_tok_s" not in measure(cell(concurrency=2), loaded(record()), None)
    assert "steady_tok_s" not in measure(cell(rate=1.0), loaded(record()), None)
    assert "steady_tok_s" not in measure(cell(), loaded(record(output_tokens=None)), None)


def test_totals_need_every_count() -> None:
    """One request without usage makes the sum unknown, not smaller."""
    found = measure(cell(), loaded(record(), record(output_tokens=None, prompt_tokens=None)), None)
    assert not {"total_output_tokens", "total_input_tokens", "output_throughput"} & found.keys()
    assert found["request_throughput"] == pytest.approx(2 / 1.4)


def test_each_metric_can_be_shown() -> None:
    """Every declared number has a unit or none, a sentence, and a format that works."""
    for metric in (*METRICS.values(), *REQUEST_METRICS.values()):
        assert metric.definition.endswith(".")
        assert metric.show(0.5)
        assert metric.show(None) == "–"


def test_the_page_of_definitions_names_every_number_and_flag() -> None:
    """Nothing is shown that docs/metrics.md does not define."""
    page = (Path(__file__).parent.parent / "docs" / "metrics.md").read_text()
    families = "{mean,median,std,p90,p95,p99}_{ttft,ttfo,tpot,e2el,icl}_ms"
    assert f"`{families}`" in page
    own = [key for key in METRICS if key.partition("_")[0] not in families]
    assert own
    assert [name for name in (*own, *REQUEST_METRICS, *get_args(FlagKind)) if f"`{name}`" not in page] == []
