"""Recommendations from campaigns whose best configuration is planted."""

from msgspec.structs import replace

from draftmark.compare import compare
from draftmark.recommend import Recommendation, lines, recommend
from draftmark.schema import CampaignResult, Lossless, Slo
from trees import Arm, ar, code, context, level, tree

CELLS = (code(), code("json-256"), level(4))


def advised(result: CampaignResult) -> Recommendation:
    return recommend(result, compare(result))


def test_the_fastest_is_recommended_with_its_speedup_and_why() -> None:
    """1.5 against 1.2 times the baseline on five prompts is decided, and the paragraph says by what."""
    found = advised(tree(CELLS, [ar(), Arm("fast", 1.5, tau=3.0), Arm("slow", 1.2)]))
    best = found.overall
    assert (best.service, best.decided, best.tied, best.judged) == ("fast-tp1", True, (), 3)
    assert best.over_baseline is not None
    assert best.over_baseline.low is not None
    assert best.over_baseline.high is not None
    assert best.over_baseline.low < 1.5 < best.over_baseline.high
    assert found.text.startswith("Deploy fast-tp1.")
    assert "commits 3.00 tokens" in found.text
    assert "slow-tp1 is nearest" in found.text


def test_the_baseline_is_a_candidate() -> None:
    """Where every method is slower the advice is not to speculate."""
    found = advised(tree(CELLS, [ar(), Arm("bad", 0.8)]))
    assert (found.overall.service, found.overall.decided) == ("ar-tp1", True)
    assert found.overall.over_baseline is None
    assert "The baseline" in found.text


def test_what_intervals_cannot_tell_apart_is_undecided_and_says_what_would_decide() -> None:
    """5 % apart with a spread of 6 %: a tie, and a number of requests that is enough when it is measured."""
    near = [ar(0.6), Arm("one", 1.05), Arm("two", 1.0)]
    found = advised(tree([code()], near, spread=0.04, jitter=0.02))
    assert found.overall.tied
    assert not found.overall.decided
    assert found.text.startswith("Undecided; ")
    times = found.overall.times_more
    assert times is not None
    assert f"about {times} times as many requests per cell" in found.text
    enough = advised(tree([code()], near, spread=0.04, jitter=0.02, requests=5 * 4 * times))
    assert enough.overall.decided


def test_what_is_as_good_is_no_doubt() -> None:
    """Two methods within 3 % beyond doubt: either may be deployed, and the text names the other."""
    found = advised(tree(CELLS, [ar(), Arm("one", 1.5), Arm("two", 1.49)], spread=0.001, jitter=0.001))
    assert (found.overall.service, found.overall.decided) == ("one-tp1", True)
    assert found.overall.equal == ("two-tp1",)
    assert "As good within 3 %: two-tp1" in found.text


def test_a_gain_of_nothing_is_said_to_be_one() -> None:
    """A method that leads by 1 % is no reason to speculate."""
    found = advised(tree(CELLS, [ar(), Arm("one", 1.01)], spread=0.001, jitter=0.001))
    assert found.overall.equal == ("ar-tp1",)
    assert "speculation brings nothing here" in found.text


def test_one_choice_for_all_has_its_price_told() -> None:
    """The overall choice is a fifth slower where another is best, and the advice says so."""
    streams = [level(4), level(8)]
    fast = Arm("single", {"code-256": 3.0, "json-256": 3.0, "c4-256": 0.8, "c8-256": 0.8})
    found = advised(tree([code(), code("json-256"), *streams], [ar(), fast]))
    assert found.overall.service == "single-tp1"
    prompts, loaded = found.workloads
    assert (prompts.service, prompts.cost_of_overall) == ("single-tp1", None)
    assert loaded.service == "ar-tp1"
    assert loaded.cost_of_overall is not None
    assert loaded.cost_of_overall.low is not None
    assert loaded.cost_of_overall.high is not None
    assert loaded.cost_of_overall.low < 0.8 < loaded.cost_of_overall.high
    assert "On concurrency ar-tp1 is ahead: the one choice costs 2" in found.text


def test_one_that_is_left_alone_is_no_decision() -> None:
    """Where every rival is flagged or missing there is nothing to choose between, and it says so."""
    found = advised(tree([code()], [ar(), Arm("fast", 1.5, flags={"code-256": "foreign-load"})]))
    assert (found.overall.method, found.overall.decided) == ("ar", False)
    assert found.text.startswith(
        "Undecided; ar-tp1 leads. It is the baseline. Nothing else can be ranked; measure"
    )


def test_an_advantage_within_the_drift_decides_nothing() -> None:
    """A baseline that may have moved by more than a method gains leaves the choice open."""
    arms = [ar(), Arm("fast", 1.04)]
    decided = advised(tree([code()], arms, spread=0.0, repeated=False))
    assert (decided.overall.method, decided.overall.decided) == ("fast", True)
    again = ar(1.025, repeats="ar-tp1")
    open_ = advised(tree([code()], [*arms, again], spread=0.0, repeated=False))
    assert not open_.overall.decided


def test_what_its_acceptance_cannot_explain_is_not_ranked() -> None:
    """A method that was fast because the machine was is no recommendation."""
    found = advised(tree(CELLS, [ar(), Arm("lucky", 1.5, tau=1.05), Arm("fast", 1.2)]))
    assert found.overall.method == "fast"
    assert "implausible" in dict(found.excluded)["lucky-tp1"]


def test_flagged_cells_are_not_ranked() -> None:
    """A simulated method wins nothing however fast it seems, and a cell in doubt does not count for one."""
    what_if = Arm("what-if", 9.0, flags=dict.fromkeys([cell.id for cell in CELLS], "synthetic"))
    stuck = Arm("stuck", {"code-256": 9.0, "json-256": 1.1, "c4-256": 1.1}, flags={"code-256": "degenerate"})
    found = advised(tree(CELLS, [ar(), what_if, stuck, Arm("fast", 1.5)]))
    assert found.overall.service == "fast-tp1"
    assert dict(found.excluded)["what-if-tp1"] == "every result is flagged (synthetic)"
    assert "stuck-tp1" not in dict(found.excluded)


def test_a_moved_baseline_puts_its_phase_in_doubt() -> None:
    """With the baseline 20 % slower at the end nothing measured in that phase is ranked."""
    result = tree([code()], [ar(), Arm("fast", 1.5), ar(0.8, repeats="ar-tp1")])
    found = advised(result)
    assert found.overall.service is None
    assert "drift" in found.overall.why


def test_a_moved_baseline_does_not_win_by_what_was_not_repeated() -> None:
    """Its other cells of the same kind of workload are in doubt as the methods' are."""
    cells = [code(), code("json-256")]
    again = ar(0.8, repeats="ar-tp1", absent=["json-256"])
    assert advised(tree(cells, [ar(), Arm("fast", 1.5), again])).overall.service is None


def test_the_target_comes_before_speed() -> None:
    """The fastest misses the TTFT target under load, so that the one that meets it everywhere is taken."""
    cells = [code(), context(30_000)]
    result = tree(cells, [ar(), Arm("fast", 2.0), Arm("steady", 1.5)], slo=Slo(ttft_ms=2_000))
    late = [
        replace(one, metrics=one.metrics | {"p90_ttft_ms": 2_500.0})
        if (one.service, one.cell.id) == ("fast-tp1", "ctx-30000")
        else one
        for one in result.cells
    ]
    found = advised(replace(result, cells=tuple(late)))
    assert found.target == "TTFT at most 2000 ms (90th percentiles)"
    assert found.overall.service == "steady-tp1"
    assert "p90_ttft_ms is 2500, the target 2000" in dict(found.excluded)["fast-tp1"]
    assert found.workloads[0].service == "fast-tp1"


def test_a_target_that_nobody_meets_is_said() -> None:
    """No configuration is recommended, and the reason names the limit."""
    found = advised(tree([code()], [ar(), Arm("fast", 1.5)], slo=Slo(tpot_ms=0.001)))
    assert found.overall.service is None
    assert "the target 0.001" in found.text


def test_a_method_that_fails_a_cell_is_behind_one_that_does_not() -> None:
    """What dies under load is not deployed for the sake of its speed elsewhere."""
    found = advised(tree(CELLS, [ar(), Arm("frail", 2.0, failed=["c4-256"]), Arm("fast", 1.5)]))
    assert found.overall.service == "fast-tp1"
    assert "failed (server-died)" in dict(found.excluded)["frail-tp1"]


def test_places_are_compared_per_gpu() -> None:
    """Four GPUs that are 2.5 times as fast are behind four servers of one; each degree has its own best."""
    arms = [ar(), Arm("fast", 1.5), ar(2.5, tp=4), Arm("fast", 3.75, tp=4)]
    found = advised(tree(CELLS, arms))
    assert found.overall.service == "fast-tp1"
    assert [(pick.scope, pick.service) for pick in found.places] == [
        ("TP 1", "fast-tp1"),
        ("TP 4", "fast-tp4"),
    ]
    assert "no latency target is set" in found.text


def test_without_records_nothing_is_decided() -> None:
    """Totals have no interval; the recommendation asks for more and still shows who leads."""
    found = advised(tree(CELLS, [ar(), Arm("fast", 1.5)], keep_records=False))
    assert (found.overall.service, found.overall.decided) == ("fast-tp1", False)
    assert "measure three prompts or more" in found.text


def test_an_output_that_diverges_is_named() -> None:
    """A method that changes what the model says is not recommended without saying so."""
    result = tree([code()], [ar(), Arm("fast", 1.5)])
    parted = Lossless(
        service="fast-tp1",
        method="fast",
        cell="code-256",
        verdict="diverges",
        compared=5,
        differing=2,
        control_compared=5,
        control_differing=0,
    )
    found = recommend(result, replace(compare(result), lossless=(parted,)))
    assert "greedy output is not the baseline's on code-256" in found.text


def test_a_budget_that_was_not_measured_is_proposed() -> None:
    """Where the best lies between two measured values and clearly above both, it is named as a model's."""
    arms = [ar()]
    for budget in (2, 8, 32):
        tau, cost = 1 + 4 * (1 - 2.718281828 ** (-budget / 6)), 1 + 0.05 * budget
        arms.append(Arm(f"tree-b{budget}", tau / cost, tau=tau, params={"budget": budget}, kind="tree"))
    found = advised(tree([code()], arms, spread=0.0, jitter=0.0001))
    assert "A model expects" in found.text
    assert "not measured" in found.text


def test_the_text_form_has_every_scope() -> None:
    """Overall, each workload and who was not ranked, for a terminal."""
    what_if = Arm("what-if", 9.0, flags=dict.fromkeys([cell.id for cell in CELLS], "synthetic"))
    text = "\n".join(lines(advised(tree(CELLS, [ar(), Arm("fast", 1.5), what_if], slo=Slo(tpot_ms=500)))))
    for part in ("target: TPOT", "Deploy fast-tp1", "  prompts: fast-tp1", "not ranked: what-if-tp1"):
        assert part in text
