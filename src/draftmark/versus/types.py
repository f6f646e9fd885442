"""What comparing two result trees gives."""

from typing import Literal

from draftmark.schema import Estimate, FlagKind, Frozen

Outcome = Literal["PASS", "REGRESSION", "INCONCLUSIVE"]
EXIT_CODES: dict[Outcome, int] = {"PASS": 0, "REGRESSION": 1, "INCONCLUSIVE": 3}
"""2 is bad input, as everywhere."""


class CellChange(Frozen, frozen=True, kw_only=True):
    """One cell of one service, after against before."""

    service: str
    cell: str
    outcome: Outcome
    metric: Literal["decode_tok_s", "steady_tok_s", "output_throughput"] | None = None
    ratio: Estimate | None = None
    """Rate after over rate before, paired by prompt where both have records."""
    noise: float | None = None
    """How far from 1 the baseline's repetitions reach on either side."""
    certain: bool = False
    """A regression that is one even among as many cells as were judged (Bonferroni)."""
    flags: tuple[FlagKind, ...] = ()
    why: str = ""


class ServiceChange(Frozen, frozen=True, kw_only=True):
    """All judged cells of one service together."""

    service: str
    outcome: Outcome
    ratio: Estimate | None = None
    cells: int = 0


class Difference(Frozen, frozen=True, kw_only=True):
    """Something that is not the same on both sides."""

    key: str
    before: str
    after: str


class Versus(Frozen, frozen=True, kw_only=True):
    """Two result trees compared."""

    before: str
    after: str
    tolerance: float
    """Loss of rate that is accepted, as a share."""
    outcome: Outcome
    why: str
    services: tuple[ServiceChange, ...]
    cells: tuple[CellChange, ...]
    differences: tuple[Difference, ...] = ()
    """What was changed between the two, as far as the results tell."""
    notes: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """For the shell."""
        return EXIT_CODES[self.outcome]
