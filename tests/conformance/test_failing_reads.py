"""Whichever read of the store fails: everybody has an answer, nothing is half done, and counts are exact."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from unittest.mock import patch

import pytest

from quire.management.queues import Management, delete_queue
from quire.store.base import Store, Sync
from quire.store.memory import MemoryStore
from quire.store.urls import store_for_url
from quire.testing.stepped import Frame, SteppedClient
from tests.conformance.failing_reads import Step, World, play
from tests.unit.broker.core_consumer import CoreConsumer
from tests.unit.broker.recipients import acknowledge
from tests.unit.broker.xa import send_in, start, xid


def acked(client: SteppedClient, frames: Iterable[Frame]) -> None:
    """Acknowledge messages, and ask for a receipt for that."""
    for frame in frames:
        client.ack(frame)
    client.frame("SEND", {"destination": "/topic/void", "receipt": "done"})


def take(number: int) -> Callable[[SteppedClient, list[Frame]], None]:
    """Acknowledge so many of what comes."""
    return lambda client, frames: acked(client, frames[:number])


def soon(world: World) -> str:
    """When a message expires that is gone after a rest."""
    return str(world.stepped.clock.now_ms() + 1500)


# Queues.


def sends(world: World) -> None:
    """More than memory takes, numbered and not, to one destination and to several."""
    for number in range(0, 8, 2):
        world.send("/queue/q", [f"{number}-" + "x" * 900, f"{number + 1}-" + "x" * 900])
    world.send("/queue/q", ["n1", "n2", "n3"], {"producer-id": "p"})
    world.send("/queue/q", ["n1", "n2", "n3", "n4"], {"producer-id": "p"})
    world.send("/queue/both", ["b"])
    world.send("/queue/a,/queue/b,/topic/kept", ["list"])
    for priority in "194":
        world.send("/queue/prioritized", [f"p{priority}"], {"priority": priority})
    world.send("/queue/grouped", ["g1", "g2", "g3"], {"JMSXGroupID": "g"})


def consumes(world: World) -> None:
    """Acknowledges some, rejects some: they come later, or are dead letters."""
    world.consume("/queue/q", take(2))
    world.consume("/queue/grouped", take(1))
    world.consume("/queue/prioritized", take(1))

    def reject(client: SteppedClient, frames: list[Frame]) -> None:
        for frame in frames[:2]:
            client.nack(frame)
        acked(client, [])

    world.consume("/queue/q", reject)
    world.send("/queue/poison", ["poison"])
    world.consume("/queue/poison", reject)


def transacts(world: World) -> None:
    """Sends of producers that are not known, and acknowledgements: together, or not at all."""

    def forward(client: SteppedClient, frames: list[Frame]) -> None:
        client.frame("BEGIN", {"transaction": "t"})
        for producer in ("x", "y", "z"):
            numbered = {"producer-id": producer, "producer-sequence": "1"}
            client.frame("SEND", {"destination": "/queue/forwarded", "transaction": "t", **numbered}, producer.encode())
        for frame in frames[:2]:
            client.ack(frame, {"transaction": "t"})
        client.frame("COMMIT", {"transaction": "t", "receipt": "done"})

    def roll_back(client: SteppedClient, frames: list[Frame]) -> None:
        client.frame("BEGIN", {"transaction": "t"})
        for frame in frames[:2]:
            client.ack(frame, {"transaction": "t"})
        client.frame("ABORT", {"transaction": "t"})
        acked(client, frames[:1])  # late: it waits for its redelivery

    world.consume("/queue/q", forward)
    world.consume("/queue/q", roll_back)


def looks(world: World) -> None:
    """Browses, pulls, and lets messages expire."""

    def browsed(client: SteppedClient, frames: list[Frame]) -> None:
        acked(client, [])

    world.consume("/queue/q", browsed, {"browser": "true"})
    world.consume("/queue/prioritized", browsed, {"browser": "true"})
    world.send("/queue/expiring", ["gone", "gone too"], {"expires": soon(world)})
    world.rest()

    def pull(client: SteppedClient) -> None:
        subscribe = {"destination": "/queue/q", "id": "1", "ack": "client-individual", "activemq.prefetchSize": "0"}
        client.frame("SUBSCRIBE", subscribe)
        world.stepped.run()
        client.frame("SEND", {"destination": "/pull/1", "timeout": "-1"})
        world.rest()
        acked(client, client.take("MESSAGE")[:1])

    world.do(pull)


def restarts(world: World) -> None:
    """After a crash, and after a clean stop."""
    world.restart(clean=False)
    world.consume("/queue/q", take(1))
    world.restart(clean=True)


def manages(world: World) -> None:
    """Moves, copies, purges, deletes."""
    broker = world.stepped.broker
    management = Management(broker)

    def take_steps(steps: Iterable[int]) -> None:
        for _ in steps:
            world.stepped.run()

    world.call(lambda: take_steps(management.move("a", "moved")))
    world.call(lambda: take_steps(management.copy("q", "copied")) if not depth_of(world, "copied") else None)
    world.call(lambda: take_steps(management.purge("left")))
    world.call(lambda: take_steps(delete_queue(broker, "b", force=True)) if "b" in broker.queues else None)


def depth_of(world: World, name: str) -> int:
    """How many messages a queue has; 0 if there is none."""
    queue = world.stepped.broker.queues.get(name)
    return queue.depth if queue else 0


# Topics.


def subscribed(client: SteppedClient, frames: list[Frame]) -> None:
    """Take nothing."""
    acked(client, [])


def publishes(world: World) -> None:
    """To durable subscriptions, one of them with a selector, and to a topic that keeps its newest messages."""
    for topic in ("t", "kept", "all"):
        for name, wanted in (("d", ""), ("e", "n > 2")):
            headers = {"activemq.subscriptionName": name, "selector": wanted}
            world.consume(f"/topic/{topic}", subscribed, headers, topic)
        for number in range(5):
            world.send(f"/topic/{topic}", [f"{topic}{number}-" + "y" * 500], {"n": str(number)})
        world.consume(f"/topic/{topic}", take(2), {"activemq.subscriptionName": "d"}, topic)


def recovers(world: World) -> None:
    """Retroactive consumers, plain and durable; a durable subscription that wants something else now."""
    retroactive = {"activemq.retroactive": "true"}
    world.consume("/topic/kept", take(3), retroactive)
    world.consume("/topic/all", take(3), retroactive)
    world.consume("/topic/all", take(1), {**retroactive, "activemq.subscriptionName": "r"}, "r")
    world.consume("/topic/kept", subscribed, {"activemq.subscriptionName": "e", "selector": "n > 3"}, "kept")
    changed = {**retroactive, "activemq.subscriptionName": "d", "selector": "n < 4"}
    world.consume("/topic/all", subscribed, changed, "all")


def unsubscribes(world: World) -> None:
    """Records that nobody needs any more go; others expire."""
    world.send("/topic/t", ["late"], {"expires": soon(world)})

    def unsubscribe(client: SteppedClient) -> None:
        headers = {"id": "1", "activemq.subscriptionName": "d", "receipt": "done"}
        client.frame("UNSUBSCRIBE", headers)

    def gone(client: SteppedClient) -> None:
        if world.stepped.broker.durables.find("t", "d") is None:
            acked(client, [])
        else:
            unsubscribe(client)

    world.do(gone, "t")
    world.rest()


# The schedule.


def schedules(world: World) -> None:
    """One message later, one again and again, one that is cancelled."""
    world.send("/queue/later", ["once"], {"AMQ_SCHEDULED_DELAY": "2000"})
    again = {"AMQ_SCHEDULED_DELAY": "2000", "AMQ_SCHEDULED_PERIOD": "1000", "AMQ_SCHEDULED_REPEAT": "2"}
    world.send("/queue/later", ["repeated"], again)
    world.send("/queue/never", ["never"], {"AMQ_SCHEDULED_DELAY": "60000"})
    schedule = world.stepped.broker.schedule

    def cancel() -> None:
        for message in schedule.browse().messages:
            if message.destination == "/queue/never":
                schedule.cancel(message.id)

    world.call(cancel)
    for _ in range(3):
        world.rest()


# Prepared transactions.


def prepares(world: World) -> None:
    """Two branches: one is committed and one is rolled back, each after a restart."""
    world.send("/queue/xa", [f"xa{number}" for number in range(6)])
    for branch, outcome in ((b"1", "commit"), (b"2", "roll_back")):
        consumer = CoreConsumer(world.stepped, "xa", prefetch=2)
        world.rest()
        first, last = [message.sequence for message in consumer.take()][:2]
        work = start(world.stepped, consumer.session, branch=branch)
        for producer in ("v", "w"):
            body = f"{producer}{outcome}".encode()
            send_in(world.stepped, work, "/queue/sent", body, producer=producer, producer_sequence=int(branch))
        acknowledge(consumer.subscription, first, last, transaction=work.transaction)
        consumer.leave()  # what is acknowledged waits in its queue again
        world.rest()
        world.call(work.prepare)
        world.restart(clean=False)
        again = world.stepped.broker.xa.branch(xid(branch))
        world.call(getattr(again, outcome))


HISTORIES: dict[str, list[Step]] = {
    "queues": [sends, consumes, looks],
    "transactions": [sends, transacts, restarts],
    "management": [sends, manages],
    "topics": [publishes, recovers, restarts, unsubscribes],
    "schedule": [schedules, restarts],
    "xa": [prepares],
}


@contextmanager
def made(kind: str, directory: Path) -> Iterator[Store]:
    """An open, empty store."""
    directory.mkdir()
    url = {"memory": "memory:", "lmdb": f"lmdb://{directory}/store", "sqlite": f"sqlite://{directory}/store.db"}[kind]
    store = MemoryStore() if kind == "memory" else store_for_url(url, Sync.NEVER)
    store.open()
    try:
        yield store
    finally:
        store.close()


STEPS = {"memory": 1, "lmdb": 7, "sqlite": 19}
"""Every how many reads one fails in turn: on the quickest store any. The broker's reads are the same on each store."""


PARTS = 4
"""In so many tests, so that each of them is short."""


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("kind", STEPS)
@pytest.mark.parametrize("name", HISTORIES)
def test_any_read_may_fail(kind: str, name: str, part: int, tmp_path: Path) -> None:
    steps = HISTORIES[name]
    with patch("quire.cursors.lane.PAGE_LIMIT", 3), patch("quire.broker.topics.topic.SWEEP_STEP", 2):
        with made(kind, tmp_path / "none") as store:
            expected, reads = play(steps, store)
        assert reads > 100
        for nth in count(1 + part * STEPS[kind], PARTS * STEPS[kind]):
            with made(kind, tmp_path / str(nth)) as store:
                try:
                    found, reads = play(steps, store, nth)
                except AssertionError as error:
                    raise AssertionError(f"read {nth} of about {reads} fails, and then {error}") from error
            assert found == expected, f"read {nth} of about {reads} fails"
            if nth + PARTS * STEPS[kind] > reads:
                break
