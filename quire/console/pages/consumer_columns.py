"""The columns of consumers, wherever they are listed."""

from quire.console import shown
from quire.console.elements import Tone
from quire.console.links import destination_link
from quire.console.page import Page
from quire.console.row_table import Column, Entry, count_column, state_column, text_column

HARMLESS = {"nothing-waits", "no-pull", "stand-by"}
"""Causes that are as they should be."""


def consumer_columns(page: Page, *, with_destination: bool) -> list[Column]:
    """The columns: who it is, how much it has, and why it gets nothing now."""
    columns = [
        Column("connection", "Connection", lambda consumer: shown.text(consumer["connection"]), is_text=True,
               link=lambda consumer: page.link("/connections", search=consumer["connection"])),
        text_column("id", "Consumer", sorts=False),
        state_column(_state, "waits"),
        count_column("in_flight", "In flight"),
        count_column("prefetch", "Prefetch"),
        text_column("ack", "Acknowledges", sorts=False),
        text_column("selector", "Selector", sorts=False),
        count_column("priority", "Priority", sorts=False, shown_at_first=False),
        Column("exclusive", "Exclusive", lambda consumer: shown.yes(consumer.get("exclusive")), sorts=False,
               is_text=True, is_shown=False),
        Column("slow", "Slow for", lambda consumer: shown.span(consumer.get("slow_seconds")), is_shown=False),
    ]  # fmt: skip
    if with_destination:
        destination = Column(
            "destination", "Destination", lambda consumer: shown.text(consumer["destination"]), is_text=True,
            link=lambda consumer: destination_link(page, consumer["destination"]) or page.link("/consumers"),
        )  # fmt: skip
        columns.insert(1, destination)
        columns.insert(1, text_column("client_id", "Client id"))
    return columns


def _state(consumer: Entry) -> tuple[str, Tone]:
    """Whether it gets messages, and why not."""
    if waits := consumer.get("waits"):
        return shown.text(waits["text"]), "" if waits["cause"] in HARMLESS else "warn"
    if consumer.get("slow_seconds") is not None:
        return "slow: no credit while messages wait", "warn"
    return "ready", "good"
