"""Messages of a queue, of a durable subscription, or of a partition of a stream: page after page, without an end."""

from functools import partial
from typing import Any

from nicegui import ui

from quire.console import shown
from quire.console.action import FormDialog
from quire.console.broker_api import path_of
from quire.console.confirm import confirm
from quire.console.cursor_table import CursorTable
from quire.console.detail import link_button
from quire.console.elements import block
from quire.console.form import Field, Form
from quire.console.page import Page
from quire.console.row_table import Column, Entry, count_column, size_column, text_column

CAUSE = "dlqDeliveryFailureCause"
"""The header of a dead letter that says why it is one."""

PREVIEW = 160
"""How many bytes of each body are asked for."""


async def build(page: Page) -> None:
    """Build it."""
    place = Place(page)
    with page.frame("Messages", place.here, crumbs=place.crumbs) as head:
        with head:
            if place.kind == "queue":
                link_button(page, "Send", "send", "/send", kind="queue", name=place.name)
        search = _Search(page, place)
        table = CursorTable(
            page, _columns(page, place), place.path, "messages", "No message here.",
            identity="offset" if place.kind == "stream" else "sequence",
            cursor="from" if place.kind == "stream" else "after",
        )  # fmt: skip
        search.use(table)
        if place.kind == "queue" and "manage" in await page.rights("queue", place.name):
            verbs = {"Move": partial(_move, page, place, table), "Delete": partial(_delete, page, place, table)}
            table.row_actions(lambda entry: verbs)
        await table.load()


class Place:
    """Where the messages are, as the link says."""

    def __init__(self, page: Page) -> None:
        query = page.query
        self.kind = query.get("kind", "queue")
        self.name, self.of = query.get("name", ""), query.get("of", "")
        shown_name = shown.text(self.name, 60)
        if self.kind == "durable":
            self.here, self.path = "durables", path_of("durables", self.of, self.name, "messages")
            self.crumbs = [("Durable subscriptions", page.link("/durables")),
                           (shown_name, page.link("/durable", client=self.of, name=self.name))]  # fmt: skip
        elif self.kind == "stream":
            self.here, self.path = "streams", path_of("streams", self.name, "partitions", self.of or "0", "messages")
            self.crumbs = [("Streams", page.link("/streams")), (shown_name, page.link("/stream", name=self.name))]
        else:
            self.kind, self.here, self.path = "queue", "queues", path_of("queues", self.name, "messages")
            self.crumbs = [("Queues", page.link("/queues")), (shown_name, page.link("/queue", name=self.name))]

    def link(self, page: Page, at: object) -> str:
        """The page about one message."""
        return page.link("/message", kind=self.kind, name=self.name, of=self.of, at=at)


class _Search:
    """What to look for. A stream is searched from a position on."""

    def __init__(self, page: Page, place: Place) -> None:
        self._page = page
        with block("toolbar"):
            if place.kind == "stream":
                self._fields = {"from": self._field("from", "From: an offset, earliest, ago=30m")}
            else:
                self._fields = {
                    "selector": self._field("selector", "Selector: priority > 4 AND region = 'EU'"),
                    "id": self._field("id", "Message id or sequence"),
                }
            ui.button("Search", icon="search", on_click=self._search).props("dense outline").classes("act")

    def use(self, table: CursorTable) -> None:
        """The table that shows what is found."""
        self._table = table
        self._table.query["preview"] = PREVIEW
        self._apply()

    def _field(self, name: str, label: str) -> ui.input:
        field = ui.input(placeholder=label, value=self._page.query.get(name, ""))
        field.props(f'dense outlined clearable aria-label="{label}"').classes("quire-search mono")
        field.on("keydown.enter", self._search)
        return field

    def _apply(self) -> None:
        for name, field in self._fields.items():
            self._table.query[name] = field.value or None

    async def _search(self) -> None:
        self._apply()
        self._page.remember(**{name: field.value or None for name, field in self._fields.items()})
        await self._table.restart()


def _columns(page: Page, place: Place) -> list[Column]:
    at = "offset" if place.kind == "stream" else "sequence"
    columns = [
        Column(at, at.capitalize(), lambda one: shown.number(one[at]), link=lambda one: place.link(page, one[at])),
        Column("timestamp", "Sent, UTC", lambda one: shown.time(one["timestamp"]), is_text=True),
        Column("body", "Body", _preview, is_text=True),
        size_column("size"),
        text_column("id", "Message id"),
    ]
    if place.kind != "stream":
        columns[3:3] = [
            count_column("priority", "Priority"),
            Column("deliveries", "Deliveries", lambda one: shown.number(one.get("deliveries")),
                   tone=lambda one: "warn" if (one.get("deliveries") or 0) > 1 else ""),
            Column("state", "State", lambda one: "in flight" if one.get("in_flight") else "waits", is_text=True),
            Column("cause", "Dead letter because", lambda one: shown.text(one["headers"].get(CAUSE, ""), 100),
                   is_text=True, is_shown=False),
        ]  # fmt: skip
    return columns


def _preview(message: Entry) -> str:
    if message["body_encoding"] == "base64":
        return f"({shown.size(message.get('body_size', message['size']))} of binary data)"
    return shown.text(message["body"], 100)


async def _delete(page: Page, place: Place, table: CursorTable, entry: Entry) -> None:
    title = f"Delete message {entry['sequence']} of queue {shown.text(place.name, 60)}"
    text = f"The message {shown.text(entry['id'], 80)} is removed for good."
    if not await confirm(title, text, "Delete message"):
        return
    if await page.attempt(page.caller.call("DELETE", f"{place.path}/{entry['sequence']}")) is not None:
        ui.notify("The message was deleted", type="positive")
        await table.reload()


async def _move(page: Page, place: Place, table: CursorTable, entry: Entry) -> None:
    async def send(form: Form) -> dict[str, Any]:
        body = form.body() | {"ids": [str(entry["sequence"])]}
        return await page.caller.call("POST", path_of("queues", place.name, "move"), body)

    fields = [Field("to", "To", hint="A queue, or topic://NAME", is_required=True)]
    title = f"Move message {entry['sequence']} of queue {shown.text(place.name, 60)}"
    FormDialog(page, title, "Move message", fields, send, lambda _: table.reload())
