"""Dispatch of a queue with selectors or message groups: who may have this message?

What nobody present can take now is parked, and the scan goes on (rule 9): a full consumer, or one that wants other
messages, keeps nothing from the rest. A consumer gets what is parked for it before anything later, so its order holds.
"""

from collections import deque
from heapq import merge
from itertools import islice
from typing import TYPE_CHECKING

from quire.broker.message_groups import GROUP_ID, restarts_group
from quire.broker.parking import PARKED_LIMIT, Entry, Fifo
from quire.broker.queue_lane import RECALL_LIMIT, QueueLane
from quire.broker.subscription import Subscription
from quire.message import Message
from quire.selectors import Selector

if TYPE_CHECKING:
    from quire.broker.broker import Broker
    from quire.broker.dispatcher import Dispatcher
    from quire.broker.queue import Queue

SCAN_LIMIT = 1000
"""How many messages are looked at before others have their turn."""

RUN = 128
"""How many messages are taken from the window at once."""

FIRST_OF_GROUP = b"JMSXGroupFirstForConsumer:true\n"
"""The header of a message that is the first one of its group for its consumer."""

ALL = ""
"""Stands for the selector of a consumer that has none."""


class SelectiveDispatch:
    """The dispatch of one queue, message by message.

    Args:
        broker: the broker.
        queue: its queue.
        dispatcher: the queue's dispatcher.
    """

    def __init__(self, broker: "Broker", queue: "Queue", dispatcher: "Dispatcher") -> None:
        self._broker = broker
        self._queue = queue
        self._dispatcher = dispatcher
        self._selectors: dict[str, Selector | None] = {}
        self._credit: dict[Subscription, int] = {}
        self._levels: list[dict[str, deque[Subscription]]] = []
        self._given: dict[Subscription, list[tuple[Message, bool]]] = {}
        self._turn = 0
        self._looked_at = 0

    # Consumers come and go.

    def consumers_changed(self) -> bool:
        """Note the selectors there are now.

        Returns:
            Whether what is parked has to be scanned again: there is a selector that was not there, or one whose last
            consumer left.
        """
        eligible = self._dispatcher.round_robin.eligible(self._queue.policy)
        before, self._selectors = self._selectors, {_text(s): s.selector for s in eligible}
        return before.keys() != self._selectors.keys()

    def forget(self) -> None:
        """Nobody consumes any more."""
        self._selectors = {}

    # A pass.

    def dispatch(self) -> None:
        """Give out what can be given out, or as much as one turn allows.

        Raises:
            StoreError: the next message cannot be read.
        """
        self._begin()
        self._looked_at = 0
        try:
            for lane in self._queue.lanes:
                if self._credit and not self._dispatcher.is_held(lane):
                    self._serve(lane)
        finally:
            self._hand_out()
        if self._looked_at >= SCAN_LIMIT:
            self._queue.wake()

    def _begin(self) -> None:
        """See who has credit, by priority and selector; who had a message least recently comes first."""
        policy = self._queue.policy
        ready = [s for s in self._dispatcher.round_robin.eligible(policy) if s.credit > 0]
        self._credit = {s: s.credit for s in ready}
        if not policy.strict_order_dispatch:
            ready.sort(key=lambda s: s.turn)
        levels: dict[int, dict[str, deque[Subscription]]] = {}
        for subscription in ready:
            level = levels.setdefault(subscription.priority if policy.use_consumer_priority else 0, {})
            level.setdefault(_text(subscription), deque()).append(subscription)
        self._levels = [levels[priority] for priority in sorted(levels, reverse=True)]

    def _serve(self, lane: QueueLane) -> None:
        """One lane: what came back, what is parked for those that have credit, then the window."""
        held = self._offer_returned(lane)
        if not self._offer_parked(lane, held):
            return
        while self._credit and self._looked_at < SCAN_LIMIT:
            if lane.parking.count >= PARKED_LIMIT:
                return
            run = self._dispatcher.take(lane, RUN)
            if not run:
                return
            self._looked_at += len(run)
            for index, message in enumerate(run):
                if not self._credit:
                    lane.put_back(run[index:])
                    return
                taker, group = self._taker(lane, message, held)
                if taker is None:
                    self._park(lane, message, group)
                elif not self._may_give(lane, message):
                    lane.put_back(run[index:])
                    return
                else:
                    self._give(taker, message, group)

    def _offer_returned(self, lane: QueueLane) -> set[str]:
        """Offer what came back. What nobody wants is parked when the store knows that it came back.

        Returns:
            The groups whose later messages have to wait: for one that came back and found nobody, or for its delay.
        """
        held = set(lane.delayed.groups)
        if not lane.returned:
            return held
        returned, lane.returned = list(lane.returned), deque()
        settled = self._broker.commits_done >= lane.settles_with
        for message in self._dispatcher.without_late_ones(lane, returned):
            taker, group = self._taker(lane, message, held, behind_parked=False)
            if taker is not None:
                self._give(taker, message, group)
            elif settled and group is None and not self._wanted_by(message):
                self._park(lane, message, None)
            else:
                lane.returned.append(message)
                if group is not None:
                    held.add(group)
        held.update(lane.delayed.groups)
        return held

    def _offer_parked(self, lane: QueueLane, held: set[str]) -> bool:
        """Offer what is parked for those that have credit, in its order.

        Returns:
            Whether the window may be looked at: nothing that comes before it waits for memory or for the mark.
        """
        stuck: set[Fifo] = set()
        while self._credit and (fifos := self._servable(lane, held, stuck)):
            entries = list(islice(merge(*fifos), min(sum(self._credit.values()), RECALL_LIMIT)))
            messages, settled = lane.recall([e[0] for e in entries], [e[1] for e in entries], lane.parking.kept)
            if not settled:
                lane.memory.wait(self._queue.memory_released)
                return False
            if not self._offer_recalled(lane, held, entries[:settled], messages, stuck):
                return False
        return True

    def _servable(self, lane: QueueLane, held: set[str], stuck: set[Fifo]) -> list[Fifo]:
        """What is parked for somebody who has credit, or for nobody in particular."""
        parking = lane.parking
        parking.forget_empty()
        texts = {text for level in self._levels for text in level}
        fifos = [fifo for key, fifo in parking.matched.items() if not texts.isdisjoint(key)]
        for owner in (*self._credit, None):
            fifos += [parking.groups[name] for name in parking.groups_of(owner) if name not in held]
        return [fifo for fifo in fifos if fifo not in stuck]

    def _offer_recalled(
        self, lane: QueueLane, held: set[str], entries: list[Entry], messages: list[Message], stuck: set[Fifo]
    ) -> bool:
        """Offer messages that were parked; those that find nobody stay so. False if they wait for the mark."""
        there = {message.sequence: message for message in messages}
        back: list[Message] = []
        covered = True
        for sequence, _, fifo in entries:
            message = there.get(sequence)
            if fifo in stuck or not covered:
                back += [message] if message else []
                continue
            if message is not None:
                taker, group = self._taker(lane, message, held, behind_parked=False)
                covered = taker is None or self._may_give(lane, message)
                if taker is None or not covered:
                    stuck.add(fifo)
                    back.append(message)
                    continue
                self._give(taker, message, group)
            lane.parking.drop(fifo)
        lane.set_aside_again(back)
        return covered

    # One message.

    def _taker(
        self, lane: QueueLane, message: Message, held: set[str], *, behind_parked: bool = True
    ) -> tuple[Subscription | None, str | None]:
        """Who gets a message now, if anybody; and the group it is of, if any."""
        group = message.header(GROUP_ID) if self._queue.grouped else None
        if not group:
            return self._next_taker(message), None
        if group in held or (behind_parked and group in lane.parking.groups):
            return None, group
        groups = self._dispatcher.groups
        owner = groups.owner(group)
        if owner is not None and not restarts_group(message) and _matches(owner, message):
            free = owner in self._credit and not groups.is_moving(group)
            return (owner if free else None), group
        return self._next_taker(message, by_groups=True), group

    def _next_taker(self, message: Message, *, by_groups: bool = False) -> Subscription | None:
        """Of those that have credit and want a message: one of the highest priority, whose turn it is."""
        for level in self._levels:
            found = [s for waiting in level.values() for s in (waiting if by_groups else (waiting[0],))]
            wanting = [s for s in found if _matches(s, message)]
            if wanting and by_groups:
                return min(wanting, key=lambda s: (self._dispatcher.groups.count(s), s.turn))
            if wanting:
                return min(wanting, key=lambda s: s.turn) if len(wanting) > 1 else wanting[0]
        return None

    def _may_give(self, lane: QueueLane, message: Message) -> bool:
        """Whether the dispatch mark covers a message; it is written further ahead if need be."""
        if lane.mark.reach(message.sequence):
            self._queue.write_mark()
        return message.sequence <= lane.mark.stored

    def _give(self, taker: Subscription, message: Message, group: str | None) -> None:
        first = False
        if group is not None:
            first = self._dispatcher.groups.take(group, taker, message)
        self._given.setdefault(taker, []).append((message, first))
        self._turn += 1
        taker.turn = self._turn
        self._credit[taker] -= 1
        level = next(level for level in self._levels if taker in level.get(_text(taker), ()))
        waiting = level[_text(taker)]
        if not self._credit[taker]:
            del self._credit[taker]
            waiting.remove(taker)
            if not waiting:
                del level[_text(taker)]
        elif not self._queue.policy.strict_order_dispatch and waiting[0] is taker:
            waiting.rotate(-1)

    def _hand_out(self) -> None:
        given, self._given = self._given, {}
        for subscription, messages in given.items():
            start = 0
            for index, (message, first) in enumerate(messages):
                if first:
                    if index > start:
                        self._dispatcher.give(subscription, [m for m, _ in messages[start:index]])
                    self._dispatcher.give(subscription, [message], FIRST_OF_GROUP)
                    start = index + 1
            if start < len(messages):
                self._dispatcher.give(subscription, [m for m, _ in messages[start:]])

    def _park(self, lane: QueueLane, message: Message, group: str | None) -> None:
        lane.cursor.set_aside(message)
        if group is not None:
            lane.parking.park_group(message, group, self._dispatcher.groups.owner(group))
            return
        lane.parking.park_matched(message, self._wanted_by(message))

    def _wanted_by(self, message: Message) -> tuple[str, ...]:
        """The selectors of present consumers that match a message."""
        return tuple(
            sorted([text for text, wants in self._selectors.items() if wants is None or wants.matches(message)])
        )


def _text(subscription: Subscription) -> str:
    return ALL if subscription.selector is None else subscription.selector.text


def _matches(subscription: Subscription, message: Message) -> bool:
    return subscription.selector is None or subscription.selector.matches(message)
