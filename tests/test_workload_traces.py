"""Imported traffic: conversations become requests, traces keep their lengths, times and shared prefixes."""

import json
from itertools import takewhile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftmark.errors import BadInput
from draftmark.workload.traces import BLOCK, mooncake, sharegpt


def encode(text: str) -> list[int]:
    """Two characters to a token."""
    return [ord(text[at]) * 256 + ord(text[at + 1 : at + 2] or " ") for at in range(0, len(text), 2)]


def test_sharegpt() -> None:
    """Each conversation that a person opens gives its first question; the others are left out."""
    entries = [
        {"id": "a", "conversations": [{"from": "human", "value": "Hi?"}, {"from": "gpt", "value": "Yes."}]},
        {"id": "b", "conversations": [{"from": "gpt", "value": "Well."}]},
        {"conversations": [{"from": "user", "value": "And now?"}], "more": 1},
        {"id": "d", "conversations": []},
    ]
    made = sharegpt(json.dumps(entries), "s.json", 128)
    assert [(one.prompt_id, one.messages[0].content) for one in made] == [
        ("sharegpt-0-a", "Hi?"),
        ("sharegpt-2", "And now?"),
    ]
    assert {one.max_tokens for one in made} == {128}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[\n{"id": 1,}]', r"s\.json:2: not valid JSON"),
        ('{"a": 1}', r"s\.json: Expected `array`"),
        ('[{"id": "x"}]', r"s\.json: Object missing required field `conversations` - at `\$\[0\]`"),
        ('[{"conversations": [{"from": "gpt", "value": "x"}]}]', r"s\.json: no conversation"),
        ("[]", r"s\.json: no conversation"),
    ],
)
def test_sharegpt_errors(text: str, said: str) -> None:
    """What is no such file is refused with the place."""
    with pytest.raises(BadInput, match=said):
        sharegpt(text, "s.json", 128)


def line(timestamp: float, length: int, hashes: list[int]) -> str:
    return json.dumps(
        {"timestamp": timestamp, "input_length": length, "output_length": 7, "hash_ids": hashes}
    )


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
    made = mooncake(text, "m.jsonl", encode, 0)
    assert [len(one.prompt or ()) for one in made] == lengths
    first = min(at for at, _, _ in rows)
    assert [one.send_at_s for one in made] == [(at - first) / 1000 for at, _, _ in rows]
    for one, (_, hashes, _) in zip(made, rows, strict=True):
        blocks = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(hashes, rows[0][1], strict=False))))
        tokens = list(zip(one.prompt or (), made[0].prompt or (), strict=False))
        same = len(list(takewhile(lambda pair: pair[0] == pair[1], tokens)))
        assert min(BLOCK * blocks, len(tokens)) <= same < max(1, BLOCK * blocks + 5)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", r"m\.jsonl: the file is empty"),
        (line(0, 512, [1]) + "\n{", r"m\.jsonl:2: "),
        (line(0, 513, [1]), r"m\.jsonl:1: hash_ids: expected 2 of them for 513 tokens, got 1"),
        (line(0, 0, []), r"m\.jsonl:1: .*>= 1.*input_length"),
        (line(-1, 5, [1]), r"m\.jsonl:1: .*>= 0.*timestamp"),
        ('{"timestamp": 0}', r"m\.jsonl:1: Object missing required field `input_length`"),
    ],
)
def test_mooncake_errors(text: str, said: str) -> None:
    """A line that is wrong is refused with its number."""
    with pytest.raises(BadInput, match=said):
        mooncake(text, "m.jsonl", encode, 0)
