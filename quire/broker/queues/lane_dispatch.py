"""Gives the messages of lanes to consumers, and takes back what they do not acknowledge.

It is what a queue, a durable subscription, a group's part of a partition and the retries of a group have in common.
Each of them is given messages in its own way, and what it has settled is stored in its own way.
"""

from collections.abc import Sequence

from quire.broker.core.commit import Commit
from quire.broker.core.core import Core
from quire.broker.core.destination_ledger import DestinationLedger
from quire.broker.core.subscription import AckMode, Subscription
from quire.broker.dead_letter import is_dead_letter_queue, send_dead_letters
from quire.broker.queues.damage_report import DamageReport
from quire.broker.queues.dispatch_handlers import DispatchHandlers
from quire.broker.queues.dispatcher import Dispatcher
from quire.broker.queues.lane_commits import LaneCommits
from quire.broker.queues.message_groups import MessageGroups
from quire.broker.queues.message_locator import MessageLocator
from quire.broker.queues.queue_lane import END, QueueLane, by_lane
from quire.broker.queues.queue_part import QueuePart
from quire.broker.queues.record_removal import Settlement
from quire.broker.queues.redelivery import Redelivery
from quire.broker.queues.redelivery_delay import RetryDelays
from quire.broker.queues.withdrawal import Withdrawal
from quire.cursors.memory_usage import MemoryUsage
from quire.destination import Destination
from quire.errors import StoreCorrupt, StoreError
from quire.message import Message
from quire.settings import Policy
from quire.store.base import Delivery

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
        "redelivered", "retry_delays", "subscriptions", "suppressed", "withdrawal",
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
        self.suppressed = 0
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

    def give(self, subscription: Subscription, messages: list[Message], extra: bytes = b"") -> None:
        """Give messages to a consumer that has credit for them."""
        self.dispatched += len(messages)
        self.core.dispatch.gave()
        if self.ledger is not None:
            self.ledger.dispatched(subscription, messages)
        if not subscription.prefetch:
            subscription.pulled -= len(messages)
        if subscription.ack is AckMode.AUTO:
            subscription.session.deliver(subscription, messages, extra)
            self.acknowledge(messages)
            return
        subscription.in_flight.update([(message.sequence, message) for message in messages])
        subscription.session.deliver(subscription, messages, extra)

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
