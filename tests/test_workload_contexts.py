"""Contexts: exactly as long as asked for in any tokenizer, each of other text, with a question on it."""

import re
from collections.abc import Callable, Sequence
from itertools import accumulate, combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from draftmark.errors import BadInput
from draftmark.schema import Cell, Message
from draftmark.workload import Tokenizer, check, work
from draftmark.workload.contexts import CountTokens, context, documents, passage
from draftmark.workload.draw import Draw
from draftmark.workload.fitting import fit, last_within

MERGES = {"the", "ion", "ing", "er", "re", "on", "self", "de", "turn", "s.", ". ", "n t", "e t", "in"}


def pairs(text: str) -> int:
    """Greedy longest pieces of one to four letters, some of which reach over the end of a word."""
    count = at = 0
    while at < len(text):
        at += next((size for size in (4, 3, 2) if text[at : at + size] in MERGES), 1)
        count += 1
    return count


def words(text: str) -> int:
    """A word with the space before it, cut every six letters, single digits, runs of other signs."""
    return len(re.findall(r" ?[^\W\d_]{1,6}|\d| ?[^\w\s]+|\s+(?=\S)|\s|_", text))


def characters(text: str) -> int:
    return len(text)


def utf8_pairs(text: str) -> int:
    """Two bytes to a token: padding can only change it every other time."""
    return (len(text.encode()) + 1) // 2


TOKENIZERS = [pairs, words, characters, utf8_pairs]


def chat(tokens: Callable[[str], int]) -> CountTokens:
    """A tokenizer with a chat template around each message."""

    def count(messages: Sequence[Message]) -> int:
        return 3 + sum(tokens(message.content) + 4 for message in messages)

    return count


def encode(text: str, special: bool) -> list[int]:
    """A token for each character, and one before the first if asked for."""
    return [0] * special + [ord(letter) for letter in text]


@pytest.mark.parametrize("tokens", TOKENIZERS)
@pytest.mark.parametrize("length", [2_500, 3_000, 8_001])
def test_length_is_exact(tokens: Callable[[str], int], length: int) -> None:
    """The prompt with its template has the asked-for tokens, and still holds its note and its question."""
    for index in range(3):
        made = context(length, index, 0, chat(tokens))
        assert chat(tokens)(made.messages) == length
        assert made.text.count(str(made.answer)) == 1
        assert "Two questions." in made.text[-500:]


def test_longest_usual_length() -> None:
    """A hundred thousand tokens are no trouble, and no file is in such a prompt twice."""
    made = context(100_000, 0, 0, chat(words))
    assert chat(words)(made.messages) == 100_000
    files = re.findall(r"^--- (\S+), from line \d+ ---$", made.text, re.MULTILINE)
    assert len(files) == len(set(files)) > 15


@settings(deadline=None)
@given(st.text(alphabet="ab .\nthing", min_size=30, max_size=400), st.data(), st.sampled_from(TOKENIZERS))
def test_fit_is_exact_or_says_so(text: str, data: st.DataObject, tokens: Callable[[str], int]) -> None:
    """Whatever the text and tokenizer, what is returned counts right and begins as the text does."""
    keep = data.draw(st.integers(0, 20))
    wanted = data.draw(st.integers(0, tokens(text) + 3))
    try:
        made = fit(text, wanted, tokens, keep)
    except BadInput:
        return
    assert tokens(made) == wanted
    assert made.startswith(text[:keep].rstrip())


@settings(deadline=None, max_examples=40)
@given(st.integers(200, 2_000), st.sampled_from(TOKENIZERS))
def test_fit_succeeds_on_real_text(wanted: int, tokens: Callable[[str], int]) -> None:
    """On real text every length can be had."""
    assert tokens(fit(documents()[40][1][:8_000], wanted, tokens)) == wanted


@given(st.lists(st.integers(0, 50), min_size=2, max_size=400), st.integers(0, 99))
def test_few_counts(steps: list[int], at: int) -> None:
    """The place to cut is found whatever the steps between places, on an even text with few counts."""
    heights = list(accumulate(steps))
    limit = heights[0] + (heights[-1] - heights[0]) * at // 100
    found = last_within(lambda end: heights[end] - limit, range(len(heights)))
    assert heights[found] <= limit
    assert found == len(heights) - 1 or heights[found + 1] > limit
    asked: list[int] = []
    last_within(lambda end: asked.append(end) or 7 * end - 7 * at, range(10_000))  # type: ignore[func-returns-value]
    assert len(set(asked)) <= 6


@pytest.mark.parametrize(
    ("length", "said"),
    [
        (50, "is too short: what it must hold takes"),
        (40_000_000, "is longer than the text that draftmark has"),
    ],
)
def test_impossible_lengths(length: int, said: str) -> None:
    """A length below the question's own or above all the text is refused with the reason."""
    with pytest.raises(BadInput, match=said):
        context(length, 0, 0, chat(characters))


def test_a_tokenizer_that_cannot_make_the_number() -> None:
    """Where every count is even, an odd length is refused and not approximated."""
    with pytest.raises(BadInput, match="no prompt of exactly 2001 tokens"):
        fit(documents()[0][1], 2_001, lambda text: 2 * len(text))


def test_contexts_are_distinct_and_repeatable() -> None:
    """No two contexts begin alike or in the same passage, and each is made the same way again."""
    made = [context(3_000, index, seed, chat(words)) for seed in (0, 1) for index in range(8)]
    assert len({one.text[:12] for one in made[:8]}) == 8
    bodies = [one.text.split("--- ", 1)[1] for one in made]
    assert all(one[:400] != other[:400] for one, other in combinations(bodies, 2))
    assert context(3_000, 3, 0, chat(words)) == made[3]


def test_answers() -> None:
    """An answer with the note's number is right; another is wrong unless it was cut."""
    made = context(3_000, 5, 2, chat(words))
    assert check(made.id, f"It is in Oslo, number {made.answer:,}.") is True
    assert check(made.id, "I did not find it.") is False
    assert check(made.id, "I did", cut=True) is None


def test_work_of_a_context_cell() -> None:
    """Requests go on from ``first_prompt``, and a shorter context of other text warms up."""
    cell = Cell(
        id="ctx-9k-256",
        workload="context",
        max_tokens=256,
        requests=2,
        repetitions=2,
        length=9_000,
        first_prompt=4,
    )
    tokenizer = Tokenizer(chat(words), encode)
    made = work(cell, "measured", tokenizer=tokenizer)
    assert [one.prompt_id for one in made.requests] == ["context-9000-4-s0", "context-9000-5-s0"]
    assert [chat(words)(one.messages) for one in (*made.warmup, *made.requests)] == [8_000, 9_000, 9_000]
    assert made.warmup[0].messages[0].content[:12] not in {
        one.messages[0].content[:12] for one in made.requests
    }
    assert work(cell, "control", tokenizer=tokenizer).warmup == ()
    with pytest.raises(BadInput, match="its prompts need the target's tokenizer"):
        work(cell, "measured")
    raw, ids = (
        work(structs.replace(cell, api=api), tokenizer=tokenizer) for api in ("completions", "tokens")
    )
    assert [len(str(one.prompt)) for one in raw.requests] == [8_999] * 2
    assert [one.prompt for one in ids.requests] == [
        tuple(encode(str(one.prompt), True)) for one in raw.requests
    ]


def test_corpus() -> None:
    """There is text for dozens of the longest contexts, without marks of chat templates."""
    assert sum(len(text) for _, text in documents()) > 20 * 400_000
    assert len({name for name, _ in documents()}) == len(documents())
    assert all(4_000 <= len(text) <= 120_000 for _, text in documents())
    assert not any(re.search(r"</?s>|<\|\w+\|>", text) for _, text in documents())


@settings(deadline=None)
@given(st.integers(0, 448), st.integers(300, 20_000), st.integers(0, 99))
def test_passages(at: int, longest: int, seed: int) -> None:
    """A passage is whole lines of its file from the line that it names, and no longer than allowed."""
    name, text = documents()[at]
    found = passage(name, text, longest, Draw(seed))
    assert len(found.text) <= longest
    lines = text.split("\n")[found.line - 1 :]
    shown = found.text.split("\n")
    skipped = next(n for n, line in enumerate(lines) if line)
    assert lines[skipped : skipped + len(shown)] == shown
