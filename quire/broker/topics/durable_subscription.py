"""A durable subscription: it gets everything that is sent to its topic, whether its consumer is there or not.

It is dispatched as a queue is, over the topic's lane: what it has finished stands in an ack set instead of being
removed, and a record goes when everybody is done with it. Ack set, counts, dispatch mark and delivery states are marks
of the store, written in the same commits as everything else.
"""

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from quire.broker.commit import Commit, QueuePart
from quire.broker.dead_letter import send_dead_letters
from quire.broker.queues.queue import Queue
from quire.broker.queues.queue_lane import QueueLane
from quire.broker.subscription import Subscription
from quire.broker.topics.durable_lane import DurableLane
from quire.broker.topics.durable_records import DurableKeys, DurableRecords, encode_state
from quire.broker.topics.topic_part import Senders
from quire.cursors.ack_set import AckSet
from quire.cursors.memory_usage import MemoryUsage
from quire.errors import StoreCorrupt, StoreError
from quire.logs import event
from quire.message import Message
from quire.selectors import selector
from quire.settings import Policy
from quire.store.base import LaneState

if TYPE_CHECKING:
    from quire.broker.topics.topic import Topic

HOLES_LIMIT = 10_000
"""With so many holes in its ack set, a subscription is given nothing new: about 100 bytes of memory each."""

EARLY_HOLES = 1000
"""With fewer holes, messages that the selector does not match are finished when they come, not when they are due."""


class Definition(msgspec.Struct, array_like=True, frozen=True):
    """What a durable subscription is: the mark ``sub/h/NUMBER``.

    Attributes:
        client_id: whose it is.
        name: what the client calls it.
        topic: the topic's name.
        selector: which messages it wants; None for all.
        no_local: whether it does not want what its own connection sends.
        start: it gets what comes after this sequence.
        appended: how many records the topic had had up to there; -1 while that is not known.
        appended_bytes: their sizes.
        is_removed: whether it is being removed.
    """

    client_id: str
    name: str
    topic: str
    selector: str | None = None
    no_local: bool = False
    start: int = 0
    appended: int = -1
    appended_bytes: int = 0
    is_removed: bool = False


class Progress(msgspec.Struct, array_like=True, frozen=True):
    """How far a durable subscription has come: the mark ``sub/c/NUMBER``.

    Attributes:
        finished: how many records it has finished.
        finished_bytes: their sizes.
        dispatch_mark: records up to this sequence may have been delivered.
        offline_since: since when it has no consumer, in milliseconds since the epoch; 0 while it has one.
    """

    finished: int = 0
    finished_bytes: int = 0
    dispatch_mark: int = 0
    offline_since: int = 0


class DurableSubscription(Queue):
    """One durable subscription.

    Args:
        topic: its topic.
        number: tells its marks from those of others.
        definition: what it is. Its first commit fills in how many records the topic has had, if that is not known.
        progress: how far it has come; None if it is new.
        finished: what it has finished.

    Attributes:
        topic: as given.
        definition: as given.
        keys: the keys of its marks.
        finished: as given.
        selector: which messages it wants; None for all.
        offline_since: since when it has no consumer, in milliseconds since the epoch; 0 while it has one.
        full_of_holes_since: since when it is given nothing new because of its ack set, on the monotonic clock.
    """

    def __init__(
        self, topic: "Topic", number: int, definition: Definition, progress: Progress | None, finished: AckSet
    ) -> None:
        self.topic = topic
        self.definition = definition
        self.keys = DurableKeys(number)
        self.finished = finished
        self.selector = None if definition.selector is None else selector(definition.selector)
        self.full_of_holes_since: float | None = None
        self._is_stored = progress is not None
        self._progress = progress or Progress()
        self.offline_since = self._progress.offline_since or topic.broker.clock.now_ms()
        super().__init__(topic.broker, topic.stored)
        self.policy = _own_policy(topic.policy)

    def _make_lanes(self, *, new: bool) -> list[QueueLane]:
        """One lane: what is left of the topic's."""
        count = size = 0
        if self.definition.appended >= 0:
            count = self.topic.appended - self.definition.appended - self._progress.finished
            size = self.topic.appended_bytes - self.definition.appended_bytes - self._progress.finished_bytes
        last, mark = self.topic.announced, self._progress.dispatch_mark
        state = LaneState(count=count, bytes=size, next_sequence=last + 1, dispatch_mark=mark)
        self.memory = MemoryUsage(0, self.topic.memory)
        self._records = DurableRecords(self.broker.store, self.topic.lane, self.finished, self.keys, state)
        return [DurableLane(self.broker, self, self._records, self.memory)]

    def policy_changed(self) -> None:
        """Another policy applies from now on."""
        self.policy = _own_policy(self.topic.policy)
        self.broker.durables.watch(self)
        self.dispatcher.consumers_changed()
        self.wake()

    @property
    def key(self) -> tuple[str, str]:
        """The client id and the name."""
        return self.definition.client_id, self.definition.name

    @property
    def start(self) -> int:
        """It gets what comes after this sequence."""
        return self.definition.start

    @property
    def no_local(self) -> bool:
        """Whether it does not want what its own connection sends."""
        return self.definition.no_local

    @property
    def finished_to(self) -> int:
        """The highest sequence that it has finished."""
        highest = self.finished.base
        for _, last in self.finished.ranges():
            highest = last
        return highest

    def is_done(self, sequence: int) -> bool:
        """Whether it needs a record no more."""
        return sequence in self.finished

    def is_full_of_holes(self) -> bool:
        """Whether its ack set is so large that it is given nothing new: what it left out has to be finished first."""
        if self.finished.holes < HOLES_LIMIT:
            self.full_of_holes_since = None
            return False
        if self.full_of_holes_since is None:
            self.full_of_holes_since = self.broker.clock.monotonic()
        return True

    # Messages come.

    def take_in(self, stored: list[Message], senders: Senders) -> None:
        """Take what was committed to the topic.

        Args:
            stored: in order.
            senders: who sent it.
        """
        if stored[0].sequence <= self.start:
            stored = [message for message in stored if message.sequence > self.start]
            if not stored:
                return
        self.depth += len(stored)
        self.enqueued += len(stored)
        self.bytes += sum([message.size for message in stored])
        wanted = stored
        if self.no_local or (self.selector is not None and self.finished.holes < EARLY_HOLES):
            own = [s.session for s in self.subscriptions]
            wanted = [m for m in stored if senders.get(m.sequence) not in own and self._wants(m)]
            passed = {message.sequence for message in wanted}
            self._remove([message for message in stored if message.sequence not in passed])
        if wanted:
            cursor = self.lanes[0].cursor
            is_at_tail = self.subscriptions and not cursor.has_more
            cursor.committed([_shell(message) for message in (wanted if is_at_tail else wanted[-1:])])
        self.wake()

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
        if done := self.topic.done_by_all(sequences):
            commit.batch.lane(lane.id).removals += done
        marks[self.keys.progress] = msgspec.msgpack.encode(self._progress_after(part))
        if not self._is_stored:
            self._is_stored = True
            marks[self.keys.definition] = msgspec.msgpack.encode(self._defined())

    def _progress_after(self, part: QueuePart) -> Progress:
        """How far it has come when a commit is done."""
        size = sum([message.size for message in part.removals])
        mark = part.marks.get(self.lanes[0].id, self.lanes[0].mark.stored)
        before = self._progress
        return Progress(before.finished + len(part.removals), before.finished_bytes + size, mark, self.offline_since)

    def _defined(self) -> Definition:
        """What it is; no commit is under way now, so the records that the topic has had are those up to its start."""
        if self.definition.appended < 0:
            counts = {"appended": self.topic.appended, "appended_bytes": self.topic.appended_bytes}
            self.definition = msgspec.structs.replace(self.definition, **counts)
        return self.definition

    def committed(self, part: QueuePart) -> None:
        """A commit is done."""
        self._progress = self._progress_after(part)
        super().committed(part)
        if part.removals:
            self.topic.recount()

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

    def bury(self, messages: list[Message], reason: str, cause: str) -> None:
        """Finish resident messages that cannot be delivered; they become dead letters by policy, in the same commit.

        Args:
            messages: in no consumer's in-flight table any more, their memory still reserved.
            reason: ``expired`` or ``failed``.
            cause: for the dead letter's header.
        """
        self._remove(messages)
        self._release(messages)
        send_dead_letters(self.broker, self, messages, reason, cause, subscriber=".".join(self.key))

    def expire(self, sequences: list[int]) -> None:
        """Finish messages that have expired, but for those in flight.

        Args:
            sequences: not finished.
        """
        records: list[Message] = []
        for sequence in self.take_out(sequences):
            try:
                records += self._records.load(self.topic.lane, [sequence])
            except StoreCorrupt:  # it stays, and whoever verifies the store is told
                continue
        if records:
            self.removed(records)
            cause = "expired before it could be delivered"
            send_dead_letters(self.broker, self, records, "expired", cause, subscriber=".".join(self.key))

    # It comes, its consumer comes and goes.

    def note_change(self) -> None:
        """Store what it is with the open commit."""
        self.broker.list_part(self._open)

    def add(self, subscription: Subscription) -> None:
        """Its consumer comes."""
        self.offline_since = 0
        self.broker.list_part(self._open)
        super().add(subscription)

    def remove(self, subscription: Subscription, cause: str, *, lost: bool) -> None:
        """Its consumer goes; what it had in flight comes back."""
        super().remove(subscription, cause, lost=lost)
        self.offline_since = self.broker.clock.now_ms()
        self.broker.durables.watch(self)

    def stop(self) -> None:
        """Before a clean stop: nothing was delivered that the delivery states do not tell."""
        lane = self.lanes[0]
        first, crashed = self.finished.next_unfinished(0), lane.cursor.redelivered_to
        self._open.marks[lane.id] = crashed if first <= crashed else 0
        self.broker.list_part(self._open)

    def _report(self, fault: StoreError) -> None:
        """The next message cannot be read: dispatch stands before it, and says so once."""
        if self.fault is None:
            topic, (client, name) = self.destination.name, self.key
            text = f"durable subscription {name} of {client} to topic {topic}: {fault} {fault.entry.advice}"
            facts = {"topic": topic, "client": client, "subscription": name}
            event("subscription.damaged", text, logging.ERROR, **facts, **fault.data)
            self.fault_since = self.broker.clock.monotonic()
        self.fault = fault


def _own_policy(policy: Policy) -> Policy:
    """The policy of a durable subscription: without what only makes sense where a queue has a lane and consumers."""
    return replace(
        policy, redelivery_at="in-place", consumers_before_dispatch_starts=0, time_before_dispatch_starts=0.0,
    )  # fmt: skip


def _shell(message: Message) -> Message:
    """A stored message of its own for one subscription, with the same content."""
    return Message(message.sequence, message.content, message.expiration, message.priority)
