"""The API's consumer groups: list, look, reset, shift, skip, clone, delete; try a strategy out."""

from typing import Annotated, Any

import msgspec

from quire.broker.streams.groups.group import Group
from quire.broker.streams.groups.groups import PartitionChange, PartitionClone, reset, shift, skip
from quire.broker.streams.groups.rebalance import Candidate
from quire.broker.streams.partition import Start
from quire.destination import DestinationKind
from quire.http.endpoint import (
    MANAGE_STREAM_OF_GROUP,
    READ_STREAM,
    SEE_STREAM_OF_GROUP,
    USER,
    Call,
    DeleteQuery,
    Endpoint,
    Fields,
    Number,
    Part,
    TableQuery,
    gathered,
    listing,
    selected,
)
from quire.http.operations import Counted
from quire.management.streams import GroupDeleted
from quire.resources import Assignment, ConsumerGroupDetails, ConsumerGroupStatus, GroupLag, GroupMemberInfo
from quire.security import Access
from quire.units import LARGEST


class GroupList(msgspec.Struct, frozen=True):
    """Consumer groups, by stream and name, and the first readers, of which the broker stores nothing."""

    groups: list[ConsumerGroupStatus]
    readers: list[ConsumerGroupStatus]
    next: str | None
    total: int


class ChangeQuery(Fields, frozen=True):
    """With ``dry_run`` the answer has the effect, and nothing changes."""

    dry_run: bool = False


class Reset(Fields, frozen=True):
    """The position, in one partition or all: ``earliest``, ``latest``, ``offset=7``, ``timestamp=T``, ``ago=1h``."""

    to: str
    partition: Number | None = None


class Shift(Fields, frozen=True):
    """By how many offsets to shift, backwards if negative; in one partition or all."""

    by: Annotated[int, msgspec.Meta(ge=-LARGEST, le=LARGEST)]
    partition: Number | None = None


class Skip(Fields, frozen=True):
    """What to skip: one partition, or all."""

    partition: Number | None = None


class Clone(Fields, frozen=True):
    """The name of the group to make."""

    to: str


class MemberDraft(Fields, frozen=True):
    """A member for the preview: its name, its machine room, the partitions that it requests."""

    id: str
    room: str = ""
    partitions: tuple[Number, ...] = ()


class AssignmentDraft(Fields, frozen=True):
    """The members for the preview, and the strategy; null for the group's."""

    members: list[MemberDraft]
    strategy: str | None = None


class ProgressNote(Fields, frozen=True):
    """The progress of an external reader: by partition, the first offset that it has not finished."""

    offsets: dict[Number, Number]


class GroupChanged(msgspec.Struct, frozen=True):
    """The effect of a change: in total, and by partition. ``done`` says whether it was made."""

    done: bool
    again: int
    skipped: int
    in_flight: int
    retries_dropped: int
    partitions: list[PartitionChange]


class GroupCloned(msgspec.Struct, frozen=True):
    """The backlog of the new group, in total and by partition. ``done`` says whether it was created."""

    done: bool
    lag: int
    retries_left: int
    partitions: list[PartitionClone]


def _group(call: Call) -> Group:
    return call.broker.groups.existing(call.path["stream"], call.path["group"])


async def _list(call: Call) -> GroupList | Part:
    selection = await selected(call, call.admin.groups.table(), _sees)
    groups = await gathered(call.admin.groups.status(group) for group in selection.found)

    def sees(reader: ConsumerGroupStatus) -> bool:
        return call.access.sees(DestinationKind.STREAM, reader.stream)

    readers = await gathered(map(call.admin.groups.status, list(call.broker.groups.readers)), call.query.limit, sees)
    page = GroupList(groups, readers, selection.next, selection.total)
    return Part(page, selection.keys) if call.is_part else page


def _sees(access: Access, group: Any) -> bool:
    return access.sees(DestinationKind.STREAM, group.definition.stream)


async def _reset(call: Call) -> GroupChanged:
    to, dry_run = call.body.to, call.query.dry_run
    changes = reset(_group(call), Start.parse(to), call.body.partition, dry_run=dry_run)
    return await _moved(call, changes, f"was reset to {to}")


async def _shift(call: Call) -> GroupChanged:
    changes = shift(_group(call), call.body.by, call.body.partition, dry_run=call.query.dry_run)
    return await _moved(call, changes, f"was shifted by {call.body.by}")


async def _skip(call: Call) -> GroupChanged:
    changes = skip(_group(call), call.body.partition, dry_run=call.query.dry_run)
    return await _moved(call, changes, "skipped its backlog")


async def _moved(call: Call, changes: list[PartitionChange], what: str) -> GroupChanged:
    """Answer what a change means; if it was made, when it is stored."""
    again, skipped = sum([change.again for change in changes]), sum([change.skipped for change in changes])
    in_flight, dropped = sum([c.in_flight for c in changes]), sum([c.retries_dropped for c in changes])
    answer = GroupChanged(not call.query.dry_run, again, skipped, in_flight, dropped, changes)
    if not answer.done:
        return answer
    text = f"consumer group {{group}} of stream {{stream}} {what}: "
    text += "{again} messages are redelivered, {skipped} are skipped"
    return await call.changed("group.moved", text, answer, again=again, skipped=skipped, retries=dropped)


async def _clone(call: Call) -> GroupCloned:
    to, dry_run = call.body.to, call.query.dry_run
    clones = call.broker.groups.clone(_group(call), to, dry_run=dry_run)
    lag, left = sum([each.lag for each in clones]), sum([each.retries_left for each in clones])
    answer = GroupCloned(not dry_run, lag, left, clones)
    if dry_run:
        return answer
    text = "consumer group {to} of stream {stream} was cloned from {group}"
    return await call.changed("group.cloned", text, answer, to=to)


async def _progress(call: Call) -> GroupLag:
    lag = call.admin.groups.progress(call.path["name"], call.path["group"], call.body.offsets)
    await call.durable()
    return lag


async def _delete(call: Call) -> GroupDeleted:
    deleted = call.admin.groups.delete(_group(call), force=call.query.force)
    text = "consumer group {group} of stream {stream} was deleted"
    return await call.changed("group.deleted", text, deleted, lag=deleted.lag, retries=deleted.retries)


def _count(call: Call) -> Counted:
    group = call.admin.groups.status(_group(call))
    return Counted(group.lag + (group.retries or 0), consumers=group.members)


def _assign(call: Call) -> Assignment:
    members = [Candidate(member.id, member.room, member.partitions) for member in call.body.members]
    return call.admin.groups.assign(_group(call), members, call.body.strategy)


_ONE = "/groups/{stream}/{group}"

ENDPOINTS = [
    Endpoint(
        "GET", "/groups", USER, "List the consumer groups and readers with their lag and counts.", _list, GroupList,
        TableQuery,
    ),
    Endpoint(
        "GET", _ONE, SEE_STREAM_OF_GROUP, "Get a group: partitions, retries, members, counters.",
        lambda call: call.admin.groups.details(_group(call)), ConsumerGroupDetails,
    ),
    listing(
        "GroupMembers", _ONE + "/members", SEE_STREAM_OF_GROUP,
        "List the members of a group with their partitions and messages in flight.", "members", GroupMemberInfo,
        lambda call: call.admin.groups.members(_group(call)),
    ),
    Endpoint(
        "PUT", "/streams/{name}/groups/{group}/progress", READ_STREAM,
        "Store the progress of an external reader as a group.", _progress, GroupLag, body=ProgressNote,
    ),
    Endpoint(
        "GET", _ONE + "/lag", SEE_STREAM_OF_GROUP, "Get the lag of a group, by partition.",
        lambda call: call.admin.groups.lag(_group(call)), GroupLag,
    ),
    Endpoint(
        "POST", _ONE + "/reset", MANAGE_STREAM_OF_GROUP, "Reset a group to a position.", _reset, GroupChanged,
        ChangeQuery, Reset,
    ),
    Endpoint(
        "POST", _ONE + "/shift", MANAGE_STREAM_OF_GROUP, "Shift a group by a number of offsets.", _shift, GroupChanged,
        ChangeQuery, Shift,
    ),
    Endpoint(
        "POST", _ONE + "/skip", MANAGE_STREAM_OF_GROUP, "Skip the backlog and the retries of a group.", _skip,
        GroupChanged, ChangeQuery, Skip,
    ),
    Endpoint(
        "POST", _ONE + "/clone", MANAGE_STREAM_OF_GROUP, "Create a group with the progress of another one.", _clone,
        GroupCloned, ChangeQuery, Clone,
    ),
    Endpoint(
        "POST", _ONE + "/assign", SEE_STREAM_OF_GROUP, "Preview an assignment of partitions. Nothing is changed.",
        _assign, Assignment, body=AssignmentDraft,
    ),
    Endpoint(
        "DELETE", _ONE, MANAGE_STREAM_OF_GROUP,
        "Delete a group. With force the broker disconnects its members. The messages stay.", _delete, GroupDeleted,
        DeleteQuery, dry_run=_count,
    ),
]  # fmt: skip
