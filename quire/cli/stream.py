"""``quire stream`` and ``quire group``: streams, their partitions, messages and pins; their consumer groups."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import click

from quire.cli.api import PAGE, Api, broker_verb, numbered_pages, path, stream_path
from quire.cli.output import Column, Output, columns, columns_of, confirm, messages, printable, readable
from quire.cli.resource import DURATION, YES, Param, Resource, parsed
from quire.clock import SystemClock
from quire.destination import DestinationKind, written
from quire.errors import UnknownMessage
from quire.resources import (
    ConsumerGroupStatus,
    GroupMemberInfo,
    GroupPartitionStatus,
    PartitionAssignment,
    PartitionLag,
    PartitionOffsets,
    PartitionStatus,
    StreamGroup,
    StreamMessage,
    StreamPin,
    StreamStatus,
)
from quire.units import parse_duration, parse_number

READ_PAGE = 500  # how many messages one call asks for

PARTITIONS, MESSAGES = columns_of(PartitionStatus), columns_of(StreamMessage)

stream = Resource(
    "stream",
    "List, create, delete, read streams; find and pin messages.\n\n"
    "A start position is earliest, latest, offset=N, timestamp=TIME (ISO 8601, or milliseconds since 1970) or ago=1h.",
    "streams", "name", place=stream_path,
)  # fmt: skip
stream.ls("List the streams with their counts.", columns_of(StreamStatus), paged=True)
stream.show(
    "Show the details of a stream: counts, policy, partitions, groups, pins.",
    {
        "partitions": ("Partitions", PARTITIONS),
        "groups": ("Consumer groups", columns_of(StreamGroup)),
        "pins": ("Pins", columns_of(StreamPin)),
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
    columns_of(PartitionOffsets), "offsets", verb="offsets",
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
    shown = columns_of(ConsumerGroupStatus)
    if readers:
        output.rows(api.call("GET", path("groups"), limit=PAGE)["readers"], shown)
    else:
        output.rows(numbered_pages(api, path("groups"), "groups"), shown)


group.show(
    "Show the details of a consumer group: partitions, retries, members, counters, why it is blocked.",
    {
        "partition_states": ("Partitions", columns_of(GroupPartitionStatus)),
        "group_members": ("Members", columns_of(GroupMemberInfo)),
    },
)
group.rows(
    "members", "List the members of a consumer group with their partitions and messages in flight.",
    columns_of(GroupMemberInfo), "members",
)  # fmt: skip
lags = {"partitions": ("Partitions", columns_of(PartitionLag))}
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
    output.details(result, {"partitions": ("Partitions", columns_of(PartitionAssignment))})


def _by_member(texts: Sequence[str], members: Sequence[str], option: str) -> dict[str, str]:
    pairs = dict([text.partition("=")[::2] for text in texts])
    for member in pairs:
        if member not in members:
            raise click.BadParameter(f"{member!r} is not one of the members", param_hint=option)
    return pairs
