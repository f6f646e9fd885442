"""When the requests of an open loop are sent."""

from itertools import accumulate
from random import Random
from typing import Literal

Arrival = Literal["constant", "poisson", "gamma"]


def arrivals(count: int, rate: float, arrival: Arrival, burstiness: float, seed: str) -> tuple[float, ...]:
    """Seconds from the start of a cell at which to send; the first at 0, then ``rate`` a second on average.

    ``burstiness`` is the squared coefficient of variation of the gaps of ``gamma``: 1 is Poisson, more comes
    in bursts.
    """
    random = Random(seed)
    shape = {"constant": 0.0, "poisson": 1.0, "gamma": 1 / burstiness}[arrival]
    gaps = (random.gammavariate(shape, 1 / (rate * shape)) if shape else 1 / rate for _ in range(count - 1))
    return tuple(accumulate(gaps, initial=0.0))
