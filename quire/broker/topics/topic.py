"""A topic: what is sent to it goes to all its subscriptions.

A message is stored only if a durable subscription needs it, or if the topic keeps messages for
retroactive consumers. It is stored once, however many need it, in the topic's lane, or in that of its priority if the
topic is prioritized, and is removed when the last of them is done with it. Stored or not, it is given out when its
commit is done, in the order of sending.
"""

from collections.abc import Callable
from typing import Protocol

import msgspec

from quire.broker.core.core import Commit, Core
from quire.broker.core.subscription import AckMode, Session, Subscription
from quire.broker.dead_letter import is_dead_letter_queue
from quire.broker.topics.durable import DurableSubscription
from quire.broker.topics.topic_records import (
    Counts,
    KeptMessages,
    LaneSweep,
    Recovery,
    TopicPart,
    TopicRecords,
    counts_key,
    read_counts,
)
from quire.broker.topics.topic_subscription import MEMORY_LIMIT, PENDING_LIMIT, SharedMessages, TopicSubscription
from quire.cursors.lane import MemoryUsage
from quire.destination import Destination, DestinationKind
from quire.message import Message
from quire.selectors import Selector
from quire.store.base import LaneBatch, LaneState, StoredDestination


class Holder(Protocol):
    """Who needs records of a topic."""

    def done_of(self, sequences: list[int]) -> list[int]:
        """Those of some sequences, in ascending order, that it needs no more."""


class Topic:
    """One topic.

    Args:
        new: whether it is made now: then nothing is read, and nothing can fail.
        counts: what it remembers, if it is known already: it has got other lanes.

    Attributes:
        destination: its address.
        policy: what applies to it.
        ledger: where events of its messages are noted; None if its policy does not ask for it.
        lanes: the ids of its lanes: one, or ten by priority.
        records: reads its records.
        memory: its node of the memory tree.
        shared: what its plain subscriptions have in memory.
        durables: its durable subscriptions, present or not.
        kept: what it keeps for retroactive consumers.
        depth: how many records it has; exact.
        bytes: their sizes.
        appended: how many it ever had.
        appended_bytes: their sizes.
        filled_to: the highest sequence that was put into a commit.
        announced: the highest sequence of those commits that are done.
        enqueued: how many messages were sent to it.
        dequeued: how many its plain subscriptions acknowledged.
        dispatched: how often one was given to a plain subscription.
        redelivered: how often one came back from a plain subscription.
        expired: how many expired while they waited for a plain subscription.
        discarded: how many were discarded because a plain subscription was slow, by cause.
        dead_lettered: how many of those of plain subscriptions became dead letters.
        suppressed: how many of these became dead letters because clients suppressed them as duplicates.
    """

    is_deleted = False

    def __init__(
        self, core: Core, stored: StoredDestination, *, new: bool = False, counts: Counts | None = None
    ) -> None:  # fmt: skip
        self.core = core
        self.stored = stored
        self.destination = Destination(DestinationKind(stored.kind), stored.name)
        self.policy = core.settings.policies.of(self.destination)
        self.ledger = core.ledger.of(self.destination)
        self.lanes = stored.lanes
        self.records = TopicRecords(core, stored.lanes)
        self.memory = MemoryUsage(self.policy.memory_limit, core.memory)
        self.shared = SharedMessages(self.memory)
        self.durables: list[DurableSubscription] = []
        self.enqueued = self.dequeued = self.dispatched = self.redelivered = 0
        self.expired = self.dead_lettered = self.suppressed = 0
        self.discarded = {PENDING_LIMIT: 0, MEMORY_LIMIT: 0}
        self._states = {lane: LaneState() if new else core.store.lane_state(lane) for lane in stored.lanes}
        counts = counts or (Counts() if new else read_counts(core.store, stored))
        states = self._states.values()
        self.depth, self.bytes = sum([s.count for s in states]), sum([s.bytes for s in states])
        self.appended, self.appended_bytes = counts.appended, counts.appended_bytes
        self._next_sequence = max([s.next_sequence for s in states])
        self.filled_to = self.announced = self._next_sequence - 1
        self._plain: dict[TopicSubscription, None] = {}
        self._counts_changed = False
        self._no_local = 0  # how many subscriptions do not want what their own session sends
        self._open = TopicPart(self)
        self.kept = KeptMessages(self, counts.first_kept, counts.kept, counts.kept_bytes)
        self._holders: list[Holder] = [self.kept]
        head = min([s.head for s in states if s.head], default=0)
        if self.kept.is_keeping and 0 < head < self.kept.first:
            self.sweep(head, self.kept.first - 1)  # a recovery that a crash ended may have held some

    @property
    def key(self) -> str:
        """The key of its mark."""
        return counts_key(self.stored)

    def lane_of(self, priority: int) -> int:
        """The id of the lane that messages of a priority are in."""
        return self.lanes[0] if len(self.lanes) == 1 else self.lanes[priority]

    @property
    def next_sequence(self) -> int:
        """The sequence of the next message."""
        return self._next_sequence

    @property
    def holder_count(self) -> int:
        """How many are asked whether they need a record."""
        return len(self._holders)

    @property
    def is_there(self) -> bool:
        """Whether it was not deleted."""
        return not self.is_deleted

    @property
    def is_dead_letter_queue(self) -> bool:
        """Whether dead letters go to it."""
        return is_dead_letter_queue(self.destination, self.policy)

    def policy_changed(self) -> None:
        """Another policy applies from now on, to present plain subscriptions too, but for their limits."""
        self.policy = self.core.settings.policies.of(self.destination)
        self.ledger = self.core.ledger.of(self.destination)
        self.memory.limit = self.policy.memory_limit
        self.kept.policy_changed()
        for source in self._plain:
            source.policy = self.policy
        for durable in self.durables:
            durable.policy_changed()

    # A message comes in.

    def send(self, content: bytes, expiration: int = 0, priority: int = 4, persistent: bool = True) -> None:
        """Take a message. It is given out when the open commit is done.

        Args:
            expiration: milliseconds since the epoch; 0 for never.
            persistent: what the sender wants. Whether it is stored depends on who needs it.
        """
        message = Message(self._next_sequence, content, expiration, priority, persistent)
        message.stored = False
        self._next_sequence += 1
        part = self._open
        part.appends.append(message)
        if self.ledger is not None:
            self.ledger.sent(self.core.sender)
        if self._no_local:
            part.senders[message.sequence] = self.core.sender
        self.core.charge_open(message.size)
        if not part.listed:
            self.core.list_part(part)

    def transfer(self, content: bytes, expiration: int = 0, priority: int = 4, persistent: bool = True) -> Message:
        """As ``send``, for what another destination gives up in this commit. If it fails, both are in the next one."""
        self.send(content, expiration, priority, persistent)
        message = self._open.appends[-1]
        self._open.transferred.append(message)
        return message

    def expect_groups(self) -> None:
        """Messages of groups are about to be sent. Every subscription gets them all: there is nothing to do."""

    def fill(self, commit: Commit) -> None:
        """Put what has gathered into a commit."""
        part, self._open = self._open, TopicPart(self)
        commit.parts[self] = part
        if part.appends:
            self.filled_to = part.appends[-1].sequence
        first = self._first_needed()
        part.stored = [message for message in part.appends if message.sequence >= first]
        if part.stored or part.removals:
            part.write(self.lanes, commit.batch)
        if part.stored or self._counts_changed:
            self._counts_changed = False
            commit.batch.marks[self.key] = msgspec.msgpack.encode(self._counts(part))

    def _first_needed(self) -> int:
        """From which sequence on new messages have to be stored; above all of them if none has to be."""
        starts = [durable.start + 1 for durable in self.durables]
        if self.kept.is_keeping:
            starts.append(self.kept.first)
        return min(starts, default=self._next_sequence)

    def _counts(self, part: TopicPart) -> Counts:
        """What its mark says when a commit is done."""
        share = self.kept.share(part.stored)
        return Counts(
            self.appended + len(part.stored), self.appended_bytes + _size(part.stored),
            self.kept.first, self.kept.count + len(share), self.kept.bytes + _size(share),
        )  # fmt: skip

    def committed(self, part: TopicPart) -> None:
        """A commit is done: what it brought goes to all subscriptions."""
        self.recount(part.lanes)
        self.enqueued += len(part.appends)
        if part.appends:
            self.announced = part.appends[-1].sequence
        if part.stored:
            self.appended += len(part.stored)
            self.appended_bytes += _size(part.stored)
            self.kept.committed(part.stored)
            for durable in self.durables:
                durable.take_in(part.stored, part.senders)
        if part.appends:
            for source in list(self._plain):
                source.offer(part.appends, part.senders)
            if not self.is_subscribed:
                self.core.advisories.no_consumer(self.destination, self.policy, part.appends)

    def recount(self, lanes: dict[int, LaneBatch]) -> None:
        """A commit has changed its records, and says how many there are now in some of its lanes."""
        for lane, batch in lanes.items():
            before, state = self._states[lane], batch.state
            self._states[lane] = state
            self.core.charge_stored(state.bytes - before.bytes)
            self.depth += state.count - before.count
            self.bytes += state.bytes - before.bytes

    def commit_failed(self, part: TopicPart, restored: set[int]) -> None:
        """A commit failed: what was sent in it is refused, the rest is put into the next commit."""
        if part.appends:  # no message ever has these sequences: no ack set is to wait for them
            for durable in self.durables:
                durable.skip(part.appends[0].sequence, part.appends[-1].sequence)
        self._open.removals.update(part.removals)
        for message in part.transferred:
            self.transfer(message.content, message.expiration, message.priority, message.persistent)
        if part.stored:  # the failed commit's mark, which will be tried again, counts what is refused
            self._counts_changed = True
        self.core.list_part(self._open)

    # Records are done with.

    def remove_records(self, lanes: dict[int, int]) -> None:
        """A holder needs some records no more: those that no other holder needs are removed with the open commit."""
        if done := self.done_by_all(list(lanes)):
            self._open.removals.update([(sequence, lanes[sequence]) for sequence in done])
            self.core.list_part(self._open)

    def done_by_all(self, sequences: list[int]) -> list[int]:
        """Those of some sequences that no holder needs.

        The holder that needed a record last time is asked first. So a record costs little as long as one holder needs
        it, and one question to every holder when it goes.
        """
        for index, holder in enumerate(self._holders):
            sequences = holder.done_of(sequences)
            if not sequences:
                self._holders.insert(0, self._holders.pop(index))
                break
        return sequences

    def write_counts(self) -> None:
        """What its mark says has changed: store it with the open commit."""
        self._counts_changed = True
        self.core.list_part(self._open)

    def sweep(self, first: int, last: int, done: Callable[[], None] | None = None) -> None:
        """Many records may be needed no more: look at them step by step (``LaneSweep``)."""
        LaneSweep(self, first, last, done)

    def expire(self, records: list[Message]) -> None:
        """Records have expired that no consumer has in flight: those that only the topic itself keeps are removed.

        Args:
            records: which, in order, with their priorities; their contents are not looked at.
        """
        sequences = [record.sequence for record in records]
        for holder in [holder for holder in self._holders if holder is not self.kept]:
            sequences = holder.done_of(sequences) if sequences else []
        free = set(sequences)
        for part in (self._open, *self.core.parts_of(self)):
            free.difference_update(free & part.removals.keys())
        if free:
            gone = [record for record in records if record.sequence in free]
            self._open.removals.update([(record.sequence, self.lane_of(record.priority)) for record in gone])
            self.core.list_part(self._open)
            self.kept.expired(gone)

    # Subscriptions come and go.

    @property
    def subscriptions(self) -> list[Subscription]:
        """All its consumers that are there."""
        plain = [source.subscription for source in self._plain]
        return plain + [subscription for durable in self.durables for subscription in durable.subscriptions]

    @property
    def consumer_count(self) -> int:
        """How many consumers are there."""
        return len(self._plain) + sum([len(durable.subscriptions) for durable in self.durables])

    @property
    def is_subscribed(self) -> bool:
        """Whether anybody gets what is sent."""
        return bool(self._plain or self.durables)

    @property
    def plain(self) -> list[TopicSubscription]:
        """Its plain subscriptions, in the order they came."""
        return list(self._plain)

    @property
    def pending(self) -> int:
        """How many messages wait for its plain subscriptions, each one counted once for every one of them."""
        return sum([len(source.pending) for source in self._plain])

    def subscribe(
        self, session: Session, *, id: str, number: int = 0, ack: AckMode = AckMode.AUTO, prefetch: int = 32767,
        selector: Selector | None = None, no_local: bool = False, priority: int = 0, retroactive: bool = False,
        maximum_pending: int | None = None, kind: Callable[..., Subscription] = Subscription,
    ) -> Subscription:  # fmt: skip
        """A consumer comes. It gets what is sent from now on; if it is retroactive, what is kept before that.

        Args:
            selector: which messages it wants; None for all.
            no_local: whether it does not want what its own session sends.
            retroactive: whether it first gets what the topic keeps. The policy may say so for all.
            maximum_pending: how many messages wait beyond its prefetch; -1 for any number, None for what the policy
                says.
        """
        recovery, start = None, self._next_sequence
        if retroactive or self.policy.always_retroactive:
            recovery, start = self._recovery(), self.announced + 1
        source = TopicSubscription(self, start, no_local=no_local, maximum_pending=maximum_pending, recovery=recovery)
        subscription = kind(
            session, source, id=id, number=number, ack=ack, prefetch=prefetch, priority=priority, selector=selector
        )
        self._plain[source] = None
        self._no_local += no_local
        source.attach(subscription)
        return subscription

    def _recovery(self) -> Recovery | None:
        """What a retroactive consumer gets first, if anything is kept."""
        first, last = self.kept.window()
        if first > last:
            return None
        recovery = Recovery(self, first, last, self._end_recovery)
        self._holders.append(recovery)
        return recovery

    def leave(self, source: TopicSubscription) -> None:
        """A plain subscription has ended."""
        del self._plain[source]
        self._no_local -= source.no_local

    def add_durable(self, durable: DurableSubscription) -> None:
        """A durable subscription is there from now on, whether anybody consumes it or not."""
        self.durables.append(durable)
        self._holders.append(durable)
        if (highest := durable.finished.highest) >= self._next_sequence:  # a message whose record is gone had it
            self._next_sequence, self.filled_to, self.announced = highest + 1, highest, highest
        self._no_local += durable.no_local

    def remove_durable(self, durable: DurableSubscription) -> None:
        """A durable subscription is removed."""
        self.durables.remove(durable)
        self._holders.remove(durable)
        self._no_local -= durable.no_local

    def _end_recovery(self, recovery: Recovery) -> None:
        """A retroactive consumer has what was kept, or is gone: what was held for it may go."""
        self._holders.remove(recovery)
        if recovery.has_more:
            self.sweep(*recovery.left)


def _size(messages: list[Message]) -> int:
    return sum([message.size for message in messages])
