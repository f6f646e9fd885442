"""Will it fit: weights, draft, KV cache and recurrent state against a GPU's memory, per engine, explained."""

from draftmark.memory.check import Reported, predictions, reported
from draftmark.memory.gpus import GPUS, Gpu, gpu_named
from draftmark.memory.plan import ASSUMED, plan_memory
from draftmark.memory.text import memory_text, reported_text, verdict_text
from draftmark.memory.types import Assumed, Fit, Line, MemoryPlan, Proposal

__all__ = [
    "ASSUMED",
    "GPUS",
    "Assumed",
    "Fit",
    "Gpu",
    "Line",
    "MemoryPlan",
    "Proposal",
    "Reported",
    "gpu_named",
    "memory_text",
    "plan_memory",
    "predictions",
    "reported",
    "reported_text",
    "verdict_text",
]
