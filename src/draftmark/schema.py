"""The data that flows through draftmark, frozen; nothing here does anything.

plan.yaml → Plan → Services, each with its Cells → Requests → RequestRecords → CellResult.
A stored file carries ``SCHEMA_VERSION``; a file of another version is refused, not guessed at.

History of the stored format:
    1  (2026-11) first
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

SCHEMA_VERSION = 1

Scalar = bool | int | float | str
Positive = Annotated[int, Meta(ge=1)]
TokenCount = (
    Annotated[int, Meta(ge=1)]
    | Annotated[str, Meta(pattern=r"^[1-9][0-9]*(\.[0-9]{1,3})?k$", description="thousands such as 3k")]
)
Name = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
        description="a name of letters, digits, '.', '_' and '-' that begins with a letter or digit",
    ),
]
PromptKind = Literal["code", "sorting", "arithmetic", "json", "creative"]
PROMPT_KINDS: tuple[PromptKind, ...] = ("code", "sorting", "arithmetic", "json", "creative")
SCENARIOS = ("cli-calculator", "data-pipeline")
"""The agentic sessions that come with draftmark."""
WorkloadKind = Literal["prompts", "concurrency", "context", "agentic", "trace"]
RawApi = Literal["completions", "tokens"]
"""Prompts that are sent without a chat template: as text, or as token ids."""
Api = Literal["chat", "completions", "tokens"]
TraceFormat = Literal["sharegpt", "mooncake"]
Precision = Annotated[float, Meta(gt=0, lt=1)]
EngineKind = Literal["sglang", "vllm", "llamacpp", "reference", "attach"]
Role = Literal["warmup", "measured", "control"]


class Frozen(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Common settings of every type here: unknown fields are refused.

    ``frozen`` and ``kw_only`` are repeated on each type because type checkers do not see them inherited.
    """


# --- the plan, as a person writes it ---------------------------------------------------------------


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
    repetitions: Positive = 1
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
    slo: Slo | None = None
    on_failure: Literal["skip", "adjust"] = "skip"
    seed: int = 0


# --- the plan, expanded ----------------------------------------------------------------------------


class Method(Frozen, frozen=True, kw_only=True):
    """One method with every parameter a single value."""

    name: Name
    kind: str
    draft: str | None = None
    params: dict[str, Scalar] = {}
    args: dict[str, Scalar | None] = {}
    env: dict[str, str] = {}


class Cell(Frozen, frozen=True, kw_only=True):
    """One workload point on one service: what is measured, stored and resumed as a whole."""

    id: str
    """Unique within its service and the same for every service, e.g. ``code-256`` or ``c4-512``."""
    workload: WorkloadKind
    prompts: tuple[PromptKind, ...] = ()
    max_tokens: int
    repetitions: int = 1
    """Requests of a ``prompts`` or ``context`` cell, sessions of an ``agentic`` one."""
    concurrency: int = 1
    rate: float | None = None
    arrival: Literal["constant", "poisson", "gamma"] | None = None
    burstiness: float = 1.0
    requests: int
    """Measured requests (turns, for sessions); of one round, where there is a ``precision``."""
    precision: float | None = None
    """Half of the decode rate's 95 % interval, as a share of it, at which no more rounds are measured."""
    max_requests: int | None = None
    """Of all rounds."""
    api: RawApi | None = None
    """None is a chat."""
    length: int | None = None
    """Prompt tokens, where they are exact."""
    scenario: str | None = None
    turns: int | None = None
    trace: str | None = None
    """File of recorded traffic, by the plan's word."""
    format: TraceFormat | None = None
    longest: int | None = None
    """Prompt tokens above which a trace's request is left out."""
    speedup: float | None = None
    """Requests are sent at the recorded times over this."""
    first_prompt: int = 0
    """Where its prompts begin in the endless sequence of its kinds, so that no two cells share one."""
    temperature: float = 0.0
    seed: int = 0
    control: bool = False
    """Repeat each request once, as the control for noise and losslessness (the baseline only)."""
    hash: str = ""
    """Of everything that the measured numbers depend on, the service included."""

    @property
    def open_loop(self) -> bool:
        """Requests are sent at their own times, whether earlier ones are answered or not."""
        return self.rate is not None or self.speedup is not None

    @property
    def most_requests(self) -> int:
        """Measured requests, if every round is needed."""
        return self.max_requests or self.requests


class Service(Frozen, frozen=True, kw_only=True):
    """One distinct server configuration; one start serves all of its cells."""

    id: str
    """E.g. ``sglang-tp1-ddtree-b15``."""
    phase: str
    host: str
    tp: int
    engine: EngineSpec
    model: ModelSpec
    method: Method
    context_length: int | None = None
    context_needed: int
    """Tokens of the longest request that its workloads make."""
    memory_fraction: float | None = None
    max_running_requests: int
    threads: int | None = None
    ready_timeout_s: float
    args: dict[str, Scalar | None] = {}
    env: dict[str, str] = {}
    baseline: bool = False
    repeats: str | None = None
    """Id of the baseline that this service measures again at the end of its phase, to tell drift."""
    hash: str = ""
    cells: tuple[Cell, ...] = ()


class Dropped(Frozen, frozen=True, kw_only=True):
    """A cell that the plan excludes, and why."""

    service: str
    cell: str
    phase: str
    why: str


class Matrix(Frozen, frozen=True, kw_only=True):
    """What a plan expands to, in the order in which it runs."""

    plan: Plan
    services: tuple[Service, ...]
    dropped: tuple[Dropped, ...] = ()

    @property
    def phases(self) -> tuple[str, ...]:
        """Names of the phases, in order."""
        return tuple(dict.fromkeys(service.phase for service in self.services))


# --- one request -----------------------------------------------------------------------------------


class Message(Frozen, frozen=True, kw_only=True):
    """One chat message."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str


class Request(Frozen, frozen=True, kw_only=True):
    """One request as the workload means it; the engine turns it into a body."""

    id: str
    """Unique within its cell."""
    prompt_id: str
    """The same for every service: comparisons pair by it."""
    kind: str
    """Prompt kind, ``context``, or scenario."""
    role: Role = "measured"
    messages: tuple[Message, ...] = ()
    prompt: str | tuple[int, ...] | None = None
    """For raw completions: text or token ids; exclusive with ``messages``."""
    max_tokens: int
    temperature: float = 0.0
    seed: int = 0
    ignore_eos: bool = True
    session: str | None = None
    turn: int | None = None
    send_at_s: float | None = None
    """Open loop: when to send, from the start of the cell."""


class Session(Frozen, frozen=True, kw_only=True):
    """A conversation whose next turn is sent when the reply to the last one has arrived.

    Turn i is sent as everything so far, the model's own replies included, plus ``turns[i]``.
    """

    id: str
    prompt_id: str
    scenario: str
    role: Role = "measured"
    turns: tuple[tuple[Message, ...], ...]
    """Messages that each turn adds: user text and tool results."""
    max_tokens: int
    """Of one turn."""
    temperature: float = 0.0
    seed: int = 0
    ignore_eos: bool = False


class Work(Frozen, frozen=True, kw_only=True):
    """What one cell sends: warm-up first, then either requests or sessions."""

    warmup: tuple[Request, ...] = ()
    requests: tuple[Request, ...] = ()
    sessions: tuple[Session, ...] = ()


class Chunk(Frozen, frozen=True, kw_only=True, array_like=True):
    """One token-carrying piece of a stream."""

    t_s: float
    """Arrival, seconds after the request's start."""
    text: str = ""
    reasoning: str = ""
    tokens: int | None = None
    """Tokens in it, where the engine says so; never guessed."""
    ids: tuple[int, ...] = ()
    margins: tuple[float, ...] = ()
    """Of each token, its log-probability over that of the runner-up, in nats, where they were asked for."""


class Speculation(Frozen, frozen=True, kw_only=True):
    """What an engine says of one request's, or one cell's, speculation.

    A field is None where the source does not say. ``steps`` counts every decode step, with a draft or not.
    """

    source: str
    """Where the figures come from, e.g. ``timings`` or ``/metrics difference``."""
    tokens: int | None = None
    """Tokens that the steps committed."""
    steps: int | None = None
    accepted: int | None = None
    """Draft tokens that were accepted."""
    drafted: int | None = None
    """Draft tokens that were proposed."""
    draft_steps: int | None = None
    """Steps that had a draft."""
    accepted_per_position: tuple[int, ...] = ()


class RequestRecord(Frozen, frozen=True, kw_only=True):
    """What happened to one request."""

    request: str
    prompt_id: str
    kind: str
    role: Role
    session: str | None = None
    turn: int | None = None
    round: int = 0
    """Of the load: at the end of a round nothing is in flight."""
    start_s: float
    """From the start of the cell's measurement, on the load client's monotonic clock."""
    sent_late_s: float | None = None
    """Open loop: how much later than planned it was sent."""
    end_s: float | None = None
    """Arrival of the last byte, seconds after ``start_s``."""
    chunks: tuple[Chunk, ...] = ()
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    finish_reason: str | None = None
    max_tokens: int
    speculation: Speculation | None = None
    error: str | None = None
    """Short stable word (``connect``, ``timeout``, ``http-500``, ``cut``, ``bad-json``), or None."""
    error_detail: str = ""

    @property
    def text(self) -> str:
        """All text of the answer, reasoning excluded."""
        return "".join(chunk.text for chunk in self.chunks)

    @property
    def ok(self) -> bool:
        """It completed."""
        return self.error is None


class LoadHealth(Frozen, frozen=True, kw_only=True):
    """How the load client itself fared while it measured."""

    cpu_share: float
    """CPU time over wall time of the busiest worker."""
    loop_lag_p99_s: float | None = None
    late_sends: int = 0
    workers: int = 1


class LoadResult(Frozen, frozen=True, kw_only=True):
    """Everything one cell's load produced."""

    records: tuple[RequestRecord, ...]
    duration_s: float
    health: LoadHealth


# --- results ---------------------------------------------------------------------------------------

FlagKind = Literal[
    "early-stop",
    "cache-hit",
    "degenerate",
    "client-bound",
    "foreign-load",
    "capped",
    "synthetic",
    "no-draft",
    "drift",
    "few-samples",
    "adjusted",
]


class Flag(Frozen, frozen=True, kw_only=True):
    """A reason to doubt a cell's numbers."""

    kind: FlagKind
    detail: str


class Diagnosis(Frozen, frozen=True, kw_only=True):
    """Why something failed."""

    cause: str
    """Short stable name, e.g. ``port-in-use``."""
    summary: str
    evidence: tuple[str, ...] = ()
    """Lines of the log, or what was observed."""
    remedy: str = ""
    adjust: dict[str, Scalar] = {}
    """Settings of the service that would avoid it, where changing them is safe."""


Status = Literal["ok", "failed", "interrupted"]


class CellResult(Frozen, frozen=True, kw_only=True):
    """One cell, as stored."""

    schema_version: int = SCHEMA_VERSION
    service: str
    cell: Cell
    status: Status
    started_at: str
    """UTC, ISO 8601."""
    duration_s: float
    """From the start of the clock to the end of the last measured request."""
    wall_s: float | None = None
    """All around it too: load client, warm-up, control."""
    metrics: dict[str, float] = {}
    """Keys of ``metrics.METRICS``; what could not be measured is absent."""
    speculation: Speculation | None = None
    flags: tuple[Flag, ...] = ()
    health: LoadHealth | None = None
    foreign_cpu: float | None = None
    """CPU cores that other processes used while it was measured."""
    diagnosis: Diagnosis | None = None
    attempts: int = 1
    requests_sha256: str = ""
    """Of the compressed request records beside it."""


class ServiceResult(Frozen, frozen=True, kw_only=True):
    """One start of a service, as stored."""

    schema_version: int = SCHEMA_VERSION
    service: Service
    status: Status
    argv: tuple[str, ...] = ()
    env: dict[str, str] = {}
    """What was set beyond the inherited environment; secrets masked."""
    engine_version: str | None = None
    started_at: str
    ready_s: float | None = None
    facts: dict[str, Any] = {}
    """What the server says of itself: caps, memory, versions."""
    warnings: tuple[Diagnosis, ...] = ()
    """What it does otherwise than it was asked to, by its log at the time when it was ready."""
    adjusted: dict[str, Scalar | None] = {}
    """Settings that were changed as ``first_failure`` advised, after a start under the plan's own."""
    first_failure: Diagnosis | None = None
    exit_status: int | None = None
    diagnosis: Diagnosis | None = None
    log_tail: str = ""


class CampaignInfo(Frozen, frozen=True, kw_only=True):
    """What a result tree was made from."""

    schema_version: int = SCHEMA_VERSION
    draftmark: str
    """Version."""
    plan: Plan
    plan_text: str
    files: dict[str, str] = {}
    """Of each file that the plan names, by its word: a scenario's text, a trace's digest."""
    started_at: str
    machine: dict[str, Any] = {}


class CampaignResult(Frozen, frozen=True, kw_only=True):
    """A whole result tree, read back; what a report is made from."""

    info: CampaignInfo
    matrix: Matrix
    services: tuple[ServiceResult, ...] = ()
    cells: tuple[CellResult, ...] = ()
    records: dict[str, tuple[RequestRecord, ...]] = {}
    """By ``service/cell``; only where they were asked for."""


# --- comparison ------------------------------------------------------------------------------------

Verdict = Literal["faster", "slower", "cannot tell"]
Losslessness = Literal["identical", "near-ties only", "diverges", "not checked"]


class Estimate(Frozen, frozen=True, kw_only=True):
    """A value with its 95 % interval; ``low`` and ``high`` are None where ``n`` is too small for one."""

    value: float
    low: float | None = None
    high: float | None = None
    n: int
    """Independent units behind it: prompts, not requests."""


class Speedup(Frozen, frozen=True, kw_only=True):
    """A method against the baseline on one cell, paired by prompt and repetition."""

    service: str
    method: str
    tp: int
    host: str
    cell: str
    metric: Literal["decode_tok_s", "steady_tok_s"]
    ratio: Estimate
    verdict: Verdict
    noise: float | None = None
    """How far from 1 the baseline's repetitions reach, in the cell and at the phase's end; None without."""
    tau: float | None = None
    step_ratio: float | None = None
    """Baseline ``step_s`` over the method's; speedup = tau × step_ratio."""
    flags: tuple[FlagKind, ...] = ()
    """Of either cell; a flagged comparison is shown and not ranked."""


class Lossless(Frozen, frozen=True, kw_only=True):
    """Whether a method changed the greedy output on one cell."""

    service: str
    method: str
    cell: str
    verdict: Losslessness
    compared: int
    """Pairs of outputs."""
    differing: int
    control_compared: int
    control_differing: int
    """The baseline against its own repetition, under the same load."""
    first: tuple[str, int, str, str] | None = None
    """(prompt id, position, baseline's text from there, the method's) of the first difference."""
    near_ties: int | None = None
    """Differences where the baseline's margin was below 0.1 nats; None where a margin is not known."""
    unit: Literal["token", "character"] = "character"


class Acceptance(Frozen, frozen=True, kw_only=True):
    """How far a service's steps get on one slice of what it was asked, over all cells that have the slice."""

    service: str
    method: str
    workload: WorkloadKind
    by: Literal["kind", "turn", "context"]
    value: str | int
    """Prompt kind; turn, from 0; prompt tokens, in sessions rounded down to a power of two."""
    tau: Estimate
    """Tokens per step; the interval is over prompts, and missing where single requests do not tell."""
    steps: int


class Positions(Frozen, frozen=True, kw_only=True):
    """How often a service's drafts were accepted at each position, over all cells of a workload."""

    service: str
    method: str
    workload: WorkloadKind
    accepted: tuple[float, ...]
    """Share of the steps with a draft that accepted it at position 0, 1, …, whatever its length."""
    steps: int

    @property
    def conditional(self) -> tuple[float, ...]:
        """The same among the steps that accepted everything before; it ends where nothing was."""
        before = (1.0, *self.accepted)
        return tuple(here / last for here, last in zip(self.accepted, before, strict=False) if last > 0)


Course = Literal["faster", "slower", "stops paying", "starts paying", "back and forth", "cannot tell"]


class Crossover(Frozen, frozen=True, kw_only=True):
    """How a service's verdict changes along one axis; only measured points count, nothing is interpolated."""

    service: str
    method: str
    tp: int
    host: str
    axis: Literal["concurrency", "rate", "context"]
    cells: tuple[str, ...]
    """In the order of ``points``."""
    points: tuple[tuple[float, Verdict], ...]
    """(level, verdict) of each measured level that is not flagged, lowest first."""
    left_out: tuple[float, ...] = ()
    """Levels that are flagged."""
    course: Course
    """``faster`` and ``slower`` hold at every point; with one known side only it is ``cannot tell``."""
    between: tuple[float, float] | None = None
    """Last level of one verdict and first of the other, where the verdict turns exactly once."""
    last_faster: float | None = None
    first_slower: float | None = None


class Scaling(Frozen, frozen=True, kw_only=True):
    """One method at one tensor-parallel degree against itself at the lowest one measured."""

    service: str
    method: str
    host: str
    tp: int
    over: int
    """The lowest degree that has the cell."""
    cell: str
    metric: Literal["decode_tok_s", "steady_tok_s"]
    rate: float
    """Tokens per second."""
    per_gpu: float
    ratio: Estimate | None
    """Of the rates, paired by prompt; None for the lowest degree itself."""
    flags: tuple[FlagKind, ...] = ()


class CostModel(Frozen, frozen=True, kw_only=True):
    """A model, not a measurement: one parameter of a method against acceptance and cost on one cell.

    tau(b) = 1 + reach × (1 − exp(−b / scale)); a step costs base + slope × b baseline steps.
    """

    kind: str
    """Of the methods."""
    parameter: str
    tp: int
    host: str
    cell: str
    points: tuple[tuple[float, float, float], ...]
    """(parameter, tau, cost of a step in baseline steps) as measured."""
    reach: float
    scale: float
    base: float
    slope: float
    error: float
    """Largest relative error of the speedup at a measured point that was left out of the fit."""
    best: float
    """Value with the highest expected speedup, within the measured ones."""
    expected: float
    """The speedup that the model expects there."""


class Drift(Frozen, frozen=True, kw_only=True):
    """The baseline at the end of its phase against itself at the beginning."""

    service: str
    cell: str
    ratio: Estimate
    """Later over earlier, paired by prompt."""
    moved: bool
    """By more than its interval, its noise and 3 %."""


class Comparison(Frozen, frozen=True, kw_only=True):
    """Every method of a campaign against its baseline."""

    baseline: str | None
    speedups: tuple[Speedup, ...] = ()
    lossless: tuple[Lossless, ...] = ()
    acceptance: tuple[Acceptance, ...] = ()
    positions: tuple[Positions, ...] = ()
    crossovers: tuple[Crossover, ...] = ()
    scaling: tuple[Scaling, ...] = ()
    models: tuple[CostModel, ...] = ()
    drift: tuple[Drift, ...] = ()
    notes: tuple[str, ...] = ()
    """What could not be compared, and why."""
