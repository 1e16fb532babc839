"""The world of queues: a broker, its stores, its clients, and what was promised to them."""

from collections.abc import Callable
from typing import Any

from quire.testing.stepped import SteppedClient
from tests.simulation.checks import check_links
from tests.simulation.client import Note
from tests.simulation.life import Life
from tests.simulation.queues.checks import check_counts, check_delays, check_empty, check_going_on, check_memory
from tests.simulation.queues.client import Client
from tests.simulation.queues.ownership import Ownership
from tests.simulation.queues.promises import Promises, QueueSent
from tests.simulation.queues.setup import QueueSetup
from tests.simulation.queues.subscribed import Subscribed
from tests.simulation.rules import Broken, Rule


class QueueWorld(Life[Client]):
    """Everything that a step may act on."""

    def __init__(self, setup: QueueSetup, note: Note = lambda text: None) -> None:
        super().__init__(setup.settings(), note)
        self.promises = Promises(setup, self.right)
        self.ownership = Ownership()
        self._setup = setup
        self._unconfirmed: dict[str, dict[QueueSent, None]] = {name: {} for name in setup.numbered}

    def do(self, act: Callable[[Any], None]) -> None:
        """Have something done to this world, and look at what comes of it."""
        self.promises.step += 1
        super().do(act)

    def observe(self) -> None:
        """Look at what clients got since the last time."""
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

    def _new_client(self, name: str, connection: SteppedClient) -> Client:
        return Client(name, connection, self.promises, self.note, self._unconfirmed.get(name))

    def subscribe(self, client: Client, subscribed: Subscribed) -> None:
        """A client subscribes to a queue."""
        self.ownership.came(subscribed, in_order=self.promises.keeps_place)
        client.subscribe(subscribed)

    def check_rest(self, *, verify: bool) -> None:
        """Check what has to hold when the broker has nothing to do."""
        check_counts(self.stepped)
        check_delays(self.stepped)
        check_going_on(self.stepped, list(self.clients.values()), self.ownership, self.right)
        if verify:
            check_links(self.store)

    # Crashes.

    def started(self) -> None:
        """A new broker is there: it has forgotten what was not confirmed."""
        self.promises.crash()
        self.ownership.crash()

    # The end.

    def _before_leaving(self) -> None:
        for name, unconfirmed in self._unconfirmed.items():
            if unconfirmed:
                self.client(name)
        self.rest_now()

    def _drain(self) -> None:
        """Consume everything, one queue after the other, until nothing is left."""
        while before := self._depths():
            for queue in self._setup.queues:
                client = self.client("drain")
                self.subscribe(client, Subscribed(self.promises, queue))
                self.rest_now()
                while client.settle_all():
                    self.rest_now()
                client.leave("disconnect")
                self.pass_time()
            if before == self._depths():
                raise Broken(Rule.STALL, f"nobody gets anything more of {before}")
        self.promises.check_nothing_lost()
        check_links(self.store)
        check_empty(self.stepped)

    def _depths(self) -> dict[str, int]:
        return {name: queue.depth for name, queue in self.stepped.broker.queues.items() if queue.depth}
