"""A campaign's events as a person sees them: lasting lines, and a live foot where there is a terminal."""

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from draftmark.campaign import events
from draftmark.cli.show import cell_line, counted, duration, lasting
from draftmark.estimate import Span

QUIET_S = 30.0
"""Without a terminal, how long nothing is said about work that goes on."""


class Progress:
    """Shows events on ``console`` (standard error) and keeps count of what is left."""

    def __init__(self, console: Console, cells: int) -> None:
        self._console = console
        self._cells, self._done = cells, 0
        self._foot = ""
        self._left: Span | None = None
        self._began = self._spoke = time.monotonic()
        self._spinner = Spinner("dots")
        self._live = Live(console=console, refresh_per_second=4, transient=True, get_renderable=self._render)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def __call__(self, event: events.Event) -> None:
        """Take one event."""
        match event:
            case events.ServiceStarting(service, cells):
                self._say(f"{service.id}: starting for {counted(cells, 'cell')}")
                self._foot = f"{service.id}: starting"
            case events.ServiceProgress(service, text, elapsed_s):
                self._going_on(f"{service.id}: {text} ({duration(elapsed_s)})")
            case events.ServiceReady(service, ready_s):
                self._say(f"{service.id}: ready after {ready_s:.1f} s")
            case events.ServiceFailed(service, diagnosis):
                self._say(f"✗ {service.id}: {diagnosis.summary}", "red")
            case events.CellStarted(service, cell, attempt):
                again = f" (attempt {attempt})" if attempt > 1 else ""
                self._foot = f"{service.id}  {cell.id}{again}"
            case events.CellProgress(service, cell, done, total):
                self._going_on(f"{service.id}  {cell.id}: {done} of {total} requests")
            case events.CellDone() | events.CellKept():
                self._finished(event)
            case events.CellAgain(service, cell, why):
                self._say(f"! {service.id}  {cell.id}: {why}; measuring it again", "yellow")
            case events.Note(text):
                self._say(f"! {text}", "yellow")

    def _finished(self, event: events.CellDone | events.CellKept) -> None:
        self._done += 1
        if isinstance(event, events.CellKept):
            return
        self._left = event.remaining
        left = "" if self._console.is_terminal else f"  ({lasting(event.remaining)} left)"
        style = "" if event.result.status == "ok" else "red"
        self._say(f"{cell_line(event.result)}  {self._done}/{self._cells}{left}", style)

    def _going_on(self, text: str) -> None:
        self._foot = text
        if not self._console.is_terminal and time.monotonic() - self._spoke > QUIET_S:
            self._say(text)

    def _say(self, text: str, style: str = "") -> None:
        self._spoke = time.monotonic()
        self._console.print(Text(text, style=style), soft_wrap=True)

    def _render(self) -> Text | Spinner:
        elapsed = duration(time.monotonic() - self._began)
        left = f", about {lasting(self._left)} left" if self._left is not None else ""
        self._spinner.update(
            text=Text(f"{self._foot}   {self._done}/{counted(self._cells, 'cell')}, {elapsed}{left}")
        )
        return self._spinner
