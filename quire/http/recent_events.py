"""The last events of the log, in memory."""

import logging
from collections import deque
from typing import Annotated

import msgspec

from quire.resources import doc

MOST = 1000
"""How many events are kept."""

MOST_TEXT = 2000
"""How many characters of an event's text, and of a value of its data, are kept."""

MOST_DATA = 20
"""How many values of its data are kept."""


class LoggedEvent(msgspec.Struct, frozen=True):
    """An event of the log."""

    number: Annotated[int, doc("Its number since the broker started.")]
    at: Annotated[int, doc("When, in milliseconds since the epoch.")]
    level: Annotated[str, doc("debug, info, warning or error.")]
    event: Annotated[str, doc("Its name, which stays the same.")]
    text: Annotated[str, doc("What happened, in words; a long text is cut.")]
    data: Annotated[dict[str, str], doc("Its data, as text.")]


class RecentEvents(logging.Handler):
    """Keeps the last events that are logged."""

    def __init__(self) -> None:
        super().__init__()
        self._events: deque[LoggedEvent] = deque(maxlen=MOST)
        self._last = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Keep an event."""
        self._last += 1
        data = list(getattr(record, "data", {}).items())[:MOST_DATA]
        self._events.append(
            LoggedEvent(
                self._last, int(record.created * 1000), record.levelname.lower(),
                getattr(record, "event", record.name), record.getMessage()[:MOST_TEXT],
                {name: str(value)[:MOST_TEXT] for name, value in data},
            )
        )  # fmt: skip

    def behind(self, after: int, limit: int) -> tuple[list[LoggedEvent], bool]:
        """The first events behind a number, and whether some behind it are forgotten."""
        found = [event for event in self._events if event.number > after]
        return found[:limit], bool(self._events) and self._events[0].number > after + 1
