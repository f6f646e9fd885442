"""One answer to whether speculation changed the greedy output, from the verdicts on all of its cells."""

from collections.abc import Iterator
from typing import Literal

from draftmark.plan import simulated
from draftmark.schema import (
    CampaignResult,
    Cell,
    CellResult,
    Comparison,
    Frozen,
    Lossless,
    Losslessness,
    Service,
)

Answer = Losslessness | Literal["failed"]
EXIT_CODES: dict[Answer, int] = {
    "diverges": 1,
    "failed": 1,
    "not checked": 3,
    "near-ties only": 0,
    "identical": 0,
}
"""The gravest first; 2 is bad input, as everywhere."""


class CheckedCell(Frozen, frozen=True, kw_only=True):
    """One cell of one method, held against the baseline's."""

    service: str
    method: str
    cell: str
    answer: Answer
    why: str = ""
    """What kept it from being checked."""
    drafted: int | None = None
    accepted: int | None = None
    found: Lossless | None = None
    """None where one side has no result."""


class LosslessCheck(Frozen, frozen=True, kw_only=True):
    """Whether any method of a campaign changed the greedy output."""

    name: str
    baseline: str | None
    answer: Answer
    """The gravest of the cells'."""
    cells: tuple[CheckedCell, ...]
    notes: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """For the shell."""
        return EXIT_CODES[self.answer]


def check_lossless(result: CampaignResult, comparison: Comparison) -> LosslessCheck:
    """Judge every cell that asks for greedy output, measured or not, and the whole by the gravest of them.

    Cells that sample and methods whose acceptance is simulated have no output to compare; notes name them.
    """
    judge = _Judge(result, comparison)
    cells = tuple(judge.cells())
    return LosslessCheck(
        name=result.info.plan.name,
        baseline=comparison.baseline,
        answer=min((one.answer for one in cells), key=list(EXIT_CODES).index, default="not checked"),
        cells=cells,
        notes=tuple(dict.fromkeys(judge.notes)),
    )


class _Judge:
    """What is known of each cell, by service and cell."""

    def __init__(self, result: CampaignResult, comparison: Comparison) -> None:
        self.services = [one for one in result.matrix.services if one.repeats is None]
        self.results = {(one.service, one.cell.id): one for one in result.cells}
        self.found = {(one.service, one.cell): one for one in comparison.lossless}
        self.baselines = result.matrix.baselines
        self.notes: list[str] = []

    def cells(self) -> Iterator[CheckedCell]:
        for service in self.services:
            if not service.baseline:
                yield from self.of(service)

    def of(self, service: Service) -> Iterator[CheckedCell]:
        if simulated(service.method):
            self.notes.append(f"{service.id}: left out, its acceptance is simulated")
            return
        idle = self.idle(service)
        for cell in service.cells:
            if cell.temperature:
                self.notes.append(f"{cell.id}: left out, it samples (temperature {cell.temperature:g})")
            else:
                yield self.cell(service, cell, idle)

    def cell(self, service: Service, cell: Cell, idle: bool) -> CheckedCell:
        found, result = self.found.get((service.id, cell.id)), self.results.get((service.id, cell.id))
        answer, why = _answer(found, idle) if found else self.missing(service, cell)
        spoken = result.speculation if result else None
        return CheckedCell(
            service=service.id,
            method=service.method.name,
            cell=cell.id,
            answer=answer,
            why=why,
            drafted=spoken.drafted if spoken else None,
            accepted=spoken.accepted if spoken else None,
            found=found,
        )

    def missing(self, service: Service, cell: Cell) -> tuple[Answer, str]:
        """Why a cell could not be compared: the first side that has no result, and what came of it."""
        base = self.baselines.get(service.place)
        if base is None:
            return "not checked", f"no baseline runs on {service.host} with TP {service.tp}"
        results = {one.id: self.results.get((one.id, cell.id)) for one in (base, service)}
        for name, result in results.items():
            if result and result.status != "ok":
                return "failed", f"{name}: {_reason(result)}"
        lacking = [name for name, result in results.items() if result is None]
        return "not checked", f"{' and '.join(lacking)}: not measured"

    def idle(self, service: Service) -> bool:
        """It drafted nothing on any cell that was measured."""
        results = (self.results.get((service.id, cell.id)) for cell in service.cells)
        measured = (one for one in results if one and one.status == "ok")
        return all("no-draft" in {flag.kind for flag in one.flags} for one in measured)


def _answer(found: Lossless, idle: bool) -> tuple[Answer, str]:
    """The verdict, and why there is none; a server that never drafted was not put to the test."""
    if idle and found.verdict == "identical":
        return (
            "not checked",
            "nothing was drafted on any cell measured: there was nothing to change",
        )
    if found.verdict != "not checked":
        return found.verdict, ""
    unknown = sum(parting.margin is None for parting in found.partings)
    if not unknown:
        return "not checked", "no request was answered on both sides"
    return "not checked", f"no margin is known where {unknown} of the outputs part, so it may be rounding"


def _reason(result: CellResult) -> str:
    return result.diagnosis.summary if result.diagnosis else result.status
