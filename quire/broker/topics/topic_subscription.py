"""A plain subscription of a topic: it gets what is sent while it is there.

What it cannot take at once waits in memory, up to a limit; beyond it messages are discarded and counted. So a slow
subscription keeps neither the publisher nor the other subscriptions waiting.
"""

import logging
from typing import Protocol

from quire.broker.core.core import Core
from quire.broker.core.destination_ledger import DestinationLedger
from quire.broker.core.subscription import AckMode, Subscription
from quire.broker.dead_letter import send_dead_letters
from quire.broker.queues.lane_dispatch import READ_AGAIN
from quire.broker.queues.redelivery import count_deliveries
from quire.broker.queues.redelivery_delay import redelivery_delay_ms
from quire.broker.topics.eviction import pending_messages
from quire.broker.topics.recovery import Recovery
from quire.broker.topics.returned_messages import ReturnedMessages
from quire.broker.topics.shared_messages import SharedMessages
from quire.broker.topics.topic_part import Senders
from quire.cursors.memory_usage import MemoryUsage
from quire.destination import Destination
from quire.errors import StoreError
from quire.logs import event
from quire.message import Message
from quire.settings import Policy
from quire.store.base import Delivery

SLICE = 64
"""How many messages are given out before the connection is asked again whether it takes more."""

PENDING_LIMIT = "pending-limit"
"""Why a message was discarded: too many were waiting (``maximum_pending_messages``)."""

MEMORY_LIMIT = "memory-limit"
"""Why a message was discarded: it found no memory."""


class PlainTopic(Protocol):
    """The topic of a plain subscription: it counts what becomes of messages.

    Attributes:
        core: the core.
        destination: its address.
        policy: what applies to it.
        ledger: where events of its messages are noted; None if its policy does not ask for it.
        memory: its node of the memory tree.
        shared: what its plain subscriptions have in memory.
    """

    core: Core
    destination: Destination
    policy: Policy
    ledger: DestinationLedger | None
    memory: MemoryUsage
    shared: SharedMessages
    dequeued: int
    dispatched: int
    redelivered: int
    expired: int
    dead_lettered: int
    suppressed: int
    discarded: dict[str, int]

    @property
    def is_dead_letter_queue(self) -> bool:
        """Whether dead letters go to it."""

    def leave(self, source: "TopicSubscription") -> None:
        """A plain subscription has ended."""


class TopicSubscription:
    """What one consumer of a topic consumes; it ends with the consumer.

    Args:
        start: the first sequence it gets live.
        no_local: whether it does not get what its own session sends.
        maximum_pending: how many messages wait beyond its prefetch; -1 for any number, None for what the policy says.
        recovery: the kept messages that it gets first; None for none.

    Attributes:
        destination: the topic's address.
        policy: what applies to the topic.
        subscription: its consumer; set by ``attach``.
        subscriptions: its consumer, as long as it is there.
        pending: what waits for credit.
        dequeued: how many messages were acknowledged.
        discarded: how many were discarded, by cause.
    """

    subscription: Subscription

    def __init__(
        self, topic: PlainTopic, start: int, *, no_local: bool, maximum_pending: int | None, recovery: Recovery | None
    ) -> None:
        self.core = topic.core
        self.topic = topic
        self.destination = topic.destination
        self.policy = topic.policy
        self.no_local = no_local
        self.subscriptions: list[Subscription] = []
        self.pending = pending_messages(topic.policy)
        self.dequeued = 0
        self.discarded = {PENDING_LIMIT: 0, MEMORY_LIMIT: 0}
        self._start = start
        self._maximum_pending = topic.policy.maximum_pending_messages if maximum_pending is None else maximum_pending
        self._recovery = recovery
        self._returned = ReturnedMessages(topic.core, self.wake, prioritized=topic.policy.prioritized_messages)
        self._held = 0
        self._is_refused = self._has_fault = False

    def attach(self, subscription: Subscription) -> None:
        """The consumer is there; kept messages go out at the end of the turn."""
        self.subscription = subscription
        self.subscriptions.append(subscription)
        self.wake()

    @property
    def in_flight(self) -> int:
        """How many messages its consumer has."""
        return len(self.subscription.in_flight)

    @property
    def depth(self) -> int:
        """How many messages it has in memory, those in flight included."""
        return self.in_flight + len(self.pending) + len(self._returned)

    # Messages come.

    def offer(self, messages: list[Message], senders: Senders) -> None:
        """Take what was committed to the topic."""
        wanted = self._wanted(messages, senders)
        if self.subscription.ack is AckMode.AUTO and self._is_caught_up:
            wanted = self._pass_on(wanted)
        if wanted:
            for message in wanted:
                self._await(message)
            self.dispatch()
            self._keep_limit()
            self.core.dispatch.watch(self)

    def _wanted(self, messages: list[Message], senders: Senders) -> list[Message]:
        if messages[0].sequence < self._start:
            messages = [message for message in messages if message.sequence >= self._start]
        if self.no_local:
            own = self.subscription.session
            messages = [message for message in messages if senders.get(message.sequence) is not own]
        if (selector := self.subscription.selector) is not None:
            messages = [message for message in messages if selector.matches(message)]
        return messages

    @property
    def _is_caught_up(self) -> bool:
        """Whether nothing comes before what is sent now."""
        return self._recovery is None and not (self.pending or self._returned)

    def _pass_on(self, messages: list[Message]) -> list[Message]:
        """Deliver what the consumer has credit for at once: what no consumer acknowledges takes no memory."""
        given = 0
        while given < len(messages) and (credit := self.subscription.credit) > 0:
            share = messages[given : given + min(credit, SLICE)]
            given += len(share)
            self._deliver(self._unexpired(share)[0])
        return messages[given:]

    def _await(self, message: Message) -> None:
        """A message waits. If it finds no memory, one goes: this or another one, as the strategy says."""
        self.pending.append(message)
        if self._hold(message):
            return
        victim = self.pending.evict()
        self._discard(victim, MEMORY_LIMIT, held=victim is not message)
        if victim is not message and not self._hold(message):
            self.pending.discard(message)
            self._discard(message, MEMORY_LIMIT, held=False)

    def _keep_limit(self) -> None:
        """Discard what waits above the limit."""
        while len(self.pending) > self._maximum_pending >= 0:
            self._discard(self.pending.evict(), PENDING_LIMIT, held=True)

    def _discard(self, message: Message, cause: str, *, held: bool) -> None:
        if held:
            self._release([message])
        if not any(self.discarded.values()):
            name = self.destination.name
            facts = {"topic": name, "connection": self.subscription.session.name, "subscription": self.subscription.id}
            text = f"a slow subscription of topic {name} loses messages: {cause}"
            event("subscription.discards", text, logging.WARNING, cause=cause, **facts)
        self.discarded[cause] += 1
        self.topic.discarded[cause] += 1
        self.core.advisories.message_discarded(self.subscription, message, sum(self.discarded.values()))

    # Memory.

    def _hold(self, message: Message) -> bool:
        """Reserve memory for a message, whether it fits or not if the subscription has no other one."""
        held = self.topic.shared.hold(message, force=not self._held)
        self._held += held
        return held

    def _release(self, messages: list[Message]) -> None:
        self._held -= len(messages)
        self.topic.shared.release(messages)

    def _memory_released(self) -> bool:
        """Memory was released: try again. Whether nothing is refused any more."""
        self._is_refused = False
        self.dispatch()
        return not self._is_refused

    # They go out.

    def wake(self) -> None:
        """Dispatch at the end of this turn, if there may be something to dispatch."""
        if self.subscriptions and not self._is_caught_up:
            self.core.dispatch.wake(self)

    def dispatch(self) -> None:
        """Give out what the consumer has credit for: what came back, then kept messages, then what waits.

        By priority, what came back comes before what waits of the same priority.
        """
        if not self.subscriptions:
            return
        self._returned.recall_due()
        if self._returned.delayed and self.policy.blocking_redelivery:
            return
        if self._recovery is not None:
            while self._returned.ready and self.subscription.credit > 0:
                self._give([self._returned.ready.popleft()])
            self._recover(self._recovery)
        while self._recovery is None and (run := self._next_run(self.subscription.credit)):
            self._give(run)

    def _next_run(self, credit: int) -> list[Message]:
        """What comes next, of what came back and of what waits, if there is credit."""
        if credit <= 0:
            return []
        ready = self._returned.ready
        if ready and ready[0].priority >= self.pending.first_priority:
            return [ready.popleft()]
        return self.pending.take(min(credit, SLICE), ready[0].priority if ready else -1)

    def _recover(self, recovery: Recovery) -> None:
        """Give out kept messages, as far as credit and memory go."""
        try:
            while recovery.has_more and (credit := self.subscription.credit) > 0:
                room = self.topic.memory.available()
                if self._held and not recovery.fits(room):
                    self._is_refused = True
                    self.topic.memory.wait(self._memory_released)
                    return
                selector = self.subscription.selector
                messages = [
                    message for message in recovery.read(min(credit, SLICE), room)
                    if selector is None or selector.matches(message)
                ]  # fmt: skip
                self._has_fault = False
                for message in messages:
                    self._held += self.topic.shared.hold(message, force=True)
                self._give(messages)
        except StoreError as fault:
            self._report(fault)
        if not recovery.has_more:
            self._recovery = None
            recovery.close()

    def _report(self, fault: StoreError) -> None:
        """Kept messages cannot be read: they are read again a second later. Say so once."""
        self.core.scheduler.call_later(READ_AGAIN, self.wake)
        if not self._has_fault:
            name = self.destination.name
            text = f"a retroactive subscription of topic {name} waits: {fault} {fault.entry.advice}"
            event("subscription.waits", text, logging.ERROR, topic=name, **fault.data)
        self._has_fault = True

    def _give(self, messages: list[Message]) -> None:
        """Give out messages that memory is held for."""
        messages, expired = self._unexpired(messages)
        self._release(expired)
        if self.subscription.ack is AckMode.AUTO:
            self._deliver(messages)
            self._release(messages)
            return
        shells = [message if message.redelivered else _shell(message) for message in messages]
        self.subscription.in_flight.update([(message.sequence, message) for message in shells])
        self._deliver(shells)

    def _deliver(self, messages: list[Message]) -> None:
        if not messages:
            return
        subscription = self.subscription
        if not subscription.prefetch:
            subscription.pulled -= len(messages)
        self.topic.dispatched += len(messages)
        if self.topic.ledger is not None:
            self.topic.ledger.dispatched(subscription, messages)
        subscription.session.deliver(subscription, messages)
        if subscription.ack is AckMode.AUTO:
            self._note_done(messages)

    def _unexpired(self, messages: list[Message]) -> tuple[list[Message], list[Message]]:
        """What of some messages has not expired, and what has."""
        if not any([message.expiration for message in messages]):
            return messages, []
        now = self.core.wall.past_ms()
        expired = [message for message in messages if 0 < message.expiration <= now]
        self._count_expired(expired)
        return [message for message in messages if not 0 < message.expiration <= now], expired

    def _count_expired(self, messages: list[Message]) -> None:
        self.topic.expired += len(messages)
        for message in messages:
            self.core.advisories.expired(self.destination, self.policy, message)

    # They are settled.

    def acknowledge(self, messages: list[Message]) -> None:
        """Messages are done with."""
        self._note_done(messages)
        self._release(messages)
        self.wake()

    def _note_done(self, messages: list[Message]) -> None:
        self.dequeued += len(messages)
        self.topic.dequeued += len(messages)
        if self.topic.ledger is not None:
            self.topic.ledger.acknowledged(messages, self.subscription)

    def dead_letter(self, messages: list[Message], reason: str, cause: str) -> None:
        """Messages cannot be delivered. Those that failed become dead letters; expired ones are dropped."""
        self._release(messages)
        if reason == "expired":
            self._count_expired(messages)
        else:
            send_dead_letters(self.core, self.topic, messages, reason, cause)
        self.wake()

    # Or they come back.

    def redeliver(
        self, messages: list[Message], failed: int, cause: str, *, at_once: bool = True, delay_ms: int | None = None
    ) -> None:
        """Messages were not acknowledged, or rejected: the same consumer gets them again, flagged, before later ones.

        Args:
            failed: how many of the first of them count as failed deliveries.
            at_once: whether those that failed need not wait for the delay of their policy.
        """
        self.topic.redelivered += len(messages)
        maximum = -1 if self.topic.is_dead_letter_queue else self.policy.maximum_redeliveries
        messages, failed = count_deliveries(messages, failed, cause, maximum, self.dead_letter)
        back = []
        for index, message in enumerate(messages):
            if index < failed and not at_once and (delay := self._delay_of(message, delay_ms)):
                self._returned.delay(message, delay)
            else:
                back.append(message)
        self._returned.add(back)
        self.wake()

    def _delay_of(self, message: Message, delay_ms: int | None) -> int:
        return redelivery_delay_ms(self.policy, message.failures, self.core.random) if delay_ms is None else delay_ms

    def note_delivery(self, message: Message, state: Delivery) -> None:
        """Nothing of a plain subscription is stored."""

    def restore(self, messages: list[Message]) -> None:
        """The transaction failed in which messages were acknowledged: they are here again, if the consumer is."""
        if self.subscriptions:
            for message in messages:
                self._held += self.topic.shared.hold(message, force=True)
            self.redeliver(messages, 0, "the transaction of its acknowledgement failed")

    def remove(self, subscription: Subscription, cause: str, *, lost: bool) -> None:
        """The consumer goes, and with it what it had and what waited for it."""
        if not self.subscriptions:
            return
        self.subscriptions.clear()
        messages = [*subscription.in_flight.values(), *self.pending.clear(), *self._returned.clear()]
        subscription.in_flight.clear()
        self._release(messages)
        if self._recovery is not None:
            self._recovery.close()
            self._recovery = None
        self.topic.memory.stop_waiting(self._memory_released)
        self.core.dispatch.forget(self)
        self.topic.leave(self)


def _shell(message: Message) -> Message:
    """A message of its own for one subscription, with the same content: what it knows of deliveries is its own."""
    shell = Message(message.sequence, message.content, message.expiration, message.priority, message.persistent)
    shell.stored = False
    return shell
