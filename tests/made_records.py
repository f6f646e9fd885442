"""Records as a load client would leave them, made up by tests."""

from collections.abc import Sequence
from typing import Any

from draftmark.schema import Cell, Chunk, Chunks, LoadHealth, LoadResult, RequestRecord

HEALTHY = LoadHealth(cpu_share=0.1, loop_lag_p99_s=0.0002)


def chunks(times: Sequence[float], **fields: Any) -> Chunks:
    return Chunks(Chunk(**({"t_s": t, "text": "x"} | fields)) for t in times)


def record(prompt: str = "p0", **fields: Any) -> RequestRecord:
    """Ten tokens, the first after 0.5 s and one each 0.1 s after that, unless told otherwise."""
    ten = Chunks(Chunk(t_s=0.5 + 0.1 * i, text=f"word{i} ") for i in range(10))
    defaults: dict[str, Any] = {
        "request": f"{prompt}-r",
        "prompt_id": prompt,
        "kind": "code",
        "role": "measured",
        "start_s": 0.0,
        "chunks": ten,
        "prompt_tokens": 100,
        "output_tokens": 10,
        "max_tokens": 10,
    }
    given = defaults | fields
    return RequestRecord(**(given | {"chunks": Chunks(given["chunks"])}))


def cell(**fields: Any) -> Cell:
    defaults: dict[str, Any] = {"id": "code-10", "workload": "prompts", "max_tokens": 10, "requests": 3}
    return Cell(**(defaults | fields))


def loaded(*records: RequestRecord, health: LoadHealth = HEALTHY) -> LoadResult:
    return LoadResult(records=records, duration_s=10.0, health=health)
