"""What results say when they are held against each other."""

from typing import Literal

from draftmark.schema.common import Frozen, WorkloadKind
from draftmark.schema.results import FlagKind

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


class Parting(Frozen, frozen=True, kw_only=True):
    """Where one output of a method parts from the baseline's, and what each said from there."""

    prompt: str
    turn: int | None = None
    """Of a session."""
    position: int
    """From 0, in the comparison's unit."""
    margin: float | None
    """Nats between the baseline's two likeliest tokens there; None where that is not known."""
    baseline: str
    method: str


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
    partings: tuple[Parting, ...] = ()
    """One for each output that differs, the gravest first: an unknown margin before the narrow ones."""
    near_ties: int | None = None
    """Differences where the baseline's margin was below 0.1 nats; None where a margin is not known."""
    unit: Literal["token", "character"] = "character"

    @property
    def first(self) -> tuple[str, int, str, str] | None:
        """(prompt id, position, baseline's text from there, the method's) of the gravest difference."""
        if not self.partings:
            return None
        gravest = self.partings[0]
        return gravest.prompt, gravest.position, gravest.baseline, gravest.method


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
    ratio: Estimate | None
    """Of the rates, paired by prompt; None for the lowest degree itself."""
    flags: tuple[FlagKind, ...] = ()

    @property
    def per_gpu(self) -> float | None:
        """The ratio over that of the numbers of GPUs, 1 where they scale fully; None where there is none."""
        return None if self.ratio is None else self.ratio.value * self.over / self.tp


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
    """By more than its interval and 3 %."""


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
