"""The topics, and one of them."""

from quire.console import shown
from quire.console.action import Action
from quire.console.broker_api import path_of
from quire.console.detail import Detail, Look, Part, action_menu, counted, link_button
from quire.console.elements import Tone
from quire.console.page import Page
from quire.console.pages.create import create_button
from quire.console.row_table import Column, Entry, count_column, rate_column, text_column
from quire.console.server_table import ServerTable


async def build_list(page: Page) -> None:
    """Build the list."""
    columns = [
        Column("name", "Name", lambda topic: shown.text(topic["name"]), is_text=True,
               link=lambda topic: page.link("/topic", name=topic["name"])),
        Column("state", "State", lambda topic: _state(topic)[0], sorts=False, is_text=True,
               tone=lambda topic: _state(topic)[1]),
        count_column("consumers", "Consumers"),
        count_column("durables", "Durables"),
        count_column("backlog", "Backlog"),
        count_column("pending", "Pending"),
        rate_column("in_rate", "In"),
        rate_column("out_rate", "Out"),
        count_column("depth", "Stored"),
        Column("bytes", "Size", lambda topic: shown.size(topic["bytes"]), is_shown=False),
        count_column("enqueued", "Enqueued", shown_at_first=False),
        count_column("dispatched", "Dispatched", shown_at_first=False),
    ]  # fmt: skip
    with page.frame("Topics", "topics") as head:
        with head:
            create_button(page, "topic")
        table = ServerTable(
            page, "topics", columns, "/topics", "topics", search="Search topics",
            filters={"nonempty": "With stored messages", "consumed": "With consumers"},
            empty="No topic. Subscribing or sending to one creates it.",
        )  # fmt: skip
        await table.load()


async def build(page: Page) -> None:
    """Build the page of one topic."""
    name = page.query.get("name", "")
    path = path_of("topics", name)
    topic, may = await page.get(path), await page.rights("topic", name)
    delete = Action(
        "Delete", f"topic {shown.text(name, 60)}", "DELETE", path, query={"force": True},
        effect="messages are removed for good, with the topic and its durable subscriptions",
    )  # fmt: skip
    with page.frame(name, "topics", crumbs=[("Topics", page.link("/topics"))]) as head:
        detail = Detail(page, _look(page), path, name)
        with head:
            if "write" in may:
                link_button(page, "Send", "send", "/send", kind="topic", name=name)
            if "manage" in may:
                action_menu(page, [(delete, lambda: page.go("/topics"))])
            link_button(page, "Topology", "account_tree", "/topology", focus=f"topic://{name}")
            if page.may("monitor"):
                link_button(page, "Policies", "tune", "/policies", kind="topic", name=name)
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
            "Consumers": counted("consumers", shown.number), "Durable subscriptions": counted("durables", shown.number),
            "Backlog": counted("backlog", shown.number), "Pending": counted("pending", shown.number),
        },
        facts={
            "Stored": counted("depth", shown.number), "Size": counted("bytes", shown.size),
            "In memory": counted("resident_bytes", shown.size), "Enqueued": counted("enqueued", shown.number),
            "Dispatched": counted("dispatched", shown.number), "Dequeued": counted("dequeued", shown.number),
            "Redelivered": counted("redelivered", shown.number), "Expired": counted("expired", shown.number),
            "Dead-lettered": counted("dead_lettered", shown.number),
            "Discarded, pending limit": counted("discarded_for_pending_limit", shown.number),
            "Discarded, no memory": counted("discarded_for_memory_limit", shown.number),
            "Offline durables": counted("offline_durables", shown.number),
        },
        parts=[Part("Subscriptions", columns, lambda topic: topic["subscriptions"], "No subscription.")],
    )  # fmt: skip
