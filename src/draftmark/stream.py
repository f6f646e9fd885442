"""A streamed answer, from the bytes on the wire to what they carry; no I/O and no clock.

    (time, bytes) ─Http→ (time, body) ─Events→ (time, data of one event) ─Transcript→ chunks, usage, end

Each step takes what it is given in any split: the same bytes give the same answer, only the times are those
of the pieces. An event's time is that of the piece which held the end of its last ``data`` line.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

import httptools
import msgspec

from draftmark.errors import RequestError
from draftmark.schema import Chunk

Timed = tuple[int, bytes]
"""Nanoseconds on the caller's clock, and the bytes that arrived then."""

DETAIL = 500
"""Characters kept of what a server said went wrong."""

_BOM = b"\xef\xbb\xbf"
_PLAIN = re.compile(rb"[ !#-\[\]-~]+").fullmatch
"""Text that stands in JSON as it is."""


class Http:
    """One HTTP response: feed it what arrives; the pieces of its body gather in ``bodies``.

    ``feed`` raises RequestError of kind ``bad-http``. Answers of status 1xx are passed over.
    """

    def __init__(self) -> None:
        self.status = 0
        self.complete = False
        self.chunked = False
        self.keep_alive = False
        self.bodies: list[Timed] = []
        self._sized = False
        self._time = 0
        self._parser: Any = httptools.HttpResponseParser(self)

    def feed(self, time: int, data: bytes) -> None:
        """Take the next piece."""
        if self.complete:
            raise RequestError("bad-http", f"bytes after the end of the answer: {data[:40]!r}")
        self._time = time
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            raise RequestError("bad-http", f"not an HTTP answer: {error} in {data[:40]!r}") from error
        self._let_go()

    def _let_go(self) -> None:
        if self.complete:
            self.close()

    def close(self) -> None:
        """Take no more: the parser holds this object, and without that cycle both go when the answer does."""
        self._parser = None

    def end(self) -> None:
        """The server closed the connection; raises RequestError of kind ``cut`` if it owed more."""
        if not self.complete and (not self.status or self.chunked or self._sized):
            raise RequestError("cut", "the connection was closed before the answer was complete")
        self.complete, self.keep_alive = True, False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by the parser."""
        match name.lower():
            case b"transfer-encoding":
                self.chunked = b"chunked" in value.lower()
            case b"content-length":
                self._sized = True

    def on_headers_complete(self) -> None:
        """Called by the parser."""
        self.status = self._parser.get_status_code()
        self.keep_alive = self._parser.should_keep_alive()

    def on_body(self, body: bytes) -> None:
        """Called by the parser, once for each piece of a chunk."""
        self.bodies.append((self._time, body))

    def on_message_complete(self) -> None:
        """Called by the parser."""
        self.complete = self.status >= 200


class Events:
    """Server-sent events out of a body: only their data counts; comments and other fields are passed over.

    Source: https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream
    """

    def __init__(self) -> None:
        self._begun = False
        self._after_cr = False
        self._open: list[bytes] = []
        self._data: list[bytes] = []
        self._time = 0

    @property
    def between(self) -> bool:
        """Whether the last event is over and nothing of the next one has come."""
        return self._begun and not (self._open or self._data or self._after_cr)

    def feed(self, time: int, body: bytes) -> Iterator[Timed]:
        """The events that end in this piece of the body."""
        if self._after_cr and body[:1] == b"\n":
            body = body[1:]
        if not body:
            return
        self._after_cr = body.endswith(b"\r")
        self._open.append(body)
        if b"\n" in body or b"\r" in body:
            yield from self._lines(time)

    def end(self) -> Iterator[Timed]:
        """The last event, where the body ended without the empty line after it."""
        if self._data:
            yield self._dispatch()

    def _lines(self, time: int) -> Iterator[Timed]:
        text = b"".join(self._open)
        if not self._begun:
            self._begun, text = True, text.removeprefix(_BOM)
        lines = text.splitlines()
        self._open = [] if text.endswith((b"\n", b"\r")) else [lines.pop()]
        for line in lines:
            if line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
                self._time = time
            elif not line and self._data:
                yield self._dispatch()

    def _dispatch(self) -> Timed:
        event = b"\n".join(self._data)
        self._data.clear()
        return self._time, event


class _Function(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: str | None = None


class _ToolCall(msgspec.Struct):
    function: _Function | None = None


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _Likely(msgspec.Struct, gc=False):
    logprob: float


class _Token(msgspec.Struct):
    top_logprobs: list[_Likely] = []


class _Logprobs(msgspec.Struct):
    """Of the chat API; the completions API has other fields, which are passed over."""

    content: list[_Token] | None = None


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    text: str | None = None
    token_ids: list[int] | None = None
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None


class _Details(msgspec.Struct, gc=False):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None


class _Timings(msgspec.Struct, gc=False):
    """llama.cpp's; with ``timings_per_token`` they come with each chunk."""

    predicted_n: int | None = None
    cache_n: int | None = None


class _Meta(msgspec.Struct):
    """Of SGLang's ``/generate``."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    finish_reason: dict[str, Any] | None = None


class _Event(msgspec.Struct):
    """The union of what engines send: OpenAI's two routes, SGLang's native one, llama.cpp's native one."""

    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    timings: _Timings | None = None
    error: Any = None
    text: str | None = None
    output_ids: list[int] | None = None
    meta_info: _Meta | None = None
    content: str | None = None
    tokens: list[int] | None = None
    tokens_predicted: int | None = None
    tokens_evaluated: int | None = None
    stop: bool | None = None
    stop_type: str | None = None


class _Piece(msgspec.Struct):
    """What one event adds to the answer."""

    text: str = ""
    reasoning: str = ""
    ids: tuple[int, ...] = ()
    finish: str | None = None
    margins: tuple[float, ...] = ()


class Transcript:
    """What the body of one answer says; times become seconds from ``start``."""

    def __init__(self, start: int) -> None:
        self.chunks: list[Chunk] = []
        self.tail: dict[str, Any] = {}
        """The top-level fields of all events, later ones over earlier ones, without ``choices``."""
        self.prompt_tokens: int | None = None
        self.output_tokens: int | None = None
        self.cached_tokens: int | None = None
        self.finish_reason: str | None = None
        self.done = False
        self._start = start
        self._events = Events()
        self._counted: int | None = None
        self._text = ""
        self._ids: tuple[int, ...] = ()
        self._margins: tuple[float, ...] = ()
        """Those told since the last chunk: half a character comes with its margin and without text."""
        self._frame: tuple[bytes, bytes] | None = None

    def read(self, bodies: Iterable[Timed], complete: bool) -> None:
        """Take the pieces of the body, of which there are no more.

        Raises RequestError: ``bad-json`` for an event that is not what an engine sends, ``server-error`` for
        an error inside the stream, ``cut`` where a complete body did not say that it is. What was read
        before stays.
        """
        for time, body in bodies:
            if (text := self._framed(body)) is not None:
                self.chunks.append(Chunk(t_s=(time - self._start) / 1e9, text=text))
                continue
            for when, data in self._events.feed(time, body):
                self._event(when, data)
        if not complete:
            return
        for when, data in self._events.end():
            self._event(when, data)
        if not (self.done or self.finish_reason):
            raise RequestError("cut", "the stream ended without a finish reason or [DONE]")

    def _framed(self, body: bytes) -> str | None:
        """The text of a piece that is one event like the last one but for its text; None where it is not."""
        if self._frame is None or not self._events.between:
            return None
        before, after = self._frame
        if not (body.startswith(before) and body.endswith(after)):
            return None
        text = body[len(before) : -len(after)]
        return text.decode() if _PLAIN(text) else None

    def _event(self, time: int, data: bytes) -> None:
        if data == b"[DONE]":
            self.done = True
            return
        event = self._read(data)
        if event.error is not None:
            raise RequestError("server-error", _message(event.error))
        piece, total = self._piece(event), _running_total(event)
        self._note(event, piece)
        self._add(time, piece, total)
        self._frame = _frame(data, piece) if total is None and event.meta_info is None else None

    def _read(self, data: bytes) -> _Event:
        try:
            fields = msgspec.json.decode(data, type=dict[str, Any])
            event = msgspec.convert(fields, _Event)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise RequestError("bad-json", f"{error} in {data[:200]!r}") from error
        fields.pop("choices", None)
        self.tail.update(fields)
        return event

    def _piece(self, event: _Event) -> _Piece:
        if event.choices:
            return _openai(event.choices[0])
        if event.meta_info:
            return self._sglang(event, event.meta_info)
        finish = (event.stop_type or "stop") if event.stop else None
        return _Piece(event.content or "", "", tuple(event.tokens or ()), finish)

    def _sglang(self, event: _Event, meta: _Meta) -> _Piece:
        """Text and ids are cumulative unless the server streams incrementally; their own past tells."""
        text, ids = event.text or "", tuple(event.output_ids or ())
        whole = len(ids) == meta.completion_tokens if ids else text.startswith(self._text)
        if whole:
            text, ids = text[len(self._text) :], ids[len(self._ids) :]
        self._text += text
        self._ids += ids
        return _Piece(text, "", ids, str(meta.finish_reason.get("type")) if meta.finish_reason else None)

    def _note(self, event: _Event, piece: _Piece) -> None:
        self.finish_reason = piece.finish or self.finish_reason
        if usage := event.usage:
            details = usage.prompt_tokens_details
            cached = details.cached_tokens if details else None
            self._totals(usage.prompt_tokens, usage.completion_tokens, cached)
        if meta := event.meta_info:
            self._totals(meta.prompt_tokens, meta.completion_tokens, meta.cached_tokens)
        if event.stop:
            self._totals(event.tokens_evaluated, event.tokens_predicted, None)
        if event.timings:
            self._totals(None, None, event.timings.cache_n)

    def _totals(self, prompt: int | None, output: int | None, cached: int | None) -> None:
        self.prompt_tokens = self.prompt_tokens if prompt is None else prompt
        self.output_tokens = self.output_tokens if output is None else output
        self.cached_tokens = self.cached_tokens if cached is None else cached

    def _add(self, time: int, piece: _Piece, total: int | None) -> None:
        carries = bool(piece.text or piece.reasoning or piece.ids)
        self._margins += piece.margins
        new = self._new_tokens(total, carries)
        tokens = len(piece.ids) or new
        if carries or tokens:
            t_s = (time - self._start) / 1e9
            self.chunks.append(
                Chunk(
                    t_s=t_s,
                    text=piece.text,
                    reasoning=piece.reasoning,
                    tokens=tokens,
                    ids=piece.ids,
                    margins=self._margins,
                )
            )
            self._margins = ()

    def _new_tokens(self, total: int | None, carries: bool) -> int | None:
        """Tokens since the last running total; None where totals are not given as the answer runs.

        A total that first appears after text has come, or on an event without any, is the final usage.
        """
        if total is None or (self._counted is None and (self.chunks or (not carries and total))):
            return None
        new, self._counted = total - (self._counted or 0), total
        return new if new >= 0 else None


def _openai(choice: _Choice) -> _Piece:
    delta = choice.delta or _Delta(content=choice.text)
    text = delta.content or ""
    if delta.tool_calls:
        functions = [call.function for call in delta.tool_calls if call.function]
        text += "".join((function.name or "") + (function.arguments or "") for function in functions)
    reasoning = delta.reasoning_content or delta.reasoning or ""
    ids = tuple(choice.token_ids or ())
    return _Piece(text, reasoning, ids, choice.finish_reason, _margins(choice.logprobs))


def _margins(logprobs: _Logprobs | None) -> tuple[float, ...]:
    """Nats between the two likeliest tokens at each place; empty unless all of them are told."""
    likely = [
        sorted(one.logprob for one in token.top_logprobs)
        for token in (logprobs.content if logprobs and logprobs.content else ())
    ]
    return tuple(two[-1] - two[-2] for two in likely) if all(len(two) > 1 for two in likely) else ()


def _running_total(event: _Event) -> int | None:
    """Tokens generated so far, from whichever place the engine says it in."""
    if event.usage:
        return event.usage.completion_tokens
    if event.meta_info:
        return event.meta_info.completion_tokens
    return event.timings.predicted_n if event.timings else None


def _frame(data: bytes, piece: _Piece) -> tuple[bytes, bytes] | None:
    """The bytes around an event's text, where the text is all it carries and stands there only once.

    Most events differ from the one before in their text alone, and comparing what is around it tells so for a
    fraction of the cost of decoding.
    """
    if not piece.text or piece != _Piece(piece.text) or b"\n" in data:
        return None
    quoted = msgspec.json.encode(piece.text)
    before, found, after = data.partition(quoted)
    if not found or quoted in after:
        return None
    return b"data: " + before + b'"', b'"' + after + b"\n\n"


def server_message(body: bytes) -> str:
    """What the body of a refusal says, shortened."""
    try:
        said = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return body[:DETAIL].decode(errors="replace")
    error = said.get("error") or said.get("detail") if isinstance(said, dict) else None
    return _message(error or said)


def _message(error: Any) -> str:
    """What a server says went wrong, out of the shapes that engines give it."""
    if isinstance(error, dict):
        error = error.get("message") or error
    return str(error)[:DETAIL]
