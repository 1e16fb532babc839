"""Gives a queue's messages to its consumers.

Mostly any consumer may have any message: then runs of them are dealt out in turn (``_deal``). With selectors or message
groups each message is looked at (``quire.broker.queues.selective_dispatch``).
"""

import heapq
from typing import TYPE_CHECKING

from quire.broker.queues.queue_lane import END, RECALL_LIMIT, QueueLane
from quire.broker.queues.round_robin import RoundRobin
from quire.broker.queues.selective_dispatch import SelectiveDispatch
from quire.broker.queues.start_gate import StartGate
from quire.broker.subscription import AckMode, Subscription
from quire.message import Message

if TYPE_CHECKING:
    from quire.broker.broker import Broker
    from quire.broker.queues.queue import Queue

SLICE = 64
"""How many messages a consumer is given before the next one has its turn to be looked at."""


class Dispatcher:
    """The dispatch of one queue.

    Args:
        broker: the broker.
        queue: its queue.

    Attributes:
        gate: whether it may begin.
        groups: who has which message group.
        round_robin: whose turn it is.
        looks: whether each message is looked at: there are selectors or message groups.
    """

    def __init__(self, broker: "Broker", queue: "Queue") -> None:
        self._broker = broker
        self._queue = queue
        self.gate = StartGate(broker.clock, broker.scheduler, queue.wake)
        self.groups = queue.groups_kind(self._group_owned)
        self.round_robin = RoundRobin(queue.subscriptions)
        self.looks = False
        self._selective = SelectiveDispatch(broker, queue, self)
        self._planned: list[int] = []

    def dispatch(self) -> None:
        """Give out what can be given out now.

        Raises:
            StoreError: the next message cannot be read.
        """
        if self.gate.is_closed:
            return
        for lane in self._queue.lanes:
            if lane.delayed:
                self._wake_when_due(lane)
        if self.looks:
            self._selective.dispatch()
        else:
            self._deal()

    def _deal(self) -> None:
        """Returned messages first, then the window; page in when it runs empty."""
        queue, round_robin = self._queue, self.round_robin
        while ready := round_robin.ready(queue.policy):
            run = self._next_run(min(SLICE * len(ready), min([s.credit for s in ready]) * len(ready), queue.room))
            if not run:
                return
            for subscription, share in round_robin.deal(run, ready):
                self.give(subscription, share)
            if queue.is_given_out:
                return
            if self._broker.dispatch.is_over:
                queue.wake()
                return

    def give(self, subscription: Subscription, messages: list[Message], extra: bytes = b"") -> None:
        """Give messages to a consumer that has credit for them.

        Args:
            subscription: the consumer.
            messages: in order.
            extra: header lines for each of them.
        """
        queue = self._queue
        queue.dispatched += len(messages)
        if queue.ledger is not None:
            queue.ledger.dispatched(subscription, messages)
        if not subscription.prefetch:
            subscription.pulled -= len(messages)
        if subscription.ack is AckMode.AUTO:
            subscription.session.deliver(subscription, messages, extra)
            queue.acknowledge(messages)
            return
        subscription.in_flight.update([(message.sequence, message) for message in messages])
        subscription.session.deliver(subscription, messages, extra)

    # What comes next.

    def _next_run(self, limit: int) -> list[Message]:
        """The next messages in order, up to the dispatch mark."""
        for lane in self._queue.lanes:
            if lane.delayed and len(lane.returned) < RECALL_LIMIT:
                refused = self.recall_due(lane) is None
                if refused and not lane.returned:  # what came back holds memory: it goes on, to release it
                    continue
            if (
                lane.returned
                and lane.returned[0].sequence > lane.scanned
                and self.first_of_window(lane) <= lane.scanned
            ):
                continue
            is_held = False
            while not is_held and (run := lane.take(limit)):
                run, is_held = self.in_time(lane, run)
                if run:
                    mark = lane.mark
                    if mark.reach(run[-1].sequence, self._queue.window):
                        self._queue.write_mark()
                    return lane.cut(run, mark.stored + 1) if run[-1].sequence > mark.stored else run
            self.wait_if_refused(lane)
            if lane.is_scanning:
                return []
        return []

    def wait_if_refused(self, lane: QueueLane) -> None:
        """Try again when memory is released, if a lane's next message found none."""
        if lane.cursor.blocked_since is not None:
            lane.memory.wait(self._queue.memory_released)

    def first_of_window(self, lane: QueueLane) -> int:
        """The first sequence of a lane's window, which is paged in; ``END`` if there is none.

        What came back from further on makes room for it. As long as it cannot, the lane waits where it was scanned to.
        """
        first = lane.first_of_window()
        if first == END and lane.returned and lane.cursor.blocked_since is not None:
            lane.read_returned_again(self._queue.unsettled())
            first = lane.first_of_window()
            if first == END and lane.cursor.blocked_since is not None:
                self.wait_if_refused(lane)
                return lane.scanned
        return first

    def in_time(self, lane: QueueLane, run: list[Message]) -> tuple[list[Message], bool]:
        """Take out of a run what has expired or is to be delivered later, and what such a message holds back.

        Args:
            lane: the lane.
            run: messages just taken.

        Returns:
            The others, and whether the next ones are held back.
        """
        if any([message.expiration or message.not_before for message in run]):
            run = self.without_late_ones(lane, run)
        if lane.delayed and run and run[-1].sequence > (barrier := self.barrier(lane)):
            return lane.cut(run, barrier), True
        return run, False

    def without_late_ones(self, lane: QueueLane, run: list[Message]) -> list[Message]:
        """What of a run is neither expired nor to be delivered later."""
        now = self._broker.clock.now_ms()
        expired = [message for message in run if message.expiration and message.expiration <= now]
        run = [message for message in run if not message.expiration or message.expiration > now]
        if expired:
            self._queue.bury(expired, "expired", "expired before it could be delivered")
        if delayed := [message for message in run if message.not_before > now]:
            self.delay(lane, delayed)
        return [message for message in run if message.not_before <= now]

    # What has to wait.

    def is_held(self, lane: QueueLane) -> bool:
        """Whether a message that waits for its redelivery holds back all later ones of its lane."""
        return bool(lane.delayed) and (self._queue.policy.blocking_redelivery or self.keeps_order)

    def barrier(self, lane: QueueLane) -> int:
        """The sequence of the message that holds back all later ones; ``END`` if none does."""
        return lane.delayed.lowest if self.is_held(lane) else END

    @property
    def keeps_order(self) -> bool:
        """Whether one consumer has all messages and relies on their order."""
        policy = self._queue.policy
        return (
            policy.strict_order_dispatch
            or policy.all_consumers_exclusive_by_default
            or any([s.exclusive for s in self._queue.subscriptions])
        )

    def delay(self, lane: QueueLane, messages: list[Message]) -> None:
        """Let messages wait until they may be delivered."""
        lane.delay(messages, self._queue.group_header if self._queue.grouped else None)
        self._wake_when_due(lane)

    def _wake_when_due(self, lane: QueueLane) -> None:
        """Dispatch when the first delayed message is due, unless that is planned already."""
        now, earliest = self._broker.clock.now_ms(), lane.delayed.earliest
        if earliest > now and (not self._planned or earliest < self._planned[0]):
            heapq.heappush(self._planned, earliest)
            self._broker.scheduler.call_later((earliest - now) / 1000, self._some_are_due)

    def _some_are_due(self) -> None:
        heapq.heappop(self._planned)
        self._queue.wake()

    def recall_due(self, lane: QueueLane) -> int | None:
        """Bring delayed messages back that are due, some at a time.

        Returns:
            How many of them wait no more; None if they wait for memory.
        """
        now = self._broker.clock.now_ms()
        if lane.delayed.earliest > now:
            return 0
        sequences, sizes = lane.delayed.due(now, RECALL_LIMIT, self._queue.unsettled())
        if not sequences:
            return 0
        messages, count = self.recall(lane, sequences, sizes, lane.delayed.kept)
        lane.delayed.drop(count)
        lane.come_back(messages)
        if lane.delayed:
            self._wake_when_due(lane)
        return count or None

    def recall(
        self, lane: QueueLane, sequences: list[int], sizes: list[int], kept: dict[int, Message]
    ) -> tuple[list[Message], int]:
        """Bring messages back that were set aside, as ``QueueLane.recall``; they go before the window, for memory too.

        If memory refuses them all the same, dispatch is tried again when some is released.
        """
        messages, count = lane.recall(sequences, sizes, kept)
        if not count and lane.cursor.window:
            lane.give_up_window(self._queue.out_sequences())
            messages, count = lane.recall(sequences, sizes, kept)
        if not count:
            lane.memory.wait(self._queue.memory_released)
        return messages, count

    # Consumers come and go.

    def consumer_came(self) -> None:
        """A consumer came."""
        queue = self._queue
        self.gate.consumer_came(queue.policy, len(queue.subscriptions))
        self.consumers_changed()
        if queue.grouped and queue.policy.rebalance_message_groups:
            self.groups.rebalance(self.round_robin.eligible(queue.policy))

    def consumer_left(self, subscription: Subscription) -> None:
        """A consumer left."""
        self.groups.leave(subscription)
        for lane in self._queue.lanes:
            lane.parking.leave(subscription)
        self.consumers_changed()

    def consumers_changed(self) -> None:
        """Consumers came or went, or other ones may have messages: see what that means for those that wait."""
        queue = self._queue
        with_selectors = any([s.selector is not None for s in queue.subscriptions])
        self.looks = queue.grouped or with_selectors
        eligible = self.round_robin.eligible(queue.policy)
        for lane in queue.lanes:
            lane.parking.with_selectors = with_selectors
        self.groups.lend(set(queue.subscriptions).difference(eligible))
        if self._selective.consumers_changed(eligible):
            out = queue.out_sequences()
            for lane in queue.lanes:
                lane.rewind(out)

    def rest(self) -> None:
        """Everything begins at the head with the next dispatch: nobody consumes any more, as a rule."""
        if not self._queue.subscriptions:
            self.gate.all_gone()
        for lane in self._queue.lanes:
            lane.memory.stop_waiting(self._queue.memory_released)
            lane.rest()

    def _group_owned(self, name: str, owner: Subscription | None) -> None:
        for lane in self._queue.lanes:
            lane.parking.owned(name, owner)
