"""``quire durable``: durable subscriptions."""

from typing import Any

import click

from quire.cli.api import Api, broker_verb, path
from quire.cli.browse import MESSAGE_COLUMNS, browsed
from quire.cli.choice import choice_options
from quire.cli.columns import CONSUMER_COLUMNS
from quire.cli.output import Column, Output, confirm, messages, output_option
from quire.destination import DestinationKind, written

DURABLE_COLUMNS = [
    Column("client_id", "Client id"),
    Column("name", "Name"),
    Column("topic", "Topic"),
    Column("selector", "Selector", 40),
    Column("depth", "Depth"),
    Column("in_flight", "In flight"),
    Column("bytes", "Bytes"),
    Column("oldest_message_age_seconds", "Oldest"),
    Column("offline_seconds", "Offline for"),
    Column("blocked", "Blocked"),
]


@click.group()
@output_option
def durable() -> None:
    """List, create, delete, purge durable subscriptions.

    A durable subscription is named by a client id and a name of the client's.
    """


@durable.command()
@broker_verb
def ls(api: Api, output: Output) -> None:
    """List the durable subscriptions with their counts."""
    output.rows(api.call("GET", path("durables"))["durables"], DURABLE_COLUMNS)


@durable.command()
@click.argument("client")
@click.argument("name")
@broker_verb
def show(api: Api, output: Output, client: str, name: str) -> None:
    """Show all that is known of a durable subscription."""
    output.details(api.call("GET", path("durables", client, name)), {"consumers": ("Consumer", CONSUMER_COLUMNS)})


@durable.command()
@click.argument("client")
@click.argument("name")
@click.argument("topic")
@click.option("--selector", metavar="SELECTOR", help="Only messages that this JMS selector matches.")
@click.option("--no-local", is_flag=True, help="Not what the client's own connection sends.")
@click.option("--retroactive", is_flag=True, help="Begin with what the topic keeps.")
@broker_verb
def create(
    api: Api, output: Output, client: str, name: str, topic: str, selector: str | None, no_local: bool,
    retroactive: bool,
) -> None:  # fmt: skip
    """Create a durable subscription, before its client comes.

    A client that then asks for another topic or selector under this name makes it anew.
    """
    body = {
        "topic": written(topic, DestinationKind.TOPIC).name, "selector": selector, "no_local": no_local,
        "retroactive": retroactive,
    }  # fmt: skip
    output.done(f"created {name} of {client}", api.call("PUT", path("durables", client, name), body))


@durable.command()
@click.argument("client")
@click.argument("name")
@click.option("--force", is_flag=True, help="Remove it even while it has a consumer.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@broker_verb
def delete(api: Api, output: Output, client: str, name: str, force: bool, yes: bool) -> None:
    """Remove a durable subscription with all that waits for it."""
    confirm(f"Remove the durable subscription {name} of {client} with all that waits for it?", yes)
    result = api.call("DELETE", path("durables", client, name), force="true" if force else None)
    output.done(f"removed {name} of {client}", result)


@durable.command()
@click.argument("client")
@click.argument("name")
@choice_options
@click.option("--yes", is_flag=True, help="Do not ask.")
@broker_verb
def purge(api: Api, output: Output, client: str, name: str, choice: dict[str, Any], yes: bool) -> None:
    """Remove what waits for a durable subscription: all that is not in flight, or some."""
    confirm(f"Remove {'these' if choice else 'all'} messages of {name} of {client}?", yes)
    result = api.call("POST", path("durables", client, name, "purge"), choice)
    output.done(f"removed {messages(result['removed'])} from {name} of {client}", result)


@durable.command()
@click.argument("client")
@click.argument("name")
@click.option(
    "--limit", type=click.IntRange(0), default=100, show_default=True, help="How many at the most; 0 for all."
)
@click.option("--selector", metavar="SELECTOR", help="Only messages that this JMS selector matches.")
@broker_verb
def browse(api: Api, output: Output, client: str, name: str, limit: int, selector: str | None) -> None:
    """Show what waits for a durable subscription, oldest first, and leave it there."""
    found = browsed(api, output, path("durables", client, name, "messages"), name, limit, selector)
    output.rows(found, MESSAGE_COLUMNS)
