"""Gives the messages of lanes to consumers.

Mostly any consumer may have any message: then runs of them are dealt out in turn (``Dispatcher``, ``RoundRobin``). With
selectors or message groups each message is looked at (``SelectiveDispatch``). What no present consumer can take now is
parked, and the scan goes on (rule 9): a full consumer, or one that wants other messages, keeps nothing from the rest. A
consumer gets what is parked for it before anything later, so its order holds. Within a group, nothing that a present
consumer wants is overtaken.

``NextMessages`` says what comes next: in time, not delayed, up to the dispatch mark. ``StartGate`` is the wait for a
number of consumers, or for a time, before the first delivery.
"""

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple, Protocol

from quire.broker.core.core import Core
from quire.broker.core.subscription import Subscription
from quire.broker.queues.lane import END, RECALL_LIMIT, LaneCommits, MessageLocator, QueueLane
from quire.broker.queues.parking import ANYBODY, Entry, Fifo, MessageGroups, Takers
from quire.clock import Clock
from quire.message import Message
from quire.scheduler import Scheduler, Timer
from quire.selectors import Selector, at_most
from quire.settings.policy import Policy


class Dispatched(Protocol):
    """A queue, or what is dispatched as one.

    Attributes:
        policy: what applies to it.
        subscriptions: its consumers, in the order they came.
        locator: says where its messages are.
        commits: what it has in commits.
    """

    policy: Policy
    subscriptions: list[Subscription]
    locator: MessageLocator
    commits: LaneCommits

    @property
    def lanes(self) -> Sequence[QueueLane]:
        """Its lanes, those of higher priority first."""

    @property
    def grouped(self) -> bool:
        """Whether it may have messages of groups."""

    @property
    def group_header(self) -> bytes | None:
        """The header whose value is a message's group; None if there are no messages of groups."""

    @property
    def room(self) -> int:
        """How many more messages its consumers may have, all together."""

    @property
    def window(self) -> int:
        """How many messages its consumers may have in flight, all together."""

    @property
    def is_given_out(self) -> bool:
        """Whether it has one consumer, and that has all there is."""

    def give(self, subscription: Subscription, messages: list[Message], first: bool = False) -> None:
        """Give messages to a consumer that has credit for them."""

    def dead_letter(self, messages: list[Message], reason: str, cause: str) -> None:
        """Remove resident messages that cannot be delivered."""

    def wake(self) -> None:
        """Dispatch at the end of this turn."""

    def memory_released(self) -> bool:
        """Memory was released: try again. Whether nothing is refused any more."""


class NextMessages:
    """The next messages of one queue."""

    __slots__ = ("_core", "_planned", "_queue")

    def __init__(self, core: Core, queue: Dispatched) -> None:
        self._core = core
        self._queue = queue
        self._planned: list[int] = []

    def run(self, limit: int) -> list[Message]:
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
                        self._queue.commits.hurry()
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
            lane.read_returned_again(self._queue.locator.unsettled())
            first = lane.first_of_window()
            if first == END and lane.cursor.blocked_since is not None:
                self.wait_if_refused(lane)
                return lane.scanned
        return first

    def in_time(self, lane: QueueLane, run: list[Message]) -> tuple[list[Message], bool]:
        """Take out of a run what has expired or is to be delivered later, and what such a message holds back.

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
        now = self._core.wall.past_ms()
        expired = [message for message in run if message.expiration and message.expiration <= now]
        run = [message for message in run if not message.expiration or message.expiration > now]
        if expired:
            self._queue.dead_letter(expired, "expired", "expired before it could be delivered")
        steady = self._core.wall.steady_ms()
        if delayed := [message for message in run if message.not_before > steady]:
            self.delay(lane, delayed)
        return [message for message in run if message.not_before <= steady]

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
        lane.delay(messages, self._queue.group_header)
        self.wake_when_due(lane)

    def wake_when_due(self, lane: QueueLane) -> None:
        """Dispatch when the first delayed message is due, unless that is planned already."""
        now, earliest = self._core.wall.steady_ms(), lane.delayed.earliest
        if earliest > now and (not self._planned or earliest < self._planned[0]):
            heapq.heappush(self._planned, earliest)
            self._core.scheduler.call_later((earliest - now) / 1000, self._some_are_due)

    def _some_are_due(self) -> None:
        heapq.heappop(self._planned)
        self._queue.wake()

    def recall_due(self, lane: QueueLane) -> int | None:
        """Bring delayed messages back that are due, some at a time.

        Returns:
            How many of them wait no more; None if they wait for memory.
        """
        now = self._core.wall.steady_ms()
        if lane.delayed.earliest > now:
            return 0
        sequences, sizes = lane.delayed.due(now, RECALL_LIMIT, self._queue.locator.unsettled())
        if not sequences:
            return 0
        messages, count = self.recall(lane, sequences, sizes, lane.delayed.kept)
        lane.delayed.drop(count)
        lane.come_back(messages)
        if lane.delayed:
            self.wake_when_due(lane)
        return count or None

    def recall(
        self, lane: QueueLane, sequences: list[int], sizes: list[int], kept: dict[int, Message]
    ) -> tuple[list[Message], int]:
        """Bring messages back that were set aside, as ``QueueLane.recall``; they go before the window, for memory too.

        If memory refuses them all the same, dispatch is tried again when some is released.
        """
        messages, count = lane.recall(sequences, sizes, kept)
        if not count and lane.cursor.window:
            lane.give_up_window(self._queue.locator.out_sequences())
            messages, count = lane.recall(sequences, sizes, kept)
        if not count:
            lane.memory.wait(self._queue.memory_released)
        return messages, count


class RoundRobin:
    """Deals a queue's messages out to its consumers, in turn among equals."""

    __slots__ = ("_dealt", "_subscriptions")

    def __init__(self, subscriptions: list[Subscription]) -> None:
        self._subscriptions = subscriptions
        self._dealt = 0

    def eligible(self, policy: Policy) -> list[Subscription]:
        """The consumers that take part; of exclusive ones only the owner: the first one of the highest priority."""
        if policy.all_consumers_exclusive_by_default:
            exclusive = self._subscriptions
        else:
            exclusive = [s for s in self._subscriptions if s.exclusive]
        return [max(exclusive, key=attrgetter("priority"))] if exclusive else self._subscriptions

    def ready(self, policy: Policy) -> list[Subscription]:
        """The consumers with credit that are served now: those of the highest priority, or the first of them."""
        ready = [s for s in self.eligible(policy) if s.credit > 0]
        if len(ready) > 1 and policy.use_consumer_priority:
            highest = max([s.priority for s in ready])
            ready = [s for s in ready if s.priority == highest]
        return ready[:1] if policy.strict_order_dispatch else ready

    def deal(self, run: list[Message], ready: list[Subscription]) -> Iterator[tuple[Subscription, list[Message]]]:
        """Split a run of messages: each consumer gets every nth one, and the next run goes on where this one ends."""
        start, self._dealt = self._dealt, self._dealt + len(run)
        for index, subscription in enumerate(ready):
            if share := run[(index - start) % len(ready) :: len(ready)]:
                yield subscription, share


DEFAULT_WAIT = 1.0
"""How long a queue waits that is to wait for a number of consumers and was given no time, in seconds (ActiveMQ's)."""


class StartGate:
    """Opens when enough consumers are there or the time is up; closes when all are gone.

    Args:
        opened: called when the time is up.

    Attributes:
        since: when the first consumer came, on the monotonic clock; None while no consumer waits.
    """

    __slots__ = ("_clock", "_is_open", "_opened", "_scheduler", "_timer", "since")

    def __init__(self, clock: Clock, scheduler: Scheduler, opened: Callable[[], None]) -> None:
        self.since: float | None = None
        self._clock = clock
        self._scheduler = scheduler
        self._opened = opened
        self._is_open = False
        self._timer: Timer | None = None

    def consumer_came(self, policy: Policy, consumers: int) -> None:
        """A consumer came; there are so many now."""
        wanted, seconds = policy.consumers_before_dispatch_starts, policy.time_before_dispatch_starts
        if self._is_open:
            return
        if (wanted and consumers >= wanted) or not (wanted or seconds):
            self._open()
        elif self.since is None:
            self.since = self._clock.monotonic()
            self._timer = self._scheduler.call_later(seconds or DEFAULT_WAIT, self._time_is_up)

    def all_gone(self) -> None:
        """The last consumer is gone."""
        self._open()
        self._is_open = False

    @property
    def is_closed(self) -> bool:
        """Whether the queue has consumers and waits all the same."""
        return self.since is not None

    def _open(self) -> None:
        self._is_open = True
        self.since = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _time_is_up(self) -> None:
        self._open()
        self._opened()


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


class _Choice(NamedTuple):
    """What becomes of a message.

    Attributes:
        taker: who gets it now; None if it has to wait.
        group: the message group it is of; None if of none, or if no present consumer wants it.
        takers: who may take it later.
    """

    taker: Subscription | None
    group: str | None
    takers: Takers


class SelectiveDispatch:
    """The dispatch of one queue, message by message."""

    __slots__ = (
        "_core", "_credit", "_end", "_given", "_groups", "_has_more", "_levels", "_looked_at", "_next", "_queue",
        "_room", "_round_robin", "_run", "_selectors", "_turn", "_waiting",
    )  # fmt: skip

    def __init__(
        self, core: Core, queue: Dispatched, next: NextMessages, groups: MessageGroups, round_robin: RoundRobin
    ) -> None:
        self._core = core
        self._queue = queue
        self._next = next
        self._groups = groups
        self._round_robin = round_robin
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
        """Note the selectors there are now.

        Returns:
            Whether what is parked has to be scanned again: there is a selector that was not there, or one whose last
            consumer left.
        """
        before, self._selectors = self._selectors, {_text(s): s.selector for s in eligible}
        self._run = at_most(RUN, self._selectors.values())
        return before.keys() != self._selectors.keys()

    # A pass.

    def dispatch(self) -> None:
        """Give out what can be given out, or as much as one turn allows.

        Raises:
            StoreError: the next message cannot be read.
        """
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
        ready = [s for s in self._round_robin.eligible(policy) if s.credit > 0]
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
        """One lane: what came back, what is parked for those that have credit, then the window."""
        held: Held = {}
        if not self._offer_returned(lane, held) or not self._offer_parked(lane, held):
            return
        lane.parking.forget_empty()
        while self._may_go_on() and not lane.parking.is_full:
            first = self._next.first_of_window(lane)
            moved = self._offer(lane, held, first)
            if not moved and not lane.cursor.window:
                self._next.wait_if_refused(lane)
                return
            taken = lane.take_from_window(self._run)
            if not taken and lane.cursor.window:
                return
            run, is_held = self._next.in_time(lane, taken)
            handled = self._offer_run(lane, held, run)
            self._looked_at += handled
            if handled < len(run):
                lane.put_back(run[handled:])
                return
            if is_held:
                return

    def _may_go_on(self) -> bool:
        """Whether anybody has credit, and others need not have their turn first."""
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
            elif not self._may_give(lane, message):
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
        """Offer what came back, delayed or not. What no consumer takes is parked when the store knows it.

        Returns:
            Whether it was all offered.
        """
        while self._may_go_on():
            self._offer(lane, held, lane.scanned + 1)
            recalled = self._next.recall_due(lane) if lane.delayed else 0
            if not recalled:
                return recalled is not None or bool(lane.returned)  # those hold memory: they go on, to release it
            self._looked_at += recalled
        return False

    def _offer(self, lane: QueueLane, held: Held, below: int) -> int:
        """Offer what came back, what comes before a sequence of it."""
        if not lane.returned:
            return 0
        returned, lane.returned = list(lane.returned), deque()
        unsettled, below = self._queue.locator.unsettled(), min(below, self._next.barrier(lane))
        left = deque(self._next.without_late_ones(lane, returned))
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
        """Offer what is parked for those that have credit, in its order.

        Args:
            below: only what comes before this sequence.

        Returns:
            Whether the next one may be looked at: nothing that comes before it waits for memory or for the mark.
        """
        parking, below = lane.parking, min(below, self._next.barrier(lane))
        while parking.count and self._may_go_on():
            texts = {text for level in self._levels for text, waiting in level.items() if waiting}
            limit = min(sum(self._credit.values()), RECALL_LIMIT)
            entries = parking.take(self._credit, texts, self._is_held(lane, held), below, limit)
            if not entries:
                return True
            settled = 0
            try:
                messages, settled = self._next.recall(
                    lane, [entry[0] for entry in entries], [entry[1] for entry in entries], parking.kept
                )
            finally:
                parking.put_back(entries[settled:])
            if not settled or not self._offer_recalled(lane, held, entries[:settled], messages):
                return False
        return not self._has_more

    def _is_held(self, lane: QueueLane, held: Held) -> Callable[[str, int], bool]:
        """Whether a parked message of a group has to wait, whichever consumer owns it."""
        delayed, groups = lane.delayed, self._groups
        return lambda name, first: held.get(name, first) < first or delayed.holds(name, first) or groups.is_moving(name)

    def _offer_recalled(self, lane: QueueLane, held: Held, entries: list[Entry], messages: list[Message]) -> bool:
        """Offer messages that were parked; those that find no consumer stay so. False if they wait for the mark."""
        there = {message.sequence: message for message in self._next.without_late_ones(lane, messages)}
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
                covered = choice.taker is None or self._may_give(lane, message)
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
        """Who gets a message, now or later."""
        texts = self._wanted_by(message)
        group = message.header(header) if texts and (header := self._queue.group_header) else None
        if not group:
            return _Choice(self._next_taker(texts), None, texts)
        groups, sequence = self._groups, message.sequence
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
        policy, groups = self._queue.policy, self._groups
        if not policy.rebalance_message_groups:
            return _Choice(self._next_owner(texts), group, texts)
        wanting = [s for s in self._round_robin.eligible(policy) if _text(s) in texts]
        fewest = min(wanting, key=lambda subscription: (groups.count(subscription), subscription.turn))
        if fewest in self._credit:
            return _Choice(fewest, group, texts)
        if groups.is_full:  # one that only waits would have another forgotten that waits too, and so on without end
            return _Choice(self._next_owner(texts), group, texts)
        groups.assign(group, fewest)
        return _Choice(None, group, fewest)

    def _next_taker(self, texts: Iterable[str]) -> Subscription | None:
        """Of those that have credit and one of some selectors: one of the highest priority, whose turn it is."""
        for level in self._levels:
            first = [waiting[0] for text in texts if (waiting := level.get(text))]
            if first:
                return min(first, key=_turn) if len(first) > 1 else first[0]
        return None

    def _next_owner(self, texts: Iterable[str]) -> Subscription | None:
        """Of those that have credit and one of some selectors: of the highest priority, one with the fewest groups."""
        count = self._groups.count
        for level in self._levels:
            if found := [subscription for text in texts for subscription in level.get(text, ())]:
                return min(found, key=lambda subscription: (count(subscription), subscription.turn))
        return None

    def _wanted_by(self, message: Message) -> tuple[str, ...]:
        """The selectors of present consumers that match a message."""
        return tuple([text for text, wants in self._selectors.items() if wants is None or wants.matches(message)])

    def _may_give(self, lane: QueueLane, message: Message) -> bool:
        """Whether the dispatch mark covers a message; it is written further ahead if need be."""
        if lane.mark.reach(message.sequence, self._queue.window):
            self._queue.commits.hurry()
        return message.sequence <= lane.mark.stored

    def _give(self, taker: Subscription, message: Message, group: str | None) -> None:
        first = group is not None and self._groups.take(group, taker, message)
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


def _turn(subscription: Subscription) -> int:
    return subscription.turn


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
