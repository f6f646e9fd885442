"""Settings of a service under which a failure would not come again.

Only what leaves the meaning of the numbers alone is changed: the memory fraction; the cap on running
requests, never below the concurrency that is measured; the context, never below what the requests need.
"""

from math import ceil

from draftmark.diagnose.phases import LOADING
from draftmark.diagnose.signature import Found
from draftmark.schema import Scalar, Service

STEP = 0.05
"""By how much the memory fraction moves at once."""
LEAST, MOST = 0.5, 0.95
"""Limits of the memory fraction; above, activations and graphs have no room on any GPU."""
ROOM = 0.03
"""Above the fraction at which the weights alone fit, for a KV cache."""


def less_memory(service: Service, found: Found) -> dict[str, Scalar]:
    """A smaller static pool, which is no help where the weights themselves do not fit."""
    fraction = service.memory_fraction
    if fraction is None or found["phase"] == LOADING or fraction - STEP < LEAST:
        return {}
    return {"memory_fraction": round(fraction - STEP, 3)}


def less_memory_or_requests(service: Service, found: Found) -> dict[str, Scalar]:
    """Both a smaller pool and a lower cap, as far as either can be lowered."""
    return less_memory(service, found) | fewer_requests(service, found)


def more_memory(service: Service, _found: Found) -> dict[str, Scalar]:
    """A larger static pool."""
    fraction = service.memory_fraction
    if fraction is None or fraction + STEP > MOST:
        return {}
    return {"memory_fraction": round(fraction + STEP, 3)}


def memory_as_told(service: Service, found: Found) -> dict[str, Scalar]:
    """The fraction that the message names as too small by a hair, and a little more."""
    wanted = ceil((float(found["least"]) + ROOM) * 100) / 100
    now = service.memory_fraction or 0.0
    return {"memory_fraction": wanted} if now < wanted <= MOST else {}


def fewer_requests(service: Service, _found: Found) -> dict[str, Scalar]:
    """Half the running requests, but as many as the busiest cell has at once."""
    needed = max((cell.concurrency for cell in service.cells), default=service.max_running_requests)
    cap = max(needed, service.max_running_requests // 2)
    return {"max_running_requests": cap} if cap < service.max_running_requests else {}


def context_as_told(service: Service, found: Found) -> dict[str, Scalar]:
    """The context length that the message says would do, where the requests fit in it."""
    return {"context_length": int(found["fits"])} if int(found["fits"]) >= service.context_needed else {}
