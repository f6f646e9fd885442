"""Rounds: one sequence of requests, cut where enough is known, counted as one load."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmark.campaign.rounds import in_rounds, merged
from draftmark.metrics import decode_half_width, measure
from draftmark.schema import Cell, Chunk, Chunks, LoadHealth, LoadResult, Request, RequestRecord, Work

HEALTH = LoadHealth(cpu_share=0.1)


def record(number: int, start_s: float, seconds: float, tokens: int = 11) -> RequestRecord:
    """A request that has its first token at once and the others over some seconds."""
    return RequestRecord(
        request=f"measured-{number}",
        prompt_id=f"code-{number}-s0",
        kind="code",
        role="measured",
        start_s=start_s,
        chunks=Chunks([Chunk(t_s=0.0, text="a", tokens=1), Chunk(t_s=seconds, text="b", tokens=tokens - 1)]),
        output_tokens=tokens,
        max_tokens=tokens,
    )


def load(*records: RequestRecord, duration_s: float = 10.0, health: LoadHealth = HEALTH) -> LoadResult:
    return LoadResult(records=records, duration_s=duration_s, health=health)


def part(*numbers: int) -> Work:
    return Work(
        requests=tuple(
            Request(id=f"measured-{n}", prompt_id=f"code-{n}-s0", kind="code", max_tokens=11) for n in numbers
        )
    )


def one_by_one(work: Work, ended: int) -> LoadResult:
    """A server that takes 1 s for each request; rounds know how many came before them."""
    numbers = [int(request.id.split("-")[1]) for request in work.requests]
    assert numbers[0] == ended
    return load(*(record(n, float(at), 1.0) for at, n in enumerate(numbers)), duration_s=float(len(numbers)))


@given(st.integers(1, 6), st.integers(1, 6))
def test_rounds_end_where_it_is_enough(count: int, needed: int) -> None:
    """No round is sent after the one that was enough, and together they are one gapless load."""
    parts = [part(2 * n, 2 * n + 1) for n in range(count)]
    found, used = in_rounds(parts, one_by_one, lambda load: len(load.records) >= 2 * needed)
    assert used == min(count, needed)
    assert [record.request for record in found.records] == [f"measured-{n}" for n in range(2 * used)]
    assert [record.start_s for record in found.records] == [float(n) for n in range(2 * used)]
    assert [record.round for record in found.records] == [n // 2 for n in range(2 * used)]
    assert found.duration_s == 2.0 * used


def test_the_worse_health_counts() -> None:
    """A client that was overworked in one round was so in the whole."""
    one = LoadHealth(cpu_share=0.9, loop_lag_p99_s=None, late_sends=2)
    two = LoadHealth(cpu_share=0.2, loop_lag_p99_s=0.004, late_sends=3, workers=2)
    both = LoadHealth(cpu_share=0.9, loop_lag_p99_s=0.004, late_sends=5, workers=2)
    assert merged(load(health=one), load(health=two)).health == both
    assert merged(load(health=two), load(health=one)).health == both


@given(st.lists(st.lists(st.floats(0, 9), min_size=1, max_size=3), min_size=3, max_size=3))
def test_merging_is_associative(starts: list[list[float]]) -> None:
    """Three rounds are the same load whichever two are put together first."""
    one, two, three = (
        load(*(record(10 * n + at, start, 1.0) for at, start in enumerate(own)))
        for n, own in enumerate(starts, 1)
    )
    left, right = merged(merged(one, two), three), merged(one, merged(two, three))
    assert left.duration_s == right.duration_s == 30
    for a, b in zip(left.records, right.records, strict=True):
        assert (a.request, a.round, a.start_s) == (b.request, b.round, pytest.approx(b.start_s))
    assert {found.round for found in left.records} == {0, 1, 2}


CELL = Cell(id="c2-11", workload="concurrency", max_tokens=11, requests=3, concurrency=2)


def test_drains_between_rounds_are_not_in_the_steady_rate() -> None:
    """Two equal rounds have the steady throughput of one, though one stream waits at the end of each."""
    whole = load(record(0, 0.0, 4.0), record(1, 0.0, 6.0), record(2, 4.0, 4.0), duration_s=8.0)
    once = measure(CELL, whole, None)
    twice = measure(CELL, merged(whole, whole), None)
    assert twice["steady_tok_s"] == pytest.approx(once["steady_tok_s"])
    assert twice["output_throughput"] == pytest.approx(once["output_throughput"])
    assert twice["duration"] == pytest.approx(2 * once["duration"])
    assert twice["completed"] == 6


def test_the_interval_is_over_prompts() -> None:
    """More prompts narrow it, the same prompts again do not, and one prompt has none."""
    few = [record(n, 0.0, 1.0 + n % 3 / 10) for n in range(3)]
    many = [record(n, 0.0, 1.0 + n % 3 / 10) for n in range(30)]
    width, narrow = decode_half_width(few), decode_half_width(many)
    assert width is not None
    assert narrow is not None
    assert narrow < 0.05 < width
    assert decode_half_width(few * 10) == pytest.approx(width)
    assert decode_half_width(few[:1] * 9) is None
    assert measure(CELL, load(*few), None)["decode_half_width"] == width
