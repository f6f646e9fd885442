"""Campaigns whose truth is known: speedups, noise, drift and outliers planted by a seed."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heapreplace
from math import exp
from typing import Any

from draftmark.metrics import measure
from draftmark.schema import (
    CampaignInfo,
    CampaignResult,
    Cell,
    CellResult,
    Chunk,
    Chunks,
    EngineSpec,
    Flag,
    LoadHealth,
    LoadResult,
    Matrix,
    Method,
    MethodSpec,
    ModelSpec,
    Plan,
    PromptsWorkload,
    RequestRecord,
    Role,
    Service,
    Speculation,
    WorkloadKind,
)

ENGINE, MODEL = EngineSpec(kind="reference"), ModelSpec(target="tiny")
PIECES = 8
"""Chunks of an answer after its first."""


@dataclass(frozen=True)
class Truth:
    """What is planted; spreads are standard deviations of logarithms."""

    speedup: float = 1.3
    prompts: int = 5
    concurrency: int = 1
    workload: WorkloadKind = "concurrency"
    """Where there are several streams."""
    by_prompt: float = 0.05
    """How much the speedup differs from prompt to prompt."""
    jitter: float = 0.02
    """Of one request against its own repetition."""
    shocks: float = 0.0
    """Of the server's speed from one second to the next, in which all requests share."""
    drift: float = 0.0
    """By how much the server is slower at the end of a cell than at its beginning."""
    outliers: float = 0.0
    """Share of requests that take half as long again."""

    @property
    def ratio(self) -> float:
        """What a comparison should find: of several streams, the ratio of their totals."""
        return self.speedup * (exp(-(self.by_prompt**2) / 2) if self.concurrency > 1 else 1)


def simulated(truth: Truth, seed: int, *, control: bool = True) -> CampaignResult:
    """A campaign of one cell, baseline ``ar`` against ``fast``."""
    rng = random.Random(seed)
    work = [2.0 * exp(rng.gauss(0, 0.2)) for _ in range(truth.prompts)]
    gains = [truth.speedup * exp(rng.gauss(0, truth.by_prompt)) for _ in work]
    one = Cell(
        id="c",
        workload=truth.workload if truth.concurrency > 1 else "prompts",
        max_tokens=256,
        concurrency=truth.concurrency,
        requests=truth.prompts,
        control=control,
    )
    base = run(truth, rng, work, "measured")
    again = run(truth, rng, work, "control") if control else []
    fast = run(truth, rng, [w / gain for w, gain in zip(work, gains, strict=True)], "measured")
    return campaign(one, {"ar": [*base, *again], "fast": fast})


def run(truth: Truth, rng: random.Random, work: Sequence[float], role: Role) -> list[RequestRecord]:
    """Requests of so many seconds' work each on the streams of a server whose speed wanders."""
    streams = [0.0] * truth.concurrency
    real = _wandering(truth, rng, sum(work) / truth.concurrency)
    records = []
    for i, seconds in enumerate(work):
        begin = streams[0]
        took = seconds * exp(rng.gauss(0, truth.jitter)) * (1.5 if rng.random() < truth.outliers else 1)
        heapreplace(streams, begin + took)
        start = real(begin)
        times = [real(begin + took * (0.1 + 0.9 * k / PIECES)) - start for k in range(PIECES + 1)]
        records.append(answer(f"p{i}", f"{role}-{i}", start_s=start, times=times, role=role))
    return records


def _wandering(truth: Truth, rng: random.Random, length: float) -> Callable[[float], float]:
    """Real time of a second of the server's work."""
    times, level = [0.0], rng.gauss(0, truth.shocks)
    for second in range(int(3 * length) + 20):
        times.append(times[-1] + exp(level) * (1 + truth.drift * second / length))
        level = 0.6 * level + 0.8 * rng.gauss(0, truth.shocks)

    def real(t: float) -> float:
        whole = int(t)
        return times[whole] + (t - whole) * (times[whole + 1] - times[whole])

    return real


def answer(prompt: str, request: str = "r", *, times: Sequence[float], **fields: Any) -> RequestRecord:
    """256 tokens at these times, one of them first."""
    defaults: dict[str, Any] = {"role": "measured", "start_s": 0.0, "kind": "code", "output_tokens": 256}
    defaults["chunks"] = Chunks(Chunk(t_s=t, text=f"{prompt} says {i}. ") for i, t in enumerate(times))
    return RequestRecord(
        request=request, prompt_id=prompt, max_tokens=256, prompt_tokens=50, **(defaults | fields)
    )


def service(name: str, kind: str, cells: Sequence[Cell], **fields: Any) -> Service:
    defaults: dict[str, Any] = {
        "id": name,
        "phase": "tp1",
        "host": "local",
        "tp": 1,
        "engine": ENGINE,
        "model": MODEL,
        "method": Method(name=name, kind=kind),
        "context_needed": 2048,
        "max_running_requests": 8,
        "ready_timeout_s": 10.0,
        "baseline": kind == "none",
        "cells": tuple(cells),
    }
    return Service(**(defaults | fields))


def campaign(
    cell: Cell,
    records: dict[str, Sequence[RequestRecord]],
    *,
    speculation: Speculation | None = None,
    flags: tuple[Flag, ...] = (),
    keep_records: bool = True,
) -> CampaignResult:
    """One cell on the services named; ``ar`` is the baseline, the others have this acceptance and flags."""
    services = tuple(service(name, "none" if name == "ar" else "ngram", [cell]) for name in records)
    methods = tuple(MethodSpec(name=one.id, kind=one.method.kind) for one in services)
    plan = Plan(name="planted", engine=ENGINE, model=MODEL, methods=methods, workloads=(PromptsWorkload(),))
    results = []
    for name, found in records.items():
        load = LoadResult(records=tuple(found), duration_s=1.0, health=LoadHealth(cpu_share=0.1))
        said = None if name == "ar" else speculation
        results.append(
            CellResult(
                service=name,
                cell=cell,
                status="ok",
                started_at="2026-01-01T00:00:00Z",
                duration_s=1.0,
                metrics=measure(cell, load, said),
                speculation=said,
                flags=() if name == "ar" else flags,
            )
        )
    return CampaignResult(
        info=CampaignInfo(draftmark="0", plan=plan, plan_text="", started_at="2026-01-01T00:00:00Z"),
        matrix=Matrix(plan=plan, services=services),
        cells=tuple(results),
        records={f"{name}/{cell.id}": tuple(found) for name, found in records.items()}
        if keep_records
        else {},
    )
