"""Results as data for other tools: one row for each cell as CSV, cells and requests as Parquet."""

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from draftmark.errors import BadInput
from draftmark.metrics import METRICS, REQUEST_METRICS, of_request
from draftmark.report.view import View
from draftmark.schema import (
    CampaignResult,
    Cell,
    CellResult,
    Comparison,
    Lossless,
    RequestRecord,
    Service,
    Speculation,
    Speedup,
)

Value = str | int | float | bool | None
Fields = dict[str, Value]

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
"""Half characters, which no file could hold, and NUL, at which many readers stop."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def cells_csv(result: CampaignResult, comparison: Comparison) -> str:
    """Every planned cell as one row: its settings, METRICS by key, flags, speedup, losslessness, diagnosis.

    What was not measured is empty. A text that a spreadsheet would run as a formula gets an apostrophe in
    front; numbers are written in full.
    """
    rows = list(cell_rows(View(result, comparison)))
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else ["service", "cell"], lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: inert(value) for key, value in row.items()} for row in rows)
    return text.getvalue()


def inert(value: Value) -> Value:
    """The value, a text so that no spreadsheet runs it."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def cells_parquet(result: CampaignResult, comparison: Comparison) -> bytes:
    """The rows of :func:`cells_csv` as a Parquet file; BadInput where pyarrow is not installed."""
    return parquet(list(cell_rows(View(result, comparison))))


def requests_parquet(result: CampaignResult) -> bytes:
    """Every request as a Parquet file: text, tokens, REQUEST_METRICS by key, arrivals of its chunks in s.

    Empty where the result was read without its records; BadInput where pyarrow is not installed.
    """
    services = {service.id: service for service in result.matrix.services}
    return parquet(
        [
            request_row(services.get(key.partition("/")[0]), key, record)
            for key, records in result.records.items()
            for record in records
        ]
    )


def parquet(rows: list[dict[str, Any]]) -> bytes:
    """Rows of the same keys as a Parquet file, compressed with zstd."""
    try:
        import pyarrow as pa
        from pyarrow import parquet as pq
    except ImportError:
        raise BadInput(
            "Parquet needs pyarrow, which is not installed", "pip install 'draftmark[parquet]'"
        ) from None
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), sink, compression="zstd")
    return sink.getvalue()


def cell_rows(view: View) -> Iterator[Fields]:
    """One row for each planned cell, in the report's order; what the baseline was measured on again last."""
    lossless = {(found.service, found.cell): found for found in view.comparison.lossless}
    planned = chain.from_iterable(map(view.planned, view.workloads))
    for service, cell in chain(planned, view.repeated):
        key = service.id, cell.id
        yield (
            setting_fields(view, service, cell)
            | outcome_fields(view.cells.get(key))
            | speedup_fields(view.speedups.get(key), view.flags(*key))
            | lossless_fields(lossless.get(key))
        )


def setting_fields(view: View, service: Service, cell: Cell) -> Fields:
    """What was asked for."""
    start = view.starts.get(service.id)
    return {
        "campaign": storable(view.result.info.plan.name),
        "service": service.id,
        "cell": cell.id,
        "host": service.host,
        "tp": service.tp,
        "engine": service.engine.kind,
        "engine_version": storable(start.engine_version) if start and start.engine_version else None,
        "method": service.method.name,
        "method_kind": service.method.kind,
        "method_params": json.dumps(service.method.params, sort_keys=True),
        "baseline": service.baseline,
        "repeats": service.repeats,
        "workload": cell.workload,
        "prompts": joined(cell.prompts),
        "max_tokens": cell.max_tokens,
        "repetitions": cell.repetitions,
        "concurrency": cell.concurrency,
        "rate": cell.rate,
        "length": cell.length,
        "scenario": cell.scenario,
        "turns": cell.turns,
        "temperature": cell.temperature,
    }


def outcome_fields(found: CellResult | None) -> Fields:
    """What came of it; the metrics of a cell that did not complete are left out."""
    done = found is not None and found.status == "ok"
    metrics = found.metrics if found and done else {}
    why = found.diagnosis if found else None
    return {
        "status": found.status if found else "not run",
        "started_at": found.started_at if found else None,
        "attempts": found.attempts if found else None,
        **{key: metrics.get(key) for key in METRICS},
        **speculation_fields(found.speculation if found and done else None),
        "flags": joined(dict.fromkeys(flag.kind for flag in found.flags)) if found else None,
        "flag_details": storable(joined(flag.detail for flag in found.flags)) if found else None,
        "diagnosis": why.cause if why else None,
        "diagnosis_summary": storable(why.summary) if why else None,
    }


def speculation_fields(found: Speculation | None) -> Fields:
    """The engine's own counts."""
    counts = ("tokens", "steps", "accepted", "drafted", "draft_steps")
    return {
        "acceptance_source": found.source if found else None,
        **{f"acceptance_{name}": getattr(found, name) if found else None for name in counts},
        "accepted_per_position": joined(map(str, found.accepted_per_position)) if found else None,
    }


def speedup_fields(found: Speedup | None, flags: Iterable[str]) -> Fields:
    """The comparison with the baseline; ``speedup_flags`` has the baseline's doubts too."""
    ratio = found.ratio if found else None
    return {
        "speedup": ratio.value if ratio else None,
        "speedup_low": ratio.low if ratio else None,
        "speedup_high": ratio.high if ratio else None,
        "speedup_n": ratio.n if ratio else None,
        "speedup_of": found.metric if found else None,
        "verdict": found.verdict if found else None,
        "noise": found.noise if found else None,
        "step_ratio": found.step_ratio if found else None,
        "speedup_flags": joined(flags) if found else None,
    }


def lossless_fields(found: Lossless | None) -> Fields:
    """Whether the output is the baseline's."""
    return {
        "lossless": found.verdict if found else None,
        "outputs_compared": found.compared if found else None,
        "outputs_differing": found.differing if found else None,
        "outputs_near_ties": found.near_ties if found else None,
        "control_compared": found.control_compared if found else None,
        "control_differing": found.control_differing if found else None,
    }


def request_row(service: Service | None, key: str, record: RequestRecord) -> dict[str, Any]:
    """One request; lists are empty where there was no chunk."""
    numbers = of_request(record)
    said = record.speculation
    return {
        "service": key.partition("/")[0],
        "cell": key.partition("/")[2],
        "method": service.method.name if service else None,
        "repeats": service.repeats if service else None,
        "tp": service.tp if service else None,
        "host": service.host if service else None,
        "request": record.request,
        "prompt_id": record.prompt_id,
        "kind": record.kind,
        "role": record.role,
        "session": record.session,
        "turn": record.turn,
        "start_s": record.start_s,
        "sent_late_s": record.sent_late_s,
        "end_s": record.end_s,
        "prompt_tokens": record.prompt_tokens,
        "output_tokens": record.output_tokens,
        "cached_tokens": record.cached_tokens,
        "max_tokens": record.max_tokens,
        "finish_reason": record.finish_reason,
        "error": record.error,
        "error_detail": storable(record.error_detail),
        **{name: numbers.get(name) for name in REQUEST_METRICS},
        "steps": said.steps if said else None,
        "accepted": said.accepted if said else None,
        "drafted": said.drafted if said else None,
        "text": storable(record.text),
        "reasoning": storable(record.chunks.reasoning),
        "chunk_t_s": list(record.chunks.t_s),
        "chunk_tokens": [chunk.tokens for chunk in record.chunks],
    }


def joined(names: Iterable[str]) -> str:
    """Names in one field."""
    return ";".join(names)


def storable(text: str) -> str:
    """The text without what a file could not hold."""
    return _UNSTORABLE.sub("\ufffd", text)
