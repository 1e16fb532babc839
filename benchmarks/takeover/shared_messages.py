"""Messages that several consumers get: those of a topic with durable subscriptions, those of a stream with groups."""

import asyncio
import time
from random import Random

from tests.acceptance.crash.actors import Consumer, Place, Producer
from tests.acceptance.crash.ledger import Ledger
from tests.acceptance.crash.load import DRAIN_SECONDS, LOOK_SECONDS, QUIET_SECONDS

START_SECONDS = 30.0
"""How long the subscriptions may take."""

READERS = ("first", "second")
"""Who gets all messages, of the topic and of the stream."""

EARLIEST = {"start": "earliest"}


class SharedMessages:
    """Producers on a topic and on a stream, and two subscriptions or groups of each; each of these gets all messages.

    Args:
        place: where the brokers are.
        random: how late consumers acknowledge.
    """

    def __init__(self, place: Place, random: Random) -> None:
        self._ledgers: dict[str, Ledger] = {}
        self._producers: list[Producer] = []
        self._consumers: list[Consumer] = []
        for kind in ("topic", "stream"):
            destination = f"/{kind}/shared"
            ledgers = [self._ledgers.setdefault(f"{reader} of {kind}", Ledger()) for reader in READERS]
            ledgers[0].others = ledgers[1:]
            for name, numbered, transaction in ((f"{kind}-numbered", True, 1), (f"{kind}-transacted", False, 4)):
                headers = {"partition-key": name}
                self._producers.append(
                    Producer(place, destination, ledgers[0], name, numbered, transaction, window=5, headers=headers)
                )
            for reader, ledger in zip(READERS, ledgers, strict=True):
                headers = {"activemq.subscriptionName": reader} if kind == "topic" else {"group": reader, **EARLIEST}
                consumer = Consumer(place, destination, ledger, random, headers=headers)
                consumer.client_id = reader if kind == "topic" else ""
                self._consumers.append(consumer)
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "SharedMessages":
        self._tasks = [asyncio.create_task(consumer.run()) for consumer in self._consumers]
        deadline = time.monotonic() + START_SECONDS
        while not all([consumer.has_subscribed for consumer in self._consumers]):
            assert time.monotonic() < deadline, "the subscriptions are not confirmed"
            await asyncio.sleep(0.05)
            self.check()
        self._tasks += [asyncio.create_task(producer.run()) for producer in self._producers]
        return self

    async def __aexit__(self, *_error: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def confirmed(self) -> int:
        """How many messages were confirmed so far."""
        return sum([len(self._ledgers[f"{READERS[0]} of {kind}"].confirmed) for kind in ("topic", "stream")])

    @property
    def redelivered(self) -> int:
        """How many deliveries were flagged so far."""
        return sum([ledger.redelivered for ledger in self._ledgers.values()])

    def check(self) -> None:
        """Fail if a promise was broken so far, or a client gave up."""
        for task in self._tasks:
            if task.done():
                task.result()
        broken = [f"{name}: {violation}" for name, found in self._ledgers.items() for violation in found.violations]
        assert not broken, f"{len(broken)} broken promises: " + "; ".join(broken[:10])

    async def finish(self) -> None:
        """Send nothing new, wait until everything has arrived everywhere and is acknowledged, check every promise."""
        for actor in (*self._producers, *self._consumers):
            actor.ending = True
        quiet_since = time.monotonic()
        deadline = quiet_since + DRAIN_SECONDS
        while time.monotonic() - quiet_since < QUIET_SECONDS:
            await asyncio.sleep(LOOK_SECONDS)
            self.check()
            missing = {name: ledger.open[:10] for name, ledger in self._ledgers.items()}
            is_sending = not all([task.done() for task in self._tasks[len(self._consumers) :]])
            if is_sending or any(missing.values()) or any([consumer.unsettled for consumer in self._consumers]):
                quiet_since = time.monotonic()
            assert time.monotonic() < deadline, f"sending: {is_sending}, missing: {missing}"
        for ledger in self._ledgers.values():
            for producer in self._producers:
                if producer.numbered:
                    ledger.check_once(producer.name)
                else:
                    ledger.check_whole(producer.name, producer.transaction)
        self.check()
