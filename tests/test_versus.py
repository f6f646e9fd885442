"""Two result trees, of which it is known whether anything got slower."""

from collections.abc import Mapping, Sequence
from random import Random
from statistics import NormalDist

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from draftmark.errors import BadInput, ResultError
from draftmark.schema import CampaignResult, EngineSpec, ModelSpec, Service
from draftmark.versus import Versus, lines, markdown, versus
from draftmark.versus.judge import tail
from trees import Arm, ar, code, level, tree

CELLS = (code(), code("json-256"), level(4))
MACHINE = {"cpu": "one", "cores": 8, "gpus": [{"name": "G", "driver": "1"}], "hostname": "a"}


def made(seed: int, speed: float | Mapping[str, float] = 1.0, **fields: object) -> CampaignResult:
    """The same two services, measured on another day; ``fast`` is by ``speed`` slower or faster."""
    speeds = {cell.id: 1.5 * (speed if isinstance(speed, float) else speed.get(cell.id, 1)) for cell in CELLS}
    options = {"machine": MACHINE} | fields
    return tree(CELLS, [ar(), Arm("fast", speeds)], seed=seed, **options)  # type: ignore[arg-type]


def outcomes(found: Versus) -> dict[str, str]:
    return {f"{one.service}/{one.cell}": one.outcome for one in found.cells}


def changed(result: CampaignResult, **fields: object) -> CampaignResult:
    """The result with each service altered."""
    services = tuple(replace(one, **fields) for one in result.matrix.services)  # type: ignore[arg-type]
    return replace(result, matrix=replace(result.matrix, services=services))


def test_the_same_measured_twice_passes() -> None:
    """Exit code 0: no service is slower by more than 3 %."""
    found = versus(made(1), made(2))
    assert (found.outcome, found.exit_code) == ("PASS", 0)
    assert [one.outcome for one in found.services] == ["PASS", "PASS"]
    assert found.differences == ()


def test_a_loss_is_a_regression() -> None:
    """15 % slower on all cells of one service: exit code 1, and the service is named."""
    found = versus(made(1), made(2, 0.85))
    assert (found.outcome, found.exit_code) == ("REGRESSION", 1)
    assert "fast-tp1" in found.why
    assert {one.service: one.outcome for one in found.services} == {
        "ar-tp1": "PASS",
        "fast-tp1": "REGRESSION",
    }


def test_one_bad_cell_among_good_ones_is_a_regression() -> None:
    """Under load alone it is 25 % slower: certain, however many cells there are."""
    found = versus(made(1), made(2, {"c4-256": 0.75}))
    assert outcomes(found)["fast-tp1/c4-256"] == "REGRESSION"
    assert outcomes(found)["fast-tp1/code-256"] == "PASS"
    assert found.outcome == "REGRESSION"


def test_what_two_prompts_cannot_tell_is_inconclusive() -> None:
    """Exit code 3: the interval of a noisy pair holds both the limit and 1."""
    found = versus(made(1, requests=2, jitter=0.1), made(2, requests=2, jitter=0.1))
    assert (found.outcome, found.exit_code) == ("INCONCLUSIVE", 3)


def test_a_gain_passes() -> None:
    """Faster is not another thing to worry about."""
    assert versus(made(1), made(2, 1.3)).outcome == "PASS"


def test_the_tolerance_is_what_is_accepted() -> None:
    """6 % slower passes at 10 % and does not at 1 %."""
    assert versus(made(1), made(2, 0.94), tolerance=0.1).outcome == "PASS"
    assert versus(made(1), made(2, 0.94), tolerance=0.01).outcome == "REGRESSION"
    with pytest.raises(BadInput, match="no share"):
        versus(made(1), made(2), tolerance=3)


def test_equal_trees_seldom_regress() -> None:
    """In 60 pairs of noisy trees that are the same, at most one is called slower."""
    calls = [versus(made(2 * n, jitter=0.05), made(2 * n + 1, jitter=0.05)).outcome for n in range(60)]
    assert calls.count("REGRESSION") <= 1


def test_a_cell_that_fails_now_is_a_regression() -> None:
    """Whatever the speed of the others."""
    after = tree(CELLS, [ar(), Arm("fast", 1.5, failed=["json-256"])], seed=2, machine=MACHINE)
    found = versus(made(1), after)
    assert found.outcome == "REGRESSION"
    assert "fast-tp1" in found.why
    (row,) = [one for one in found.cells if one.outcome == "REGRESSION"]
    assert row.why == "fails now: The server ended."


def test_a_cell_that_is_not_there_any_more_forbids_a_pass() -> None:
    """Half a campaign is no proof that all is well."""
    after = tree(CELLS, [ar(), Arm("fast", 1.5, absent=["json-256"])], seed=2, machine=MACHINE)
    assert versus(made(1), after).outcome == "INCONCLUSIVE"


def test_flagged_cells_are_not_judged() -> None:
    """A flag on both sides leaves a cell out; one that is new forbids a pass."""
    stuck = Arm("fast", 1.5, flags={"json-256": "degenerate"})
    before, after = (tree(CELLS, [ar(), stuck], seed=n, machine=MACHINE) for n in (1, 2))
    assert versus(before, after).outcome == "PASS"
    assert outcomes(versus(before, after))["fast-tp1/json-256"] == "INCONCLUSIVE"
    assert versus(made(1), after).outcome == "INCONCLUSIVE"


def test_without_records_nothing_is_decided() -> None:
    """Totals show a change, and have no interval."""
    found = versus(made(1, keep_records=False), made(2, 0.5, keep_records=False))
    assert found.outcome == "INCONCLUSIVE"
    assert found.services[1].ratio is not None
    assert found.services[1].ratio.low is None


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        ({"model": ModelSpec(target="other")}, "model.target"),
        ({"engine": EngineSpec(kind="vllm")}, "engine.kind"),
    ],
)
def test_unlike_runs_are_refused_by_the_key_that_differs(fields: Mapping[str, object], key: str) -> None:
    """Bad input, unless that key is allowed to differ; then it is listed."""
    before, after = made(1), changed(made(2), **fields)
    with pytest.raises(ResultError, match=key) as caught:
        versus(before, after)
    assert f"--allow {key}" in caught.value.hint
    found = versus(before, after, allow=[key.partition(".")[0]])
    assert found.outcome == "PASS"
    assert key in [one.key for one in found.differences]


def test_another_machine_is_refused() -> None:
    """Cores, processor and GPUs must be the same; a name, a driver or a system need not."""
    with pytest.raises(ResultError, match=r"machine\.cores is 8 before and 4 after"):
        versus(made(1), made(2, machine=MACHINE | {"cores": 4}))
    upgraded = MACHINE | {"hostname": "b", "gpus": [{"name": "G", "driver": "2"}]}
    found = versus(made(1), made(2, machine=upgraded, version="2.0"))
    assert {"GPU driver", "machine.hostname", "engine version"} <= {one.key for one in found.differences}
    assert found.outcome == "PASS"


def test_other_prompts_and_other_parameters_are_refused() -> None:
    """A cell of the same name with other prompts, and a method of the same name with another setting."""
    moved = made(2)
    services = [
        replace(one, cells=tuple(replace(cell, first_prompt=5) for cell in one.cells))
        for one in moved.matrix.services
    ]
    with pytest.raises(ResultError, match=r"cell\.first_prompt is 0 \(code-256\) before and 5 after"):
        versus(made(1), replace(moved, matrix=replace(moved.matrix, services=tuple(services))))
    with pytest.raises(ResultError, match=r"method\.budget is not given \(fast\) before and 8 after"):
        versus(made(1), _with_budget(made(2)))


def _with_budget(result: CampaignResult) -> CampaignResult:
    def altered(one: Service) -> Service:
        return one if one.baseline else replace(one, method=replace(one.method, params={"budget": 8}))

    services = tuple(altered(one) for one in result.matrix.services)
    return replace(result, matrix=replace(result.matrix, services=services))


def test_other_lengths_of_answers_are_refused() -> None:
    """Requests that generated 20 % fewer tokens did not do the same work."""
    after = made(2)
    shorter = tuple(
        replace(one, metrics=one.metrics | {"total_output_tokens": 0.8 * one.metrics["total_output_tokens"]})
        for one in after.cells
    )
    with pytest.raises(ResultError, match="tokens is 256 per request"):
        versus(made(1), replace(after, cells=shorter))


def test_nothing_in_common_is_refused() -> None:
    """The services of both are named."""
    with pytest.raises(ResultError, match="no service in common") as caught:
        versus(tree(CELLS, [ar()]), tree(CELLS, [Arm("fast")]))
    assert "ar-tp1" in caught.value.hint
    assert "fast-tp1" in caught.value.hint


def test_what_only_one_side_has_is_noted() -> None:
    """It is not compared, and not forgotten."""
    after = tree(CELLS, [ar(), Arm("fast", 1.5), Arm("new", 2.0)], seed=2, machine=MACHINE)
    assert versus(made(1), after).notes == ("new-tp1: only after",)


def test_every_form_says_the_same() -> None:
    """Text, Markdown and JSON hold the verdict, the services and the changes; names cannot break a table."""
    found = versus(made(1), made(2, 0.85, version="2|0<b>"))
    text, table = "\n".join(lines(found)), markdown(found)
    for form in (text, table):
        assert "REGRESSION" in form
        assert "fast-tp1" in form
        assert "engine version" in form
    assert "2\\|0&lt;b>" in table
    assert msgspec.json.decode(msgspec.json.encode(found), type=Versus) == found


@given(t=st.floats(0.01, 30), freedom=st.integers(1, 60))
def test_the_tail_of_students_t_falls_with_t_and_with_freedom(t: float, freedom: int) -> None:
    """It is a probability below one half, and between that of fewer degrees and that of the normal."""
    found = tail(t, freedom)
    assert 0 <= found < 0.5
    assert tail(t * 1.1, freedom) <= found + 1e-12
    assert 1 - NormalDist().cdf(t) <= found + 1e-12
    assert tail(t, freedom + 1) <= found + 1e-12


@pytest.mark.parametrize(
    ("freedom", "t"), [(1, 12.7062), (2, 4.30265), (4, 2.77645), (9, 2.26216), (30, 2.04227)]
)
def test_the_tail_of_students_t_is_that_of_tables(freedom: int, t: float) -> None:
    """2.5 % lie above the tabulated value."""
    assert tail(t, freedom) == pytest.approx(0.025, rel=1e-4)


def test_the_order_of_cells_and_services_does_not_matter() -> None:
    """Shuffled trees give the same verdict."""
    before, after = made(1), made(2, 0.85)
    shuffled = replace(after, cells=tuple(_shuffled(after.cells)))
    assert versus(before, shuffled).services == versus(before, after).services


def _shuffled(items: Sequence[object]) -> list[object]:
    return Random(7).sample(list(items), len(items))
