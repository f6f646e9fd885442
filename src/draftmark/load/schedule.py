"""What is sent next, and when; asks no clock and does no I/O."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import structs

from draftmark.client import Exchange
from draftmark.schema import Message, Request, RequestRecord, Session

Wire = Callable[[Request], bytes]
"""Turns a request into the bytes to send."""


class Schedule(Protocol):
    """Says which exchange may start; times are nanoseconds of one clock."""

    def start(self, zero: int) -> None:
        """The clock of the cell starts."""

    def take(self, now: int, running: int) -> Exchange | None:
        """The next exchange to start now, if any."""

    def wake(self) -> int | None:
        """When something becomes due that nothing else announces."""

    def ended(self, exchange: Exchange) -> None:
        """An exchange is over."""

    def left(self) -> bool:
        """Whether more is to be started, now or later."""


class Closed:
    """``streams`` requests at a time; the next one starts when one ends."""

    def __init__(self, requests: Sequence[Request], streams: int, wire: Wire) -> None:
        self._waiting = deque((request, wire(request)) for request in requests)
        self._streams = streams

    def start(self, zero: int) -> None:
        """It makes no difference when."""

    def take(self, now: int, running: int) -> Exchange | None:  # noqa: ARG002 - the contract's
        """The next in order, while there are fewer than ``streams``."""
        return Exchange(*self._waiting.popleft()) if self._waiting and running < self._streams else None

    def wake(self) -> int | None:
        """Never."""
        return None

    def ended(self, exchange: Exchange) -> None:
        """Nothing follows from an answer."""

    def left(self) -> bool:
        """Whether requests wait."""
        return bool(self._waiting)


class Open(Closed):
    """Each request at its own time, whatever is still running.

    One that goes out late would have waited in the server: its record's ``sent_late_s`` belongs to its
    latency, and metrics add it to TTFT, so that a stall hides no waiting (coordinated omission).
    """

    def __init__(self, requests: Sequence[Request], wire: Wire) -> None:
        super().__init__(sorted(requests, key=lambda request: request.send_at_s or 0.0), 0, wire)
        self._zero = 0

    def start(self, zero: int) -> None:
        """Times are counted from here."""
        self._zero = zero

    def take(self, now: int, running: int) -> Exchange | None:  # noqa: ARG002 - the contract's
        """The next in order, once its time has come."""
        due = self.wake()
        if due is None or due > now:
            return None
        exchange = Exchange(*self._waiting.popleft())
        exchange.due = due
        return exchange

    def wake(self) -> int | None:
        """When the next one is due."""
        return self._zero + round((self._waiting[0][0].send_at_s or 0.0) * 1e9) if self._waiting else None


class Conversations:
    """``streams`` sessions at a time; a turn starts when the reply to the last one has been read.

    A session whose turn failed ends there: what it would have said next is not known.
    """

    def __init__(
        self, sessions: Sequence[Session], streams: int, wire: Wire, read: Callable[[Exchange], RequestRecord]
    ) -> None:
        self._waiting = deque((request, wire(request)) for request in map(first_turn, sessions))
        self._sessions = {session.id: session for session in sessions}
        self._next: deque[Exchange] = deque()
        self._streams = streams
        self._wire = wire
        self._read = read

    def start(self, zero: int) -> None:
        """It makes no difference when."""

    def take(self, now: int, running: int) -> Exchange | None:  # noqa: ARG002 - the contract's
        """A session's next turn before a new session."""
        if self._next:
            return self._next.popleft()
        return Exchange(*self._waiting.popleft()) if self._waiting and running < self._streams else None

    def wake(self) -> int | None:
        """Never."""
        return None

    def ended(self, exchange: Exchange) -> None:
        """Build the next turn from the reply."""
        session = self._sessions[exchange.request.session or ""]
        reply = self._read(exchange)
        if reply.ok and (request := next_turn(session, exchange.request, reply.text)):
            self._next.append(Exchange(request, self._wire(request)))

    def left(self) -> bool:
        """Whether sessions or turns wait."""
        return bool(self._next or self._waiting)


def first_turn(session: Session) -> Request:
    """The request that opens a session."""
    return Request(
        id=f"{session.id}/0",
        prompt_id=session.prompt_id,
        kind=session.scenario,
        role=session.role,
        messages=session.turns[0],
        max_tokens=session.max_tokens,
        temperature=session.temperature,
        seed=session.seed,
        ignore_eos=session.ignore_eos,
        session=session.id,
        turn=0,
    )


def next_turn(session: Session, last: Request, reply: str) -> Request | None:
    """Everything so far, the model's reply, and what the next turn adds; None after the last turn."""
    turn = (last.turn or 0) + 1
    if turn >= len(session.turns):
        return None
    said = Message(role="assistant", content=reply)
    messages = (*last.messages, said, *session.turns[turn])
    return structs.replace(last, id=f"{session.id}/{turn}", turn=turn, messages=messages)
