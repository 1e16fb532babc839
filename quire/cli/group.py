"""``quire group``: consumer groups of streams."""

from collections.abc import Callable, Sequence
from typing import Any

import click

from quire.cli.api import PAGE, Api, broker_verb, numbered_pages, path
from quire.cli.output import Column, Output, columns, confirm, messages
from quire.cli.resource import YES, Param, Resource
from quire.destination import DestinationKind, written

LAG_COLUMNS = columns("partition", "base:Finished to", "end", "lag", "in_flight", "owners")
PARTITION_COLUMNS = LAG_COLUMNS + columns(
    "holes", "ack_set_bytes:Ack set", "waiting_retries:Retries", "lost", "oldest_message_age_seconds:Oldest", "blocked"
)
MEMBER_COLUMNS = columns(
    "id:Member", "static", "room", "connection", "since", "partitions", "revoking", "in_flight", "prefetch",
    "lease_ends_seconds:Lease ends in",
)  # fmt: skip
CHANGE_COLUMNS = columns(
    "partition", "from_offset:From", "to_offset:To", "again:Redelivered", "skipped", "in_flight", "retries_dropped"
)
CLONE_COLUMNS = columns("partition", "offset:From", "lag", "holes", "retries_left:Retries not copied")
ASSIGNMENT_COLUMNS = columns("partition", "members:New owners", "owners:Owners")


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
    shown = columns(
        "stream", "name:Group", "order", "members", "lag", "in_flight", "retries", "oldest_message_age_seconds:Oldest",
        "epoch", "blocked",
    )  # fmt: skip
    if readers:
        output.rows(api.call("GET", path("groups"), limit=PAGE)["readers"], shown)
    else:
        output.rows(numbered_pages(api, path("groups"), "groups"), shown)


group.show(
    "Show the details of a consumer group: partitions, retries, members, counters, why it is blocked.",
    {"partition_states": ("Partitions", PARTITION_COLUMNS), "group_members": ("Members", MEMBER_COLUMNS)},
)
group.rows(
    "members",
    "List the members of a consumer group with their partitions and messages in flight.",
    MEMBER_COLUMNS,
    "members",
)
group.show("Show the lag of a consumer group, by partition.", {"partitions": ("Partitions", LAG_COLUMNS)}, "lag")

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


@group.command()
@click.argument("stream")
@click.argument("name")
@click.option("--force", is_flag=True, help="Delete it even if it has members.")
@YES
@broker_verb
def delete(api: Api, output: Output, stream: str, name: str, force: bool, yes: bool) -> None:
    """Delete a consumer group and its progress. The messages stay in the stream."""
    confirm(f"Delete the consumer group {name} of {stream} and its progress?", yes)
    result = api.call("DELETE", _path(stream, name), force="true" if force else None)
    output.done(f"deleted {name} of {stream}, which had a lag of {messages(result['lag'])}", result)


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
    output.details(result, {"partitions": ("Partitions", ASSIGNMENT_COLUMNS)})


def _by_member(texts: Sequence[str], members: Sequence[str], option: str) -> dict[str, str]:
    pairs = dict([text.partition("=")[::2] for text in texts])
    for member in pairs:
        if member not in members:
            raise click.BadParameter(f"{member!r} is not one of the members", param_hint=option)
    return pairs
