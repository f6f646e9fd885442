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
from collections.abc import Callable, Mapping
from time import monotonic_ns, time_ns
from typing import Any
from urllib.parse import urlsplit

import msgspec

from draftmark.errors import BadInput, RequestError
from draftmark.schema import Request, RequestRecord, Speculation
from draftmark.stream import DETAIL, Http, Timed, Transcript, server_message

IN, OUT = 1, 4
"""What a connection waits for; the values are epoll's."""

_READ = 65536
_SO_TIMESTAMPNS = 35
_TIMESPEC = struct.Struct("@ll")
_TRUSTED_LAG_NS = 1_000_000_000
_END = b"\r\n\r\n"
"""A chunked answer ends so; its other pieces do, if at all, only where events end in CR LF."""

Receive = Callable[[], Timed]
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


class KernelClock:
    """Turns the kernel's time of receipt, which is wall time, into this process's monotonic clock."""

    def __init__(self) -> None:
        self.offset_ns = 0
        self.works = False
        self.set()

    def set(self) -> None:
        """Compare the two clocks again, so that a step of the wall clock is followed."""
        before, wall, after = monotonic_ns(), time_ns(), monotonic_ns()
        self.offset_ns = wall - (before + after) // 2

    def stamped(self, sock: socket.socket) -> Receive | None:
        """A way to read this socket that tells the kernel's times; None where there are none."""
        if sys.platform != "linux":
            return None
        try:
            sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        except OSError:
            return None
        self.works = True
        recvmsg, unpack, room = sock.recvmsg, _TIMESPEC.unpack, socket.CMSG_SPACE(_TIMESPEC.size)

        def receive() -> Timed:
            data, ancillary, _, _ = recvmsg(_READ, room)
            now = monotonic_ns()
            if not ancillary:
                return now, data
            seconds, nanoseconds = unpack(ancillary[0][2])
            time = seconds * 1_000_000_000 + nanoseconds - self.offset_ns
            return (time if 0 <= now - time < _TRUSTED_LAG_NS else now), data

        return receive


class Connection:
    """A connection to the endpoint; ``advance`` until it is open, then send and receive.

    Raises RequestError of kind ``connect`` where it cannot be opened.
    """

    def __init__(self, to: Endpoint, clock: KernelClock | None, tls: ssl.SSLContext | None) -> None:
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
        self.receive: Receive = (clock.stamped(self._sock) if clock and not tls else None) or self._receive
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

    def _receive(self) -> Timed:
        data = self._sock.recv(_READ)
        return monotonic_ns(), data

    def _receive_tls(self) -> Timed:
        """All that is decrypted: what waits inside the TLS layer does not show on the socket."""
        parts = []
        try:
            while part := self._sock.recv(_READ):
                parts.append(part)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            if not parts:
                raise BlockingIOError from None
        return monotonic_ns(), b"".join(parts)

    def close(self) -> None:
        """Close it; whatever is still to come is lost."""
        self._sock.close()


class Exchange:
    """One request and what came back: times in nanoseconds of the monotonic clock, and pieces of bytes."""

    __slots__ = (
        "_eager",
        "_fed",
        "_http",
        "_resent",
        "_sent",
        "asked",
        "connection",
        "due",
        "error",
        "pieces",
        "receive",
        "request",
        "start",
        "times",
        "wire",
    )
    connection: Connection
    receive: Receive

    def __init__(self, request: Request, wire: bytes) -> None:
        self.request = request
        self.wire = wire
        self.due: int | None = None
        """Open loop: when it is to be sent."""
        self.error: RequestError | None = None
        self.asked = self.start = 0
        self._resent = False
        self._clear()

    def _clear(self) -> None:
        self.times: list[int] = []
        self.pieces: list[bytes] = []
        self._http = Http()
        self._sent = self._fed = 0
        self._eager = True

    def begin(self, connection: Connection) -> None:
        """It starts now, on an open connection."""
        self.connection = connection
        self.receive = connection.receive
        self.start = monotonic_ns()

    def send(self) -> bool:
        """Send what goes out without waiting: was that the rest? Raises OSError where the server has gone."""
        self._sent += self.connection.send(memoryview(self.wire)[self._sent :])
        return self._sent == len(self.wire)

    def take(self, time: int, data: bytes) -> bool:
        """Keep a piece; says whether the answer can be complete with it, cheaply and never wrongly no."""
        self.times.append(time)
        self.pieces.append(data)
        return self._eager or len(data) < 4 or data.endswith(_END)

    def settle(self, closed: bool) -> bool:
        """Read, as far as HTTP goes, what has not been read yet: is the answer complete?

        Raises RequestError where it is no HTTP, or ``closed`` by the server before it was complete.
        """
        http, fed = self._http, self._fed
        self._fed = len(self.pieces)
        for time, piece in zip(self.times[fed:], self.pieces[fed:], strict=True):
            http.feed(time, piece)
        if closed:
            http.end()
        self._eager = not http.chunked
        return http.complete

    @property
    def touched(self) -> int:
        """When something last happened to it."""
        return self.times[-1] if self.times else self.start

    @property
    def reusable(self) -> bool:
        """Whether the connection can carry another request."""
        return self._http.keep_alive and self._sent == len(self.wire)

    @property
    def failed(self) -> bool:
        """Whether it failed as far as can be told without reading the answer's content."""
        return self.error is not None or self._http.status != 200

    def was_stale(self) -> bool:
        """Whether it met a connection that the server had closed meanwhile; once, it can be sent again."""
        stale = self.start and self.connection.used and not self.times and not self._resent
        if not stale or self.error is None or self.error.kind not in ("cut", "reset"):
            return False
        self._resent, self.error = True, None
        self._clear()
        return True

    def answer(self) -> Http:
        """The answer, read as far as HTTP goes; raises RequestError where it is no HTTP."""
        self.settle(closed=False)
        return self._http


def record(exchange: Exchange, zero: int, speculation: SpeculationReader) -> RequestRecord:
    """What happened, in seconds from ``zero`` (start) and from the start (everything else)."""
    said = Transcript(exchange.start)
    error = _read(exchange, said) or exchange.error
    request = exchange.request
    start = exchange.start or exchange.asked
    return RequestRecord(
        request=request.id,
        prompt_id=request.prompt_id,
        kind=request.kind,
        role=request.role,
        session=request.session,
        turn=request.turn,
        start_s=(start - zero) / 1e9,
        sent_late_s=None if exchange.due is None else max(0, start - exchange.due) / 1e9,
        end_s=(exchange.times[-1] - start) / 1e9 if exchange.times else None,
        chunks=tuple(said.chunks),
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
