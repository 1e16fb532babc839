"""``quire durable``: durable subscriptions."""

import click

from quire.cli.api import Api, broker_verb, path
from quire.cli.output import Output, columns
from quire.cli.resource import CONSUMER_COLUMNS, Resource
from quire.destination import DestinationKind, written

durable = Resource(
    "durable",
    "List, create, delete, purge durable subscriptions.\n\n"
    "A durable subscription is named by a client id and a name of the client's.",
    "durables", "client", "name", title="{name} of {client}",
)  # fmt: skip
durable.ls(
    "List the durable subscriptions with their counts.",
    columns(
        "client_id", "name", "topic", "selector::40", "depth", "in_flight", "bytes",
        "oldest_message_age_seconds:Oldest", "offline_seconds:Offline for", "blocked",
    ),
)  # fmt: skip
durable.show("Show all that is known of a durable subscription.", {"consumers": ("Consumer", CONSUMER_COLUMNS)})
durable.act(
    "delete", "DELETE", "Remove a durable subscription with all that waits for it.", "removed {it}",
    ask="Remove the durable subscription {it} with all that waits for it?",
    force="Remove it even while it has a consumer.",
)  # fmt: skip
durable.purge("Remove what waits for a durable subscription: all that is not in flight, or some.")
durable.browse("Show what waits for a durable subscription, oldest first, and leave it there.")


@durable.command()
@click.argument("client")
@click.argument("name")
@click.argument("topic")
@click.option("--selector", metavar="SELECTOR", help="Only messages that this JMS selector matches.")
@click.option("--no-local", is_flag=True, help="Not what the client's own connection sends.")
@click.option("--retroactive", is_flag=True, help="Begin with what the topic keeps.")
@broker_verb
def create(api: Api, output: Output, /, client: str, name: str, topic: str, **wanted: object) -> None:
    """Create a durable subscription, before its client comes.

    A client that then asks for another topic or selector under this name makes it anew.
    """
    body = {"topic": written(topic, DestinationKind.TOPIC).name, **wanted}
    output.done(f"created {name} of {client}", api.call("PUT", path("durables", client, name), body))
