"""``quire queue``: everything about queues."""

import click

from quire.cli.api import Api, broker_verb, pages, path, queue_path
from quire.cli.browse import MESSAGE_COLUMNS, browsed
from quire.cli.columns import CONSUMER_COLUMNS, HELD_COLUMNS
from quire.cli.output import Column, Output, confirm, output_option
from quire.cli.queue_transfers import copy, move, purge, redrive

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

GROUP_COLUMNS = [
    Column("name", "Group"),
    Column("connection", "Connection"),
    Column("subscription", "Subscription"),
    Column("in_flight", "In flight"),
    Column("parked", "Parked"),
    Column("moving", "Moving"),
]


@click.group()
@output_option
def queue() -> None:
    """List, browse, purge, move: everything about queues."""


@queue.command()
@broker_verb
def ls(api: Api, output: Output) -> None:
    """List the queues with their counts."""
    output.rows(pages(api, path("queues"), "queues"), QUEUE_COLUMNS)


@queue.command()
@click.argument("name")
@broker_verb
def show(api: Api, output: Output, name: str) -> None:
    """Show all that is known of a queue: counts, consumers, who waits and why."""
    tables = {"subscriptions": ("Consumers", CONSUMER_COLUMNS), "producers_held": ("Producers held", HELD_COLUMNS)}
    output.details(api.call("GET", queue_path(name)), tables)


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
@click.option(
    "--limit", type=click.IntRange(0), default=100, show_default=True, help="How many at the most; 0 for all."
)
@click.option("--selector", metavar="SELECTOR", help="Only messages that this JMS selector matches.")
@broker_verb
def browse(api: Api, output: Output, name: str, limit: int, selector: str | None) -> None:
    """Show the messages of a queue, oldest first, and leave them there."""
    output.rows(browsed(api, output, queue_path(name, "messages"), name, limit, selector), MESSAGE_COLUMNS)


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
@broker_verb
def groups(api: Api, output: Output, name: str) -> None:
    """List the message groups of a queue, and which consumer has each."""
    output.rows(pages(api, queue_path(name, "groups"), "groups"), GROUP_COLUMNS)


@queue.command("group-close")
@click.argument("name")
@click.argument("group")
@broker_verb
def group_close(api: Api, output: Output, name: str, group: str) -> None:
    """Take a message group from its consumer.

    The group's next message goes to whoever is free. What the consumer has in flight stays with it.
    """
    result = api.call("DELETE", queue_path(name, "groups", group))
    output.done(f"closed the group {group} of {name}", result)


for verb in (purge, move, copy, redrive):
    queue.add_command(verb)
