"""What the comparison says, in sentences; nothing here goes beyond its verdicts and intervals."""

from collections.abc import Sequence
from itertools import chain
from math import log

from draftmark.report.parts import Finding
from draftmark.report.view import View
from draftmark.schema import Drift, Estimate, Speedup
from draftmark.wording import basis, listed, plural, times

MOST = 6
"""Methods that are spoken of one by one; the rest is in the table."""
NAMED = 3
"""Cells that are named with their ratio before they are told as a range."""
LISTED = 4
"""Names in a row before the rest is counted."""
PERCENT = "95\u00a0%\u00a0"


def findings(view: View) -> tuple[Finding, ...]:
    """The comparison's result first, then each method, then what limits it all."""
    parts = (tally, methods, drift, losslessness, failures, missing)
    return tuple(chain.from_iterable(part(view) for part in parts))


def tally(view: View) -> Sequence[Finding]:
    """How the comparisons came out, and the highest speedup that is not in doubt."""
    speedups = view.comparison.speedups
    if not speedups:
        why = (
            "; ".join(view.comparison.notes[:3])
            or "No method and baseline were both measured on the same cell."
        )
        return (Finding("Nothing could be compared.", why),)
    ranked = [speedup for speedup in speedups if not speedup.flags]
    count = {
        verdict: sum(s.verdict == verdict for s in ranked) for verdict in ("faster", "slower", "cannot tell")
    }
    flagged = len(speedups) - len(ranked)
    text = (
        f"{count['faster']} faster than {view.baseline}, {count['slower']} slower, "
        f"{count['cannot tell']} cannot tell"
    )
    text += f"; {flagged} flagged and not ranked." if flagged else "."
    return (Finding(plural(len(speedups), "comparison") + ":", text), *highest(view, ranked))


def highest(view: View, ranked: Sequence[Speedup]) -> Sequence[Finding]:
    """The highest speedup whose verdict is faster, and whether another method's interval overlaps it."""
    faster = [speedup for speedup in ranked if speedup.verdict == "faster"]
    if not faster:
        return (Finding("No method is faster", f"than {view.baseline} on any cell that can be ranked."),)
    best = max(faster, key=lambda speedup: speedup.ratio.value)
    low = best.ratio.low or best.ratio.value
    rivals = [
        speedup.method
        for speedup in ranked
        if (speedup.cell, speedup.tp, speedup.host) == (best.cell, best.tp, best.host)
        and speedup is not best
        and (speedup.ratio.high or speedup.ratio.value) >= low
    ]
    text = f"{view.name(view.services[best.service])} is {measure(best)}"
    text += f"; the interval of {listed(rivals, LISTED)} overlaps it there." if rivals else "."
    return (Finding("Highest measured speedup:", text, best.method),)


def methods(view: View) -> Sequence[Finding]:
    """One sentence for each service, those that are faster on most cells first."""
    groups: dict[str, list[Speedup]] = {}
    for speedup in view.comparison.speedups:
        groups.setdefault(speedup.service, []).append(speedup)
    ordered = sorted(groups, key=lambda service: -balance(groups[service]))
    told = [
        Finding(f"{view.name(view.services[service])}:", sentence(groups[service]), groups[service][0].method)
        for service in ordered[:MOST]
    ]
    rest = len(ordered) - len(told)
    return (*told, Finding(f"{rest} more", "are in the table below.")) if rest else told


def balance(speedups: Sequence[Speedup]) -> float:
    """Share of the cells on which a method is faster less the share on which it is slower."""
    ranked = [speedup.verdict for speedup in speedups if not speedup.flags]
    return (ranked.count("faster") - ranked.count("slower")) / len(ranked) if ranked else -2.0


def sentence(speedups: Sequence[Speedup]) -> str:
    """What is known of one service's cells."""
    ranked = [speedup for speedup in speedups if not speedup.flags]
    parts = [
        part
        for part in (
            verdict_part(ranked, "faster"),
            verdict_part(ranked, "slower"),
            unsure_part(ranked),
            flagged_part([speedup for speedup in speedups if speedup.flags]),
        )
        if part
    ]
    return f"{'; '.join(parts)}."


def verdict_part(ranked: Sequence[Speedup], verdict: str) -> str:
    """The cells with a verdict: a few by name with their interval, more by their range."""
    found = sorted((s for s in ranked if s.verdict == verdict), key=lambda s: -s.ratio.value)
    if not found:
        return ""
    if len(found) <= NAMED:
        return ", ".join(measure(speedup) for speedup in found)
    return f"{verdict} on {len(found)} of {len(ranked)} cells, from {value(found[-1])} to {value(found[0])}"


def unsure_part(ranked: Sequence[Speedup]) -> str:
    """The cells on which it cannot be told."""
    found = [speedup.cell for speedup in ranked if speedup.verdict == "cannot tell"]
    return f"cannot tell on {listed(found, LISTED)}" if found else ""


def flagged_part(flagged: Sequence[Speedup]) -> str:
    """How many cells are left out, and for which flags."""
    kinds = dict.fromkeys(kind for speedup in flagged for kind in speedup.flags)
    return f"{plural(len(flagged), 'cell')} flagged ({', '.join(kinds)}) and not ranked" if flagged else ""


def measure(speedup: Speedup) -> str:
    """``1.42× faster on code-256 (95 % 1.30–1.55, n=5)``; a slowdown keeps its ratio."""
    if speedup.verdict == "faster":
        return f"{times(speedup.ratio.value)} faster on {speedup.cell} ({basis(speedup.ratio, PERCENT)})"
    return (
        f"{speedup.verdict} on {speedup.cell}: {times(speedup.ratio.value)} ({basis(speedup.ratio, PERCENT)})"
    )


def value(speedup: Speedup) -> str:
    """``1.42× on code-256 (95 % 1.30–1.55, n=5)``."""
    return f"{times(speedup.ratio.value)} on {speedup.cell} ({basis(speedup.ratio, PERCENT)})"


def drift(view: View) -> Sequence[Finding]:
    """Whether the baseline, measured again at the end, was still what it had been."""
    readings = view.comparison.drift
    if not readings:
        return ()
    moved = [drifted(view, one) for one in readings if one.moved]
    if moved:
        text = f"{listed(moved, LISTED)}: what was compared on that kind of workload is not ranked."
        return (Finding("The baseline had moved", f"when it was measured again: {text}"),)
    farthest = drifted(view, max(readings, key=lambda one: reach(one.ratio)))
    text = (
        f"by the baseline measured again: at the farthest {farthest}; no smaller effect gets a verdict there."
    )
    return (Finding("No drift is shown", text),)


def reach(ratio: Estimate) -> float:
    """How far from 1 a ratio may be, as a logarithm."""
    return max(abs(log(end)) for end in (ratio.value, ratio.low, ratio.high) if end)


def drifted(view: View, found: Drift) -> str:
    """``0.91× on code-256 (95 % 0.88–0.94, n=5)``, with its place where there are several."""
    place = view.places[found.service]
    where = f"{found.cell}, {place}" if place else found.cell
    return f"{times(found.ratio.value)} on {where} ({basis(found.ratio, PERCENT)})"


def losslessness(view: View) -> Sequence[Finding]:
    """Whose greedy output is not the baseline's."""
    checked = [
        found
        for found in view.comparison.lossless
        if found.verdict != "not checked" and "synthetic" not in view.flags(found.service, found.cell)
    ]
    if not checked:
        return (Finding("Losslessness", "was not checked."),)
    diverging: dict[str, int] = {}
    for found in checked:
        if found.verdict == "diverges":
            diverging[found.method] = diverging.get(found.method, 0) + 1
    if not diverging:
        return (
            Finding("Greedy output", f"does not diverge from {view.baseline} on any of the cells checked."),
        )
    whose = [f"{method} on {plural(count, 'cell')}" for method, count in diverging.items()]
    return (Finding("Greedy output diverges", f"from {view.baseline}: {listed(whose, 6)}."),)


def failures(view: View) -> Sequence[Finding]:
    """What failed."""
    cells = sum(cell.status == "failed" for cell in view.cells.values())
    services = sum(start.status == "failed" for start in view.starts.values())
    failed = [plural(count, word) for count, word in ((services, "server"), (cells, "cell")) if count]
    return (Finding("Failed:", f"{' and '.join(failed)}; see Failures."),) if failed else ()


def missing(view: View) -> Sequence[Finding]:
    """What the plan asks for and the results do not have."""
    planned = sum(len(service.cells) for service in view.every.values())
    left = sum((s.id, c.id) not in view.cells for s in view.every.values() for c in s.cells)
    return (Finding("Not measured:", f"{left} of {planned} cells."),) if left else ()
