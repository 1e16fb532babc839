"""Work that is too large for one turn of the event loop: it is done in steps, with a commit between two of them."""

import logging
from collections import deque
from collections.abc import Callable
from typing import Protocol

from quire.broker.core.turn_meter import TurnMeter
from quire.clock import Clock
from quire.errors import QuireError, StoreError
from quire.logs import event
from quire.scheduler import Scheduler

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
