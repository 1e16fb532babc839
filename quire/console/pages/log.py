"""The last events of the broker's log, live."""

from typing import Any

from nicegui import ui

from quire.console import shown
from quire.console.elements import Tone, block, say
from quire.console.page import Page
from quire.console.row_table import Column, Entry, LocalTable, text_column

REFRESH = 2.0
LIMIT = 1000
LEVELS = ["debug", "info", "warning", "error"]
_TONES: dict[str, Tone] = {"warning": "warn", "error": "bad"}


async def build(page: Page) -> None:
    """Build it."""
    log = await page.get("/log", limit=LIMIT)
    with page.frame("Log", "log"):
        view = _Log(page)
        view.show(log)
    page.watch("/log", REFRESH, view.show, limit=LIMIT)


class _Log:
    """The events, the newest first."""

    MOST = 300
    """How many events are shown."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._events: list[Entry] = []
        self._level, self._search = page.query.get("level", "debug"), page.query.get("search", "")
        with block("toolbar"):
            field = ui.input(placeholder="Search events", value=self._search, on_change=self._searched)
            field.props('dense outlined clearable debounce=300 aria-label="Search events"').classes("quire-search")
            level = self._level if self._level in LEVELS else "debug"
            select = ui.select({name: f"{name} and above" for name in LEVELS}, value=level, on_change=self._chosen)
            select.props('dense outlined options-dense aria-label="Level"')
            self._count = say("", classes="mute small")
        columns = [
            Column("at", "Time, UTC", lambda event: shown.time(event["at"]), is_text=True),
            Column("level", "Level", lambda event: event["level"], is_text=True,
                   tone=lambda event: _TONES.get(event["level"], "")),
            text_column("event", "Event"),
            Column("text", "Text", lambda event: shown.body(event["text"][:1000]), is_text=True, wraps=True),
        ]  # fmt: skip
        self._table = LocalTable(columns, "No event.", "number")

    def show(self, log: dict[str, Any]) -> None:
        """Show the events that there are now."""
        self._events = log["events"]
        self._filter()

    def _filter(self) -> None:
        least = LEVELS.index(self._level) if self._level in LEVELS else 0
        text = self._search.casefold()
        found = [
            event for event in reversed(self._events)
            if (event["level"] not in LEVELS or LEVELS.index(event["level"]) >= least)
            and text in f"{event['event']} {event['text']}".casefold()
        ]  # fmt: skip
        self._table.show(found[: self.MOST])
        self._count.text = f"{shown.number(len(found))} of the last {shown.number(len(self._events))}"

    def _searched(self, event: Any) -> None:
        self._search = event.value or ""
        self._page.remember(search=self._search)
        self._filter()

    def _chosen(self, event: Any) -> None:
        self._level = event.value
        self._page.remember(level=self._level)
        self._filter()
