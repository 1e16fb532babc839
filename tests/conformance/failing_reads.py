"""A history of a broker's operations that is the same whichever read of the store fails in it.

Whatever is told to have failed was not done, and is done again; everything else was done. So at the end every message
is where it is when no read fails.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from quire.broker.queues.queue import LaneDispatch
from quire.errors import BrokerStopping, StoreError
from quire.settings import Settings
from quire.store.base import Store
from quire.store.maintenance.verify import verify
from quire.testing.faults import FaultyStore
from quire.testing.stepped import Frame, SteppedBroker, SteppedClient
from tests.unit.broker.harness import settings

TRIES = 3
"""How often something is tried: one failing read may fail it, and what comes back from that."""

ALL = 1 << 30
"""More than there ever is."""

SETTINGS: dict[str, Any] = {
    "memory": {"limit": 4000},
    "policy": {"maximum_redeliveries": 6, "redelivery_delay": 0.5, "initial_redelivery_delay": 0.5},
    "policies": [
        {"destination": "poison", "maximum_redeliveries": 0},
        {"destination": "prioritized", "prioritized_messages": True},
        {"destination": "topic://kept", "subscription_recovery_policy": "fixed-count", "recovery_count": 3},
        {"destination": "topic://all", "subscription_recovery_policy": "fixed-count", "recovery_count": 100},
    ],
    "composites": [{"queue": "both", "forward_to": ["queue://left", "topic://right"]}],
    "broker": {"expiry_interval": 1.0},
}

Step = Callable[["World"], None]


class World:
    """A broker, and clients that do again what has failed.

    Args:
        store: open and empty.
        nth: which read fails; 0 for none.

    Attributes:
        raw: the store as it is.
        faulty: the store as the broker has it.
        stepped: the broker.
    """

    def __init__(self, store: Store, nth: int = 0) -> None:
        self.raw = store
        self.faulty = FaultyStore(store)
        self._nth = nth
        self._is_sound = False
        if nth:
            self.faulty.at_read(nth)
        self._settings: Settings = settings(**SETTINGS)
        self.stepped = self._again(lambda: SteppedBroker(self._settings, self.faulty))

    def _again(self, make: Callable[[], SteppedBroker]) -> SteppedBroker:
        """A broker that cannot read its store does not start; then it is started again."""
        try:
            return make()
        except StoreError:
            return make()

    def restart(self, *, clean: bool) -> None:
        """A new broker on the same store."""
        if clean:
            self.stepped.stop(BrokerStopping("the broker stops"))
        self.stepped = self._again(self.stepped.reopen)
        self.rest()

    def rest(self) -> None:
        """Until nothing is left to do, not even after some time."""
        for _ in range(4):
            self.stepped.run()
            self.stepped.advance(1.0)
        self.stepped.run()
        if self.faulty.reads < self._nth:  # no read has failed: the history without failures shows what is so far
            return
        self.check_counts()
        if not (self._nth and self._is_sound):  # with a failure, right after it and at the end: this takes long
            self.check_store()

    def do(self, act: Callable[[SteppedClient], object], client_id: str = "") -> None:
        """Have a client do something; another one does it if that fails.

        Args:
            act: what is done; it is done when a frame with the receipt ``done`` is.
            client_id: the client's name.
        """
        for _ in range(TRIES):
            client = self.stepped.connect(headers={"client-id": client_id} if client_id else {})
            act(client)
            self.stepped.run()
            self.stepped.advance(1.0)
            self.stepped.run()
            errors, receipts = client.errors(), client.receipts()
            assert (errors or receipts[-1:]) in (["done"], ["store-failed"]), f"{errors} {receipts}: no answer"
            if not client.connection.closed:
                client.vanish()
            self.rest()
            if not errors:
                return
        raise AssertionError("one failing read has failed it again and again")

    def call(self, act: Callable[[], object]) -> None:
        """Make a call of the core; once more if it fails."""
        try:
            act()
        except StoreError:
            act()
        self.rest()

    def send(self, destination: str, bodies: Iterable[str], headers: Mapping[str, str] | None = None) -> None:
        """Send messages in a transaction, so that all of them are sent or none."""
        common = {"destination": destination, "transaction": "t", **(headers or {})}

        def act(client: SteppedClient) -> None:
            client.frame("BEGIN", {"transaction": "t"})
            for number, body in enumerate(bodies, 1):
                numbered = {"producer-sequence": str(number)} if "producer-id" in common else {}
                client.frame("SEND", {**common, **numbered}, body.encode())
            client.frame("COMMIT", {"transaction": "t", "receipt": "done"})

        self.do(act)

    def consume(
        self, destination: str, act: Callable[[SteppedClient, list[Frame]], None],
        headers: Mapping[str, str] | None = None, client_id: str = "",
    ) -> None:  # fmt: skip
        """Have a client consume what it is given, and do something with it; another one does it if that fails."""

        def work(client: SteppedClient) -> None:
            subscribe = {"destination": destination, "id": "1", "ack": "client-individual"}
            client.frame("SUBSCRIBE", {**subscribe, **(headers or {})})
            for _ in range(3):
                self.stepped.run()
                self.stepped.advance(1.0)
            self.stepped.run()
            if not client.connection.closed:
                act(client, client.take("MESSAGE"))

        self.do(work, client_id)

    # What must hold.

    def check_counts(self) -> None:
        """What is counted is what is there."""
        broker = self.stepped.broker
        for name, queue in broker.queues.items():
            states = [self.raw.lane_state(lane.id) for lane in queue.lanes]
            unstored = queue.unstored()
            found = sum([s.count for s in states]) + len(unstored), sum([s.bytes for s in states])
            assert (queue.depth, queue.bytes) == (found[0], found[1] + sum([m.size for m in unstored])), name
        for name, topic in broker.destinations.topics.items():
            states = [self.raw.lane_state(lane) for lane in topic.lanes]
            assert (topic.depth, topic.bytes) == (sum([s.count for s in states]), sum([s.bytes for s in states])), name
        for durable in broker.durables:
            links = [link for lane in durable.topic.lanes for link in self.raw.links(lane, durable.start + 1, ALL)]
            waiting = [link for link in links if link.sequence not in durable.finished]
            assert (durable.depth, durable.bytes) == (len(waiting), sum([link.size for link in waiting])), durable.key
        counted = sum([q.bytes for q in broker.queues.values()]) + broker.schedule.bytes
        assert broker.core.stored_bytes == counted + sum([t.bytes for t in broker.destinations.topics.values()])

    def check_store(self) -> None:
        """The store finds nothing wrong with itself."""
        assert not list(verify(self.raw))
        self._is_sound = True

    def everything(self) -> dict[str, list[str]]:
        """All messages, by where they are; they are consumed."""
        broker = self.stepped.broker
        found = {name: self._drain(f"/queue/{name}", queue) for name, queue in sorted(broker.queues.items())}
        for durable in sorted(broker.durables, key=lambda durable: durable.key):
            client_id, name = durable.key
            headers = {"activemq.subscriptionName": name, "selector": durable.definition.selector or ""}
            found[f"{client_id}.{name}"] = self._drain(
                f"/topic/{durable.destination.name}", durable, headers, client_id
            )  # fmt: skip
        return {name: sorted(bodies) for name, bodies in found.items() if bodies}

    def _drain(
        self, destination: str, queue: LaneDispatch, headers: Mapping[str, str] | None = None, client_id: str = ""
    ) -> list[str]:  # fmt: skip
        bodies: list[str] = []

        def take(client: SteppedClient, frames: list[Frame]) -> None:
            for frame in frames:
                client.ack(frame)
            client.frame("SEND", {"destination": "/topic/void", "receipt": "done"})
            bodies.extend([frame.body.decode() for frame in frames])

        while before := queue.depth:
            self.consume(destination, take, headers, client_id)
            assert queue.depth < before, f"{destination} gives nothing more"
        return bodies


def play(steps: Iterable[Step], store: Store, nth: int = 0) -> tuple[dict[str, list[str]], int]:
    """Play a history.

    Args:
        steps: what happens.
        store: open and empty.
        nth: which read fails; 0 for none.

    Returns:
        Where every message is at the end, and how many reads there were.
    """
    world = World(store, nth)
    for step in steps:
        step(world)
    world.check_counts()
    world.check_store()
    return world.everything(), world.faulty.reads
