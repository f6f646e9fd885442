"""A campaign's results as one Document, the same for every form that it is written in."""

from collections.abc import Iterator, Mapping
from typing import Any

from draftmark.metrics import METRICS
from draftmark.report.acceptance import slices
from draftmark.report.advice import advice
from draftmark.report.charts import figures
from draftmark.report.choices import choices
from draftmark.report.doubts import FLAG_MEANING, differences, drift, flags, losslessness
from draftmark.report.findings import findings
from draftmark.report.memory import memory
from draftmark.report.overview import overview
from draftmark.report.parts import Block, Column, Document, Entry, Listing, Problem, Row, Section, Table
from draftmark.report.tables import browser, glance, numbers, speedup_matrix
from draftmark.report.view import WORKLOADS, View, command_line
from draftmark.schema import CampaignResult, Comparison, Diagnosis, WorkloadKind


def document(result: CampaignResult, comparison: Comparison) -> Document:
    """Everything that a report says, in its order."""
    view = View(result, comparison)
    return Document(
        title=result.info.plan.name,
        description=result.info.plan.description,
        facts=tuple(facts(view)),
        advice=advice(view),
        findings=findings(view),
        sections=(
            Section(
                "glance",
                "At a glance",
                blocks=(glance(view), *overview(view)) if comparison.speedups else (),
            ),
            *(workload(view, kind) for kind in view.workloads),
            lossless(view),
            doubts(view),
            memory_plan(view),
            failures(view),
            Section("browse", "All cells", "Open a cell to see what it is made of.", (browser(view),)),
            setup(view),
            method(view),
            definitions(view),
            reproduction(view),
        ),
        looks=view.looks,
    )


def facts(view: View) -> Iterator[tuple[str, str]]:
    """Model, engine, baseline, size and date, for the line under the title."""
    plan = view.result.info.plan
    yield "Model", plan.model.target
    versions = dict.fromkeys(start.engine_version for start in view.starts.values() if start.engine_version)
    yield "Engine", " ".join([plan.engine.kind, *versions])
    yield "Baseline", view.baseline or "none"
    done = sum(cell.status == "ok" for cell in view.cells.values())
    planned = sum(len(service.cells) for service in view.every.values())
    again = ", the baseline again" if any(view.repeated) else ""
    yield "Measured", f"{done} of {planned} cells, {len(view.services)} services{again}"
    yield "Started", view.result.info.started_at


def workload(view: View, kind: WorkloadKind) -> Section:
    """One workload: speedups, what to choose by, charts, acceptance, every number."""
    return Section(
        kind,
        WORKLOADS[kind],
        blocks=(
            speedup_matrix(view, kind),
            *choices(view, kind),
            *figures(view, kind),
            *slices(view, kind),
            numbers(view, kind),
        ),
    )


def lossless(view: View) -> Section:
    """Whether the methods changed the output."""
    if not view.comparison.lossless:
        return Section("lossless", "Losslessness", "No output was compared.")
    return Section("lossless", "Losslessness", blocks=(losslessness(view), *differences(view)))


def memory_plan(view: View) -> Section:
    """What memory was predicted to be, where a prediction was made."""
    table = memory(view)
    return Section("memory", "Memory", blocks=(table,) if table.rows else ())


def doubts(view: View) -> Section:
    """Flags, what could not be compared, and what the plan leaves out."""
    table = flags(view)
    text = "" if table.rows else "No cell is flagged."
    blocks: list[Block] = [shown for shown in (table, drift(view), dropped_table(view)) if shown.rows]
    if notes := view.comparison.notes:
        blocks.append(Listing(f"Not compared ({len(notes)})", "\n".join(notes)))
    return Section("doubts", "Flags and gaps", text, tuple(blocks))


def dropped_table(view: View) -> Table:
    """Cells that the plan leaves out, by reason."""
    reasons: dict[str, list[str]] = {}
    for cell in view.result.matrix.dropped:
        reasons.setdefault(cell.why or "no reason given", []).append(f"{cell.service}/{cell.cell}")
    rows = tuple(
        Row((Entry(why), Entry(str(len(cells)), sort=len(cells)), Entry(", ".join(cells))))
        for why, cells in reasons.items()
    )
    columns = (Column("Why"), Column("Cells", numeric=True), Column("Which"))
    return Table("dropped", "Cells that the plan leaves out", columns, rows)


def failures(view: View) -> Section:
    """Every server and cell that failed or was cut short, with its cause and evidence."""
    problems = tuple(
        [
            problem(f"Server {name}", start.status, start.diagnosis, start.log_tail)
            for name, start in view.starts.items()
            if start.status != "ok"
        ]
        + [
            problem(f"{service}/{cell}", result.status, result.diagnosis)
            for (service, cell), result in view.cells.items()
            if result.status != "ok"
        ]
    )
    return Section("failures", "Failures", "" if problems else "Nothing failed.", problems)


def problem(title: str, status: str, diagnosis: Diagnosis | None, log_tail: str = "") -> Problem:
    """A failure as far as it was diagnosed; without evidence the end of the log stands in."""
    tail = tuple(log_tail.splitlines()[-12:])
    if diagnosis is None:
        return Problem(title, status, "No cause was found.", tail)
    return Problem(title, diagnosis.cause, diagnosis.summary, diagnosis.evidence or tail, diagnosis.remedy)


def setup(view: View) -> Section:
    """Machine, model, engine and the command lines."""
    info = view.result.info
    plan = info.plan
    described = {
        "draftmark": info.draftmark,
        "model": plan.model.target,
        **({"draft": plan.model.draft} if plan.model.draft else {}),
        "engine": dict(facts(view))["Engine"],
        **flat(info.machine),
    }
    table = Table(
        "machine",
        "What was measured, and on what",
        (Column("Item"), Column("Value")),
        tuple(Row((Entry(name), Entry(str(value)))) for name, value in described.items()),
    )
    commands = "\n\n".join(
        f"# {view.name(start.service)}\n{command_line(start)}" for start in view.starts.values() if start.argv
    )
    listing: tuple[Block, ...] = (Listing("Command lines", commands),) if commands else ()
    return Section("setup", "Setup", blocks=(table, *listing))


def flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """A tree of facts as one level, keys joined with dots, lists of plain values with commas."""
    found: dict[str, str] = {}
    for key, value in tree.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            found |= flat(value, f"{name}.")
        elif isinstance(value, list | tuple) and any(isinstance(item, Mapping) for item in value):
            found |= flat({str(index): item for index, item in enumerate(value)}, f"{name}.")
        else:
            found[name] = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return found


def method(view: View) -> Section:
    """How the numbers came about, in a paragraph."""
    cells = [cell for service in view.services.values() for cell in service.cells]
    greedy = all(cell.temperature == 0 for cell in cells)
    parts = [
        f"Each of the {len(view.services)} services was started once for all of its cells. Every request was "
        "streamed; its times are those at which the load client read the bytes. Warm-up and failed requests "
        "count for nothing. Tokens are counted by the server, never by chunks.",
        "At the end the baseline was started and measured again on some of its cells, to tell whether the "
        "machine was still the same."
        if view.comparison.drift
        else "",
        "All outputs are greedy (temperature 0)." if greedy else "Not all outputs are greedy.",
        f"A method is compared with {view.baseline} on the same prompts of the same cell: the speedup is the "
        "geometric mean of the ratios of the pairs, its 95 % interval Student's t over prompts. A verdict is "
        "given where the interval leaves out 1 and the effect exceeds the baseline's measured noise."
        if view.comparison.speedups
        else "",
        "Speedup is acceptance length over step cost, both of which are given where the engine reports "
        "acceptance. A cell whose numbers are doubted is flagged, shown, and left out of every ranking.",
    ]
    return Section("method", "Method", " ".join(part for part in parts if part))


def definitions(view: View) -> Section:
    """Each number that the report uses, and each flag."""
    used = {key for cell in view.cells.values() for key in cell.metrics}
    rows = [
        Row((Entry(metric.title), Entry(metric.unit), Entry(metric.definition, metric.validity), Entry(key)))
        for key, metric in METRICS.items()
        if key in used
    ]
    rows += [
        Row((Entry(name), Entry(unit), Entry(text), Entry("")))
        for name, unit, text in (
            ("speedup", "×", "Decode rate (one request at a time) or steady throughput (several) over the "
             "baseline's, paired by prompt; geometric mean with its 95 % interval over prompts."),
            ("verdict", "", "Faster or slower where the interval leaves out 1 and the effect exceeds the "
             "baseline's measured noise; else cannot tell."),
        )
    ]  # fmt: skip
    raised = {kind for key in (*view.cells, *view.speedups) for kind in view.flags(*key)}
    rows += [
        Row((Entry(kind), Entry("flag"), Entry(f"{meaning[0].upper()}{meaning[1:]}."), Entry("")))
        for kind, meaning in FLAG_MEANING.items()
        if kind in raised
    ]
    columns = (Column("Name"), Column("Unit"), Column("Definition"), Column("Key in the files"))
    text = "Times are measured by the load client on one monotonic clock."
    return Section(
        "definitions", "Definitions", text, (Table("metrics", "Numbers used", columns, tuple(rows)),)
    )


def reproduction(view: View) -> Section:
    """The plan, and how to run it."""
    name = f"{view.result.info.plan.name}.yaml"
    text = f"Save the plan as {name} and run: draftmark run {name}"
    return Section("reproduce", "Reproduce", text, (Listing(name, view.result.info.plan_text),))
