"""The world of a history: a broker, its stores, its clients, and what was promised to them."""

from collections.abc import Callable

from quire.clock import ManualClock
from quire.testing.stepped import SteppedBroker
from tests.simulation.checks import check_counts, check_empty, check_going_on, check_links, check_memory
from tests.simulation.client import Client, Note
from tests.simulation.crash import Crash, CrashingStore, CrashPoints
from tests.simulation.ownership import Ownership
from tests.simulation.promises import Broken, Promises, Rule, Sent
from tests.simulation.setup import Setup
from tests.simulation.subscribed import Subscribed


class World:
    """Everything that a step may act on.

    Args:
        setup: what it begins with.
        note: writes down what happens.

    Attributes:
        clients: those that are connected, by name.
        clock: the time.
        note: as given.
        ownership: who has what for itself.
        points: where the broker may crash.
        promises: the ledger.
        spool_store: where the spool is kept.
        stepped: the broker.
        store: its store.
    """

    def __init__(self, setup: Setup, note: Note = lambda text: None) -> None:
        self.clients: dict[str, Client] = {}
        self.clock = ManualClock()
        self.note = note
        self.points = CrashPoints()
        self.promises = Promises(setup, self.clock)
        self.ownership = Ownership()
        self.store = CrashingStore(self.points)
        self._setup = setup
        self._settings = setup.settings()
        self._unconfirmed: dict[str, dict[Sent, None]] = {name: {} for name in setup.numbered}
        self._written = False
        self._start()

    def _start(self) -> None:
        self.spool_store = CrashingStore(self.points)
        self.stepped = SteppedBroker(self._settings, self.store, self.clock, self.spool_store)

    # A step.

    def do(self, act: "Callable[[World], None]") -> None:
        """Have something done to this world, and look at what comes of it.

        Args:
            act: what a step does.

        Raises:
            Broken: a promise was broken.
        """
        self.promises.step += 1
        try:
            act(self)
            self._observe()
        except Crash:
            self._crash()

    def _observe(self) -> None:
        for client in sorted(self.clients.values(), key=lambda client: not client.is_gone):
            client.listen()
            if client.is_gone:  # before the others: they may have got what it had
                client.closed()
        self.clients = {name: client for name, client in self.clients.items() if not client.is_gone}
        present = [client.subscribed for client in self.clients.values() if client.subscribed]
        self.ownership.observe(present)
        for subscribed in present:
            if fresh := subscribed.take_fresh():
                self.promises.check_came_before(subscribed.queue, subscribed.color, fresh)
        check_memory(self.stepped)

    # What steps do.

    def client(self, name: str, version: str = "1.2") -> Client:
        """A client; it connects if it is not connected."""
        client = self.clients.get(name)
        if client is not None and client.is_gone:
            client.listen()
            client.closed()
            client = None
        if client is None:
            connection = self.stepped.connect(version)
            client = Client(name, connection, self.promises, self.note, self._unconfirmed.get(name))
            self.clients[name] = client
        return client

    def subscribe(self, client: Client, subscribed: Subscribed) -> None:
        """A client subscribes to a queue."""
        self.ownership.came(subscribed, in_order=self.promises.keeps_place)
        client.subscribe(subscribed)

    def rest(self, *, verify: bool) -> None:
        """Let the broker do all it can, and check that it did."""
        try:
            self.stepped.run()
        except RuntimeError as error:
            raise Broken(Rule.REST, str(error)) from error
        self._observe()
        with self.points.muted():
            check_counts(self.stepped)
            check_going_on(self.stepped, list(self.clients.values()), self.ownership)
            if verify:
                check_links(self.store)

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
            for client in self.clients.values():
                client.die()
            self.clients.clear()
            if self.stepped.writer.batch is not None and self._written:
                self.note("the commit under way is written")
                self.stepped.writer.apply()
        self.promises.crash()
        self.ownership.crash()
        self.store.read_error = None  # a broker that cannot read its store does not start
        try:
            self._start()
        except Crash:
            self._start()

    # The end.

    def settle_down(self) -> None:
        """Nothing fails any more: let everybody finish, consume everything, and look at what is left.

        Raises:
            Broken: a promise was broken.
        """
        self.note("settling down")
        self.points.arm(0)
        self.store.read_error = self.spool_store.write_error = None
        for client in self.clients.values():
            client.read(on=True)
        self._pass_time()
        self._finish_clients()
        self._drain()
        self.promises.check_nothing_lost()
        check_links(self.store)
        check_empty(self.stepped)

    def _pass_time(self) -> None:
        """Long enough for whatever waits for a time: the store's probe, expiry, producers that are held."""
        for _ in range(8):
            self._rest_now()
            self.do(lambda world: world.stepped.advance(1.0))
        self._rest_now()

    def _rest_now(self) -> None:
        self.do(lambda world: world.rest(verify=False))

    def _finish_clients(self) -> None:
        """Let the consumers that are there consume: nothing may keep them from it but themselves."""
        while any([client.settle_all() for client in self.clients.values()]):
            self._rest_now()
        for name, unconfirmed in self._unconfirmed.items():
            if unconfirmed:
                self.client(name)
        self._rest_now()
        for client in list(self.clients.values()):
            client.leave("disconnect")
        self._pass_time()

    def _drain(self) -> None:
        """Consume everything, one queue after the other, until nothing is left."""
        while before := self._depths():
            for queue in self._setup.queues:
                client = self.client("drain")
                self.subscribe(client, Subscribed(self.promises, queue))
                self._rest_now()
                while client.settle_all():
                    self._rest_now()
                client.leave("disconnect")
                self._pass_time()
            if before == self._depths():
                raise Broken(Rule.STALL, f"nobody gets anything more of {before}")

    def _depths(self) -> dict[str, int]:
        return {name: queue.depth for name, queue in self.stepped.broker.queues.items() if queue.depth}
