"""Handles: what a member that polls calls a message by, to acknowledge it, reject it or keep it longer.

A handle is ``OFFSET.PARTITION.EPOCH``, with ``r`` for the partition of a retry, as in the ids of acknowledgements over
STOMP. ``FIRST-LAST.PARTITION.EPOCH`` stands for all from one offset to another.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from quire.broker.streams.groups.group_member import MemberSubscription
from quire.broker.streams.groups.group_partition import GroupPartition
from quire.broker.streams.groups.held import MAX_HELD, NOTHING, RETRIES, RETRY_LANE, Held
from quire.errors import InvalidArgument
from quire.message import Message

_HANDLE = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?\.(\d{1,6}|r)\.(\d{1,18})", re.ASCII)


class Handle(NamedTuple):
    """One handle, read.

    Attributes:
        first: the first offset; of retries, their own.
        last: the last one.
        partition: the partition's number, or ``RETRIES``.
        epoch: the number of the assignment.
    """

    first: int
    last: int
    partition: int
    epoch: int


def written(offset: int, partition: int, epoch: int) -> str:
    """A handle as clients see it."""
    return f"{offset}.{RETRY_LANE if partition == RETRIES else partition}.{epoch}"


def handle_of(child: MemberSubscription, message: Message) -> str:
    """The handle of a message that a member has."""
    source = child.source
    partition = source.partition.index if isinstance(source, GroupPartition) else RETRIES
    return written(message.sequence, partition, child.epoch)


def read_handles(texts: Sequence[str]) -> list[Handle]:
    """Read handles.

    Raises:
        InvalidArgument: one is none, or they are about too many messages.
    """
    handles, total = [], 0
    for text in texts:
        found = _HANDLE.fullmatch(text)
        if found is None:
            raise InvalidArgument(f"{text[:60]!r} is no handle: give back what a message came with", argument="handles")
        first, last, partition, epoch = found.groups()
        index = RETRIES if partition == RETRY_LANE else int(partition)
        handle = Handle(int(first), int(last or first), index, int(epoch))
        total += handle.last - handle.first + 1
        if not 1 <= handle.first <= handle.last or total > MAX_HELD:
            wrong = f"{text[:60]!r} cannot be taken: up to {MAX_HELD} messages at once, ascending"
            raise InvalidArgument(wrong, argument="handles")
        handles.append(handle)
    return handles


def held_of(handles: Sequence[Handle]) -> Held:
    """What a member has that has these, of whatever assignment."""
    ranges: dict[int, list[tuple[int, int]]] = {}
    for handle in handles:
        ranges.setdefault(handle.partition, []).append((handle.first, handle.last))
    return Held(False, ranges) if ranges else NOTHING
