"""What people see while a measurement runs: a bar on a terminal, a line a second elsewhere, nothing for programs."""

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Self

from quire.cli.output import Output, on_terminal
from quire.clock import Clock

if TYPE_CHECKING:
    from rich.progress import Progress

LINE_INTERVAL = 1.0
"""How far apart plain lines are, in seconds."""
_BAR_INTERVAL = 0.1


class LiveFigures:
    """Shows the progress of a measurement on standard error; prints no plain lines when ``output`` is for programs."""

    def __init__(self, output: Output, clock: Clock) -> None:
        self._output = output
        self._clock = clock
        self._bar = _bar() if on_terminal(sys.stderr) else None
        self._next = clock.monotonic()

    def show(self, text: str, share: float) -> None:
        """Show figures in one line, and which share is done; most calls come too soon and cost nothing."""
        now = self._clock.monotonic()
        if now < self._next:
            return
        self._next = now + (_BAR_INTERVAL if self._bar else LINE_INTERVAL)
        if self._bar:
            # Drawn here and now: a thread of its own could not be forked safely.
            self._bar.update(self._bar.task_ids[0], description=text, completed=share, refresh=True)
        else:
            self._output.note(f"{share:4.0%}  {text}")

    def __enter__(self) -> Self:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()


def _bar() -> "Progress":
    # Rich takes a tenth of a second to import: only those who see its bar pay.
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    columns = (TaskProgressColumn(), BarColumn(), TextColumn("{task.description}", markup=False))
    bar = Progress(*columns, console=Console(stderr=True), auto_refresh=False, transient=True)
    bar.add_task("", total=1.0)
    return bar
