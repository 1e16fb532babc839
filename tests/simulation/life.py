"""The lives of a broker: one world's clock, stores and crashes, whatever is in that world."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Generic, TypeVar
from unittest.mock import patch

from quire.clock import ManualClock
from quire.errors import StoreError, StoreFull
from quire.settings import Settings
from quire.store.base import Store, StoreReader, WriteBatch
from quire.store.maintenance.verify import verify
from quire.store.memory import MemoryStore
from quire.testing.faults import AnnouncedReads
from quire.testing.stepped import SteppedBroker, SteppedClient
from tests.simulation.client import Broken, Note, Rule, SimulatedClient

R = TypeVar("R")


class BrokerCrash(BaseException):
    """The broker ends here. It is no ``Exception``, so that nothing in the broker can catch it."""


class CrashPoints:
    """Counts the points where a broker can end, over its store and its spool, and ends it at a chosen one."""

    def __init__(self) -> None:
        self.reached = 0
        self._at = 0
        self._muted = False

    def arm(self, points: int) -> None:
        self._at = self.reached + points if points else 0

    @contextmanager
    def muted(self) -> Iterator[None]:
        self._muted = True
        try:
            yield
        finally:
            self._muted = False

    def reach(self) -> bool:
        if self._muted:
            return False
        self.reached += 1
        if self.reached == self._at:
            raise BrokerCrash
        return True


class CrashingStore(MemoryStore):
    """An open store in memory whose calls are points where the broker can end, and whose reads can be made to fail."""

    def __init__(self, points: CrashPoints) -> None:
        super().__init__()
        self._points = points
        self._reads = 0
        self._failing: range = range(0)
        self.write_error: StoreError | None = None
        self.open()

    # Reads that fail.

    def fail_reads(self, at: int = 1, times: int = 1) -> None:
        """Make reads of the broker fail that are still to come. It takes back what was planned before."""
        self._failing = range(self._reads + at, self._reads + at + times)

    def mend(self) -> None:
        self._failing = range(0)
        self.write_error = None

    @property
    def reads_fail(self) -> bool:
        return self._reads + 1 < self._failing.stop

    def _read(self) -> None:
        self._reads += 1
        if self._reads in self._failing:
            raise StoreError(f"read {self._reads} failed")

    # What the broker calls.

    def _read_newest(self, call: Callable[[StoreReader], R]) -> R:
        if self._points.reach():
            self._read()
        return super()._read_newest(call)

    def apply(self, batch: WriteBatch) -> None:
        if self._points.reach() and self.write_error is not None:
            error, self.write_error = self.write_error, None
            raise error
        super().apply(batch)
        self._points.reach()

    @contextmanager
    def snapshot(self) -> Iterator[StoreReader]:
        is_brokers = self._points.reach()
        if is_brokers:
            self._read()
        with super().snapshot() as reader:
            yield AnnouncedReads(reader, self._read) if is_brokers else reader


LONGEST = 40.0
"""After so many seconds a clock that was set is set right: a broker believes one that stays so for a minute."""


class RightClock:
    """What a clock would show that was never set: that of the clients, and of what was promised to them."""

    def __init__(self, clock: "JumpingClock") -> None:
        self.wrong = clock
        self._begun = clock.now_ms()

    def now_ms(self) -> int:
        return self._begun + int(self.wrong.monotonic() * 1000)

    def monotonic(self) -> float:
        return self.wrong.monotonic()

    def right_ms(self, time_ms: int) -> int:
        """What a time should have been that the broker has noted; it is wrong by whole hours."""
        return time_ms - round((time_ms - self.now_ms()) / 3_600_000) * 3_600_000


class JumpingClock(ManualClock):
    """The clock of the broker's machine.

    Attributes:
        was_set: whether it was ever wrong.
        misled: whether a broker has started with a wrong one: it cannot know, and goes by it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ahead = 0.0  # by how many seconds it is ahead of the right one
        self.was_set = self.misled = False
        self.right = RightClock(self)  # the right clock
        self._set_at = 0.0

    def set(self, ahead: float) -> None:
        """Be ahead of the right one by so many seconds from now on."""
        self.jump(ahead - self.ahead)
        self.ahead, self._set_at = ahead, self.monotonic()
        self.was_set = self.was_set or bool(ahead)

    def advance(self, seconds: float) -> None:
        """Move on, both times; a clock that was wrong for long is set right."""
        super().advance(seconds)
        if self.ahead and self.monotonic() - self._set_at > LONGEST:
            self.set(0.0)


Client = TypeVar("Client", bound=SimulatedClient)


class Life(ABC, Generic[Client]):
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
        try:
            act(self)
            self.observe()
        except BrokerCrash:
            self._crash()

    @abstractmethod
    def observe(self) -> None:
        """Look at what has come since the last time."""

    def rest(self, *, verify: bool) -> None:
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
        if self.stepped.writer.batch is not None:
            self.note(f"the commit {'fails' if fails else 'is done'}")
            self.stepped.commit(StoreFull("no space") if fails else None)

    # Crashes.

    def plan_crash(self, at: int, *, written: bool) -> None:
        self._written = written
        self.points.arm(at)
        if at == 0:
            raise BrokerCrash

    def _crash(self) -> None:
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
        except BrokerCrash:
            self._start()
        with self.points.muted():
            self.started()

    def died(self) -> None:
        for client in self.clients.values():
            client.die()
        self.clients.clear()

    @abstractmethod
    def started(self) -> None:
        """A new broker is there."""

    # The end.

    def settle_down(self) -> None:
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
        self.do(lambda world: world.rest(verify=False))


HOLES = 5
"""With so many holes in its ack set, a group is given nothing new."""

STEPS = {
    "quire.testing.stepped.MAX_STEPS": 1000,
    "quire.cursors.lane.STEP": 8,
    "quire.broker.queues.queue.SLICE": 2,
    "quire.broker.queues.selective.SCAN_LIMIT": 6,
    "quire.broker.queues.selective.RUN": 4,
    "quire.broker.queues.selective.RECALL_LIMIT": 2,
    "quire.broker.queues.queue.RECALL_LIMIT": 2,
    "quire.cursors.lane.PAGE_LIMIT": 3,
    "quire.cursors.lane.WINDOW_LIMIT": 12,
    "quire.server.stomp.stomp_door.OUTPUT_LIMIT": 2000,
    "quire.broker.queues.shared_lane.HOLES_LIMIT": HOLES,
    "quire.broker.queues.shared_lane.SCAN_LIMIT": 4,
    "quire.broker.queues.shared_lane.EARLY_HOLES": 3,
    "quire.broker.streams.groups.retries.STEP": 2,
    "quire.broker.streams.groups.retries.LINKS_AT_ONCE": 3,
    "quire.broker.streams.groups.groups.STEP": 3,
    "quire.broker.streams.stream.STEP": 3,
    "quire.cursors.ack_set.PAGE_RANGES": 3,
    "quire.cluster.link.WINDOW": 3000,
    "quire.cluster.link.CREDIT_STEP": 700,
    "quire.cluster.link.FULL": 2000,
    "quire.cluster.link.DRAINED": 500,
    "quire.cluster.link.MAX_PAYLOAD": 1000,
    "quire.cluster.link.ENDED_AT_ONCE": 1,
    "quire.cluster.link.OUTPUT": 2000,
}


@contextmanager
def small_steps() -> Iterator[None]:
    """Make them so small."""
    with ExitStack() as stack:
        for name, size in STEPS.items():
            stack.enter_context(patch(name, size))
        yield


GREATEST = 2000
"""No message is charged more than this: content, headers, a dead letter's headers, and the overhead."""

ALL = 1 << 30
"""More than there ever is."""


def check_answered(stepped: SteppedBroker, clients: Iterable[SimulatedClient]) -> None:
    """At rest: no producer is held without a reason, and every receipt has come."""
    broker = stepped.broker
    for session, hold in broker.core.flow.holds.items():
        if not broker.core.is_over(hold.cause):
            raise Broken(Rule.STALL, f"{session.name} is held for {hold.cause}, and there is room")
    held = {session.name for session in broker.core.flow.holds}
    for client in clients:
        if client.receipts and client.connection.connection.peer not in held:
            raise Broken(Rule.STALL, f"{client.name} waits for {list(client.receipts)}")


def check_links(store: Store) -> None:
    """At any time: the store finds nothing wrong with itself."""
    for finding in verify(store):
        raise Broken(Rule.LINKS, finding.text)
