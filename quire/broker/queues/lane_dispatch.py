"""What a queue, a durable subscription, a group's part of a partition and the retries of a group have in common.

Messages of their lanes are given to consumers, are settled, or come back. Each kind takes messages in in its own way,
and stores in its own way what it has settled; what else it does by itself stands in ``DispatchHandlers``.

A message that a consumer did not acknowledge is counted and flagged (``Redelivery``). Then it goes out again before
later ones, or waits for its time, or goes to the tail, or becomes a dead letter, as the policy says. The messages of a
consumer that has gone come back in steps (``Departure``). Expiry, purge, move and transactions take messages out of
where they wait (``Withdrawal``).
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import NamedTuple, Protocol

from quire.broker.core.core import Commit, Core, DestinationLedger
from quire.broker.core.subscription import AckMode, Subscription
from quire.broker.dead_letter import is_dead_letter_queue, send_dead_letters
from quire.broker.queues.dispatch import Dispatched, Dispatcher
from quire.broker.queues.lane import END, LaneCommits, MessageLocator, QueueLane, QueuePart, Settlement, by_lane
from quire.broker.queues.parking import MessageGroups
from quire.cursors.memory_usage import MemoryUsage
from quire.destination import Destination
from quire.errors import StoreCorrupt, StoreError
from quire.logs import event
from quire.message import Message
from quire.settings import Policy
from quire.store.base import Delivery


class DispatchHandlers(NamedTuple):
    """What is called where the kinds of destinations differ; None where there is nothing to do.

    Attributes:
        gathered: settles what has gathered elsewhere; called before messages are given out, and before a commit begins.
        appends_failed: refuses what came in a commit that failed, or has it come again.
        relocate: moves messages that failed elsewhere, with the open commit, and is told the cause; whether it does so.
        as_letter: makes what a message is as a dead letter; None if it is as it was.
        consumers_changed: a consumer came, or has gone.
        refuse_hiding: is told how many messages were to be hidden, where none may be.
    """

    gathered: Callable[[], None] | None = None
    appends_failed: Callable[[QueuePart], None] | None = None
    relocate: Callable[[list[Message], str], bool] | None = None
    as_letter: Callable[[Message], Message] | None = None
    consumers_changed: Callable[[], None] | None = None
    refuse_hiding: Callable[[int], None] | None = None


NO_HANDLERS = DispatchHandlers()


class Withdrawn(Dispatched, Protocol):
    """A queue that messages are taken out of.

    Attributes:
        ledger: where events of its messages are noted; None if its policy does not ask for it.
        dequeued: how many messages were acknowledged.
        removed: how many messages operators removed, or moved elsewhere.
    """

    ledger: DestinationLedger | None
    dequeued: int
    removed: int

    def settle(self, messages: list[Message]) -> None:
        """Messages are done with: they are gone when the open commit is done."""


class Withdrawal:
    """The withdrawal from one queue. No cursor moves.

    Args:
        put_back: has hidden messages wait again.
        refuse: is told how many messages were to be hidden, where none may be; None where they may.
    """

    __slots__ = ("_put_back", "_queue", "_refuse")

    def __init__(
        self, queue: Withdrawn, put_back: Callable[[list[Message]], None], refuse: Callable[[int], None] | None
    ) -> None:
        self._queue = queue
        self._put_back = put_back
        self._refuse = refuse

    def take_out(self, sequences: list[int]) -> list[int]:
        """Begin to remove messages; those of them that are not in flight, and not being removed."""
        free = self._discard(sequences)
        if free:
            self._queue.commits.exclude(free)
        return free

    def removed(self, messages: list[Message], *, by_operator: bool = False) -> None:
        """Remove messages that ``take_out`` gave, whose memory is released or was never reserved.

        Args:
            by_operator: whether an operator or the retention removes them; if not, the caller says what became of them.
        """
        if by_operator:
            self._queue.removed += len(messages)
            if self._queue.ledger is not None:
                self._queue.ledger.removed(messages)
        self._queue.settle(messages)

    def hide(self, sequences: list[int]) -> list[int]:
        """Take messages out of where they wait until they are shown, or settled. They take no memory.

        Returns:
            Those of them that are not in flight, and not being removed.
        """
        if self._refuse is not None:
            self._refuse(len(sequences))
            return []
        return self._discard(sequences)

    def settle_hidden(self, messages: list[Message]) -> None:
        """Hidden messages are acknowledged."""
        if messages:
            queue = self._queue
            queue.dequeued += len(messages)
            if queue.ledger is not None:
                queue.ledger.acknowledged(messages)
            queue.commits.exclude([message.sequence for message in messages])
            queue.settle(messages)

    def show(self, messages: list[Message]) -> None:
        """Hidden messages wait again: those without contents where the store has them."""
        self._put_back(messages)
        self._queue.wake()

    def _discard(self, sequences: list[int]) -> list[int]:
        free = self._queue.locator.free_of(sequences)
        if free:
            for lane in self._queue.lanes:
                lane.discard(set(free))
        return free


LONGEST = 100 * 365 * 86_400.0
"""No delay is longer, in seconds: times further away do not fit the records of every store."""


class RetryDelays(Protocol):
    """How long messages that failed wait."""

    def delay_ms(self, attempt: int) -> int:
        """How long a message waits before a retry, from 1, in milliseconds."""


def redelivery_delay(policy: Policy, failures: int, random: Random) -> float:
    """The delay before a message's next redelivery, as ActiveMQ's JMS client computes it.

    The first delay is ``initial_redelivery_delay``. Each later one is ``redelivery_delay``. Under exponential back-off
    it is the one before times the multiplier, up to ``maximum_redelivery_delay`` (``redelivery_delay`` if that is
    more), and ``redelivery_delay`` if the one before was 0. Collision avoidance varies all but the first, the maximum
    too. (``RedeliveryPolicy.getNextRedeliveryDelay``; there each step on the way is varied, so that back-off multiplies
    the variations. Here the result is varied, once.)

    Args:
        failures: how often the message has failed; at least 1.

    Returns:
        Seconds.
    """
    if failures <= 1:
        return min(policy.initial_redelivery_delay, LONGEST)
    grows = policy.use_exponential_back_off and policy.back_off_multiplier > 1
    delay = _backed_off(policy, failures) if grows else policy.redelivery_delay
    if policy.use_collision_avoidance:
        delay *= 1 + random.uniform(-1, 1) * policy.collision_avoidance_factor
    return min(delay, LONGEST)


def redelivery_delay_ms(policy: Policy, failures: int, random: Random) -> int:
    """As ``redelivery_delay``, in milliseconds."""
    return round(redelivery_delay(policy, failures, random) * 1000)


def _backed_off(policy: Policy, failures: int) -> float:
    first, steps = policy.initial_redelivery_delay, failures - 1
    if first == 0:
        first, steps = policy.redelivery_delay, failures - 2
    try:
        delay = first * policy.back_off_multiplier**steps
    except OverflowError:
        delay = LONGEST if first else 0.0
    # A delay that is no product stands above the maximum, as it does in the client.
    if steps and 0 <= policy.maximum_redelivery_delay < delay:
        return max(policy.maximum_redelivery_delay, policy.redelivery_delay)
    return delay


class Returning(Dispatched, Protocol):
    """A queue that messages come back to."""

    @property
    def is_dead_letter_queue(self) -> bool:
        """Whether a message that fails here stays here."""

    @property
    def retry_delays(self) -> RetryDelays | None:
        """How long a message that failed waits for its next delivery; None for what the policy says."""


class Redelivery:
    """The way back into one queue.

    Args:
        relocate: where messages that failed and need not be delivered at once go; None if they stay.
    """

    __slots__ = ("_core", "_dispatcher", "_queue", "_relocate")

    def __init__(
        self,
        core: Core,
        queue: Returning,
        dispatcher: Dispatcher,
        relocate: Callable[[list[Message], str], bool] | None,
    ) -> None:
        self._core = core
        self._queue = queue
        self._dispatcher = dispatcher
        self._relocate = relocate

    def take(self, messages: list[Message], failed: int, cause: str, *, at_once: bool, delay_ms: int | None) -> None:
        """Take messages back.

        Args:
            failed: how many of the first of them count as failed deliveries.
            at_once: whether those that failed need not wait for the delay of their policy.
        """
        maximum = -1 if self._queue.is_dead_letter_queue else self._queue.policy.maximum_redeliveries
        messages, failed = count_deliveries(messages, failed, cause, maximum, self._queue.dead_letter)
        for index, message in enumerate(messages):
            message.not_before = self._next_delivery(message, delay_ms) if index < failed and not at_once else 0
        if any([message.not_before for message in messages]):
            self._core.note_delay()
        if not at_once and self._relocate is not None and self._relocate(messages[:failed], cause):
            messages = messages[failed:]
        state = Delivery(0, 0, 0, cause)
        for message in messages:
            known = (message.deliveries, message.failures, message.not_before)
            if known != state[:3]:  # mostly it is that of the message before
                state = Delivery(*known, cause)
            self._queue.commits.note_delivery(message, state)
        self._return(messages)

    def take_unseen(self, messages: list[Message]) -> None:
        """Take messages back that no application has seen."""
        for message in messages:
            message.not_before = 0
        self._return(messages)

    def _next_delivery(self, message: Message, delay_ms: int | None) -> int:
        """The steady time before which a message that failed is not delivered again."""
        if delay_ms is None and (delays := self._queue.retry_delays) is not None:
            delay_ms = delays.delay_ms(message.failures)
        elif delay_ms is None:
            delay_ms = redelivery_delay_ms(self._queue.policy, message.failures, self._core.random)
        if delay_ms and message.expiration:  # what has expired holds nothing back
            delay_ms = min(delay_ms, max(message.expiration - self._core.wall.past_ms(), 0))
        return self._core.wall.steady_ms() + delay_ms if delay_ms else 0

    def show(self, messages: list[Message]) -> None:
        """Put hidden messages back. What the cursor does not come to again is recalled, before later ones."""
        sequences = {message.sequence for message in messages}
        for lane in self._queue.lanes:
            own = messages if len(self._queue.lanes) == 1 else lane.own(messages)
            lane.cursor.excluded -= sequences
            lane.cursor.skipped -= sequences
            lane.come_back([message for message in own if not message.stored])
            lane.recall_later([m for m in own if m.stored and m.sequence <= lane.cursor.position])
        if not self._queue.subscriptions:
            self._dispatcher.rest()

    def _return(self, messages: list[Message]) -> None:
        """Put messages where they wait for their next delivery: before all others, or beside them until their time."""
        for lane, own in by_lane(self._queue.lanes, messages):
            if now := [message for message in own if not message.not_before]:
                lane.come_back(now)
            if later := [message for message in own if message.not_before]:
                self._dispatcher.next.delay(lane, later)


def count_deliveries(
    messages: list[Message], failed: int, cause: str, maximum: int,
    dead_letter: Callable[[list[Message], str, str], None],
) -> tuple[list[Message], int]:  # fmt: skip
    """Count a delivery of each message, and of the first ones a failure. Those that failed too often are dead letters.

    Args:
        maximum: how many failures are allowed; -1 for any number.

    Returns:
        The others, and how many of the first of them failed.
    """
    poison: list[Message] = []
    for index, message in enumerate(messages):
        message.redelivered = True
        message.deliveries += 1
        message.failures += index < failed
        if 0 <= maximum < message.failures:
            poison.append(message)
    if not poison:
        return messages, failed
    text = f"delivery failed {poison[0].failures} times, the maximum is {maximum}: {cause}"
    dead_letter(poison, "failed", text)
    sequences = {message.sequence for message in poison}
    failed -= len([message for message in messages[:failed] if message.sequence in sequences])
    return [message for message in messages if message.sequence not in sequences], failed


class DamageReport(NamedTuple):
    """An event of the log.

    Attributes:
        name: the event's.
        where: whose lanes they are.
        facts: the same, for programs.
    """

    name: str
    where: str
    facts: Mapping[str, object]

    def log(self, fault: StoreError) -> None:
        """Write it."""
        event(self.name, f"{self.where}: {fault} {fault.entry.advice}", logging.ERROR, **self.facts, **fault.data)


READ_AGAIN = 1.0
"""How many seconds after a failed read the store is read again."""

RETURN_STEP = 5000
"""So many messages of a consumer that goes come back at once."""


class LaneDispatch:
    """The dispatch of some lanes.

    Args:
        ledger: where events of its messages are noted; None if its policy does not ask for it.
        lanes: those of higher priority first.
        settlement: what settling a message means to the store.
        damage: what the log says when the next message cannot be read.
        handlers: what is called where the kinds of destinations differ.

    Attributes:
        depth: how many messages it has, those in flight included; exact.
        bytes: their sizes.
        subscriptions: its consumers, in the order they came.
        commits: what it has in commits.
        dispatcher: gives out its messages.
        locator: says where its messages are.
        withdrawal: takes messages out for others than consumers.
        paused: whether dispatch is stopped by an operator.
        awaited: for how many nothing is dispatched until they are done: for consumers that leave, and give back what
            comes before later messages; for the removal of retries.
        fault: why the store cannot give its next message; None while it can.
        fault_since: since when, on the monotonic clock.
        first_expiry: no message that is only in memory, and with no consumer, expires before this time, in milliseconds
            since the epoch; 0 if none ever expires.
        max_in_flight: how many messages its consumers may have, all together.
        retry_delays: how long a message that failed waits; None for what the policy says.
        group_header: the header whose value is a message's group; None if it has no messages of groups.
        subscriber: whose dead letters they are, if they are of a durable subscription.
    """

    # Slots here, and in what it holds: there are tens of thousands of them.
    __slots__ = (
        "_charge", "_damage", "_handlers", "_redelivery", "awaited", "bytes", "commits", "core", "dead_lettered",
        "depth", "dequeued", "destination", "dispatched", "dispatcher", "enqueued", "expired", "fault", "fault_since",
        "first_expiry", "group_header", "lanes", "ledger", "locator", "max_in_flight", "memory", "paused", "policy",
        "redelivered", "removed", "retry_delays", "subscriptions", "suppressed", "withdrawal",
    )  # fmt: skip

    is_deleted = False
    subscriber = ""
    lanes: Sequence[QueueLane]

    def __init__(
        self, core: Core, destination: Destination, policy: Policy, ledger: DestinationLedger | None,
        lanes: Sequence[QueueLane], memory: MemoryUsage, settlement: Settlement, damage: DamageReport,
        handlers: DispatchHandlers, groups_kind: type[MessageGroups] = MessageGroups,
    ) -> None:  # fmt: skip
        self.core = core
        self.destination = destination
        self.policy = policy
        self.ledger = ledger
        self.lanes = lanes
        self.memory = memory
        self.depth = self.bytes = 0
        self.subscriptions: list[Subscription] = []
        self.paused = False
        self.awaited = 0
        self.fault: StoreError | None = None
        self.fault_since = 0.0
        self.enqueued = self.dequeued = self.dispatched = self.redelivered = self.expired = self.dead_lettered = 0
        self.suppressed = self.removed = 0
        self.first_expiry = 0
        self.max_in_flight = END
        self.retry_delays: RetryDelays | None = None
        self.group_header: bytes | None = None
        self.commits = LaneCommits(core, self, lanes, settlement)
        self._damage = damage
        self._handlers = handlers
        self._charge = settlement.charge
        self.locator = MessageLocator(lanes, self.subscriptions, self.commits.parts)
        self.dispatcher = Dispatcher(core, self, groups_kind)
        self._redelivery = Redelivery(core, self, self.dispatcher, handlers.relocate)
        self.withdrawal = Withdrawal(self, self._redelivery.show, handlers.refuse_hiding)

    @property
    def grouped(self) -> bool:
        """Whether it may have messages of groups."""
        return self.group_header is not None

    @property
    def room(self) -> int:
        """How many more messages its consumers may have, all together."""
        return END if self.max_in_flight == END else self.max_in_flight - self.in_flight

    @property
    def window(self) -> int:
        """How many messages its consumers may have in flight, all together."""
        return sum([subscription.prefetch or subscription.pulled for subscription in self.subscriptions])

    def lane_of(self, message: Message) -> QueueLane:
        """The lane that one of its messages is in."""
        return self.lanes[0] if len(self.lanes) == 1 else self.lanes[9 - message.priority]

    def take_policy(self, policy: Policy, ledger: DestinationLedger | None, memory_limit: int) -> None:
        """Another policy applies from now on."""
        self.policy, self.ledger, self.memory.limit = policy, ledger, memory_limit
        self.dispatcher.consumers_changed()
        self.wake()

    # Messages come.

    def _came(self, messages: list[Message]) -> None:
        """Count messages that were committed, and let the cursors have them."""
        size = sum([message.size for message in messages])
        self._charge(size)
        self.depth += len(messages)
        self.enqueued += len(messages)
        self.bytes += size
        for lane, own in by_lane(self.lanes, messages):
            lane.cursor.committed(own)

    # Commits.

    def fill(self, commit: Commit) -> None:
        """Put what has gathered into a commit."""
        if self._handlers.gathered is not None:
            self._handlers.gathered()
        self.commits.fill(commit)

    def committed(self, part: QueuePart) -> None:
        """A commit is done: what it brought can be dispatched."""
        self.commits.committed(part)
        if appends := part.appends:
            self._came(appends)
            if not self.subscriptions:
                if part.mixed:
                    self.core.dispatch.idle(self)
                if self.policy.send_advisory_if_no_consumers:
                    self.core.advisories.no_consumer(self.destination, self.policy, appends)
        self._wake_if_needed()

    def commit_failed(self, part: QueuePart, restored: set[int]) -> None:
        """A commit failed: what it had is put into the next one; what came is refused, or comes again.

        Args:
            restored: ``id`` of the messages whose removal is not to be tried again.
        """
        self.commits.failed(part, restored)
        if self._handlers.appends_failed is not None:
            self._handlers.appends_failed(part)

    # They go out.

    def wake(self) -> None:
        """Dispatch at the end of this turn, if there may be something to dispatch."""
        if self.subscriptions:
            self.core.dispatch.wake(self)

    def _wake_if_needed(self) -> None:
        """As ``wake``, unless its only consumer has all there is, or is served when it has credit again."""
        subscriptions = self.subscriptions
        if len(subscriptions) != 1 or self.dispatcher.looks:
            self.wake()
        elif self.is_given_out or subscriptions[0].waits_for_credit:
            self.core.dispatch.watch(self)
        else:
            self.wake()

    @property
    def is_given_out(self) -> bool:
        """Whether it has one consumer, and that has all there is."""
        subscriptions = self.subscriptions
        return len(subscriptions) == 1 and self.depth <= len(subscriptions[0].in_flight)

    def dispatch(self) -> None:
        """Give messages to consumers; a message that cannot be read stops this queue and no other."""
        if self._handlers.gathered is not None:
            self._handlers.gathered()
        if self.paused or self.awaited or not self.commits.is_settled:
            return
        if self.core.dispatch.is_suspended:
            self.wake()
            return
        try:
            self.dispatcher.dispatch()
            self.fault = None
        except StoreError as fault:
            self._report(fault)

    def give(self, subscription: Subscription, messages: list[Message], first: bool = False) -> None:
        """Give messages to a consumer that has credit for them."""
        self.dispatched += len(messages)
        self.core.dispatch.gave()
        if self.ledger is not None:
            self.ledger.dispatched(subscription, messages)
        if not subscription.prefetch:
            subscription.pulled -= len(messages)
        if subscription.ack is AckMode.AUTO:
            subscription.session.deliver(subscription, messages, first)
            self.acknowledge(messages)
            return
        subscription.in_flight.update([(message.sequence, message) for message in messages])
        subscription.session.deliver(subscription, messages, first)

    def _report(self, fault: StoreError) -> None:
        """The next message cannot be read: dispatch stands before it, and says so once."""
        if self.fault is None:
            self._damage.log(fault)
            self.fault_since = self.core.clock.monotonic()
        if not isinstance(fault, StoreCorrupt):
            self.core.scheduler.call_later(READ_AGAIN, self.wake)
        self.fault = fault

    def memory_released(self) -> bool:
        """Memory was released: try again. Whether nothing is refused any more."""
        self.dispatch()
        return all([lane.cursor.blocked_since is None for lane in self.lanes])

    # They are settled.

    def acknowledge(self, messages: list[Message]) -> None:
        """Remove messages that consumers are done with. They are gone when the open commit is done."""
        self.dequeued += len(messages)
        if self.ledger is not None:
            self.ledger.acknowledged(messages)
        self.settle(messages)
        self._release(messages)
        if self.dispatcher.looks:
            self.dispatcher.groups.settled(messages)

    def settle(self, messages: list[Message]) -> None:
        """Messages are done with, and take no memory: they are gone when the open commit is done."""
        size = sum([message.size for message in messages])
        self.depth -= len(messages)
        self.bytes -= size
        self._charge(-size)
        part = self.commits.open
        part.removals += messages
        if not part.listed:
            self.core.list_part(part)
        self._wake_if_needed()

    def _release(self, messages: list[Message]) -> None:
        """Give back the memory of messages that were resident."""
        for lane, own in by_lane(self.lanes, messages):
            lane.cursor.release(own)

    def remove_resident(self, messages: list[Message]) -> None:
        """Remove resident messages that are in no consumer's in-flight table, and give back their memory."""
        self.settle(messages)
        self._release(messages)

    def dead_letter(self, messages: list[Message], reason: str, cause: str) -> None:
        """Remove resident messages that cannot be delivered; they become dead letters by policy, in the same commit."""
        self.remove_resident(messages)
        self.dispatcher.groups.settled(messages)
        if (as_letter := self._handlers.as_letter) is not None:
            messages = [as_letter(message) for message in messages]
        send_dead_letters(self.core, self, messages, reason, cause, subscriber=self.subscriber)

    @property
    def is_dead_letter_queue(self) -> bool:
        """Whether this is where dead letters go; a message that fails here stays here."""
        return is_dead_letter_queue(self.destination, self.policy)

    # Or they come back.

    def redeliver(
        self, messages: list[Message], failed: int, cause: str, *, at_once: bool = True, delay_ms: int | None = None
    ) -> None:
        """Take messages back that a consumer did not acknowledge; they go out again before later ones, flagged.

        Args:
            failed: how many of the first of them count as failed deliveries.
            at_once: whether those that failed need not wait for the delay of their policy.
        """
        self.redelivered += len(messages)
        if self.ledger is not None:
            self.ledger.came_back(messages)
        self.dispatcher.groups.settled(messages)
        for message in messages:
            if message.expiration and not message.stored:
                self.note_expiry(message.expiration)
        self._redelivery.take(messages, failed, cause, at_once=at_once, delay_ms=delay_ms)
        self.commits.list()
        self.wake()

    def give_back(self, messages: list[Message]) -> None:
        """Take messages back that were given out and that no application has seen: nothing is counted or flagged."""
        if self.ledger is not None:
            self.ledger.returned(messages)
        self.dispatcher.groups.settled(messages)
        for message in messages:
            if message.expiration and not message.stored:
                self.note_expiry(message.expiration)
        self._redelivery.take_unseen(messages)
        self.wake()

    def note_delivery(self, message: Message, state: Delivery) -> None:
        """Store what is known of a message's deliveries, with the open commit."""
        self.commits.note_delivery(message, state)

    def restore(self, messages: list[Message]) -> None:
        """Put messages back whose acknowledgement was in a transaction that could not be committed."""
        size = sum([message.size for message in messages])
        self.depth += len(messages)
        self.bytes += size
        self._charge(size)
        resident = [message for message in messages if message.content]
        for message in resident:
            self.lane_of(message).cursor.hold([message])
            message.stored = message.persistent  # the spool has given them up already
        self.redeliver(resident, 0, "the transaction of its acknowledgement failed")
        if len(resident) < len(messages):
            self.withdrawal.show([message for message in messages if not message.content])
        if self.commits.rested_meanwhile:  # the last consumer left meanwhile: begin at the head
            self._rest()
            if self.subscriptions:
                self._activate()

    # Consumers come and go.

    @property
    def consumer_count(self) -> int:
        """How many consumers are there."""
        return len(self.subscriptions)

    def add(self, subscription: Subscription) -> None:
        """A consumer comes."""
        self.subscriptions.append(subscription)
        self._activate()
        self.dispatcher.consumer_came()
        self._consumers_changed()

    def remove(self, subscription: Subscription, cause: str, *, lost: bool) -> None:
        """A consumer goes; what it had in flight comes back.

        Args:
            lost: whether it vanished. Then the oldest message it had counts as a failed delivery: it is the one that
                was being worked on. The others were only waiting.
        """
        self.subscriptions.remove(subscription)
        messages = list(subscription.in_flight.values())
        subscription.in_flight.clear()
        if messages:
            self.redeliver(messages, 1 if lost else 0, cause)
        if not self.subscriptions:
            self._rest()
        self.dispatcher.consumer_left(subscription)
        self._consumers_changed()

    def _consumers_changed(self) -> None:
        if self._handlers.consumers_changed is not None:
            self._handlers.consumers_changed()
        self.wake()

    def return_some(self, subscription: Subscription, cause: str) -> bool:
        """Before a consumer goes that has much in flight: take some of it back, the last of it first.

        Returns:
            Whether there was much.
        """
        in_flight = subscription.in_flight
        if len(in_flight) <= RETURN_STEP:
            return False
        messages = [in_flight.popitem()[1] for _ in range(RETURN_STEP)]
        messages.reverse()
        self.redeliver(messages, 0, cause)
        return True

    def _activate(self) -> None:
        for lane in self.lanes:
            lane.cursor.activate()

    def _rest(self) -> None:
        """The last consumer is gone: give the memory back, and begin at the head with the next one.

        What was acknowledged or came back is known to the store when the open commit is done; until then nothing is
        dispatched, for a read would not see it.
        """
        self.core.dispatch.rest(self)
        self.dispatcher.rest()
        self.commits.await_settled()
        if self.memory.used:
            self.core.dispatch.idle(self)

    def give_up_memory(self) -> bool:
        """Others need memory: put what only memory has into the spool, if there is no consumer here.

        Returns:
            Whether any memory was released.
        """
        return any([lane.cursor.give_up() for lane in self.lanes])

    def note_expiry(self, expiration: int) -> None:
        """A message that is only in memory expires at a time."""
        if expiration < self.first_expiry or not self.first_expiry:
            self.first_expiry = expiration

    @property
    def in_flight(self) -> int:
        """How many messages consumers have."""
        return sum([len(s.in_flight) for s in self.subscriptions])

    def stop(self) -> None:
        """Before a clean stop, with no consumers left."""
        self.commits.stop()


class Departure:
    """The end of one consumer. Until it is gone its queue gives out nothing: what comes back comes before later ones.

    Args:
        gone: called when it is gone.
        lost: whether it vanished without a word.
    """

    def __init__(
        self, core: Core, queue: LaneDispatch, subscription: Subscription, cause: str, gone: Callable[[], None], *,
        lost: bool,
    ) -> None:  # fmt: skip
        self._core = core
        self._queue = queue
        self._subscription = subscription
        self._cause = cause
        self._gone = gone
        self._lost = lost
        self._is_over = False

    def begin(self) -> None:
        """Take the first step, and the others in later turns if there are any."""
        self._queue.awaited += 1
        self._core.departs(self)
        self._subscription.departure = self
        if self._step():
            self._core.steps.add(self._step, "the end of a consumer", stores=False)

    def _step(self) -> bool:
        if self._is_over:
            return False
        if self._queue.return_some(self._subscription, self._cause):
            return True
        self._is_over = True
        self._core.departed(self)
        self._queue.awaited -= 1
        self._queue.remove(self._subscription, self._cause, lost=self._lost)
        self._gone()
        return False

    def finish(self) -> None:
        """It is gone at once."""
        while self._step():
            pass
