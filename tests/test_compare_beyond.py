"""What a comparison says beyond single cells: slices, axes, degrees, families, and the machine itself."""

from collections.abc import Sequence
from math import exp

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from draftmark.compare import compare, expected, together
from draftmark.schema import CampaignResult, Cell, Crossover, Flag, RequestRecord, Speculation
from draftmark.stats import Interval
from planted import Truth, answer, campaign, simulated
from trees import Arm, ar, code, context, level, tree

CODE = Cell(id="code-256", workload="prompts", max_tokens=256, requests=3, repetitions=3)


def three() -> list[RequestRecord]:
    return [answer(p, p, times=[0.5 + 0.1 * i for i in range(9)]) for p in ("a", "b", "c")]


def test_acceptance_is_told_by_prompt_kind() -> None:
    """Code and creative answers of the same cells apart, all tokens over all steps, flagged text left out."""
    fast = [
        replace(
            one,
            kind=kind,
            speculation=Speculation(source="timings", tokens=256, steps=steps),
            request=f"{kind}-{number}",
            prompt_id=f"{kind}-{number}",
        )
        for kind, steps in (("code", 64), ("creative", 200))
        for number, one in enumerate(three())
    ]
    (code, creative) = compare(campaign(CODE, {"ar": three(), "fast": fast})).acceptance
    assert (code.by, code.value, code.tau.n, code.steps) == ("kind", "code", 3, 192)
    assert (code.tau.value, code.tau.low) == (pytest.approx(4), pytest.approx(4))
    assert creative.tau.value == pytest.approx(1.28)
    stuck = (Flag(kind="degenerate", detail="x"),)
    assert not compare(campaign(CODE, {"ar": three(), "fast": fast}, flags=stuck)).acceptance


def test_acceptance_of_a_cell_stands_for_its_only_kind() -> None:
    """Where single requests do not tell there is a value without an interval, over as many prompts."""
    spoke = Speculation(source="counters", tokens=768, steps=256)
    one_kind = replace(CODE, prompts=("code",))
    (found,) = compare(campaign(one_kind, {"ar": three(), "fast": three()}, speculation=spoke)).acceptance
    assert (found.value, found.tau.value, found.tau.low, found.tau.n) == ("code", 3, None, 3)
    mixed = replace(CODE, prompts=("code", "json"))
    assert not compare(campaign(mixed, {"ar": three(), "fast": three()}, speculation=spoke)).acceptance


def test_acceptance_is_told_by_turn_and_by_depth() -> None:
    """A session's turns apart, and its depths by powers of two; contexts by their exact length."""
    turns = [
        replace(
            one,
            turn=number,
            prompt_tokens=1500 * (number + 1),
            speculation=Speculation(source="timings", tokens=256, steps=256 // (number + 1)),
        )
        for number, one in enumerate(three())
    ]
    found = compare(campaign(replace(CODE, workload="agentic"), {"ar": three(), "fast": turns})).acceptance
    by = {(one.by, one.value): one.tau.value for one in found}
    assert by["turn", 0] == pytest.approx(1)
    assert by["turn", 1] == pytest.approx(2)
    assert {value for kind, value in by if kind == "context"} == {1024, 2048, 4096}
    deep = replace(CODE, workload="context", length=30_000)
    told = [replace(one, speculation=Speculation(source="x", tokens=256, steps=128)) for one in three()]
    (one,) = compare(campaign(deep, {"ar": three(), "fast": told})).acceptance
    assert (one.by, one.value) == ("context", 30_000)


def test_positions_have_both_of_their_meanings() -> None:
    """Of all steps with a draft, and of those that accepted everything before."""
    spoke = Speculation(
        source="counters", tokens=900, steps=300, draft_steps=200, accepted_per_position=(150, 75, 0)
    )
    (found,) = compare(campaign(CODE, {"ar": three(), "fast": three()}, speculation=spoke)).positions
    assert found.accepted == (0.75, 0.375, 0)
    assert found.conditional == (0.75, 0.5, 0)
    assert found.steps == 200


LEVELS = [level(streams) for streams in (1, 2, 4, 8)]


def course(speeds: Sequence[float], **fields: object) -> Crossover:
    by_cell = dict(zip((cell.id for cell in LEVELS), speeds, strict=True))
    result = tree(LEVELS, [ar(), Arm("fast", by_cell, **fields)])  # type: ignore[arg-type]
    (found,) = compare(result).crossovers
    return found


def test_a_crossover_lies_between_two_measured_levels() -> None:
    """Faster up to 2, slower from 8, and 4 cannot tell: the last and the first that are known."""
    found = course((1.5, 1.3, 1.0, 0.7))
    assert (found.axis, found.course, found.between) == ("concurrency", "stops paying", (2, 8))
    assert (found.last_faster, found.first_slower) == (2, 8)
    assert [verdict for _, verdict in found.points] == ["faster", "faster", "cannot tell", "slower"]


@pytest.mark.parametrize(
    ("speeds", "expected"),
    [
        ((1.5, 1.4, 1.3, 1.2), "faster"),
        ((0.8, 0.8, 0.7, 0.7), "slower"),
        ((0.7, 0.8, 1.3, 1.4), "starts paying"),
        ((1.5, 0.7, 1.4, 0.7), "back and forth"),
        ((1.5, 1.4, 1.0, 1.0), "cannot tell"),
    ],
)
def test_the_course_says_no_more_than_the_points(speeds: Sequence[float], expected: str) -> None:
    """One side at every level is throughout; one side and doubt is not."""
    assert course(speeds).course == expected


def test_flagged_levels_are_left_out_of_a_crossover() -> None:
    """They are named, and do not make a turn."""
    found = course((1.5, 1.4, 1.3, 0.5), flags={"c8-256": "capped"})
    assert (found.course, found.left_out, found.cells[-1]) == ("faster", (8,), "c4-256")


def test_contexts_have_crossovers_of_their_own() -> None:
    """Lengths are one axis, arrival rates another; cells that differ in more than one thing do not mix."""
    short, long = context(3_000), context(30_000)
    other = replace(context(100_000), max_tokens=64)
    (found,) = compare(tree([short, long, other], [ar(), Arm("fast", 1.5)])).crossovers
    assert (found.axis, found.points) == ("context", ((3_000, "faster"), (30_000, "faster")))


def test_scaling_is_against_the_lowest_degree_and_per_gpu() -> None:
    """Four GPUs that are 2.5 times as fast give 0.625 times as much each; both methods are told."""
    cells = [code(), level(4)]
    arms = [ar(), Arm("fast", 1.5), ar(2.5, tp=4), Arm("fast", 3.0, tp=4)]
    found = {(one.method, one.tp, one.cell): one for one in compare(tree(cells, arms, spread=0.0)).scaling}
    assert len(found) == 8
    wide, narrow = found["ar", 4, "code-256"], found["ar", 1, "code-256"]
    assert (wide.over, narrow.ratio, narrow.per_gpu) == (1, None, None)
    assert wide.ratio is not None
    assert wide.ratio.low is not None
    assert wide.ratio.high is not None
    assert wide.ratio.low < 2.5 < wide.ratio.high
    assert wide.per_gpu == pytest.approx(0.625, rel=0.05)
    assert found["fast", 4, "c4-256"].metric == "steady_tok_s"


def test_one_degree_has_no_scaling() -> None:
    """There is nothing to compare it with."""
    assert not compare(tree([code()], [ar(), Arm("fast", 1.5)])).scaling


def family(budgets: Sequence[int], *, noise: float = 0.0) -> CampaignResult:
    """A method at several budgets: five tokens at most, and 3 % of a step for each drafted one."""
    arms = [ar()]
    for number, budget in enumerate(budgets):
        tau, cost = 1 + 4 * (1 - exp(-budget / 6)), 1.1 + 0.03 * budget
        tau *= 1 + noise * (-1) ** number
        params = {"budget": budget, "top_k": 4}
        arms.append(Arm(f"tree-b{budget}", tau / cost, tau=tau, params=params, kind="tree"))
    return tree([code()], arms, spread=0.0, jitter=0.0001)


def test_a_family_of_budgets_gives_the_speedup_of_one_that_was_not_measured() -> None:
    """Acceptance that saturates over cost that grows: found again to 1 %, and the best value to one."""
    (model,) = compare(family((4, 8, 16, 32))).models
    truth = {b: (1 + 4 * (1 - exp(-b / 6))) / (1.1 + 0.03 * b) for b in range(4, 33)}
    assert (model.parameter, model.kind, len(model.points)) == ("budget", "tree", 4)
    assert all(expected(model, b) == pytest.approx(speedup, rel=0.01) for b, speedup in truth.items())
    assert abs(model.best - max(truth, key=lambda b: truth[b])) <= 1
    assert model.error < 0.02


def test_a_model_says_nothing_of_what_lies_outside_its_points() -> None:
    """Neither below the lowest nor above the highest measured value."""
    (model,) = compare(family((4, 8, 16))).models
    assert expected(model, 3) is None
    assert expected(model, 17) is None
    assert expected(model, 16) is not None


def test_two_points_are_no_model() -> None:
    """With two unknowns in each curve nothing would be left to test it."""
    assert not compare(family((4, 16))).models


def test_a_model_tells_how_wrong_it_is() -> None:
    """Points that scatter by 10 % make its error show."""
    (model,) = compare(family((4, 8, 16, 32), noise=0.1)).models
    assert model.error > 0.05


def test_a_baseline_that_moved_puts_its_phase_in_doubt() -> None:
    """Measured again at the end and 10 % slower: every comparison of the phase is flagged and none ranked."""
    cells = [code(), code("json-256"), level(4)]
    again = ar(0.9, repeats="ar-tp1", absent=["json-256", "c4-256"])
    found = compare(tree(cells, [ar(), Arm("fast", 1.5), again]))
    (drift,) = found.drift
    assert (drift.service, drift.cell, drift.moved) == ("ar-tp1", "code-256", True)
    assert drift.ratio.value == pytest.approx(0.9, rel=0.03)
    flags = {one.cell: one.flags for one in found.speedups}
    assert flags == {"code-256": ("drift",), "json-256": ("drift",), "c4-256": ()}
    assert {one.service for one in found.speedups} == {"fast-tp1"}


def test_a_reading_from_before_a_method_says_nothing_of_it() -> None:
    """Only what was measured until the baseline was measured again is in doubt by it."""
    made = tree([code()], [ar(), Arm("fast", 1.5), Arm("late", 1.5), ar(0.9, repeats="ar-tp1")])
    late = tuple(
        replace(cell, started_at="2026-01-01T09:00:00Z") if cell.service == "late-tp1" else cell
        for cell in made.cells
    )
    flags = {one.method: one.flags for one in compare(replace(made, cells=late)).speedups}
    assert flags == {"fast": ("drift",), "late": ()}


def test_a_baseline_that_kept_still_only_adds_to_the_noise() -> None:
    """No flag; an effect within the drift is no verdict."""
    alone = compare(tree([code()], [ar(), Arm("fast", 1.02)], spread=0.0, jitter=0.001, repeated=False))
    assert alone.speedups[0].verdict == "faster"
    again = ar(1.025, repeats="ar-tp1")
    arms = [ar(), Arm("fast", 1.02), again]
    found = compare(tree([code()], arms, spread=0.0, jitter=0.001, repeated=False))
    assert (found.drift[0].moved, found.speedups[0].flags) == (False, ())
    assert found.speedups[0].verdict == "cannot tell"
    assert (found.speedups[0].noise or 0) > 0.02


@given(value=st.floats(0.5, 2), half=st.floats(0.001, 0.5), n=st.integers(2, 40))
def test_one_ratio_alone_stays_what_it_is(value: float, half: float, n: int) -> None:
    """Taken together with nothing it keeps its interval."""
    one = Interval(value, value * exp(-half), value * exp(half), n)
    found = together([one])
    assert found is not None
    assert (found.value, found.low, found.high) == pytest.approx((one.value, one.low, one.high))


def ratio_of(truth: Truth, seed: int) -> Interval:
    (found,) = compare(simulated(truth, seed, control=False)).speedups
    return Interval(found.ratio.value, found.ratio.low, found.ratio.high, found.ratio.n)


def test_ratios_of_several_cells_hold_the_truth_together() -> None:
    """The geometric mean of four cells' speedups lies in 95 of 100 intervals, as far as 150 can tell."""
    held = 0
    truth = [1.2, 0.9, 1.5, 1.1]
    for seed in range(150):
        ratios = [
            ratio_of(Truth(speedup=speed, prompts=3 + 2 * place), 10 * seed + place)
            for place, speed in enumerate(truth)
        ]
        found = together(ratios)
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        held += found.low <= (1.2 * 0.9 * 1.5 * 1.1) ** 0.25 <= found.high
    assert held / 150 >= 0.95 - 3 * (0.95 * 0.05 / 150) ** 0.5
