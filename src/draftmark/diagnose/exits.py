"""What the exit status of a server says where its log says nothing."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Exit:
    """The meaning of one exit status; negative for a signal."""

    status: int
    cause: str
    summary: str
    remedy: str
    engine: str | None = None
    """The only one for which it holds."""


EXITS = (
    Exit(0, "ended", "the server ended by itself, with status 0, while {phase}", "see what stopped it"),
    Exit(
        2,
        "bad-flag",
        "the server did not accept its command line",
        "compare its flags with those of the engine's version",
    ),
    Exit(
        3,
        "port-in-use",
        "the HTTP port could not be bound",
        "end the process that holds it or choose another port",
        "sglang",
    ),
    Exit(
        127, "program-missing", "the server's program was not found", "check engine.python or engine.binary"
    ),
    Exit(
        -9,
        "killed",
        "the server was killed (SIGKILL) while {phase}: SGLang does that to itself when a part of it "
        "fails, but no part left a message",
        "run it once by hand; if dmesg tells of the OOM killer, free main memory",
        "sglang",
    ),
    Exit(
        -9,
        "killed",
        "the server was killed (SIGKILL) while {phase}: by a person or a supervisor, or by the kernel for "
        "want of main memory",
        "look at dmesg for the kernel's OOM killer",
    ),
    Exit(-15, "stopped", "something outside stopped the server (SIGTERM) while {phase}", "see what did"),
    Exit(-2, "stopped", "the server was interrupted (SIGINT) while {phase}", "see what did"),
    Exit(-1, "stopped", "the server lost its terminal (SIGHUP) while {phase}", "start it apart from one"),
    Exit(
        -6,
        "native-crash",
        "native code gave up (SIGABRT) while {phase}",
        "read the end of the log; run once with CUDA_LAUNCH_BLOCKING=1",
    ),
    Exit(
        -11,
        "native-crash",
        "native code crashed (SIGSEGV) while {phase}",
        "run once with CUDA_LAUNCH_BLOCKING=1; try another attention backend",
    ),
    Exit(
        -7,
        "shared-memory",
        "shared memory ran out (SIGBUS) while {phase}",
        "give /dev/shm more room (--shm-size of the container)",
    ),
    Exit(
        -4,
        "wrong-cpu",
        "the program uses instructions that this CPU does not have (SIGILL)",
        "install a build for this CPU",
    ),
)
"""The first that holds."""
_SIGNALS = 128


def meaning(status: int | None, engine: str | None) -> Exit | None:
    """What is known of an exit status; a shell's 128 + n counts as signal n."""
    if status is not None and _SIGNALS < status < 2 * _SIGNALS:
        status = _SIGNALS - status
    known = (entry for entry in EXITS if entry.status == status and entry.engine in (None, engine))
    return next(known, None)
