"""Fixtures that several test modules use."""

from collections.abc import Iterator

import pytest

import timed_server as server


@pytest.fixture
def timed_server() -> Iterator[server.Handle]:
    """A server of known timing, in a process of its own."""
    with server.running() as handle:
        yield handle
