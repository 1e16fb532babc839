"""The lives of a broker: one world's clock, stores and crashes, whatever is in that world."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from quire.errors import StoreFull
from quire.settings import Settings
from quire.testing.stepped import SteppedBroker, SteppedClient
from tests.simulation.client import Note, SimulatedClient
from tests.simulation.crash import Crash, CrashingStore, CrashPoints
from tests.simulation.jumping_clock import JumpingClock
from tests.simulation.rules import Broken, Rule

Client = TypeVar("Client", bound=SimulatedClient)


class Life(ABC, Generic[Client]):
    """A broker that may die at any call of its stores, and is started again."""

    def __init__(self, settings: Settings, note: Note) -> None:
        self.clients: dict[str, Client] = {}
        self.clock = JumpingClock()
        self.right = self.clock.right
        self.note = note
        self.points = CrashPoints()
        self.store = CrashingStore(self.points)
        self._settings = settings
        self._written = False
        self._start()

    def _start(self) -> None:
        self.clock.misled = self.clock.misled or bool(self.clock.ahead)
        self.spool_store = CrashingStore(self.points)
        self.stepped = SteppedBroker(self._settings, self.store, self.clock, self.spool_store)

    # Clients.

    def client(self, name: str, version: str = "1.2") -> Client:
        """A client; it connects if it is not connected."""
        client = self.clients.get(name)
        if client is not None and client.is_gone:
            client.listen()
            client.closed()
            client = None
        if client is None:
            client = self.clients[name] = self._new_client(name, self.stepped.connect(version))
        return client

    @abstractmethod
    def _new_client(self, name: str, connection: SteppedClient) -> Client:
        """A client that has just connected."""

    # A step.

    def do(self, act: Callable[[Any], None]) -> None:
        """Have something done to this world, and look at what comes of it."""
        try:
            act(self)
            self.observe()
        except Crash:
            self._crash()

    @abstractmethod
    def observe(self) -> None:
        """Look at what has come since the last time."""

    def rest(self, *, verify: bool) -> None:
        """Let the broker do all it can, and check that it did."""
        try:
            self.stepped.run()
        except RuntimeError as error:
            raise Broken(Rule.REST, str(error)) from error
        self.observe()
        with self.points.muted():
            self.check_rest(verify=verify)

    @abstractmethod
    def check_rest(self, *, verify: bool) -> None:
        """Check what has to hold when the broker has nothing to do."""

    def end_commit(self, *, fails: bool) -> None:
        """End the commit under way, if there is one."""
        if self.stepped.writer.batch is not None:
            self.note(f"the commit {'fails' if fails else 'is done'}")
            self.stepped.commit(StoreFull("no space") if fails else None)

    # Crashes.

    def plan_crash(self, at: int, *, written: bool) -> None:
        """Crash at one of the next calls of the stores, 0 for now; the commit under way then is written or not."""
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

    def died(self) -> None:
        """The broker is dead: clients have what was written to them, and no connection."""
        for client in self.clients.values():
            client.die()
        self.clients.clear()

    @abstractmethod
    def started(self) -> None:
        """A new broker is there."""

    # The end.

    def settle_down(self) -> None:
        """Nothing fails any more: let everybody finish, consume everything, and look at what is left."""
        self.note("settling down")
        self.points.arm(0)
        self.clock.set(0.0)
        self.store.mend()
        self.spool_store.mend()
        for client in self.clients.values():
            client.read(on=True)
        self.pass_time()
        while any([client.settle_all() for client in self.clients.values()]):
            self.rest_now()
        self._before_leaving()
        self._everybody_leaves()
        self._drain()

    def _before_leaving(self) -> None:
        """What clients have to do yet."""
        return

    def _everybody_leaves(self) -> None:
        for client in list(self.clients.values()):
            client.leave("disconnect")
        self.pass_time()

    @abstractmethod
    def _drain(self) -> None:
        """Consume everything, and look at what is left."""

    def pass_time(self) -> None:
        """Long enough for whatever waits for a time: the store's probe, expiry, producers that are held."""
        for _ in range(8):
            self.rest_now()
            self.do(lambda world: world.stepped.advance(1.0))
        self.rest_now()

    def rest_now(self) -> None:
        """Come to rest, as a step."""
        self.do(lambda world: world.rest(verify=False))
