"""The topics and the durable subscriptions, and one of each."""

from quire.console import shown
from quire.console.broker_api import path_of
from quire.console.detail import Action, Detail, Look, Part, action_menu, link_button
from quire.console.elements import Tone
from quire.console.page import Page
from quire.console.pages.queues import (
    SELECTION,
    consumer_columns,
    context_buttons,
    delete_action,
    list_page,
    send_button,
)
from quire.console.tables import Column, Entry, columns_of
from quire.resources import DurableStatus, TopicStatus, TopicSubscriptionStatus


async def build_list(page: Page) -> None:
    links = {"name": lambda topic: page.link("/topic", name=topic["name"])}
    columns = columns_of(TopicStatus, links, state=_state)
    await list_page(
        page, "Topics", "topics", columns, "topic", search="Search topics",
        filters={"nonempty": "With stored messages", "consumed": "With consumers"},
        empty="No topic. Subscribing or sending to one creates it.",
    )  # fmt: skip


async def build(page: Page) -> None:
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
    own = {
        "name": Column("name", "Subscription", lambda one: shown.text(one["name"] or one["id"]), is_text=True,
                       link=lambda one: _subscription(page, one)),
        "connection": Column("connection", "Connection", lambda one: shown.text(one["connection"] or "offline"),
                             is_text=True),
    }  # fmt: skip
    columns = columns_of(TopicSubscriptionStatus, own=own)
    return Look(
        TopicStatus, of="topic", state=_state,
        parts=[Part("Subscriptions", columns, lambda topic: topic["subscriptions"], "No subscription.")],
    )  # fmt: skip


async def build_durables(page: Page) -> None:
    links = {
        "name": lambda durable: page.link("/durable", client=durable["client_id"], name=durable["name"]),
        "topic": lambda durable: page.link("/topic", name=durable["topic"]),
    }
    columns = columns_of(DurableStatus, links, state=_durable_state)
    await list_page(
        page, "Durable subscriptions", "durables", columns, search="Search subscriptions",
        filters={"attention": "Needs attention", "nonempty": "With a backlog", "offline": "Offline"},
        empty="No durable subscription. A consumer with a client id makes one.",
    )  # fmt: skip


async def build_durable(page: Page) -> None:
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
        detail = Detail(page, _durable_look(page), path, f"{client}/{name}")
        with head:
            if "read" in may:
                link_button(page, "Messages", "mail", "/messages", main=True, kind="durable", of=client, name=name)
            if "manage" in may:
                action_menu(page, [(purge, detail.reload), (delete, lambda: page.go("/durables"))])
            link_button(page, "Topic", "campaign", "/topic", name=durable["topic"])
        await detail.open(durable)


def _durable_state(durable: Entry) -> tuple[str, Tone]:
    if durable["offline_seconds"] is not None:
        return "offline", "warn" if durable["depth"] else ""
    if durable["blocked"]:
        return f"waits: {shown.words(durable['blocked']['cause'])}", "warn"
    return "ready", "good"


def _durable_look(page: Page) -> Look:
    return Look(
        DurableStatus,
        of="durable",
        state=_durable_state,
        parts=[Part("Consumer", consumer_columns(page), lambda durable: durable["consumers"], "Offline.")],
    )
