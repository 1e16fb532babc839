"""``quire queue``: everything about queues."""

import re
from typing import Any

import click

from quire.cli.api import ANSWER_LIMIT, Api, broker_verb, queue_path
from quire.cli.output import Output, columns, messages
from quire.cli.resource import CONSUMER_COLUMNS, HELD_COLUMNS, Resource, choice_options

_RATE = re.compile(r"(\d+(?:\.\d+)?)(?:/([smh]))?")
_SECONDS = {None: 1, "s": 1, "m": 60, "h": 3600}

queue = Resource(
    "queue", "List, create, delete, browse, purge, move queues and their messages.", "queues", "name", place=queue_path
)
queue.ls(
    "List the queues with their counts.",
    columns(
        "name:Queue", "depth", "in_flight", "bytes", "consumers", "enqueued", "dequeued", "dead_lettered:Dead letters",
        "oldest_message_age_seconds:Oldest", "paused", "blocked",
    ),
    paged=True,
)  # fmt: skip
queue.show(
    "Show the details of a queue: counts, consumers, held producers, why it is blocked.",
    {"subscriptions": ("Consumers", CONSUMER_COLUMNS), "producers_held": ("Producers held", HELD_COLUMNS)},
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
    "groups", "List the message groups of a queue and their owners.",
    columns("name:Group", "connection", "subscription", "in_flight", "parked", "moving"), "groups", paged=True,
)  # fmt: skip
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


def _per_second(_context: click.Context, _option: click.Parameter, value: str | None) -> float | None:
    if value is None:
        return None
    found = _RATE.fullmatch(value)
    if found is None or float(found[1]) == 0:
        raise click.BadParameter(f"{value!r} is not a rate: write 50/s, 100/m or 10/h")
    return float(found[1]) / _SECONDS[found[2]]


@queue.command()
@click.argument("name")
@choice_options
@click.option("--to", metavar="DESTINATION", help="The destination, instead of where the dead letters came from.")
@click.option(
    "--rate", callback=_per_second, metavar="N/s", help="The rate: 50/s, 100/m, 10/h. Ctrl-C ends the command."
)
@broker_verb
def redrive(api: Api, output: Output, name: str, choice: dict[str, Any], to: str | None, rate: float | None) -> None:
    """Send dead letters of a queue back to the destinations they came from: all of them or some."""
    options = {"to": to, "rate": rate}
    body = {**choice, **{option: value for option, value in options.items() if value}}
    result = api.call("POST", queue_path(name, "redrive"), body, patience=None if rate else ANSWER_LIMIT)
    output.done(f"sent {messages(result['moved'])} of {name} {f'to {to}' if to else 'back'}", result)
