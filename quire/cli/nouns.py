"""Queues, topics, durable subscriptions, producers, the schedule, prepared transactions: most verbs are a row each."""

import re
from typing import Any

import click

from quire.cli.api import ANSWER_LIMIT, Api, broker_verb, path, queue_path, topic_path
from quire.cli.output import Output, columns_of, confirm, messages
from quire.cli.resource import CONSUMERS, HELD, YES, Resource, choice_options, parsed
from quire.destination import DestinationKind, written
from quire.resources import (
    DurableStatus,
    GroupStatus,
    Prepared,
    ProducerStatus,
    QueueStatus,
    Scheduled,
    TopicStatus,
    TopicSubscriptionStatus,
)

_RATE = re.compile(r"(\d+(?:\.\d+)?)(?:/([smh]))?")
_SECONDS = {None: 1, "s": 1, "m": 60, "h": 3600}

queue = Resource(
    "queue", "List, create, delete, browse, purge, move queues and their messages.", "queues", "name", place=queue_path
)
queue.ls("List the queues with their counts.", columns_of(QueueStatus), paged=True)
queue.show(
    "Show the details of a queue: counts, consumers, held producers, why it is blocked.",
    {"subscriptions": ("Consumers", CONSUMERS), "producers_held": ("Producers held", HELD)},
)
queue.act("create", "PUT", "Create a queue. Sending to it creates it too.", "created {it}")
queue.act(
    "delete", "DELETE", "Delete a queue with all its messages.", "deleted {it}",
    ask="Delete {it} with all its messages?", force="Delete it even if it has consumers.",
)  # fmt: skip
queue.browse("Browse the messages of a queue, oldest first, without consuming them.")
queue.act("pause", "POST", "Pause the deliveries of a queue; producers may still send.", "paused {it}", "pause")
queue.act("resume", "POST", "Resume the deliveries of a paused queue.", "resumed {it}", "resume")
queue.rows(
    "groups", "List the message groups of a queue and their owners.", columns_of(GroupStatus), "groups", paged=True
)
queue.act(
    "group-close", "DELETE",
    "Close a message group: take it from its owner.\n\n"
    "The group's next message goes to another consumer. Messages in flight stay with the former owner.",
    "closed the group {group} of {it}", "groups", "{group}", params=[click.argument("group")],
)  # fmt: skip
queue.purge("Remove messages of a queue: all that are not in flight, or some.")


def _transfer(verb: str, past: str, which: str) -> None:
    """Add a verb that brings messages of a queue to another one."""

    def transfer(api: Api, output: Output, /, source: str, target: str, choice: dict[str, Any]) -> None:
        result = api.call("POST", queue_path(source, verb), {"to": target, **choice})
        output.done(f"{past} {messages(result[past])} from {source} to {target}", result)

    help = f"{verb.capitalize()} messages of a queue to another queue: {which}.\n\nTARGET may be a topic: topic://NAME."
    queue.add(verb, help, transfer, [click.argument("source"), click.argument("target"), choice_options], named=False)


_transfer("move", "moved", "all that are not in flight, or some")
_transfer("copy", "copied", "all or some")


def _per_second(text: str) -> float:
    found = _RATE.fullmatch(text)
    if found is None or float(found[1]) == 0:
        raise ValueError(text)
    return float(found[1]) / _SECONDS[found[2]]


@queue.command()
@click.argument("name")
@choice_options
@click.option("--to", metavar="DESTINATION", help="The destination, instead of where the dead letters came from.")
@click.option(
    "--rate", callback=parsed(_per_second, "is not a rate: write 50/s, 100/m or 10/h"), metavar="N/s",
    help="The rate: 50/s, 100/m, 10/h. Ctrl-C ends the command.",
)  # fmt: skip
@broker_verb
def redrive(api: Api, output: Output, name: str, choice: dict[str, Any], to: str | None, rate: float | None) -> None:
    """Send dead letters of a queue back to the destinations they came from: all of them or some."""
    body = {**choice, **({"to": to} if to else {}), **({"rate": rate} if rate else {})}
    result = api.call("POST", queue_path(name, "redrive"), body, patience=None if rate else ANSWER_LIMIT)
    output.done(f"sent {messages(result['moved'])} of {name} {f'to {to}' if to else 'back'}", result)


SUBSCRIPTIONS = columns_of(TopicSubscriptionStatus)
topic = Resource("topic", "List, create, delete topics; list their subscriptions.", "topics", "name", place=topic_path)
topic.ls("List the topics with their counts.", columns_of(TopicStatus), paged=True)
topic.show(
    "Show the details of a topic: counts, subscriptions, held producers.",
    {"subscriptions": ("Subscriptions", SUBSCRIPTIONS), "producers_held": ("Producers held", HELD)},
)
topic.rows(
    "subscriptions", "List the subscriptions of a topic, including offline durable subscriptions.", SUBSCRIPTIONS
)
topic.act("create", "PUT", "Create a topic. Sending or subscribing to it creates it too.", "created {it}")
topic.act(
    "delete", "DELETE", "Delete a topic with all its messages.", "deleted {it}",
    ask="Delete the topic {it} with all its messages?",
    force="Delete it even if it has consumers or durable subscriptions.",
)  # fmt: skip


durable = Resource(
    "durable",
    "List, create, delete, purge durable subscriptions.\n\n"
    "A client id and a subscription name identify a durable subscription.",
    "durables", "client", "name", title="{name} of {client}",
)  # fmt: skip
durable.ls("List the durable subscriptions with their counts.", columns_of(DurableStatus))
durable.show("Show the details of a durable subscription.", {"consumers": ("Consumer", CONSUMERS)})
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


producer = Resource("producer", "List and forget producers that number their sends.", "producers", "id")
producer.ls(
    "List the producers, the highest accepted number of each, and when it sent last.",
    columns_of(ProducerStatus), paged=True,
)  # fmt: skip
producer.act(
    "forget", "DELETE", "Forget a producer: the broker then accepts its repeated messages as new.", "forgot {it}"
)


schedule = Resource("schedule", "List and cancel scheduled messages.", "schedule", "id")
schedule.ls(
    "List the scheduled messages with the time of their next send.", columns_of(Scheduled), "messages", paged=True
)


@schedule.command()
@click.argument("id", required=False)
@click.option("--all", "everything", is_flag=True, help="Cancel all scheduled messages.")
@YES
@broker_verb
def cancel(api: Api, output: Output, id: str | None, everything: bool, yes: bool) -> None:
    """Cancel a scheduled message, with all its repeats."""
    if (id is None) is not everything:
        raise click.UsageError("give the ID of a scheduled message, or --all")
    if id is not None:
        output.done(f"cancelled {id}", api.call("DELETE", path("schedule", id)))
        return
    confirm("Cancel all scheduled messages?", yes)
    result = api.call("DELETE", path("schedule"))
    output.done(f"cancelled {messages(result['removed'])}", result)


xa = Resource(
    "xa",
    "List prepared XA transactions, commit them or roll them back.\n\n"
    "The outcome is the decision of the transaction manager. Decide only if it will never return: the broker tells it"
    " the outcome when it does, and it may have decided otherwise for the other participants.",
    "xa", "xid",
)  # fmt: skip
xa.ls("List the prepared transactions, the oldest first.", columns_of(Prepared), "transactions")
xa.act(
    "commit", "POST", "Commit a prepared transaction in place of its transaction manager.", "committed {it}", "commit",
    ask="Commit {it} in place of its transaction manager?",
)  # fmt: skip
xa.act(
    "rollback", "POST", "Roll back a prepared transaction in place of its transaction manager.", "rolled back {it}",
    "rollback",
    ask="Roll back {it} in place of its transaction manager?",
)  # fmt: skip
xa.act(
    "forget", "DELETE", "Forget the heuristic outcome of a transaction, when its transaction manager knows it.",
    "forgot {it}",
)  # fmt: skip
