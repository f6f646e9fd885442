"""Benchmark files of other tools as results: ``vllm bench serve``, SGLang's ``bench_serving``, AIPerf.

A number keeps its meaning or is left out: what SGLang's file calls ITL is one thing or another, depending
on its version. Where a file lists its single requests they become records, so that two files can be compared
in pairs; otherwise it is a row of totals, which can show a change and prove none.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import inf, isfinite
from typing import Any

from msgspec.structs import replace

from draftmark.errors import BadInput
from draftmark.metrics import measure
from draftmark.schema import (
    CampaignInfo,
    CampaignResult,
    Cell,
    CellResult,
    Chunk,
    Chunks,
    ConcurrencyWorkload,
    Diagnosis,
    EngineSpec,
    LoadHealth,
    LoadResult,
    Matrix,
    Method,
    MethodSpec,
    ModelSpec,
    Plan,
    RequestRecord,
    Service,
)

Object = Mapping[str, Any]

RUN = "run"
"""Name of the only service of a foreign file, which does not say how its server decodes."""
EXPECTED = (
    "expected what `vllm bench serve --save-result` or `python -m sglang.bench_serving --output-file` writes,"
    " or AIPerf's profile_export_aiperf.json"
)
_SUMMARIES = ("mean", "median", "std", "p90", "p95", "p99")
_SAME = (
    "completed", "failed", "duration", "total_input_tokens", "total_output_tokens", "request_throughput",
    "output_throughput",
)  # fmt: skip
_AIPERF_LATENCIES = {
    "time_to_first_token": "ttft",
    "inter_token_latency": "tpot",
    "request_latency": "e2el",
    "inter_chunk_latency": "icl",
}
_AIPERF_TOTALS = {
    "request_count": "completed",
    "error_request_count": "failed",
    "request_throughput": "request_throughput",
    "output_token_throughput": "output_throughput",
    "total_isl": "total_input_tokens",
    "total_osl": "total_output_tokens",
}
_AIPERF_STATS = {"mean": "avg", "median": "p50", "std": "std", "p90": "p90", "p95": "p95", "p99": "p99"}
_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "seconds": 1.0}


@dataclass(frozen=True)
class Tool:
    """How one tool's flat file names what ours does."""

    name: str
    latencies: Mapping[str, str]
    tau: str
    """Key of its acceptance length."""


# SGLang's files have most of vLLM's keys, so that the one that only SGLang writes is asked for first.
_SGLANG = Tool(
    "sglang bench_serving", {"ttft": "ttft", "tpot": "tpot", "e2el": "e2e_latency"}, "accept_length"
)
_VLLM = Tool(
    "vllm bench serve",
    {"ttft": "ttft", "tpot": "tpot", "e2el": "e2el", "icl": "itl"},
    "spec_decode_acceptance_length",
)


@dataclass(frozen=True)
class Run:
    """One run as its file tells it."""

    tool: str
    model: str
    cell: Cell
    metrics: dict[str, float]
    records: tuple[RequestRecord, ...] = ()
    started_at: str = ""


def read_benchmark(text: str, source: str) -> CampaignResult:
    """The runs of one foreign file as cells of one service, with their requests where it lists them.

    Args:
        text: one JSON object, or one in each line.
        source: its name, for errors and for the result's own name.

    Raises:
        BadInput: of no tool that is known, of several models, or a key is missing or no number; names it.
    """
    runs = [_run(data, where) for where, data in _objects(text, source)]
    kinds = {(run.tool, run.model) for run in runs}
    if len(kinds) > 1:
        told = ", ".join(sorted(model for _, model in kinds))
        raise BadInput(f"{source}: runs of several models or tools ({told})", "give a file for each")
    return _campaign(_distinct(runs), source)


def _objects(text: str, source: str) -> Iterator[tuple[str, Object]]:
    """(where, object) for the whole text, or for each of its lines."""
    lines = [(f"{source}:{number}", line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    try:
        found = [(source, json.loads(text))]
    except json.JSONDecodeError as error:
        if len(lines) < 2 or not all(line.lstrip().startswith("{") for _, line in lines):
            raise BadInput(f"{source}:{error.lineno}: not JSON ({error.msg})", EXPECTED) from error
        found = [(where, _decoded(line, where)) for where, line in lines]
    for where, data in found:
        if not isinstance(data, dict):
            raise BadInput(f"{where}: not an object", EXPECTED)
        yield where, data


def _decoded(line: str, where: str) -> Any:
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        raise BadInput(f"{where}: not JSON ({error.msg})", EXPECTED) from error


def _run(data: Object, where: str) -> Run:
    """One run, told apart by keys that one tool alone writes."""
    if "request_count" in data or "request_latency" in data:
        return _aiperf(data, where)
    if "mean_e2e_latency_ms" in data:
        return _flat(data, where, _SGLANG)
    if "completed" in data or "output_throughput" in data:
        return _flat(data, where, _VLLM)
    raise BadInput(f"{where}: neither 'completed' nor 'request_count' is in it", EXPECTED)


def _flat(data: Object, where: str, tool: Tool) -> Run:
    """A file whose keys are those of our own metrics, some latencies apart."""
    for key in ("completed", "duration", "total_output_tokens", "output_throughput", "mean_ttft_ms"):
        _number(data, key, where)
    keys = {key: key for key in _SAME} | {"tau": tool.tau}
    keys |= {f"{s}_{ours}_ms": f"{s}_{its}_ms" for ours, its in tool.latencies.items() for s in _SUMMARIES}
    metrics = {ours: _number(data, its, where) for ours, its in keys.items() if data.get(its) is not None}
    cell = _cell(
        metrics,
        tokens=_positive(data.get("random_output_len")) or _positive(data.get("sharegpt_output_len")),
        concurrency=_positive(data.get("max_concurrency")),
        rate=_positive(data.get("request_rate")),
        requests=_positive(data.get("num_prompts")),
    )
    records = _records(data, cell, where)
    return Run(
        tool=tool.name,
        model=str(data.get("model_id") or data.get("model") or "unknown"),
        cell=cell,
        metrics=metrics | _rates(cell, records),
        records=records,
        started_at=str(data.get("date") or ""),
    )


def _aiperf(data: Object, where: str) -> Run:
    """AIPerf's export: a block of statistics for each metric, with its unit."""
    for key in ("request_count", "output_token_throughput", "benchmark_duration"):
        _number(_block(data, key, where), "avg", f"{where}: {key}")
    metrics = {
        ours: _number(_block(data, its, where), "avg", f"{where}: {its}")
        for its, ours in _AIPERF_TOTALS.items()
        if its in data
    }
    metrics["duration"] = _seconds(data, "benchmark_duration", "avg", where)
    metrics |= {
        f"{summary}_{ours}_ms": 1e3 * _seconds(data, its, stat, where)
        for its, ours in _AIPERF_LATENCIES.items()
        for summary, stat in _AIPERF_STATS.items()
        if its in data and _block(data, its, where).get(stat) is not None
    }
    config = _inside(data, "input_config")
    load = _aiperf_load(config)
    cell = _cell(
        metrics,
        concurrency=_positive(load.get("concurrency")),
        rate=_positive(load.get("request_rate") or load.get("rate")),
    )
    return Run("aiperf", _aiperf_model(config), cell, metrics, started_at=str(data.get("start_time") or ""))


def _aiperf_load(config: Object) -> Object:
    """Where its configuration says how it loads the server: by its version in one of two places."""
    phases = config.get("phases")
    if isinstance(phases, list):
        phases = {phase.get("name"): phase for phase in phases if isinstance(phase, dict)}
    return _inside(phases, "profiling") if isinstance(phases, dict) else _inside(config, "loadgen")


def _aiperf_model(config: Object) -> str:
    names = _inside(config, "endpoint").get("model_names")
    items = _inside(config, "models").get("items")
    if isinstance(items, list):
        names = names or [item.get("name") for item in items if isinstance(item, dict)]
    return str(names[0]) if isinstance(names, list) and names else "unknown"


def _cell(
    metrics: Mapping[str, float],
    *,
    tokens: float | None = None,
    concurrency: float | None = None,
    rate: float | None = None,
    requests: float | None = None,
) -> Cell:
    """What was asked, as far as it is known: without a limit of any kind all requests are sent at once."""
    completed = int(metrics["completed"])
    asked = int(requests or completed + metrics.get("failed", 0))
    each = metrics.get("total_output_tokens", 0) / completed if completed else 0
    streams = int(concurrency or (1 if rate else max(asked, 1)))
    return Cell(
        id=f"r{rate:g}" if rate else f"c{streams}",
        workload="concurrency",
        max_tokens=int(tokens or max(round(each), 1)),
        concurrency=streams,
        rate=rate,
        requests=asked,
    )


def _records(data: Object, cell: Cell, where: str) -> tuple[RequestRecord, ...]:
    """The single requests, where the file has them, and their starts where several streams are timed."""
    starts = data.get("start_times")
    if not all(isinstance(data.get(key), list) for key in ("ttfts", "itls", "input_lens", "output_lens")):
        return ()
    if cell.concurrency > 1 and cell.rate is None and not starts:
        return ()
    errors = data.get("errors") or [""] * len(data["ttfts"])
    columns = [data[key] for key in ("ttfts", "itls", "input_lens", "output_lens")]
    try:
        rows = list(zip(*columns, errors, starts or [0.0] * len(errors), strict=True))
        return tuple(_record(number, *row, cell=cell) for number, row in enumerate(rows))
    except (TypeError, ValueError) as error:
        message = f"{where}: 'ttfts', 'itls', 'input_lens', 'output_lens' and 'errors' do not fit together"
        raise BadInput(message, EXPECTED) from error


def _record(
    number: int,
    ttft: float,
    gaps: Sequence[float],
    prompt_tokens: int,
    output_tokens: int,
    error: object,
    start: float,
    *,
    cell: Cell,
) -> RequestRecord:
    """One request; prompts are known by their place and length, so that others do not pair."""
    times = accumulate([ttft, *gaps]) if not error and output_tokens else ()
    return RequestRecord(
        request=f"{number:08}",
        prompt_id=f"{number}-{prompt_tokens}",
        kind="foreign",
        role="measured",
        start_s=start,
        chunks=Chunks(Chunk(t_s=t) for t in times),
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        max_tokens=cell.max_tokens,
        error="failed" if error else None,
        error_detail=str(error or ""),
    )


def _rates(cell: Cell, records: Sequence[RequestRecord]) -> dict[str, float]:
    """The rates that a file's totals do not have; a steady one needs the requests' starts."""
    if not records:
        return {}
    load = LoadResult(records=tuple(records), duration_s=0.0, health=LoadHealth(cpu_share=0.0))
    found = measure(cell, load, None)
    keys = ("decode_tok_s", "steady_tok_s") if cell.concurrency > 1 else ("decode_tok_s",)
    return {key: found[key] for key in keys if key in found}


def _distinct(runs: Sequence[Run]) -> list[Run]:
    """The runs, those that were asked the same numbered."""
    seen: Counter[str] = Counter()
    found = []
    for run in runs:
        seen[run.cell.id] += 1
        number = seen[run.cell.id]
        id_ = run.cell.id if number == 1 else f"{run.cell.id}-{number}"
        found.append(replace(run.cell, id=id_))
    return [
        Run(run.tool, run.model, cell, run.metrics, run.records, run.started_at)
        for run, cell in zip(runs, found, strict=True)
    ]


def _campaign(runs: Sequence[Run], source: str) -> CampaignResult:
    """The runs as a result tree of one service."""
    engine, model = EngineSpec(kind="attach"), ModelSpec(target=runs[0].model)
    cells = tuple(run.cell for run in runs)
    service = Service(
        id=RUN,
        phase=RUN,
        host="unknown",
        tp=1,
        engine=engine,
        model=model,
        method=Method(name=RUN, kind=runs[0].tool),
        context_needed=0,
        max_running_requests=max(cell.concurrency for cell in cells),
        ready_timeout_s=0.0,
        cells=cells,
    )
    levels = tuple(dict.fromkeys(cell.concurrency for cell in cells))
    plan = Plan(
        name=source,
        engine=engine,
        model=model,
        methods=(MethodSpec(name=RUN, kind=runs[0].tool),),
        workloads=(ConcurrencyWorkload(levels=levels),),
    )
    info = CampaignInfo(draftmark="", plan=plan, plan_text="", started_at=runs[0].started_at)
    return CampaignResult(
        info=info,
        matrix=Matrix(plan=plan, services=(service,)),
        cells=tuple(_result(run) for run in runs),
        records={f"{RUN}/{run.cell.id}": run.records for run in runs if run.records},
    )


def _result(run: Run) -> CellResult:
    """A cell; a file is written even where no request was answered, and that is no result."""
    done = run.metrics["completed"] > 0
    empty = Diagnosis(cause="nothing-measured", summary="no request of the run was completed")
    return CellResult(
        service=RUN,
        cell=run.cell,
        status="ok" if done else "failed",
        started_at=run.started_at,
        duration_s=run.metrics["duration"],
        metrics=run.metrics if done else {},
        diagnosis=None if done else empty,
    )


def _block(data: Object, key: str, where: str) -> Object:
    if not isinstance(data.get(key), dict):
        raise BadInput(f"{where}: '{key}' is missing", EXPECTED)
    found: Object = data[key]
    return found


def _inside(data: Object, key: str) -> Object:
    """An object within an object; empty where there is none."""
    found = data.get(key)
    return found if isinstance(found, dict) else {}


def _seconds(data: Object, key: str, stat: str, where: str) -> float:
    block = _block(data, key, where)
    unit = block.get("unit")
    if unit not in _SECONDS:
        raise BadInput(f"{where}: {key} is in '{unit}'", f"expected one of {', '.join(_SECONDS)}")
    return _number(block, stat, f"{where}: {key}") * _SECONDS[unit]


def _number(data: Object, key: str, where: str) -> float:
    """A finite number; BadInput names the key."""
    value = data.get(key)
    if value is None:
        raise BadInput(f"{where}: '{key}' is missing", EXPECTED)
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise BadInput(f"{where}: '{key}' is {value!r}, no number", EXPECTED)
    return float(value)


def _positive(value: object) -> float | None:
    """A number above 0; None for what stands for no limit: nothing, ``inf``, 0."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 < value < inf else None
