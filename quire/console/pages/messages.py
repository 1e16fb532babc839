"""Messages, page after page without an end; one message; sending one."""

from functools import partial
from typing import Any

from nicegui import ui

from quire.console import shown
from quire.console.detail import FormDialog, link_button
from quire.console.elements import BodyView, Facts, Field, Form, Tone, block, button, confirm, notice, say
from quire.console.page import Page
from quire.console.session import path_of
from quire.console.tables import SHOWS, Column, CursorTable, Entry, LocalTable, value_column
from quire.resources import Unit

CAUSE = "dlqDeliveryFailureCause"  # the header of a dead letter that says why it is one
PREVIEW = 160  # how many bytes of each body are asked for


async def build(page: Page) -> None:
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
            button("Search", "search", self._search)

    def use(self, table: CursorTable) -> None:
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
        value_column("timestamp", "Sent, UTC", "time"),
        Column("body", "Body", _preview, is_text=True),
        value_column("size", "Size", "size"),
        value_column("id", "Message id"),
    ]
    if place.kind != "stream":
        columns[3:3] = [
            value_column("priority", "Priority", "number"),
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


async def build_message(page: Page) -> None:
    place, at = Place(page), page.query.get("at", "")
    message = await page.get(f"{place.path}{path_of(at)}")
    crumbs = [*place.crumbs, ("Messages", page.link("/messages", kind=place.kind, name=place.name, of=place.of))]
    with page.frame(f"Message {at}", place.here, crumbs=crumbs) as head:
        with head:
            for label, icon, key in (("Previous", "chevron_left", "previous"), ("Next", "chevron_right", "next")):
                if message.get(key) is not None:
                    button(label, icon, partial(ui.navigate.to, place.link(page, message[key])))
            with ui.link(target=page.link("/download", kind=place.kind, name=place.name, of=place.of, at=at)):
                ui.button("Download the body", icon="download").props("dense outline tabindex=-1").classes("act")
        _show(message)


def _show(message: dict[str, Any]) -> None:
    with block("card"):
        say("Message", "h2")
        Facts().show(_facts(message))
    if message.get("last_cause"):
        notice("It came back:", shown.text(message["last_cause"], 500), "warn")
    BodyView(message)
    say("Headers", "h2", "bare")
    headers = [{"name": name, "value": value} for name, value in message["headers"].items()]
    columns = [
        value_column("name", "Header"),
        Column("value", "Value", lambda one: shown.text(one["value"], 2000), is_text=True, wraps=True),
    ]
    LocalTable(columns, "No header.").show(headers)
    if message.get("ledger") is not None:
        say("What happened to it", "h2", "bare")
        events = [
            value_column("at", "Time, UTC", "time"), value_column("event", "Event"),
            value_column("subscriber", "Subscriber"), value_column("consumer", "Consumer"),
        ]  # fmt: skip
        LocalTable(events, "The ledger has no event of it.").show(message["ledger"])


FACTS: list[tuple[str, str, Unit]] = [
    ("Message id", "id", "text"), ("Sent, UTC", "timestamp", "time"), ("Size", "size", "size"),
    ("Expires, UTC", "expiration", "time"), ("Priority", "priority", "number"), ("Persistent", "persistent", "flag"),
    ("In flight", "in_flight", "flag"), ("Deliveries", "deliveries", "number"), ("Failures", "failures", "number"),
    ("Redelivered", "redelivered", "flag"), ("Not before, UTC", "not_before", "time"),
]  # fmt: skip
"""What is shown of a message; of one of a stream the first three."""


def _facts(message: dict[str, Any]) -> dict[str, str | tuple[str, Tone]]:
    facts: dict[str, str | tuple[str, Tone]] = {
        label: SHOWS[unit](message[key]) for label, key, unit in (FACTS if "deliveries" in message else FACTS[:3])
    }
    if message.get("failures"):
        facts["Failures"] = shown.number(message["failures"]), "warn"
    return facts


KINDS = ("queue", "topic", "stream")

FIELDS = [
    Field("body", "Body", "area"),
    Field("body_encoding", "The body is", "choice", choices=("text", "base64"), value="text"),
    Field("headers", "Headers", "area", "One a line: name: value"),
    Field("priority", "Priority", "number", "0 to 9", value=4),
    Field("count", "How often", "number", value=1),
    Field("persistent", "Persistent: it survives the broker", "switch", value=True),
]


async def build_send(page: Page) -> None:
    kind, name = page.query.get("kind", "queue"), page.query.get("name", "")
    kind = kind if kind in KINDS else "queue"
    crumbs = [
        (f"{kind.capitalize()}s", page.link(f"/{kind}s")),
        (shown.text(name, 60), page.link(f"/{kind}", name=name)),
    ]
    with page.frame("Send a message", f"{kind}s", crumbs=crumbs), block("card send"):
        form = Form(FIELDS)

        async def send() -> None:
            go.disable()
            answer = await page.attempt(page.caller.call("POST", path_of(f"{kind}s", name, "messages"), _body(form)))
            go.enable()
            if answer is not None:
                text = f"{shown.number(answer['sent'])} sent to {kind} {shown.text(name, 60)}"
                ui.notify(text, type="positive")

        with block("end"):
            say("It is durable when the answer comes.", classes="mute small")
            block("space")
            go = ui.button("Send", icon="send", on_click=send).props("unelevated color=primary")


def _body(form: Form) -> dict[str, Any]:
    body = form.body()
    headers = {}
    for line in str(body.pop("headers", "")).splitlines():
        name, _, value = line.partition(":")
        if name.strip():
            headers[name.strip()] = value.strip()
    return {"body": "", **body, "headers": headers}
