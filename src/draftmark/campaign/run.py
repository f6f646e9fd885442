"""A whole campaign: phase by phase, one server at a time, every failure a stored result.

Nothing here decides about numbers. A service is started for those of its cells that are not stored yet;
a server that dies is started again once for the cell that it died on; a cell that fails is stored with
its reason, and the campaign goes on.
"""

import shlex
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from msgspec.structs import replace

from draftmark import __version__, staging, workload
from draftmark.campaign import events
from draftmark.campaign.budget import draft_problems
from draftmark.campaign.measure import Measurement, failed, measure_cell
from draftmark.campaign.servers import NotServed, Ready, Site, launch, ready, utc_now
from draftmark.campaign.tokenizers import tokenizer_of
from draftmark.errors import BadInput, DraftmarkError, ResultError, nearest
from draftmark.estimate import Estimate, Pace, Span, estimate
from draftmark.hosts import Host
from draftmark.plan import covered
from draftmark.schema import CampaignInfo, Cell, CellResult, Diagnosis, FlagKind, Matrix, Service, Work
from draftmark.schema import Host as HostSpec
from draftmark.services import end_orphans
from draftmark.store import ResultTree, Unusable

PASSING: frozenset[FlagKind] = frozenset({"foreign-load", "client-bound"})
"""Flags of what the machine did meanwhile: measured again, a cell may be free of them."""
ATTEMPTS = 2
"""How often a cell is tried when the server dies under it."""


@dataclass
class Outcome:
    """How many of a campaign's cells were measured now, kept from before, and are without a result."""

    measured: int = 0
    kept: int = 0
    failed: int = 0
    estimate: Estimate = field(default_factory=Estimate)
    """Made before anything was measured now."""
    took_s: float = 0.0


@dataclass
class Campaign:
    """One run of a matrix into a result tree."""

    matrix: Matrix
    tree: ResultTree
    host: Host
    listen: Callable[[events.Event], None]
    files: Mapping[str, str] = field(default_factory=dict)
    """Text of the files that the plan names, by its word."""
    keep_failed: bool = False
    """Leave cells alone that failed in an earlier run."""
    again_flagged: bool = False
    """Measure cells again that bear a flag of ``PASSING``."""
    outcome: Outcome = field(default_factory=Outcome)
    _pace: Pace = field(default_factory=Pace)
    _machine: dict[str, Any] = field(default_factory=dict)
    _works: dict[str, Work] = field(default_factory=dict)
    """By cell."""
    _todo: dict[str, deque[Cell]] = field(default_factory=dict)
    """Cells still to be measured, by service."""

    def run(self, plan_text: str) -> Outcome:
        """Measure what is not stored yet; the tree must be locked. Raises BadInput for hosts of no use."""
        _check_hosts(self.matrix)
        self._machine, earlier = self.host.machine(), self._earlier()
        self.tree.create(
            CampaignInfo(
                draftmark=__version__,
                plan=self.matrix.plan,
                plan_text=plan_text,
                files=covered(self.matrix.plan, self.files),
                started_at=earlier.started_at if earlier else utc_now(),
                machine=self._machine,
            )
        )
        end_orphans(self.host, lambda found: self._emit(events.Note(f"{found.service}: {found.text}")))
        for service in self.matrix.services:
            self._todo[service.id] = deque(cell for cell in service.cells if self._needed(service, cell))
        for problem in draft_problems(self.matrix.services):
            self._emit(events.Note(problem))
        started_s, self.outcome.estimate = time.monotonic(), estimate(self._left(), self._pace)
        for service in self.matrix.services:
            if self._todo[service.id]:
                self._serve(service)
                self.outcome.took_s = time.monotonic() - started_s
        return self.outcome

    def _earlier(self) -> CampaignInfo | None:
        """The campaign that this one goes on with; raises BadInput where the folder holds another one."""
        try:
            earlier = self.tree.info()
        except ResultError:
            return None  # there is none, or it is damaged and written anew
        before, now = (f"{one.model.target} on {one.engine.kind}" for one in (earlier.plan, self.matrix.plan))
        if before != now:
            raise BadInput(
                f"{self.tree.root}: holds results of {before}, and the plan asks for {now}",
                "give another folder with -o or another name in the plan; --fresh sets those results aside",
            )
        return earlier

    def _needed(self, service: Service, cell: Cell) -> bool:
        found = self.tree.cell(service, cell)
        if isinstance(found, Unusable):
            self._emit(events.CellAgain(service, cell, found.why))
            return True
        if found is None or (found.status != "ok" and not self.keep_failed):
            return True
        passing = [flag.kind for flag in found.flags if flag.kind in PASSING]
        if self.again_flagged and passing:
            self._emit(events.CellAgain(service, cell, f"flagged {', '.join(passing)}"))
            return True
        if service.repeats and self._goes_on(service.phase):
            self._emit(events.CellAgain(service, cell, "more of its phase is measured now"))
            return True
        if found.status == "ok":
            self._pace = self._pace.measured(found)
        self.outcome.kept += found.status == "ok"
        self.outcome.failed += found.status != "ok"
        self._emit(events.CellKept(service, found))
        return False

    def _goes_on(self, phase: str) -> bool:
        """Whether anything of a phase is to be measured: what repeats its baseline comes last."""
        return any(self._todo.get(s.id) for s in self.matrix.services if s.phase == phase and not s.repeats)

    def _serve(self, service: Service) -> None:
        """Start a service, again if it dies, until each of its cells is measured or has failed."""
        todo, attempts = self._todo[service.id], Counter[str]()
        advised: Diagnosis | None = None
        site = Site(self.host, self._machine, self.tree)
        while todo:
            self._emit(events.ServiceStarting(service, len(todo)))
            try:
                with ready(service, site, self._progress_of(service), advised) as server:
                    self._started(server)
                    self._measure(server, todo, attempts)
            except NotServed as error:
                self._emit(events.ServiceFailed(service, error.diagnosis))
                if advised is None and self._adjustable(error.diagnosis):
                    advised = error.diagnosis
                else:
                    self._not_served(service, error.diagnosis)

    def _adjustable(self, diagnosis: Diagnosis) -> bool:
        return self.matrix.plan.on_failure == "adjust" and bool(diagnosis.adjust)

    def _measure(self, server: Ready, todo: deque[Cell], attempts: Counter[str]) -> None:
        """Measure cells until none is left or the server has died."""
        while todo:
            service, cell = server.service, todo[0]
            attempts[cell.id] += 1
            self._emit(events.CellStarted(service, cell, attempts[cell.id]))
            found = self._measured(server, cell, attempts[cell.id])
            alive = server.alive()
            if not alive and attempts[cell.id] < ATTEMPTS:
                self._emit(events.Note(f"{service.id}: the server died on {cell.id}; starting it again"))
                return
            todo.popleft()
            self._store(service, found if alive else _died(found, server.died()))
            if not alive:
                return

    def _measured(self, server: Ready, cell: Cell, attempt: int) -> Measurement:
        started_at = utc_now()
        try:
            work = self._work_of(server, cell)
        except DraftmarkError as error:
            diagnosis = Diagnosis(cause="workload", summary=error.message, remedy=error.hint)
            return failed(server, cell, started_at, attempt, diagnosis)
        return measure_cell(server, cell, work, attempt, self._progress_on(server.service, cell))

    def _work_of(self, server: Ready, cell: Cell) -> Work:
        """What a cell sends: made once, since every service gets the same."""
        if cell.id not in self._works:
            self._works[cell.id] = workload.work(
                cell,
                tokenizer=tokenizer_of(server, self.files),
                files=self.files,
            )
        return self._works[cell.id]

    def _started(self, server: Ready) -> None:
        if server.ready_s is not None:
            self._pace = self._pace.started(server.ready_s)
            self._emit(events.ServiceReady(server.service, server.ready_s))
        for warning in server.warnings:
            self._emit(events.Note(f"{server.service.id}: {warning.summary}"))

    def _not_served(self, service: Service, diagnosis: Diagnosis) -> None:
        """Store every cell that a server which cannot be had leaves unmeasured."""
        todo = self._todo[service.id]
        while todo:
            result = CellResult(
                service=service.id,
                cell=todo.popleft(),
                status="failed",
                started_at=utc_now(),
                duration_s=0.0,
                diagnosis=diagnosis,
            )
            self._store(service, Measurement(result, ()))

    def _store(self, service: Service, found: Measurement) -> None:
        self.tree.write_cell(found.result, found.records)
        if found.result.status == "ok":
            self.outcome.measured += 1
            self._pace = self._pace.measured(found.result)
        else:
            self.outcome.failed += 1
        self._emit(events.CellDone(service, found.result, self._remaining(service)))

    def _remaining(self, running: Service) -> Span:
        own_s = self._pace.start_s(running.engine.kind) if self._todo[running.id] else 0.0
        left = estimate(self._left(), self._pace).total
        return Span(left.least_s - own_s, left.most_s - own_s)

    def _left(self) -> list[Service]:
        return [replace(service, cells=tuple(self._todo[service.id])) for service in self.matrix.services]

    def _progress_of(self, service: Service) -> Callable[[str, float], None]:
        return lambda text, elapsed_s: self._emit(events.ServiceProgress(service, text, elapsed_s))

    def _progress_on(self, service: Service, cell: Cell) -> Callable[[int], None]:
        return lambda done: self._emit(events.CellProgress(service, cell, done, cell.most_requests))

    def _emit(self, event: events.Event) -> None:
        """Tell the listener, and the journal unless it is mere progress."""
        self.listen(event)
        if not isinstance(event, events.ServiceProgress | events.CellProgress):
            self.tree.journal({"at": utc_now(), **_entry(event)})


def narrow(matrix: Matrix, phase: str | None, only: str | None) -> Matrix:
    """The part of a matrix in one phase and matching a glob; raises BadInput where nothing does."""
    if phase is not None and phase not in matrix.phases:
        raise BadInput(f"there is no phase '{phase}'", nearest(phase, matrix.phases))
    services = (
        replace(service, cells=tuple(cell for cell in service.cells if _matches(only, service, cell)))
        for service in matrix.services
        if phase in (None, service.phase)
    )
    left = tuple(service for service in services if service.cells)
    if not left:
        names = [f"{service.id}/{cell.id}" for service in matrix.services for cell in service.cells]
        raise BadInput(
            f"no cell matches '{only}'", f"cells are named like {names[0]}; globs such as '*-none/*'"
        )
    return replace(matrix, services=left)


def commands(matrix: Matrix, host: Host) -> Iterator[str]:
    """The command lines that a run would execute, bundled models where they will lie; nothing is fetched."""
    cores = int(host.machine()["cores"])
    for service in matrix.services:
        if service.engine.kind == "attach":
            continue
        command, _ = launch(service, host, cores, service.id, staging.bundled_place)
        env = (f"{key}={value}" for key, value in command.env.items())
        yield f"{service.id}: {shlex.join((*env, *command.argv))}"


def _matches(only: str | None, service: Service, cell: Cell) -> bool:
    names = (service.id, cell.id, f"{service.id}/{cell.id}")
    return only is None or any(fnmatchcase(name, only) for name in names)


def _died(found: Measurement, diagnosis: Diagnosis) -> Measurement:
    """A cell whose server died under it each time, whatever its requests gave."""
    return Measurement(
        replace(found.result, status="failed", metrics={}, speculation=None, flags=(), diagnosis=diagnosis),
        found.records,
    )


def _entry(event: events.Event) -> Mapping[str, Any]:
    """An event as a line of the journal: names, not whole objects."""
    entry: dict[str, Any] = {"event": type(event).__name__}
    for name in event.__match_args__:
        value = getattr(event, name)
        match value:
            case Service() | Cell():
                entry[name] = value.id
            case CellResult():
                entry |= {"cell": value.cell.id, "status": value.status, "attempts": value.attempts}
            case Diagnosis():
                entry |= {"cause": value.cause, "summary": value.summary}
            case _:
                entry[name] = value
    return entry


def _check_hosts(matrix: Matrix) -> None:
    """Numbers of this machine must not bear another one's name."""
    for name in dict.fromkeys(service.host for service in matrix.services):
        host = matrix.plan.hosts.get(name, HostSpec())
        asked = {
            "address": host.address,
            "launcher: systemd": host.launcher != "process",
            "preempt": host.preempt,
        }
        if wanted := [key for key, value in asked.items() if value]:
            raise BadInput(
                f"hosts.{name}: {', '.join(wanted)}: servers are started on this machine only, as processes",
                "run draftmark on that machine, or measure what runs there with 'engine: {kind: attach}'",
            )
