"""The lives of a broker: one world's clock, stores and crashes, whatever is in that world."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from quire.clock import ManualClock
from quire.errors import StoreFull
from quire.settings import Settings
from quire.testing.stepped import SteppedBroker
from tests.simulation.crash import Crash, CrashingStore, CrashPoints
from tests.simulation.promises import Broken, Rule

Note = Callable[[str], None]
"""Writes down what happens."""


class Life(ABC):
    """A broker that may die at any call of its stores, and is started again.

    Args:
        settings: the broker's.
        note: writes down what happens.

    Attributes:
        clock: the time.
        note: as given.
        points: where the broker may crash.
        spool_store: where the spool is kept.
        stepped: the broker.
        store: its store.
    """

    def __init__(self, settings: Settings, note: Note) -> None:
        self.clock = ManualClock()
        self.note = note
        self.points = CrashPoints()
        self.store = CrashingStore(self.points)
        self._settings = settings
        self._written = False
        self._start()

    def _start(self) -> None:
        self.spool_store = CrashingStore(self.points)
        self.stepped = SteppedBroker(self._settings, self.store, self.clock, self.spool_store)

    # A step.

    def do(self, act: Callable[[Any], None]) -> None:
        """Have something done to this world, and look at what comes of it.

        Args:
            act: what a step does.

        Raises:
            Broken: a promise was broken.
        """
        try:
            act(self)
            self.observe()
        except Crash:
            self._crash()

    @abstractmethod
    def observe(self) -> None:
        """Look at what has come since the last time.

        Raises:
            Broken: a promise was broken.
        """

    def rest(self, *, verify: bool) -> None:
        """Let the broker do all it can, and check that it did.

        Args:
            verify: whether the store is verified too.

        Raises:
            Broken: a promise was broken.
        """
        try:
            self.stepped.run()
        except RuntimeError as error:
            raise Broken(Rule.REST, str(error)) from error
        self.observe()
        with self.points.muted():
            self.check_rest(verify=verify)

    @abstractmethod
    def check_rest(self, *, verify: bool) -> None:
        """Check what has to hold when the broker has nothing to do.

        Raises:
            Broken: it does not hold.
        """

    def end_commit(self, *, fails: bool) -> None:
        """End the commit under way, if there is one.

        Args:
            fails: whether the store refuses it.
        """
        if self.stepped.writer.batch is not None:
            self.note(f"the commit {'fails' if fails else 'is done'}")
            self.stepped.commit(StoreFull("no space") if fails else None)

    # Crashes.

    def plan_crash(self, at: int, *, written: bool) -> None:
        """Crash at one of the next calls of the stores.

        Args:
            at: at which; 0 for now.
            written: whether the commit that is under way then is written.

        Raises:
            Crash: it is now.
        """
        self._written = written
        self.points.arm(at)
        if at == 0:
            raise Crash

    def _crash(self) -> None:
        """The broker is dead: look at what it still has written, and start it again."""
        self.note("the broker crashes")
        with self.points.muted():
            self.died()
            if self.stepped.writer.batch is not None and self._written:
                self.note("the commit under way is written")
                self.stepped.writer.apply()
        self.restart()

    def restart(self) -> None:
        """Start a broker on the store of the one before. It may crash while it starts, once."""
        self.store.mend()  # a broker that cannot read its store does not start
        try:
            self._start()
        except Crash:
            self._start()
        with self.points.muted():
            self.started()

    @abstractmethod
    def died(self) -> None:
        """The broker is dead: whoever was connected has what was written to it, and no connection."""

    @abstractmethod
    def started(self) -> None:
        """A new broker is there.

        Raises:
            Broken: it does not have what it should.
        """

    # The end.

    @abstractmethod
    def settle_down(self) -> None:
        """Nothing fails any more: let everybody finish, consume everything, and look at what is left.

        Raises:
            Broken: a promise was broken.
        """

    def pass_time(self) -> None:
        """Long enough for whatever waits for a time: the store's probe, expiry, producers that are held."""
        for _ in range(8):
            self.rest_now()
            self.do(lambda world: world.stepped.advance(1.0))
        self.rest_now()

    def rest_now(self) -> None:
        """Come to rest, as a step."""
        self.do(lambda world: world.rest(verify=False))
