"""The chunks of an answer: in columns they are the same as one by one."""

import pickle
import sys

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmark.schema import Chunk, Chunks, RequestRecord, chunks_in, chunks_out
from made_records import record

numbers = st.lists(st.integers(0, 2**40), max_size=3).map(tuple)
one = st.builds(
    Chunk,
    t_s=st.floats(0, 1e4),
    text=st.text(max_size=5),
    reasoning=st.just("") | st.text(max_size=5),
    tokens=st.none() | st.integers(0, 9),
    ids=st.just(()) | numbers,
    margins=st.just(()) | st.lists(st.floats(0, 9), max_size=3).map(tuple),
)


@given(st.lists(one, max_size=6))
def test_columns_hold_what_they_were_given(rows: list[Chunk]) -> None:
    """Each chunk comes back as it was, by iteration, place, slice and from the end; and so do the sums."""
    held = Chunks(rows)
    assert list(held) == rows == held[:] == [held[i] for i in range(len(rows))]
    assert held[::-2] == rows[::-2]
    assert [held[-1]] == rows[-1:] if rows else not held
    assert held.text == "".join(row.text for row in rows)
    assert held.whole_text == "".join(row.reasoning + row.text for row in rows)
    assert held.counts == [len(r.ids) or None if r.tokens is None else r.tokens for r in rows]
    assert list(held.token_times_s) == [row.t_s for row in rows if row.tokens != 0]
    with pytest.raises(IndexError):
        held[len(rows)]


@given(st.lists(one, max_size=6), st.lists(one, max_size=6))
def test_answers_are_equal_when_their_chunks_are(these: list[Chunk], those: list[Chunk]) -> None:
    """Equality is that of the chunks one by one."""
    assert (Chunks(these) == Chunks(those)) == (these == those)
    assert Chunks(these) == pickle.loads(pickle.dumps(Chunks(these)))


@given(st.lists(one, max_size=6))
def test_a_stored_record_lists_its_chunks_one_by_one(rows: list[Chunk]) -> None:
    """A line of JSON holds each chunk as an array, and reads back as the same record."""
    made = record(chunks=rows)
    line = msgspec.json.encode(made, enc_hook=chunks_out)
    assert msgspec.json.decode(line)["chunks"] == msgspec.json.decode(msgspec.json.encode(rows))
    assert msgspec.json.decode(line, type=RequestRecord, dec_hook=chunks_in) == made


def test_a_broken_chunk_is_refused() -> None:
    """What is no chunk is a validation error, and the message says where."""
    with pytest.raises(msgspec.ValidationError, match=r"`float`, got `str`"):
        chunks_in(Chunks, [["soon"]])


def test_columns_are_small() -> None:
    """A chunk of four letters takes less than 24 bytes, of which eight are its time."""
    held = Chunks(Chunk(t_s=i / 7, text="word") for i in range(10_000))
    columns = (held.t_s, held.text, held._texts.ends)
    assert sum(map(sys.getsizeof, columns)) < 24 * len(held)
