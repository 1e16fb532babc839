"""The dispatch of a queue whose messages are looked at one by one: there are selectors, or message groups.

What no present consumer can take now is parked, and the scan goes on (rule 9): a full consumer, or one that wants other
messages, keeps nothing from the rest. A consumer gets what is parked for it before anything later, so its order holds.
Within a group, nothing that a present consumer wants is overtaken.

A message group (JMSXGroupID, JMSXGroupSeq) keeps its owner until the owner leaves or the group is closed. An exclusive
consumer gets the groups of the others only with their next messages; if there are none until it leaves, the owners
still have their groups. Groups with a message in flight are never forgotten, however many there are; of the others the
oldest are, beyond a limit, which changes no order.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from operator import attrgetter
from typing import NamedTuple, Protocol

from quire.broker.core.core import Core
from quire.broker.core.subscription import Subscription
from quire.cursors.lane import END, QueueLane
from quire.cursors.parking import ANYBODY, GROUP_SEQUENCE, Entry, Fifo, Takers, restarts_group
from quire.message import Message
from quire.selectors import Selector, at_most
from quire.settings import Policy

GROUP_ID = b"JMSXGroupID"

GROUP_LIMIT = 100_000
"""With so many groups, owners of groups that have nothing in flight are forgotten, the oldest first."""

_LOOK = 100
"""How many of the oldest groups are looked at when there are too many."""


def closes_group(message: Message) -> bool:
    """Whether a message is the last one of its group (JMSXGroupSeq is negative); not when it comes again."""
    return not message.redelivered and (message.header(GROUP_SEQUENCE) or "").startswith("-")


class Group:
    """One group.

    Attributes:
        given_up: whether it is closed when nothing of it is in flight any more.
        lent: whether its owner is given nothing now, so that another consumer may have its next message.
    """

    __slots__ = ("given_up", "in_flight", "is_new", "lent", "name", "owner")

    def __init__(self, name: str, owner: Subscription) -> None:
        self.name = name
        self.owner = owner
        self.in_flight = 0
        self.given_up = self.lent = False
        self.is_new = True

    @property
    def moving(self) -> bool:
        """Whether its next message may go to another consumer when nothing of it is in flight any more."""
        return self.given_up or self.lent


class MessageGroups:
    __slots__ = ("_barred", "_changed", "_in_flight", "_owned", "groups")

    def __init__(self, changed: Callable[[str, Subscription | None], None]) -> None:
        self.groups: dict[str, Group] = {}
        self._changed = changed
        self._owned: dict[Subscription, int] = {}
        self._in_flight: dict[int, Group] = {}
        self._barred: set[Subscription] = set()

    @property
    def is_full(self) -> bool:
        return len(self.groups) >= GROUP_LIMIT

    def owner(self, name: str) -> Subscription | None:
        group = self.groups.get(name)
        return None if group is None else group.owner

    def is_moving(self, name: str) -> bool:
        group = self.groups.get(name)
        return group is not None and group.moving and group.in_flight > 0

    def bound_to(self, name: str) -> Subscription | None:
        group = self.groups.get(name)
        return None if group is None or (group.lent and not self.is_moving(name)) else group.owner

    def count(self, subscription: Subscription) -> int:
        return self._owned.get(subscription, 0)

    def restarts(self, message: Message) -> bool:
        return restarts_group(message)

    def assign(self, name: str, owner: Subscription) -> Group:
        group = self.groups.get(name)
        if group is None:
            if self.is_full:
                self._forget_idle()
            group = self.groups[name] = Group(name, owner)
        else:
            self._owned[group.owner] -= 1
            group.owner, group.is_new = owner, True
            group.given_up = group.lent = False
        self._owned[owner] = self._owned.get(owner, 0) + 1
        self._changed(name, owner)
        return group

    def close(self, name: str) -> None:
        group = self.groups.pop(name, None)
        if group is not None:
            self._owned[group.owner] -= 1
            self._changed(name, None)

    def move(self, name: str) -> None:
        """A group is to have another owner: it loses the one it has when nothing of it is in flight any more."""
        self.groups[name].given_up = True
        if not self.groups[name].in_flight:
            self.close(name)

    def take(self, name: str, owner: Subscription, message: Message) -> bool:
        """A consumer is given a message of a group, which it has from now on; whether it is the first one it gets of
        the group.
        """
        known = self.owner(name) is owner and not restarts_group(message)
        group = self.groups[name] if known else self.assign(name, owner)
        first, group.is_new = group.is_new, False
        group.in_flight += 1
        self._in_flight[message.sequence] = group
        if closes_group(message):
            self.close(name)
        return first

    def settled(self, messages: Iterable[Message]) -> None:
        for message in messages:
            group = self._in_flight.pop(message.sequence, None)
            if group is not None:
                group.in_flight -= 1
                if group.moving and not group.in_flight and self.groups.get(group.name) is group:
                    self._let_move(group)

    def _let_move(self, group: Group) -> None:
        if group.given_up:
            self.close(group.name)
        else:
            self._changed(group.name, None)

    def leave(self, subscription: Subscription) -> None:
        if self._owned.get(subscription):
            for name in [group.name for group in self.groups.values() if group.owner is subscription]:
                self.close(name)
        self._owned.pop(subscription, None)

    def lend(self, barred: set[Subscription]) -> None:
        """Some consumers are given nothing now: others may have the next messages of their groups, and the groups.

        Groups of which no other consumer took a message meanwhile remain with their owners.
        """
        if barred != self._barred:
            self._barred = barred
            for group in self.groups.values():
                if group.lent is not (group.owner in barred):
                    group.lent = not group.lent
                    self._changed(group.name, self.bound_to(group.name))

    def rebalance(self, present: list[Subscription]) -> None:
        """Take groups from those that have more than their share, idle ones rather: there is a new consumer."""
        share = -(-len(self.groups) // len(present))
        surplus = {s: self.count(s) - share for s in present}
        for group in self.groups.values():
            if group.moving and group.owner in surplus:
                surplus[group.owner] -= 1
        for group in sorted(self.groups.values(), key=lambda group: group.in_flight > 0):
            if not group.moving and surplus.get(group.owner, 0) > 0:
                surplus[group.owner] -= 1
                self.move(group.name)

    def _forget_idle(self) -> None:
        """Forget the oldest groups that have nothing in flight; the others of the oldest are looked at last again."""
        for name in list(islice(self.groups, _LOOK)):
            if not self.groups[name].in_flight:
                self.close(name)
            else:
                self.groups[name] = self.groups.pop(name)


NO_GROUPS = MessageGroups(lambda name, owner: None)
"""The groups of all queues that have none: nothing is ever put into it."""

RECALL_LIMIT = 64
"""How many messages that were set aside are brought back at once."""

SCAN_LIMIT = 1000
"""How many messages are looked at before others have their turn."""

RUN = 128
"""How many messages are taken from the window at once."""

BUDGET = 0.01
"""How long selectors with LIKE may be asked in one turn, in seconds: long headers take them long."""

ALL = ""
"""Stands for the selector of a consumer that has none."""


Held = dict[str, int]
"""By group, the first message that came back and found no consumer: later ones of the group wait for it."""


_turn = attrgetter("turn")


class _Choice(NamedTuple):
    """What becomes of a message.

    Attributes:
        group: the message group it is of; None if of none, or if no present consumer wants it.
        takers: who may take it later.
    """

    taker: Subscription | None
    group: str | None
    takers: Takers


class Queue(Protocol):
    """``LaneDispatch``, which is in a module that needs this one."""

    policy: Policy
    lanes: Sequence[QueueLane]
    groups: MessageGroups
    group_header: bytes | None

    @property
    def room(self) -> int: ...

    def eligible_consumers(self) -> list[Subscription]: ...

    def may_give(self, lane: QueueLane, message: Message) -> bool: ...

    def first_of_window(self, lane: QueueLane) -> int: ...

    def wait_if_refused(self, lane: QueueLane) -> None: ...

    def in_time(self, lane: QueueLane, run: list[Message]) -> tuple[list[Message], bool]: ...

    def without_late_ones(self, lane: QueueLane, run: list[Message]) -> list[Message]: ...

    def barrier(self, lane: QueueLane) -> int: ...

    def recall_due(self, lane: QueueLane) -> int | None: ...

    def recall(
        self, lane: QueueLane, sequences: list[int], sizes: list[int], kept: dict[int, Message]
    ) -> tuple[list[Message], int]: ...

    def unsettled(self) -> set[int]: ...

    def give(self, subscription: Subscription, messages: list[Message], first: bool = False) -> None: ...

    def wake(self) -> None: ...


class SelectiveDispatch:
    def __init__(self, core: Core, queue: Queue) -> None:
        self._core = core
        self._queue = queue
        self._selectors: dict[str, Selector | None] = {}
        self._run = RUN
        self._end = 0.0
        self._credit: dict[Subscription, int] = {}
        self._room = 0
        self._levels: list[dict[str, deque[Subscription]]] = []  # by priority and selector: who has credit, in turn
        self._waiting: dict[Subscription, deque[Subscription]] = {}
        self._given: dict[Subscription, list[tuple[Message, bool]]] = {}
        self._turn = 0
        self._looked_at = 0
        self._has_more = False

    def consumers_changed(self, eligible: list[Subscription]) -> bool:
        """Note the selectors there are; whether the lane is scanned again: one is new, or the last consumer of one has
        left.
        """
        before, self._selectors = self._selectors, {_text(s): s.selector for s in eligible}
        self._run = at_most(RUN, self._selectors.values())
        return before.keys() != self._selectors.keys()

    # A pass.

    def dispatch(self) -> None:
        self._begin()
        self._looked_at, self._has_more = 0, False
        self._end = self._core.clock.monotonic() + BUDGET
        try:
            for lane in self._queue.lanes:
                if self._credit:
                    self._serve(lane)
        finally:
            self._hand_out()
        if self._has_more:
            self._queue.wake()

    def _begin(self) -> None:
        """See who has credit, by priority and selector; who had a message least recently comes first."""
        policy = self._queue.policy
        ready = [s for s in self._queue.eligible_consumers() if s.credit > 0]
        if policy.strict_order_dispatch:
            for turn, subscription in enumerate(ready):
                subscription.turn = turn
        else:
            ready.sort(key=_turn)
        self._credit = {s: s.credit for s in ready}
        self._room = self._queue.room
        self._waiting = {}
        levels: dict[int, dict[str, deque[Subscription]]] = {}
        for subscription in ready:
            level = levels.setdefault(subscription.priority if policy.use_consumer_priority else 0, {})
            self._waiting[subscription] = level.setdefault(_text(subscription), deque())
            self._waiting[subscription].append(subscription)
        self._levels = [levels[priority] for priority in sorted(levels, reverse=True)]

    def _serve(self, lane: QueueLane) -> None:
        held: Held = {}
        if not self._offer_returned(lane, held) or not self._offer_parked(lane, held):
            return
        lane.parking.forget_empty()
        while self._may_go_on() and not lane.parking.is_full:
            first = self._queue.first_of_window(lane)
            moved = self._offer(lane, held, first)
            if not moved and not lane.cursor.window:
                self._queue.wait_if_refused(lane)
                return
            taken = lane.take_from_window(self._run)
            if not taken and lane.cursor.window:
                return
            run, is_held = self._queue.in_time(lane, taken)
            handled = self._offer_run(lane, held, run)
            self._looked_at += handled
            if handled < len(run):
                lane.put_back(run[handled:])
                return
            if is_held:
                return

    def _may_go_on(self) -> bool:
        if self._looked_at >= SCAN_LIMIT or self._is_late():
            self._has_more = True
        return bool(self._credit) and not self._has_more

    def _is_late(self) -> bool:
        """Whether selectors with LIKE have taken so long that others have their turn first."""
        if self._run < RUN and self._core.clock.monotonic() > self._end:
            self._has_more = True
            return True
        return False

    def _offer_run(self, lane: QueueLane, held: Held, run: list[Message]) -> int:
        """Give or park messages of the window, until no consumer has credit or the mark ends."""
        unwanted = self._unwanted_first(run)
        lane.set_aside_unwanted(run[:unwanted])
        for index, message in enumerate(run[unwanted:], unwanted):
            if not self._credit:
                return index
            choice = self._choose(lane, message, held)
            if choice.taker is None:
                self._park(lane, message, choice)
            elif not self._queue.may_give(lane, message):
                return index
            else:
                self._give(choice.taker, message, choice.group)
        return len(run)

    def _unwanted_first(self, run: list[Message]) -> int:
        """How many of the first messages no consumer wants: one with a selector may be far from its next message."""
        if ALL in self._selectors:
            return 0
        wants = [selector.matches for selector in self._selectors.values() if selector is not None]
        for index, message in enumerate(run):
            for matches in wants:
                if matches(message):
                    return index
        return len(run)

    def _offer_returned(self, lane: QueueLane, held: Held) -> bool:
        """Offer what came back, delayed or not; whether all was. What no consumer takes is parked when the store knows
        it.
        """
        while self._may_go_on():
            self._offer(lane, held, lane.scanned + 1)
            recalled = self._queue.recall_due(lane) if lane.delayed else 0
            if not recalled:
                return recalled is not None or bool(lane.returned)  # those hold memory: they go on, to release it
            self._looked_at += recalled
        return False

    def _offer(self, lane: QueueLane, held: Held, below: int) -> int:
        if not lane.returned:
            return 0
        returned, lane.returned = list(lane.returned), deque()
        unsettled, below = self._queue.unsettled(), min(below, self._queue.barrier(lane))
        left = deque(self._queue.without_late_ones(lane, returned))
        try:
            while left and left[0].sequence < below and not self._is_late():
                is_next = self._offer_parked(lane, held, left[0].sequence)
                message = left.popleft()
                choice = self._choose(lane, message, held)
                if choice.taker is not None and is_next:
                    self._give(choice.taker, message, choice.group)
                elif message.sequence not in unsettled:
                    self._park(lane, message, choice)
                else:
                    lane.returned.append(message)
                    if choice.group is not None:
                        held.setdefault(choice.group, message.sequence)
        finally:  # what is parked may not be readable now: those that have not been looked at have come back still
            lane.returned += left
        return len(returned) - len(lane.returned)

    def _offer_parked(self, lane: QueueLane, held: Held, below: int = END) -> bool:
        """Offer what is parked; whether the next one may be looked at: nothing before it waits for memory or for the
        mark.
        """
        parking, below = lane.parking, min(below, self._queue.barrier(lane))
        while parking.count and self._may_go_on():
            texts = {text for level in self._levels for text, waiting in level.items() if waiting}
            limit = min(sum(self._credit.values()), RECALL_LIMIT)
            entries = parking.take(self._credit, texts, self._is_held(lane, held), below, limit)
            if not entries:
                return True
            settled = 0
            try:
                messages, settled = self._queue.recall(
                    lane, [entry[0] for entry in entries], [entry[1] for entry in entries], parking.kept
                )
            finally:
                parking.put_back(entries[settled:])
            if not settled or not self._offer_recalled(lane, held, entries[:settled], messages):
                return False
        return not self._has_more

    def _is_held(self, lane: QueueLane, held: Held) -> Callable[[str, int], bool]:
        delayed, groups = lane.delayed, self._queue.groups
        return lambda name, first: held.get(name, first) < first or delayed.holds(name, first) or groups.is_moving(name)

    def _offer_recalled(self, lane: QueueLane, held: Held, entries: list[Entry], messages: list[Message]) -> bool:
        """Offer messages that were parked; those that find no consumer stay so. False if they wait for the mark."""
        there = {message.sequence: message for message in self._queue.without_late_ones(lane, messages)}
        stuck: dict[Fifo, Takers] = {}
        back: list[Entry] = []
        covered = True
        for entry in entries:
            sequence, _, fifo = entry
            message = there.get(sequence)
            if fifo in stuck or not covered:
                back.append(entry)
                continue
            if message is not None:
                choice = self._choose(lane, message, held)
                covered = choice.taker is None or self._queue.may_give(lane, message)
                if choice.taker is None or not covered:
                    if covered:
                        stuck[fifo] = choice.takers
                    back.append(entry)
                    continue
                self._give(choice.taker, message, choice.group)
            lane.parking.done(entry)
        self._looked_at += len(entries) - len(back) + len(stuck)
        lane.parking.put_back(back)
        for fifo, takers in stuck.items():
            lane.parking.wait_for(fifo, takers)
        lane.set_aside_again([there[entry[0]] for entry in back if entry[0] in there])
        return covered

    # One message.

    def _choose(self, lane: QueueLane, message: Message, held: Held) -> _Choice:
        texts = self._wanted_by(message)
        group = message.header(header) if texts and (header := self._queue.group_header) else None
        if not group:
            return _Choice(self._next_taker(texts), None, texts)
        groups, sequence = self._queue.groups, message.sequence
        owner = groups.bound_to(group)
        waits = lane.delayed.holds(group, sequence) or lane.parking.holds(group, sequence)
        if waits or held.get(group, sequence) < sequence:
            return _Choice(None, group, owner or ANYBODY)
        if owner is None or groups.restarts(message):
            return self._new_owner(group, texts)
        if groups.is_moving(group):
            return _Choice(None, group, owner)
        if _text(owner) in texts:
            return _Choice(owner if owner in self._credit else None, group, owner)
        groups.move(group)
        if groups.bound_to(group) is owner:
            return _Choice(None, group, owner)
        return self._new_owner(group, texts)

    def _new_owner(self, group: str, texts: tuple[str, ...]) -> _Choice:
        """Find a group an owner: a consumer with credit; if groups are shared out evenly, the one with the fewest."""
        groups = self._queue.groups
        if not self._queue.policy.rebalance_message_groups:
            return _Choice(self._next_owner(texts), group, texts)
        wanting = [s for s in self._queue.eligible_consumers() if _text(s) in texts]
        fewest = min(wanting, key=lambda subscription: (groups.count(subscription), subscription.turn))
        if fewest in self._credit:
            return _Choice(fewest, group, texts)
        if groups.is_full:  # one that only waits would have another forgotten that waits too, and so on without end
            return _Choice(self._next_owner(texts), group, texts)
        groups.assign(group, fewest)
        return _Choice(None, group, fewest)

    def _next_taker(self, texts: Iterable[str]) -> Subscription | None:
        for level in self._levels:
            first = [waiting[0] for text in texts if (waiting := level.get(text))]
            if first:
                return min(first, key=_turn) if len(first) > 1 else first[0]
        return None

    def _next_owner(self, texts: Iterable[str]) -> Subscription | None:
        """Of those that have credit and one of some selectors: of the highest priority, one with the fewest groups."""
        count = self._queue.groups.count
        for level in self._levels:
            if found := [subscription for text in texts for subscription in level.get(text, ())]:
                return min(found, key=lambda subscription: (count(subscription), subscription.turn))
        return None

    def _wanted_by(self, message: Message) -> tuple[str, ...]:
        return tuple([text for text, wants in self._selectors.items() if wants is None or wants.matches(message)])

    def _give(self, taker: Subscription, message: Message, group: str | None) -> None:
        first = group is not None and self._queue.groups.take(group, taker, message)
        self._given.setdefault(taker, []).append((message, first))
        self._credit[taker] -= 1
        waiting, in_turn = self._waiting[taker], not self._queue.policy.strict_order_dispatch
        if in_turn:
            self._turn += 1
            taker.turn = self._turn
        if not self._credit[taker]:
            del self._credit[taker]
            waiting.remove(taker)
        elif in_turn:
            waiting.remove(taker)
            waiting.append(taker)
        self._room -= 1
        if not self._room:
            self._credit, self._levels = {}, []

    def _hand_out(self) -> None:
        given, self._given = self._given, {}
        for subscription, messages in given.items():
            start = 0
            for index, (message, first) in enumerate(messages):
                if first:
                    if index > start:
                        self._queue.give(subscription, [m for m, _ in messages[start:index]])
                    self._queue.give(subscription, [message], True)
                    start = index + 1
            if start < len(messages):
                self._queue.give(subscription, [m for m, _ in messages[start:]])

    def _park(self, lane: QueueLane, message: Message, choice: _Choice) -> None:
        lane.cursor.set_aside(message)
        lane.parking.park(message, choice.group, choice.takers)


def _text(subscription: Subscription) -> str:
    return ALL if subscription.selector is None else subscription.selector.text
