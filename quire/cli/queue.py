"""``quire queue``: everything about queues."""

from collections.abc import Iterator
from typing import Any

import click

from quire.cli.api import Api, broker_verb, queue_name, queue_path
from quire.cli.output import Column, Output, confirm, messages, output_option

PAGE = 500
"""How many messages one call of ``browse`` asks for."""

QUEUE_COLUMNS = [
    Column("name", "Queue"),
    Column("depth", "Depth"),
    Column("in_flight", "In flight"),
    Column("bytes", "Bytes"),
    Column("consumers", "Consumers"),
    Column("enqueued", "Enqueued"),
    Column("dequeued", "Dequeued"),
    Column("dead_lettered", "Dead letters"),
    Column("oldest_message_age_seconds", "Oldest"),
    Column("paused", "Paused"),
    Column("blocked", "Blocked"),
]

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


@click.group()
@output_option
def queue() -> None:
    """List, browse, purge, move: everything about queues."""


@queue.command()
@broker_verb
def ls(api: Api, output: Output) -> None:
    """List the queues with their counts."""
    output.rows(api.call("GET", "/queues")["queues"], QUEUE_COLUMNS)


@queue.command()
@click.argument("name")
@broker_verb
def show(api: Api, output: Output, name: str) -> None:
    """Show all that is known of a queue: counts, consumers, who waits and why."""
    output.record(api.call("GET", queue_path(name)))


@queue.command()
@click.argument("name")
@broker_verb
def create(api: Api, output: Output, name: str) -> None:
    """Create a queue. Sending to it does so as well."""
    output.done(f"created {name}", api.call("PUT", queue_path(name)))


@queue.command()
@click.argument("name")
@click.option("--force", is_flag=True, help="Delete it even while it has consumers.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@broker_verb
def delete(api: Api, output: Output, name: str, force: bool, yes: bool) -> None:
    """Delete a queue with all its messages."""
    confirm(f"Delete {name} with all its messages?", yes)
    output.done(f"deleted {name}", api.call("DELETE", queue_path(name), force="true" if force else None))


@queue.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@broker_verb
def purge(api: Api, output: Output, name: str, yes: bool) -> None:
    """Remove all messages of a queue."""
    confirm(f"Remove all messages of {name}?", yes)
    result = api.call("POST", queue_path(name, "purge"))
    output.done(f"removed {messages(result['removed'])} from {name}", result)


@queue.command()
@click.argument("name")
@click.option(
    "--limit", type=click.IntRange(0), default=100, show_default=True, help="How many at the most; 0 for all."
)
@broker_verb
def browse(api: Api, output: Output, name: str, limit: int) -> None:
    """Show the messages of a queue, oldest first, and leave them there."""
    output.rows(_messages(api, output, name, limit), MESSAGE_COLUMNS)


@queue.command()
@click.argument("source")
@click.argument("target")
@click.option("--id", "ids", multiple=True, metavar="ID", help="Only the message with this id; may be repeated.")
@click.option("--limit", type=click.IntRange(1), help="How many at the most, oldest first.")
@broker_verb
def move(api: Api, output: Output, source: str, target: str, ids: tuple[str, ...], limit: int | None) -> None:
    """Move messages from one queue to another, all of them or some."""
    body: dict[str, Any] = {"to": queue_name(target)}
    if ids:
        body["ids"] = list(ids)
    if limit:
        body["limit"] = limit
    result = api.call("POST", queue_path(source, "move"), body)
    output.done(f"moved {messages(result['moved'])} from {source} to {target}", result)


@queue.command()
@click.argument("name")
@broker_verb
def pause(api: Api, output: Output, name: str) -> None:
    """Stop delivering a queue's messages; producers go on."""
    output.done(f"paused {name}", api.call("POST", queue_path(name, "pause")))


@queue.command()
@click.argument("name")
@broker_verb
def resume(api: Api, output: Output, name: str) -> None:
    """Deliver a paused queue's messages again."""
    output.done(f"resumed {name}", api.call("POST", queue_path(name, "resume")))


@queue.command()
@click.argument("name")
@click.option("--limit", type=click.IntRange(1), help="How many at the most, oldest first.")
@broker_verb
def redrive(api: Api, output: Output, name: str, limit: int | None) -> None:
    """Send the dead letters of a queue back to the queues they came from."""
    result = api.call("POST", queue_path(name, "redrive"), {"limit": limit} if limit else {})
    output.done(f"sent {messages(result['moved'])} of {name} back", result)


def _messages(api: Api, output: Output, name: str, limit: int) -> Iterator[dict[str, Any]]:
    shown = 0
    after: str | None = None
    while True:
        wanted = min(PAGE, limit - shown) if limit else PAGE
        page = api.call("GET", queue_path(name, "messages"), limit=wanted, after=after)
        yield from page["messages"]
        shown += len(page["messages"])
        after = page["next"]
        if after is None:
            return
        if limit and shown >= limit:
            output.note(f"{name} has more messages: --limit 0 shows them all")
            return
