"""How far a group has come in a partition, besides what it has finished."""

from typing import Protocol

import msgspec

from quire.broker.queues.queue_part import QueuePart
from quire.broker.streams.groups.group_definition import partition_keys
from quire.store.base import WriteBatch


class Progress(msgspec.Struct, array_like=True, frozen=True):
    """What a group remembers of a partition besides what it has finished: the mark ``group/NUMBER/PARTITION/p``.

    Attributes:
        dispatch_mark: messages up to this offset may have been delivered.
    """

    dispatch_mark: int = 0


class FinishedStream(Protocol):
    """The stream of a partition."""

    def finished(self, partition: int) -> None:
        """A group has finished messages of a partition."""


class PartitionProgress:
    """How far one group has come in one partition.

    Attributes:
        is_stored: whether a commit has stored something of it since it was made or loaded.
    """

    def __init__(self, stream: FinishedStream, group: int, partition: int) -> None:
        self._stream = stream
        self._partition = partition
        self._key = partition_keys(group, partition).progress
        self._written: Progress | None = None
        self.is_stored = False

    def write(self, part: QueuePart, dispatch_marks: list[int], batch: WriteBatch) -> None:
        """Put it into a batch, if it has changed."""
        progress = Progress(*dispatch_marks)
        if progress != self._written:
            self._written = progress
            batch.marks[self._key] = msgspec.msgpack.encode(progress)

    def committed(self, part: QueuePart) -> None:
        """A commit is done: retention may let go what it has finished."""
        self.is_stored = True
        if part.removals:
            self._stream.finished(self._partition)
