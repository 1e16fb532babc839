"""The things of a broker that the command line looks at and changes: most verbs are a row each.

Queues, topics, durable subscriptions, producers, the schedule, prepared transactions; streams with their partitions,
messages, pins and consumer groups; users, rules and tokens, who may do what with which destinations.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import click

from quire import resources
from quire.cli.api import (
    ANSWER_LIMIT,
    PAGE,
    Api,
    broker_verb,
    new_password,
    numbered_pages,
    path,
    queue_path,
    stream_path,
    topic_path,
)
from quire.cli.output import Column, Output, columns, columns_of, confirm, messages, output_option, printable, readable
from quire.cli.resource import CONSUMERS, DURATION, HELD, YES, Param, Resource, choice_options, parsed
from quire.clock import SystemClock
from quire.destination import DestinationKind, written
from quire.errors import InvalidArgument, UnknownMessage
from quire.units import parse_duration, parse_number

_RATE = re.compile(r"(\d+(?:\.\d+)?)(?:/([smh]))?")
_SECONDS = {None: 1, "s": 1, "m": 60, "h": 3600}

queue = Resource(
    "queue", "List, create, delete, browse, purge, move queues and their messages.", "queues", "name", place=queue_path
)
queue.ls("List the queues with their counts.", columns_of(resources.QueueStatus), paged=True)
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
    "groups",
    "List the message groups of a queue and their owners.",
    columns_of(resources.GroupStatus),
    "groups",
    paged=True,
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


SUBSCRIPTIONS = columns_of(resources.TopicSubscriptionStatus)
topic = Resource("topic", "List, create, delete topics; list their subscriptions.", "topics", "name", place=topic_path)
topic.ls("List the topics with their counts.", columns_of(resources.TopicStatus), paged=True)
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
durable.ls("List the durable subscriptions with their counts.", columns_of(resources.DurableStatus))
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
    columns_of(resources.ProducerStatus), paged=True,
)  # fmt: skip
producer.act(
    "forget", "DELETE", "Forget a producer: the broker then accepts its repeated messages as new.", "forgot {it}"
)


schedule = Resource("schedule", "List and cancel scheduled messages.", "schedule", "id")
schedule.ls(
    "List the scheduled messages with the time of their next send.",
    columns_of(resources.Scheduled),
    "messages",
    paged=True,
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
xa.ls("List the prepared transactions, the oldest first.", columns_of(resources.Prepared), "transactions")
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


READ_PAGE = 500  # how many messages one call asks for

PARTITIONS, MESSAGES = columns_of(resources.PartitionStatus), columns_of(resources.StreamMessage)

stream = Resource(
    "stream",
    "List, create, delete, read streams; find and pin messages.\n\n"
    "A start position is earliest, latest, offset=N, timestamp=TIME (ISO 8601, or milliseconds since 1970) or ago=1h.",
    "streams", "name", place=stream_path,
)  # fmt: skip
stream.ls("List the streams with their counts.", columns_of(resources.StreamStatus), paged=True)
stream.show(
    "Show the details of a stream: counts, policy, partitions, groups, pins.",
    {
        "partitions": ("Partitions", PARTITIONS),
        "groups": ("Consumer groups", columns_of(resources.StreamGroup)),
        "pins": ("Pins", columns_of(resources.StreamPin)),
    },
)
stream.act(
    "create", "PUT", "Create a stream. Sending or subscribing to it creates it too.", "created {it}",
    params=[
        click.option("--partitions", type=click.IntRange(1), help="How many partitions.  [default: set by the policy]")
    ],
    body=["partitions"],
)  # fmt: skip
stream.act(
    "delete", "DELETE", "Delete a stream with all its messages and consumer groups.", "deleted {it}",
    ask="Delete the stream {it} with all its messages and consumer groups?",
    force="Delete it even if its groups have members, or it has readers.",
)  # fmt: skip


@stream.command()
@click.argument("name")
@click.argument("count", type=click.IntRange(1), required=False)
@broker_verb
def partitions(api: Api, output: Output, name: str, count: int | None) -> None:
    """List the partitions of a stream, or add partitions up to COUNT.

    Keys may go to other partitions when there are more.
    """
    if count is None:
        output.rows(api.call("GET", stream_path(name))["partitions"], PARTITIONS)
    else:
        result = api.call("POST", stream_path(name, "partitions"), {"count": count})
        output.done(f"{name} now has {count} partitions", result)


stream.rows(
    "partitions", "Show the first offset and the end of each partition, in one snapshot.",
    columns_of(resources.PartitionOffsets), "offsets", verb="offsets",
    query=[click.option("--start", metavar="POSITION", help="Also show the offset of this position.")],
)  # fmt: skip


@stream.command()
@click.argument("name")
@click.option("--partition", type=click.IntRange(0), help="The partition to read.  [default: all, one after the other]")
@click.option(
    "--from", "start", metavar="POSITION", default="earliest", show_default=True, help="An offset or a start position."
)
@click.option("--until", type=click.IntRange(1), help="The offset before which the read ends.  [default: the end]")
@click.option(
    "--limit",
    type=click.IntRange(0),
    default=100,
    show_default=True,
    help="The maximum number of messages; 0 for no limit.",
)
@click.option("--strict", is_flag=True, help="Fail if the first messages of the range were removed.")
@broker_verb
def read(
    api: Api, output: Output, name: str, partition: int | None, start: str, until: int | None, limit: int, strict: bool
) -> None:
    """Read messages of a stream. No consumer group moves."""
    if until is not None and partition is None:
        raise click.UsageError("--until is an offset of one partition: give --partition")
    numbers = [partition]
    if partition is None:
        numbers = [row["partition"] for row in api.call("GET", stream_path(name, "offsets"))["partitions"]]
    found = (row for number in numbers for row in _range(api, output, name, str(number), start, until, limit, strict))
    output.rows(_limited(output, name, found, limit), MESSAGES)


def _range(
    api: Api, output: Output, name: str, partition: str, start: str, until: int | None, limit: int, strict: bool
) -> Iterator[dict[str, Any]]:
    """The messages of a range of one partition, page by page; one more than the limit, to know that there are more."""
    where = stream_path(name, "partitions", partition, "messages")
    query: dict[str, Any] = {"from": start, "until": until, "limit": min(READ_PAGE, limit + 1) if limit else READ_PAGE}
    while True:
        page = api.call("GET", where, strict="true" if strict else None, **query)
        if page["cut"]:
            output.note(f"messages of partition {partition} before offset {page['earliest']} were removed")
        yield from page["messages"]
        if page["next"] >= page["until"]:
            return
        query |= {"from": page["next"], "until": page["until"]}


def _limited(output: Output, name: str, rows: Iterator[dict[str, Any]], limit: int) -> Iterator[dict[str, Any]]:
    for shown, row in enumerate(rows):
        if limit and shown == limit:
            output.note(f"{name} has more messages: --limit 0 shows them all")
            return
        yield row


def _time(text: str) -> int:
    """A time in milliseconds since the epoch: written so, in ISO 8601, or as a duration back from now."""
    number = parse_number(text)
    if number is not None:
        return number
    try:
        return SystemClock().now_ms() - round(parse_duration(text) * 1000)
    except (ValueError, OverflowError):
        time = datetime.fromisoformat(text)
        return round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)


TIME = parsed(_time, "is not a time: write 2026-01-31T12:00:00Z, or 30m for 30 minutes ago")


@stream.command()
@click.argument("name")
@click.option("--id", metavar="ID", help="The message with this id.")
@click.option("--partition", type=click.IntRange(0), help="The partition of --offset.")
@click.option("--offset", type=click.IntRange(1), help="With --partition.")
@click.option(
    "--key",
    metavar="TEXT",
    help="Messages with this value of the header key, or of the one that determines the partition.",
)
@click.option(
    "--since",
    metavar="TIME",
    callback=TIME,
    help="Only messages sent at this time or later: 30m for 30 minutes ago, or a date.",
)
@click.option("--until", metavar="TIME", callback=TIME, help="Only messages sent before this time.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=100, show_default=True, help="The maximum number of messages."
)
@click.option("--dead-letters", is_flag=True, help="Search the dead letter queues too.")
@broker_verb
def find(api: Api, output: Output, /, name: str, dead_letters: bool, **wanted: Any) -> None:
    """Find messages of a stream, with their state in each consumer group."""
    result = api.call("GET", stream_path(name, "find"), dead_letters="true" if dead_letters else None, **wanted)
    keys = ["partition", "offset", "id", "timestamp", "size", "headers", "body", "body_encoding", "groups"]
    rows = [{**entry.pop("message"), **entry} for entry in result["messages"]]
    output.texts(rows, [*keys, "dead_letters"], _found)
    if not rows:
        output.note(f"no message of {name} is so")
    for partition, offset in result["damaged"]:
        output.note(f"partition {partition} offset {offset} cannot be read")
    if not result["whole"]:
        output.note(f"there are more than {len(rows)}: raise --limit, or narrow the search")
    if not rows:
        click.get_current_context().exit(UnknownMessage("").entry.exit)


def _found(row: Any) -> str:
    values = [readable(key, row[key]) for key in ("id", "timestamp", "size")]
    lines = [f"partition {row['partition']} offset {row['offset']}  {'  '.join(values)}"]
    dead_lettered = row["dead_letters"] or []
    return "\n".join([*lines, *[f"  {_state(state, dead_lettered)}" for state in row["groups"]]])


def _state(state: Mapping[str, Any], dead_lettered: list[str]) -> str:
    text = f"{state['group']}: {state['state']}"
    known = {key: value for key, value in state.items() if key not in ("group", "state") and value not in (None, False)}
    facts = [f"{key.replace('_', ' ')} {readable(key, value)}" for key, value in known.items()]
    facts += ["dead letter"] if state["group"] in dead_lettered else []
    return printable(", ".join([text, *facts]))


# Pins.


pins = Resource(
    "pins", "Keep messages of a stream for a time, regardless of retention.", "pins", "name", "pin",
    place=lambda name, *rest: stream_path(name, "pins", *rest), title="{pin} of {name}",
)  # fmt: skip
pins.act("release", "DELETE", "Remove a pin.", "released {it}")
stream.add_command(pins)


@pins.command("ls")
@click.argument("name")
@broker_verb
def list_pins(api: Api, output: Output, name: str) -> None:
    """List the pins of a stream."""
    output.texts(api.call("GET", stream_path(name, "pins"))["pins"], ["name", "offsets", "until"], _pin)


def _pin(row: Any) -> str:
    lines = [f"  partition {partition} from offset {offset}" for partition, offset in row["offsets"].items()]
    return "\n".join([f"{printable(row['name'])} until {readable('until', row['until'])}", *lines])


@pins.command("set")
@click.argument("name")
@click.argument("pin")
@click.option(
    "--from",
    "start",
    metavar="POSITION",
    default="earliest",
    show_default=True,
    help="The start position of the messages to keep.",
)
@click.option(
    "--for", "duration", callback=DURATION, metavar="DURATION", default="1d", show_default=True,
    help="How long the pin keeps messages.",
)  # fmt: skip
@broker_verb
def set_pin(api: Api, output: Output, name: str, pin: str, start: str, duration: float) -> None:
    """Pin all messages from a start position on, in place of those that the pin kept before."""
    result = api.call("PUT", stream_path(name, "pins", pin), {"start": start, "time_to_live": duration})
    output.done(f"{pin} keeps messages of {name} until {readable('until', result['until'])}", result)


CHANGE_COLUMNS = columns(
    "partition", "from_offset:From", "to_offset:To", "again:Redelivered", "skipped", "in_flight", "retries_dropped"
)
CLONE_COLUMNS = columns("partition", "offset:From", "lag", "holes", "retries_left:Retries not copied")


def _path(stream: str, name: str, *rest: str) -> str:
    destination = written(stream, DestinationKind.STREAM)
    if destination.kind is not DestinationKind.STREAM:
        raise click.BadParameter(f"{stream!r} is not a stream", param_hint="STREAM")
    return path("groups", destination.name, name, *rest)


group = Resource(
    "group",
    "List consumer groups of streams, show their lag, reset them.\n\n"
    "reset, shift, skip and clone first show their effect and ask for confirmation. Each is one change: messages"
    " in flight are returned, and later acknowledgements of these have no effect.",
    "groups", "stream", "name", place=_path, title="{name} of {stream}",
)  # fmt: skip


@group.command()
@click.option("--readers", is_flag=True, help="List the readers, of which the broker stores nothing.")
@broker_verb
def ls(api: Api, output: Output, readers: bool) -> None:
    """List the consumer groups with their lag."""
    shown = columns_of(resources.ConsumerGroupStatus)
    if readers:
        output.rows(api.call("GET", path("groups"), limit=PAGE)["readers"], shown)
    else:
        output.rows(numbered_pages(api, path("groups"), "groups"), shown)


group.show(
    "Show the details of a consumer group: partitions, retries, members, counters, why it is blocked.",
    {
        "partition_states": ("Partitions", columns_of(resources.GroupPartitionStatus)),
        "group_members": ("Members", columns_of(resources.GroupMemberInfo)),
    },
)
group.rows(
    "members", "List the members of a consumer group with their partitions and messages in flight.",
    columns_of(resources.GroupMemberInfo), "members",
)  # fmt: skip
lags = {"partitions": ("Partitions", columns_of(resources.PartitionLag))}
group.show("Show the lag of a consumer group, by partition.", lags, "lag")

_PARTITION = click.option("--partition", type=click.IntRange(0), help="Only this partition.")
_DRY_RUN = click.option("--dry-run", is_flag=True, help="Show the effect, and change nothing.")


def _change(
    verb: str, help: str, question: str, done: Callable[[dict[str, Any]], str], shown: Sequence[Column], *params: Param
) -> None:
    """Add a verb that shows first what it means, and asks."""

    def change(api: Api, output: Output, /, stream: str, name: str, dry_run: bool, yes: bool, **body: Any) -> None:
        where, given = _path(stream, name, verb), {"stream": stream, "name": name, **body}
        if dry_run or not yes:
            foretold = api.call("POST", where, body, dry_run="true")
            if dry_run or output.format == "table":
                output.details(foretold, {"partitions": ("Partitions", shown)})
        if not dry_run:
            confirm(question.format_map(given), yes)
            result = api.call("POST", where, body)
            output.done(done(result | given), result)

    group.add(verb, help, change, [*params, _DRY_RUN, YES])


def _moved(verb: str) -> Callable[[dict[str, Any]], str]:
    return lambda told: (
        f"{verb} of {told['name']}: {told['again']} redelivered, {told['skipped']} skipped,"
        f" {told['retries_dropped']} retries dropped"
    )


_GO_ON = "Reset {name} of {stream}?"
_change(
    "reset",
    "Reset a consumer group to a position, forwards or backwards.\n\n"
    "POSITION is earliest, latest, offset=N, timestamp=TIME (ISO 8601, or milliseconds since 1970) or ago=1h.",
    _GO_ON, _moved("reset"), CHANGE_COLUMNS, click.argument("to", metavar="POSITION"), _PARTITION,
)  # fmt: skip
_change(
    "shift",
    "Shift a consumer group by a number of offsets from what it has finished; backwards with -- -N.",
    _GO_ON, _moved("shift"), CHANGE_COLUMNS, click.argument("by", type=int), _PARTITION,
)  # fmt: skip
_change(
    "skip", "Skip the backlog and the retries of a consumer group.",
    _GO_ON, _moved("skip"), CHANGE_COLUMNS, _PARTITION,
)  # fmt: skip
_change(
    "clone",
    "Create a consumer group, TO, with exactly the progress of another one.\n\n"
    "The retries of the other group stay there: the new group does not get them.",
    "Create {to} with the progress of {name}?",
    lambda told: f"created {told['to']} with a lag of {messages(told['lag'])}", CLONE_COLUMNS, click.argument("to"),
)  # fmt: skip


group.act(
    "delete", "DELETE", "Delete a consumer group and its progress. The messages stay in the stream.",
    lambda told: f"deleted {told['it']}, which had a lag of {messages(told['lag'])}",
    ask="Delete the consumer group {it} and its progress?", force="Delete it even if it has members.",
)  # fmt: skip


@group.command()
@click.argument("stream")
@click.argument("name")
@click.argument("members", nargs=-1, required=True)
@click.option("--strategy", metavar="NAME", help="Use this strategy instead of the group's.")
@click.option(
    "--room", "rooms", multiple=True, metavar="MEMBER=ROOM", help="The machine room of a member; may be repeated."
)
@click.option(
    "--wants", multiple=True, metavar="MEMBER=0,3", help="The partitions that a member requests; may be repeated."
)
@broker_verb
def assign(
    api: Api, output: Output, stream: str, name: str, members: tuple[str, ...], strategy: str | None,
    rooms: tuple[str, ...], wants: tuple[str, ...],
) -> None:  # fmt: skip
    """Show the assignment of partitions if a consumer group had these MEMBERS. Nothing is changed."""
    room, wanted = _by_member(rooms, members, "--room"), _by_member(wants, members, "--wants")
    try:
        numbers = {member: [int(number) for number in text.split(",")] for member, text in wanted.items()}
    except ValueError as error:
        raise click.BadParameter("write the numbers of partitions, as a=0,3", param_hint="--wants") from error
    drafts = [{"id": id, "room": room.get(id, ""), "partitions": numbers.get(id, [])} for id in members]
    result = api.call("POST", _path(stream, name, "assign"), {"members": drafts, "strategy": strategy})
    output.details(result, {"partitions": ("Partitions", columns_of(resources.PartitionAssignment))})


def _by_member(texts: Sequence[str], members: Sequence[str], option: str) -> dict[str, str]:
    pairs = dict([text.partition("=")[::2] for text in texts])
    for member in pairs:
        if member not in members:
            raise click.BadParameter(f"{member!r} is not one of the members", param_hint=option)
    return pairs


user = Resource(
    "user", "List, add, change, remove users.\n\nThose of the settings file are changed there.", "users", "name"
)
user.ls("List the users with their roles.", columns_of(resources.UserStatus), whole=True)

_PASSWORD_FILE = click.option(
    "--new-password-file", metavar="FILE",
    help="A file whose first line is the password; - for standard input. Without it the password is typed.",
)  # fmt: skip


@user.command()
@click.argument("name")
@click.option("--role", "roles", multiple=True, metavar="ROLE", help="administrator, operator, monitor, or another.")
@click.option(
    "--certificate", "certificates", multiple=True, metavar="SUBJECT", help="The subject of a client certificate."
)
@click.option("--no-password", is_flag=True, help="The user logs in with a certificate only.")
@_PASSWORD_FILE
@broker_verb
def add(
    api: Api, output: Output, name: str, roles: tuple[str, ...], certificates: tuple[str, ...], no_password: bool,
    new_password_file: str | None,
) -> None:  # fmt: skip
    """Add a user. From the first user on, all clients of the broker must log in."""
    password = None if no_password else new_password(new_password_file)
    body = {"name": name, "password": password, "roles": roles, "certificates": certificates}
    output.done(f"added {name}", api.call("POST", "/users", body))


@user.command()
@click.argument("name")
@_PASSWORD_FILE
@broker_verb
def passwd(api: Api, output: Output, name: str, new_password_file: str | None) -> None:
    """Set the password of a user. Connections that logged in with the old one end; tokens stay."""
    body = {"password": new_password(new_password_file)}
    result = api.call("PUT", path("users", name, "password"), body)
    tokens = result["tokens"]
    left = f"; {tokens} of its tokens are still valid: `quire token ls`, `quire token revoke ID`" if tokens else ""
    output.done(f"set the password of {name}{left}", result)


@user.command()
@click.argument("name")
@click.argument("roles", nargs=-1)
@broker_verb
def role(api: Api, output: Output, name: str, roles: tuple[str, ...]) -> None:
    """Give a user exactly these roles; without any it has none."""
    result = api.call("PUT", path("users", name), {"roles": roles})
    output.done(f"{name} has the roles: {', '.join(result['roles']) or 'none'}", result)


user.act("rm", "DELETE", "Remove a user with its tokens.", "removed {it}", ask="Remove {it} with its tokens?")


@user.command("hash")
@_PASSWORD_FILE
@output_option
@click.pass_obj
def hash_password(output: Output, new_password_file: str | None) -> None:
    """Print the hash of a password, for a user of the settings file."""
    from quire.security.authentication import hashed

    text = hashed(new_password(new_password_file))
    output.done(text, {"password_hash": text})


rule = Resource(
    "rule",
    "List, add, change, remove, explain access rules.\n\n"
    "A rule allows or denies a SUBJECT (user:NAME, role:NAME, or * for all users) some ACTIONS (read, write, create,"
    " manage; with commas between) on destinations: a name or a pattern, with queue://, topic:// or stream:// in front"
    " for one kind only. What no rule allows is refused, and a deny wins over every allow.",
    "rules", "id",
)  # fmt: skip
rule.ls("List the rules.", columns_of(resources.RuleStatus), whole=True)


def _body(subject: str, effect: str, actions: str, destination: str) -> dict[str, object]:
    named = actions.split(",")
    known = ("read", "write", "create", "manage")
    if unknown := [action for action in named if action not in known]:
        raise InvalidArgument(f"{unknown[0]!r} is not an action: write some of {', '.join(known)}", argument="actions")
    return {"subject": subject, effect: named, "destination": destination}


_EFFECT = click.argument("effect", type=click.Choice(["allow", "deny"]))


@rule.command("add")
@click.argument("subject")
@_EFFECT
@click.argument("actions")
@click.argument("destination")
@broker_verb
def add_rule(api: Api, output: Output, subject: str, effect: str, actions: str, destination: str) -> None:
    """Add a rule: `quire rule add user:alice allow read,write 'queue://orders.>'`."""
    added = api.call("POST", "/rules", _body(subject, effect, actions, destination))
    output.done(f"added the rule {added['id']}", added)


@rule.command("set")
@click.argument("id")
@click.argument("subject")
@_EFFECT
@click.argument("actions")
@click.argument("destination")
@broker_verb
def replace(api: Api, output: Output, id: str, subject: str, effect: str, actions: str, destination: str) -> None:
    """Replace a rule by another one."""
    changed = api.call("PUT", path("rules", id), _body(subject, effect, actions, destination))
    output.done(f"changed the rule {id}", changed)


rule.act("rm", "DELETE", "Remove a rule.", "removed the rule {it}", ask="Remove the rule {it}?")


@rule.command()
@click.argument("user")
@click.argument("action", type=click.Choice(["read", "write", "create", "manage"]))
@click.argument("destination")
@click.option("--role", "roles", multiple=True, metavar="ROLE", help="As if the user had this role, and no others.")
@broker_verb
def check(api: Api, output: Output, user: str, action: str, destination: str, roles: tuple[str, ...]) -> None:
    """Explain whether a user may do something: `quire rule check alice write orders`."""
    given = ",".join(roles) if roles else None
    verdict = api.call("GET", "/rules/check", user=user, action=action, destination=destination, roles=given)
    output.done(verdict["text"], verdict)


token = Resource("token", "List, create, revoke tokens.", "tokens", "id")
token.ls("List your tokens; an administrator sees those of all users.", columns_of(resources.TokenStatus), whole=True)


@token.command("create")
@click.option("--expires", "life", callback=DURATION, required=True, metavar="DURATION", help="When it ends: 12h, 30d.")
@click.option("--owner", metavar="USER", help="The user whose rights it gives, instead of you; for administrators.")
@click.option("--role", "roles", multiple=True, metavar="ROLE", help="Only these roles of the owner, instead of all.")
@click.option("--text", default="", metavar="TEXT", help="What the token is for.")
@broker_verb
def create_token(api: Api, output: Output, life: float, owner: str | None, roles: tuple[str, ...], text: str) -> None:
    """Create a token and print it. It is shown only now."""
    body = {"expires_in": life, "owner": owner, "roles": roles or None, "text": text}
    created = api.call("POST", "/tokens", body)
    output.done(created["secret"], created)


token.act("revoke", "DELETE", "Revoke a token: its connections end.", "revoked the token {it}")


@click.command()
@broker_verb
def whoami(api: Api, output: Output) -> None:
    """Show which user you are to the broker, by which proof, and your roles."""
    output.record(api.call("GET", "/whoami"))
