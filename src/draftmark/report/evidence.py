"""What the page holds of each cell for a closer look: numbers, doubts, failure, requests; bounded in size."""

from collections.abc import Sequence
from math import ceil
from typing import Any

from draftmark.metrics import METRICS, of_request
from draftmark.report.packing import packed
from draftmark.report.view import View
from draftmark.schema import CellResult, Diagnosis, RequestRecord, Speculation

TEXT_LIMIT = 4_000
"""Characters of one request's text."""
TEXT_BUDGET = 8_000_000
"""Characters of all texts together, as far as the completed requests tell how many there are."""
ARRIVALS_LIMIT = 400
ARRIVALS_BUDGET = 600_000
"""Chunk arrivals of one request, and of all together."""

Json = dict[str, Any]


def evidence(view: View) -> Json:
    """``cells``: of each service its measured cells and, packed, all known of them; ``metrics``: meanings."""
    count = max(1, round(sum(cell.metrics.get("completed", 0) for cell in view.cells.values())))
    limits = (min(TEXT_LIMIT, TEXT_BUDGET // count), min(ARRIVALS_LIMIT, ARRIVALS_BUDGET // count))
    used = {key for cell in view.cells.values() for key in cell.metrics}
    return {
        "metrics": {key: [m.title, m.unit, m.definition] for key, m in METRICS.items() if key in used},
        "cells": {
            service: held
            for service in view.every
            if (held := service_evidence(view, service, limits))["ids"]
        },
    }


def service_evidence(view: View, service: str, limits: tuple[int, int]) -> Json:
    """One service's cells: their ``ids``, and ``packed`` what is known of each."""
    found = {
        cell: cell_evidence(result, view.result.records.get(f"{service}/{cell}", ()), limits)
        for (of, cell), result in view.cells.items()
        if of == service
    }
    return {"ids": list(found), "packed": packed(found)}


def cell_evidence(cell: CellResult, records: Sequence[RequestRecord], limits: tuple[int, int]) -> Json:
    """One cell; lists are empty where there is nothing to say."""
    return {
        "status": cell.status,
        "started": cell.started_at,
        "attempts": cell.attempts,
        "metrics": [[key, METRICS[key].show(cell.metrics[key])] for key in METRICS if key in cell.metrics],
        "speculation": speculation(cell.speculation),
        "flags": [[flag.kind, trimmed(flag.detail)] for flag in cell.flags],
        "diagnosis": diagnosis(cell.diagnosis),
        "requests": [request(record, *limits) for record in records],
    }


def speculation(found: Speculation | None) -> list[list[str]]:
    """The engine's own counts, and where they come from."""
    if found is None:
        return []
    counts = ("tokens", "steps", "accepted", "drafted", "draft_steps")
    known = [
        [name.replace("_", " "), str(getattr(found, name))]
        for name in counts
        if getattr(found, name) is not None
    ]
    positions = ", ".join(map(str, found.accepted_per_position))
    return [["source", found.source], *known, *([["accepted by position", positions]] if positions else [])]


def diagnosis(found: Diagnosis | None) -> Json | None:
    """Cause, evidence and remedy of a failure."""
    if found is None:
        return None
    return {
        "cause": found.cause,
        "summary": trimmed(found.summary),
        "evidence": [trimmed(line) for line in found.evidence],
        "remedy": trimmed(found.remedy),
    }


def request(record: RequestRecord, text_limit: int, arrivals_limit: int) -> Json:
    """One request: its numbers, its text, and when its chunks arrived (seconds after its start)."""
    numbers = of_request(record)
    every = max(1, ceil(len(record.chunks) / arrivals_limit)) if arrivals_limit else 0
    return {
        "id": record.request,
        "prompt": record.prompt_id,
        "role": record.role,
        "turn": record.turn,
        "start": round(record.start_s, 4),
        "end": None if record.end_s is None else round(record.end_s, 4),
        "ttft": numbers.get("ttft_s"),
        "rate": numbers.get("decode_tok_s"),
        "tau": numbers.get("tau"),
        "tokens": record.output_tokens,
        "promptTokens": record.prompt_tokens,
        "cached": record.cached_tokens,
        "finish": record.finish_reason,
        "error": record.error,
        "errorDetail": trimmed(record.error_detail, text_limit),
        "text": trimmed(record.text, text_limit),
        "reasoning": trimmed(record.chunks.reasoning, text_limit),
        "arrivals": [round(t_s, 4) for t_s in record.chunks.t_s[::every]] if every else [],
        "every": every,
    }


def trimmed(text: str, limit: int = TEXT_LIMIT) -> str:
    """The text, or its beginning with a note of how much is left out."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}\n[… {len(text) - limit:,} of {len(text):,} characters are left out here]"
