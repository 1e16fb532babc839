"""A durable subscription: it gets everything that is sent to its topic, whether its consumer is there or not.

A record of the topic's lane goes when everybody is done with it.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

import msgspec

from quire.broker.core.commit import Commit
from quire.broker.core.destination_ledger import DestinationLedger
from quire.broker.core.subscription import Subscription
from quire.broker.dead_letter import send_dead_letters
from quire.broker.queues.lane_records import LaneKeys
from quire.broker.queues.lane_subscription import LaneOwner, LaneSubscription
from quire.broker.queues.queue_part import QueuePart
from quire.broker.queues.subscription_lane import shell
from quire.broker.topics.topic_part import Senders
from quire.broker.topics.topic_records import RecordOwner
from quire.cursors.ack_set import AckSet
from quire.errors import StoreError
from quire.logs import event
from quire.message import Message
from quire.selectors import selector
from quire.settings import Policy
from quire.store.base import LaneBatch, LaneState

DEFINITIONS = "sub/h/"
"""What the keys of the marks begin with that say which durable subscriptions there are."""

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
        dispatch_mark: records up to this sequence may have been delivered, if the topic has one lane.
        offline_since: since when it has no consumer, in milliseconds since the epoch; 0 while it has one.
        lane_marks: as the dispatch mark, for each of ten lanes.
    """

    finished: int = 0
    finished_bytes: int = 0
    dispatch_mark: int = 0
    offline_since: int = 0
    lane_marks: tuple[int, ...] = ()


def definition_key(number: int) -> str:
    """The key of the mark that says what a durable subscription is."""
    return f"{DEFINITIONS}{number}"


def durable_keys(number: int) -> LaneKeys:
    """The keys of the other marks of a durable subscription."""
    return LaneKeys(progress=f"sub/c/{number}", pages=f"sub/a/{number}/", states=f"sub/d/{number}/")


class Registry(Protocol):
    """What a durable subscription needs of all of them."""

    def watch(self, durable: "DurableSubscription") -> None:
        """It has a consumer, or has none any more, or another policy."""
        ...

    def drop(self, durable: "DurableSubscription") -> None:
        """Remove it; it has no consumer."""
        ...


class DurableTopic(LaneOwner, RecordOwner, Protocol):
    """The topic of a durable subscription.

    Attributes:
        appended: how many records it ever had.
        appended_bytes: their sizes.
    """

    appended: int
    appended_bytes: int

    def recount(self, lanes: dict[int, LaneBatch]) -> None:
        """A commit has changed its records, and says how many there are now in some of its lanes."""
        ...

    def sweep(self, first: int, last: int, done: Callable[[], None] | None = None) -> None:
        """Many records may be needed no more: look at them step by step."""
        ...

    def add_durable(self, durable: "DurableSubscription") -> None:
        """A durable subscription is there from now on."""
        ...

    def remove_durable(self, durable: "DurableSubscription") -> None:
        """A durable subscription is removed."""
        ...


class DurableSubscription(LaneSubscription):
    """One durable subscription.

    Args:
        definition: what it is. Its first commit fills in how many records the topic has had, if that is not known.
        progress: how far it has come; None if it is new.

    Attributes:
        topic: as given.
        definition: as given.
        number: as given.
        offline_since: since when it has no consumer, in milliseconds since the epoch; 0 while it has one.
    """

    def __init__(
        self,
        registry: Registry,
        topic: DurableTopic,
        number: int,
        definition: Definition,
        progress: Progress | None,
        finished: AckSet,
    ) -> None:
        self.registry = registry
        self.topic = topic
        self.definition = definition
        self.number = number
        self._is_stored = progress is not None
        self._progress = progress or Progress()
        self.offline_since = self._progress.offline_since or topic.core.clock.now_ms()
        wanted = None if definition.selector is None else selector(definition.selector)
        self.subscriber = ".".join(self.key)
        policy, ledger = _own_policy(topic.policy), self._ledger()
        keys, found = durable_keys(number), self._state()
        super().__init__(topic.core, topic, keys, finished, found, self._marks(), wanted, policy, ledger)

    def _state(self) -> LaneState:
        """What is left of the topic's records."""
        count = size = 0
        if self.definition.appended >= 0:
            count = self.topic.appended - self.definition.appended - self._progress.finished
            size = self.topic.appended_bytes - self.definition.appended_bytes - self._progress.finished_bytes
        return LaneState(count=count, bytes=size)

    def _marks(self) -> tuple[int, ...]:
        """The dispatch marks that the store has; none is left where the topic has got other lanes: it was empty."""
        count, stored = len(self.topic.lanes), self._progress
        marks = (stored.dispatch_mark,) if count == 1 else stored.lane_marks
        return marks if len(marks) == count else (0,) * count

    def _ledger(self) -> DestinationLedger | None:
        return self.topic.core.ledger.of(self.topic.destination, subscriber=self.subscriber)

    def policy_changed(self) -> None:
        """Another policy applies from now on."""
        self.policy = _own_policy(self.topic.policy)
        self.ledger = self._ledger()
        self.registry.watch(self)
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

    # Messages come.

    def take_in(self, stored: list[Message], senders: Senders) -> None:
        """Take what was committed to the topic."""
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
            self._pass_over(stored, wanted)
        if wanted:
            self._admit(wanted)
        self.wake()

    # What is settled is stored.

    def fill(self, commit: Commit) -> None:
        """Put what has gathered into a commit."""
        part, marks = self._open, commit.batch.marks
        super().fill(commit)
        marks[self.keys.progress] = msgspec.msgpack.encode(self._progress_after(part))
        if not self._is_stored:
            self._is_stored = True
            marks[definition_key(self.number)] = msgspec.msgpack.encode(self._defined())

    def _progress_after(self, part: QueuePart) -> Progress:
        """How far it has come when a commit is done."""
        size = sum([message.size for message in part.removals])
        finished, finished_bytes = self._progress.finished + len(part.removals), self._progress.finished_bytes + size
        marks = self._dispatch_marks_after(part)
        if len(marks) == 1:
            return Progress(finished, finished_bytes, marks[0], self.offline_since)
        return Progress(finished, finished_bytes, 0, self.offline_since, tuple(marks))

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
        if part.owned is not None:
            self.topic.recount(part.owned)

    def expire(self, records: list[Message]) -> tuple[int, int]:
        """Finish messages that have expired, but for those in flight.

        Args:
            records: of one lane, in order; each subscription makes messages of its own of them. They have contents if a
                dead letter or an advisory needs these.

        Raises:
            StoreError: its delivery states cannot be read. Nothing has changed.
        """
        wanted = {record.sequence: record for record in records if record.sequence not in self.finished}
        free = self.locator.free_of(list(wanted))
        messages = [shell(wanted[sequence]) for sequence in free]
        if messages:
            self.lane_of(messages[0]).reader.set_states(messages)
        self.take_out(free)
        self.removed(messages)
        cause = "expired before it could be delivered"
        send_dead_letters(self.core, self, messages, "expired", cause, subscriber=self.subscriber)
        return len(messages), len(wanted) - len(free)

    # It comes, its consumer comes and goes.

    def note_change(self) -> None:
        """Store what it is with the open commit."""
        self.core.list_part(self._open)

    def add(self, subscription: Subscription) -> None:
        """Its consumer comes."""
        self.offline_since = 0
        self.core.list_part(self._open)
        super().add(subscription)

    def remove(self, subscription: Subscription, cause: str, *, lost: bool) -> None:
        """Its consumer goes; what it had in flight comes back."""
        super().remove(subscription, cause, lost=lost)
        self.offline_since = self.core.clock.now_ms()
        self.registry.watch(self)

    def _tell_of(self, fault: StoreError) -> None:
        topic, (client, name) = self.destination.name, self.key
        text = f"durable subscription {name} of {client} to topic {topic}: {fault} {fault.entry.advice}"
        facts = {"topic": topic, "client": client, "subscription": name}
        event("subscription.damaged", text, logging.ERROR, **facts, **fault.data)


def _own_policy(policy: Policy) -> Policy:
    """The policy of a durable subscription: without what only makes sense where a queue has a lane and consumers."""
    return replace(
        policy, redelivery_at="in-place", consumers_before_dispatch_starts=0, time_before_dispatch_starts=0.0,
    )  # fmt: skip
