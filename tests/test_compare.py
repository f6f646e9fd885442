"""Comparisons of campaigns whose truth is planted."""

import dataclasses
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from draftmark.compare import compare
from draftmark.schema import (
    CampaignResult,
    Cell,
    Chunk,
    Chunks,
    Flag,
    Lossless,
    Matrix,
    RequestRecord,
    Speculation,
    Speedup,
    WorkloadKind,
)
from planted import Truth, answer, campaign, service, simulated

CODE = Cell(id="code-256", workload="prompts", max_tokens=256, requests=3, repetitions=3, control=True)
TIMES = [0.5 + 0.1 * i for i in range(9)]


def only(result: CampaignResult) -> Speedup:
    (found,) = compare(result).speedups
    return found


def outputs(base: Sequence[RequestRecord], other: Sequence[RequestRecord], cell: Cell = CODE) -> Lossless:
    (found,) = compare(campaign(cell, {"ar": base, "fast": other})).lossless
    return found


def three(*, rate: float = 1.0, role: str = "measured") -> list[RequestRecord]:
    times = [0.5 + 0.1 * i / rate for i in range(9)]
    return [answer(p, f"{role}-{p}", times=times, role=role) for p in ("a", "b", "c")]


def said(
    prompt: str, *pieces: str, margins: Sequence[float] = (), ids: Sequence[int] = (), **fields: object
) -> RequestRecord:
    """One token in each piece."""
    tokens = Chunks(
        Chunk(
            t_s=0.5 + 0.1 * i,
            text=piece,
            ids=tuple(ids[i : i + 1]),
            margins=tuple(margins[i : i + 1]),
        )
        for i, piece in enumerate(pieces)
    )
    return answer(prompt, times=(), chunks=tokens, output_tokens=len(pieces), **fields)


def coverage(truth: Truth, simulations: int) -> float:
    """How often the interval held the planted ratio."""
    held = 0
    for seed in range(simulations):
        ratio = only(simulated(truth, seed)).ratio
        assert ratio.low is not None
        assert ratio.high is not None
        held += ratio.low <= truth.ratio <= ratio.high
    return held / simulations


def verdicts(truth: Truth, simulations: int) -> Counter[str]:
    return Counter(only(simulated(truth, seed)).verdict for seed in range(simulations))


TRUTHS = {
    "three prompts": Truth(prompts=3),
    "five prompts": Truth(prompts=5),
    "eight prompts": Truth(prompts=8),
    "drift": Truth(drift=0.3),
    "a wandering server": Truth(shocks=0.02),
    "two streams": Truth(prompts=16, concurrency=2, by_prompt=0.1),
    "four streams": Truth(prompts=16, concurrency=4, by_prompt=0.1),
    "a trace on four streams": Truth(prompts=32, concurrency=4, shocks=0.01, workload="trace"),
}


@pytest.mark.parametrize("name", TRUTHS)
def test_the_interval_holds_the_planted_speedup(name: str) -> None:
    """93 to 97 in 100, as far as 120 campaigns can tell."""
    assert coverage(TRUTHS[name], 120) >= 0.95 - 3 * (0.95 * 0.05 / 120) ** 0.5


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", TRUTHS)
def test_the_interval_holds_the_planted_speedup_at_length(name: str) -> None:
    """93 to 97 in 100 of 2,000 campaigns, of which each can be 1 off by chance."""
    assert 0.93 - 0.01 <= coverage(TRUTHS[name], 2_000) <= 0.97 + 0.01


@pytest.mark.slow
def test_outliers_make_an_interval_wide_and_not_wrong() -> None:
    """With one request in twenty half as long again, the truth is outside in fewer than 5 of 100."""
    assert coverage(Truth(outliers=0.05), 1_000) >= 0.95


def test_a_clear_effect_is_called_by_its_name() -> None:
    """30 % faster or slower on five prompts is told in 95 of 100 campaigns, and never the wrong way."""
    for speedup, right, wrong in ((1.3, "faster", "slower"), (1 / 1.3, "slower", "faster")):
        found = verdicts(Truth(speedup=speedup), 100)
        assert found[right] >= 95
        assert found[wrong] == 0


def test_no_effect_is_seldom_called_one() -> None:
    """Two equal services are told apart in fewer than 5 of 100 campaigns, alone or under load."""
    for equal in (
        Truth(speedup=1, by_prompt=0.02),
        Truth(speedup=1, by_prompt=0.02, prompts=16, concurrency=4),
    ):
        found = verdicts(equal, 150)
        assert found["faster"] + found["slower"] <= 0.05 * 150 + 3 * (0.05 * 150) ** 0.5


@given(speedup=st.floats(0.2, 5), seed=st.integers(0, 1000), concurrency=st.sampled_from([1, 4]))
@settings(max_examples=25)
def test_one_repetition_of_one_prompt_never_gives_a_verdict(
    speedup: float, seed: int, concurrency: int
) -> None:
    """However large the effect: there is no interval."""
    found = only(simulated(Truth(speedup=speedup, prompts=concurrency, concurrency=concurrency), seed))
    assert (found.ratio.low, found.verdict) == (None, "cannot tell")


def test_an_effect_within_the_baselines_own_noise_is_no_verdict() -> None:
    """5 % on every prompt is certain, until the baseline repeats itself 8 % away."""
    alone = only(campaign(CODE, {"ar": three(), "fast": three(rate=1.05)}))
    assert (alone.verdict, alone.noise) == ("faster", None)
    shifted = [*three(), *three(rate=1.08, role="control")]
    noisy = only(campaign(CODE, {"ar": shifted, "fast": three(rate=1.05)}))
    assert noisy.verdict == "cannot tell"
    assert noisy.noise == pytest.approx(0.08)
    assert only(campaign(CODE, {"ar": shifted, "fast": three(rate=1.2)})).verdict == "faster"


def test_pairs_are_made_by_prompt_not_by_order() -> None:
    """Prompts that differ fivefold, sent in another order, leave no doubt about the ratio."""
    slow = [
        answer(p, times=[0.5 + k * i for i in range(9)]) for p, k in zip("abc", (0.1, 0.3, 0.5), strict=True)
    ]
    fast = [
        answer(p, times=[0.2 + k / 1.5 * i for i in range(9)], start_s=9 - s)
        for s, (p, k) in enumerate(zip("abc", (0.1, 0.3, 0.5), strict=True))
    ]
    ratio = only(campaign(CODE, {"ar": slow, "fast": fast})).ratio
    assert (ratio.value, ratio.low, ratio.high, ratio.n) == pytest.approx((1.5, 1.5, 1.5, 3))


def test_a_request_that_failed_on_one_side_is_left_out_on_both() -> None:
    """A slow failure does not enter the ratio."""
    broken = replace(answer("d", times=[5.0, 50.0]), error="cut")
    found = only(
        campaign(CODE, {"ar": [*three(), answer("d", times=TIMES)], "fast": [*three(rate=2), broken]})
    )
    assert (found.ratio.value, found.ratio.n) == (pytest.approx(2), 3)


def test_without_records_a_ratio_stands_alone() -> None:
    """The cells' own numbers give a ratio, without an interval, noise or verdict."""
    found = only(campaign(CODE, {"ar": three(), "fast": three(rate=2)}, keep_records=False))
    assert found.ratio.value == pytest.approx(2)
    assert (found.ratio.low, found.noise, found.verdict) == (None, None, "cannot tell")


def test_the_speedup_is_acceptance_times_step_cost() -> None:
    """Three tokens a step and steps that take twice as long are 1.5 times as fast."""
    spoke = Speculation(source="counters", tokens=765, steps=255, accepted=510, drafted=900)
    found = only(campaign(CODE, {"ar": three(), "fast": three(rate=1.5)}, speculation=spoke))
    assert found.tau == pytest.approx(3)
    assert found.step_ratio == pytest.approx(0.5)
    assert found.ratio.value == pytest.approx((found.tau or 0) * (found.step_ratio or 0))


@pytest.mark.parametrize(
    ("rates", "doubted"),
    [
        ((1.3, 1.31, 1.32), True),
        ((1.0, 1.3, 1.6), False),
        ((0.9, 0.91, 0.92), False),
        ((1.1, 1.11, 1.1), False),
    ],
)
def test_more_speed_than_acceptance_explains_is_implausible(rates: Sequence[float], doubted: bool) -> None:
    """Of 1.1 tokens a step no more than 1.1 times the rate can come, as far as the interval can tell."""
    spoke = Speculation(source="counters", tokens=765, steps=695, accepted=70, drafted=900)
    fast = [answer(p, times=[t / rate for t in TIMES]) for p, rate in zip("abc", rates, strict=True)]
    found = only(campaign(CODE, {"ar": three(), "fast": fast}, speculation=spoke))
    assert ("implausible" in found.flags) == doubted
    opened = replace(CODE, workload="concurrency", rate=2.0)
    assert only(campaign(opened, {"ar": three(), "fast": fast}, speculation=spoke)).flags == ()


def test_what_a_cell_is_compared_by_follows_its_load() -> None:
    """One stream: its decode rate. Several: what they get together. Open loop: decode rate again."""
    streams = simulated(Truth(prompts=16, concurrency=4), 1)
    assert only(streams).metric == "steady_tok_s"
    steady = {one.service: one.metrics["steady_tok_s"] for one in streams.cells}
    assert only(streams).ratio.value == pytest.approx(steady["fast"] / steady["ar"], rel=0.02)
    opened = replace(CODE, workload="concurrency", rate=2.0)
    assert only(campaign(opened, {"ar": three(), "fast": three(rate=2)})).metric == "decode_tok_s"


@pytest.mark.parametrize("workload", ["concurrency", "trace", "context"])
def test_requests_that_ran_together_are_one_unit(workload: WorkloadKind) -> None:
    """What disturbs the server disturbs all streams, whatever they were sent; long sessions stand alone."""
    truth = Truth(prompts=16, concurrency=4, workload=workload)
    assert only(simulated(truth, 1)).ratio.n == 4
    assert only(simulated(dataclasses.replace(truth, workload="agentic"), 1)).ratio.n == 16


def test_flags_of_either_side_come_along() -> None:
    """Once each, whoever raised them."""
    doubt = (Flag(kind="synthetic", detail="x"), Flag(kind="synthetic", detail="y"))
    assert only(campaign(CODE, {"ar": three(), "fast": three()}, flags=doubt)).flags == ("synthetic",)


def test_what_cannot_be_compared_is_noted() -> None:
    """A failed cell, a missing rate and a missing baseline each say so, and give no number."""
    whole = campaign(CODE, {"ar": three(), "fast": three()})
    failed = replace(whole, cells=(whole.cells[0], replace(whole.cells[1], status="failed")))
    assert compare(failed).speedups == ()
    assert compare(failed).notes == ("fast/code-256: not compared, fast has no result for this cell",)
    uncounted = [replace(record, output_tokens=None) for record in three()]
    blind = compare(campaign(CODE, {"ar": three(), "fast": uncounted}))
    assert blind.speedups == ()
    assert "decode_tok_s is missing" in blind.notes[0]
    elsewhere = service("fast", "ngram", [CODE], tp=2)
    apart = replace(
        whole, matrix=Matrix(plan=whole.matrix.plan, services=(whole.matrix.services[0], elsewhere))
    )
    assert compare(apart).notes == ("fast: no baseline runs on local with TP 2",)
    lonely = campaign(CODE, {"fast": three()})
    assert (compare(lonely).baseline, compare(lonely).speedups) == (None, ())


def test_comparing_twice_gives_the_same() -> None:
    """Nothing is drawn at random, and the order of records does not matter."""
    result = simulated(Truth(prompts=16, concurrency=4), 3)
    turned = replace(result, records={key: kept[::-1] for key, kept in result.records.items()})
    assert compare(result) == compare(result) == compare(turned)


def test_the_same_words_are_identical() -> None:
    """However they were cut into chunks."""
    one = [said("a", "To", "day", " is", " fine")]
    assert outputs(one, [said("a", "Today", " is fine")]).verdict == "identical"


def test_a_difference_is_shown_where_it_begins() -> None:
    """The position, and what each side said from there; an early end differs at its end."""
    found = outputs([said("a", "To", "day", " it rains")], [said("a", "To", "day", " it is fine")])
    assert found.first == ("a", 9, "rains", "is fine")
    assert (found.compared, found.differing, found.unit) == (1, 1, "character")
    assert outputs([said("a", "Yes", ".")], [said("a", "Yes")]).first == ("a", 3, ".", "")


def test_differences_without_margins_are_not_called_faults() -> None:
    """Rounding cannot be told from a fault, even where the baseline repeats itself to the bit."""
    base = [said("a", "x", "y"), said("a", "x", "y", role="control")]
    found = outputs(base, [said("a", "x", "z")])
    assert (found.verdict, found.near_ties) == ("not checked", None)
    assert (found.control_compared, found.control_differing) == (1, 0)


@pytest.mark.parametrize(
    ("margins", "verdict", "near"),
    [((2.0, 0.03), "near-ties only", 1), ((0.03, 2.0), "diverges", 0), ((2.0,), "not checked", None)],
)
def test_margins_tell_near_ties_from_faults(margins: Sequence[float], verdict: str, near: int | None) -> None:
    """The baseline's margin at the place where the outputs part decides."""
    found = outputs([said("a", "x", "y", margins=margins)], [said("a", "x", "z")])
    assert (found.verdict, found.near_ties) == (verdict, near)


@pytest.mark.parametrize(
    ("base", "margins", "other", "verdict"),
    [
        ((" of", " S", "ower"), (5, 0.0, 2), (" of", " Sw", "arm"), "near-ties only"),
        ((" of", " S", "ower"), (5, 3, 2), (" of", " Sw", "arm"), "diverges"),
        ((" of", " S", "ower"), (0.0, 3, 2), (" of", " Sw", "arm"), "diverges"),
        ((" of", " S", "ower"), (5, 0.0, 2), (" of", " S", "lower"), "diverges"),
        ((" of", " S", "ower"), (5, 0.0, 2), (" of Sw", "arm"), "near-ties only"),
        ((" of", " S", "ower"), (0.0, 3, 2), (" of Sw", "arm"), "diverges"),
        (("a", "\n", "b"), (5, 0.0, 2), ("a", "\n\n", "b"), "near-ties only"),
    ],
)
def test_a_choice_is_judged_where_its_token_begins(
    base: Sequence[str], margins: Sequence[float], other: Sequence[str], verdict: str
) -> None:
    """Tokens that begin alike part inside; the choice was made where they or their word begin."""
    assert outputs([said("a", *base, margins=margins)], [said("a", *other)]).verdict == verdict


def test_one_token_of_a_chunk_is_judged_by_its_own_margin() -> None:
    """With ids the place inside a chunk is known; without, a chunk of both kinds decides nothing."""
    both = Chunk(t_s=0.5, text="a b c", ids=(1, 2, 3), margins=(0.01, 5.0, 4.0))
    base = answer("a", times=(), chunks=Chunks([both]))
    other = answer("a", times=(), chunks=Chunks([replace(both, text="a x c", ids=(1, 9, 3), margins=())]))
    assert outputs([base], [other]).verdict == "diverges"
    texts = [replace(one, chunks=Chunks(replace(c, ids=()) for c in one.chunks)) for one in (base, other)]
    assert outputs(texts[:1], texts[1:]).verdict == "not checked"


def test_margins_of_the_repetition_serve_as_well() -> None:
    """They may be asked for in the control only, so that they cannot slow what is measured."""
    control = said("a", "x", "y", margins=(3.0, 0.01), role="control")
    assert outputs([said("a", "x", "y"), control], [said("a", "x", "z")]).verdict == "near-ties only"
    parted = said("a", "w", "y", margins=(3.0, 0.01), role="control")
    assert outputs([said("a", "x", "y"), parted], [said("a", "x", "z")]).verdict == "not checked"


def test_one_wide_margin_among_near_ties_is_a_divergence() -> None:
    """A fault in one answer is not excused by rounding in the others."""
    base = [said(p, "x", "y", margins=(1.0, m)) for p, m in (("a", 0.01), ("b", 1.5))]
    found = outputs(base, [said("a", "x", "z"), said("b", "x", "z")])
    assert (found.verdict, found.near_ties, found.differing) == ("diverges", 1, 2)


def test_the_gravest_difference_comes_first() -> None:
    """The widest margin, then what is not known, then near-ties; each with its prompt and place."""
    base = [said(p, "x", "y", margins=m) for p, m in (("a", (1.0, 0.01)), ("b", ()), ("c", (1.0, 1.5)))]
    found = outputs(base, [said(p, "x", "z") for p in "abc"])
    assert [(p.prompt, p.margin) for p in found.partings] == [("c", 1.5), ("b", None), ("a", 0.01)]
    assert found.first == ("c", 1, "y", "z")
    assert found.near_ties is None


def test_token_ids_are_compared_where_both_sides_have_them() -> None:
    """Two tokens that look the same are different; positions are counted in tokens."""
    found = outputs([said("a", "x", "y", "z", ids=(1, 2, 3))], [said("a", "x", "y", "z", ids=(1, 2, 4))])
    assert (found.unit, found.differing) == ("token", 1)
    assert found.first is not None
    assert found.first[1] == 2
    assert outputs([said("a", "x", ids=(1,))], [said("a", "x")]).unit == "character"


def test_turns_after_a_different_answer_are_not_compared() -> None:
    """They were asked something else: the history differs."""
    turns = [said("s", word, request=f"t{i}", turn=i, start_s=float(i)) for i, word in enumerate("abcd")]
    other = [*turns[:1], said("s", "B", request="t1", turn=1, start_s=1.0), *turns[2:]]
    found = outputs(turns, other, replace(CODE, workload="agentic"))
    assert (found.compared, found.differing) == (2, 1)


def test_sampled_outputs_are_not_checked() -> None:
    """At a temperature above 0 different answers are right."""
    found = outputs([said("a", "x")], [said("a", "y")], replace(CODE, temperature=0.7))
    assert (found.verdict, found.compared, found.first) == ("not checked", 0, None)
