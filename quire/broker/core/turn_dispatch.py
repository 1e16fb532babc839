"""The part of a turn that gives out messages: bounded in time, and what is left is first in the next turn."""

import logging
import math
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

from quire.broker.core.subscription import Dispatching
from quire.broker.core.turn_meter import TurnMeter
from quire.cursors.memory_usage import MemoryUsage
from quire.errors import StoreError
from quire.logs import event

BUDGET = 0.01
"""How long the queues that are ready may take in a turn, in seconds; what has begun ends."""

WAITERS_BUDGET = 0.005
"""How long those may take that waited for memory, or for credit, in seconds."""


class Lock:
    """The store's lock, as dispatch sees it.

    Attributes:
        until: for how long it is sure that no other broker has the store, on the monotonic clock.
    """

    until = math.inf


class Resident(Protocol):
    """A queue without consumers that keeps messages in memory."""

    def give_up_memory(self) -> bool:
        """Move them to the spool; whether memory is free now."""


class Creditor(Protocol):
    """A subscription to several destinations."""

    def serve_waiting(self) -> None:
        """While there is credit: let those have it that wait for it."""


class TurnDispatch:
    """Dispatch, a turn at a time.

    Attributes:
        ready: what may have something to dispatch.
        with_credit: the subscriptions to several destinations that may have credit for those that wait for it.
        watched: those that had something to dispatch since consumers were last looked at.
        idle_residents: the queues without consumers that may keep messages in memory.
        lock: the store's lock: messages are given out while it is sure.
        has_given: whether messages of a lane were given out that are not written yet.
    """

    def __init__(self, meter: TurnMeter, memory: MemoryUsage, ask_turn: Callable[[], None]) -> None:
        self.ready: dict[Dispatching, None] = {}
        self.with_credit: dict[Creditor, None] = {}
        self.watched: dict[Dispatching, None] = {}
        self.idle_residents: OrderedDict[Resident, None] = OrderedDict()
        self.lock: Lock = Lock()
        self.has_given = False
        self._meter = meter
        self._memory = memory
        self._ask_turn = ask_turn
        self._ends = math.inf

    def wake(self, source: Dispatching) -> None:
        """There may be something to dispatch: it is served in the next turn."""
        self.ready[source] = None
        self._ask_turn()

    def credit(self, whole: Creditor) -> None:
        """There may be credit: what waits for it is served in the next turn."""
        self.with_credit[whole] = None
        self._ask_turn()

    def watch(self, source: Dispatching) -> None:
        """Its consumers are looked at whether they keep up."""
        self.watched[source] = None

    def take_watched(self) -> dict[Dispatching, None]:
        """Those whose consumers are to be looked at now."""
        watched, self.watched = self.watched, {}
        return watched

    def idle(self, queue: Resident) -> None:
        """A queue without consumers keeps messages in memory."""
        self.idle_residents[queue] = None

    def rest(self, source: Dispatching) -> None:
        """It has no consumers: there is nothing to dispatch."""
        self.ready.pop(source, None)

    def forget(self, source: Dispatching) -> None:
        """What is deleted, or has left, has nothing to dispatch any more."""
        self.ready.pop(source, None)
        self.watched.pop(source, None)
        self.idle_residents.pop(source, None)  # type: ignore[call-overload]

    @property
    def is_suspended(self) -> bool:
        """Whether nothing may be given out now: another broker may have the store, and give out the same."""
        return self._meter.latest >= self.lock.until

    def go_on(self) -> None:
        """The lock is sure: what could not be given out while it was not is served in the next turn."""
        if self.ready or self.with_credit or self._memory.is_waited_for:
            self._ask_turn()

    def gave(self) -> None:
        """Messages of a lane were given out: they are written at the end of the turn."""
        self.has_given = True

    def has_overrun(self) -> bool:
        """Whether messages were given out in time and the time is over before they are written. Asked before that."""
        given, self.has_given = self.has_given, False
        return given and self._meter.now() >= self.lock.until

    @property
    def is_over(self) -> bool:
        """Whether the time is up that what runs now has in this turn."""
        return self._meter.now() >= self._ends

    def relieve(self) -> None:
        """While a cursor waits for memory: queues without consumers give theirs up (rule 8)."""
        while self.idle_residents and self._memory.is_waited_for:
            queue, _ = self.idle_residents.popitem(last=False)
            try:
                if queue.give_up_memory():
                    return
            except StoreError as error:
                event("spool.failed", f"an idle queue keeps its memory: {error}", logging.WARNING, code=error.code)

    def wake_refused(self) -> None:
        """Let those that found no memory try again."""
        if not self._memory.is_waited_for:
            return
        self._begin(WAITERS_BUDGET)
        if self._memory.wake(lambda: self.is_over):
            self._ask_turn()
        self._ends = math.inf
        self._meter.part("what waited for memory")

    def run(self) -> None:
        """Give out messages: first to those that found no memory, then for new credit, then what queues have ready."""
        if self.is_suspended:
            return
        if self._memory.is_waited_for:
            self.relieve()
            self.wake_refused()  # first, or a busy queue would take what a waiting one was promised
        if self.with_credit:
            self._serve_credit()
        if self.ready:
            self._serve_ready()
        if self.ready or self.with_credit:
            self._ask_turn()

    def _serve_credit(self) -> None:
        self._begin(WAITERS_BUDGET)
        wholes, self.with_credit = list(self.with_credit), {}
        for number, whole in enumerate(wholes):
            if number and self.is_over:
                self.with_credit = {**dict.fromkeys(wholes[number:]), **self.with_credit}
                break
            whole.serve_waiting()
        self._ends = math.inf

    def _serve_ready(self) -> None:
        self._begin(BUDGET)
        ready, self.ready = list(self.ready), {}
        for number, queue in enumerate(ready):
            if number and self.is_over:
                self.ready = {**dict.fromkeys(ready[number:]), **self.ready}
                break
            self.serve(queue)
        self._ends = math.inf

    def _begin(self, seconds: float) -> None:
        self._ends = self._meter.latest + seconds

    def serve(self, queue: Dispatching) -> None:
        """Have a queue give out what it can now; from now on its consumers are looked at whether they keep up."""
        self.watched[queue] = None
        queue.dispatch()
        self._meter.part("dispatch of", queue.destination)
