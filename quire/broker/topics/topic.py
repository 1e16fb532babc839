"""A topic: what is sent to it goes to all its subscriptions.

A message is stored only if a durable subscription needs it, or if the topic keeps messages for retroactive consumers.
It is stored once, however many need it, in the topic's lane, or in that of its priority if the topic is prioritized,
and is removed when the last of them is done with it. Stored or not, it is given out when its commit is done, in the
order of sending.

A **plain subscription** gets what is sent while it is there. What it cannot take at once waits in memory, up to a
limit; beyond it messages are discarded and counted (``pending``). So a slow subscription keeps neither the publisher
nor the other subscriptions waiting.

A **durable subscription** gets everything that is sent, whether its consumer is there or not. How far it has come, and
what it is, stands in the store as the marks ``sub/...`` (``DurableProgress``).

A topic **keeps** its newest messages for retroactive consumers by its subscription recovery policy
(``KeptMessages``). These are records like others, so they outlive the broker. What is remembered of them is where they
begin, how many there are and their size; with the policy ``timed`` also when they came, in a bounded number of steps.
A retroactive consumer gets them before what is sent from then on.

Records that nothing needs any more are removed in steps (``LaneSweep``), for those moments when many lose a holder at
once: a durable subscription is removed, a retroactive consumer leaves early, the broker starts after a crash. No body
is read.
"""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Protocol
from weakref import ref

import msgspec

from quire.broker.core.core import Commit, Core
from quire.broker.core.destination_ledger import DestinationLedger
from quire.broker.core.subscription import AckMode, Session, Subscription
from quire.broker.dead_letter import count_deliveries, is_dead_letter_queue, redelivery_delay_ms, send_dead_letters
from quire.broker.queues.queue import READ_AGAIN, DamageReport, QueuePart
from quire.broker.queues.shared_lane import LaneKeys, LaneSubscription, shell
from quire.broker.topics.pending import ReturnedMessages, SharedMessages, pending_messages
from quire.broker.topics.topic_records import Counts, Place, Senders, TopicPart, TopicRecords, counts_key, read_counts
from quire.cursors.ack_set import AckSet
from quire.cursors.lane import MemoryUsage
from quire.destination import Destination, DestinationKind
from quire.errors import StoreCorrupt, StoreError
from quire.logs import event
from quire.message import MESSAGE_OVERHEAD, Message
from quire.selectors import Selector, selector
from quire.settings import Policy
from quire.store.base import Delivery, LaneBatch, LaneState, StoredDestination, WriteBatch

SWEEP_STEP = 1000
"""How many records one step looks at, at the most."""

QUESTIONS = 20_000
"""How many answers one step may need, of all durable subscriptions together."""


class LaneSweep:
    """One sweep, over a range of sequences. It begins after the open commit: it sees all that was sent before."""

    def __init__(self, topic: "Topic", first: int, last: int, done: Callable[[], None] | None = None) -> None:
        self._topic = topic
        self._position = first
        self._last = last
        self._done = done
        topic.core.after_commit(self._begin)

    def _begin(self) -> None:
        self._topic.core.steps.add(self._step, f"the removal of records of the topic {self._topic.destination.name}")

    def _step(self) -> bool:
        topic = self._topic
        if not topic.is_deleted and self._position <= self._last:
            limit = max(10, min(SWEEP_STEP, QUESTIONS // len(topic.holders)))
            places = topic.records.places(self._position, limit)
            topic.remove_records({place.sequence: place.lane for place in places if place.sequence <= self._last})
            self._position = places[-1].sequence + 1 if len(places) == limit else self._last + 1
            return True
        if self._done is not None:
            self._done()
        return False


PAGE_BYTES = 256 * 1024
"""How many bytes of messages are read at once."""


class Recovery:
    """A walk over the kept messages of a topic. Until it has passed them, they stay."""

    def __init__(self, topic: "Topic", first: int, last: int, closed: Callable[["Recovery"], None]) -> None:
        self._topic = topic
        self._position = first
        self._last = last
        self._closed = closed

    @property
    def has_more(self) -> bool:
        return self._position <= self._last

    def done_of(self, sequences: list[int]) -> list[int]:
        return [sequence for sequence in sequences if not self._position <= sequence <= self._last]

    def fits(self, room: int) -> bool:
        """Whether the next message fits into so much memory, told from its indexed size."""
        places = self._topic.records.places(self._position, 1)
        return not places or places[0].size + MESSAGE_OVERHEAD <= room

    def read(self, limit: int, room: int) -> list[Message]:
        """The next messages, as many as fit into ``room`` bytes but at least one, without those not kept any more.

        A damaged record is passed over, and the log says so.
        """
        try:
            page = self._topic.records.page(self._position, min(max(room, 0), PAGE_BYTES), limit)
        except StoreCorrupt as damage:
            return self._read_before(damage)
        messages = [message for message in page.messages if message.sequence <= self._last]
        past_end = page.end or len(messages) < len(page.messages)
        self._move(self._last + 1 if past_end else messages[-1].sequence + 1, messages)
        return self._young(messages)

    def _read_before(self, damage: StoreCorrupt) -> list[Message]:
        """What stands before a damaged record; if nothing does, the record is passed over."""
        sequence = damage.data["sequence"]
        places = self._topic.records.places(self._position, 1)
        if places and places[0].sequence < sequence:
            messages = self._topic.records.page(self._position, 0, 1).messages
            self._move(messages[0].sequence + 1, messages)
            return self._young(messages)
        name = self._topic.destination.name
        text = f"topic {name}: {damage} A retroactive consumer does not get this message. {damage.entry.advice}"
        event("topic.damaged", text, logging.ERROR, topic=name, **damage.data)
        self._move(sequence + 1, [])
        return []

    def _young(self, messages: list[Message]) -> list[Message]:
        """With the policy ``timed``, those that are not too old: records are let go in steps of time."""
        policy, now = self._topic.policy, self._topic.core.wall.past_ms()
        if policy.subscription_recovery_policy != "timed":
            return messages
        oldest = now - policy.recovery_duration * 1000
        return [message for message in messages if int(message.header(b"timestamp") or 0) > oldest]

    def _move(self, position: int, passed: list[Message]) -> None:
        self._position = position
        self._topic.remove_records({message.sequence: self._topic.lane_of(message.priority) for message in passed})

    @property
    def left(self) -> tuple[int, int]:
        return self._position, self._last

    def close(self) -> None:
        self._closed(self)


LET_GO_AT_ONCE = 1000
"""How many messages are let go at once, beside as many as just came."""

TIME_STEPS = 100
"""Into how many steps the duration of the policy ``timed`` is divided."""


class KeptMessages:
    """The kept messages of one topic.

    Attributes:
        first: the first sequence that is kept; without a policy nothing is, whatever this is.
    """

    def __init__(self, topic: "Topic", first: int, count: int, bytes: int) -> None:
        self.first = first or topic.next_sequence
        self.count = count
        self.bytes = bytes
        self._topic = topic
        self._times: deque[tuple[int, int]] = deque()  # until when messages up to a sequence are kept
        self._late = 0  # the last sequence that was kept for long enough, with that policy
        self._is_timed = self._is_trimming = False
        self._fresh = 0  # how many have come since it was trimmed last
        self._was_keeping = self.is_keeping
        if count:
            self._note_time(topic.next_sequence - 1)
            self._trim_soon()

    @property
    def is_keeping(self) -> bool:
        return self._topic.policy.subscription_recovery_policy != "none"

    def policy_changed(self) -> None:
        if self.is_keeping and not self._was_keeping and not self.count:
            self.first = self._topic.filled_to + 1
        self._was_keeping = self.is_keeping
        self._times.clear()
        if self.count:
            self._note_time(self._topic.announced)
            self._trim_soon()

    def done_of(self, sequences: list[int]) -> list[int]:
        return [sequence for sequence in sequences if sequence < self.first] if self.is_keeping else sequences

    def share(self, stored: list[Message]) -> list[Message]:
        return [message for message in stored if message.sequence >= self.first] if self.is_keeping else []

    def committed(self, stored: list[Message]) -> None:
        if share := self.share(stored):
            self.count += len(share)
            self.bytes += sum([message.size for message in share])
            self._note_time(share[-1].sequence)
            self._fresh += len(share)
            self._note_late()
            if self._has_too_many(self.first, self.count, self.bytes):
                self._trim_soon()

    def _note_time(self, last: int) -> None:
        """Messages up to a sequence have come; those that come soon after are let go together with them."""
        policy = self._topic.policy
        if policy.subscription_recovery_policy == "timed":
            until = self._topic.core.wall.steady_ms() + round(policy.recovery_duration * 1000)
            step = policy.recovery_duration * 1000 / TIME_STEPS
            if self._times and self._times[-1][0] // step == until // step:
                self._times.pop()
            self._times.append((until, last))
            self._wait()

    def _wait(self) -> None:
        if self._times and not self._is_timed:
            self._is_timed = True
            core = self._topic.core
            delay = max(self._times[0][0] - core.wall.steady_ms(), 1) / 1000
            core.scheduler.call_later(delay, self._time_is_up)

    def _time_is_up(self) -> None:
        self._is_timed = False
        self._note_late()
        self._trim_soon()
        self._wait()

    # What goes.

    def _trim_soon(self) -> None:
        if not self._is_trimming:
            self._is_trimming = True
            self._topic.core.steps.add(self._step, f"letting go of what topic {self._topic.destination.name} kept")

    def _step(self) -> bool:
        more = not self._topic.is_deleted and self._trim(LET_GO_AT_ONCE + self._fresh)
        self._fresh, self._is_trimming = 0, more
        return more

    def _trim(self, limit: int) -> bool:
        self._note_late()
        gone = self._surplus(limit)
        if gone:
            self.first = gone[-1].sequence + 1
            self.count -= len(gone)
            self.bytes -= sum([place.size for place in gone])
            self._topic.write_counts()
            self._topic.remove_records({place.sequence: place.lane for place in gone})
        return len(gone) >= limit and self._has_too_many(self.first, self.count, self.bytes)

    def _surplus(self, limit: int) -> list[Place]:
        """The first messages that the policy does not keep any more; nothing changes before all is read."""
        found: list[Place] = []
        position, count, size = self.first, self.count, self.bytes
        while len(found) < limit and self._has_too_many(position, count, size):
            places = self._topic.records.places(position, min(limit - len(found), LET_GO_AT_ONCE))
            for place in places:
                if not self._has_too_many(place.sequence, count, size):
                    return found
                found.append(place)
                count, size = count - 1, size - place.size
            if not places:
                break
            position = places[-1].sequence + 1
        return found

    def _note_late(self) -> None:
        now = self._topic.core.wall.steady_ms()
        while self._times and self._times[0][0] <= now:
            self._late = self._times.popleft()[1]

    def _has_too_many(self, first: int, count: int, size: int) -> bool:
        policy = self._topic.policy
        if not count:
            return False
        match policy.subscription_recovery_policy:
            case "last-image":
                return count > 1
            case "fixed-count":
                return count > policy.recovery_count
            case "fixed-size":
                return size > policy.recovery_size
            case "timed":
                return first <= self._late
            case _:
                return True

    def expired(self, messages: list[Message]) -> None:
        kept = self.share(messages)
        self.count -= len(kept)
        self.bytes -= sum([message.size for message in kept])
        self._topic.write_counts()

    def window(self) -> tuple[int, int]:
        """The first and the last sequence that a retroactive consumer gets; the first is above if there is none."""
        if not self.is_keeping:
            return 1, 0
        self._trim(self.count)
        return self.first, self._topic.announced


SLICE = 64
"""How many messages are given out before the connection is asked again whether it takes more."""

PENDING_LIMIT = "pending-limit"
"""Why a message was discarded: too many were waiting (``maximum_pending_messages``)."""

MEMORY_LIMIT = "memory-limit"
"""Why a message was discarded: it found no memory."""


class TopicSubscription:
    """What one consumer of a topic consumes; it ends with the consumer.

    Args:
        start: the first sequence it gets live.
        no_local: whether it does not get what its own session sends.
        maximum_pending: how many messages wait beyond its prefetch; -1 for any number, None for what the policy says.
        recovery: the kept messages that it gets first; None for none.

    Attributes:
        subscription: its consumer; set by ``attach``.
        subscriptions: its consumer, as long as it is there.
        pending: what waits for credit.
    """

    subscription: Subscription

    def __init__(
        self, topic: "Topic", start: int, *, no_local: bool, maximum_pending: int | None, recovery: Recovery | None
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
        self.subscription = subscription
        self.subscriptions.append(subscription)
        self.wake()

    @property
    def in_flight(self) -> int:
        return len(self.subscription.in_flight)

    @property
    def depth(self) -> int:
        return self.in_flight + len(self.pending) + len(self._returned)

    # Messages come.

    def offer(self, messages: list[Message], senders: Senders) -> None:
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
        held = self.topic.shared.hold(message, force=not self._held)
        self._held += held
        return held

    def _release(self, messages: list[Message]) -> None:
        self._held -= len(messages)
        self.topic.shared.release(messages)

    def _memory_released(self) -> bool:
        self._is_refused = False
        self.dispatch()
        return not self._is_refused

    # They go out.

    def wake(self) -> None:
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
        if credit <= 0:
            return []
        ready = self._returned.ready
        if ready and ready[0].priority >= self.pending.first_priority:
            return [ready.popleft()]
        return self.pending.take(min(credit, SLICE), ready[0].priority if ready else -1)

    def _recover(self, recovery: Recovery) -> None:
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
        self._note_done(messages)
        self._release(messages)
        self.wake()

    def _note_done(self, messages: list[Message]) -> None:
        self.dequeued += len(messages)
        self.topic.dequeued += len(messages)
        if self.topic.ledger is not None:
            self.topic.ledger.acknowledged(messages, self.subscription)

    def dead_letter(self, messages: list[Message], reason: str, cause: str) -> None:
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
        """The same consumer gets them again, flagged, before later ones; the first ``failed`` count as failed."""
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

    def give_back(self, messages: list[Message]) -> None:
        """Messages were given out that no application has seen: the same consumer gets them again, in their places."""
        self._returned.add(messages)
        self.wake()

    def note_delivery(self, message: Message, state: Delivery) -> None:
        """Nothing of a plain subscription is stored."""

    def restore(self, messages: list[Message]) -> None:
        if self.subscriptions:
            for message in messages:
                self._held += self.topic.shared.hold(message, force=True)
            self.redeliver(messages, 0, "the transaction of its acknowledgement failed")

    def remove(self, subscription: Subscription, cause: str, *, lost: bool) -> None:
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
    shell = Message(message.sequence, message.content, message.expiration, message.priority, message.persistent)
    shell.stored = False
    return shell


DEFINITIONS = "sub/h/"
"""What the keys of the marks begin with that say which durable subscriptions there are."""


class Definition(msgspec.Struct, array_like=True, frozen=True):
    """What a durable subscription is: the mark ``sub/h/NUMBER``.

    Attributes:
        no_local: whether it does not want what its own connection sends.
        start: it gets what comes after this sequence.
        appended: how many records the topic had had up to there; -1 while that is not known.
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
    return f"{DEFINITIONS}{number}"


def durable_keys(number: int) -> LaneKeys:
    return LaneKeys(progress=f"sub/c/{number}", pages=f"sub/a/{number}/", states=f"sub/d/{number}/")


class DurableProgress:
    """How far one durable subscription has come. What it is is stored with it for the first time.

    Args:
        stored: how far it has come; None if it is new.

    Attributes:
        definition: what it is. The first commit fills in how many records the topic has had, if that is not known.
        is_stored: whether a commit has stored it.
    """

    def __init__(
        self, topic: "Topic", number: int, definition: Definition, stored: Progress | None, now_ms: int
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
        count = size = 0
        if self.definition.appended >= 0:
            count = self._topic.appended - self.definition.appended - self._stored.finished
            size = self._topic.appended_bytes - self.definition.appended_bytes - self._stored.finished_bytes
        return LaneState(count=count, bytes=size)

    def dispatch_marks(self) -> tuple[int, ...]:
        count, stored = len(self._topic.lanes), self._stored
        marks = (stored.dispatch_mark,) if count == 1 else stored.lane_marks
        return marks if len(marks) == count else (0,) * count

    def write(self, part: QueuePart, dispatch_marks: list[int], batch: WriteBatch) -> None:
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
        self.is_stored = True
        self._stored, self._earlier = Progress(*self._finished_after(part)), (0, 0)
        if part.owned is not None:
            self._topic.recount(part.owned)

    def _finished_after(self, part: QueuePart) -> tuple[int, int]:
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


class DurableSubscription(LaneSubscription):
    """One durable subscription.

    Args:
        watch: is told when it has a consumer, or has none any more, or another policy.
        drop: removes it, when it has no consumer.
        progress: how far it has come; None if it is new.

    Attributes:
        is_leaving: whether it is removed in one of the next steps, with the pattern that it belongs to.
    """

    is_leaving = False
    _progress: DurableProgress

    def __init__(
        self,
        watch: Callable[["DurableSubscription"], None],
        drop: Callable[["DurableSubscription"], None],
        topic: "Topic",
        number: int,
        definition: Definition,
        progress: Progress | None,
        finished: AckSet,
    ) -> None:
        self._watch = partial(watch, self)
        self.drop = partial(drop, self)
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
        self.take_policy(_own_policy(self.topic.policy), self._ledger(), 0)
        self._watch()

    @property
    def definition(self) -> Definition:
        return self._progress.definition

    @property
    def offline_since(self) -> int:
        """In milliseconds since the epoch; 0 while it has a consumer."""
        return self._progress.offline_since

    @property
    def key(self) -> tuple[str, str]:
        return self.definition.client_id, self.definition.name

    @property
    def has_been_stored(self) -> bool:
        return self._progress.is_stored

    @property
    def start(self) -> int:
        return self.definition.start

    @property
    def no_local(self) -> bool:
        return self.definition.no_local

    # Messages come.

    def take_in(self, stored: list[Message], senders: Senders) -> None:
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
        self.finished.add_range(first, last)

    def expire(self, records: list[Message]) -> tuple[int, int]:
        """Finish messages that have expired, but for those in flight.

        Args:
            records: of one lane, in order; each subscription makes messages of its own of them. They have contents if a
                dead letter or an advisory needs these.
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
        self.open_part()

    def _consumer_came_or_left(self) -> None:
        for subscription in self.subscriptions:
            self._own = ref(subscription.session)
        self._progress.offline_since = 0 if self.subscriptions else self.core.wall.believed_ms()
        self.open_part()
        self._watch()
        self.wake()


def _own_policy(policy: Policy) -> Policy:
    """The policy of a durable subscription: without what only makes sense where a queue has a lane and consumers."""
    return replace(
        policy, redelivery_at="in-place", consumers_before_dispatch_starts=0, time_before_dispatch_starts=0.0,
    )  # fmt: skip


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
        lanes: the ids of its lanes: one, or ten by priority.
        shared: what its plain subscriptions have in memory.
        depth: how many records it has; exact. ``bytes`` are their sizes.
        appended: how many it ever had. ``appended_bytes`` are their sizes.
        filled_to: the highest sequence that was put into a commit.
        announced: the highest sequence of those commits that are done.
        dequeued: how many its plain subscriptions acknowledged; ``dispatched``, ``redelivered``, ``expired``,
            ``discarded`` (by cause) and ``dead_lettered`` are about these too.
        suppressed: how many became dead letters because clients suppressed them as duplicates.
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
        self.next_sequence = max([s.next_sequence for s in states])
        self.filled_to = self.announced = self.next_sequence - 1
        self._plain: dict[TopicSubscription, None] = {}
        self._counts_changed = False
        self._no_local = 0  # how many subscriptions do not want what their own session sends
        self._open = TopicPart(self)
        self.kept = KeptMessages(self, counts.first_kept, counts.kept, counts.kept_bytes)
        self.holders: list[Holder] = [self.kept]
        head = min([s.head for s in states if s.head], default=0)
        if self.kept.is_keeping and 0 < head < self.kept.first:
            self.sweep(head, self.kept.first - 1)  # a recovery that a crash ended may have held some

    @property
    def key(self) -> str:
        return counts_key(self.stored)

    @property
    def is_dead_letter_queue(self) -> bool:
        return is_dead_letter_queue(self.destination, self.policy)

    def lane_of(self, priority: int) -> int:
        return self.lanes[0] if len(self.lanes) == 1 else self.lanes[priority]

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
        """It is given out when the open commit is done. Whether it is stored depends on who needs it."""
        message = Message(self.next_sequence, content, expiration, priority, persistent)
        message.stored = False
        self.next_sequence += 1
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
        starts = [durable.start + 1 for durable in self.durables]
        if self.kept.is_keeping:
            starts.append(self.kept.first)
        return min(starts, default=self.next_sequence)

    def _counts(self, part: TopicPart) -> Counts:
        share = self.kept.share(part.stored)
        return Counts(
            self.appended + len(part.stored), self.appended_bytes + _size(part.stored),
            self.kept.first, self.kept.count + len(share), self.kept.bytes + _size(share),
        )  # fmt: skip

    def committed(self, part: TopicPart) -> None:
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
        for lane, batch in lanes.items():
            before, state = self._states[lane], batch.state
            self._states[lane] = state
            self.core.charge_stored(state.bytes - before.bytes)
            self.depth += state.count - before.count
            self.bytes += state.bytes - before.bytes

    def commit_failed(self, part: TopicPart, restored: set[int]) -> None:
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
        if done := self.done_by_all(list(lanes)):
            self._open.removals.update([(sequence, lanes[sequence]) for sequence in done])
            self.core.list_part(self._open)

    def done_by_all(self, sequences: list[int]) -> list[int]:
        """Those of some sequences that no holder needs.

        The holder that needed a record last time is asked first. So a record costs little as long as one holder needs
        it, and one question to every holder when it goes.
        """
        for index, holder in enumerate(self.holders):
            sequences = holder.done_of(sequences)
            if not sequences:
                self.holders.insert(0, self.holders.pop(index))
                break
        return sequences

    def write_counts(self) -> None:
        self._counts_changed = True
        self.core.list_part(self._open)

    def sweep(self, first: int, last: int, done: Callable[[], None] | None = None) -> None:
        LaneSweep(self, first, last, done)

    def expire(self, records: list[Message]) -> None:
        """Records have expired that no consumer has in flight: those that only the topic itself keeps are removed.

        Args:
            records: in order, with their priorities; their contents are not looked at.
        """
        sequences = [record.sequence for record in records]
        for holder in [holder for holder in self.holders if holder is not self.kept]:
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
        plain = [source.subscription for source in self._plain]
        return plain + [subscription for durable in self.durables for subscription in durable.subscriptions]

    @property
    def consumer_count(self) -> int:
        return len(self._plain) + sum([len(durable.subscriptions) for durable in self.durables])

    @property
    def is_subscribed(self) -> bool:
        return bool(self._plain or self.durables)

    @property
    def plain(self) -> list[TopicSubscription]:
        return list(self._plain)

    @property
    def pending(self) -> int:
        return sum([len(source.pending) for source in self._plain])

    def subscribe(
        self, session: Session, *, id: str, number: int = 0, ack: AckMode = AckMode.AUTO, prefetch: int = 32767,
        selector: Selector | None = None, no_local: bool = False, priority: int = 0, retroactive: bool = False,
        maximum_pending: int | None = None, kind: Callable[..., Subscription] = Subscription,
    ) -> Subscription:  # fmt: skip
        """A consumer comes. It gets what is sent from now on; if it is retroactive, what is kept before that.

        Args:
            no_local: whether it does not want what its own session sends.
            retroactive: whether it first gets what the topic keeps. The policy may say so for all.
            maximum_pending: how many messages wait beyond its prefetch; -1 for any number, None for what the policy
                says.
        """
        recovery, start = None, self.next_sequence
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
        first, last = self.kept.window()
        if first > last:
            return None
        recovery = Recovery(self, first, last, self._end_recovery)
        self.holders.append(recovery)
        return recovery

    def leave(self, source: TopicSubscription) -> None:
        del self._plain[source]
        self._no_local -= source.no_local

    def add_durable(self, durable: DurableSubscription) -> None:
        self.durables.append(durable)
        self.holders.append(durable)
        if (highest := durable.finished.highest) >= self.next_sequence:  # a message whose record is gone had it
            self.next_sequence, self.filled_to, self.announced = highest + 1, highest, highest
        self._no_local += durable.no_local

    def remove_durable(self, durable: DurableSubscription) -> None:
        self.durables.remove(durable)
        self.holders.remove(durable)
        self._no_local -= durable.no_local

    def _end_recovery(self, recovery: Recovery) -> None:
        self.holders.remove(recovery)
        if recovery.has_more:
            self.sweep(*recovery.left)


def _size(messages: list[Message]) -> int:
    return sum([message.size for message in messages])
