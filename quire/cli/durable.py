"""``quire durable``: durable subscriptions."""

import click

from quire.cli.api import Api, broker_verb, path
from quire.cli.output import Output, columns
from quire.cli.resource import CONSUMER_COLUMNS, Resource
from quire.destination import DestinationKind, written

durable = Resource(
    "durable",
    "List, create, delete, purge durable subscriptions.\n\n"
    "A client id and a subscription name identify a durable subscription.",
    "durables", "client", "name", title="{name} of {client}",
)  # fmt: skip
durable.ls(
    "List the durable subscriptions with their counts.",
    columns(
        "client_id", "name", "topic", "selector::40", "depth", "in_flight", "bytes",
        "oldest_message_age_seconds:Oldest", "offline_seconds:Offline for", "blocked",
    ),
)  # fmt: skip
durable.show("Show the details of a durable subscription.", {"consumers": ("Consumer", CONSUMER_COLUMNS)})
durable.act(
    "delete", "DELETE", "Remove a durable subscription and its backlog.", "removed {it}",
    ask="Remove the durable subscription {it} and its backlog?",
    force="Remove it even if it has a consumer.",
)  # fmt: skip
durable.purge("Remove messages of a durable subscription: all that are not in flight, or some.")
durable.browse("Browse the messages of a durable subscription, oldest first, without consuming them.")


@durable.command()
@click.argument("client")
@click.argument("name")
@click.argument("topic")
@click.option("--selector", metavar="SELECTOR", help="Only messages that match this JMS selector.")
@click.option("--no-local", is_flag=True, help="Ignore messages that the client's own connection sends.")
@click.option(
    "--retroactive", is_flag=True, help="Begin with the messages that the topic keeps for retroactive consumers."
)
@broker_verb
def create(api: Api, output: Output, /, client: str, name: str, topic: str, **wanted: object) -> None:
    """Create a durable subscription before its client connects.

    If the client subscribes under this name with another topic or selector, the broker replaces it.
    """
    body = {"topic": written(topic, DestinationKind.TOPIC).name, **wanted}
    output.done(f"created {name} of {client}", api.call("PUT", path("durables", client, name), body))
