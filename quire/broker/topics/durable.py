"""A durable subscription: it gets everything that is sent to its topic, whether its consumer is there or not.

A record of the topic's lane goes when the topic and all its subscriptions are done with it. How far the subscription
has come, and what it is, stands in the store as the marks ``sub/...`` (``DurableProgress``).
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol
from weakref import ref

import msgspec

from quire.broker.core.destination_ledger import DestinationLedger
from quire.broker.core.subscription import Session
from quire.broker.dead_letter import send_dead_letters
from quire.broker.queues.queue import DamageReport, QueuePart
from quire.broker.queues.shared_lane import LaneKeys, LaneOwner, LaneSubscription, shell
from quire.broker.topics.topic_records import RecordOwner, Senders
from quire.cursors.ack_set import AckSet
from quire.message import Message
from quire.selectors import selector
from quire.settings import Policy
from quire.store.base import LaneBatch, LaneState, WriteBatch

DEFINITIONS = "sub/h/"
"""What the keys of the marks begin with that say which durable subscriptions there are."""


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
        owner: the user who made it; empty if there were no users.
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
    owner: str = ""


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


class RecordCounts(Protocol):
    """The counts of a topic's records.

    Attributes:
        appended: how many records it ever had.
        appended_bytes: their sizes.
    """

    appended: int
    appended_bytes: int

    @property
    def lanes(self) -> tuple[int, ...]:
        """Its lanes' ids."""

    def recount(self, lanes: dict[int, LaneBatch]) -> None:
        """A commit has changed its records, and says how many there are now in some of its lanes."""


class DurableProgress:
    """How far one durable subscription has come. What it is is stored with it for the first time.

    Args:
        stored: how far it has come; None if it is new.

    Attributes:
        definition: what it is. The first commit fills in how many records the topic has had, if that is not known.
        offline_since: since when it has no consumer, in milliseconds since the epoch; 0 while it has one.
        is_stored: whether a commit has stored it.
    """

    def __init__(
        self, topic: RecordCounts, number: int, definition: Definition, stored: Progress | None, now_ms: int
    ) -> None:
        self.definition = definition
        self._topic = topic
        self._number = number
        self._key = durable_keys(number).progress
        self.is_stored = self._is_written = stored is not None
        self._stored = stored or Progress()
        self._earlier = (0, 0)  # how many records its first commit has that were sent before it came, and their sizes
        self.offline_since = min(self._stored.offline_since or now_ms, now_ms)

    def left(self) -> LaneState:
        """What is left of the topic's records."""
        count = size = 0
        if self.definition.appended >= 0:
            count = self._topic.appended - self.definition.appended - self._stored.finished
            size = self._topic.appended_bytes - self.definition.appended_bytes - self._stored.finished_bytes
        return LaneState(count=count, bytes=size)

    def dispatch_marks(self) -> tuple[int, ...]:
        """The dispatch marks that the store has; none is left where the topic has got other lanes: it was empty."""
        count, stored = len(self._topic.lanes), self._stored
        marks = (stored.dispatch_mark,) if count == 1 else stored.lane_marks
        return marks if len(marks) == count else (0,) * count

    def write(self, part: QueuePart, dispatch_marks: list[int], batch: WriteBatch) -> None:
        """Put it into a batch, as it is when the commit is done."""
        if not self.is_stored:
            self._note_earlier(batch)
        finished, size = self._finished_after(part)
        own, lane_marks = (dispatch_marks[0], ()) if len(dispatch_marks) == 1 else (0, tuple(dispatch_marks))
        progress = Progress(finished, size, own, self.offline_since, lane_marks)
        batch.marks[self._key] = msgspec.msgpack.encode(progress)
        if not self._is_written:
            self._is_written = True
            batch.marks[definition_key(self._number)] = msgspec.msgpack.encode(self._defined())

    def committed(self, part: QueuePart) -> None:
        """A commit is done."""
        self.is_stored = True
        self._stored, self._earlier = Progress(*self._finished_after(part)), (0, 0)
        if part.owned is not None:
            self._topic.recount(part.owned)

    def _finished_after(self, part: QueuePart) -> tuple[int, int]:
        """How many records it has finished when a commit is done, and their sizes."""
        count, size = self._earlier
        size += sum([message.size for message in part.removals])
        return self._stored.finished + count + len(part.removals), self._stored.finished_bytes + size

    def _note_earlier(self, batch: WriteBatch) -> None:
        """Count what others need of what was sent before it came, and is in its first commit: it has finished that."""
        lanes = [batch.lanes[id] for id in self._topic.lanes if id in batch.lanes]
        earlier = [m.size for lane in lanes for m in lane.appends if m.sequence <= self.definition.start]
        self._earlier = len(earlier), sum(earlier)

    def _defined(self) -> Definition:
        """What it is; no commit is under way now, so the records that the topic has had are those up to its start."""
        if self.definition.appended < 0:
            counts = {"appended": self._topic.appended, "appended_bytes": self._topic.appended_bytes}
            self.definition = msgspec.structs.replace(self.definition, **counts)
        return self.definition


class Registry(Protocol):
    """What a durable subscription needs of all of them."""

    def watch(self, durable: "DurableSubscription") -> None:
        """It has a consumer, or has none any more, or another policy."""

    def drop(self, durable: "DurableSubscription") -> None:
        """Remove it; it has no consumer."""


class DurableTopic(LaneOwner, RecordOwner, RecordCounts, Protocol):
    """The topic of a durable subscription."""

    def sweep(self, first: int, last: int, done: Callable[[], None] | None = None) -> None:
        """Many records may be needed no more: look at them step by step."""

    def add_durable(self, durable: "DurableSubscription") -> None:
        """A durable subscription is there from now on."""

    def remove_durable(self, durable: "DurableSubscription") -> None:
        """A durable subscription is removed."""


class DurableSubscription(LaneSubscription):
    """One durable subscription.

    Args:
        definition: what it is. Its first commit fills in how many records the topic has had, if that is not known.
        progress: how far it has come; None if it is new.

    Attributes:
        is_leaving: whether it is removed in one of the next steps, with the pattern that it belongs to.
    """

    is_leaving = False
    _progress: DurableProgress

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
        self._own: Callable[[], Session | None] = lambda: None
        self.topic = topic
        self.number = number
        self._progress = DurableProgress(topic, number, definition, progress, topic.core.wall.believed_ms())
        wanted = None if definition.selector is None else selector(definition.selector)
        self.subscriber = ".".join(self.key)
        super().__init__(
            topic.core, topic, durable_keys(number), finished, self._progress.left(), self._progress,
            self._progress.dispatch_marks(), wanted, _own_policy(topic.policy), self._ledger(),
        )  # fmt: skip

    def _damage(self) -> DamageReport:
        (client, name), topic = self.key, self.topic.destination.name
        text = f"durable subscription {name} of {client} to topic {topic}"
        return DamageReport("subscription.damaged", text, {"topic": topic, "client": client, "subscription": name})

    def _ledger(self) -> DestinationLedger | None:
        return self.topic.core.ledger.of(self.topic.destination, subscriber=self.subscriber)

    def policy_changed(self) -> None:
        """Another policy applies from now on."""
        self.take_policy(_own_policy(self.topic.policy), self._ledger(), 0)
        self.registry.watch(self)

    @property
    def definition(self) -> Definition:
        """What it is."""
        return self._progress.definition

    @property
    def offline_since(self) -> int:
        """Since when it has no consumer, in milliseconds since the epoch; 0 while it has one."""
        return self._progress.offline_since

    @property
    def key(self) -> tuple[str, str]:
        """The client id and the name."""
        return self.definition.client_id, self.definition.name

    @property
    def has_been_stored(self) -> bool:
        """Whether a commit has stored what it is: before, a crash forgets it."""
        return self._progress.is_stored

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
        self.bytes += sum([message.size for message in stored])
        wanted = stored
        if self.no_local or self.looks_early:
            own = self._own() if self.no_local else None
            wanted = [m for m in stored if (own is None or senders.get(m.sequence) is not own) and self._wants(m)]
        self._come(stored, wanted)

    def skip(self, first: int, last: int) -> None:
        """Sequences that no message will ever have."""
        self.finished.add_range(first, last)

    def expire(self, records: list[Message]) -> tuple[int, int]:
        """Finish messages that have expired, but for those in flight.

        Args:
            records: of one lane, in order; each subscription makes messages of its own of them. They have contents if a
                dead letter or an advisory needs these.

        Raises:
            StoreError: its delivery states cannot be read. Nothing has changed.
        """
        wanted = {record.sequence: record for record in records if record.sequence not in self.finished}
        free = self.free_of(list(wanted))
        messages = [shell(wanted[sequence]) for sequence in free]
        self._set_states(messages)
        self.take_out(free)
        self.remove_taken_out(messages)
        cause = "expired before it could be delivered"
        send_dead_letters(self.core, self, messages, "expired", cause, subscriber=self.subscriber)
        return len(messages), len(wanted) - len(free)

    # It comes, its consumer comes and goes.

    def note_change(self) -> None:
        """Store what it is with the open commit."""
        self.open_part()

    def _consumer_came_or_left(self) -> None:
        """Its consumer came, or has gone: how long it has none is known, and which connection had it last."""
        for subscription in self.subscriptions:
            self._own = ref(subscription.session)
        self._progress.offline_since = 0 if self.subscriptions else self.core.wall.believed_ms()
        self.open_part()
        self.registry.watch(self)
        self.wake()


def _own_policy(policy: Policy) -> Policy:
    """The policy of a durable subscription: without what only makes sense where a queue has a lane and consumers."""
    return replace(
        policy, redelivery_at="in-place", consumers_before_dispatch_starts=0, time_before_dispatch_starts=0.0,
    )  # fmt: skip
