"""Gives the messages of lanes to consumers, and takes back what they do not acknowledge.

It is what a queue, a durable subscription, a group's part of a partition and the retries of a group have in common.
Each of them is given messages in its own way, and what it has settled is stored in its own way.
"""

from collections.abc import Callable, Sequence

from quire.broker.core.commit import Commit
from quire.broker.core.core import Core
from quire.broker.core.destination_ledger import DestinationLedger
from quire.broker.core.subscription import AckMode, Subscription
from quire.broker.dead_letter import is_dead_letter_queue, send_dead_letters
from quire.broker.queues.damage_report import DamageReport
from quire.broker.queues.dispatcher import Dispatcher
from quire.broker.queues.message_groups import MessageGroups
from quire.broker.queues.message_locator import MessageLocator
from quire.broker.queues.queue_lane import END, QueueLane, by_lane
from quire.broker.queues.queue_part import QueuePart
from quire.broker.queues.record_removal import Settlement
from quire.broker.queues.redelivery import Redelivery, Relocate
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
        relocate: where messages that failed go; None if they stay.
        as_letter: makes what a message is as a dead letter; None if it is as it was.
        refuse_hiding: is told how many messages were to be hidden, where none may be; None where they may.

    Attributes:
        depth: how many messages it has, those in flight included; exact.
        bytes: their sizes.
        subscriptions: its consumers, in the order they came.
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

    is_deleted = False
    subscriber = ""
    lanes: Sequence[QueueLane]

    def __init__(
        self, core: Core, destination: Destination, policy: Policy, ledger: DestinationLedger | None,
        lanes: Sequence[QueueLane], memory: MemoryUsage, settlement: Settlement, damage: DamageReport, *,
        relocate: Relocate | None = None, as_letter: Callable[[Message], Message] | None = None,
        refuse_hiding: Callable[[int], None] | None = None, groups_kind: type[MessageGroups] = MessageGroups,
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
        self.first_expiry = 0
        self.max_in_flight = END
        self.retry_delays: RetryDelays | None = None
        self.group_header: bytes | None = None
        self._settlement = settlement
        self._damage = damage
        self._as_letter = as_letter
        self._charge = settlement.charge
        self._settles_with = 0
        self._open = QueuePart(self)
        self.locator = MessageLocator(lanes, self.subscriptions, self.parts)
        self.dispatcher = Dispatcher(core, self, groups_kind)
        self._redelivery = Redelivery(core, self, self.dispatcher, relocate)
        self.withdrawal = Withdrawal(self, self._redelivery.show, refuse_hiding)

    @property
    def grouped(self) -> bool:
        """Whether it may have messages of groups."""
        return self.group_header is not None

    @property
    def room(self) -> int:
        """How many more messages its consumers may have, all together."""
        return self.max_in_flight - self.in_flight

    @property
    def window(self) -> int:
        """How many messages its consumers may have in flight, all together."""
        return sum([subscription.prefetch or subscription.pulled for subscription in self.subscriptions])

    def lane_of(self, message: Message) -> QueueLane:
        """The lane that one of its messages is in."""
        return self.lanes[0] if len(self.lanes) == 1 else self.lanes[9 - message.priority]

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

    def parts(self) -> list[QueuePart]:
        """What it has in commits: in the one under way, and in the open one."""
        return [*self.core.parts_of(self), self._open]

    def fill(self, commit: Commit) -> None:
        """Put what has gathered into a commit."""
        part, self._open = self._open, QueuePart(self)
        commit.parts[self] = part
        for lane in self.lanes:
            if (mark := lane.mark.take()) is not None:
                part.marks[lane.id] = mark
        self._settlement.write(part, commit.batch)

    def committed(self, part: QueuePart) -> None:
        """A commit is done: what it brought can be dispatched."""
        if part.marks or part.excluded:
            self._note_marks(part)
        self._settlement.committed(part)
        if appends := part.appends:
            self._came(appends)
            if not self.subscriptions:
                if part.mixed:
                    self.core.dispatch.idle(self)
                if self.policy.send_advisory_if_no_consumers:
                    self.core.advisories.no_consumer(self.destination, self.policy, appends)
        self._wake_if_needed()

    def _note_marks(self, part: QueuePart) -> None:
        """What a commit has stored of marks, and what cursors do not come to again."""
        for lane in self.lanes:
            lane.mark.stored = part.marks.get(lane.id, lane.mark.stored)
            lane.cursor.excluded -= part.excluded

    def commit_failed(self, part: QueuePart, restored: set[int]) -> None:
        """A commit failed: what it had is put into the next one.

        Args:
            restored: ``id`` of the messages whose removal is not to be tried again.
        """
        following = self._open
        if restored:
            self._settlement.undo([message for message in part.removals if id(message) in restored])
        following.removals = [m for m in part.removals if id(m) not in restored] + following.removals
        following.deliveries = {**part.deliveries, **following.deliveries}
        following.excluded |= part.excluded
        for lane in self.lanes:
            lane.mark.failed()
        if self._settles_with == self.core.commits_done:
            self._settles_with = self.core.open_commit_number
        self.core.list_part(following)

    def exclude(self, sequences: list[int]) -> None:
        """Let the cursors not admit messages until the open commit is done."""
        self._open.excluded.update(sequences)
        self.core.list_part(self._open)

    def write_mark(self) -> None:
        """A dispatch mark has to be written further ahead, soon."""
        self.core.list_part(self._open)
        self.core.hurry()

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
        if self.paused or self.awaited or self._settles_with > self.core.commits_done:
            return
        try:
            self.dispatcher.dispatch()
            self.fault = None
        except StoreError as fault:
            self._report(fault)

    def give(self, subscription: Subscription, messages: list[Message], extra: bytes = b"") -> None:
        """Give messages to a consumer that has credit for them."""
        self.dispatched += len(messages)
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
        part = self._open
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
        letters = messages if self._as_letter is None else [self._as_letter(message) for message in messages]
        send_dead_letters(self.core, self, letters, reason, cause, subscriber=self.subscriber)

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
        self.core.list_part(self._open)
        self.wake()

    def note_delivery(self, message: Message, state: Delivery) -> None:
        """Store what is known of a message's deliveries, with the open commit."""
        if message.stored:
            self._open.deliveries[message.sequence] = (message, state)
            self.core.list_part(self._open)

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
        if self._settles_with >= self.core.commits_done:  # the last consumer left meanwhile: begin at the head
            self._rest()
            if self.subscriptions:
                self._activate()

    # Consumers come and go.

    def add(self, subscription: Subscription) -> None:
        """A consumer comes."""
        self.subscriptions.append(subscription)
        self._activate()
        self.dispatcher.consumer_came()
        self.wake()

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
        self._settles_with = self.core.open_commit_number
        self.core.list_part(self._open)
        self.core.hurry()
        if self.memory.used:
            self.core.dispatch.idle(self)

    def give_up_memory(self) -> bool:
        """Others need memory: put what only memory has into the spool, if nobody consumes here.

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
        """Before a clean stop, with no consumers left: nothing was delivered that the delivery states do not tell.

        Only messages that were flagged by an earlier crash, and are still here, keep the mark.
        """
        for lane in self.lanes:
            crashed = lane.cursor.redelivered_to
            self._open.marks[lane.id] = crashed if crashed and self._settlement.may_have(lane, crashed) else 0
        self.core.list_part(self._open)
