"""One message: its fields, its headers, its body, and what has become of it."""

from functools import partial
from typing import Any

from nicegui import ui

from quire.console import shown
from quire.console.body_view import BodyView
from quire.console.broker_api import path_of
from quire.console.elements import Facts, block, notice, say
from quire.console.page import Page
from quire.console.pages.messages import Place
from quire.console.row_table import Column, LocalTable, text_column


async def build(page: Page) -> None:
    """Build the page of one message."""
    place, at = Place(page), page.query.get("at", "")
    message = await page.get(f"{place.path}{path_of(at)}")
    crumbs = [*place.crumbs, ("Messages", page.link("/messages", kind=place.kind, name=place.name, of=place.of))]
    with page.frame(f"Message {at}", place.here, crumbs=crumbs) as head:
        with head:
            for label, icon, key in (("Previous", "chevron_left", "previous"), ("Next", "chevron_right", "next")):
                if message.get(key) is not None:
                    ui.button(label, icon=icon, on_click=partial(ui.navigate.to, place.link(page, message[key]))).props(
                        "dense outline"
                    ).classes("act")
            with ui.link(target=page.link("/download", kind=place.kind, name=place.name, of=place.of, at=at)):
                ui.button("Download the body", icon="download").props("dense outline tabindex=-1").classes("act")
        _show(message)


def _show(message: dict[str, Any]) -> None:
    with block("card"):
        say("Message", "h2")
        facts = _facts(message)
        Facts(facts).show(facts)
    if message.get("last_cause"):
        notice("It came back:", shown.text(message["last_cause"], 500), "warn")
    BodyView(message)
    say("Headers", "h2", "bare")
    headers = [{"name": name, "value": value} for name, value in message["headers"].items()]
    columns = [
        text_column("name", "Header"),
        Column("value", "Value", lambda one: shown.text(one["value"], 2000), is_text=True, wraps=True),
    ]
    LocalTable(columns, "No header.").show(headers)
    if message.get("ledger") is not None:
        say("What happened to it", "h2", "bare")
        events = [
            Column("at", "Time, UTC", lambda one: shown.time(one["at"]), is_text=True),
            text_column("event", "Event"),
            text_column("subscriber", "Subscriber"),
            text_column("consumer", "Consumer"),
        ]
        LocalTable(events, "The ledger has no event of it.").show(message["ledger"])


def _facts(message: dict[str, Any]) -> dict[str, Any]:
    facts = {
        "Message id": shown.text(message["id"]),
        "Sent, UTC": shown.time(message["timestamp"]),
        "Size": shown.size(message["size"]),
    }
    if "deliveries" not in message:
        return facts
    return facts | {
        "Expires, UTC": shown.time(message["expiration"]),
        "Priority": str(message["priority"]),
        "Persistent": shown.yes(message["persistent"]),
        "In flight": shown.yes(message["in_flight"]),
        "Deliveries": shown.number(message["deliveries"]),
        "Failures": (shown.number(message["failures"]), "warn" if message["failures"] else ""),
        "Redelivered": shown.yes(message["redelivered"]),
        "Not before, UTC": shown.time(message["not_before"]),
    }
