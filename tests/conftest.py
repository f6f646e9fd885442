"""Fixtures that several test modules use."""

import signal
from collections.abc import Iterator

import pytest

import timed_server as server


@pytest.fixture
def timed_server() -> Iterator[server.Handle]:
    """A server of known timing, in a process of its own."""
    with server.running() as handle:
        yield handle


# A shell without job control starts what it puts in the background with SIGINT ignored, and children inherit
# that: the programs under test would then never see the interrupt that they are sent.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
