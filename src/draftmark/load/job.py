"""What is to be measured, as one value that can be handed to another process."""

from msgspec import Struct

from draftmark.schema import Service, Work


class LoadJob(Struct, frozen=True, kw_only=True):
    """One cell's load; times in seconds."""

    base_url: str
    headers: dict[str, str] = {}
    service: Service
    served_name: str
    work: Work
    """Its warm-up is a job of its own."""
    concurrency: int
    """Requests (or sessions) at a time; for open loop, the connections opened beforehand."""
    timeout_s: float
    """Of one request, from its start."""
    stall_s: float
    """Without a byte on a running request."""
    give_up: int
    """Consecutive failures after which no more is sent."""
    pinned_core: int | None = None
    """CPU core that the load client keeps to."""
