"""The connections, the consumers of all of them, the scheduled messages, the prepared transactions."""

from functools import partial

from nicegui import ui

from quire.console import shown
from quire.console.broker_api import path_of
from quire.console.detail import Action, action_menu, link_button
from quire.console.elements import Tone, confirm
from quire.console.page import Page, destination_link
from quire.console.pages.destinations import consumer_columns
from quire.console.tables import Column, CursorTable, Entry, ServerTable, Verb, columns_of
from quire.resources import ConnectedConsumer, Connection, Prepared, Scheduled


async def build(page: Page) -> None:
    links = {"address": lambda one: page.link("/consumers", search=one["address"])}
    columns = columns_of(Connection, links, state=_state)
    with page.frame("Connections", "connections") as head:
        with head:
            link_button(page, "Consumers", "hearing", "/consumers")
        table = ServerTable(
            page, "connections", columns, sort="address", empty="No connection.",
            filters={"held": "Held", "blocked": "Not reading", "consuming": "Consuming"},
            search="Search addresses and client ids",
        )  # fmt: skip
        await table.load()


async def build_consumers(page: Page) -> None:
    crumbs = [("Connections", page.link("/connections"))]
    links = {"destination": lambda one: destination_link(page, one["destination"]) or page.link("/consumers")}
    consumer = consumer_columns(page)
    columns = [consumer[0], *columns_of(ConnectedConsumer, links), *consumer[1:]]
    with page.frame("Consumers", "connections", crumbs=crumbs):
        table = ServerTable(
            page, "consumers", columns, sort="destination",
            filters={"slow": "Slow", "full": "No credit", "exclusive": "Exclusive"},
            search="Search destinations, connections", empty="No consumer.", entry=flat,
        )  # fmt: skip
        await table.load()


def flat(consumer: Entry) -> Entry:
    """A consumer with what is said of its connection."""
    return {**consumer, **consumer["consumer"]}


def _state(connection: Entry) -> tuple[str, Tone]:
    if connection["held"]:
        return "held: a limit is reached", "bad"
    if not connection["writable"]:
        return "does not read", "warn"
    return "open", "good"


async def build_schedule(page: Page) -> None:
    links = {"destination": lambda one: destination_link(page, one["destination"])}
    own = {
        "left": Column("left", "Repeats left", lambda one: "no end" if one["left"] < 0 else shown.number(one["left"])),
        "period": Column("period", "Every", lambda one: shown.span(one["period"] / 1000 if one["period"] else None)),
    }
    columns = columns_of(Scheduled, links, own)
    cancel_all = Action("Cancel", "all scheduled messages", "DELETE", "/schedule",
                        "scheduled messages are never sent")  # fmt: skip
    with page.frame("Schedule", "schedule") as head:
        table = CursorTable(page, columns, "/schedule", "messages", "Nothing is scheduled.")
        if page.may("operate"):
            with head:
                action_menu(page, [(cancel_all, table.reload)])
            table.row_actions(lambda entry: {"Cancel": partial(_cancel, page, table)})
        await table.load()


async def _cancel(page: Page, table: CursorTable, entry: Entry) -> None:
    text = f"It is not sent to {shown.text(entry['destination'], 80)}, nor are its repeats."
    if not await confirm(f"Cancel scheduled message {shown.text(entry['id'], 80)}", text, "Cancel it"):
        return
    if await page.attempt(page.caller.call("DELETE", path_of("schedule", entry["id"]))) is not None:
        ui.notify("The scheduled message was cancelled", type="positive")
        await table.reload()


async def build_transactions(page: Page) -> None:
    with page.frame("Prepared transactions", "transactions"):
        table = ServerTable(
            page, "transactions", columns_of(Prepared), path="/xa", sort="-age", search="Search transactions",
            filters={"undecided": "Undecided"}, empty="No transaction waits for its outcome.", identity="xid",
        )  # fmt: skip
        if page.may("operate"):
            table.row_actions(partial(_verbs, page, table))
        await table.load()


def _verbs(page: Page, table: ServerTable, entry: Entry) -> dict[str, Verb]:
    """An outcome that was decided can be forgotten, and nothing else."""
    verbs = {"Forget": "forget"} if entry["outcome"] else {"Commit": "commit", "Roll back": "rollback"}
    return {verb: partial(_decide, page, table, outcome) for verb, outcome in verbs.items()}


async def _decide(page: Page, table: ServerTable, outcome: str, entry: Entry) -> None:
    path = path_of("xa", entry["xid"])
    texts = {
        "commit": ("Commit", "Its messages are sent and its acknowledgements take effect, whatever its transaction "
                             "manager decides later."),
        "rollback": ("Roll back", "Its work is undone, whatever its transaction manager decides later."),
        "forget": ("Forget", "The broker forgets the decision: its transaction manager gets no answer about it."),
    }  # fmt: skip
    verb, text = texts[outcome]
    if await confirm(f"{verb} transaction {shown.text(entry['xid'], 80)}", text, verb):
        call = ("DELETE", path) if outcome == "forget" else ("POST", f"{path}/{outcome}")
        if await page.attempt(page.caller.call(*call)) is not None:
            ui.notify(f"{verb}: done", type="positive")
            await table.reload()
