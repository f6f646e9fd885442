"""What to hold against the numbers, as tables: outputs that changed, and cells that are flagged."""

from collections.abc import Sequence
from itertools import groupby

from draftmark.report.parts import Column, Entry, Row, Sides, Table, Tone
from draftmark.report.tables import FLAGGED, notes
from draftmark.report.view import View
from draftmark.schema import Drift, Lossless
from draftmark.wording import basis, times

MOST_SIDES = 12
"""Services whose first difference is shown."""
LOSSLESS: dict[str, tuple[str, Tone]] = {
    "identical": ("identical", "faster"),
    "near-ties only": ("near-ties only", ""),
    "diverges": ("diverges", "slower"),
    "not checked": ("not checked", "muted"),
}


def losslessness(view: View) -> Table:
    """For each service and verdict, in how many cells the greedy output is what the baseline's is."""
    order = {service: index for index, service in enumerate(view.services)}
    ordered = sorted(
        view.comparison.lossless,
        key=lambda found: (order.get(found.service, len(order)), list(LOSSLESS).index(found.verdict)),
    )
    groups = groupby(ordered, key=lambda found: (found.service, found.verdict))
    return Table(
        id="losslessness",
        title=f"Greedy output compared with {view.baseline or 'the baseline'}",
        columns=(
            Column("Method"),
            Column("Verdict"),
            Column("Cells"),
            Column("Outputs that differ", numeric=True),
            Column("Of these near-ties", numeric=True),
            Column("Baseline against itself", numeric=True),
            Column("First difference"),
        ),
        rows=tuple(lossless_row(view, tuple(found)) for _, found in groups),
        notes=(
            "The control is the baseline against its own repetition under the same load: what differs there "
            "is not the method's doing. Each figure is differing outputs of compared ones. A near-tie is a "
            "difference where the baseline's first choice led the second by less than 0.1 nats.",
            *notes(view, view.services.values()),
        ),
    )


def lossless_row(view: View, found: Sequence[Lossless]) -> Row:
    """The cells of one service that share a verdict."""
    service = view.services.get(found[0].service)
    text, tone = LOSSLESS[found[0].verdict]
    mark = FLAGGED if any(view.flags(one.service, one.cell) for one in found) else ""
    compared = sum(one.compared for one in found)
    control = sum(one.control_compared for one in found)
    return Row(
        (
            Entry(view.name(service) if service else found[0].method),
            Entry(text + mark, tone=tone),
            Entry(
                str(len(found)), ", ".join(one.cell for one in found[:3]) + (" …" if len(found) > 3 else "")
            ),
            Entry(f"{sum(one.differing for one in found)} of {compared}" if compared else "–"),
            near_ties(found),
            Entry(
                f"{sum(one.control_differing for one in found)} of {control}" if control else "not repeated"
            ),
            first_difference(found),
        ),
        found[0].method,
    )


def near_ties(found: Sequence[Lossless]) -> Entry:
    """How many differences are near-ties; unknown where one cell's margins are."""
    if not any(one.differing for one in found):
        return Entry("–", tone="muted")
    known = [one.near_ties for one in found if one.differing]
    if None in known:
        return Entry("not known", tone="muted")
    return Entry(str(sum(count or 0 for count in known)))


def differences(view: View) -> tuple[Sides, ...]:
    """The first differing texts side by side, one for each service; what diverges goes before near-ties."""
    seen: set[str] = set()
    made: list[Sides] = []
    ordered = sorted(view.comparison.lossless, key=lambda found: found.verdict != "diverges")
    for found in ordered:
        if found.first is None or found.service in seen or len(made) == MOST_SIDES:
            continue
        seen.add(found.service)
        prompt, position, theirs, ours = found.first
        service = view.services.get(found.service)
        name = view.name(service) if service else found.method
        title = f"{name}, {found.cell}: {found.verdict}; {prompt} from {found.unit} {position} on"
        made.append(Sides(title, (view.baseline or "baseline", theirs), (found.method, ours)))
    return tuple(made)


def first_difference(found: Sequence[Lossless]) -> Entry:
    """Where the first differing output parts from the baseline's."""
    for one in found:
        if one.first is not None:
            prompt, position, _, _ = one.first
            return Entry(f"{prompt}, {one.unit} {position}")
    return Entry("–", tone="muted")


FLAG_MEANING: dict[str, str] = {
    "early-stop": "fewer tokens than asked for, where a fixed length was asked for",
    "cache-hit": "prompt tokens came from a prefix cache",
    "degenerate": "the output loops",
    "client-bound": "the load client itself was too busy",
    "foreign-load": "other processes used the machine",
    "capped": "the server ran fewer requests at once than asked for",
    "synthetic": "acceptance was simulated; a what-if, not a measurement",
    "no-draft": "speculation was asked for and nothing was drafted",
    "drift": "the baseline, measured again at the end, had moved",
    "implausible": "faster than its acceptance explains: a step would be cheaper than one without a draft",
    "few-samples": "too few samples for an interval",
    "adjusted": "the server started only with settings other than the plan's",
}


def flags(view: View) -> Table:
    """Every flagged cell with what was observed, one row for each flag and service."""
    found = [
        (cell.service, flag.kind, flag.detail, cell.cell.id)
        for cell in view.cells.values()
        for flag in cell.flags
    ]
    ordered = sorted(found, key=lambda one: (one[1], one[0]))
    rows = []
    for (kind, service), group in groupby(ordered, key=lambda one: (one[1], one[0])):
        same = list(group)
        cells = ", ".join(dict.fromkeys(one[3] for one in same))
        details = "; ".join(list(dict.fromkeys(one[2] for one in same))[:3])
        name = view.name(view.every[service]) if service in view.every else service
        entries = (
            Entry(kind, FLAG_MEANING.get(kind, ""), tone="flagged"),
            Entry(name),
            Entry(cells),
            Entry(details),
        )
        rows.append(Row(entries, view.every[service].method.name if service in view.every else ""))
    return Table(
        id="flags",
        title="Cells whose numbers are doubted",
        columns=(Column("Flag"), Column("Method"), Column("Cells"), Column("What was observed")),
        rows=tuple(rows),
    )


def drift(view: View) -> Table:
    """The baselines that were measured again at the end, each against its first measurement."""
    return Table(
        id="drift",
        title="The baseline measured again at the end of its phase",
        columns=(
            Column("Baseline"),
            Column("Cell"),
            Column("Later over earlier", "95 %", numeric=True),
            Column("Moved"),
        ),
        rows=tuple(drift_row(view, found) for found in view.comparison.drift),
        notes=(
            "The rate of the second measurement over that of the first, paired by prompt; n as for speedups. "
            "Where it moved by more than its interval and 3 %, the machine had changed: "
            "what was compared on this kind of workload is flagged and not ranked. Elsewhere how far its "
            "interval reaches from 1 counts as noise.",
        ),
    )


def drift_row(view: View, found: Drift) -> Row:
    """One cell that was measured again."""
    service, ratio = view.services[found.service], found.ratio
    tone: Tone = "flagged" if found.moved else ""
    entries = (
        Entry(view.name(service)),
        Entry(found.cell),
        Entry(times(ratio.value), basis(ratio), ratio.value, tone),
        Entry("moved" if found.moved else "not shown", tone=tone),
    )
    return Row(entries, service.method.name)
