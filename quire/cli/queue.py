"""``quire queue``: everything about queues."""

import re
from typing import Any

import click

from quire.cli.api import ANSWER_LIMIT, Api, broker_verb, queue_path
from quire.cli.output import Output, columns, messages
from quire.cli.resource import CONSUMER_COLUMNS, HELD_COLUMNS, Resource, choice_options

_RATE = re.compile(r"(\d+(?:\.\d+)?)(?:/([smh]))?")
_SECONDS = {None: 1, "s": 1, "m": 60, "h": 3600}

queue = Resource("queue", "List, browse, purge, move: everything about queues.", "queues", "name", place=queue_path)
queue.ls(
    "List the queues with their counts.",
    columns(
        "name:Queue", "depth", "in_flight", "bytes", "consumers", "enqueued", "dequeued", "dead_lettered:Dead letters",
        "oldest_message_age_seconds:Oldest", "paused", "blocked",
    ),
    paged=True,
)  # fmt: skip
queue.show(
    "Show all that is known of a queue: counts, consumers, who waits and why.",
    {"subscriptions": ("Consumers", CONSUMER_COLUMNS), "producers_held": ("Producers held", HELD_COLUMNS)},
)
queue.act("create", "PUT", "Create a queue. Sending to it does so as well.", "created {it}")
queue.act(
    "delete", "DELETE", "Delete a queue with all its messages.", "deleted {it}",
    ask="Delete {it} with all its messages?", force="Delete it even while it has consumers.",
)  # fmt: skip
queue.browse("Show the messages of a queue, oldest first, and leave them there.")
queue.act("pause", "POST", "Stop delivering a queue's messages; producers go on.", "paused {it}", "pause")
queue.act("resume", "POST", "Deliver a paused queue's messages again.", "resumed {it}", "resume")
queue.rows(
    "groups", "List the message groups of a queue, and which consumer has each.",
    columns("name:Group", "connection", "subscription", "in_flight", "parked", "moving"), "groups", paged=True,
)  # fmt: skip
queue.act(
    "group-close", "DELETE",
    "Take a message group from its consumer.\n\n"
    "The group's next message goes to one that is free. What the consumer has in flight stays with it.",
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
_transfer("copy", "copied", "all of them or some")


def _per_second(_context: click.Context, _option: click.Parameter, value: str | None) -> float | None:
    if value is None:
        return None
    found = _RATE.fullmatch(value)
    if found is None or float(found[1]) == 0:
        raise click.BadParameter(f"{value!r} is no rate: write 50/s, 100/m or 10/h")
    return float(found[1]) / _SECONDS[found[2]]


@queue.command()
@click.argument("name")
@choice_options
@click.option("--to", metavar="DESTINATION", help="Send them there, and not where they came from.")
@click.option("--rate", callback=_per_second, metavar="N/s", help="How fast: 50/s, 100/m, 10/h. Ctrl-C ends it.")
@broker_verb
def redrive(api: Api, output: Output, name: str, choice: dict[str, Any], to: str | None, rate: float | None) -> None:
    """Send dead letters of a queue back where they came from: all of them or some."""
    options = {"to": to, "rate": rate}
    body = {**choice, **{option: value for option, value in options.items() if value}}
    result = api.call("POST", queue_path(name, "redrive"), body, patience=None if rate else ANSWER_LIMIT)
    output.done(f"sent {messages(result['moved'])} of {name} {f'to {to}' if to else 'back'}", result)
