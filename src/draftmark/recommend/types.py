"""What a recommendation is."""

from draftmark.schema import Estimate, Frozen


class Pick(Frozen, frozen=True, kw_only=True):
    """The best configuration for some of a campaign's cells, and how sure that is."""

    scope: str
    """``overall``, a workload, or a place such as ``TP 4``."""
    service: str | None = None
    """None where nothing can be ranked; ``why`` then says what is missing."""
    method: str | None = None
    cells: tuple[str, ...] = ()
    """Cells that it serves within the target; the others were judged on those that they share with it."""
    judged: int = 0
    """Cells that have a result without flags, or failed."""
    decided: bool = False
    """Every rival is slower beyond doubt, or as good within 3 %."""
    tied: tuple[str, ...] = ()
    """Services that it cannot be told from."""
    equal: tuple[str, ...] = ()
    """Services that are as good within 3 %."""
    over_baseline: Estimate | None = None
    """Its rate per GPU over that of the baseline of the same place; None for a baseline."""
    times_more: int | None = None
    """How many times as many requests per cell would tell it from the nearest of ``tied``, if known."""
    remedy: str = ""
    """What measurement would decide it; empty where it is decided."""
    cost_of_overall: Estimate | None = None
    """Rate per GPU of the overall choice over this one's; None where they are the same or share no cell."""
    why: str = ""


class Recommendation(Frozen, frozen=True, kw_only=True):
    """Which configuration to deploy."""

    target: str
    """The latency target in words; empty where the plan sets none."""
    overall: Pick
    workloads: tuple[Pick, ...] = ()
    places: tuple[Pick, ...] = ()
    """The best of each tensor-parallel degree and host, where there are several."""
    excluded: tuple[tuple[str, str], ...] = ()
    """(service, why) of those that were not ranked overall."""
    head: str
    """One sentence."""
    reasons: str
    """The rest of the paragraph: by what, how sure that is, what it costs."""

    @property
    def text(self) -> str:
        """One paragraph."""
        return f"{self.head} {self.reasons}"
