"""Plans and results as text for a terminal or a pipe."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from draftmark.campaign import PASSING, Outcome
from draftmark.compare import CheckedCell, LosslessCheck
from draftmark.estimate import Estimate, Span
from draftmark.memory import MemoryPlan, memory_text
from draftmark.schema import CellResult, Matrix, Service

NAMED = 6
"""Names shown before the rest is counted."""
PARTINGS = 4
"""Outputs that differ shown for a cell before the rest is counted."""


def plan_text(matrix: Matrix, times: Estimate, notes: Iterable[str] = ()) -> Iterator[str]:
    """Lines that show what a plan runs, phase by phase, and what it leaves out."""
    plan = matrix.plan
    cells = [cell for service in matrix.services for cell in service.cells]
    fewest, most = sum(cell.requests for cell in cells), sum(cell.most_requests for cell in cells)
    requests = counted(most, "measured request")
    yield (
        f"{plan.name}: {counted(len(matrix.services), 'service start')}, {counted(len(cells), 'cell')}, "
        f"{f'{fewest:,} to ' * (fewest < most)}{requests}"
    )
    baseline = plan.baseline or "none (nothing to compare with)"
    yield f"  engine {plan.engine.kind}, model {plan.model.target}, baseline {baseline}"
    for phase in matrix.phases:
        yield ""
        yield from _phase(phase, [service for service in matrix.services if service.phase == phase], times)
    yield ""
    yield f"time: about {lasting(times.total)}, {_basis(times)}"
    if fewest < most:
        yield "  (how many rounds the cells with a 'precision' need is not known before)"
    if matrix.dropped:
        yield ""
        yield from _dropped(matrix)
    yield from (f"! {note}" for note in notes)


def _phase(name: str, services: Sequence[Service], times: Estimate) -> Iterator[str]:
    grid = list(dict.fromkeys(cell.id for service in services for cell in service.cells))
    yield f"phase {name}: {counted(len(services), 'service start')}, about {lasting(times.phases[name])}"
    yield f"  cells: {' '.join(grid)}"
    width = max(len(service.id) for service in services)
    spans = {service.id: lasting(times.services[service.id]) for service in services}
    broad = max(12, *map(len, spans.values()))
    for service in services:
        time, cells = f"{spans[service.id]:>{broad}}", counted(len(service.cells), "cell")
        yield f"  {service.id:<{width}}  {time}  {cells:>9}, {_share(service, grid)}"


def _share(service: Service, grid: Sequence[str]) -> str:
    """Which of its phase's cells a service has, and whether it is the baseline."""
    own = [cell.id for cell in service.cells]
    if service.repeats:
        return f"{_names(own)}  (baseline again)"
    missing = [cell for cell in grid if cell not in own]
    return (f"without {_names(missing)}" if missing else "all") + "  (baseline)" * service.baseline


def _dropped(matrix: Matrix) -> Iterator[str]:
    reasons: dict[tuple[str, str], dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for drop in matrix.dropped:
        reasons[drop.phase, drop.why][drop.service].append(drop.cell)
    yield f"dropped: {counted(len(matrix.dropped), 'cell')}"
    for (phase, why), services in reasons.items():
        cells = list(dict.fromkeys(cell for ids in services.values() for cell in ids))
        yield f"  {phase}: {_names(cells)} on {_names(list(services))}"
        yield f"    {why or 'no reason given'}"


def cell_line(result: CellResult) -> str:
    """One cell in one line: what was measured, or why it failed."""
    name = f"{result.service}  {result.cell.id}"
    if result.status != "ok":
        return f"✗ {name}  {result.diagnosis.summary if result.diagnosis else result.status}"
    figures = "  ".join(_figures(result.metrics, result.cell.concurrency))
    flags = "".join(f"  [{flag.kind}]" for flag in result.flags)
    return f"✓ {name}  {figures}{flags}"


def _figures(metrics: Mapping[str, float], concurrency: int) -> Iterator[str]:
    speed = "decode_tok_s" if concurrency == 1 else "steady_tok_s"
    if speed in metrics:
        yield f"{metrics[speed]:.1f} tok/s"
    if "mean_ttft_ms" in metrics:
        yield f"TTFT {metrics['mean_ttft_ms']:.0f} ms"
    if "tau" in metrics:
        yield f"tau {metrics['tau']:.2f}"


def again_text(cells: Iterable[CellResult], plan_file: str) -> Iterator[str]:
    """A line on cells that may be free of doubt when they are measured again; none where there are none."""
    passing = [{flag.kind for flag in cell.flags} & PASSING for cell in cells]
    if doubted := [kinds for kinds in passing if kinds]:
        kinds = " and ".join(sorted(set().union(*doubted)))
        yield (
            f"{counted(len(doubted), 'cell')} flagged {kinds} and not ranked: let nothing else run here, "
            f"then `draftmark run {plan_file} --again-flagged`"
        )


def status_text(matrix: Matrix, cells: Iterable[CellResult], problems: Mapping[str, str]) -> Iterator[str]:
    """Lines that say what a result tree holds of its plan, and what is missing."""
    by_service: dict[str, list[CellResult]] = defaultdict(list)
    for result in cells:
        by_service[result.service].append(result)
    ok = sum(result.status == "ok" for results in by_service.values() for result in results)
    total = sum(len(service.cells) for service in matrix.services)
    yield f"{matrix.plan.name}: {ok} of {counted(total, 'cell')} measured"
    width = max(len(service.id) for service in matrix.services)
    for service in matrix.services:
        results = by_service[service.id]
        good = sum(result.status == "ok" for result in results)
        failed = len(results) - good
        doubted = sum(bool(result.flags) for result in results)
        again = "  (baseline again)" if service.repeats else ""
        yield (
            f"  {service.id:<{width}}  {good}/{len(service.cells)}"
            + (f"  {failed} failed" if failed else "")
            + (f"  {doubted} flagged" if doubted else "")
            + again
        )
    yield from (cell_line(r) for results in by_service.values() for r in results if r.status != "ok")
    yield from (f"! {name}: {why}" for name, why in problems.items())


def memory_lines(plans: Sequence[MemoryPlan | None]) -> Iterator[str]:
    """A line for each service that fits, the sums and what to change for each that does not."""
    known = [plan for plan in plans if plan]
    if known:
        yield ""
        yield f"memory, on {known[0].gpu.name}:"
    for plan in known:
        if plan.verdict == "fits":
            tokens = f", {plan.fit.kv_tokens:,} KV tokens" if plan.fit.kv_tokens else ""
            yield f"  {plan.service.id}: fits{tokens}"
        else:
            yield from (f"  {line}" for line in memory_text(plan))


def lossless_text(check: LosslessCheck) -> Iterator[str]:
    """The answer first, then each cell, and under it where its outputs part from the baseline's."""
    found = [one.found for one in check.cells if one.found]
    compared, differing = sum(one.compared for one in found), sum(one.differing for one in found)
    base = check.baseline or "no baseline"
    yield f"{check.answer}: {check.name}, {_differing(differing, compared, ' output')} from {base}'s"
    width = max((len(f"{one.service}/{one.cell}") for one in check.cells), default=0)
    for one in check.cells:
        name, said = f"{one.service}/{one.cell}", "; ".join(filter(None, (one.why, *_compared(one))))
        yield f"  {one.answer:<14}  {name:<{width}}  {said}"
        yield from (f"    {line}" for line in _partings(one, base))
    yield from (f"! {note}" for note in check.notes)


def _differing(number: int, compared: int, noun: str = "") -> str:
    one = compared == 1
    nouns = noun and f"{noun}{'' if one else 's'}"
    return f"{number} of {compared:,}{nouns} differ{'s' if one else ''}"


def _compared(one: CheckedCell) -> Iterator[str]:
    """What a cell's verdict stands on."""
    if one.found is None:
        return
    yield _differing(one.found.differing, one.found.compared)
    yield f"baseline against itself {one.found.control_differing} of {one.found.control_compared}"
    if one.drafted is not None and one.accepted is not None:
        yield f"{one.accepted:,} of {counted(one.drafted, 'drafted token')} accepted"


def _partings(one: CheckedCell, base: str) -> Iterator[str]:
    """Where outputs part, and unless that is a near-tie both texts, quotes and line ends spelled out."""
    if one.found is None:
        return
    width = max(len(base), len(one.method))
    for part in one.found.partings[:PARTINGS]:
        turn = "" if part.turn is None else f", turn {part.turn}"
        margin = "margin not known" if part.margin is None else f"margin {part.margin:.4f} nats"
        yield f"{part.prompt}{turn}: from {one.found.unit} {part.position} on, {margin}"
        if one.answer != "near-ties only":
            yield f"  {base:<{width}}  {part.baseline!r}"
            yield f"  {one.method:<{width}}  {part.method!r}"
    if (more := len(one.found.partings) - PARTINGS) > 0:
        yield f"and {more} more: --json has them all"


def outcome_text(outcome: Outcome) -> str:
    """What a run did, in one line."""
    kept = f", {outcome.kept} kept from before" if outcome.kept else ""
    failed = f", {outcome.failed} failed" if outcome.failed else ""
    asked = outcome.estimate
    time = f" in {duration(outcome.took_s)} (estimated {lasting(asked.total)}, {_basis(asked)})"
    return f"{counted(outcome.measured, 'cell')} measured{time if outcome.took_s else ''}{kept}{failed}"


def _basis(times: Estimate) -> str:
    return "a guess: nothing of it was measured yet" if times.guessed else "going by what was measured"


def _names(names: Sequence[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")


def counted(number: int, noun: str) -> str:
    """A number and its noun in the plural that it needs: ``1 cell``, ``2,000 cells``."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def lasting(span: Span) -> str:
    """A time that may be a range: ``3 min 20 s``, ``45 s to 3 min 20 s``."""
    least, most = map(duration, span)
    return least if least == most else f"{least} to {most}"


def duration(seconds: float) -> str:
    """A time for people: ``45 s``, ``3 min 20 s``, ``2 h 05 min``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
