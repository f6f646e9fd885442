"""One request and what happened to it."""

from typing import Literal

from draftmark.schema.chunks import Chunks
from draftmark.schema.common import Frozen, Role


class Message(Frozen, frozen=True, kw_only=True):
    """One chat message."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str


class Request(Frozen, frozen=True, kw_only=True):
    """One request as the workload means it; the engine turns it into a body."""

    id: str
    """Unique within its cell."""
    prompt_id: str
    """The same for every service: comparisons pair by it."""
    kind: str
    """Prompt kind, ``context``, or scenario."""
    role: Role = "measured"
    messages: tuple[Message, ...] = ()
    prompt: str | tuple[int, ...] | None = None
    """For raw completions: text or token ids; exclusive with ``messages``."""
    max_tokens: int
    temperature: float = 0.0
    seed: int = 0
    ignore_eos: bool = True
    session: str | None = None
    turn: int | None = None
    margins: bool = False
    """Ask for the log-probabilities of the two likeliest tokens at each place (chat only)."""
    send_at_s: float | None = None
    """Open loop: when to send, from the start of the cell."""


class Session(Frozen, frozen=True, kw_only=True):
    """A conversation whose next turn is sent when the reply to the last one has arrived.

    Turn i is sent as everything so far, the model's own replies included, plus ``turns[i]``.
    """

    id: str
    prompt_id: str
    scenario: str
    role: Role = "measured"
    turns: tuple[tuple[Message, ...], ...]
    """Messages that each turn adds: user text and tool results."""
    max_tokens: int
    """Of one turn."""
    temperature: float = 0.0
    seed: int = 0
    ignore_eos: bool = False


class Work(Frozen, frozen=True, kw_only=True):
    """What one cell sends: either requests or sessions."""

    warmup: tuple[Request, ...] = ()
    """To be sent before the clock starts, as a load of its own."""
    requests: tuple[Request, ...] = ()
    sessions: tuple[Session, ...] = ()


class Speculation(Frozen, frozen=True, kw_only=True):
    """What an engine says of one request's, or one cell's, speculation.

    A field is None where the source does not say. ``steps`` counts every decode step, with a draft or not.
    """

    source: str
    """Where the figures come from, e.g. ``timings`` or ``/metrics difference``."""
    tokens: int | None = None
    """Tokens that the steps committed."""
    steps: int | None = None
    accepted: int | None = None
    """Draft tokens that were accepted."""
    drafted: int | None = None
    """Draft tokens that were proposed."""
    draft_steps: int | None = None
    """Steps that had a draft."""
    accepted_per_position: tuple[int, ...] = ()


class RequestRecord(Frozen, frozen=True, kw_only=True):
    """What happened to one request."""

    request: str
    prompt_id: str
    kind: str
    role: Role
    session: str | None = None
    turn: int | None = None
    round: int = 0
    """Of the load: at the end of a round nothing is in flight."""
    start_s: float
    """From the start of the cell's measurement, on the load client's monotonic clock."""
    sent_late_s: float | None = None
    """Open loop: how much later than planned it was sent."""
    end_s: float | None = None
    """Arrival of the last byte, seconds after ``start_s``."""
    chunks: Chunks = Chunks()
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    finish_reason: str | None = None
    max_tokens: int
    speculation: Speculation | None = None
    error: str | None = None
    """None if it completed, else a short stable word: ``connect``, ``timeout``, ``stalled``, ``reset``,
    ``cut``, ``http-500`` and its like, ``bad-http``, ``bad-json``, ``server-error``, or ``clock`` where the
    machine's clock was set meanwhile."""
    error_detail: str = ""

    @property
    def text(self) -> str:
        """All text of the answer, reasoning excluded."""
        return self.chunks.text

    @property
    def ok(self) -> bool:
        """It completed."""
        return self.error is None


class LoadHealth(Frozen, frozen=True, kw_only=True):
    """How the load client itself fared while it measured."""

    cpu_share: float
    """CPU time over wall time of the busiest worker."""
    loop_lag_p99_s: float | None = None
    """From the arrival of bytes until they, and all that came with them, were read."""
    late_sends: int = 0
    """Open loop: requests that went out 5 ms or more after their time."""
    kernel_times: bool = False
    """Arrivals are timed by the kernel: a lag changes no time, and only delays what is sent next."""
    workers: int = 1


class LoadResult(Frozen, frozen=True, kw_only=True):
    """Everything one cell's load produced."""

    records: tuple[RequestRecord, ...]
    duration_s: float
    health: LoadHealth
