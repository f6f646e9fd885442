"""What a plan expands to: which services and cells, in which order, under which names and hashes."""

from collections import defaultdict
from collections.abc import Callable
from math import ceil
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftmark.errors import PlanError
from draftmark.plan import covered, expand, named_files, notes, read_plan, tokens
from draftmark.plan.grid import cell_tokens
from draftmark.plan.select import matches
from draftmark.schema import Cell, Match, Matrix

HEAD = "name: p\nengine: {kind: sglang}\nmodel: {target: some/model}\n"
METHODS = """\
methods:
  - {name: "n{num_draft_tokens}", kind: ngram, num_draft_tokens: [4, 8], env: {A: b}, args: {page-size: 16}}
  - {name: ar, kind: none}
"""
WORKLOADS = """\
workloads:
  - {kind: prompts, prompts: [code, json], max_tokens: [256, 1k], repetitions: 3}
  - {kind: concurrency, levels: [1, 8], rates: [2.5], max_tokens: 512, prompts: [code, creative]}
  - {kind: context, lengths: [3k, 4096], concurrency: 8}
  - {kind: agentic, scenarios: [cli-calculator, my/own one.yaml], turns: 3, max_tokens: 100}
"""


def matrix(methods: str = METHODS, workloads: str = WORKLOADS, more: str = "") -> Matrix:
    return expand(read_plan(HEAD + methods + workloads + more, "plan.yaml"))


def cells(whole: Matrix) -> dict[str, Cell]:
    return {cell.id: cell for cell in whole.services[0].cells}


def hashes(whole: Matrix) -> dict[tuple[str, str], str]:
    return {(service.id, cell.id): cell.hash for service in whole.services for cell in service.cells}


def test_the_plan_of_eight_gpus_is_sixteen_starts() -> None:
    """Eight methods on one GPU and four on 4 and on 8; 100k not on one GPU, agentic not for large budgets."""
    text = Path("plans/qwen36-rtx6000.yaml").read_text()
    whole = expand(read_plan(text, "plan.yaml"))
    by_phase = defaultdict(list)
    for service in whole.services:
        by_phase[service.phase].append(service.method.name)
    few = ["ar", "dflash", "ddtree-b15", "ddtree-b16"]
    budgets = [f"ddtree-b{budget}" for budget in (8, 12, 15, 16, 32, 64)]
    assert by_phase == {"tp1": ["ar", "dflash", *budgets], "tp4": few, "tp8": few}
    for service in whole.services:
        kinds = {cell.workload for cell in service.cells}
        assert ("agentic" in kinds) == (service.method.name not in ("ddtree-b32", "ddtree-b64"))
        assert any(cell.length == 100_000 for cell in service.cells) == (service.tp > 1)
        assert service.memory_fraction == (0.80 if service.tp == 1 else 0.85)
        assert (service.max_running_requests, service.context_needed) == (8, 100_352)
        assert (service.method.draft is None) == (service.method.kind == "none")
    grid = 8 * 3 * 24
    assert sum(len(service.cells) for service in whole.services) + len(whole.dropped) == grid
    assert all(drop.why for drop in whole.dropped)


def test_the_quickstart_is_four_starts_on_this_machine() -> None:
    """Four methods of one phase, the baseline first, each with the same two cells."""
    whole = expand(read_plan(Path("plans/quickstart.yaml").read_text(), "plan.yaml"))
    assert [service.method.name for service in whole.services] == [
        "none",
        "ngram-simple",
        "ngram-map-k4v",
        "ngram-mod",
    ]
    assert {tuple(cell.id for cell in service.cells) for service in whole.services} == {
        ("code-64", "creative-64")
    }
    assert notes(whole) == ()


def test_a_service_is_resolved() -> None:
    """Names, order, merged flags and defaults of a service are settled."""
    whole = matrix(more="server: {args: {page-size: 1, log-level: info}}\n")
    ar, n4, n8 = whole.services
    assert [ar.id, n4.id, n8.id] == ["sglang-tp1-ar", "sglang-tp1-n4", "sglang-tp1-n8"]
    assert (ar.baseline, n4.baseline) == (True, False)
    assert n8.method.params == {"num_draft_tokens": 8}
    assert (n8.args, ar.args) == (
        {"page-size": 16, "log-level": "info"},
        {"page-size": 1, "log-level": "info"},
    )
    assert (n8.env, ar.env) == ({"A": "b"}, {})
    assert (n8.host, n8.phase, n8.ready_timeout_s) == ("local", "tp1", 900)
    assert n8.max_running_requests == 64
    assert n8.context_needed == 4096 + 256


def test_cells_have_short_names_and_whole_numbers() -> None:
    """A cell's name says what it is; counts that the plan leaves open are settled."""
    grid = cells(matrix())
    assert list(grid) == [
        "code-256", "code-1000", "json-256", "json-1000", "c1-512", "c8-512", "r2.5-512", "ctx-3k-256-c8",
        "ctx-4096-256-c8", "agentic-cli-calculator", "agentic-own-one",
    ]  # fmt: skip
    assert [grid[name].requests for name in ("code-256", "c1-512", "c8-512", "r2.5-512")] == [3, 16, 32, 75]
    assert (grid["ctx-3k-256-c8"].requests, grid["ctx-3k-256-c8"].length) == (24, 3000)
    assert (grid["agentic-own-one"].requests, grid["agentic-own-one"].repetitions) == (9, 3)
    assert (grid["r2.5-512"].rate, grid["r2.5-512"].arrival) == (2.5, "poisson")


def test_a_temperature_and_a_single_kind_are_in_the_name() -> None:
    """Cells that differ in temperature, or mix one kind only, stand beside the others."""
    two = (
        "workloads: [{kind: prompts, prompts: [code]}, {kind: prompts, prompts: [code], temperature: 0.8}]\n"
    )
    assert list(cells(matrix(workloads=two))) == ["code-256", "code-256-t0.8"]
    one = "workloads: [{kind: concurrency, levels: [2]}, {kind: concurrency, levels: [2], prompts: [json]}]\n"
    assert list(cells(matrix(workloads=one))) == ["c2-256", "c2-256-json"]


def test_only_the_baseline_is_repeated() -> None:
    """The control runs on the baseline's cells and nowhere else."""
    for service in matrix(more="baseline: n8\n").services:
        assert {cell.control for cell in service.cells} == {service.id == "sglang-tp1-n8"}


def test_with_drift_the_baseline_ends_each_phase() -> None:
    """Again without its control, on the middling cell of each kind of workload; no other hash changes."""
    more = "tensor_parallel: [1, 2]\n"
    plain, whole = matrix(more=more), matrix(more=f"{more}drift: true\n")
    assert [service.id for service in whole.services if service.repeats] == [
        "sglang-tp1-ar-again",
        "sglang-tp2-ar-again",
    ]
    for phase in whole.phases:
        first, *_, again = [service for service in whole.services if service.phase == phase]
        assert (again.repeats, again.baseline, again.hash) == (first.id, False, first.hash)
        assert [cell.id for cell in again.cells] == [
            "json-256", "c8-512", "ctx-3k-256-c8", "agentic-cli-calculator",
        ]  # fmt: skip
        assert not any(cell.control for cell in again.cells)
        own = {cell.id: cell.hash for cell in first.cells}
        assert all(cell.hash != own[cell.id] for cell in again.cells)
    assert hashes(plain).items() <= hashes(whole).items()


def test_drift_is_told_only_where_it_bears_on_something() -> None:
    """Cells that only the baseline has are not repeated, nor is a baseline that is alone in its phase."""
    rules = "select: [{keep: {method: ar}}, {keep: {workload: prompts, tp: 1}}, {drop: {}}]\n"
    whole = matrix(more=f"tensor_parallel: [1, 2]\n{rules}drift: true\n")
    (again,) = (service for service in whole.services if service.repeats)
    assert (again.phase, {cell.workload for cell in again.cells}) == ("tp1", {"prompts"})


def test_several_hosts_are_phases_of_their_own() -> None:
    """With more than one host its name is in phases and ids; a degree beyond its GPUs is dropped."""
    hosts = "hosts: {a: {gpus: 1}, b: {gpus: 2, address: u@b}}\ntensor_parallel: [1, 2]\n"
    whole = matrix(more=hosts)
    assert whole.phases == ("a-tp1", "b-tp1", "b-tp2")
    assert whole.services[0].id == "a-sglang-tp1-ar"
    assert {(drop.phase, drop.why) for drop in whole.dropped} == {
        ("a-tp2", "tensor parallelism of 2 needs as many GPUs, and a has 1")
    }
    assert {service.hash for service in matrix().services} == {
        s.hash for s in whole.services if s.phase == "a-tp1"
    }


@pytest.mark.parametrize(
    ("rules", "kept"),
    [
        ("[{keep: {workload: context}}, {drop: {}}]", ["ctx-3k-256-c8", "ctx-4096-256-c8"]),
        ("[{keep: {method: ar}}, {drop: {workload: '*'}}, {keep: {workload: context}}]", []),
        (
            "[{keep: {prompt: [j*], max_tokens: 1k}}, {keep: {level: [8]}}, {drop: {}}]",
            ["json-1000", "c8-512"],
        ),
        ("[{keep: {length: 4096}}, {keep: {rate: 2.5}}, {drop: {}}]", ["r2.5-512", "ctx-4096-256-c8"]),
        ("[{keep: {scenario: cli-*, tp: 1, host: local}}, {drop: {}}]", ["agentic-cli-calculator"]),
        ("[{drop: {workload: [prompts, concurrency, agentic]}}]", ["ctx-3k-256-c8", "ctx-4096-256-c8"]),
    ],
)
def test_the_first_rule_that_matches_decides(rules: str, kept: list[str]) -> None:
    """Rules are tried in order for each cell, and what no rule matches is kept."""
    whole = matrix(more=f"select: {rules}\n")
    found = [cell.id for service in whole.services if service.id == "sglang-tp1-n4" for cell in service.cells]
    assert found == kept


def test_a_rule_that_gives_no_reason_is_named_as_one() -> None:
    """What a rule without 'why' drops is traced to the rule."""
    whole = matrix(more="select: [{drop: {method: n4, workload: context}}]\n")
    assert {(drop.service, drop.why) for drop in whole.dropped} == {("sglang-tp1-n4", "select[0] drops it")}


def test_missing_comparisons_are_noted() -> None:
    """No baseline, or a phase without it, is said."""
    assert notes(matrix(METHODS.replace("  - {name: ar, kind: none}\n", "")))[0].startswith("no baseline")
    whole = matrix(more="tensor_parallel: [1, 2]\nselect: [{drop: {method: ar, tp: 2}}]\n")
    assert notes(whole) == ("tp2: the baseline 'ar' does not run, so nothing is compared there",)


kinds = st.lists(
    st.sampled_from(["code", "sorting", "arithmetic", "json", "creative"]), min_size=1, unique=True
)
counts = st.integers(1, 40)


def entry(kind: str, keys: str) -> Callable[[list[str], int, int], str]:
    """A workload as text; ``keys`` may hold the drawn prompts, count and limit."""
    return lambda p, n, m: f"{{kind: {kind}, {keys.format(p=p, n=n, m=m, more=m + 1)}}}"


workloads = st.one_of(
    st.builds(
        entry("prompts", "prompts: {p}, repetitions: {n}, max_tokens: [{m}, {more}]"), kinds, counts, counts
    ),
    st.builds(
        entry("concurrency", "prompts: {p}, requests: {n}, levels: [1, 2], max_tokens: {m}"),
        kinds,
        counts,
        counts,
    ),
    st.builds(
        entry("context", "lengths: [1k, 2k], repetitions: {n}, max_tokens: {m}"), kinds, counts, counts
    ),
)
PINNED = "server: {max_running_requests: 4, context_length: 8k}\n"


def read_or_none(found: list[str]) -> Matrix | None:
    """The matrix of a drawn list of workloads; None where two of them give the same cell."""
    try:
        return matrix(workloads=f"workloads: [{', '.join(found)}]\n", more=PINNED)
    except PlanError:
        return None


lists = st.lists(workloads, min_size=2, max_size=5).filter(lambda found: read_or_none(found) is not None)


@settings(max_examples=40, deadline=None)
@given(lists)
def test_no_prompt_is_used_twice(chosen: list[str]) -> None:
    """Over the whole grid, no two cells share a prompt of a kind, and every service gets the same ones."""
    whole = matrix(workloads=f"workloads: [{', '.join(chosen)}]\n", more=PINNED)
    seen: dict[str, set[int]] = defaultdict(set)
    for cell in whole.services[0].cells:
        for kind in cell.prompts or (cell.workload,):
            taken = ceil(cell.requests / len(cell.prompts or "x"))
            own = set(range(cell.first_prompt, cell.first_prompt + taken))
            assert not own & seen[kind]
            seen[kind] |= own
    for service in whole.services[1:]:
        unlike = {"control": False, "hash": ""}
        assert [msgspec.structs.replace(c, **unlike) for c in service.cells] == [
            msgspec.structs.replace(c, **unlike) for c in whole.services[0].cells
        ]


@settings(max_examples=40, deadline=None)
@given(lists)
def test_appending_leaves_what_is_measured_alone(chosen: list[str]) -> None:
    """A workload or method that is appended changes no hash of the cells that were there before."""
    before = hashes(matrix(workloads=f"workloads: [{', '.join(chosen[:-1])}]\n", more=PINNED))
    longer = hashes(matrix(workloads=f"workloads: [{', '.join(chosen)}]\n", more=PINNED))
    assert before.items() < longer.items()
    methods = METHODS + "  - {name: other, kind: eagle, draft: some/draft}\n"
    wider = hashes(matrix(methods, f"workloads: [{', '.join(chosen[:-1])}]\n", PINNED))
    assert before.items() < wider.items()
    assert len(set(longer.values())) == len(longer)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("some/model", "other/model"),
        ("kind: sglang}", "kind: sglang, env: {B: c}}"),
        ("kind: sglang}", "kind: sglang, python: /p}"),
        ("repetitions: 3", "repetitions: 4"),
        ("name: p", "name: p\nseed: 1"),
        ("name: p", "name: p\nserver: {args: {page-size: 4, log-level: info}}"),
        ("name: p", "name: p\nserver: {max_running_requests: 7}"),
        ("name: p", "name: p\nhosts: {h: {address: u@h}}"),
        ("[1, 8]", "[1, 128]"),
    ],
)
def test_what_changes_the_numbers_changes_the_hash(old: str, new: str) -> None:
    """Everything that a measured number depends on is in its hash."""
    text = HEAD + METHODS + WORKLOADS
    assert old in text
    before, after = hashes(matrix()), hashes(expand(read_plan(text.replace(old, new), "p")))
    assert before["sglang-tp1-n4", "code-256"] != after["sglang-tp1-n4", "code-256"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("name: p", "name: q\ndescription: d"),
        ("some/model}", "some/model, draft: some/draft, served_name: s}"),
        ("name: p", "name: p\nserver: {ready_timeout_s: 5}"),
        ("name: p", "name: p\nslo: {tpot_ms: 5}\non_failure: adjust"),
        ("name: p", "name: p\nhosts: {h: {}}"),
        ("name: p", "name: p\nselect: [{drop: {workload: context}}]"),
    ],
)
def test_what_changes_no_number_changes_no_hash(old: str, new: str) -> None:
    """Names, targets, patience and what else is measured are not in a hash."""
    text = HEAD + METHODS + WORKLOADS
    before, after = hashes(matrix()), hashes(expand(read_plan(text.replace(old, new), "p")))
    assert before["sglang-tp1-n4", "code-256"] == after["sglang-tp1-n4", "code-256"]


def test_keys_that_came_later_leave_old_hashes_alone() -> None:
    """A plan that does not use them has the hashes that it had before they were there."""
    found = hashes(matrix())
    assert [found["sglang-tp1-ar", cell] for cell in ("code-256", "c8-512", "ctx-3k-256-c8")] == [
        "f3ccf9b428a52fa8",
        "170ee38b51f8cb33",
        "0e3470d9e66c2cca",
    ]


@pytest.mark.parametrize(
    ("old", "new", "cell"),
    [
        ("repetitions: 3", "repetitions: 3, precision: 0.05, max_repetitions: 9", "code-256"),
        ("max_tokens: 512", "max_tokens: 512, precision: 0.05, max_requests: 80", "c8-512"),
        ("concurrency: 8", "concurrency: 8, precision: 0.05, max_repetitions: 9", "ctx-3k-256-c8"),
    ],
)
def test_rounds_take_prompts_for_the_most(old: str, new: str, cell: str) -> None:
    """With a precision a cell keeps its name and first round, and no other cell has prompts of later ones."""
    assert old in WORKLOADS
    before, after = matrix(), matrix(workloads=WORKLOADS.replace(old, new))
    assert hashes(before)["sglang-tp1-ar", cell] != hashes(after)["sglang-tp1-ar", cell]
    one, other = cells(before)[cell], cells(after)[cell]
    assert (one.requests, one.first_prompt) == (other.requests, cells(before)[cell].first_prompt)
    assert other.most_requests == {"code-256": 9, "c8-512": 80, "ctx-3k-256-c8": 72}[cell]
    kind = (*one.prompts, one.workload)[0]
    ranges = [
        range(found.first_prompt, found.first_prompt + ceil(found.most_requests / len(found.prompts or "x")))
        for found in cells(after).values()
        if kind in (found.prompts or (found.workload,))
    ]
    assert len(set().union(*ranges)) == sum(map(len, ranges))


def test_raw_prompts_are_cells_of_their_own() -> None:
    """How a prompt is sent is in the cell's name where it is not a chat, and in its hash."""
    two = "workloads: [{kind: prompts, prompts: [code]}, {kind: prompts, prompts: [code], api: tokens}]\n"
    grid = cells(matrix(workloads=two))
    assert {name: cell.api for name, cell in grid.items()} == {"code-256": None, "code-256-tokens": "tokens"}
    raw = "workloads: [{kind: concurrency, levels: [2], rates: [1], api: completions, temperature: 0.5}]\n"
    assert list(cells(matrix(workloads=raw))) == ["c2-256-completions-t0.5", "r1-256-completions-t0.5"]
    long = "workloads: [{kind: context, lengths: [3k], api: completions}]\n"
    assert list(cells(matrix(workloads=long))) == ["ctx-3k-256-completions"]


TRACE = (
    "workloads: [{kind: trace, file: a/my talks.jsonl, format: mooncake, requests: 5, levels: [1, 8], "
    "rates: [0.5], speedup: 2, longest: 8k, max_tokens: 64}]\n"
)


def test_a_trace_gives_a_cell_for_each_way_of_sending_it() -> None:
    """Levels, rates and the recorded times are cells, with prompts of their own and room for the longest."""
    whole = matrix(workloads=TRACE)
    grid = cells(whole)
    assert {name: (cell.concurrency, cell.rate, cell.speedup) for name, cell in grid.items()} == {
        "trace-my-talks-c1": (1, None, None),
        "trace-my-talks-c8": (8, None, None),
        "trace-my-talks-r0.5": (1, 0.5, None),
        "trace-my-talks-x2": (1, None, 2.0),
    }
    assert [cell.open_loop for cell in grid.values()] == [False, False, True, True]
    assert [cell.first_prompt for cell in grid.values()] == [0, 5, 10, 15]
    assert whole.services[0].context_needed == -(-(8000 + 64) // 256) * 256
    assert whole.services[0].max_running_requests == 64
    kept = matrix(workloads=TRACE, more="select: [{keep: {workload: trace, level: 8}}, {drop: {}}]\n")
    assert list(cells(kept)) == ["trace-my-talks-c8"]


def test_what_a_file_holds_is_in_the_hash() -> None:
    """Another trace is another hash; of a trace the digest is kept, of a scenario the text."""
    text = TRACE.replace("]\n", ", {kind: agentic, scenarios: [s.yaml]}]\n")
    plan = read_plan(HEAD + METHODS + text, "p")
    assert named_files(plan) == {"a/my talks.jsonl", "s.yaml"}
    files = {"a/my talks.jsonl": "{}", "s.yaml": "turns: []"}
    known = covered(plan, files)
    assert known["s.yaml"] == "turns: []"
    assert len(known["a/my talks.jsonl"]) == 64
    before = hashes(expand(plan, known))
    after = hashes(expand(plan, covered(plan, files | {"a/my talks.jsonl": "{ }"})))
    changed = {cell for (_, cell), seal in before.items() if after[_, cell] != seal}
    assert changed == {cell for _, cell in before if cell.startswith("trace-")}


def test_an_attached_servers_tokenizer_is_read() -> None:
    """Contexts are counted with that file, so its content is in the hash; elsewhere it is a name."""
    text = (
        "name: p\nengine: {kind: attach, url: 'http://h:1'}\nmodel: {target: m, tokenizer: t.json}\n"
        "methods: [{name: a, kind: none}]\nworkloads: [{kind: context, lengths: [3k]}]\n"
    )
    plan = read_plan(text, "p")
    assert named_files(plan) == {"t.json"}
    seals = [hashes(expand(plan, covered(plan, {"t.json": content}))) for content in ("a", "b")]
    assert seals[0] != seals[1]
    assert named_files(
        read_plan(HEAD.replace("some/model}", "m, tokenizer: t.json}") + METHODS + WORKLOADS, "p")
    ) == {"my/own one.yaml"}


@given(st.integers(1, 10**9))
def test_thousands_are_what_they_say(count: int) -> None:
    """'Nk' is N thousand, with up to three digits after the point."""
    assert tokens(count) == count
    assert tokens(f"{count}k") == 1000 * count
    if count % 1000:
        assert tokens(f"{count // 1000 + 1}.{count % 1000:03}k") == count + 1000


def test_an_empty_match_holds_for_everything() -> None:
    """'drop: {}' is the rest."""
    assert matches(Match(), {})


def test_context_needed_covers_every_cell() -> None:
    """A server's context is as long as the longest request of the grid, dropped or not."""
    whole = matrix(more="select: [{drop: {workload: context}}]\n")
    assert {service.context_needed for service in whole.services} == {4096 + 256}
    assert max(cell_tokens(cell) for cell in whole.services[0].cells) < 4096 + 256
