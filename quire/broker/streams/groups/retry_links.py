"""What a retry lane has in commits: links instead of messages, and their marks."""

from collections.abc import Callable

from quire.broker.core.core import Core
from quire.broker.queues.queue_lane import QueueLane
from quire.broker.queues.queue_part import QueuePart
from quire.broker.queues.record_removal import RecordRemoval, charged_elsewhere
from quire.broker.streams.groups.group_definition import prefix_of
from quire.broker.streams.groups.retry_marks import RetryMarks
from quire.broker.streams.groups.retry_records import RetryMessage, link_record
from quire.message import Message
from quire.store.base import WriteBatch


class RetryLinks:
    """The links of one retry lane. Settling a retry removes its link and its mark, and its origin may go.

    Args:
        settled: is told the lane and the offset of the origin of each retry that is done for good.
        new: whether the lane is made now: then nothing is read.

    Attributes:
        bytes: the sizes of all messages that links stand for.
        uncommitted: the retries whose links are not stored yet, by the lane and the offset of their origins.
    """

    charge: Callable[[int], None] = staticmethod(charged_elsewhere)

    def __init__(
        self, core: Core, lane: QueueLane, marks: RetryMarks, group: int, settled: Callable[[int, int], None], *,
        new: bool,
    ) -> None:  # fmt: skip
        self._core = core
        self._lane = lane
        self._marks = marks
        self._settled = settled
        self._records = RecordRemoval([lane], core.spool, charged_elsewhere)
        self._bytes_key = f"{prefix_of(group)}retry-bytes"
        self.bytes = 0 if new else int(core.store.mark(self._bytes_key) or b"0")
        self.uncommitted: dict[tuple[int, int], RetryMessage] = {}

    def write(self, part: QueuePart, batch: WriteBatch) -> None:
        """Put links that come and go into a batch, and their marks."""
        self._records.write(part, batch)
        appends, marks = retries_of(part.appends), batch.marks
        if appends:
            now = self._core.clock.now_ms()
            batch.lane(self._lane.id).appends = [link_record(retry, now) for retry in appends]
            marks.update([(self._marks.key(retry), b"%d" % retry.size) for retry in appends])
        for retry in retries_of(part.removals):
            marks[self._marks.key(retry)] = None
        if part.appends or part.removals:
            marks[self._bytes_key] = b"%d" % self._bytes_after(part)

    def _bytes_after(self, part: QueuePart) -> int:
        """The sizes of all messages when a commit is done."""
        came, went = [sum([message.size for message in run]) for run in (part.appends, part.removals)]
        return self.bytes + came - went

    def committed(self, part: QueuePart) -> None:
        """A commit is done."""
        self.bytes = self._bytes_after(part)
        for retry in retries_of(part.appends):
            self.uncommitted.pop((retry.origin_lane, retry.origin_sequence), None)
        for retry in retries_of(part.removals):
            self._settled(retry.origin_lane, retry.origin_sequence)

    def undo(self, messages: list[Message]) -> None:
        """The commit that settled retries failed, and they are not settled after all: they keep their marks."""
        for retry in retries_of(messages):
            self._core.set_mark(self._marks.key(retry), b"%d" % retry.size)

    def may_have(self, lane: QueueLane, sequence: int) -> bool:
        """Whether the lane may have a link up to a sequence."""
        return self._records.may_have(lane, sequence)

    def drop(self, retry: RetryMessage) -> None:
        """A retry that never was in the store is done."""
        self.uncommitted.pop((retry.origin_lane, retry.origin_sequence), None)
        self._settled(retry.origin_lane, retry.origin_sequence)


def retries_of(messages: list[Message]) -> list[RetryMessage]:
    """The same messages: in a retry lane all of them are retries."""
    return [message for message in messages if isinstance(message, RetryMessage)]
