"""``quire topic``: topics and who has subscribed to them."""

import click

from quire.cli.api import Api, broker_verb, pages, path, topic_path
from quire.cli.columns import HELD_COLUMNS
from quire.cli.output import Column, Output, confirm, output_option

TOPIC_COLUMNS = [
    Column("name", "Topic"),
    Column("consumers", "Consumers"),
    Column("durables", "Durable"),
    Column("offline_durables", "Offline"),
    Column("backlog", "Backlog"),
    Column("pending", "Pending"),
    Column("depth", "Stored"),
    Column("bytes", "Bytes"),
    Column("enqueued", "Enqueued"),
    Column("dispatched", "Dispatched"),
]

SUBSCRIPTION_COLUMNS = [
    Column("client_id", "Client id"),
    Column("name", "Durable"),
    Column("connection", "Connection"),
    Column("id", "Id"),
    Column("selector", "Selector", 40),
    Column("prefetch", "Prefetch"),
    Column("in_flight", "In flight"),
    Column("pending", "Pending"),
    Column("discarded", "Discarded"),
    Column("slow_seconds", "Slow for"),
]


@click.group()
@output_option
def topic() -> None:
    """List, create, delete topics; see who has subscribed."""


@topic.command()
@broker_verb
def ls(api: Api, output: Output) -> None:
    """List the topics with their counts."""
    output.rows(pages(api, path("topics"), "topics"), TOPIC_COLUMNS)


@topic.command()
@click.argument("name")
@broker_verb
def show(api: Api, output: Output, name: str) -> None:
    """Show all that is known of a topic: counts, subscriptions, who waits and why."""
    tables = {
        "subscriptions": ("Subscriptions", SUBSCRIPTION_COLUMNS),
        "producers_held": ("Producers held", HELD_COLUMNS),
    }
    output.details(api.call("GET", topic_path(name)), tables)


@topic.command()
@click.argument("name")
@broker_verb
def subscriptions(api: Api, output: Output, name: str) -> None:
    """List the subscriptions of a topic, durable ones that are offline included."""
    output.rows(api.call("GET", topic_path(name))["subscriptions"], SUBSCRIPTION_COLUMNS)


@topic.command()
@click.argument("name")
@broker_verb
def create(api: Api, output: Output, name: str) -> None:
    """Create a topic. Sending to it and subscribing to it do so as well."""
    output.done(f"created {name}", api.call("PUT", topic_path(name)))


@topic.command()
@click.argument("name")
@click.option("--force", is_flag=True, help="Delete it even while it has consumers or durable subscriptions.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@broker_verb
def delete(api: Api, output: Output, name: str, force: bool, yes: bool) -> None:
    """Delete a topic with all its messages."""
    confirm(f"Delete the topic {name} with all its messages?", yes)
    output.done(f"deleted {name}", api.call("DELETE", topic_path(name), force="true" if force else None))
