"""All clients of a crash test together, and what has to be true when they are done."""

import asyncio
import contextlib
import time
from random import Random

from tests.acceptance.crash.actors import Consumer, Forwarder, Place, Producer
from tests.acceptance.crash.ledger import Ledger

DRAIN_SECONDS = 120.0
"""How long everything may take to arrive once nothing is sent any more, on a busy machine."""

QUIET_SECONDS = 0.3
"""How long the end is watched for messages that should not come."""


LOOK_SECONDS = 0.1
"""How often it is looked at meanwhile: this process has all clients, and may have proxies too."""


class Load:
    """Producers and consumers on three queues.

    ``orders`` has every kind of producer and two consumers. From ``forward`` each message is sent on to ``forwarded``
    in the transaction that acknowledges it.

    Args:
        random: what the clients do differently each time.
        place: where the broker is; ``Place`` if it is on this machine.

    Attributes:
        place: where the broker is; set its port to move all clients to another one.
        orders: the ledger of that queue.
        forward: the same.
        forwarded: the same.
    """

    def __init__(self, random: Random, place: Place | None = None) -> None:
        self.place = place or Place()
        self.orders, self.forward, self.forwarded = Ledger(), Ledger(), Ledger()
        self._producers = [
            Producer(self.place, "orders", self.orders, "plain"),
            Producer(self.place, "orders", self.orders, "single", window=1),
            Producer(self.place, "orders", self.orders, "numbered", numbered=True),
            Producer(self.place, "orders", self.orders, "transacted", transaction=5),
            Producer(self.place, "orders", self.orders, "both", numbered=True, transaction=3),
            Producer(self.place, "forward", self.forward, "forwarded", numbered=True),
        ]
        self._consumers = [
            Consumer(self.place, "orders", self.orders, random, shares=True),
            Consumer(self.place, "orders", self.orders, random, shares=True),
            Forwarder(self.place, "forward", "forwarded", self.forward, random),
            Consumer(self.place, "forwarded", self.forwarded, random),
        ]
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "Load":
        self._tasks = [asyncio.create_task(actor.run()) for actor in (*self._producers, *self._consumers)]
        return self

    async def __aexit__(self, *_error: object) -> None:
        for task in self._tasks:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*self._tasks)

    @property
    def confirmed(self) -> int:
        """How many messages were confirmed so far."""
        return len(self.orders.confirmed) + len(self.forward.confirmed)

    @property
    def redelivered(self) -> int:
        """How many deliveries were flagged so far."""
        return sum([ledger.redelivered for ledger in self._ledgers])

    @property
    def errors(self) -> set[str]:
        """Codes of the errors that clients were sent."""
        return {code for ledger in self._ledgers for code in ledger.errors}

    @property
    def _ledgers(self) -> tuple[Ledger, ...]:
        return self.orders, self.forward, self.forwarded

    @property
    def longest_wait(self) -> float:
        """For how many seconds the producer that waits the longest has heard nothing."""
        now = time.monotonic()
        return max([now - since for p in self._producers if (since := p.unanswered_since) is not None], default=0.0)

    def check(self) -> None:
        """Fail if a promise was broken so far, or a client gave up."""
        for task in self._tasks:
            if task.done():
                task.result()
        broken = [violation for ledger in self._ledgers for violation in ledger.violations]
        assert not broken, f"{len(broken)} broken promises: " + "; ".join(broken[:10])

    async def finish(self) -> None:
        """Send nothing new, wait until everything has arrived and is acknowledged, and check every promise."""
        for actor in (*self._producers, *self._consumers):
            actor.ending = True
        await self._drain()
        for producer in self._producers:
            ledger = self.forward if producer.name == "forwarded" else self.orders
            if producer.numbered:
                ledger.check_once(producer.name)
            else:
                ledger.check_whole(producer.name, producer.transaction)
        self.forwarded.check_once("forwarded")
        self.check()

    async def _drain(self) -> None:
        deadline = quiet_since = time.monotonic()
        deadline += DRAIN_SECONDS
        while time.monotonic() - quiet_since < QUIET_SECONDS:
            await asyncio.sleep(LOOK_SECONDS)
            self.check()
            self.forwarded.confirm(self.forward.received.keys() - self.forwarded.confirmed)
            sending = not all([task.done() for task in self._tasks[: len(self._producers)]])
            missing = [ledger.open[:10] for ledger in self._ledgers]
            unsettled = [consumer.unsettled for consumer in self._consumers]
            if sending or any(missing) or any(unsettled):
                quiet_since = time.monotonic()
            assert time.monotonic() < deadline, f"sending: {sending}, missing: {missing}, unsettled: {unsettled}"
