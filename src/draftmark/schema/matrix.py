"""The plan, expanded: services, each with its cells."""

from typing import Literal

from draftmark.schema.common import Frozen, Name, PromptKind, RawApi, Scalar, TraceFormat, WorkloadKind
from draftmark.schema.plan import EngineSpec, ModelSpec, Plan

Place = tuple[str, int]
"""Host and tensor-parallel degree."""


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
    def asks_margins(self) -> bool:
        """The baseline also tells, in a pass that is not timed, how close each of its choices was."""
        return self.control and self.workload == "prompts" and self.temperature == 0 and self.api is None

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
    """Id of the baseline that this service measures again at the end of its phase; then it is no method."""
    hash: str = ""
    cells: tuple[Cell, ...] = ()

    @property
    def place(self) -> Place:
        """Where it runs: what is compared with a baseline shares its place."""
        return self.host, self.tp


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

    @property
    def baselines(self) -> dict[Place, Service]:
        """What the others of each place are compared with: the first baseline there."""
        found: dict[Place, Service] = {}
        for service in self.services:
            if service.baseline and service.repeats is None:
                found.setdefault(service.place, service)
        return found
