"""The plan, as a person writes it."""

from typing import Annotated, Literal

from msgspec import Meta

from draftmark.schema.common import (
    PROMPT_KINDS,
    SCENARIOS,
    Api,
    EngineKind,
    Frozen,
    Name,
    Positive,
    Precision,
    PromptKind,
    Scalar,
    TokenCount,
    TraceFormat,
)


class Host(Frozen, frozen=True, kw_only=True):
    """A machine that servers run on. Without ``address`` it is the machine draftmark runs on."""

    address: str | None = None
    """``user@name`` for SSH."""
    gpus: Annotated[int, Meta(ge=0)] | None = None
    """GPUs that may be used; asked of the machine when not given."""
    launcher: Literal["process", "systemd"] = "process"
    preempt: tuple[str, ...] = ()
    """systemd units to stop while draftmark uses the host, and to start again after."""


class EngineSpec(Frozen, frozen=True, kw_only=True):
    """Which server program, and how it is found."""

    kind: EngineKind
    python: str | None = None
    """Interpreter whose environment has the engine; draftmark's own when not given."""
    binary: str | None = None
    """Server program, for engines that are one."""
    version: str | None = None
    """Engine version, when it cannot be asked: decides which flags are known."""
    url: str | None = None
    """Base URL of a server that already runs (``attach``)."""
    api_key_env: str | None = None
    """Name of the environment variable that holds the API key; the key itself never enters a plan."""
    env: dict[str, str] = {}


class ModelSpec(Frozen, frozen=True, kw_only=True):
    """The model to serve: a bundled name, a path, or a hub id that the engine understands."""

    target: str
    draft: str | None = None
    tokenizer: str | None = None
    served_name: str | None = None


class ServerSpec(Frozen, frozen=True, kw_only=True):
    """Defaults of every service; the engine's own flags go to ``args``, without the leading dashes."""

    context_length: TokenCount | None = None
    context_needed: TokenCount | None = None
    """Of a request that servers are sized for, where no workload makes one as long."""
    memory_fraction: (
        Annotated[float, Meta(gt=0, le=1)] | dict[str, Annotated[float, Meta(gt=0, le=1)]] | None
    ) = None
    """A number, or one per tensor-parallel degree: ``{tp1: 0.80, default: 0.85}``."""
    max_running_requests: Positive | None = None
    threads: Positive | None = None
    """CPU threads, for engines that compute on the CPU; cores less one when not given."""
    ready_timeout_s: Annotated[float, Meta(gt=0)] | None = None
    args: dict[str, Scalar | None] = {}


class MethodSpec(Frozen, frozen=True, kw_only=True):
    """One method, or several where a parameter is a list.

    In the file the parameters stand beside ``kind``; here they are gathered in ``params``.
    """

    name: str
    """May hold ``{param}``, filled in for each value of a list."""
    kind: str
    draft: str | None = None
    """Overrides ``model.draft``."""
    args: dict[str, Scalar | None] = {}
    env: dict[str, str] = {}
    params: dict[str, Scalar | tuple[Scalar, ...]] = {}


class PromptsWorkload(Frozen, frozen=True, kw_only=True, tag_field="kind", tag="prompts"):
    """Single requests, one after another, of the five prompt kinds."""

    prompts: Annotated[tuple[PromptKind, ...], Meta(min_length=1)] = PROMPT_KINDS
    max_tokens: Annotated[tuple[TokenCount, ...], Meta(min_length=1)] = (256,)
    repetitions: Positive = 3
    precision: Precision | None = None
    """Repeat rounds of ``repetitions`` until half of the decode rate's 95 % interval is this share of it."""
    max_repetitions: Positive | None = None
    """Where ``precision`` is not reached, the cell ends after so many."""
    api: Api = "chat"
    temperature: Annotated[float, Meta(ge=0)] = 0.0


class ConcurrencyWorkload(Frozen, frozen=True, kw_only=True, tag_field="kind", tag="concurrency"):
    """Closed loop at each level, or open loop at each rate; prompt kinds are mixed."""

    levels: tuple[Positive, ...] = ()
    rates: tuple[Annotated[float, Meta(gt=0)], ...] = ()
    """Requests per second; arrivals do not wait for answers."""
    arrival: Literal["constant", "poisson", "gamma"] = "poisson"
    burstiness: Annotated[float, Meta(gt=0)] = 1.0
    """Squared coefficient of variation of the gaps of ``gamma`` arrivals; 1 is Poisson."""
    requests: Positive | None = None
    """Measured requests of a cell; when not given four per stream or 30 s of arrivals, at least 16."""
    precision: Precision | None = None
    """Repeat rounds of ``requests`` until half of the decode rate's 95 % interval is this share of it."""
    max_requests: Positive | None = None
    """Where ``precision`` is not reached, the cell ends after so many."""
    max_tokens: TokenCount = 256
    prompts: Annotated[tuple[PromptKind, ...], Meta(min_length=1)] = PROMPT_KINDS
    api: Api = "chat"
    temperature: Annotated[float, Meta(ge=0)] = 0.0


class ContextWorkload(Frozen, frozen=True, kw_only=True, tag_field="kind", tag="context"):
    """Prompts of exact length in the target's own tokens, from real prose and code."""

    lengths: Annotated[tuple[TokenCount, ...], Meta(min_length=1)]
    max_tokens: TokenCount = 256
    repetitions: Positive = 3
    """Of each of ``concurrency`` streams."""
    precision: Precision | None = None
    """Repeat rounds of ``repetitions`` until half of the decode rate's 95 % interval is this share of it."""
    max_repetitions: Positive | None = None
    """Where ``precision`` is not reached, the cell ends after so many."""
    concurrency: Positive = 1
    api: Api = "chat"
    temperature: Annotated[float, Meta(ge=0)] = 0.0


class AgenticWorkload(Frozen, frozen=True, kw_only=True, tag_field="kind", tag="agentic"):
    """Sessions of several turns whose context grows with the model's own replies."""

    scenarios: Annotated[tuple[str, ...], Meta(min_length=1)] = SCENARIOS
    """Of these, or paths of YAML files."""
    turns: Positive = 5
    max_tokens: TokenCount = 512
    """Of one turn."""
    repetitions: Positive = 3
    """Sessions of each of ``concurrency`` streams."""
    concurrency: Positive = 1
    temperature: Annotated[float, Meta(ge=0)] = 0.0


class TraceWorkload(Frozen, frozen=True, kw_only=True, tag_field="kind", tag="trace"):
    """Recorded traffic: in a closed loop, at rates, or at the times at which it was recorded."""

    file: str
    """Path."""
    format: TraceFormat
    requests: Positive
    """Of each cell."""
    levels: tuple[Positive, ...] = ()
    rates: tuple[Annotated[float, Meta(gt=0)], ...] = ()
    """Requests per second; arrivals do not wait for answers."""
    arrival: Literal["constant", "poisson", "gamma"] = "poisson"
    burstiness: Annotated[float, Meta(gt=0)] = 1.0
    """Squared coefficient of variation of the gaps of ``gamma`` arrivals; 1 is Poisson."""
    speedup: Annotated[float, Meta(gt=0)] | None = None
    """Send at the recorded times (``mooncake``), so many times as fast."""
    max_tokens: TokenCount = 256
    """Of each answer; of a ``mooncake`` answer at most, as it has a length of its own."""
    longest: TokenCount = 4096
    """Requests with a longer prompt are left out."""
    temperature: Annotated[float, Meta(ge=0)] = 0.0


Workload = PromptsWorkload | ConcurrencyWorkload | ContextWorkload | AgenticWorkload | TraceWorkload

OneOrMany = Scalar | tuple[Scalar, ...]


class Match(Frozen, frozen=True, kw_only=True):
    """A set of cells: every field that is given must hold; a list means any of; names may be globs."""

    workload: OneOrMany | None = None
    method: OneOrMany | None = None
    tp: OneOrMany | None = None
    host: OneOrMany | None = None
    prompt: OneOrMany | None = None
    max_tokens: OneOrMany | None = None
    length: OneOrMany | None = None
    level: OneOrMany | None = None
    rate: OneOrMany | None = None
    scenario: OneOrMany | None = None


class Rule(Frozen, frozen=True, kw_only=True):
    """Narrows the grid: ``keep`` or ``drop``; for each cell the first rule that matches decides."""

    keep: Match | None = None
    drop: Match | None = None
    why: str = ""


class Slo(Frozen, frozen=True, kw_only=True):
    """Latency targets that a recommendation must meet, in milliseconds."""

    ttft_ms: Annotated[float, Meta(gt=0)] | None = None
    tpot_ms: Annotated[float, Meta(gt=0)] | None = None
    e2e_ms: Annotated[float, Meta(gt=0)] | None = None


class Plan(Frozen, frozen=True, kw_only=True):
    """A benchmark campaign as one document."""

    name: Name
    description: str = ""
    hosts: dict[Name, Host] = {}
    engine: EngineSpec
    model: ModelSpec
    server: ServerSpec = ServerSpec()
    methods: Annotated[tuple[MethodSpec, ...], Meta(min_length=1)]
    tensor_parallel: Annotated[tuple[Positive, ...], Meta(min_length=1)] = (1,)
    workloads: Annotated[tuple[Workload, ...], Meta(min_length=1)]
    select: tuple[Rule, ...] = ()
    baseline: str | None = None
    """Name of the method that the others are compared with; the one of kind ``none`` when not given."""
    drift: bool = False
    """Measure some of the baseline's cells again at the end of each phase: had the machine changed?"""
    slo: Slo | None = None
    on_failure: Literal["skip", "adjust"] = "skip"
    seed: int = 0
