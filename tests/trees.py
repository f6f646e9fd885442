"""Whole campaigns whose truth is known: several methods on several cells, each with planted speedups."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import exp

from msgspec.structs import replace

from draftmark.metrics import measure
from draftmark.schema import (
    CampaignInfo,
    CampaignResult,
    Cell,
    CellResult,
    Diagnosis,
    Flag,
    FlagKind,
    LoadHealth,
    LoadResult,
    Matrix,
    Method,
    MethodSpec,
    Plan,
    PromptsWorkload,
    RequestRecord,
    Scalar,
    Service,
    ServiceResult,
    Slo,
    Speculation,
)
from planted import ENGINE, MODEL, Truth, run, service

STARTED = "2026-01-01T00:00:00Z"


@dataclass(frozen=True)
class Arm:
    """One service, and how it truly fares."""

    name: str = "fast"
    speed: float | Mapping[str, float] = 1.0
    """Times the baseline of TP 1, by cell or on all."""
    tp: int = 1
    tau: float | None = None
    """Twice its speed when not given: a step costs more than the baseline's."""
    params: Mapping[str, Scalar] = field(default_factory=dict)
    flags: Mapping[str, FlagKind] = field(default_factory=dict)
    failed: Sequence[str] = ()
    absent: Sequence[str] = ()
    repeats: str | None = None
    kind: str = "ngram"

    @property
    def id(self) -> str:
        again = "~again" if self.repeats else ""
        return f"{self.name}-tp{self.tp}{again}"


def ar(speed: float | Mapping[str, float] = 1.0, **fields: object) -> Arm:
    """A baseline."""
    return Arm(name="ar", speed=speed, kind="none", **fields)  # type: ignore[arg-type]


def code(name: str = "code-256", **fields: object) -> Cell:
    """Five requests, one after another."""
    return Cell(id=name, workload="prompts", prompts=("code",), max_tokens=256, requests=5, **fields)  # type: ignore[arg-type]


def level(streams: int) -> Cell:
    """A closed loop of five waves."""
    return Cell(
        id=f"c{streams}-256",
        workload="concurrency",
        max_tokens=256,
        concurrency=streams,
        requests=5 * streams,
    )


def context(length: int) -> Cell:
    return Cell(id=f"ctx-{length}", workload="context", max_tokens=256, requests=5, length=length)


def tree(
    cells: Sequence[Cell],
    arms: Sequence[Arm],
    *,
    seed: int = 0,
    slo: Slo | None = None,
    spread: float = 0.02,
    jitter: float = 0.01,
    requests: int | None = None,
    version: str = "1.0",
    machine: Mapping[str, object] | None = None,
    repeated: bool = True,
    keep_records: bool = True,
) -> CampaignResult:
    """All arms on all cells; prompts differ in length, and speedups by ``spread`` from prompt to prompt.

    Two trees of different seeds share their prompts and not their luck.
    """
    plan = Plan(
        name="planted",
        engine=ENGINE,
        model=MODEL,
        methods=tuple(MethodSpec(name=name, kind="ngram") for name in {arm.name for arm in arms}),
        workloads=(PromptsWorkload(),),
        slo=slo,
    )
    if requests:
        cells = [replace(cell, requests=requests * cell.concurrency) for cell in cells]
    services = tuple(_service(arm, cells) for arm in arms)
    results, records = [], {}
    for arm, one in zip(arms, services, strict=True):
        for cell in one.cells:
            if cell.id in arm.absent:
                continue
            found = _records(arm, cell, seed, Truth(by_prompt=spread, jitter=jitter), repeated)
            results.append(_result(arm, one, cell, found))
            records[f"{one.id}/{cell.id}"] = found
    return CampaignResult(
        info=CampaignInfo(
            draftmark="0", plan=plan, plan_text="", started_at=STARTED, machine=dict(machine or {})
        ),
        matrix=Matrix(plan=plan, services=services),
        services=tuple(
            ServiceResult(service=one, status="ok", started_at=STARTED, engine_version=version)
            for one in services
        ),
        cells=tuple(results),
        records=records if keep_records else {},
    )


def _service(arm: Arm, cells: Sequence[Cell]) -> Service:
    one = service(
        arm.name,
        arm.kind,
        cells,
        id=arm.id,
        tp=arm.tp,
        phase=f"tp{arm.tp}",
        method=Method(name=arm.name, kind=arm.kind, params=dict(arm.params)),
    )
    return replace(one, repeats=arm.repeats, baseline=one.baseline and not arm.repeats)


def _of(value: float | Mapping[str, float], cell: Cell) -> float:
    return value if isinstance(value, int | float) else value.get(cell.id, 1.0)


def _records(arm: Arm, cell: Cell, seed: int, truth: Truth, repeated: bool) -> tuple[RequestRecord, ...]:
    """What the arm answers: the same work for every arm and seed, speedups per arm, luck per seed."""
    work = random.Random(cell.id)
    gain = random.Random(f"{arm.name}/{cell.id}")
    luck = random.Random(f"{seed}/{arm.id}/{cell.id}")
    speed = _of(arm.speed, cell)
    spread = truth.by_prompt if arm.kind != "none" else 0.0
    seconds = [
        2.0 * exp(work.gauss(0, 0.2)) / speed / exp(gain.gauss(0, spread)) for _ in range(cell.requests)
    ]
    truth = replace_truth(truth, cell.concurrency)
    roles = ("measured", "control") if arm.kind == "none" and repeated and not arm.repeats else ("measured",)
    made = [record for role in roles for record in run(truth, luck, seconds, role)]  # type: ignore[arg-type]
    return tuple(replace(record, prompt_id=f"{cell.id}-{record.prompt_id}") for record in made)


def replace_truth(truth: Truth, concurrency: int) -> Truth:
    return Truth(by_prompt=truth.by_prompt, jitter=truth.jitter, concurrency=concurrency)


def _result(arm: Arm, one: Service, cell: Cell, records: tuple[RequestRecord, ...]) -> CellResult:
    if cell.id in arm.failed:
        why = Diagnosis(cause="server-died", summary="The server ended.")
        return CellResult(
            service=one.id, cell=cell, status="failed", started_at=STARTED, duration_s=0.0, diagnosis=why
        )
    load = LoadResult(records=records, duration_s=1.0, health=LoadHealth(cpu_share=0.1))
    steps = round(256_000 / (arm.tau or max(1.0, 2 * _of(arm.speed, cell))))
    spoken = Speculation(source="made up", tokens=256_000, steps=steps) if arm.kind != "none" else None
    flag = arm.flags.get(cell.id)
    return CellResult(
        service=one.id,
        cell=cell,
        status="ok",
        started_at=STARTED,
        duration_s=1.0,
        metrics=measure(cell, load, spoken),
        speculation=spoken,
        flags=(Flag(kind=flag, detail="planted"),) if flag else (),
    )
