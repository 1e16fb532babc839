"""The topics, and one of them."""

from quire.console import shown
from quire.console.broker_api import path_of
from quire.console.detail import Detail, Look, Part, action_menu, counted
from quire.console.elements import Tone
from quire.console.page import Page
from quire.console.pages.destination_buttons import context_buttons, create_button, delete_action, send_button
from quire.console.row_table import Column, Entry, count_column, rate_column, size_column, state_column, text_column
from quire.console.server_table import ServerTable


async def build_list(page: Page) -> None:
    """Build the list."""
    columns = [
        Column("name", "Name", lambda topic: shown.text(topic["name"]), is_text=True,
               link=lambda topic: page.link("/topic", name=topic["name"])),
        state_column(_state),
        count_column("consumers", "Consumers"),
        count_column("durables", "Durables"),
        count_column("backlog", "Backlog"),
        count_column("pending", "Pending"),
        rate_column("in_rate", "In"),
        rate_column("out_rate", "Out"),
        count_column("depth", "Stored"),
        size_column("bytes", shown_at_first=False),
        count_column("enqueued", "Enqueued", shown_at_first=False),
        count_column("dispatched", "Dispatched", shown_at_first=False),
    ]  # fmt: skip
    with page.frame("Topics", "topics") as head:
        with head:
            create_button(page, "topic")
        table = ServerTable(
            page, "topics", columns, search="Search topics",
            filters={"nonempty": "With stored messages", "consumed": "With consumers"},
            empty="No topic. Subscribing or sending to one creates it.",
        )  # fmt: skip
        await table.load()


async def build(page: Page) -> None:
    """Build the page of one topic."""
    name = page.query.get("name", "")
    path = path_of("topics", name)
    topic, may = await page.get(path), await page.rights("topic", name)
    delete = delete_action("topic", name, "with the topic and its durable subscriptions")
    with page.frame(name, "topics", crumbs=[("Topics", page.link("/topics"))]) as head:
        detail = Detail(page, _look(page), path, name)
        with head:
            send_button(page, "topic", name, may)
            if "manage" in may:
                action_menu(page, [(delete, lambda: page.go("/topics"))])
            context_buttons(page, "topic", name)
        await detail.open(topic)


def _state(topic: Entry) -> tuple[str, Tone]:
    if topic["producers_held"]:
        return "producers held", "bad"
    if topic["slow_consumers"]:
        return "slow consumers", "warn"
    return ("ready", "good") if topic["consumers"] else ("no consumer", "")


def _subscription(page: Page, subscription: Entry) -> str:
    if subscription["name"] is None:
        return page.link("/connections", search=subscription["connection"])
    return page.link("/durable", client=subscription["client_id"], name=subscription["name"])


def _look(page: Page) -> Look:
    columns = [
        Column("name", "Subscription", lambda one: shown.text(one["name"] or one["id"]), is_text=True,
               link=lambda one: _subscription(page, one)),
        text_column("client_id", "Client id"),
        Column("connection", "Connection", lambda one: shown.text(one["connection"] or "offline"), is_text=True),
        text_column("selector", "Selector"),
        count_column("in_flight", "In flight"),
        count_column("prefetch", "Prefetch"),
        count_column("pending", "Pending"),
        count_column("discarded", "Discarded"),
        Column("slow", "Slow for", lambda one: shown.span(one["slow_seconds"]),
               tone=lambda one: "warn" if one["slow_seconds"] is not None else ""),
    ]  # fmt: skip
    return Look(
        of="topic", state=_state,
        tiles={
            "Rate in": counted("in_rate", shown.rate), "Rate out": counted("out_rate", shown.rate),
            "Consumers": counted("consumers"), "Durable subscriptions": counted("durables"),
            "Backlog": counted("backlog"), "Pending": counted("pending"),
        },
        facts={
            "Stored": counted("depth"), "Size": counted("bytes", shown.size),
            "In memory": counted("resident_bytes", shown.size), "Enqueued": counted("enqueued"),
            "Dispatched": counted("dispatched"), "Dequeued": counted("dequeued"),
            "Redelivered": counted("redelivered"), "Expired": counted("expired"),
            "Dead-lettered": counted("dead_lettered"), "Duplicates suppressed": counted("suppressed"),
            "Discarded, pending limit": counted("discarded_for_pending_limit"),
            "Discarded, no memory": counted("discarded_for_memory_limit"),
            "Offline durables": counted("offline_durables"),
        },
        parts=[Part("Subscriptions", columns, lambda topic: topic["subscriptions"], "No subscription.")],
    )  # fmt: skip
