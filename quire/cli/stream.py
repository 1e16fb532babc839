"""``quire stream``: streams, their partitions, messages and pins."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import click

from quire.cli.api import Api, broker_verb, stream_path
from quire.cli.output import Output, columns, printable, readable
from quire.cli.resource import Resource
from quire.clock import SystemClock
from quire.errors import UnknownMessage
from quire.units import parse_duration, parse_number

PAGE = 500
"""How many messages one call asks for."""

PARTITION_COLUMNS = columns(
    "partition", "lane", "earliest", "end", "records:Messages", "bytes", "gaps", "oldest_timestamp:Oldest",
    "newest_timestamp:Newest",
)  # fmt: skip
MESSAGE_COLUMNS = columns("partition", "offset", "id", "size", "timestamp:Sent", "body::60")

stream = Resource(
    "stream",
    "List, create, delete, read streams; find and pin messages.\n\n"
    "A start position is earliest, latest, offset=N, timestamp=TIME (ISO 8601, or milliseconds since 1970) or ago=1h.",
    "streams", "name", place=stream_path,
)  # fmt: skip
stream.ls(
    "List the streams with their counts.",
    columns(
        "name:Stream", "partitions", "records:Messages", "bytes", "appended", "groups", "members", "readers", "pins"
    ),
    paged=True,
)
stream.show(
    "Show the details of a stream: counts, policy, partitions, groups, pins.",
    {
        "partitions": ("Partitions", PARTITION_COLUMNS),
        "groups": ("Consumer groups", columns("name:Group", "order", "members", "lag", "in_flight", "retries")),
        "pins": ("Pins", columns("name:Pin", "until")),
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
        output.rows(api.call("GET", stream_path(name))["partitions"], PARTITION_COLUMNS)
    else:
        result = api.call("POST", stream_path(name, "partitions"), {"count": count})
        output.done(f"{name} now has {count} partitions", result)


stream.rows(
    "partitions", "Show the first offset and the end of each partition, in one snapshot.",
    columns("partition", "earliest", "end", "records:Messages", "bytes", "offset"), "offsets", verb="offsets",
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
    output.rows(_limited(output, name, found, limit), MESSAGE_COLUMNS)


def _range(
    api: Api, output: Output, name: str, partition: str, start: str, until: int | None, limit: int, strict: bool
) -> Iterator[dict[str, Any]]:
    """The messages of a range of one partition, page by page; one more than the limit, to know that there are more."""
    where = stream_path(name, "partitions", partition, "messages")
    query: dict[str, Any] = {"from": start, "until": until, "limit": min(PAGE, limit + 1) if limit else PAGE}
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


def _time(_context: click.Context, _option: click.Parameter, value: str | None) -> int | None:
    """A time in milliseconds since the epoch: written so, in ISO 8601, or as a duration back from now."""
    if value is None:
        return None
    number = parse_number(value)
    if number is not None:
        return number
    try:
        return SystemClock().now_ms() - round(parse_duration(value) * 1000)
    except (ValueError, OverflowError):
        pass
    try:
        time = datetime.fromisoformat(value)
    except ValueError as error:
        raise click.BadParameter(
            f"{value!r} is not a time: write 2026-01-31T12:00:00Z, or 30m for 30 minutes ago"
        ) from error
    return round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)


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
    callback=_time,
    help="Only messages sent at this time or later: 30m for 30 minutes ago, or a date.",
)
@click.option("--until", metavar="TIME", callback=_time, help="Only messages sent before this time.")
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
    "--for", "duration", metavar="DURATION", default="1d", show_default=True, help="How long the pin keeps messages."
)
@broker_verb
def set_pin(api: Api, output: Output, name: str, pin: str, start: str, duration: str) -> None:
    """Pin all messages from a start position on, in place of those that the pin kept before."""
    try:
        seconds = parse_duration(duration)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--for") from error
    result = api.call("PUT", stream_path(name, "pins", pin), {"start": start, "time_to_live": seconds})
    output.done(f"{pin} keeps messages of {name} until {readable('until', result['until'])}", result)
