"""A durable subscription: it gets everything that is sent to its topic, whether its consumer is there or not.

A record of the topic's lane goes when the topic and all its subscriptions are done with it.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol
from weakref import ref

from quire.broker.core.destination_ledger import DestinationLedger
from quire.broker.core.subscription import Session
from quire.broker.dead_letter import send_dead_letters
from quire.broker.queues.damage_report import DamageReport
from quire.broker.queues.dispatch_handlers import DispatchHandlers
from quire.broker.queues.lane_subscription import LaneOwner, LaneSubscription
from quire.broker.queues.subscription_lane import shell
from quire.broker.topics.durable_progress import Definition, DurableProgress, Progress, RecordCounts, durable_keys
from quire.broker.topics.topic_part import Senders
from quire.broker.topics.topic_records import RecordOwner
from quire.cursors.ack_set import AckSet
from quire.message import Message
from quire.selectors import selector
from quire.settings import Policy


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
        facts = {"topic": topic.destination.name, "client": definition.client_id, "subscription": definition.name}
        text = f"durable subscription {definition.name} of {definition.client_id} to topic {topic.destination.name}"
        super().__init__(
            topic.core, topic, durable_keys(number), finished, self._progress.left(), self._progress,
            self._progress.dispatch_marks(), wanted, _own_policy(topic.policy), self._ledger(),
            DamageReport("subscription.damaged", text, facts),
            handlers=DispatchHandlers(consumers_changed=self._note_consumer),
        )  # fmt: skip

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
        free = self.locator.free_of(list(wanted))
        messages = [shell(wanted[sequence]) for sequence in free]
        self._settled.set_states(messages)
        self.withdrawal.take_out(free)
        self.withdrawal.removed(messages)
        cause = "expired before it could be delivered"
        send_dead_letters(self.core, self, messages, "expired", cause, subscriber=self.subscriber)
        return len(messages), len(wanted) - len(free)

    # It comes, its consumer comes and goes.

    def note_change(self) -> None:
        """Store what it is with the open commit."""
        self.commits.list()

    def _note_consumer(self) -> None:
        """Its consumer came, or has gone: how long it has none is known, and which connection had it last."""
        for subscription in self.subscriptions:
            self._own = ref(subscription.session)
        self._progress.offline_since = 0 if self.subscriptions else self.core.wall.believed_ms()
        self.commits.list()
        self.registry.watch(self)


def _own_policy(policy: Policy) -> Policy:
    """The policy of a durable subscription: without what only makes sense where a queue has a lane and consumers."""
    return replace(
        policy, redelivery_at="in-place", consumers_before_dispatch_starts=0, time_before_dispatch_starts=0.0,
    )  # fmt: skip
