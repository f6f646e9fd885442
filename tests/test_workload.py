"""The five prompt kinds: distinct from the first characters on, the same every time, answers known."""

import ast
import json
import re
from itertools import combinations, pairwise
from statistics import mean, pvariance

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from draftmark.errors import BadInput
from draftmark.schema import PROMPT_KINDS, Cell, Chunk, Chunks, PromptKind, RequestRecord
from draftmark.workload import Tokenizer, check, prompts_used, rounds, sane_share, work
from draftmark.workload.arithmetic import ANSWERS
from draftmark.workload.arrivals import arrivals
from draftmark.workload.draw import Draw
from draftmark.workload.prompts import STREAMS, Prompt, bases, prompt, recall, sender, warmup
from draftmark.workload.sorting import ROWS
from draftmark.workload.words import fill

EACH_KIND = pytest.mark.parametrize("kind", PROMPT_KINDS)


def cell(**changes: object) -> Cell:
    spec: dict[str, object] = {
        "id": "c4-512",
        "workload": "concurrency",
        "prompts": PROMPT_KINDS,
        "max_tokens": 512,
        "requests": 16,
        "concurrency": 4,
    }
    return Cell(**(spec | changes))  # type: ignore[arg-type]


@EACH_KIND
def test_base_texts(kind: PromptKind) -> None:
    """A kind has at least 24 base texts of more than a line, each with a name of its own."""
    texts = bases(kind)
    assert len(texts) >= 24
    assert len({base.name for base in texts}) == len({base.text for base in texts}) == len(texts)
    assert min(len(base.text) for base in texts) > 100


def test_answers_cover_every_base_text() -> None:
    """Each arithmetic and sorting text has its answer and each answer its text."""
    assert set(ANSWERS) == {base.name for base in bases("arithmetic")}
    assert set(ROWS) == {base.name for base in bases("sorting")}


@pytest.mark.parametrize("seed", [0, 7])
def test_no_two_requests_share_a_prefix(seed: int) -> None:
    """Of thousands of prompts of all kinds, warm-up included, no two agree in 12 characters."""
    texts = [prompt(kind, index, seed).text for kind in PROMPT_KINDS for index in range(300)]
    texts += [warmup(kind, index, seed).text for kind in PROMPT_KINDS for index in range(300)]
    assert len({text[:12] for text in texts}) == len(texts)


def test_names_tell_apart() -> None:
    """The first 714 prompts of every stream, warm-up included, differ within eleven characters."""
    names = [
        sender(stream, index, 3, warmup=warm)
        for stream in STREAMS
        for index in range(714)
        for warm in (False, True)
    ]
    assert len({name[:11] for name in names}) == len(names) == 9_996


@settings(deadline=None)
@given(st.lists(st.integers(0, 10**9), min_size=2, max_size=20, unique=True), st.integers(0, 10**6))
def test_senders_never_repeat(indices: list[int], seed: int) -> None:
    """However far a sequence goes, each prompt comes from another person."""
    names = [sender(kind, index, seed) for index in indices for kind in PROMPT_KINDS]
    assert len(set(names)) == len(names)


@EACH_KIND
def test_data_change_when_base_texts_come_again(kind: PromptKind) -> None:
    """A base text that comes again has other data, and where the answer is known another answer."""
    count = len(bases(kind))
    for index in range(count):
        again = [prompt(kind, index + count * times, 0) for times in range(4)]
        assert len({one.text.split("\n", 1)[1] for one in again}) == 4
        assert len({(one.answer, one.ordered) for one in again}) >= (
            3 if again[0].answer or again[0].ordered else 1
        )


@EACH_KIND
def test_prompts_are_fixed_by_seed_and_place(kind: PromptKind) -> None:
    """Place and seed fix the prompt, another seed gives another, and the id alone gives it back."""
    for index in (0, 5, 99):
        made = prompt(kind, index, 3)
        assert recall(made.id) == prompt(kind, index, 3) == made
        assert prompt(kind, index, 4).text != made.text


@EACH_KIND
def test_every_place_is_filled(kind: PromptKind) -> None:
    """No prompt shows a template's braces or an empty list."""
    for index in range(2 * len(bases(kind))):
        assert not re.search(r"\{\{\w|<rows>", prompt(kind, index, 1).text)
        assert not re.search(r"\{\{\w", warmup(kind, index, 1).text)


def test_filling() -> None:
    """A word is the same wherever it stands, other labels give other words, and articles and capitals fit."""
    for seed in range(50):
        text, numbers = fill(
            "A {{animal}}, a {{Animal}}, {{ANIMAL}}, a {{animal b}}: {{3..9 n}}, {{n}}", Draw(seed)
        )
        match = re.fullmatch(r"(An?) (\w+), (an?) (\w+), (\w+), an? (\w+): (\d), (\d)", text)
        assert match is not None
        first, one, second, two, three, other, number, again = match.groups()
        assert (two, three) == (one.capitalize(), one.upper())
        assert first.lower() == second == ("an" if one[0] in "aeiou" else "a")
        assert other != one
        assert int(number) == int(again) == numbers["n"]


def test_given_code_is_python() -> None:
    """Python that code prompts hand over parses, whatever is filled in; six have 20 lines or more."""
    blocks = [
        block
        for index in range(10 * len(bases("code")))
        for block in re.findall(r"```python\n(.*?)```", prompt("code", index, 2).text, re.DOTALL)
    ]
    for block in blocks:
        ast.parse(block)
    assert sum(20 <= block.count("\n") <= 60 for block in blocks) >= 6 * 10


def solve(made: Prompt) -> str:
    """A right answer, written as a model would."""
    if made.ordered:
        return f"Step 1: {', '.join(reversed(made.ordered))}.\nResult:\n" + "\n".join(
            f"- {one}" for one in made.ordered
        )
    if made.answer is not None:
        return f"First 12 + 30 = 42.\n**Answer: {made.answer:,}**"
    return "Here it is:\n```json\n" + json.dumps({key: [{"x": 1}] for key in made.keys}, indent=2) + "\n```"


@pytest.mark.parametrize("kind", ["sorting", "arithmetic", "json"])
def test_right_and_wrong_answers(kind: PromptKind) -> None:
    """A right answer is told from one that is off by a little; a cut one by what it finished."""
    for index in range(2 * len(bases(kind))):
        made, other = prompt(kind, index, 5), prompt(kind, index + len(bases(kind)), 5)
        right = solve(made)
        assert check(made.id, right) is True
        assert check(made.id, f"{right} and so on", cut=True) is (None if kind == "sorting" else True)
        assert check(made.id, right[: len(right) // 2]) is False
        assert check(made.id, right[: len(right) // 2], cut=True) is None
        if kind != "json":
            assert check(other.id, right) is False
        if kind == "arithmetic":
            assert check(other.id, right, cut=True) is False
            assert check(made.id, right.rstrip("*"), cut=True) is None


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("Sure:\n```python\ndef f(x):\n    return x\n```\nDone.", True),
        ("```python\ndef f(x)\n    return x\n```", False),
        ("```python\nok = 1\n```\n```py\n1 +\n```", False),
        ("```rust\nfn main() {}\n```", None),
        ("```python\ndef f(x):\n    ret", None),
        ("", None),
    ],
)
def test_code_answers(text: str, verdict: bool | None) -> None:
    """Python blocks are judged once closed; other languages and no code at all are not judged."""
    assert check(prompt("code", 0, 0).id, text) is verdict
    whole = "```python\nok = 1\n```\n"
    assert check(prompt("code", 0, 0).id, f"{whole}{text}", cut=True) is True


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ('{"a": "}", "b": {"c": 1}} {"x": ', False),
        ('Here: {KEYS} and {"a": 1}', True),
        ('{"a": [1, 2', None),
        ('{"a": "never closed} ', None),
        ("{not json} {KEYS}", False),
        ("no object", None),
    ],
)
def test_a_cut_object_is_judged_once_it_is_closed(text: str, verdict: bool | None) -> None:
    """The first thing in braces decides when it ends; one that does not says nothing."""
    made = prompt("json", 0, 0)
    right = json.dumps(dict.fromkeys(made.keys, 1))
    assert check(made.id, text.replace("{KEYS}", right), cut=True) is verdict


@pytest.mark.parametrize("identity", ["creative-3-s0", "code-w0-s0", "context-3k-0-s0", "nonsense", ""])
def test_nothing_to_check(identity: str) -> None:
    """An answer whose rightness has no test gets no verdict."""
    assert check(identity, "text") is None


def test_ladder_and_queue_by_simulation() -> None:
    """Answers that come from a formula agree with doing what the prompt tells, step by step."""
    for seed in range(60):
        draw = Draw(seed)
        v = {"wall": draw.between(300, 700), "up": draw.between(41, 66), "down": draw.between(12, 29)}
        height, day = v["up"], 1
        while height < v["wall"]:
            height, day = height - v["down"] + v["up"], day + 1
        assert ANSWERS["ladder"](v) == day
        v = {"pages": draw.between(1100, 4800)}
        assert ANSWERS["pages"](v) == sum(len(str(page)) for page in range(1, v["pages"] + 1))
        v = {"rows": draw.between(2, 6), "columns": draw.between(2, 6)}
        corners = [list(combinations(range(v[side] + 1), 2)) for side in ("rows", "columns")]
        assert ANSWERS["rectangle-count"](v) == len(corners[0]) * len(corners[1])


def test_work_of_a_concurrency_cell() -> None:
    """Kinds take turns from ``first_prompt`` on, lengths are fixed, one warm-up a stream comes first."""
    made = work(cell(first_prompt=40), "measured")
    assert [one.prompt_id for one in made.requests[:6]] == [
        "code-40-s0", "sorting-40-s0", "arithmetic-40-s0", "json-40-s0", "creative-40-s0", "code-41-s0",
    ]  # fmt: skip
    assert len(made.requests) == 16
    assert prompts_used(cell()) == 4
    assert len({one.id for one in (*made.warmup, *made.requests)}) == 20
    assert {one.max_tokens for one in made.requests} == {512}
    assert all(one.ignore_eos and one.temperature == 0 for one in made.requests)
    assert [one.role for one in made.warmup] == ["warmup"] * 4
    assert {one.messages for one in made.warmup}.isdisjoint(one.messages for one in made.requests)


def test_control_repeats_the_measured_requests() -> None:
    """The control sends the same prompts at the same times under other ids, without warm-up."""
    spec = cell(rate=3.0, arrival="gamma", burstiness=2.0)
    measured, control = work(spec, "measured"), work(spec, "control")
    assert control.warmup == ()
    assert {one.role for one in control.requests} == {"control"}
    for one, other in zip(measured.requests, control.requests, strict=True):
        assert (one.prompt_id, one.messages, one.seed, one.send_at_s) == (
            other.prompt_id, other.messages, other.seed, other.send_at_s,
        )  # fmt: skip
        assert one.id != other.id


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 40), st.integers(1, 60), st.integers(1, 5), st.integers(0, 500))
def test_cells_in_disjoint_ranges_share_no_prompt(
    streams: int, requests: int, kinds: int, first: int
) -> None:
    """A cell that begins where another ends repeats none of its prompts, warm-up included."""
    one = cell(prompts=PROMPT_KINDS[:kinds], concurrency=streams, requests=requests, first_prompt=first)
    two = cell(
        prompts=PROMPT_KINDS[:kinds],
        concurrency=streams,
        requests=requests,
        first_prompt=first + prompts_used(one),
    )
    ids = [
        asked.prompt_id
        for made in (one, two)
        for sent in [work(made, "measured")]
        for asked in (*sent.warmup, *sent.requests)
    ]
    assert len(set(ids)) == len(ids)


def test_raw_prompts_are_the_text_of_the_chat() -> None:
    """Without a chat template the user's text is the prompt, as it is or in the target's token ids."""
    chat, text = work(cell()), work(cell(api="completions"))
    said = [one.messages[0].content for one in (*chat.warmup, *chat.requests)]
    assert [one.prompt for one in (*text.warmup, *text.requests)] == said
    assert {one.messages for one in text.requests} == {()}
    assert [one.prompt_id for one in text.requests] == [one.prompt_id for one in chat.requests]
    letters = Tokenizer(lambda _: 0, lambda text, special: [ord(letter) for letter in "^" * special + text])
    ids = work(cell(api="tokens"), tokenizer=letters)
    assert [one.prompt for one in ids.requests] == [
        (ord("^"), *map(ord, asked)) for asked in said[len(chat.warmup) :]
    ]
    with pytest.raises(BadInput, match="its prompts need the target's tokenizer"):
        work(cell(api="tokens"))


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 9), st.integers(0, 30), st.sampled_from([None, 4.0]))
def test_rounds_are_the_cells_own_requests_in_order(size: int, more: int, rate: float | None) -> None:
    """Rounds hold every request once, are full but for the last, and each begins its arrivals at 0."""
    spec = cell(requests=size, max_requests=size + more, precision=0.05, rate=rate)
    whole, parts = work(spec), rounds(spec, work(spec))
    assert [one.id for part in parts for one in part.requests] == [one.id for one in whole.requests]
    assert len(whole.requests) == size + more
    assert {len(part.requests) for part in parts[:-1]} <= {size}
    assert {part.requests[0].send_at_s for part in parts} == {None if rate is None else 0}
    assert [part.warmup for part in parts] == [()] * len(parts)
    gaps = [b.send_at_s - a.send_at_s for a, b in pairwise(whole.requests)] if rate else []
    kept = [b.send_at_s - a.send_at_s for part in parts for a, b in pairwise(part.requests)] if rate else []
    assert all(any(gap == pytest.approx(own, abs=1e-9) for own in gaps) for gap in kept)
    plain = cell(requests=size)
    assert work(plain).requests == work(cell(requests=size, max_requests=size + more)).requests[:size]
    assert rounds(plain, work(plain)) == (structs.replace(work(plain), warmup=()),)


def answered(prompt_id: str, text: str, finish_reason: str) -> RequestRecord:
    """A record of an answer."""
    return RequestRecord(
        request=prompt_id,
        prompt_id=prompt_id,
        kind="arithmetic",
        role="measured",
        start_s=0.0,
        chunks=Chunks([Chunk(t_s=0.1, text=text)]),
        finish_reason=finish_reason,
        max_tokens=64,
    )


DEEP = ['{"a":' * 2_000, '{"a":' * 2_000 + "1" + "}" * 2_000, "```python\n" + "(" * 5_000 + "\n```\n"]
DEEP += [
    "```python\nx = " + "a." * 9_000 + "a\n```\n",
    "```python\n" + "-" * 30_000 + "1\n```\n",
    "\n" * 50_000,
]


@pytest.mark.parametrize("kind", PROMPT_KINDS)
@pytest.mark.parametrize("cut", [True, False])
def test_no_text_upsets_a_check(kind: PromptKind, cut: bool) -> None:
    """Text that nests too deeply for a parser, or has nothing but line ends, is just not right."""
    assert {check(f"{kind}-0-s0", text, cut=cut) for text in DEEP} <= {None, False}


@given(st.text("{}[]\"'`:,.-+0123 answer\n\\python"), st.booleans(), st.sampled_from(PROMPT_KINDS))
def test_any_text_has_a_verdict(text: str, cut: bool, kind: PromptKind) -> None:
    """A check says right, wrong or nothing, whatever the model wrote."""
    assert check(f"{kind}-0-s0", f"```python\n{text}\n```\n{text}", cut=cut) in (True, False, None)


def test_only_answers_that_can_be_wrong_are_counted() -> None:
    """What was cut before it was said, and what has no right answer, says nothing of sanity."""
    right = f"Answer: {prompt('arithmetic', 0, 0).answer}"
    told = [
        answered("arithmetic-0-s0", right, "stop"),
        answered("arithmetic-0-s0", "Answer: none", "stop"),
        answered("arithmetic-0-s0", right, "length"),  # more digits could follow
        answered("arithmetic-0-s0", f"{right}\nAnswer: 1", "length"),
        answered("arithmetic-0-s0", f"Answer: 1\n{right}\n", "length"),
        answered("creative-0-s0", "Once upon a time.", "stop"),
    ]
    assert sane_share(told) == 0.5
    assert sane_share([told[2], told[5]]) is None


def test_single_stream_cell() -> None:
    """A prompts cell sends its repetitions, each with another prompt, after one short warm-up."""
    made = work(
        cell(workload="prompts", prompts=("json",), requests=3, concurrency=1, max_tokens=32), "measured"
    )
    assert [one.prompt_id for one in made.requests] == ["json-0-s0", "json-1-s0", "json-2-s0"]
    assert [(one.prompt_id, one.max_tokens) for one in made.warmup] == [("json-w0-s0", 32)]


@pytest.mark.parametrize(
    ("arrival", "burstiness", "spread"),
    [("constant", 1, 0), ("poisson", 1, 1), ("gamma", 4, 4), ("gamma", 0.25, 0.25)],
)
def test_arrival_process(arrival: str, burstiness: float, spread: float) -> None:
    """Arrivals keep the rate, and their gaps have the asked-for squared coefficient of variation."""
    times = arrivals(20_001, 5.0, arrival, burstiness, "key")  # type: ignore[arg-type]
    gaps = [b - a for a, b in pairwise(times)]
    assert times[0] == 0
    assert min(gaps) >= 0
    assert mean(gaps) == pytest.approx(0.2, rel=0.05)
    assert pvariance(gaps) / mean(gaps) ** 2 == pytest.approx(spread, rel=0.15, abs=1e-9)
    assert times == arrivals(20_001, 5.0, arrival, burstiness, "key")  # type: ignore[arg-type]
