"""``quire group``: consumer groups of streams."""

from collections.abc import Callable, Sequence
from typing import Any

import click

from quire.cli.api import Api, broker_verb, path
from quire.cli.output import Column, Output, columns, confirm, messages
from quire.cli.resource import YES, Param, Resource
from quire.destination import DestinationKind, written

LAG_COLUMNS = columns("partition", "base:Done to", "end", "lag", "in_flight", "owners")
PARTITION_COLUMNS = LAG_COLUMNS + columns(
    "holes", "ack_set_bytes:Ack set", "waiting_retries:Retries", "lost", "oldest_message_age_seconds:Oldest", "blocked"
)
MEMBER_COLUMNS = columns(
    "id:Member", "static", "room", "connection", "since", "partitions", "revoking", "in_flight", "prefetch",
    "lease_ends_seconds:Lease ends in",
)  # fmt: skip
CHANGE_COLUMNS = columns(
    "partition", "from_offset:From", "to_offset:To", "again:Come again", "skipped", "in_flight", "retries_dropped"
)
CLONE_COLUMNS = columns("partition", "offset:From", "lag", "holes", "retries_left:Retries not taken over")
ASSIGNMENT_COLUMNS = columns("partition", "members:Would go to", "owners:Is with")


def _path(stream: str, name: str, *rest: str) -> str:
    destination = written(stream, DestinationKind.STREAM)
    if destination.kind is not DestinationKind.STREAM:
        raise click.BadParameter(f"{stream!r} is no stream", param_hint="STREAM")
    return path("groups", destination.name, name, *rest)


group = Resource(
    "group",
    "List consumer groups of streams, see their lag, move them.\n\n"
    "What moves a group shows first what that means, and asks. It is one change: messages that members have are taken"
    " from them, and what they say of these later does not count.",
    "groups", "stream", "name", place=_path, title="{name} of {stream}",
)  # fmt: skip


@group.command()
@click.option("--readers", is_flag=True, help="The readers, of which nothing is stored.")
@broker_verb
def ls(api: Api, output: Output, readers: bool) -> None:
    """List the consumer groups with their lag."""
    shown = columns(
        "stream", "name:Group", "order", "members", "lag", "in_flight", "retries", "oldest_message_age_seconds:Oldest",
        "epoch", "blocked",
    )  # fmt: skip
    output.rows(api.call("GET", path("groups"))["readers" if readers else "groups"], shown)


group.show(
    "Show all that is known of a consumer group: partitions, retries, members, counters, what is in the way.",
    {"partition_states": ("Partitions", PARTITION_COLUMNS), "group_members": ("Members", MEMBER_COLUMNS)},
)
group.rows("members", "List the members of a consumer group, and what each has.", MEMBER_COLUMNS, "members")
group.show("Show how far a consumer group is behind, by partition.", {"partitions": ("Partitions", LAG_COLUMNS)}, "lag")

_PARTITION = click.option("--partition", type=click.IntRange(0), help="Only this partition.")
_DRY_RUN = click.option("--dry-run", is_flag=True, help="Show what it means, and change nothing.")


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
        f"{verb} of {told['name']}: {told['again']} again, {told['skipped']} skipped,"
        f" {told['retries_dropped']} retries dropped"
    )


_GO_ON = "Have {name} of {stream} go on there?"
_change(
    "reset",
    "Have a consumer group go on from a position, forwards or backwards.\n\n"
    "POSITION is earliest, latest, offset=N, timestamp=TIME (ISO 8601, or milliseconds since 1970) or ago=1h.",
    _GO_ON, _moved("reset"), CHANGE_COLUMNS, click.argument("to", metavar="POSITION"), _PARTITION,
)  # fmt: skip
_change(
    "shift",
    "Have a consumer group go on so many offsets further on than what it has finished; further back with -- -N.",
    _GO_ON, _moved("shift"), CHANGE_COLUMNS, click.argument("by", type=int), _PARTITION,
)  # fmt: skip
_change(
    "skip", "Have a consumer group be done with everything: its backlog, and its retries.",
    _GO_ON, _moved("skip"), CHANGE_COLUMNS, _PARTITION,
)  # fmt: skip
_change(
    "clone",
    "Make a consumer group, TO, that begins where another one is, exactly.\n\n"
    "What waits in the retry lane of the other one stays there: the new one does not get it.",
    "Make {to} begin where {name} is?",
    lambda told: f"made {told['to']}, which is {messages(told['lag'])} behind", CLONE_COLUMNS, click.argument("to"),
)  # fmt: skip


@group.command()
@click.argument("stream")
@click.argument("name")
@click.option("--force", is_flag=True, help="Delete it even while it has members.")
@YES
@broker_verb
def delete(api: Api, output: Output, stream: str, name: str, force: bool, yes: bool) -> None:
    """Delete a consumer group with all that it remembers. The messages stay in the stream."""
    confirm(f"Delete the consumer group {name} of {stream} with all that it remembers?", yes)
    result = api.call("DELETE", _path(stream, name), force="true" if force else None)
    output.done(f"deleted {name} of {stream}, which was {messages(result['lag'])} behind", result)


@group.command()
@click.argument("stream")
@click.argument("name")
@click.argument("members", nargs=-1, required=True)
@click.option("--strategy", metavar="NAME", help="By this strategy, and not by the group's own.")
@click.option("--room", "rooms", multiple=True, metavar="MEMBER=ROOM", help="Where a member runs; may be repeated.")
@click.option(
    "--wants", multiple=True, metavar="MEMBER=0,3", help="The partitions that a member names; may be repeated."
)
@broker_verb
def assign(
    api: Api, output: Output, stream: str, name: str, members: tuple[str, ...], strategy: str | None,
    rooms: tuple[str, ...], wants: tuple[str, ...],
) -> None:  # fmt: skip
    """Show who would own which partition if a consumer group had these MEMBERS. Nothing is changed."""
    room, wanted = _by_member(rooms, members, "--room"), _by_member(wants, members, "--wants")
    try:
        numbers = {member: [int(number) for number in text.split(",")] for member, text in wanted.items()}
    except ValueError as error:
        raise click.BadParameter("write the numbers of partitions, as a=0,3", param_hint="--wants") from error
    drafts = [{"id": id, "room": room.get(id, ""), "partitions": numbers.get(id, [])} for id in members]
    result = api.call("POST", _path(stream, name, "assign"), {"members": drafts, "strategy": strategy})
    output.details(result, {"partitions": ("Partitions", ASSIGNMENT_COLUMNS)})


def _by_member(texts: Sequence[str], members: Sequence[str], option: str) -> dict[str, str]:
    pairs = dict([text.partition("=")[::2] for text in texts])
    for member in pairs:
        if member not in members:
            raise click.BadParameter(f"{member!r} is none of the members", param_hint=option)
    return pairs
