"""One cell's load in this process: connect, start the clock, run, and only then read what came."""

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import monotonic_ns, thread_time_ns

from draftmark.client import Exchange, endpoint, record
from draftmark.engines import ENGINES
from draftmark.load.job import LoadJob
from draftmark.load.loop import LAG_STEP_NS, Limits, Loop
from draftmark.load.schedule import Closed, Conversations, Open, Schedule
from draftmark.schema import LoadHealth, LoadResult, Request, RequestRecord


def measure(job: LoadJob, on_progress: Callable[[int], None] | None = None) -> LoadResult:
    """Run a cell here and now; ``on_progress`` gets the number of ended requests, four times a second.

    The records are in the order of their start. Raises BadInput on a URL that is none.
    """
    run = Run(job)
    with _no_garbage_collection():
        run.go(monotonic_ns, on_progress or (lambda _: None))
        records = sorted(run.records(), key=lambda record: record.start_s)
    return LoadResult(records=tuple(records), duration_s=run.duration_s, health=run.health())


class Run:
    """One cell being measured."""

    def __init__(self, job: LoadJob) -> None:
        self._job = job
        self._engine = ENGINES[job.service.engine.kind]
        self._to = endpoint(job.base_url, job.headers)
        self._zero = self._end = self._cpu = 0
        self.loop = Loop(self._to, Limits(job.timeout_s, job.stall_s, job.give_up))

    def go(self, clock: Callable[[], int], on_progress: Callable[[int], None]) -> None:
        """Connect, ask ``clock`` from when to count (it may wait for others), and run to the end."""
        loop, schedule = self.loop, self._schedule()
        loop.connect(self._job.concurrency)
        self._zero = clock()
        cpu = thread_time_ns()
        schedule.start(self._zero)
        loop.run(schedule, on_progress)
        self._end, self._cpu = monotonic_ns(), thread_time_ns() - cpu
        loop.close()

    def records(self) -> Iterator[RequestRecord]:
        """What happened, one request after another; only once."""
        return map(self._read, self.loop.shelf.take_all())

    @property
    def duration_s(self) -> float:
        """From the start of the clock to the end of the last request."""
        return (self._end - self._zero) / 1e9

    def health(self) -> LoadHealth:
        """How this process fared meanwhile."""
        return LoadHealth(
            cpu_share=self._cpu / max(self._end - self._zero, 1),
            loop_lag_p99_s=_p99_s(self.loop.lags),
            late_sends=self.loop.late,
            kernel_times=self.loop.kernel_times,
        )

    def _schedule(self) -> Schedule:
        work, streams = self._job.work, self._job.concurrency
        if work.sessions:
            return Conversations(work.sessions, streams, self._wire, self._read)
        if any(request.send_at_s is not None for request in work.requests):
            return Open(work.requests, self._wire)
        return Closed(work.requests, streams, self._wire)

    def _wire(self, request: Request) -> bytes:
        return self._to.wire(*self._engine.request_body(self._job.service, request, self._job.served_name))

    def _read(self, exchange: Exchange) -> RequestRecord:
        return record(exchange, self._zero, self._engine.request_speculation)


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """A collection would stop the loop for milliseconds; what a run makes has no cycles."""
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _p99_s(lags: Mapping[int, int]) -> float | None:
    """The 99th percentile of lags counted in steps, as the upper end of its step."""
    rank = 0.99 * sum(lags.values())
    for lag in sorted(lags):
        rank -= lags[lag]
        if rank <= 0:
            return (lag + 1) * LAG_STEP_NS / 1e9
    return None
