"""The report's answer: what to deploy, where methods stop paying, what is accepted; the truth is planted."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from draftmark import report
from draftmark.compare import compare
from draftmark.report.parts import Document, Figure, Table
from draftmark.schema import CampaignResult, Cell, RequestRecord, Slo, Speculation
from planted import answer, campaign
from test_compare_beyond import family
from trees import Arm, ar, code, context, level, tree

CELLS = (code(), code("json-256"), level(4))
FORMS = (report.markdown, report.page, report.latex)


def document(result: CampaignResult) -> Document:
    return report.document(result, compare(result))


def tables(found: Document) -> dict[str, Table]:
    parts = (found.advice, *found.sections)
    return {block.id: block for part in parts for block in part.blocks if isinstance(block, Table)}


def texts(table: Table) -> list[list[str]]:
    return [[f"{entry.text} {entry.detail}".strip() for entry in row.entries] for row in table.rows]


# --- what to deploy ---


@pytest.mark.parametrize("form", FORMS)
def test_every_form_begins_with_what_to_deploy(form: Callable[..., str]) -> None:
    """The pick stands before the findings, in the page, in Markdown and in the article."""
    result = tree(CELLS, [ar(), Arm("fast", 1.5), Arm("slow", 1.2)])
    text = form(result, compare(result)).replace(r"\brk{}", "").replace("{-}", "-")
    assert 0 < text.index("Deploy fast-tp1.") < text.index("Findings")
    assert "95 % 1." in text.replace("\\%", "%")


def test_the_picks_are_told_for_each_workload_with_what_one_choice_costs() -> None:
    """The overall choice is a fifth slower under load, where the baseline is best; both are rows."""
    fast = Arm("single", {"code-256": 3.0, "json-256": 3.0, "c4-256": 0.8, "c8-256": 0.8})
    found = document(tree([code(), code("json-256"), level(4), level(8)], [ar(), fast]))
    overall, single, loaded = tables(found)["picks"].rows
    assert [row.entries[0].text for row in (overall, single, loaded)] == [
        "Overall", "Single requests", "Concurrent requests",
    ]  # fmt: skip
    assert (overall.entries[1].text, loaded.entries[1].text) == ("single", "ar")
    assert single.entries[4].text == "the same"
    price = loaded.entries[4]
    assert price.sort == pytest.approx(0.8, rel=0.05)
    assert price.tone == "slower"


def test_doubt_names_the_measurement_that_would_end_it() -> None:
    """Two methods 5 % apart with a spread of 6 %: undecided, from which one, and how many requests more."""
    near = [ar(0.6), Arm("one", 1.05), Arm("two", 1.0)]
    found = document(tree([code()], near, spread=0.04, jitter=0.02))
    assert found.advice.lead == "Undecided; one-tp1 leads."
    (row,) = tables(found)["picks"].rows
    assert row.entries[2].text == "undecided"
    assert "not told from two;" in row.entries[2].detail
    assert "times as many requests per cell" in row.entries[2].detail


def test_one_that_is_left_alone_is_told_apart_from_nobody() -> None:
    """Where all others are flagged it is undecided, and what to measure is said; no rival is named."""
    flagged = Arm("fast", 1.5, flags={"code-256": "foreign-load"})
    (row,) = tables(document(tree([code()], [ar(), flagged])))["picks"].rows
    assert row.entries[2].text == "undecided"
    assert row.entries[2].detail.startswith("nothing else can be ranked; measure the others")


def test_who_was_left_out_is_named_with_the_reason() -> None:
    """A method of which every cell is flagged, and one that dies under load."""
    what_if = Arm("what-if", 9.0, flags=dict.fromkeys([cell.id for cell in CELLS], "synthetic"))
    frail = Arm("frail", 2.0, failed=["c4-256"])
    found = document(tree(CELLS, [ar(), what_if, frail, Arm("fast", 1.5)]))
    assert texts(tables(found)["unranked"]) == [
        ["what-if", "every result is flagged (synthetic)"],
        ["frail", "misses 1 of 3 cells (c4-256: failed (server-died))"],
    ]


@pytest.mark.parametrize("form", FORMS)
def test_nothing_to_recommend_is_said_with_the_reason(form: Callable[..., str]) -> None:
    """A target that nobody meets: no pick in any form, and the limit that was missed."""
    result = tree([code()], [ar(), Arm("fast", 1.5)], slo=Slo(tpot_ms=0.001))
    text = form(result, compare(result))
    assert "Nothing can be recommended." in text
    assert "the target 0.001" in text
    assert "Deploy" not in text


def test_an_empty_campaign_recommends_nothing() -> None:
    """Of what was not measured there is no table of picks."""
    result = replace(tree(CELLS, [ar(), Arm("fast", 1.5)]), cells=(), records={})
    found = document(result)
    assert (found.advice.lead, found.advice.text) == ("Nothing can be recommended.", "Nothing was measured.")
    assert "picks" not in tables(found)


def test_each_place_is_priced_against_the_overall_choice() -> None:
    """Four GPUs that are 2.5 times as fast: the overall choice on one has 1.6 times their rate per GPU."""
    arms = [ar(), Arm("fast", 1.5), ar(2.5, tp=4), Arm("fast", 3.75, tp=4)]
    wide = tables(document(tree([code()], arms)))["picks"].rows[-1]
    assert wide.entries[0].text == "TP 4"
    assert wide.entries[4].sort == pytest.approx(1.6, rel=0.05)


# --- what a choice of load, degree and budget rests on ---


def test_where_it_stops_paying_is_in_the_section_of_its_workload() -> None:
    """Faster up to 2 streams, slower from 8: both levels, the verdict at each, and the flagged one apart."""
    cells = [level(streams) for streams in (1, 2, 4, 8, 16)]
    speeds = dict(zip((cell.id for cell in cells), (1.5, 1.3, 1.0, 0.7, 0.6), strict=True))
    arm = Arm("fast", speeds, flags={"c16-256": "capped"})
    found = document(tree([*cells, context(3_000), context(30_000)], [ar(), arm]))
    (row,) = texts(tables(found)["stops-concurrency"])
    assert row[3:] == [
        "stops paying",
        "2 and 8",
        "faster at 1, 2; cannot tell at 4; slower at 8; 16† not ranked",
    ]
    assert texts(tables(found)["stops-context"])[0][1] == "prompt tokens"
    section = next(part for part in found.sections if part.id == "concurrency")
    assert "stops-concurrency" in [block.id for block in section.blocks if isinstance(block, Table)]


def test_scaling_is_told_by_degree_and_per_gpu() -> None:
    """Four GPUs that are 2.5 times as fast as one: 2.5 times the rate, 0.62 times per GPU."""
    arms = [ar(), Arm("fast", 1.5), ar(2.5, tp=4), Arm("fast", 3.0, tp=4)]
    table = tables(document(tree([code()], arms, spread=0.0)))["scaling-prompts"]
    assert [column.title for column in table.columns] == ["Method", "Cell", "TP 1", "TP 4"]
    first = table.rows[0].entries
    assert "tok/s" in first[2].text
    assert first[3].sort == pytest.approx(2.5, rel=0.03)
    assert "per GPU 0.6" in first[3].detail


@pytest.mark.parametrize("form", FORMS)
def test_a_budget_that_was_not_measured_is_marked_as_a_model(form: Callable[..., str]) -> None:
    """Every form says of the expected speedup that it is a model's, and how far off it was."""
    result = family((2, 8, 32))
    (row,) = texts(tables(document(result))["models-prompts"])
    assert row[2] == "tree: budget"
    assert "not measured" in row[4]
    assert row[5].startswith("≈ ")
    text = form(result, compare(result)).replace("\\%", "%")
    assert "A model, not a measurement" in text.replace("{,}", ",")
    assert "error up to" in text


# --- acceptance ---


def session_turn(record: RequestRecord, turn: int, steps: int) -> RequestRecord:
    said = Speculation(source="timings", tokens=256, steps=steps)
    return replace(record, turn=turn, prompt_tokens=1_500 * (turn + 1), speculation=said)


def sessions() -> CampaignResult:
    """Three sessions of three turns, of which the first takes 256 steps, the second 128 and the third 64."""
    cell = Cell(id="cli-3", workload="agentic", scenario="cli", turns=3, max_tokens=256, requests=9)
    plain = [
        replace(
            answer(p, f"{p}-{turn}", times=[0.5 + 0.1 * i for i in range(9)]), turn=turn, start_s=10.0 * turn
        )
        for p in ("a", "b", "c")
        for turn in range(3)
    ]
    fast = [session_turn(record, record.turn or 0, 256 >> (record.turn or 0)) for record in plain]
    return campaign(cell, {"ar": plain, "fast": fast})


def test_acceptance_by_turn_is_drawn_and_tabled_as_planted() -> None:
    """One token a step in the first turn, two in the second, four in the third; no baseline among them."""
    found = document(sessions())
    figures = {b.id: b for part in found.sections for b in part.blocks if isinstance(b, Figure)}
    (chart,) = figures["fig-turns-agentic"].charts
    assert [(point.x, point.method, point.value) for point in chart.points] == [
        ("0", "fast", pytest.approx(1)), ("1", "fast", pytest.approx(2)), ("2", "fast", pytest.approx(4)),
    ]  # fmt: skip
    assert [point.n for point in chart.points] == [3, 3, 3]
    table = tables(found)["acceptance-turn-agentic"]
    assert [column.title for column in table.columns] == ["Method", "turn 0", "turn 1", "turn 2"]
    assert [entry.text for entry in table.rows[0].entries] == ["fast", "1.00", "2.00", "4.00"]


def test_acceptance_by_depth_of_context_is_tabled() -> None:
    """In sessions by powers of two of the prompt's tokens, deeper ones to the right."""
    table = tables(document(sessions()))["acceptance-context-agentic"]
    assert [column.title for column in table.columns] == ["Method", "1024", "2048", "4096"]
    assert [entry.text for entry in table.rows[0].entries] == ["fast", "1.00", "2.00", "4.00"]


def test_acceptance_by_prompt_kind_is_tabled_with_its_interval() -> None:
    """Kinds that share a cell are told apart where single requests say their steps."""
    cell = Cell(id="mixed", workload="concurrency", max_tokens=256, concurrency=2, requests=6)
    base = [answer(f"p{i}", f"r{i}", times=[0.1 * k for k in range(1, 9)], start_s=1.0 * i) for i in range(6)]
    fast = [
        replace(one, kind=kind, speculation=Speculation(source="timings", tokens=256, steps=steps))
        for one, (kind, steps) in zip(base, [("code", 64), ("creative", 200)] * 3, strict=True)
    ]
    table = tables(document(campaign(cell, {"ar": base, "fast": fast})))["acceptance-kind-concurrency"]
    assert [column.title for column in table.columns] == ["Method", "code", "creative"]
    assert texts(table) == [["fast", "4.00 4.00–4.00, n=3", "1.28 1.28–1.28, n=3"]]


def test_acceptance_by_position_falls_as_planted() -> None:
    """Of 200 steps with a draft 150 accepted the first token and 75 the second too."""
    spoke = Speculation(
        source="counters", tokens=900, steps=300, draft_steps=200, accepted_per_position=(150, 75, 0)
    )
    base = [answer(p, p, times=[0.5 + 0.1 * i for i in range(9)]) for p in ("a", "b", "c")]
    found = document(campaign(code(), {"ar": base, "fast": base}, speculation=spoke))
    figures = {b.id: b for part in found.sections for b in part.blocks if isinstance(b, Figure)}
    (chart,) = figures["fig-positions-prompts"].charts
    assert [(point.x, point.value, point.n) for point in chart.points] == [
        ("1", 75.0, 200), ("2", 37.5, 200), ("3", 0.0, 200),
    ]  # fmt: skip
    table = tables(found)["positions-prompts"]
    assert texts(table) == [["fast", "75% 75% of those", "38% 50% of those", "0% 0% of those", "200"]]
