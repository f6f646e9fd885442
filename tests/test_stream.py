"""Bytes on the wire to what they carry: whatever the split, whatever the engine."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmark.errors import RequestError
from draftmark.schema import Chunk
from draftmark.stream import Events, Http, Transcript, server_message

JSON = dict[str, Any]
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def sse(*events: JSON | str, end: str = "\n") -> bytes:
    """A body with these events."""
    texts = (event if isinstance(event, str) else json.dumps(event, ensure_ascii=False) for event in events)
    return "".join(f"data: {text}{end}{end}" for text in texts).encode()


def delta(finish: str | None = None, **fields: Any) -> JSON:
    return {"id": "1", "choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def read(body: bytes, start: int = 0, complete: bool = True) -> Transcript:
    said = Transcript(start)
    said.read([(1_000_000_000, body)], complete)
    return said


def said(transcript: Transcript) -> Any:
    """Everything but the times."""
    chunks = [(chunk.text, chunk.reasoning, chunk.tokens, chunk.ids) for chunk in transcript.chunks]
    t = transcript
    return chunks, t.tail, t.prompt_tokens, t.output_tokens, t.cached_tokens, t.finish_reason, t.done


# --- any split gives the same ------------------------------------------------------------------------

USAGE = {"prompt_tokens": 9, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 4}}
EVENTS: list[JSON | str] = [
    delta(role="assistant", content=""),
    delta(reasoning_content="hmm … "),
    delta(content=" the"),
    delta(content=" the"),
    delta(content=" crème brûlée 🍮"),
    delta(content=' "quoted"\n\\ '),
    delta(content="}"),
    delta(finish="stop"),
    {"choices": [], "usage": USAGE},
    "[DONE]",
]
BODIES = [
    sse(*EVENTS),
    sse(*EVENTS, end="\r\n"),
    sse(*EVENTS, end="\r"),
    b"\xef\xbb\xbf: ping\n\n" + sse(*EVENTS).replace(b"data: ", b": ping\nevent: x\nid: 1\ndata:"),
    sse(*EVENTS).replace(b'{"id": "1", ', b'{"id": "1",\ndata: '),  # an event of two data lines
    sse(*EVENTS).removesuffix(b"\n"),  # no empty line after the last event
]


def answer(body: bytes, sizes: list[int]) -> bytes:
    """The body in HTTP chunks of these sizes, the last one the rest."""
    parts, at = [], 0
    for size in sizes:
        parts.append(body[at : at + size])
        at += size
    parts.append(body[at:])
    return HEAD + b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts if part) + b"0\r\n\r\n"


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[a:b] for a, b in pairwise(edges) if a < b]


def through_http(parts: list[bytes]) -> Transcript:
    """Read an answer that arrives in these parts, the i-th one at i seconds."""
    http, transcript = Http(), Transcript(0)
    for i, part in enumerate(parts):
        assert not http.complete
        http.feed(i * 1_000_000_000, part)
    assert http.complete
    assert http.keep_alive
    transcript.read(http.bodies, http.complete)
    return transcript


WHOLE = said(read(BODIES[0]))


def test_the_whole_answer_is_understood() -> None:
    """The case that all splits are compared with is itself right."""
    texts = [(chunk.text, chunk.reasoning) for chunk in read(BODIES[0]).chunks]
    assert texts == [
        ("", "hmm … "),
        (" the", ""),
        (" the", ""),
        (" crème brûlée 🍮", ""),
        (' "quoted"\n\\ ', ""),
        ("}", ""),
    ]
    assert WHOLE[2:] == (9, 5, 4, "stop", True)
    assert WHOLE[1] == {"id": "1", "usage": USAGE}


@given(
    body=st.sampled_from(BODIES),
    sizes=st.lists(st.integers(1, 400), max_size=12),
    cuts=st.lists(st.integers(0, 10_000), max_size=12),
)
def test_any_split_gives_the_same(body: bytes, sizes: list[int], cuts: list[int]) -> None:
    """HTTP chunks and reads may end anywhere, inside a character, a line end or an event."""
    assert said(through_http(pieces(answer(body, sizes), cuts))) == WHOLE


@pytest.mark.parametrize("body", BODIES)
def test_every_byte_alone_gives_the_same(body: bytes) -> None:
    """One byte at a time, in one HTTP chunk and in one chunk a byte."""
    for wire in (answer(body, []), answer(body, [1] * len(body))):
        assert said(through_http([wire[i : i + 1] for i in range(len(wire))])) == WHOLE


@pytest.mark.parametrize("body", BODIES)
def test_every_cut_in_two_gives_the_same_and_true_times(body: bytes) -> None:
    """A chunk's time is that of the piece which held the end of its data line."""
    one_chunk = HEAD + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    before = one_chunk.index(body)
    for cut in range(1, len(one_chunk)):
        transcript = through_http([one_chunk[:cut], one_chunk[cut:]])
        assert said(transcript) == WHOLE
        early = sum(chunk.t_s == 0 for chunk in transcript.chunks)
        lines = body[: max(cut - before, 0)].replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")[:-1]
        ended = [line for line in lines if line.startswith(b"data:")]
        carrying = sum(b"content" in line and b'""' not in line for line in ended)
        assert early == carrying


@given(text=st.text(), other=st.text(), before=st.sampled_from(["", 'a"content": "x"', "\\"]))
def test_any_text_after_any_other_is_read_exactly(text: str, other: str, before: str) -> None:
    """Telling an event by what is around its text never changes the text."""
    texts = [other, text, other, text, text]
    events = [{"choices": [{"delta": {"content": t}, "finish_reason": None}], "x": before} for t in texts]
    for ascii_only in (True, False):
        body = b"".join(
            b"data: %b\n\n" % json.dumps(event, ensure_ascii=ascii_only).encode("utf-8", "replace")
            for event in events
        )
        bodies = [(0, part + b"\n\n") for part in body.split(b"\n\n")[:-1]]
        transcript = Transcript(0)
        transcript.read(bodies, complete=False)
        expected = [json.loads(part[6:])["choices"][0]["delta"]["content"] for _, part in bodies]
        assert [chunk.text for chunk in transcript.chunks] == [t for t in expected if t]


# --- what engines send -------------------------------------------------------------------------------


def chunk(text: str = "", reasoning: str = "", tokens: int | None = None, ids: tuple[int, ...] = ()) -> Chunk:
    return Chunk(t_s=1.0, text=text, reasoning=reasoning, tokens=tokens, ids=ids)


def text(text: str, finish: str | None = None, **fields: Any) -> JSON:
    return {"choices": [{"index": 0, "text": text, "finish_reason": finish}], **fields}


def test_empty_deltas_and_role_chunks_carry_no_token() -> None:
    """Null, empty and missing contents are not chunks."""
    body = sse(
        delta(role="assistant", content=None), delta(content=""), delta(content="a"), delta(finish="stop")
    )
    assert read(body).chunks == [chunk("a")]


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_reasoning_is_kept_apart(name: str) -> None:
    """Under either name it is a token-carrying chunk, and not part of the text."""
    body = sse(delta(**{name: "hm"}), delta(content="a"), "[DONE]")
    assert read(body).chunks == [chunk(reasoning="hm"), chunk("a")]


def test_tool_calls_bear_text() -> None:
    """The name and the arguments of a call count as what was generated."""
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "ls", "arguments": ""}}
    more = {"index": 0, "function": {"arguments": '{"a": 1}'}}
    body = sse(delta(tool_calls=[call]), delta(tool_calls=[more]), delta(finish="tool_calls"))
    assert [chunk.text for chunk in read(body).chunks] == ["ls", '{"a": 1}']


def test_token_ids_count_a_chunks_tokens() -> None:
    """vLLM's ids say how many tokens a chunk has, even one without text."""
    events = [delta(content="ab"), delta(content=""), delta(finish="stop")]
    events[0]["choices"][0]["token_ids"] = [5, 6]
    events[1]["choices"][0]["token_ids"] = [7]
    assert read(sse(*events)).chunks == [chunk("ab", tokens=2, ids=(5, 6)), chunk(tokens=1, ids=(7,))]


@pytest.mark.parametrize(
    "total",
    [
        lambda n: {"usage": {"prompt_tokens": 3, "completion_tokens": n}},
        lambda n: {"timings": {"predicted_n": n, "cache_n": 0}},
    ],
)
def test_running_totals_count_a_chunks_tokens(total: Any) -> None:
    """Cumulative usage (vLLM, SGLang) and timings (llama.cpp) give differences."""
    body = sse(
        delta(role="assistant", content="") | total(0),
        delta(content="abc") | total(3),
        delta(content="d") | total(4),
        delta(finish="length") | total(4),
    )
    assert read(body).chunks == [chunk("abc", tokens=3), chunk("d", tokens=1)]


@pytest.mark.parametrize("last", [text("", "length"), text("c", "length")])
def test_a_final_usage_is_no_running_total(last: JSON) -> None:
    """Usage that comes only at the end is not put down to the last chunk."""
    body = sse(text("a"), text("b"), last | {"usage": {"completion_tokens": 7}}, "[DONE]")
    transcript = read(body)
    assert {chunk.tokens for chunk in transcript.chunks} == {None}
    assert transcript.output_tokens == 7


def test_missing_usage_is_missing() -> None:
    """Chunks are never counted as tokens."""
    transcript = read(sse(text("a"), text("b", "stop")))
    assert (transcript.output_tokens, transcript.prompt_tokens, transcript.cached_tokens) == (None,) * 3


@pytest.mark.parametrize("with_ids", [True, False])
@pytest.mark.parametrize("cumulative", [True, False])
def test_sglangs_own_route(cumulative: bool, with_ids: bool) -> None:
    """Text and ids may be cumulative or not; the chunks are the same."""
    steps, events, all_text, all_ids = [("a", [1]), ("bc", [2, 3]), ("d", [4])], [], "", []
    for new_text, new_ids in steps:
        all_text, all_ids = all_text + new_text, all_ids + new_ids
        ids = {"output_ids": list(all_ids) if cumulative else new_ids} if with_ids else {}
        meta = {"prompt_tokens": 2, "completion_tokens": len(all_ids), "cached_tokens": 1}
        finish = {"type": "length", "length": 4} if len(all_ids) == 4 else None
        event = {"text": all_text if cumulative else new_text, "meta_info": meta | {"finish_reason": finish}}
        events.append(event | ids)
    transcript = read(sse(*events, "[DONE]"))
    assert [(chunk.text, chunk.tokens) for chunk in transcript.chunks] == [("a", 1), ("bc", 2), ("d", 1)]
    assert [list(chunk.ids) for chunk in transcript.chunks] == [ids if with_ids else [] for _, ids in steps]
    assert said(transcript)[2:6] == (2, 4, 1, "length")


def test_llama_cpps_own_route() -> None:
    """Its /completion has no [DONE]; totals, timings and the reason to stop stand in the last event."""
    timings = {"cache_n": 6, "predicted_n": 2, "draft_n": 4, "draft_n_accepted": 1}
    body = sse(
        {"index": 0, "content": " Ro", "tokens": [7], "stop": False},
        {"index": 0, "content": "ma", "tokens": [8], "stop": False},
        {
            "content": "",
            "tokens": [],
            "stop": True,
            "stop_type": "limit",
            "tokens_predicted": 2,
            "tokens_evaluated": 9,
            "timings": timings,
        },
    )
    transcript = read(body)
    assert transcript.chunks == [chunk(" Ro", tokens=1, ids=(7,)), chunk("ma", tokens=1, ids=(8,))]
    assert said(transcript)[2:6] == (9, 2, 6, "limit")
    assert transcript.tail["timings"] == timings


# --- what goes wrong -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "kind", "message"),
    [
        (b"data: {no json\n\n", "bad-json", "no json"),
        (b'data: {"choices": 3}\n\n', "bad-json", "choices"),
        (b"data: []\n\n", "bad-json", "object"),
        (b'data: {"choices": [{"delta": {"content": "\xff"}}]}\n\n', "bad-json", "delta"),
        (b'data: {"error": {"message": "out of memory"}}\n\n', "server-error", "out of memory"),
        (b'data: {"error": "gone"}\n\n', "server-error", "gone"),
        (sse(text("a")), "cut", "without a finish reason"),
        (b"", "cut", "without a finish reason"),
    ],
)
def test_a_bad_stream_says_what_is_wrong(body: bytes, kind: str, message: str) -> None:
    """Each kind of fault has its word, and the message quotes the server."""
    with pytest.raises(RequestError, match=message) as caught:
        read(body)
    assert caught.value.kind == kind


def test_what_came_before_a_fault_is_kept() -> None:
    """A transcript holds what was read until the fault."""
    transcript = Transcript(0)
    with pytest.raises(RequestError):
        transcript.read([(1_000_000_000, sse(text("a"), "{"))], complete=True)
    assert transcript.chunks == [chunk("a")]


@pytest.mark.parametrize("data", [b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"])
def test_what_is_not_http_says_so(data: bytes) -> None:
    """The answer of another protocol, and a broken header."""
    with pytest.raises(RequestError, match="not an HTTP answer") as caught:
        Http().feed(0, data)
    assert caught.value.kind == "bad-http"


def test_bytes_after_the_end_are_a_fault() -> None:
    """A kept connection has nothing to say between two answers."""
    http = Http()
    http.feed(0, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    with pytest.raises(RequestError, match="after the end"):
        http.feed(1, b"more")


def test_an_interim_answer_is_passed_over() -> None:
    """The real answer comes after ``100 Continue``."""
    http = Http()
    http.feed(0, b"HTTP/1.1 100 Continue\r\n\r\n")
    assert not http.complete
    http.feed(1, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    assert (http.status, http.complete, http.bodies) == (200, True, [(1, b"ok")])


@pytest.mark.parametrize("head", [b"", HEAD, b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"])
def test_a_connection_closed_too_early_is_a_cut(head: bytes) -> None:
    """Where the answer said how long it would be, and where there was none."""
    http = Http()
    http.feed(0, head + b"")
    with pytest.raises(RequestError) as caught:
        http.end()
    assert caught.value.kind == "cut"


def test_an_answer_without_length_ends_with_the_connection() -> None:
    """HTTP/1.0 servers end their answers so."""
    http = Http()
    http.feed(0, b"HTTP/1.0 200 OK\r\n\r\n" + sse(text("a", "stop")))
    assert not http.complete
    http.end()
    assert (http.complete, http.keep_alive) == (True, False)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"error": {"message": "too long", "type": "x"}}', "too long"),
        (b'{"detail": "not found"}', "not found"),
        (b'{"object": "error", "message": "bad"}', "bad"),
        (b"<html>", "<html>"),
        (b"", ""),
    ],
)
def test_a_refusals_message_is_found(body: bytes, message: str) -> None:
    """In the shapes that engines and proxies use."""
    assert message in server_message(body)


def test_many_small_pieces_of_a_long_line_are_not_slow() -> None:
    """The time for a line grows with its length, not with its square."""
    events = Events()
    found = [event for _ in range(200_000) for event in events.feed(0, b"data: x")]
    assert found == []
    assert next(events.feed(0, b"\n\n"))[1].startswith(b"xdata: x")


def test_a_margin_without_text_comes_with_the_next_text() -> None:
    """A token that is half a character has no text of its own; its margin is not lost."""

    def event(text: str, gap: float) -> bytes:
        likely = [{"logprob": -1.0}, {"logprob": -1.0 - gap}]
        choice = {"delta": {"content": text}, "logprobs": {"content": [{"top_logprobs": likely}]}}
        return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"

    transcript = Transcript(0)
    body = event("a", 5.0) + event("", 0.25) + event("\N{GRINNING FACE}", 4.0) + event("b", 2.0)
    transcript.read([(1, body + b"data: [DONE]\n\n")], complete=True)
    assert [chunk.margins for chunk in transcript.chunks] == [(5.0,), (0.25, 4.0), (2.0,)]
