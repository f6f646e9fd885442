"""What to deploy, as ``recommend`` has it: the pick, how sure that is, what it costs, who was left out."""

from collections.abc import Iterator, Sequence

from draftmark.recommend import Pick, Recommendation, recommend
from draftmark.report.parts import Block, Column, Entry, Listing, Row, Section, Table, Tone
from draftmark.report.view import WORKLOADS, View, command_line
from draftmark.schema import Estimate
from draftmark.wording import basis, listed, times

SCOPES = {"overall": "Overall", **{str(kind): title for kind, title in WORKLOADS.items()}}
DASH = Entry("–", tone="muted")
COST_NOTE = (
    "Overall choice there: its rate over that of the row's own pick. Below 1 is what one choice for all "
    "costs; at another place, above 1 is what that place costs."
)


def advice(view: View) -> Section:
    """The recommendation; where nothing can be ranked it says why."""
    found = recommend(view.result, view.comparison)
    return Section("deploy", "What to deploy", found.reasons, tuple(blocks(view, found)), found.head)


def blocks(view: View, found: Recommendation) -> Iterator[Block]:
    """The picks and how the first of them is started, as far as there are any; who was not ranked."""
    if found.overall.service:
        yield picks(view, found)
    start = view.starts.get(found.overall.service or "")
    if start and start.argv:
        yield Listing(f"How {found.overall.service} was started", command_line(start))
    if found.excluded:
        yield excluded(view, found)


def picks(view: View, found: Recommendation) -> Table:
    """The best for everything, for each workload and at each place."""
    target = f"Latency target: {found.target}" if found.target else "No latency target is set"
    base = view.baseline or "the baseline"
    several = (found.overall, *rest(found))
    whole = len(several) > 1
    return Table(
        id="picks",
        title="The best by rate per GPU, overall and for each workload and place",
        columns=(
            Column("For"),
            Column("Pick"),
            Column("How sure"),
            Column(f"Rate over {base}", "95 %", numeric=True),
            *((Column("Overall choice there", "× its rate", numeric=True),) if whole else ()),
            Column("Served", "cells", numeric=True),
        ),
        rows=tuple(pick_row(view, pick, found.overall, whole) for pick in several),
        notes=(
            f"{target}. Served: cells within it, of those judged. Rates are per GPU and compared as "
            "geometric means over the cells that both serve; n counts prompts and waves.",
            *((COST_NOTE,) if whole else ()),
        ),
    )


def rest(found: Recommendation) -> tuple[Pick, ...]:
    """The picks beside the overall one; a single workload has the same."""
    return (*(found.workloads if len(found.workloads) > 1 else ()), *found.places)


def pick_row(view: View, pick: Pick, overall: Pick, whole: bool) -> Row:
    """One pick; where there is none, why."""
    scope = SCOPES.get(pick.scope, pick.scope)
    service = view.services.get(pick.service or "")
    return Row(
        (
            Entry(scope),
            Entry(view.name(service)) if service else Entry("nothing", tone="muted"),
            sureness(view, pick),
            ratio(pick.over_baseline) if pick.over_baseline else DASH,
            *((cost(pick, overall),) if whole else ()),
            Entry(f"{len(pick.cells)} of {pick.judged}"),
        )
    )


def sureness(view: View, pick: Pick) -> Entry:
    """Decided or not, and what measurement would decide it; where there is no pick, why."""
    if pick.service is None:
        return Entry(pick.why)
    if not pick.decided:
        told = [f"not told from {rivals(view, pick.tied)}"] if pick.tied else ["nothing else can be ranked"]
        return Entry("undecided", "; ".join((*told, pick.remedy)))
    return Entry("decided", f"as good within 3 %: {rivals(view, pick.equal)}" if pick.equal else "")


def rivals(view: View, services: Sequence[str]) -> str:
    """Some services by name, the rest counted."""
    return listed([view.name(view.services[service]) for service in services], 2)


def cost(pick: Pick, overall: Pick) -> Entry:
    """What the overall choice has in place of this one."""
    if pick.service == overall.service:
        return Entry("the same", tone="muted")
    return ratio(pick.cost_of_overall) if pick.cost_of_overall else DASH


def ratio(found: Estimate) -> Entry:
    """A ratio with its interval, toned where that leaves out 1."""
    tone: Tone = "unsure"
    if found.low is not None and found.high is not None and not found.low <= 1 <= found.high:
        tone = "faster" if found.low > 1 else "slower"
    return Entry(times(found.value), basis(found), found.value, tone)


def excluded(view: View, found: Recommendation) -> Table:
    """Who was not ranked overall, and why."""
    rows = tuple(
        Row((Entry(view.name(view.services[service])), Entry(why))) for service, why in found.excluded
    )
    return Table("unranked", "Not ranked overall", (Column("Method"), Column("Why")), rows)
