"""The queues."""

from quire.console import shown
from quire.console.elements import Tone
from quire.console.links import queue_link
from quire.console.page import Page
from quire.console.pages.destination_buttons import create_button
from quire.console.row_table import Column, Entry, count_column, rate_column, size_column, span_column, state_column
from quire.console.server_table import ServerTable

FILTERS = {
    "attention": "Needs attention", "nonempty": "With messages", "unconsumed": "Messages, no consumer",
    "consumed": "With consumers", "paused": "Paused", "dead-letter": "Dead letter queues",
}  # fmt: skip


def columns(page: Page) -> list[Column]:
    """The columns of queues."""
    return [
        Column("name", "Name", lambda queue: shown.text(queue["name"]), is_text=True,
               link=lambda queue: queue_link(page, queue)),
        state_column(state),
        count_column("depth", "Messages"),
        count_column("in_flight", "In flight"),
        count_column("consumers", "Consumers"),
        rate_column("in_rate", "In"),
        rate_column("out_rate", "Out"),
        span_column("oldest", "Oldest", "oldest_message_age_seconds"),
        size_column("bytes", shown_at_first=False),
        count_column("enqueued", "Enqueued", shown_at_first=False),
        count_column("dequeued", "Dequeued", shown_at_first=False),
        count_column("redelivered", "Redelivered", shown_at_first=False),
        count_column("expired", "Expired", shown_at_first=False),
        count_column("dead_lettered", "Dead-lettered", shown_at_first=False),
        count_column("suppressed", "Duplicates suppressed", shown_at_first=False),
    ]  # fmt: skip


def state(queue: Entry) -> tuple[str, Tone]:
    """How a queue is, in a word or two, and what that means."""
    if queue["paused"]:
        return "paused", "warn"
    if queue["producers_held"]:
        return "producers held", "bad"
    if queue["blocked"]:
        return f"waits: {shown.words(queue['blocked']['cause'])}", "warn"
    if queue["slow_consumers"]:
        return "slow consumers", "warn"
    if queue["depth"] and not queue["consumers"]:
        return "no consumer", "warn"
    return ("ready", "good") if queue["consumers"] else ("idle", "")


async def build(page: Page) -> None:
    """Build it."""
    with page.frame("Queues", "queues") as head:
        with head:
            create_button(page, "queue")
        table = ServerTable(
            page, "queues", columns(page), filters=FILTERS, search="Search queues",
            empty="No queue. Sending to one creates it.",
        )  # fmt: skip
        await table.load()
