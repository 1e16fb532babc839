"""A subscription to a lane that somebody else owns: a durable subscription's topic, a consumer group's partition.

It is dispatched as a queue is. What it has finished stands in an ack set instead of being removed. Ack set, dispatch
mark and delivery states are marks of the store, written in the same commits as everything else.
"""

from typing import TYPE_CHECKING, Protocol

from quire.broker.commit import Commit, QueuePart
from quire.broker.queues.lane_records import LaneKeys, LaneRecords, encode_state
from quire.broker.queues.queue import Queue
from quire.broker.queues.queue_lane import QueueLane
from quire.broker.queues.subscription_lane import SubscriptionLane
from quire.cursors.ack_set import AckSet
from quire.cursors.memory_usage import MemoryUsage
from quire.message import Message
from quire.selectors import Selector
from quire.store.base import LaneState, StoredDestination

if TYPE_CHECKING:
    from quire.broker.broker import Broker

HOLES_LIMIT = 10_000
"""With so many holes in its ack set, a subscription is given nothing new: about 100 bytes of memory each."""


class LaneOwner(Protocol):
    """Whose lane it is: a topic, a stream's partition.

    Attributes:
        lane: the lane's id.
        announced: the highest sequence of those commits that are done.
    """

    lane: int
    announced: int

    @property
    def stored(self) -> StoredDestination:
        """The destination as the store has it."""
        ...

    @property
    def memory(self) -> MemoryUsage:
        """The destination's node of the memory tree."""
        ...

    def done_by_all(self, sequences: list[int]) -> list[int]:
        """Those of some sequences that nobody needs any more: their records are removed."""
        ...


class LaneSubscription(Queue):
    """One subscription to a lane.

    Args:
        broker: the broker.
        owner: whose lane it is.
        keys: the keys of its marks.
        finished: what it has finished.
        found: how many messages it has, their sizes and its dispatch mark, as the store has them.
        selector: which messages it wants; None for all.

    Attributes:
        keys: as given.
        finished: as given.
        selector: as given.
        full_of_holes_since: since when it is given nothing new because of its ack set, on the monotonic clock.
    """

    def __init__(
        self, broker: "Broker", owner: LaneOwner, keys: LaneKeys, finished: AckSet, found: LaneState,
        selector: Selector | None,
    ) -> None:  # fmt: skip
        self.keys = keys
        self.finished = finished
        self.selector = selector
        self.full_of_holes_since: float | None = None
        self._lane_owner = owner
        self._found = found._replace(next_sequence=owner.announced + 1)
        super().__init__(broker, owner.stored)

    def _make_lanes(self, *, new: bool) -> list[QueueLane]:
        """One lane: what is left of the owner's."""
        owner = self._lane_owner
        self.memory = MemoryUsage(0, owner.memory)
        self._records = LaneRecords(self.broker.store, owner.lane, self.finished, self.keys, self._found)
        return [SubscriptionLane(self.broker, self, self._records, self.memory)]

    def done_of(self, sequences: list[int]) -> list[int]:
        """Those of some sequences, in ascending order, that it needs no more; of a run that is done it asks once."""
        if sequences and self.finished.next_unfinished(sequences[0] - 1) > sequences[-1]:
            return sequences
        return [sequence for sequence in sequences if sequence in self.finished]

    def may_not_go_on(self) -> bool:
        """Whether it is given nothing new now, because what it left out has to be finished first."""
        if self.finished.holes < HOLES_LIMIT:
            self.full_of_holes_since = None
            return False
        if self.full_of_holes_since is None:
            self.full_of_holes_since = self.broker.clock.monotonic()
        return True

    # Messages come.

    def _admit(self, stored: list[Message]) -> None:
        """Messages were committed that it wants, as far as can be told now: they are in memory if there is room."""
        cursor = self.lanes[0].cursor
        is_at_tail = self.subscriptions and not cursor.has_more
        cursor.committed([shell(message) for message in (stored if is_at_tail else stored[-1:])])

    def _pass_over(self, stored: list[Message], wanted: list[Message]) -> None:
        """Finish what was committed and is not wanted. The cursor may come to it before that is stored."""
        kept = {message.sequence for message in wanted}
        unwanted = [message for message in stored if message.sequence not in kept]
        sequences = {message.sequence for message in unwanted}
        self.lanes[0].cursor.excluded |= sequences
        self._open.excluded |= sequences
        self._remove(unwanted)

    def _wants(self, message: Message) -> bool:
        return self.selector is None or self.selector.matches(message)

    def sift(self, run: list[Message]) -> list[Message]:
        """Of messages whose turn has come, those that it wants; the others are finished.

        What was delivered to it before is wanted, even if the selector asks about that.
        """
        if self.selector is None:
            return run
        wanted = [message for message in run if message.deliveries or self._wants(message)]
        if len(wanted) < len(run):
            passed = {message.sequence for message in wanted}
            unwanted = [message for message in run if message.sequence not in passed]
            self._remove(unwanted)
            self._release(unwanted)
        return wanted

    def skip(self, first: int, last: int) -> None:
        """Sequences that no message will ever have."""
        self.finished.add_range(first, last)

    # What is settled, and what comes back, is stored in its own way.

    def _remove(self, messages: list[Message]) -> None:
        """Finish messages; their records stay until everybody is done with them."""
        super()._remove(messages)
        self.broker.stored_bytes += sum([message.size for message in messages])

    def restore(self, messages: list[Message]) -> None:
        """Put messages back whose acknowledgement was in a transaction that could not be committed."""
        super().restore(messages)
        self.broker.stored_bytes -= sum([message.size for message in messages])

    def fill(self, commit: Commit) -> None:
        """Put what has gathered into a commit."""
        part, self._open = self._open, QueuePart(self)
        commit.parts.append(part)
        lane, marks = self.lanes[0], commit.batch.marks
        if (mark := lane.mark.take()) is not None:
            part.marks[lane.id] = mark
        sequences = sorted([message.sequence for message in part.removals])
        self.finished.add_all(sequences)
        for page, value in self.finished.changed_pages().items():
            marks[self.keys.page(page)] = value
        for sequence, (_, state) in part.deliveries.items():
            marks[self.keys.state(sequence)] = encode_state(state)
        for message in part.removals:
            if message.deliveries or message.sequence in part.deliveries:
                marks[self.keys.state(message.sequence)] = None
        if done := self._lane_owner.done_by_all(sequences):
            part.owned = commit.batch.lane(lane.id)
            part.owned.removals += done
        if (progress := self._progress_mark(part)) is not None:
            marks[self.keys.progress] = progress

    def _progress_mark(self, part: QueuePart) -> bytes | None:
        """How far it has come when a commit is done: the value of its mark; None if it stays as it is."""
        raise NotImplementedError

    def _dispatch_mark_after(self, part: QueuePart) -> int:
        """The dispatch mark when a commit is done."""
        return part.marks.get(self.lanes[0].id, self.lanes[0].mark.stored)

    def commit_failed(self, part: QueuePart, restored: set[int]) -> None:
        """A commit failed: what it had of this subscription is put into the next one.

        Args:
            part: this subscription's part of it.
            restored: ``id`` of the messages that are not finished after all.
        """
        super().commit_failed(part, restored)
        for message in part.removals:
            if id(message) in restored:
                self.finished.discard_range(message.sequence, message.sequence)

    def stop(self) -> None:
        """Before a clean stop: nothing was delivered that the delivery states do not tell."""
        lane = self.lanes[0]
        first, crashed = self.finished.next_unfinished(0), lane.cursor.redelivered_to
        self._open.marks[lane.id] = crashed if first <= crashed else 0
        self.broker.list_part(self._open)


def shell(message: Message) -> Message:
    """A stored message of its own for one subscription, with the same content."""
    return Message(message.sequence, message.content, message.expiration, message.priority)
