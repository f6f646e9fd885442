"""Two compared result trees as text and as Markdown."""

from collections.abc import Iterator, Sequence

from draftmark.schema import Estimate
from draftmark.versus.types import CellChange, Versus


def lines(found: Versus) -> Iterator[str]:
    """For a terminal: the verdict first, then services, then the cells that are not PASS."""
    yield f"{found.outcome}: {found.why}"
    yield f"  before: {found.before}"
    yield f"  after:  {found.after}"
    yield f"  a loss of {100 * found.tolerance:g} % is accepted"
    for one in found.services:
        yield f"{one.outcome:<12}  {one.service}  {shown(one.ratio)} over {one.cells} cells"
    for change in found.cells:
        if change.outcome != "PASS":
            yield f"  {change.outcome:<12}  {change.service}/{change.cell}  {reason(change)}"
    yield from (f"changed: {one.key}: {one.before} → {one.after}" for one in found.differences)
    yield from (f"! {note}" for note in found.notes)


def markdown(found: Versus) -> str:
    """For a pull request: the verdict, a table of services, every cell folded away."""
    services = [(one.service, one.outcome, shown(one.ratio), str(one.cells)) for one in found.services]
    cells = [(one.service, one.cell, one.outcome, reason(one)) for one in found.cells]
    changed = [(one.key, one.before, one.after) for one in found.differences]
    notes = [f"- {escaped(note)}" for note in found.notes]
    return "\n".join(
        (
            f"## {found.outcome}: {escaped(found.why)}",
            "",
            f"{escaped(found.after)} against {escaped(found.before)}; a loss of {100 * found.tolerance:g} %"
            " is accepted. Rate after over rate before, with its 95 % interval and the number of units.",
            "",
            *table(("Service", "Verdict", "Rate", "Cells"), services),
            "",
            "<details><summary>Every cell</summary>",
            "",
            *table(("Service", "Cell", "Verdict", "Rate"), cells),
            "",
            "</details>",
            *(("", *table(("Changed", "Before", "After"), changed)) if changed else ()),
            *(("", *notes) if notes else ()),
            "",
        )
    )


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """A Markdown table."""
    yield f"| {' | '.join(head)} |"
    yield f"|{' --- |' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(map(escaped, row))} |"


def reason(change: CellChange) -> str:
    """The ratio, and what keeps it from saying more."""
    chance = "may be chance" if change.outcome == "REGRESSION" and not change.certain else ""
    parts = [shown(change.ratio) if change.ratio else "", change.why, chance]
    return ", ".join(filter(None, parts)) or "no rate"


def shown(ratio: Estimate | None) -> str:
    """``0.97× (95 % 0.95–0.99, n=12)``."""
    if ratio is None:
        return "no rate"
    if ratio.low is None or ratio.high is None:
        return f"{ratio.value:.3f}× (no interval)"
    return f"{ratio.value:.3f}× (95 % {ratio.low:.3f}–{ratio.high:.3f}, n={ratio.n})"


def escaped(text: str) -> str:
    """Text that Markdown and HTML show as it is, on one line."""
    text = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace("\\", "\\\\")
    for mark in "|`*_[]":
        text = text.replace(mark, f"\\{mark}")
    return text
