"""One streamed HTTP request on a kept connection, without ever waiting: what was sent, what came, and when.

While a request runs, the bytes are only kept; they are read by ``stream`` after the measurement.
A piece's time is when the kernel received its last byte (Linux, plain TCP), so it stays true when this
process is scheduled late; elsewhere, and under TLS, it is when the piece was read.
"""

import errno
import os
import socket
import ssl
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import monotonic_ns, time_ns
from typing import Any
from urllib.parse import urlsplit

import msgspec

from draftmark.errors import BadInput, RequestError
from draftmark.schema import Chunks, Request, RequestRecord, Speculation
from draftmark.stream import DETAIL, Http, Transcript, server_message

IN, OUT = 1, 4
"""What a connection waits for; the values are epoll's."""

_READ = 65536
_SO_TIMESTAMPNS = 35
_TIMESPEC = struct.Struct("@ll")
_ROOM = socket.CMSG_SPACE(_TIMESPEC.size)
_CLOCK_STEP_NS = 200_000
_LAST_CHUNK = b"\r\n0\r\n\r\n"
_END = _LAST_CHUNK[-4:]
"""A chunked answer ends so; its other pieces do, if at all, only where events end in CR LF."""

Stamp = bytes
"""When a piece came: a ``timespec`` of the wall clock, which is what the kernel gives."""
Received = tuple[bytes, list[tuple[int, int, Stamp]], int, Any]
"""In the form of ``socket.recvmsg``."""
Receive = Callable[[], Received]
SpeculationReader = Callable[[Mapping[str, Any], int | None], Speculation | None]


class Endpoint(msgspec.Struct, frozen=True):
    """Where requests go: everything that is the same for all of them."""

    host: str
    port: int
    prefix: str
    """Path of the base URL, without a last ``/``."""
    head: str
    """Header lines."""
    tls: bool
    family: int
    address: tuple[Any, ...] | None
    """None where the name did not resolve."""

    def wire(self, path: str, body: Mapping[str, Any]) -> bytes:
        """The bytes of one POST request."""
        content = msgspec.json.encode(body)
        head = f"POST {self.prefix}{path} HTTP/1.1\r\n{self.head}Content-Length: {len(content)}\r\n\r\n"
        return head.encode() + content


def endpoint(base_url: str, headers: Mapping[str, str]) -> Endpoint:
    """Take a base URL apart and look its address up; raises BadInput on what is not an HTTP URL."""
    parts = urlsplit(base_url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadInput(f"base URL {base_url!r}: expected http://host:port or https://host")
    tls = parts.scheme == "https"
    port = parts.port or (443 if tls else 80)
    family, address = _reachable(parts.hostname, port)
    fields = {"Host": parts.netloc, "Accept": "text/event-stream", "Content-Type": "application/json"}
    head = "".join(f"{name}: {value}\r\n" for name, value in (fields | dict(headers)).items())
    return Endpoint(parts.hostname, port, parts.path.rstrip("/"), head, tls, family, address)


def _reachable(host: str, port: int) -> tuple[int, tuple[Any, ...] | None]:
    """The first of a name's addresses that takes connections, or else simply its first."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return socket.AF_INET, None
    for family, kind, protocol, _, address in found if len(found) > 1 else ():
        with socket.socket(family, kind, protocol) as probe:
            probe.settimeout(2.0)
            if probe.connect_ex(address) == 0:
                return family, address
    return found[0][0], found[0][4]


def kernel_stamps(to: Endpoint) -> bool:
    """Whether the kernel is asked when a piece came; else it is when the piece was read."""
    return sys.platform == "linux" and not to.tls


def wall_offset_ns() -> int:
    """Wall clock less monotonic clock; of some tries the one that was least disturbed."""
    tries = [(monotonic_ns(), time_ns(), monotonic_ns()) for _ in range(3)]
    before, wall, after = min(tries, key=lambda each: each[2] - each[0])
    return wall - (before + after) // 2


def stamp_now() -> Stamp:
    """In place of the kernel's."""
    return _TIMESPEC.pack(*divmod(time_ns(), 1_000_000_000))


def arrivals(stamps: Sequence[Stamp], offset_ns: int) -> list[int]:
    """Stamps on the monotonic clock, for a wall clock that is so far ahead of it."""
    times = iter(struct.unpack(f"@{2 * len(stamps)}l", b"".join(stamps)))
    return [seconds * 1_000_000_000 + rest - offset_ns for seconds, rest in zip(times, times, strict=True)]


class Connection:
    """A connection to the endpoint; ``advance`` until it is open, then send and receive.

    Raises RequestError of kind ``connect`` where it cannot be opened.
    """

    def __init__(self, to: Endpoint, tls: ssl.SSLContext | None) -> None:
        if to.address is None:
            raise RequestError("connect", f"the name {to.host} does not resolve")
        self.wants = OUT
        self.open = False
        self.used = False
        self._tls = tls
        self._host = to.host
        self._sock = socket.socket(to.family, socket.SOCK_STREAM)
        self._sock.setblocking(False)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.receive: Receive = self._receive
        if kernel_stamps(to):
            self._sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
            self.receive = partial(self._sock.recvmsg, _READ, _ROOM)
        self.fileno = self._sock.fileno()
        if (status := self._sock.connect_ex(to.address)) not in (0, errno.EINPROGRESS):
            self.close()
            raise RequestError("connect", os.strerror(status))

    def advance(self) -> None:
        """Go on with opening, as far as it goes without waiting."""
        if status := self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            raise RequestError("connect", os.strerror(status))
        self.open = self._tls is None or self._shaken(self._tls)
        if self.open:
            self.wants = IN

    def _shaken(self, tls: ssl.SSLContext) -> bool:
        try:
            if not isinstance(self._sock, ssl.SSLSocket):
                self._sock = tls.wrap_socket(
                    self._sock, server_hostname=self._host, do_handshake_on_connect=False
                )
                self.receive = self._receive_tls
            self._sock.do_handshake()
        except ssl.SSLWantReadError:
            self.wants = IN
        except ssl.SSLWantWriteError:
            self.wants = OUT
        except OSError as error:
            raise RequestError("connect", str(error)) from error
        else:
            return True
        return False

    def send(self, data: memoryview) -> int:
        """Bytes that went out; raises OSError where the server has gone."""
        try:
            return self._sock.send(data)
        except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            return 0

    def _receive(self) -> Received:
        data = self._sock.recv(_READ)
        return data, [(0, 0, stamp_now())], 0, None

    def _receive_tls(self) -> Received:
        """All that is decrypted: what waits inside the TLS layer does not show on the socket."""
        parts = []
        try:
            while part := self._sock.recv(_READ):
                parts.append(part)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            if not parts:
                raise BlockingIOError from None
        return b"".join(parts), [(0, 0, stamp_now())], 0, None

    def close(self) -> None:
        """Close it; whatever is still to come is lost."""
        self._sock.close()


class Exchange:
    """One request and what came back, as it came; times are nanoseconds of the monotonic clock."""

    __slots__ = (
        "_closed",
        "_http",
        "_offset",
        "_parsed",
        "_resent",
        "_seen",
        "_sent",
        "asked",
        "connection",
        "due",
        "error",
        "log",
        "request",
        "start",
        "touched",
        "wire",
    )
    connection: Connection

    def __init__(self, request: Request, wire: bytes) -> None:
        self.request = request
        self.wire = wire
        self.due: int | None = None
        """Open loop: when it is to be sent."""
        self.error: RequestError | None = None
        self.asked = self.start = self.touched = 0
        self._offset = 0
        self._resent = self._closed = False
        self._clear()

    def _clear(self) -> None:
        self.log: list[bytes] = []
        """For each read its stamp, then its bytes: one flat list, as the loop has no time to spare."""
        self._http = Http()
        self._sent = self._parsed = self._seen = 0

    def begin(self, connection: Connection) -> None:
        """It starts now, on an open connection."""
        self.connection = connection
        self._offset = wall_offset_ns()
        self.start = self.touched = monotonic_ns()

    def send(self) -> None:
        """Send what goes out without waiting; raises OSError where the server has gone."""
        self._sent += self.connection.send(memoryview(self.wire)[self._sent :])

    @property
    def sent(self) -> bool:
        """Whether all of the request has gone out."""
        return self._sent == len(self.wire)

    @property
    def streaming(self) -> bool:
        """Whether the request is out and an answer in chunks began: from now on ``maybe_last`` will do."""
        return self._http.chunked and self._http.status == 200 and self.sent

    def ended(self, closed: bool) -> bool:
        """Whether the answer is complete; the last chunk is known by its bytes, so that it costs no parsing.

        Raises RequestError where it is no HTTP, or ``closed`` by the server before it was complete.
        """
        if self._http.chunked and not closed and self._tail() == _LAST_CHUNK:
            return True
        self._closed = closed
        self._parse()
        if closed:
            self._http.end()
        return self._http.complete

    def close(self) -> None:
        """It is over: check that the clock which its stamps are of has not been set meanwhile."""
        if self.error is None and abs(wall_offset_ns() - self._offset) > _CLOCK_STEP_NS:
            self.error = RequestError("clock", "the machine's wall clock was set while it ran")

    def _tail(self) -> bytes:
        size = len(_LAST_CHUNK)
        return b"".join(piece[-size:] for piece in self.log[1::2][-size:])[-size:]

    def _parse(self) -> None:
        """Read, as far as HTTP goes, what has not been read yet."""
        new, self._parsed = self.log[self._parsed :], len(self.log)
        for time, piece in zip(arrivals(new[::2], self._offset), new[1::2], strict=True):
            self._http.feed(time, piece)

    def notice(self, now: int) -> None:
        """Keep ``touched`` at when something was last seen to have come."""
        if len(self.log) != self._seen:
            self._seen, self.touched = len(self.log), now

    @property
    def last_arrival(self) -> int | None:
        """Of the last byte."""
        return arrivals(self.log[-2:-1], self._offset)[0] if self.log else None

    @property
    def reusable(self) -> bool:
        """Whether the connection can carry another request."""
        return self._http.keep_alive and self.sent

    @property
    def failed(self) -> bool:
        """Whether it failed as far as can be told without reading the answer's content."""
        return self.error is not None or self._http.status != 200

    def was_stale(self) -> bool:
        """Whether it met a connection that the server had closed meanwhile; once, it can be sent again."""
        stale = self.start and self.connection.used and not self.log and not self._resent
        if not stale or self.error is None or self.error.kind not in ("cut", "reset"):
            return False
        self._resent, self.error = True, None
        self._clear()
        return True

    def stowed(self) -> list[Any]:
        """All that there is to know of it once it is over, besides the request; of plain values."""
        self._http.close()
        error = self.error and (self.error.kind, self.error.message)
        return [self.asked, self.start, self.due, self._offset, self._closed, error, self.log]

    @classmethod
    def restored(cls, request: Request, stowed: list[Any]) -> "Exchange":
        """The reverse of ``stowed``."""
        exchange = cls(request, b"")
        asked, start, due, offset, closed, error, log = stowed
        exchange.asked, exchange.start, exchange.due = asked, start, due
        exchange._offset, exchange._closed, exchange.log = offset, closed, log
        exchange.error = error and RequestError(*error)
        return exchange

    def answer(self) -> Http:
        """The answer, read as far as HTTP goes; raises RequestError where it is no HTTP."""
        self._parse()
        self._http.close()
        if self.error is None and self._closed:
            self._http.end()
        if self.error is None and not self._http.complete:
            raise RequestError("bad-http", "what looked like the last chunk was not the end of the answer")
        return self._http


def maybe_last(piece: bytes) -> bool:
    """Whether an answer in chunks can be complete with this piece; cheap, and never wrongly no."""
    return piece.endswith(_END) or len(piece) < len(_LAST_CHUNK)


def record(exchange: Exchange, zero: int, speculation: SpeculationReader) -> RequestRecord:
    """What happened, in seconds from ``zero`` (start) and from the start (everything else)."""
    said = Transcript(exchange.start)
    error = _read(exchange, said) or exchange.error
    request = exchange.request
    start, last = exchange.start or exchange.asked, exchange.last_arrival
    return RequestRecord(
        request=request.id,
        prompt_id=request.prompt_id,
        kind=request.kind,
        role=request.role,
        session=request.session,
        turn=request.turn,
        start_s=(start - zero) / 1e9,
        sent_late_s=None if exchange.due is None else max(0, start - exchange.due) / 1e9,
        end_s=None if last is None else (last - start) / 1e9,
        chunks=Chunks(said.chunks),
        prompt_tokens=said.prompt_tokens,
        output_tokens=said.output_tokens,
        cached_tokens=said.cached_tokens,
        finish_reason=said.finish_reason,
        max_tokens=request.max_tokens,
        speculation=speculation(said.tail, said.output_tokens) if said.tail else None,
        error=error.kind if error else None,
        error_detail=error.message[:DETAIL] if error else "",
    )


def _read(exchange: Exchange, said: Transcript) -> RequestError | None:
    """Fill the transcript; what the answer itself says went wrong, if anything."""
    try:
        http = exchange.answer()
        if http.status not in (0, 200):
            body = b"".join(body for _, body in http.bodies)
            return RequestError(f"http-{http.status}", server_message(body))
        said.read(http.bodies, http.complete)
    except RequestError as error:
        return error
    return None
