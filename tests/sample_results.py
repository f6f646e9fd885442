"""Made-up campaigns for the report's tests; every one says of itself that it is synthetic."""

from dataclasses import dataclass
from random import Random

from draftmark.compare import sides
from draftmark.compare.acceptance import acceptance, positions
from draftmark.compare.crossover import crossovers
from draftmark.compare.model import models
from draftmark.compare.scaling import scaling
from draftmark.schema import (
    CampaignInfo,
    CampaignResult,
    Cell,
    CellResult,
    Chunk,
    Chunks,
    Comparison,
    Diagnosis,
    Dropped,
    EngineSpec,
    Estimate,
    Flag,
    Lossless,
    Matrix,
    Method,
    MethodSpec,
    ModelSpec,
    Parting,
    Plan,
    PromptsWorkload,
    RequestRecord,
    Service,
    ServiceResult,
    Speculation,
    Speedup,
)

SYNTHETIC = "Synthetic sample: every number here is made up, nothing was measured."
MACHINE = {"note": SYNTHETIC, "cpu": "imaginary 8-core", "memory_gib": 64, "gpus": [{"name": "imaginary"}]}
WORDS = ("draft", "proposes", "tokens", "target", "verifies", "them", "step", "by", "until", "complete")


@dataclass(frozen=True)
class Gain:
    """How a method fares: acceptance length on easy and hard text, cost of a step, loss under load."""

    easy: float
    hard: float
    cost: float
    fade: float = 0.85


EASE = {"code": 0.85, "sorting": 1.0, "arithmetic": 0.6, "json": 0.95, "creative": 0.1, "mixed": 0.6}


def prompt_cells(tokens: tuple[int, ...], repetitions: int) -> tuple[Cell, ...]:
    return tuple(
        Cell(
            id=f"{kind}-{n}",
            workload="prompts",
            prompts=(kind,),
            max_tokens=n,
            repetitions=repetitions,
            requests=repetitions,
        )
        for n in tokens
        for kind in ("code", "sorting", "arithmetic", "json", "creative")
    )


def load_cells(levels: tuple[int, ...]) -> tuple[Cell, ...]:
    return tuple(
        Cell(
            id=f"c{level}-512",
            workload="concurrency",
            max_tokens=512,
            concurrency=level,
            requests=max(16, 4 * level),
        )
        for level in levels
    )


def rate_cells(rates: tuple[float, ...]) -> tuple[Cell, ...]:
    return tuple(
        Cell(
            id=f"r{rate:g}-512",
            workload="concurrency",
            max_tokens=512,
            rate=rate,
            arrival="poisson",
            requests=32,
        )
        for rate in rates
    )


def context_cells(lengths: tuple[int, ...]) -> tuple[Cell, ...]:
    return tuple(
        Cell(
            id=f"ctx{n // 1000}k-256", workload="context", max_tokens=256, repetitions=3, requests=3, length=n
        )
        for n in lengths
    )


def session_cells() -> tuple[Cell, ...]:
    return tuple(
        Cell(id=f"{name}-5", workload="agentic", max_tokens=512, requests=5, turns=5, scenario=name)
        for name in ("cli-calculator", "data-pipeline")
    )


def service(engine: str, tp: int, method: Method, cells: tuple[Cell, ...]) -> Service:
    return Service(
        id=f"{engine}-tp{tp}-{method.name}",
        phase=f"tp{tp}",
        host="local",
        tp=tp,
        engine=EngineSpec(kind="llamacpp" if engine == "llamacpp" else "sglang"),
        model=ModelSpec(target="imaginary/Model-27B"),
        method=method,
        context_needed=4096,
        max_running_requests=8,
        ready_timeout_s=600,
        baseline=method.kind == "none",
        cells=cells,
    )


def plan(name: str, engine: str, methods: tuple[Method, ...]) -> Plan:
    return Plan(
        name=name,
        description=SYNTHETIC,
        engine=EngineSpec(kind="llamacpp" if engine == "llamacpp" else "sglang"),
        model=ModelSpec(target="imaginary/Model-27B", draft="imaginary/Draft-1B"),
        methods=tuple(MethodSpec(name=m.name, kind=m.kind) for m in methods),
        workloads=(PromptsWorkload(),),
        baseline="ar",
    )


@dataclass(frozen=True)
class Outcome:
    """What one made-up cell comes to."""

    ratio: float
    tau: float
    decode: float


def outcome(rng: Random, tp: int, cell: Cell, gain: Gain | None) -> Outcome:
    """Speed of a cell: the baseline's where there is no gain."""
    base = 34.0 * tp**0.55 / (1 + (cell.length or 0) / 9e4) / cell.concurrency**0.2
    if gain is None:
        return Outcome(1.0, 1.0, base * rng.uniform(0.99, 1.01))
    ease = EASE[cell.prompts[0]] if cell.prompts else EASE["mixed"]
    tau = (gain.hard + (gain.easy - gain.hard) * ease) * rng.uniform(0.97, 1.03)
    ratio = tau / gain.cost * gain.fade ** (cell.concurrency.bit_length() - 1)
    return Outcome(ratio, tau, base * ratio)


def metrics(rng: Random, cell: Cell, out: Outcome, speculative: bool) -> dict[str, float]:
    tpot = 1000 / out.decode
    ttft = 45 + (cell.length or 300) / 9 + 30 * cell.concurrency
    found = {
        "completed": float(cell.requests),
        "failed": 0.0,
        "duration": 12.5,
        "decode_tok_s": out.decode,
        "effective_concurrency": cell.concurrency * 0.96,
        "output_throughput": out.decode * cell.concurrency * 0.9,
        "mean_tpot_ms": tpot,
        "median_tpot_ms": tpot * 0.99,
        "std_tpot_ms": tpot * rng.uniform(0.02, 0.08),
        "median_ttft_ms": ttft,
        "p90_ttft_ms": ttft * 1.3,
        "p99_ttft_ms": ttft * 1.6,
        "median_e2el_ms": ttft + tpot * cell.max_tokens,
    }
    if cell.rate is None:
        found["steady_tok_s"] = out.decode * cell.concurrency
    return found | ({"tau": out.tau, "step_ms": tpot * out.tau} if speculative else {})


def speedup(rng: Random, service: Service, cell: Cell, out: Outcome, flags: tuple[Flag, ...]) -> Speedup:
    n = max(3, cell.requests // 3)
    half = rng.uniform(1.03, 1.14)
    low, high = out.ratio / half, out.ratio * half
    verdict = "faster" if low > 1 else "slower" if high < 1 else "cannot tell"
    return Speedup(
        service=service.id,
        method=service.method.name,
        tp=service.tp,
        host=service.host,
        cell=cell.id,
        metric="decode_tok_s" if cell.concurrency == 1 else "steady_tok_s",
        ratio=Estimate(value=out.ratio, low=low, high=high, n=n),
        verdict=verdict,
        noise=0.01,
        tau=out.tau,
        step_ratio=out.ratio / out.tau,
        flags=tuple(flag.kind for flag in flags),
    )


def lossless(rng: Random, service: Service, cell: Cell) -> Lossless:
    differs = rng.random() < 0.12
    near = not differs and rng.random() < 0.2
    return Lossless(
        service=service.id,
        method=service.method.name,
        cell=cell.id,
        verdict="diverges" if differs else "near-ties only" if near else "identical",
        compared=cell.requests,
        differing=1 if differs or near else 0,
        control_compared=cell.requests,
        control_differing=0,
        partings=(parting(f"{cell.id}-0"),) if differs else (),
    )


def parting(prompt: str) -> Parting:
    texts = {"baseline": "for item in items:", "method": "for element in items:"}
    return Parting(prompt=prompt, position=117, margin=1.5, **texts)


def answer(rng: Random, cell: Cell, out: Outcome, number: int, text: str | None) -> RequestRecord:
    """One request whose chunks are steps of tau tokens."""
    steps = max(2, int(min(cell.max_tokens, 128) / out.tau))
    gap = out.tau / out.decode
    words = (
        [text]
        if text is not None
        else [" ".join(rng.choices(WORDS, k=max(1, round(out.tau)))) for _ in range(steps)]
    )
    chunks = Chunks(
        Chunk(t_s=0.08 + (index + rng.uniform(0, 0.3)) * gap, text=f"{word} ", tokens=max(1, round(out.tau)))
        for index, word in enumerate(words)
    )
    return RequestRecord(
        request=f"{cell.id}-{number}",
        prompt_id=f"{cell.id}-p{number}",
        kind=cell.prompts[0] if cell.prompts else "code",
        role="measured",
        start_s=(number // cell.concurrency) * (steps * gap + 0.1) + 0.01 * (number % cell.concurrency),
        end_s=chunks[-1].t_s,
        chunks=chunks,
        prompt_tokens=210,
        output_tokens=round(steps * out.tau),
        cached_tokens=0,
        finish_reason="length",
        max_tokens=cell.max_tokens,
        speculation=Speculation(source="timings", tokens=round(steps * out.tau), steps=steps),
    )


def cell_result(service: Service, cell: Cell, found: dict[str, float], flags: tuple[Flag, ...]) -> CellResult:
    return CellResult(
        service=service.id,
        cell=cell,
        status="ok",
        started_at="2026-11-29T10:20:00Z",
        duration_s=12.5,
        metrics=found,
        flags=flags,
        speculation=Speculation(
            source="/metrics difference",
            steps=900,
            accepted=sum(by_position(found["tau"])),
            drafted=2400,
            draft_steps=800,
            accepted_per_position=by_position(found["tau"]),
        )
        if "tau" in found
        else None,
    )


def by_position(tau: float) -> tuple[int, ...]:
    """Accepted drafts at each position of 800, falling geometrically, that make about this tau."""
    keep = (tau - 1) / tau
    return tuple(round(800 * keep**position) for position in range(1, 5))


def failed_cell(service: Service, cell: Cell) -> CellResult:
    return CellResult(
        service=service.id,
        cell=cell,
        status="failed",
        started_at="2026-11-29T10:40:00Z",
        duration_s=3.1,
        diagnosis=Diagnosis(
            cause="server-died",
            summary="The server ended while the cell ran (signal 9).",
            evidence=("[10:40:02] decode batch 3", "Killed"),
            remedy="Lower server.memory_fraction.",
        ),
    )


def started(service: Service, version: str) -> ServiceResult:
    return ServiceResult(
        service=service,
        status="ok",
        engine_version=version,
        started_at="2026-11-29T10:15:00Z",
        ready_s=41.2,
        facts={
            "predicted": {"weights_bytes": 2**34, "kv_bytes": 3 * 2**32, "max_running_requests": 8},
            "weights_bytes": 2**34 + 2**28,
            "kv_bytes": 2**33,
        },
        argv=(
            "imaginary-server",
            "--model",
            "imaginary/Model-27B",
            "--tp",
            str(service.tp),
            "--method",
            service.method.kind,
        ),
    )


def failed_start(service: Service) -> ServiceResult:
    return ServiceResult(
        service=service,
        status="failed",
        started_at="2026-11-29T11:15:00Z",
        exit_status=1,
        log_tail="RuntimeError",
        diagnosis=Diagnosis(
            cause="no-memory-for-requests",
            summary="After weights, draft and recurrent state no memory is left for a single request.",
            evidence=("max_running_request is zero", "RuntimeError: Not enough memory"),
            remedy="Raise server.memory_fraction to 0.88, or lower server.context_length to 16384.",
        ),
    )


def campaign(
    name: str,
    engine: str,
    version: str,
    services: tuple[Service, ...],
    gains: dict[str, Gain | None],
    *,
    dead: str = "",
    broken: tuple[str, str] = ("", ""),
    records: bool = False,
    text: str | None = None,
    seed: int = 0,
) -> tuple[CampaignResult, Comparison]:
    """Results and comparison of made-up services; ``dead`` never starts, ``broken`` is a cell that fails."""
    rng = Random(seed)
    cells: list[CellResult] = []
    speedups: list[Speedup] = []
    checks: list[Lossless] = []
    kept: dict[str, tuple[RequestRecord, ...]] = {}
    live = [(s, cell) for s in services if s.id != dead for cell in s.cells]
    for s, cell in live:
        if (s.id, cell.id) == broken:
            cells.append(failed_cell(s, cell))
            continue
        gain = gains[s.method.name]
        out = outcome(rng, s.tp, cell, gain)
        flags = made_flags(rng, s, cell)
        cells.append(cell_result(s, cell, metrics(rng, cell, out, gain is not None), flags))
        if gain is not None:
            speedups.append(speedup(rng, s, cell, out, flags))
            checks.append(lossless(rng, s, cell))
        if records:
            kept[f"{s.id}/{cell.id}"] = tuple(answer(rng, cell, out, i, text) for i in range(cell.requests))
    methods = tuple({s.method.name: s.method for s in services}.values())
    dropped = Dropped(
        service=services[0].id, cell="ctx100k-256", phase="tp1", why="prefill of 100k takes too long"
    )
    the_plan = plan(name, engine, methods)
    result = CampaignResult(
        info=CampaignInfo(
            draftmark="0.1.0",
            plan=the_plan,
            machine=MACHINE,
            started_at="2026-11-29T10:15:00Z",
            plan_text=f"# {SYNTHETIC}\nname: {name}\nengine: {{kind: {engine}}}\n",
        ),
        matrix=Matrix(
            plan=the_plan,
            services=services,
            dropped=(dropped,),
        ),
        services=tuple(failed_start(s) if s.id == dead else started(s, version) for s in services),
        cells=tuple(cells),
        records=kept,
    )
    return result, compared(result, tuple(speedups), tuple(checks))


def compared(
    result: CampaignResult, speedups: tuple[Speedup, ...], checks: tuple[Lossless, ...]
) -> Comparison:
    """Made-up speedups and checks, and what follows from them and from the cells."""
    services, measured = result.matrix.services, sides(result)
    own = {s.id: [side for (name, _), side in measured.items() if name == s.id] for s in services}
    by_cell = {(one.service, one.cell): one for one in speedups}
    by_service = {s.id: {one.cell: one for one in speedups if one.service == s.id} for s in services}
    return Comparison(
        baseline="ar",
        speedups=speedups,
        lossless=checks,
        acceptance=tuple(one for s in services for one in acceptance(s, own[s.id])),
        positions=tuple(one for s in services for one in positions(s, own[s.id])),
        crossovers=tuple(one for s in services for one in crossovers(s, by_service[s.id])),
        scaling=tuple(scaling(services, measured)),
        models=tuple(models(services, by_cell)),
    )


def made_flags(rng: Random, service: Service, cell: Cell) -> tuple[Flag, ...]:
    if service.method.name == "what-if":
        return (Flag(kind="synthetic", detail="acceptance fixed at 0.8 by the server's flag"),)
    if service.method.kind != "none" and rng.random() < 0.03:
        return (Flag(kind="degenerate", detail="61 % of the output repeats one passage"),)
    return (
        (Flag(kind="capped", detail="ran 6 at once, 8 asked for"),)
        if cell.concurrency == 8 and rng.random() < 0.3
        else ()
    )


def quickstart(text: str | None = None) -> tuple[CampaignResult, Comparison]:
    """Three methods on one small machine, with every request; ``text`` stands in for every answer."""
    gains: dict[str, Gain | None] = {
        "ar": None,
        "ngram-mod": Gain(1.75, 1.02, 1.06),
        "draft": Gain(2.2, 1.35, 1.5, 0.7),
        "what-if": Gain(4.0, 4.0, 1.2),
    }
    kinds = {"ar": "none", "ngram-mod": "ngram-mod", "draft": "draft", "what-if": "synthetic"}
    cells = (*prompt_cells((128,), 5), *load_cells((1, 2, 4)))
    services = tuple(service("llamacpp", 1, Method(name=name, kind=kinds[name]), cells) for name in gains)
    return campaign(
        "quickstart",
        "llamacpp",
        "b7200",
        services,
        gains,
        records=True,
        text=text,
        broken=("llamacpp-tp1-draft", "c4-512"),
    )


def method(name: str) -> Method:
    """A method by its name: ``ddtree-b15`` is a tree of budget 15."""
    kind, _, budget = name.partition("-b")
    return Method(
        name=name, kind="none" if kind == "ar" else kind, params={"budget": int(budget)} if budget else {}
    )


def big() -> tuple[CampaignResult, Comparison]:
    """Sixteen services, eight methods, three degrees of tensor parallelism, four workloads; no requests."""
    gains: dict[str, Gain | None] = {"ar": None, "dflash": Gain(4.2, 1.6, 1.35)} | {
        f"ddtree-b{budget}": Gain(
            4.2 + budget**0.5 / 6, 1.7 + budget**0.5 / 12, 1.3 + budget / 90, 0.9 - budget / 300
        )
        for budget in (8, 12, 15, 16, 32, 64)
    }
    cells = (
        *prompt_cells((256, 1024, 2048), 3),
        *load_cells((1, 2, 4, 8)),
        *rate_cells((0.5, 1.0, 2.0)),
        *context_cells((3_000, 30_000, 100_000)),
        *session_cells(),
    )
    few = ("ar", "dflash", "ddtree-b15", "ddtree-b32")
    services = tuple(
        service("sglang", tp, method(name), cells)
        for tp, names in ((1, tuple(gains)), (4, few), (8, few))
        for name in names
    )
    return campaign(
        "sixteen-services",
        "sglang",
        "0.5.6",
        services,
        gains,
        dead="sglang-tp1-ddtree-b64",
        broken=("sglang-tp8-ddtree-b32", "c8-512"),
        seed=1,
    )


def grid(budgets: int, lengths: int, *, records: bool = False) -> tuple[CampaignResult, Comparison]:
    """A baseline and so many methods on five prompts of so many lengths each, and some load."""
    gains: dict[str, Gain | None] = {"ar": None} | {
        f"ddtree-b{b}": Gain(4.2 + b**0.5 / 6, 1.7 + b**0.5 / 12, 1.3 + b / 90) for b in range(2, budgets + 2)
    }
    cells = (*prompt_cells(tuple(range(64, 64 + 16 * lengths, 16)), 3), *load_cells((1, 2, 4, 8, 16, 32)))
    kinds = {name: "ddtree" if gain else "none" for name, gain in gains.items()}
    services = tuple(service("sglang", 1, Method(name=n, kind=kind), cells) for n, kind in kinds.items())
    return campaign("grid", "sglang", "0.5.6", services, gains, records=records, seed=2)


def vast() -> tuple[CampaignResult, Comparison]:
    """5,022 cells; no requests."""
    return grid(26, 36)
