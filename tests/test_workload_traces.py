"""Recorded traffic: conversations become requests, traces keep their lengths, times and shared prefixes."""

import json
from collections.abc import Sequence
from itertools import pairwise, takewhile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftmark.errors import BadInput
from draftmark.schema import Cell, Request
from draftmark.workload import Tokenizer, check_files, work
from draftmark.workload.traces import BLOCK


def encode(text: str, special: bool = False) -> list[int]:
    """Two characters to a token."""
    pairs = [ord(text[at]) * 256 + ord(text[at + 1 : at + 2] or " ") for at in range(0, len(text), 2)]
    return [0] * special + pairs


TOKENIZER = Tokenizer(lambda messages: len(encode(messages[0].content)), encode)


def cell(**changes: object) -> Cell:
    spec: dict[str, object] = {
        "id": "trace-s-c2",
        "workload": "trace",
        "trace": "s.json",
        "format": "sharegpt",
        "max_tokens": 128,
        "longest": 4096,
        "requests": 2,
        "concurrency": 2,
    }
    return Cell(**(spec | changes))  # type: ignore[arg-type]


def made(text: str, **changes: object) -> tuple[Request, ...]:
    spec = cell(**changes)
    return work(spec, tokenizer=TOKENIZER, files={str(spec.trace): text}).requests


# --- ShareGPT --------------------------------------------------------------------------------------


def talk(*turns: tuple[str, str], **more: object) -> dict[str, object]:
    return {"conversations": [{"from": who, "value": text} for who, text in turns], **more}


TALKS = json.dumps(
    [
        talk(("human", "Hi?"), ("gpt", "Yes."), id="a"),
        talk(("gpt", "Well."), id="b"),
        talk(("user", " And now?\n"), more=1),
        talk(id="d"),
        talk(("human", "  "), id="e"),
        talk(("human", "x" * 5000), id="long"),
        talk(("human", "Ä" * 2048), id="just"),
    ],
    indent=1,
    ensure_ascii=False,
)


def test_a_conversation_gives_its_first_question() -> None:
    """Each one that a person opens with a short enough text is used once; the others are left out."""
    asked = made(TALKS, requests=3)
    assert [(one.prompt_id, one.messages[0].content) for one in asked] == [
        ("sharegpt-0-a", "Hi?"),
        ("sharegpt-2", "And now?"),
        ("sharegpt-6-just", "Ä" * 2048),
    ]
    assert {(one.max_tokens, one.send_at_s) for one in asked} == {(128, None)}
    later = made(TALKS, requests=1, first_prompt=2, rate=1.0, arrival="constant", concurrency=1)
    assert [(one.prompt_id, one.send_at_s) for one in later] == [("sharegpt-6-just", 0.0)]


def test_a_trace_warms_up_with_other_prompts() -> None:
    """As many as run at once come first, and none of the recorded ones is among them."""
    sent = work(cell(), tokenizer=TOKENIZER, files={"s.json": TALKS})
    assert len(sent.warmup) == 2
    assert {one.messages for one in sent.warmup}.isdisjoint(one.messages for one in sent.requests)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[\n{"id": 1,}]', r"s\.json:2: not valid JSON"),
        ('{"a": 1}', r"s\.json:1: not a JSON list"),
        ("", r"s\.json:1: not a JSON list"),
        (
            '[\n\n {"id": "x"}]',
            r"s\.json:3: Object missing required field `conversations`",
        ),
        ('[{"conversations": []}\n {"conversations": []}]', r"s\.json:2: not valid JSON: expected ',' or"),
        ('[{"conversations": []}', r"s\.json:1: not valid JSON: expected ',' or"),
        ('[{"conversations": []},\n]', r"s\.json:2: not valid JSON"),
        (json.dumps([talk(("gpt", "x"))]), r"s\.json: 'trace-s-c2' needs 2 conversations .* it has 0"),
        ("[]", r"s\.json: 'trace-s-c2' needs 2 conversations .* it has 0"),
    ],
)
def test_no_conversations(text: str, said: str) -> None:
    """What is no such file, or has too little in it, is one error with the place, before anything is sent."""
    with pytest.raises(BadInput, match=said) as caught:
        check_files(cell(), {"s.json": text})
    assert caught.value.hint
    with pytest.raises(BadInput, match=said):
        made(text)


def test_a_file_that_was_not_read() -> None:
    """A cell without the text of its file is an error that names the file."""
    with pytest.raises(BadInput, match=r"s\.json was not read"):
        check_files(cell(), {})


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(st.lists(texts, min_size=1), st.sampled_from([None, 0, 3]))
def test_any_question_arrives_as_it_is(questions: list[str], indent: int | None) -> None:
    """However the file is written, the questions are those of the file, stripped, in its order."""
    wanted = [text.strip() for text in questions if text.strip()]
    text = json.dumps([talk(("human", one)) for one in questions], indent=indent, ensure_ascii=indent == 3)
    if wanted:
        asked = made(text, requests=len(wanted), concurrency=1)
        assert [one.messages[0].content for one in asked] == wanted


# --- Mooncake --------------------------------------------------------------------------------------


def line(timestamp: float, length: int, hashes: Sequence[int], output: int = 7) -> str:
    return json.dumps(
        {"timestamp": timestamp, "input_length": length, "output_length": output, "hash_ids": hashes}
    )


MOONCAKE = {"trace": "m.jsonl", "format": "mooncake", "concurrency": 1, "speedup": 2.0}


def together(one: Request, other: Request) -> int:
    """Tokens that two prompts share from their beginning."""
    tokens = zip(one.prompt or (), other.prompt or (), strict=False)
    return len(list(takewhile(lambda pair: pair[0] == pair[1], tokens)))


@settings(max_examples=20, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 10**6), st.lists(st.integers(0, 4), min_size=1, max_size=4), st.integers(1, BLOCK)
        ),
        min_size=1,
        max_size=5,
    )
)
def test_mooncake_keeps_lengths_times_and_prefixes(rows: list[tuple[int, list[int], int]]) -> None:
    """Prompts have the recorded lengths and times, and share tokens exactly as far as they share hash ids."""
    lengths = [BLOCK * (len(hashes) - 1) + last for _, hashes, last in rows]
    text = "\n".join(line(at, length, hashes) for (at, hashes, _), length in zip(rows, lengths, strict=True))
    asked = made(text, **MOONCAKE, requests=len(rows))
    assert [len(one.prompt or ()) for one in asked] == lengths
    first = min(at for at, _, _ in rows)
    assert [one.send_at_s for one in asked] == [(at - first) / 2000 for at, _, _ in rows]
    for one, (_, hashes, _) in zip(asked, rows, strict=True):
        blocks = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(hashes, rows[0][1], strict=False))))
        same, most = together(one, asked[0]), min(len(one.prompt or ()), len(asked[0].prompt or ()))
        assert min(BLOCK * blocks, most) <= same < BLOCK * blocks + 10


def test_cells_of_one_trace_share_lengths_and_no_text() -> None:
    """Each cell has the same lines, with blocks of its own, and answers no longer than its limit."""
    text = "\n".join(line(100 * at, 1000, [1, at], output=50 * at + 1) for at in range(4))
    one = made(text, **MOONCAKE, requests=4)
    other = made(text, **(MOONCAKE | {"speedup": None, "concurrency": 2}), requests=4, first_prompt=4)
    assert [len(sent.prompt or ()) for sent in (*one, *other)] == [1000] * 8
    assert together(one[0], other[0]) < 10
    assert [sent.max_tokens for sent in other] == [1, 51, 101, 128]
    assert {sent.send_at_s for sent in other} == {None}
    assert len({sent.prompt_id for sent in (*one, *other)}) == 8
    paced = made(text, **(MOONCAKE | {"speedup": None, "rate": 4.0, "arrival": "constant"}), requests=4)
    assert [b.send_at_s - a.send_at_s for a, b in pairwise(paced)] == [0.25] * 3  # type: ignore[operator]


def test_longer_prompts_are_left_out() -> None:
    """A line with more tokens than the cell takes is passed over, and the first that is sent is sent at 0."""
    text = "\n".join([line(0, 5000, [*range(10)]), "", line(3000, 4096, [*range(8)]), line(4000, 1, [3])])
    asked = made(text, **MOONCAKE)
    assert [(len(one.prompt or ()), one.send_at_s) for one in asked] == [(4096, 0.0), (1, 0.5)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", r"m\.jsonl: 'trace-s-c2' needs 2 requests with at most 4096 tokens, and it has 0"),
        (line(0, 512, [1]) + "\n{", r"m\.jsonl:2: "),
        (line(0, 513, [1]), r"m\.jsonl:1: hash_ids: expected 2 of them for 513 tokens, got 1"),
        (line(0, 0, []), r"m\.jsonl:1: .*>= 1.*input_length"),
        (line(-1, 5, [1]), r"m\.jsonl:1: .*>= 0.*timestamp"),
        ('{"timestamp": 0}', r"m\.jsonl:1: Object missing required field `input_length`"),
    ],
)
def test_no_trace(text: str, said: str) -> None:
    """A line that is wrong is refused with its number, before anything is sent."""
    with pytest.raises(BadInput, match=said):
        check_files(cell(**MOONCAKE), {"m.jsonl": text})
    with pytest.raises(BadInput, match=said):
        made(text, **MOONCAKE)
