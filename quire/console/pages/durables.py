"""The durable subscriptions, and one of them."""

from quire.console import shown
from quire.console.action import Action
from quire.console.broker_api import path_of
from quire.console.detail import Detail, Look, Part, action_menu, counted, link_button
from quire.console.elements import Tone
from quire.console.page import Page
from quire.console.pages.consumer_columns import consumer_columns
from quire.console.pages.queue import SELECTION
from quire.console.row_table import (
    Column,
    Entry,
    count_column,
    rate_column,
    size_column,
    span_column,
    state_column,
    text_column,
)
from quire.console.server_table import ServerTable


async def build_list(page: Page) -> None:
    """Build the list."""
    columns = [
        Column("name", "Name", lambda durable: shown.text(durable["name"]), is_text=True,
               link=lambda durable: page.link("/durable", client=durable["client_id"], name=durable["name"])),
        text_column("client_id", "Client id"),
        Column("topic", "Topic", lambda durable: shown.text(durable["topic"]), is_text=True,
               link=lambda durable: page.link("/topic", name=durable["topic"])),
        state_column(_state),
        count_column("depth", "Backlog"),
        count_column("in_flight", "In flight"),
        rate_column("in_rate", "In"),
        rate_column("out_rate", "Out"),
        span_column("oldest", "Oldest", "oldest_message_age_seconds"),
        size_column("bytes", shown_at_first=False),
        count_column("enqueued", "Enqueued", shown_at_first=False),
        count_column("dequeued", "Dequeued", shown_at_first=False),
    ]  # fmt: skip
    with page.frame("Durable subscriptions", "durables"):
        table = ServerTable(
            page, "durables", columns, search="Search subscriptions",
            filters={"attention": "Needs attention", "nonempty": "With a backlog", "offline": "Offline"},
            empty="No durable subscription. A consumer with a client id makes one.",
        )  # fmt: skip
        await table.load()


async def build(page: Page) -> None:
    """Build the page of one durable subscription."""
    client, name = page.query.get("client", ""), page.query.get("name", "")
    path = path_of("durables", client, name)
    durable = await page.get(path)
    may = await page.rights("topic", durable["topic"])
    subject = f"durable subscription {shown.text(name, 60)} of {shown.text(client, 60)}"
    purge = Action("Purge", subject, "POST", path + "/purge", "messages of it are finished; those in flight stay",
                   fields=SELECTION)  # fmt: skip
    delete = Action("Delete", subject, "DELETE", path, "messages are given up, and the subscription ends",
                    query={"force": True})  # fmt: skip
    with page.frame(name, "durables", crumbs=[("Durable subscriptions", page.link("/durables"))]) as head:
        detail = Detail(page, _look(page), path, f"{client}/{name}")
        with head:
            if "read" in may:
                link_button(page, "Messages", "mail", "/messages", main=True, kind="durable", of=client, name=name)
            if "manage" in may:
                action_menu(page, [(purge, detail.reload), (delete, lambda: page.go("/durables"))])
            link_button(page, "Topic", "campaign", "/topic", name=durable["topic"])
        await detail.open(durable)


def _state(durable: Entry) -> tuple[str, Tone]:
    if durable["offline_seconds"] is not None:
        return "offline", "warn" if durable["depth"] else ""
    if durable["blocked"]:
        return f"waits: {shown.words(durable['blocked']['cause'])}", "warn"
    return "ready", "good"


def _look(page: Page) -> Look:
    return Look(
        of="durable", state=_state,
        tiles={
            "Backlog": counted("depth"), "In flight": counted("in_flight"),
            "Rate in": counted("in_rate", shown.rate), "Rate out": counted("out_rate", shown.rate),
            "Oldest message": counted("oldest_message_age_seconds", shown.span),
            "Offline for": counted("offline_seconds", shown.span),
        },
        facts={
            "Client id": counted("client_id", shown.text), "Topic": counted("topic", shown.text),
            "Selector": counted("selector", shown.text), "Ignores its own messages": counted("no_local", shown.yes),
            "Size": counted("bytes", shown.size), "In memory": counted("resident_bytes", shown.size),
            "Holes in its ack set": counted("holes"),
            "Waiting for redelivery": counted("delayed"),
            "Enqueued": counted("enqueued"), "Dequeued": counted("dequeued"),
            "Dispatched": counted("dispatched"), "Redelivered": counted("redelivered"),
            "Expired": counted("expired"), "Dead-lettered": counted("dead_lettered"),
            "Duplicates suppressed": counted("suppressed"),
        },
        parts=[
            Part("Consumer", consumer_columns(page, with_destination=False), lambda durable: durable["consumers"],
                 "Offline.")
        ],
    )  # fmt: skip
