"""The same in processes of their own: jobs go in on their standard input, results come out on the output."""

import os
import selectors
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from math import ceil
from time import monotonic_ns
from types import TracebackType
from typing import IO

import msgspec
from msgspec import structs

from draftmark.errors import BadInput, DraftmarkError
from draftmark.load.job import LoadJob
from draftmark.load.messages import BAD, DONE, GO, JOB, PROGRESS, READY, RECORD, Messages, encode, record
from draftmark.schema import LoadHealth, LoadResult, RequestRecord, Work

STREAMS_PER_WORKER = 512
"""More streams than this are split over several processes, on machines that have the cores for it."""

_READ = 1 << 20


def measure_apart(
    job: LoadJob, on_progress: Callable[[int], None] | None = None, workers: int | None = None
) -> LoadResult:
    """Run a cell in a fresh process, or several; ``on_progress`` gets the number of requests ended so far.

    However this call ends, the processes have ended with it; they also end when this process dies. Raises
    BadInput on a URL that is none, and DraftmarkError where a process was ended from outside.
    """
    count = workers or worker_count(job.concurrency, os.cpu_count() or 1)
    with _Workers(split(job, count)) as processes:
        return _Gathering(processes, on_progress or (lambda _: None)).result()


def worker_count(streams: int, cores: int) -> int:
    """Processes for so many streams: at most a quarter of the cores, since the server may need the others."""
    return max(1, min(ceil(streams / STREAMS_PER_WORKER), cores // 4))


def split(job: LoadJob, count: int) -> list[LoadJob]:
    """Share a job's work and streams out; a job that is pinned to a core stays whole."""
    count = 1 if job.pinned_core is not None else min(count, job.concurrency)
    return [_part(job, part, count) for part in range(count)]


def _part(job: LoadJob, part: int, count: int) -> LoadJob:
    work = Work(
        requests=job.work.requests[part::count],
        sessions=job.work.sessions[part::count],
    )
    streams = len(range(part, job.concurrency, count))
    return structs.replace(job, work=work, concurrency=streams)


class _Workers:
    """Processes that each run a part of the job; leaving the block ends them."""

    def __init__(self, jobs: Sequence[LoadJob]) -> None:
        self._jobs = jobs
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> "_Workers":
        for job in self._jobs:
            pipe = subprocess.PIPE
            command = [sys.executable, "-m", "draftmark.load"]
            self._processes.append(subprocess.Popen(command, bufsize=0, stdin=pipe, stdout=pipe, stderr=pipe))
            self._tell(self._processes[-1], encode(JOB, job))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            process.kill()
            process.communicate()

    def __len__(self) -> int:
        return len(self._jobs)

    def go(self, zero: int) -> None:
        """Start the clock."""
        for process in self._processes:
            self._tell(process, encode(GO, zero))

    def messages(self) -> Iterator[tuple[int, bytes, bytes]]:
        """(worker, kind, payload) as they come, until each worker has closed its output."""
        with selectors.DefaultSelector() as selector:
            for worker, process in enumerate(self._processes):
                selector.register(_open(process.stdout), selectors.EVENT_READ, (worker, Messages()))
            while selector.get_map():
                yield from _arrived(selector)

    def complaint(self) -> str:
        """How the workers ended that ended badly, with what they said last."""
        ends = [(process.wait(), _open(process.stderr).read()) for process in self._processes]
        return "; ".join(
            f"exit status {status} {said.decode(errors='replace').strip()[-2000:]}"
            for status, said in ends
            if status
        )

    def _tell(self, process: subprocess.Popen[bytes], message: bytes) -> None:
        view = memoryview(message)
        while view:
            try:
                view = view[_open(process.stdin).write(view) :]
            except BrokenPipeError:
                return  # it has ended, and the end of its output will say so


def _arrived(selector: selectors.BaseSelector) -> Iterator[tuple[int, bytes, bytes]]:
    for key, _ in selector.select():
        worker, messages = key.data
        data = os.read(key.fd, _READ)
        yield from ((worker, *message) for message in messages.feed(data))
        if not data:
            selector.unregister(key.fileobj)


class _Gathering:
    """Puts together what the workers report."""

    def __init__(self, workers: _Workers, on_progress: Callable[[int], None]) -> None:
        self._workers = workers
        self._on_progress = on_progress
        self._ready = 0
        self._ended = [0] * len(workers)
        self._records: list[RequestRecord] = []
        self._done: list[tuple[float, LoadHealth]] = []

    def result(self) -> LoadResult:
        """All workers' records, in the order of their start."""
        for worker, kind, payload in self._workers.messages():
            self._take(worker, kind, payload)
        if len(self._done) < len(self._workers):
            raise DraftmarkError(f"the load client ended early: {self._workers.complaint()}")
        self._records.sort(key=lambda each: each.start_s)
        durations, healths = zip(*self._done, strict=True)
        return LoadResult(records=tuple(self._records), duration_s=max(durations), health=together(healths))

    def _take(self, worker: int, kind: bytes, payload: bytes) -> None:
        if kind == RECORD:
            self._records.append(record(payload))
        elif kind == PROGRESS:
            self._ended[worker] = msgspec.msgpack.decode(payload)
            self._on_progress(sum(self._ended))
        elif kind == READY:
            self._ready += 1
            if self._ready == len(self._workers):
                self._workers.go(monotonic_ns())
        elif kind == DONE:
            self._done.append(msgspec.msgpack.decode(payload, type=tuple[float, LoadHealth]))
        elif kind == BAD:
            raise BadInput(*msgspec.msgpack.decode(payload, type=tuple[str, str]))


def together(healths: Sequence[LoadHealth]) -> LoadHealth:
    """Of several workers: the worst share and lag, and all late sends."""
    lags = [health.loop_lag_p99_s for health in healths if health.loop_lag_p99_s is not None]
    return LoadHealth(
        cpu_share=max(health.cpu_share for health in healths),
        loop_lag_p99_s=max(lags, default=None),
        late_sends=sum(health.late_sends for health in healths),
        kernel_times=all(health.kernel_times for health in healths),
        workers=len(healths),
    )


def _open(stream: IO[bytes] | None) -> IO[bytes]:
    """A pipe that was asked for, which type checkers cannot know."""
    assert stream is not None
    return stream
