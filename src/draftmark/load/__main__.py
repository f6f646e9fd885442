"""The load client as a process of its own; ``load.apart`` starts it and speaks with it over its pipes."""

import gc
import os
import signal
import sys
from typing import NoReturn

import msgspec

from draftmark.errors import BadInput
from draftmark.load.job import LoadJob
from draftmark.load.measure import Run
from draftmark.load.messages import BAD, DONE, PROGRESS, READY, RECORD, Messages, encode

STDIN = 0


def main() -> int:
    """Take a job from the standard input and report on the output."""
    gc.disable()  # a collection would stop the loop for milliseconds, and what it makes has no cycles
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent gets it too, and ends this process
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    job = msgspec.msgpack.decode(_next(), type=LoadJob)
    if job.pinned_core is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {job.pinned_core})
    try:
        run = Run(job)
    except BadInput as error:
        _say(BAD, (error.message, error.hint))
        return error.exit_code
    run.loop.watch(STDIN, _parent_is_gone)
    run.go(_start, lambda ended: _say(PROGRESS, ended))
    for record in run.records():
        _say(RECORD, record)
    _say(DONE, (run.duration_s, run.health()))
    sys.stdout.flush()
    return 0


def _start() -> int:
    _say(READY, None)
    return msgspec.msgpack.decode(_next(), type=int)


def _next() -> bytes:
    """The payload of the next message; the parent sends one at a time, so nothing is left over."""
    messages = Messages()
    while data := os.read(STDIN, 1 << 20):
        for _, payload in messages.feed(data):
            return payload
    _parent_is_gone()


def _parent_is_gone() -> NoReturn:
    """Nothing that could be measured now would be read."""
    os._exit(1)


def _say(kind: bytes, value: object) -> None:
    sys.stdout.buffer.write(encode(kind, value))
    if kind != RECORD:
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    sys.exit(main())
