"""What a turn of the event loop may cost: other connections are served only between two turns.

Giving out messages is bounded in time, and a queue that is left out is first in the next turn (``TurnDispatch``). Work
that is too large for one turn, a purge say, is done in steps with a commit between two of them (``Steps``).
``TurnMeter`` measures how long the event loop is busy at a stretch, and with what.
"""

import logging
import math
from bisect import bisect_left
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Protocol

from quire.broker.core.subscription import Dispatching
from quire.clock import Clock
from quire.cursors.memory_usage import MemoryUsage
from quire.errors import QuireError, StoreError
from quire.logs import event
from quire.scheduler import Scheduler

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""The upper bounds of the histogram's buckets, in seconds; the last bucket has none."""

SHORT = BOUNDS[0]
"""Nearly all turns are not longer."""

SLOW = 0.05
"""A turn that takes longer than so many seconds is logged."""

LOG_INTERVAL = 1.0
"""For so many seconds after such a line there is no other one; the next one says how many were left out."""


class TurnMeter:
    """Measures turns: each call that the event loop makes.

    A turn has one part or several. It costs two readings of the clock, and one more for each further part.

    Attributes:
        counts: how many turns each bucket has: those up to its bound, and above the one before it.
        seconds: what all turns took together.
        now: reads the clock, without a part.
        latest: the time of the last reading, on the monotonic clock.
    """

    def __init__(self, clock: Clock) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.seconds = 0.0
        self.latest = 0.0
        self.now = clock.monotonic
        self._longest = 0.0
        self._began = 0.0
        self._longest_part = 0.0
        self._what = ""
        self._of: object = None
        self._next_line = 0.0
        self._left_out = 0

    def begin(self) -> None:
        """A turn begins."""
        self._began = self.latest = self.now()
        self._longest_part = -1.0

    def part(self, what: str, of: object = None) -> float:
        """A part of the turn is done; ``of``, what it was about, is written only if the turn was long."""
        now = self.now()
        took = now - self.latest
        self.latest = now
        if took > self._longest_part:
            self._longest_part, self._what, self._of = took, what, of
        return now

    def end(self, what: str, of: object = None) -> None:
        """The turn is over; what it did last is its last part."""
        took = self.part(what, of) - self._began
        self.seconds += took
        if took <= SHORT:
            self.counts[0] += 1
        else:
            self.counts[bisect_left(BOUNDS, took)] += 1
        if took > self._longest:
            self._longest = took
        if took > SLOW:
            self._tell(took)
        self._of = None

    def take_longest(self) -> float:
        """What the longest turn took since this was asked last, in seconds."""
        longest, self._longest = self._longest, 0.0
        return longest

    def _tell(self, took: float) -> None:
        if self.latest < self._next_line:
            self._left_out += 1
            return
        what = self._what if self._of is None else f"{self._what} {getattr(self._of, '__qualname__', self._of)}"
        text = f"a turn of the event loop took {took:.3f} s: {what} {self._longest_part:.3f} s"
        if self._left_out:
            text += f"; {self._left_out} more turns were long since the last such line"
        event(
            "loop.slow", text, logging.WARNING, seconds=round(took, 3), what=what,
            what_seconds=round(self._longest_part, 3), left_out=self._left_out,
        )  # fmt: skip
        self._next_line, self._left_out = self.latest + LOG_INTERVAL, 0


DISPATCH_BUDGET = 0.01
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
        self._begin(DISPATCH_BUDGET)
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


BUDGET = 0.01
"""How long the steps of one turn may take together, in seconds; a step that has begun ends."""

RETRY = 1.0
"""How many seconds after a failed read a step is tried again."""

Step = Callable[[], bool]
"""One piece of work, bounded by a number of records and of bytes. It says whether there is more to do.

It reads before it changes anything: after a ``StoreError`` it is called again.
"""


class Commits(Protocol):
    """What steps need of the commits between them.

    Attributes:
        store_error: why the store refuses writes; None while it takes them.
    """

    store_error: QuireError | None

    @property
    def is_full(self) -> bool:
        """Whether the open commit has so much that nothing more is added until it is done."""

    def after_commit(self, call: Callable[[], None]) -> None:
        """Make a call when the open commit is done, or has failed."""

    def ask_turn(self) -> None:
        """Have a turn soon."""


class Steps:
    """All work in steps of a broker, each piece in its turn.

    Attributes:
        storing: the work whose next step has to see what the last one has stored.
        unstored: the other work.
    """

    def __init__(self, clock: Clock, scheduler: Scheduler, meter: TurnMeter, commits: Commits) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self._meter = meter
        self._commits = commits
        self.storing: deque[tuple[Step, str]] = deque()
        self.unstored: deque[tuple[Step, str]] = deque()
        self._is_waiting = self._waits_for_room = False
        self._failing: set[str] = set()

    def add(self, step: Step, name: str, *, stores: bool = True) -> None:
        """Call a step again and again until it says that there is no more to do.

        Args:
            step: takes one step. What it does goes into the open commit, and the next step comes after that commit.
            stores: whether the next step has to see what the last one has stored. Otherwise it need not wait for the
                commit, and it is taken while the store refuses commits too.
        """
        (self.storing if stores else self.unstored).append((step, name))
        self._commits.ask_turn()

    def run(self) -> None:
        """Take one step of each piece of work, as far as the budget reaches; the others are first in the next turn."""
        if self.unstored and not self._waits_for_room:
            self._round(self.unstored, stores=False)
            if self.unstored:
                self._ask_turn()
        if not self.storing or self._is_waiting:
            return
        if self._commits.store_error is not None:  # what the failed commit had is not there yet
            self._wait_a_while()
            return
        self._round(self.storing, stores=True)
        if self.storing:
            self._is_waiting = True
            self._commits.after_commit(self._go_on)

    def _ask_turn(self) -> None:
        """Go on in the next turn; behind the open commit if that has much. While the store fails, it gathers all."""
        if self._commits.is_full and self._commits.store_error is None:
            self._waits_for_room = True
            self._commits.after_commit(self._has_room)
        else:
            self._commits.ask_turn()

    def _has_room(self) -> None:
        self._waits_for_room = False
        self._commits.ask_turn()

    def _round(self, work: deque[tuple[Step, str]], *, stores: bool) -> None:
        end = self._clock.monotonic() + BUDGET
        for _ in range(len(work)):
            step, name = work.popleft()
            if self._take(step, name, stores=stores):
                work.append((step, name))
            if self._meter.part(name) >= end:
                break

    def _take(self, step: Step, name: str, *, stores: bool) -> bool:
        """Whether there is more to do at once."""
        try:
            more = step()
        except StoreError as error:
            if name not in self._failing:
                self._failing.add(name)
                text = f"{name} waits until the store can be read: {error}"
                event("store.unreadable", text, logging.WARNING, code=error.code)
            self._scheduler.call_later(RETRY, lambda: self.add(step, name, stores=stores))
            return False
        self._failing.discard(name)
        return more

    def _wait_a_while(self) -> None:
        self._is_waiting = True
        self._scheduler.call_later(RETRY, self._go_on)

    def _go_on(self) -> None:
        self._is_waiting = False
        self._commits.ask_turn()
