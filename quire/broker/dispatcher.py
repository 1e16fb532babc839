"""Gives a queue's messages to its consumers.

Mostly any consumer may have any message: then runs of them are dealt out in turn (``_deal``). With selectors or message
groups each message is looked at (``quire.broker.selective_dispatch``).
"""

from typing import TYPE_CHECKING

from quire.broker.message_groups import MessageGroups
from quire.broker.queue_lane import QueueLane
from quire.broker.round_robin import RoundRobin
from quire.broker.selective_dispatch import SelectiveDispatch
from quire.broker.start_gate import StartGate
from quire.broker.subscription import AckMode, Subscription
from quire.message import Message

if TYPE_CHECKING:
    from quire.broker.broker import Broker
    from quire.broker.queue import Queue

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
        self.groups = MessageGroups(self._group_owned)
        self.round_robin = RoundRobin(queue.subscriptions)
        self.looks = False
        self._selective = SelectiveDispatch(broker, queue, self)
        self._due_at = 0

    def dispatch(self) -> None:
        """Give out what can be given out now.

        Raises:
            StoreError: the next message cannot be read.
        """
        if self.gate.is_closed:
            return
        now = self._broker.clock.now_ms()
        for lane in self._queue.lanes:
            if lane.delayed:
                lane.recall_due(now)
                self._wake_when_due(lane)
        if self.looks:
            self._selective.dispatch()
        else:
            self._deal()

    def _deal(self) -> None:
        """Returned messages first, then the window; page in when it runs empty."""
        policy, round_robin = self._queue.policy, self.round_robin
        while ready := round_robin.ready(policy):
            run = self._next_run(min(SLICE * len(ready), min([s.credit for s in ready]) * len(ready)))
            if not run:
                return
            for subscription, share in round_robin.deal(run, ready):
                self.give(subscription, share)

    def give(self, subscription: Subscription, messages: list[Message], extra: bytes = b"") -> None:
        """Give messages to a consumer that has credit for them.

        Args:
            subscription: the consumer.
            messages: in order.
            extra: header lines for each of them.
        """
        queue = self._queue
        queue.dispatched += len(messages)
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
            if not self.is_held(lane) and (run := self.take(lane, limit)):
                mark = lane.mark
                if mark.reach(run[-1].sequence):
                    self._queue.write_mark()
                if run[-1].sequence > mark.stored:
                    allowed = len([message for message in run if message.sequence <= mark.stored])
                    lane.put_back(run[allowed:])
                    run = run[:allowed]
                return run
        return []

    def is_held(self, lane: QueueLane) -> bool:
        """Whether a message that waits for its redelivery holds back all others of its lane."""
        return bool(lane.delayed) and (self._queue.policy.blocking_redelivery or self.keeps_order)

    @property
    def keeps_order(self) -> bool:
        """Whether one consumer has all messages and relies on their order."""
        policy = self._queue.policy
        return (
            policy.strict_order_dispatch
            or policy.all_consumers_exclusive_by_default
            or any([s.exclusive for s in self._queue.subscriptions])
        )

    def take(self, lane: QueueLane, limit: int) -> list[Message]:
        """The next messages of a lane, expired and delayed ones taken out."""
        run = lane.take(limit)
        if not run and lane.cursor.blocked_since is not None:
            lane.memory.wait(self._queue.memory_released)
        while run and any([message.expiration or message.not_before for message in run]):
            if rest := self.without_late_ones(lane, run):
                return rest
            run = lane.take(limit)
        return run

    def without_late_ones(self, lane: QueueLane, run: list[Message]) -> list[Message]:
        """What of a run is neither expired nor to be delivered later."""
        now = self._broker.clock.now_ms()
        expired = [message for message in run if message.expiration and message.expiration <= now]
        run = [message for message in run if not message.expiration or message.expiration > now]
        if expired:
            self._queue.bury(expired, "expired", "expired before it could be delivered")
        delayed = [message for message in run if message.not_before > now]
        if not delayed:
            return run
        self.delay(lane, delayed)
        if self.is_held(lane):
            first = delayed[0].sequence
            lane.put_back([message for message in run if message.not_before <= now and message.sequence > first])
            return [message for message in run if message.sequence < first]
        return [message for message in run if message.not_before <= now]

    def delay(self, lane: QueueLane, messages: list[Message]) -> None:
        """Let messages wait until they may be delivered."""
        lane.delay(messages, grouped=self._queue.grouped)
        self._wake_when_due(lane)

    def _wake_when_due(self, lane: QueueLane) -> None:
        now = self._broker.clock.now_ms()
        if lane.delayed and (lane.delayed.earliest < self._due_at or self._due_at <= now):
            self._due_at = max(lane.delayed.earliest, now + 1)
            self._broker.scheduler.call_later((self._due_at - now) / 1000, self._queue.wake)

    # Consumers come and go.

    def consumer_came(self) -> None:
        """A consumer came."""
        queue = self._queue
        self.gate.consumer_came(queue.policy, len(queue.subscriptions))
        self.consumers_changed()
        if self.looks and queue.policy.rebalance_message_groups:
            self.groups.rebalance(queue.subscriptions)

    def consumer_left(self, subscription: Subscription) -> None:
        """A consumer left."""
        self.groups.leave(subscription)
        self.consumers_changed()

    def consumers_changed(self) -> None:
        """Look at each message from now on, or not any more."""
        queue = self._queue
        self.looks = queue.grouped or any([s.selector is not None for s in queue.subscriptions])
        if self._selective.consumers_changed():
            out = queue.out_sequences()
            for lane in queue.lanes:
                lane.rewind(out)

    def rest(self) -> None:
        """Nobody consumes any more."""
        self.gate.all_gone()
        self._selective.forget()
        for lane in self._queue.lanes:
            lane.memory.stop_waiting(self._queue.memory_released)
            lane.rest()

    def _group_owned(self, name: str, before: Subscription | None, owner: Subscription | None) -> None:
        for lane in self._queue.lanes:
            lane.parking.owned(name, before, owner)
