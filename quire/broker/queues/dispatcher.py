"""Gives a queue's messages to its consumers.

Mostly any consumer may have any message: then runs of them are dealt out in turn (``_deal``). With selectors or message
groups each message is looked at (``quire.broker.queues.selective_dispatch``).
"""

from quire.broker.core.core import Core
from quire.broker.core.subscription import Subscription
from quire.broker.queues.dispatched import Dispatched
from quire.broker.queues.message_groups import MessageGroups
from quire.broker.queues.next_messages import NextMessages
from quire.broker.queues.round_robin import RoundRobin
from quire.broker.queues.selective_dispatch import SelectiveDispatch
from quire.broker.queues.start_gate import StartGate

SLICE = 64
"""How many messages a consumer is given before the next one has its turn to be looked at."""


class Dispatcher:
    """The dispatch of one queue.

    Attributes:
        gate: whether it may begin.
        groups: who has which message group.
        round_robin: whose turn it is.
        next: what there is to give.
        looks: whether each message is looked at: there are selectors or message groups.
    """

    __slots__ = ("_core", "_queue", "_selective", "gate", "groups", "looks", "next", "round_robin")

    def __init__(self, core: Core, queue: Dispatched, groups_kind: type[MessageGroups]) -> None:
        self._core = core
        self._queue = queue
        self.gate = StartGate(core.clock, core.scheduler, queue.wake)
        self.groups = groups_kind(self._group_owned)
        self.round_robin = RoundRobin(queue.subscriptions)
        self.looks = False
        self.next = NextMessages(core, queue)
        self._selective = SelectiveDispatch(core, queue, self.next, self.groups, self.round_robin)

    def dispatch(self) -> None:
        """Give out what can be given out now.

        Raises:
            StoreError: the next message cannot be read.
        """
        if self.gate.is_closed:
            return
        for lane in self._queue.lanes:
            if lane.delayed:
                self.next.wake_when_due(lane)
        if self.looks:
            self._selective.dispatch()
        else:
            self._deal()

    def _deal(self) -> None:
        """Returned messages first, then the window; page in when it runs empty."""
        queue, round_robin = self._queue, self.round_robin
        while ready := round_robin.ready(queue.policy):
            run = self.next.run(min(SLICE * len(ready), min([s.credit for s in ready]) * len(ready), queue.room))
            if not run:
                return
            for subscription, share in round_robin.deal(run, ready):
                queue.give(subscription, share)
            if queue.is_given_out:
                return
            if self._core.dispatch.is_over:
                queue.wake()
                return

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
            out = queue.locator.out_sequences()
            for lane in queue.lanes:
                lane.rewind(out)

    def rest(self) -> None:
        """Everything begins at the head with the next dispatch: as a rule, the last consumer has gone."""
        if not self._queue.subscriptions:
            self.gate.all_gone()
        for lane in self._queue.lanes:
            lane.memory.stop_waiting(self._queue.memory_released)
            lane.rest()

    def _group_owned(self, name: str, owner: Subscription | None) -> None:
        for lane in self._queue.lanes:
            lane.parking.owned(name, owner)
