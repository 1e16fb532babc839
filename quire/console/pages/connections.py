"""The connections, and the consumers of all of them."""

from quire.console import shown
from quire.console.detail import link_button
from quire.console.elements import Tone
from quire.console.page import Page
from quire.console.pages.consumer_columns import consumer_columns
from quire.console.row_table import Column, Entry, count_column, span_column, state_column, text_column
from quire.console.server_table import ServerTable


async def build(page: Page) -> None:
    """Build the list of connections."""
    columns = [
        Column("address", "Address", lambda one: shown.text(one["address"]), is_text=True,
               link=lambda one: page.link("/consumers", search=one["address"])),
        text_column("client_id", "Client id"),
        text_column("protocol", "Protocol"),
        state_column(_state),
        count_column("consumers", "Consumers"),
        count_column("in_flight", "In flight"),
        span_column("connected", "Connected for", "connected_seconds"),
        Column("destinations", "Consumes", lambda one: shown.text(", ".join(one["destinations"])), sorts=False,
               is_text=True),
    ]  # fmt: skip
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
    """Build the list of consumers."""
    crumbs = [("Connections", page.link("/connections"))]
    with page.frame("Consumers", "connections", crumbs=crumbs):
        table = ServerTable(
            page, "consumers", consumer_columns(page, with_destination=True),
            sort="destination", filters={"slow": "Slow", "full": "No credit", "exclusive": "Exclusive"},
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
