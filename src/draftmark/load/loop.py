"""The loop that sends and receives: one thread, no parsing while requests run, no wait but the poll."""

import select
import ssl
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from math import ceil
from time import monotonic_ns, sleep
from typing import Any

from draftmark.client import (
    IN,
    OUT,
    Connection,
    Endpoint,
    Exchange,
    Receive,
    arrivals,
    kernel_stamps,
    maybe_last,
    stamp_now,
    wall_offset_ns,
)
from draftmark.errors import RequestError
from draftmark.load.schedule import Schedule
from draftmark.load.shelf import Shelf

TICK_NS = 250_000_000
"""Between two looks at the time limits."""
NAP_FROM, NAP_S = 32, 0.001
"""With so many requests running, arrivals may gather before they are read: the kernel keeps their times."""
LATE_NS = 5_000_000
LAG_STEP_NS = 16_384
"""Loop lag is counted in steps of it."""

Poll = Callable[[float], Sequence[tuple[int, int]]]


class Limits:
    """When a request, or the whole run, is given up; seconds become nanoseconds."""

    def __init__(self, timeout_s: float, stall_s: float, failures: int) -> None:
        self.timeout = round(timeout_s * 1e9)
        self.stall = round(stall_s * 1e9)
        self.failures = failures


class Loop:
    """Runs schedules against one endpoint over kept connections; what has ended goes to ``shelf``."""

    def __init__(self, to: Endpoint, limits: Limits) -> None:
        self._to = to
        self._limits = limits
        self.shelf = Shelf()
        self._tls = ssl.create_default_context() if to.tls else None
        self._poller, self._poll = _poller()
        self._running: dict[int, Exchange] = {}
        self._streaming: dict[int, tuple[Receive, Callable[[bytes], None], Exchange]] = {}
        """Of the running ones those whose pieces only have to be kept: how to receive, and where to keep."""
        self._opening: dict[int, tuple[Connection, Exchange | None]] = {}
        self._idle: dict[int, Connection] = {}
        self._watched: dict[int, Callable[[], None]] = {}
        self._ended: deque[Exchange] = deque()
        self._failures = 0
        self._offset = wall_offset_ns()
        self.kernel_times = kernel_stamps(to)
        """Arrivals are timed by the kernel, so that a late look changes none of them."""
        self.completed = 0
        self.late = 0
        """Requests sent ``LATE_NS`` after their time."""
        self.lags: defaultdict[int, int] = defaultdict(int)
        """How often the loop was so many ``LAG_STEP_NS`` late in reading what had arrived."""

    def watch(self, fd: int, on_ready: Callable[[], None]) -> None:
        """Call back whenever this file descriptor can be read."""
        self._watched[fd] = on_ready
        self._poller.register(fd, IN)

    @property
    def gave_up(self) -> bool:
        """So many requests failed in a row that no more are sent."""
        return self._failures >= self._limits.failures

    def connect(self, count: int) -> None:
        """Have this many connections open, or found impossible to open."""
        for _ in range(count - len(self._idle)):
            self._open(None)
        deadline = monotonic_ns() + self._limits.stall
        while self._opening and monotonic_ns() < deadline:
            self._read_ready(0.1)
        for fd in [*self._opening]:
            self._close(self._opening.pop(fd)[0])

    def run(self, schedule: Schedule, on_tick: Callable[[int], None]) -> None:
        """Until everything is sent and has ended, or was given up."""
        self.completed, tick = 0, monotonic_ns()
        while self._running or self._opening or (schedule.left() and not self.gave_up):
            self._start_due(schedule)
            self._read_ready(self._wait(schedule))
            if (now := monotonic_ns()) >= tick:
                tick = now + TICK_NS
                self._offset = wall_offset_ns()
                self._check_limits(now)
                on_tick(self.completed)
            while self._ended:
                self._finish(self._ended.popleft(), schedule)
            self.shelf.tidy()
        on_tick(self.completed)

    def close(self) -> None:
        """Close every connection."""
        for connection in self._idle.values():
            connection.close()

    # --- sending ---------------------------------------------------------------------------------

    def _start_due(self, schedule: Schedule) -> None:
        while not self.gave_up and (
            exchange := schedule.take(monotonic_ns(), len(self._running) + len(self._opening))
        ):
            if self._idle:
                self._begin(self._idle.popitem()[1], exchange)
            else:
                self._open(exchange)

    def _open(self, exchange: Exchange | None) -> None:
        """Open a connection, for this exchange or for later."""
        try:
            connection = Connection(self._to, self._tls)
        except RequestError as error:
            self._not_opened(exchange, error)
            return
        if exchange:
            exchange.asked = monotonic_ns()
        self._opening[connection.fileno] = (connection, exchange)
        self._poller.register(connection.fileno, connection.wants)

    def _advance(self, fd: int) -> None:
        connection, exchange = self._opening[fd]
        try:
            connection.advance()
        except RequestError as error:
            del self._opening[fd]
            self._close(connection)
            self._not_opened(exchange, error)
            return
        self._poller.modify(fd, connection.wants)
        if connection.open:
            del self._opening[fd]
            if exchange:
                self._begin(connection, exchange)
            else:
                self._idle[fd] = connection

    def _not_opened(self, exchange: Exchange | None, error: RequestError) -> None:
        if exchange:
            exchange.error = error
            self._ended.append(exchange)

    def _begin(self, connection: Connection, exchange: Exchange) -> None:
        self._running[connection.fileno] = exchange
        exchange.begin(connection)
        self._send(exchange)

    def _send(self, exchange: Exchange) -> None:
        connection = exchange.connection
        try:
            exchange.send()
        except OSError as error:
            self._release(exchange, RequestError("reset", str(error)))
            return
        wants = IN if exchange.sent else IN | OUT
        if wants != connection.wants:
            connection.wants = wants
            self._poller.modify(connection.fileno, wants)

    # --- receiving -------------------------------------------------------------------------------

    def _wait(self, schedule: Schedule) -> float:
        """Seconds to poll for; a poll is too coarse for the last two milliseconds before a send."""
        if self._ended:
            return 0.0
        if len(self._streaming) >= NAP_FROM and self.kernel_times:
            sleep(NAP_S)
        wake = schedule.wake()
        if wake is None or self.gave_up:
            return TICK_NS / 1e9
        left = (wake - monotonic_ns()) / 1e9
        if left > 0.002:
            return min(left - 0.002, TICK_NS / 1e9)
        sleep(max(left, 0.0))
        return 0.0

    def _read_ready(self, timeout: float) -> None:
        """Take what has arrived, with its stamps: the one place where speed matters."""
        streaming, first = self._streaming, None
        for fd, events in self._poll(timeout):
            entry = streaming.get(fd)
            if entry is None:
                self._other(fd, events)
                continue
            receive, keep, exchange = entry
            try:
                piece, beside, _, _ = receive()
            except OSError as error:
                self._not_received(exchange, error)
                continue
            if piece:
                stamp = beside[0][2] if beside else stamp_now()
                first = first or stamp
                keep(stamp)
                keep(piece)
            if maybe_last(piece):
                self._perhaps_ended(exchange, closed=not piece)
        if first:
            lag = monotonic_ns() - arrivals((first,), self._offset)[0]
            self.lags[max(lag, 0) // LAG_STEP_NS] += 1

    def _other(self, fd: int, events: int) -> None:
        if exchange := self._running.get(fd):
            if events & OUT:
                self._send(exchange)
            else:
                self._receive(exchange)
        elif fd in self._opening:
            self._advance(fd)
        elif fd in self._watched:
            self._watched[fd]()
        elif connection := self._idle.pop(fd, None):
            self._close(connection)  # nothing is owed on it, so the server has closed it

    def _receive(self, exchange: Exchange) -> None:
        """Any piece may be the last one until it is known how the answer will end."""
        try:
            piece, beside, _, _ = exchange.connection.receive()
        except OSError as error:
            self._not_received(exchange, error)
            return
        if piece:
            exchange.log += (beside[0][2] if beside else stamp_now(), piece)
            self.kernel_times &= bool(beside)  # some sandboxes' kernels take the option and give no stamp
        self._perhaps_ended(exchange, closed=not piece)
        connection = exchange.connection
        if connection.fileno in self._running and exchange.streaming:
            self._streaming[connection.fileno] = (connection.receive, exchange.log.append, exchange)

    def _not_received(self, exchange: Exchange, error: OSError) -> None:
        if not isinstance(error, BlockingIOError):
            self._release(exchange, RequestError("reset", str(error)))

    def _perhaps_ended(self, exchange: Exchange, closed: bool) -> None:
        try:
            if exchange.ended(closed):
                self._release(exchange, None)
        except RequestError as error:
            self._release(exchange, error)

    # --- the end of an exchange ------------------------------------------------------------------

    def _release(self, exchange: Exchange, error: RequestError | None) -> None:
        """Take the exchange off its connection, and keep the connection if the server will."""
        connection = exchange.connection
        del self._running[connection.fileno]
        self._streaming.pop(connection.fileno, None)
        exchange.error = error
        exchange.close()
        self._ended.append(exchange)
        if error is None and exchange.reusable:
            connection.used = True
            self._idle[connection.fileno] = connection
        else:
            self._close(connection)

    def _close(self, connection: Connection) -> None:
        self._poller.unregister(connection.fileno)
        connection.close()

    def _finish(self, exchange: Exchange, schedule: Schedule) -> None:
        if exchange.was_stale():
            self._open(exchange)
            return
        self.completed += 1
        self._failures = self._failures + 1 if exchange.failed else 0
        self.late += exchange.due is not None and exchange.start - exchange.due > LATE_NS
        schedule.ended(exchange)
        self.shelf.add(exchange)

    def _check_limits(self, now: int) -> None:
        timeout, stall = self._limits.timeout, self._limits.stall
        for exchange in [*self._running.values()]:
            exchange.notice(now)
            if now - exchange.start > timeout:
                self._release(exchange, RequestError("timeout", f"not complete after {timeout / 1e9:g} s"))
            elif now - exchange.touched > stall:
                self._release(exchange, RequestError("stalled", f"nothing came for {stall / 1e9:g} s"))
        for fd, (connection, waiting) in [*self._opening.items()]:
            if waiting and now - waiting.asked > stall:
                del self._opening[fd]
                self._close(connection)
                self._not_opened(waiting, RequestError("connect", f"no answer for {stall / 1e9:g} s"))


def _poller() -> tuple[Any, Poll]:
    """Epoll, or what the system has in its place: the same calls, with a poll in seconds."""
    if hasattr(select, "epoll"):
        poller = select.epoll()
        return poller, poller.poll
    other = select.poll()
    return other, lambda timeout: other.poll(ceil(timeout * 1000))
