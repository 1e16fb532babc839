"""What ``quire queue browse`` and ``quire durable browse`` share: the messages, page by page."""

from collections.abc import Iterator
from typing import Any

from quire.cli.api import Api
from quire.cli.output import Column, Output

PAGE = 500
"""How many messages one call asks for."""

MESSAGE_COLUMNS = [
    Column("sequence", "Sequence"),
    Column("id", "Id"),
    Column("size", "Size"),
    Column("timestamp", "Sent"),
    Column("priority", "Priority"),
    Column("redelivered", "Redelivered"),
    Column("in_flight", "In flight"),
    Column("body", "Body", 60),
]


def browsed(
    api: Api, output: Output, path: str, name: str, limit: int, selector: str | None
) -> Iterator[dict[str, Any]]:
    """The messages at a path, page by page.

    Args:
        api: where to ask.
        output: is told if there are more than the limit.
        path: of the messages.
        name: whose they are, for people.
        limit: how many at the most; 0 for all.
        selector: only those that it matches; None for all.
    """
    shown = 0
    after: str | None = None
    while True:
        wanted = min(PAGE, limit - shown) if limit else PAGE
        page = api.call("GET", path, limit=wanted, after=after, selector=selector)
        yield from page["messages"]
        shown += len(page["messages"])
        after = page["next"]
        if after is None:
            return
        if limit and shown >= limit:
            output.note(f"{name} has more messages: --limit 0 shows them all")
            return
