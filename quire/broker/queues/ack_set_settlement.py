"""What settling a message means to a subscription: it joins an ack set. Its record goes when it is not needed."""

from collections.abc import Callable, Sequence
from typing import Protocol

from quire.broker.queues.lane_records import LaneKeys, LaneRecords, encode_state
from quire.broker.queues.queue_lane import QueueLane
from quire.broker.queues.queue_part import QueuePart
from quire.broker.queues.record_removal import charged_elsewhere
from quire.broker.queues.subscription_lane import SubscriptionLane
from quire.cursors.ack_set import AckSet
from quire.message import Message
from quire.store.base import WriteBatch


class ProgressRecord(Protocol):
    """What else the store has of how far a subscription has come."""

    def write(self, part: QueuePart, dispatch_marks: list[int], batch: WriteBatch) -> None:
        """Put it into a batch, as it is when the commit is done.

        Args:
            dispatch_marks: in the order of the lanes of its topic or partition.
        """

    def committed(self, part: QueuePart) -> None:
        """A commit is done."""


class RecordHolder(Protocol):
    """Whose records they are."""

    def done_by_all(self, sequences: list[int]) -> list[int]:
        """Those of some sequences that neither their owner nor a subscription needs: their records are removed."""


class AckSetSettlement:
    """Messages that are settled join an ack set. It and the delivery states are marks of the store.

    Args:
        lanes: what the subscription has of the lanes, those of higher priority first.
        progress: what else the store has of it.
    """

    charge: Callable[[int], None] = staticmethod(charged_elsewhere)

    def __init__(
        self, holder: RecordHolder, lanes: Sequence[SubscriptionLane], keys: LaneKeys, finished: AckSet,
        progress: ProgressRecord,
    ) -> None:  # fmt: skip
        self._holder = holder
        self._lanes = lanes
        self._keys = keys
        self._finished = finished
        self._progress = progress

    def write(self, part: QueuePart, batch: WriteBatch) -> None:
        """Put what is settled, and what is known of deliveries, into a batch."""
        marks = batch.marks
        sequences = sorted([message.sequence for message in part.removals])
        self._finished.add_all(sequences)
        for page, value in self._finished.changed_pages().items():
            marks[self._keys.page(page)] = value
        for message, state in part.deliveries.values():
            marks[self._state_key(message)] = encode_state(state)
        for message in part.removals:
            if message.deliveries or message.sequence in part.deliveries:
                marks[self._state_key(message)] = None
        if done := self._holder.done_by_all(sequences):
            self._remove_records(part, done, batch)
        self._progress.write(part, self._dispatch_marks_after(part), batch)

    def _dispatch_marks_after(self, part: QueuePart) -> list[int]:
        """The dispatch marks when a commit is done, in the order of the lanes of the topic or the partition."""
        return [part.marks.get(lane.id, lane.mark.stored) for lane in reversed(self._lanes)]

    def _records_of(self, message: Message) -> LaneRecords:
        return (self._lanes[0] if len(self._lanes) == 1 else self._lanes[9 - message.priority]).reader

    def _state_key(self, message: Message) -> str:
        return self._records_of(message).keys.state(message.sequence)

    def set_states(self, messages: list[Message]) -> None:
        """Tell messages of one lane what is known of their deliveries."""
        if messages:
            self._records_of(messages[0]).set_states(messages)

    def committed(self, part: QueuePart) -> None:
        """A commit is done."""
        self._progress.committed(part)

    def may_have(self, lane: QueueLane, sequence: int) -> bool:
        """Whether anything up to a sequence is not finished."""
        return self._finished.next_unfinished(0) <= sequence

    def _remove_records(self, part: QueuePart, done: list[int], batch: WriteBatch) -> None:
        """Remove records that it was the last one to need, of those that a commit finishes."""
        if len(self._lanes) == 1:
            lane = batch.lane(self._lanes[0].id)
            lane.removals += done
            part.owned = {self._lanes[0].id: lane}
            return
        part.owned, gone = {}, set(done)
        for own in self._lanes:
            if sequences := [message.sequence for message in own.own(part.removals) if message.sequence in gone]:
                part.owned[own.id] = batch.lane(own.id)
                part.owned[own.id].removals += sequences

    def undo(self, messages: list[Message]) -> None:
        """The commit that settled messages failed, and they are not settled after all."""
        for message in messages:
            self.unfinish(message.sequence, message.sequence)

    def unfinish(self, first: int, last: int) -> None:
        """Sequences are not finished after all."""
        self._finished.discard_range(first, last)
        for lane in self._lanes:
            lane.reader.forget_nothing()


class UnstoredSettlement(AckSetSettlement):
    """Messages that are settled join an ack set, of which the store knows nothing."""

    def write(self, part: QueuePart, batch: WriteBatch) -> None:
        """Remember what is settled, and what is known of deliveries."""
        (lane,) = self._lanes
        states = lane.reader.unstored
        assert states is not None
        self._finished.add_all(sorted([message.sequence for message in part.removals]))
        states.update([(sequence, state) for sequence, (_, state) in part.deliveries.items()])
        for message in part.removals:
            states.pop(message.sequence, None)
