"""How long a campaign takes: priors first, then what was measured."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from draftmark.estimate import CELL_S, START_S, Pace, estimate, together, work
from draftmark.plan import expand, read_plan
from draftmark.schema import Cell, CellResult, Matrix

PLAN = """
name: times
engine: {kind: llamacpp}
model: {target: smollm2-135m}
methods: [{name: none, kind: none}, {name: mod, kind: ngram-mod}]
workloads: [{kind: prompts, prompts: [code], max_tokens: [100], repetitions: 4}]
"""


ROUNDS = PLAN.replace("repetitions: 4", "repetitions: 4, precision: 0.05, max_repetitions: 40")


def took(cell: Cell, seconds: float, **metrics: float) -> CellResult:
    """A measured cell."""
    return CellResult(
        service="s", cell=cell, status="ok", started_at="", duration_s=1.0, wall_s=seconds, metrics=metrics
    )


@pytest.fixture
def matrix() -> Matrix:
    return expand(read_plan(PLAN, "plan.yaml"))


def test_without_results_it_is_a_guess(matrix: Matrix) -> None:
    """Priors are used, and the estimate says that it is one."""
    found = estimate(matrix.services, Pace())
    assert found.guessed
    assert found.services["llamacpp-tp1-mod"].least_s > START_S["llamacpp"]


def test_what_was_measured_is_believed(matrix: Matrix) -> None:
    """A start of 2 s and 0.1 s a token give 2 s and 40 s for 4 requests of 100 tokens."""
    (cell,) = matrix.services[1].cells
    found = estimate(matrix.services, Pace().started(2.0).measured(took(cell, 40.0)))
    assert not found.guessed
    assert found.services["llamacpp-tp1-mod"] == pytest.approx([2.0 + 40.0 + CELL_S] * 2)


def test_rounds_that_may_be_needed_are_not_left_out() -> None:
    """From the first round to the last; a cell that took them all makes no token look slower than it was."""
    baseline, method = expand(read_plan(ROUNDS, "plan.yaml")).services
    (cell,) = method.cells
    found = estimate([method], Pace().started(2.0).measured(took(cell, 400.0, completed=40)))
    assert found.total == pytest.approx((2.0 + 40.0 + CELL_S, 2.0 + 400.0 + CELL_S))
    assert found.phases == {"tp1": found.total}
    assert estimate([baseline], Pace()).total.most_s > estimate([method], Pace()).total.most_s


def test_the_baseline_counts_its_repetition(matrix: Matrix) -> None:
    """Its requests are sent twice more: for noise, and for how close each choice was."""
    baseline, method = matrix.services
    assert work(baseline.cells[0], 4) == 3 * work(method.cells[0], 4)


def test_a_service_without_cells_takes_no_time(matrix: Matrix) -> None:
    """What is already measured needs no start."""
    done = [replace(service, cells=()) for service in matrix.services]
    assert estimate(done, Pace()).total == (0.0, 0.0)


@given(starts=st.lists(st.floats(0.1, 100), max_size=4), seconds=st.lists(st.floats(0.1, 100), max_size=4))
def test_phases_add_up_to_the_whole(starts: list[float], seconds: list[float]) -> None:
    """Whatever was measured, the phases' times are the services' times."""
    made = expand(read_plan(PLAN, "plan.yaml"))
    pace = Pace()
    for start in starts:
        pace = pace.started(start)
    for second in seconds:
        pace = pace.measured(took(made.services[0].cells[0], second))
    found = estimate(made.services, pace)
    assert together(found.phases.values()) == pytest.approx(found.total)
