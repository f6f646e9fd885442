"""An OpenAI-compatible server whose timing is known: it logs when it truly wrote what; standard library only.

Usage: timed_server.py [--port 0] [--alias NAME] [--behave JSON]; prints its port.

How it answers is a set of fields (``Behaviour``), changed for one request by a ``timed`` field in its body,
for all that follow by POST /behave, or with --behave. GET /truth returns an object for each streamed request:
when it was complete (as the kernel received it, so that this program's own haste does not count), and before
and after the write of each chunk, with its number of tokens; all in nanoseconds of CLOCK_MONOTONIC.
"""

import argparse
import dataclasses
import heapq
import itertools
import json
import selectors
import socket
import struct
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

JSON = dict[str, Any]
SO_TIMESTAMPNS = 35


@dataclass
class Behaviour:
    """How a request is answered."""

    ttft_ms: float = 20.0
    itl_ms: float = 2.0
    """Between two chunks."""
    tokens: int | None = None
    """Instead of the request's max_tokens."""
    chunk_tokens: int = 1
    word: str = " the"
    """Text of one token."""
    role_first: bool = True
    """A chat's first chunk has a role and no text, and is sent as soon as the request is complete."""
    reasoning: int = 0
    """So many first tokens are reasoning,"""
    reasoning_field: str = "reasoning_content"
    """under this name."""
    usage: str = "final"
    """``final``, ``running`` (in every chunk) or ``none``."""
    ids: bool = False
    cached_tokens: int | None = None
    newline: str = "\n"
    comments: bool = False
    """A comment before every event."""
    split: int = 0
    """Write so many bytes at a time, a moment apart; 0: whole chunks."""
    close: str = ""
    """Close the connection after each answer: ``announced``, ``silent``, or ``sole`` sign of its end."""
    fail: str = ""
    """A status (``500``), or: close, cut, json, stall, error, reset, endless, empty."""
    fail_every: int = 1
    """Of the requests that are to fail, only every so-manieth does."""
    after: int = 3
    """Chunks before a failure inside the stream."""


@dataclass
class Stream:
    """One answer under way."""

    connection: "Connection"
    how: Behaviour
    chat: bool
    tokens: int
    truth: JSON
    sent: int = 0
    chunks: int = 0
    due: float = 0.0


@dataclass
class Connection:
    """One client's connection."""

    sock: socket.socket
    inbox: bytearray = field(default_factory=bytearray)
    outbox: bytearray = field(default_factory=bytearray)
    stream: Stream | None = None
    closing: bool = False
    full: bool = False
    received_ns: int = 0


class Server:
    """One thread and a heap of what is due."""

    def __init__(self, port: int, alias: str, behaviour: Behaviour) -> None:
        self.alias, self.behaviour = alias, behaviour
        self.listener = socket.create_server(("127.0.0.1", port), backlog=4096)
        self.listener.setblocking(False)
        self.port = self.listener.getsockname()[1]
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.listener, selectors.EVENT_READ)
        self.due: list[tuple[float, int, Stream]] = []
        self.order = itertools.count()
        self.failing = itertools.count(1)
        self.truths: list[JSON] = []
        self.totals = {"prompt_tokens_total": 0, "tokens_predicted_total": 0}

    def run(self) -> None:
        while True:
            left = self.due[0][0] - time.monotonic() if self.due else 1.0
            if 0 < left < 0.002:  # a poll is too coarse for this
                time.sleep(left)
            for key, _ in self.selector.select(max(left - 0.002, 0.0)):
                self.accept() if key.fileobj is self.listener else self.ready(key.data)
            while self.due and self.due[0][0] <= time.monotonic():
                self.advance(heapq.heappop(self.due)[2])

    def accept(self) -> None:
        sock, _ = self.listener.accept()
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if sys.platform == "linux":
            sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self.selector.register(sock, selectors.EVENT_READ, Connection(sock))

    def ready(self, connection: Connection) -> None:
        self.flush(connection)
        try:
            data, connection.received_ns = receive(connection.sock)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.drop(connection)
            return
        connection.inbox += data
        while request := take_request(connection.inbox):
            self.answer(connection, *request)

    def drop(self, connection: Connection, reset: bool = False) -> None:
        if connection.sock.fileno() < 0:
            return
        if reset:
            linger = (1).to_bytes(4, sys.byteorder) + bytes(4)
            connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.selector.unregister(connection.sock)
        connection.sock.close()
        if connection.stream:
            connection.stream.truth["gone"] = True

    # --- requests ----------------------------------------------------------------------------------

    def answer(self, connection: Connection, method: str, path: str, content: bytes) -> None:
        if method == "GET":
            self.page(connection, path)
            return
        body = json.loads(content or b"{}")
        if path == "/behave":
            self.behaviour = Behaviour(**body)
            self.failing = itertools.count(1)
            self.reply(connection, 200, {})
            return
        how = dataclasses.replace(self.behaviour, **body.get("timed", {}))
        if next(self.failing) % how.fail_every:
            how.fail = ""
        if how.fail == "close":
            self.drop(connection)
        elif how.fail.isdigit():
            self.reply(connection, int(how.fail), {"error": {"message": f"refused with {how.fail}"}})
        else:
            self.begin(connection, how, path.endswith("/chat/completions"), body)

    def page(self, connection: Connection, path: str) -> None:
        counters = "".join(f"llamacpp:{name} {value}\n" for name, value in self.totals.items())
        pages: dict[str, Any] = {
            "/health": {"status": "ok"},
            "/v1/models": {"object": "list", "data": [{"id": self.alias, "object": "model"}]},
            "/metrics": counters,
            "/truth": self.truths,
        }
        self.reply(connection, 200 if path in pages else 404, pages.get(path, {}))

    def reply(self, connection: Connection, status: int, body: Any) -> None:
        content = (body if isinstance(body, str) else json.dumps(body)).encode()
        kind = "text/plain" if isinstance(body, str) else "application/json"
        head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(content)}\r\n\r\n"
        self.write(connection, head.encode() + content)

    def begin(self, connection: Connection, how: Behaviour, chat: bool, body: JSON) -> None:
        prompt = body["messages"][-1]["content"] if chat else str(body.get("prompt"))
        truth: JSON = {
            "prompt": prompt[-60:],
            "length": len(prompt),
            "messages": len(body.get("messages", ())),
            "complete_ns": connection.received_ns,
            "writes": [],
        }
        self.truths.append(truth)
        tokens = how.tokens or body.get("max_tokens", 16)
        stream = Stream(
            connection, how, chat, tokens, truth, due=connection.received_ns / 1e9 + how.ttft_ms / 1e3
        )
        connection.stream = stream
        self.totals["prompt_tokens_total"] += len(prompt) // 4
        closing = "Connection: close\r\n" if how.close in ("announced", "sole") else ""
        framing = "" if how.close == "sole" else "Transfer-Encoding: chunked\r\n"
        head = f"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n{framing}{closing}\r\n"
        self.write(connection, head.encode())
        if chat and how.role_first:
            self.event(stream, {"choices": [choice(delta={"role": "assistant", "content": ""})]})
        heapq.heappush(self.due, (stream.due, next(self.order), stream))

    # --- streams -----------------------------------------------------------------------------------

    def advance(self, stream: Stream) -> None:
        if stream.connection.sock.fileno() < 0:
            return
        how = stream.how
        if stream.chunks == how.after and how.fail not in ("", "endless", "empty"):
            self.break_off(stream)
            return
        if how.fail == "empty":
            stream.sent = stream.tokens
        else:
            self.tokens(stream)
        if stream.sent >= stream.tokens and how.fail != "endless":
            self.finish(stream)
            return
        stream.due += how.itl_ms / 1e3
        heapq.heappush(self.due, (stream.due, next(self.order), stream))

    def tokens(self, stream: Stream) -> None:
        how = stream.how
        count = how.chunk_tokens
        if how.fail != "endless":
            count = min(count, stream.tokens - stream.sent)
        if stream.sent < how.reasoning:
            count = min(count, how.reasoning - stream.sent)
        name = how.reasoning_field if stream.sent < how.reasoning else "content"
        text = how.word * count
        said = choice(delta={name: text}) if stream.chat else choice(text=text)
        if how.ids:
            said["token_ids"] = list(range(stream.sent, stream.sent + count))
        stream.sent += count
        stream.chunks += 1
        running = {"usage": self.usage(stream)} if how.usage == "running" else {}
        before = time.monotonic_ns()
        self.event(stream, {"choices": [said], **running})
        stream.truth["writes"].append([before, time.monotonic_ns(), count])

    def finish(self, stream: Stream) -> None:
        end = choice(delta={}) if stream.chat else choice(text="")
        self.event(stream, {"choices": [end | {"finish_reason": "length"}]})
        if stream.how.usage != "none":
            self.event(stream, {"choices": [], "usage": self.usage(stream)})
        self.event(stream, None)
        if stream.how.close != "sole":
            self.write(stream.connection, b"0\r\n\r\n")
        stream.truth["tokens"] = stream.sent
        self.totals["tokens_predicted_total"] += stream.sent
        if stream.how.close:
            stream.connection.closing = True
            self.flush(stream.connection)

    def usage(self, stream: Stream) -> JSON:
        cached = stream.how.cached_tokens
        details = {} if cached is None else {"prompt_tokens_details": {"cached_tokens": cached}}
        return {"prompt_tokens": 7, "completion_tokens": stream.sent, **details}

    def break_off(self, stream: Stream) -> None:
        match stream.how.fail:
            case "cut" | "reset":
                self.drop(stream.connection, reset=stream.how.fail == "reset")
            case "json":
                self.chunk(stream, b"data: {not json\n\n")
                self.finish(stream)
            case "error":
                self.event(stream, {"error": {"message": "out of memory", "code": 500}})
                self.finish(stream)

    def event(self, stream: Stream, body: JSON | None) -> None:
        fields = {"id": "timed-1", "object": "chat.completion.chunk", "created": 1, "model": self.alias}
        data = "[DONE]" if body is None else json.dumps(fields | body)
        end = stream.how.newline
        comment = f": still here{end}{end}" if stream.how.comments else ""
        self.chunk(stream, f"{comment}data: {data}{end}{end}".encode())

    def chunk(self, stream: Stream, data: bytes) -> None:
        whole = data if stream.how.close == "sole" else b"%x\r\n%b\r\n" % (len(data), data)
        size = stream.how.split or len(whole)
        for start in range(0, len(whole), size):
            self.write(stream.connection, whole[start : start + size])
            if stream.how.split:
                time.sleep(0)  # lets the client read: the pieces arrive as such

    def write(self, connection: Connection, data: bytes) -> None:
        connection.outbox += data
        self.flush(connection)

    def flush(self, connection: Connection) -> None:
        if connection.sock.fileno() < 0:
            return
        try:
            while connection.outbox:
                del connection.outbox[: connection.sock.send(connection.outbox)]
        except BlockingIOError:
            self.await_room(connection, True)
            return
        except OSError:
            self.drop(connection)
            return
        self.await_room(connection, False)
        if connection.closing:
            self.drop(connection)

    def await_room(self, connection: Connection, wait: bool) -> None:
        if wait != connection.full:
            connection.full = wait
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if wait else 0)
            self.selector.modify(connection.sock, events, connection)


def choice(**fields: Any) -> JSON:
    return {"index": 0, **fields, "finish_reason": None}


def receive(sock: socket.socket) -> tuple[bytes, int]:
    """What has arrived, and when its last byte did."""
    data, ancillary, _, _ = sock.recvmsg(1 << 20, 64)
    now = time.monotonic_ns()
    if not ancillary:
        return data, now
    seconds, nanoseconds = struct.unpack("@ll", ancillary[0][2])
    return data, now - (time.time_ns() - seconds * 1_000_000_000 - nanoseconds)


def take_request(inbox: bytearray) -> tuple[str, str, bytes] | None:
    """Method, path and content of the first request, taken out of the inbox once it is complete."""
    end = inbox.find(b"\r\n\r\n")
    if end < 0:
        return None
    first, *lines = inbox[:end].decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    whole = end + 4 + int(headers.get("content-length", 0))
    if len(inbox) < whole:
        return None
    content = bytes(inbox[end + 4 : whole])
    del inbox[:whole]
    method, path, _ = first.split(" ")
    return method, path, content


# --- for tests -------------------------------------------------------------------------------------


class Handle:
    """A running server, as a test sees it."""

    def __init__(self, process: "subprocess.Popen[str]", port: int) -> None:
        self.process = process
        self.port = port
        self.url = f"http://127.0.0.1:{port}"

    def behave(self, **fields: Any) -> None:
        data = json.dumps(fields).encode()
        urllib.request.urlopen(f"{self.url}/behave", data, timeout=10).close()

    def truth(self) -> list[JSON]:
        with urllib.request.urlopen(f"{self.url}/truth", timeout=10) as page:
            return list(json.load(page))

    def stop(self) -> None:
        self.process.kill()
        self.process.communicate()


@contextmanager
def running(*arguments: str) -> Iterator[Handle]:
    """A server on a free port, ended with the block."""
    command = [sys.executable, __file__, *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    handle = Handle(process, int(process.stdout.readline()))
    try:
        yield handle
    finally:
        handle.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--alias", default="timed")
    parser.add_argument("--behave", type=json.loads, default={})
    args = parser.parse_args()
    server = Server(args.port, args.alias, Behaviour(**args.behave))
    print(server.port, flush=True)  # noqa: T201 - whoever started it reads this
    server.run()


if __name__ == "__main__":
    main()
