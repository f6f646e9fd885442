"""What the numbers mean, how they come out of records, and when not to believe them.

:data:`METRICS` declares each number of a cell once; :func:`measure` computes them; :func:`flags` doubts them.
"""

from draftmark.metrics.guards import FEWEST_PROMPTS, flags
from draftmark.metrics.records import (
    completed,
    decode_half_width,
    measure,
    of_request,
    pooled,
    steady_tok_s,
    steady_window,
    tau,
    within,
)
from draftmark.metrics.table import METRICS, REQUEST_METRICS, Metric

__all__ = [
    "FEWEST_PROMPTS",
    "METRICS",
    "REQUEST_METRICS",
    "Metric",
    "completed",
    "decode_half_width",
    "flags",
    "measure",
    "of_request",
    "pooled",
    "steady_tok_s",
    "steady_window",
    "tau",
    "within",
]
