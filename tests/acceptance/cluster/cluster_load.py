"""Producers and consumers on many queues, at random brokers of a cluster; after each loss at another one."""

import asyncio
import contextlib
import time
from collections.abc import Callable
from random import Random

from tests.acceptance.crash.actors import Consumer, Place, Producer
from tests.acceptance.crash.ledger import Ledger

PAUSE = 0.05
"""How long a producer rests after each look at what has come, in seconds: all share the machine with the brokers."""

DRAIN_SECONDS = 60.0
"""How long everything may take to arrive once nothing is sent any more, on a busy machine."""


class AnyBroker(Place):
    """Where clients connect: at a random broker of those that live.

    Args:
        ports: gives the STOMP ports of the living brokers.
    """

    def __init__(self, ports: Callable[[], list[int]], random: Random) -> None:
        super().__init__()
        self.pause = PAUSE
        self._ports = ports
        self._random = random

    @property
    def hosts(self) -> list[tuple[str, int]]:
        """Where to connect now."""
        ports = self._ports()
        return [("127.0.0.1", self._random.choice(ports))] if ports else []


class ClusterLoad:
    """A producer and a consumer on each of some queues.

    Attributes:
        ledgers: what is known of each queue.
    """

    def __init__(self, place: Place, queues: list[str], random: Random, window: int = 5) -> None:
        self.ledgers = {queue: Ledger() for queue in queues}
        self._producers = [
            Producer(place, queue, ledger, f"p-{queue}", numbered=True, window=window)
            for queue, ledger in self.ledgers.items()
        ]
        self._consumers = [
            Consumer(place, queue, ledger, random, prefetch=20) for queue, ledger in self.ledgers.items()
        ]
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "ClusterLoad":
        self._tasks = [asyncio.create_task(actor.run()) for actor in (*self._producers, *self._consumers)]
        return self

    async def __aexit__(self, *_error: object) -> None:
        for task in self._tasks:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*self._tasks)

    @property
    def confirmed(self) -> dict[str, int]:
        """How many messages were confirmed, by queue."""
        return {queue: len(ledger.confirmed) for queue, ledger in self.ledgers.items()}

    @property
    def received(self) -> int:
        """How many messages were received."""
        return sum([len(ledger.received) for ledger in self.ledgers.values()])

    @property
    def missing(self) -> int:
        """How many confirmed messages were not received."""
        return sum([len(ledger.missing) for ledger in self.ledgers.values()])

    @property
    def errors(self) -> set[str]:
        """Codes of the errors that clients were sent."""
        return {code for ledger in self.ledgers.values() for code in ledger.errors}

    def check(self) -> None:
        """Fail if a promise was broken so far, or a client gave up."""
        for task in self._tasks:
            if task.done():
                task.result()
        broken = [violation for ledger in self.ledgers.values() for violation in ledger.violations]
        assert not broken, f"{len(broken)} broken promises: " + "; ".join(broken[:10])

    async def wait_for_progress(self, patience: float) -> float:
        """Wait until something new was confirmed on every queue: how long that took, in seconds."""
        before, began = self.confirmed, time.monotonic()
        while late := [queue for queue, count in self.confirmed.items() if count <= before[queue]]:
            assert time.monotonic() - began < patience, f"nothing was confirmed on {late}; errors: {self.errors}"
            self.check()
            await asyncio.sleep(0.02)
        return time.monotonic() - began

    async def finish(self) -> None:
        """Send nothing new, wait until everything has arrived and is acknowledged, and check every promise."""
        for actor in (*self._producers, *self._consumers):
            actor.ending = True
        deadline = time.monotonic() + DRAIN_SECONDS
        while not self._is_done():
            assert time.monotonic() < deadline, f"{self.missing} confirmed messages are missing; errors: {self.errors}"
            self.check()
            await asyncio.sleep(0.05)
        for producer, ledger in zip(self._producers, self.ledgers.values(), strict=True):
            ledger.check_once(producer.name)
        self.check()

    def _is_done(self) -> bool:
        is_sent = all([task.done() for task in self._tasks[: len(self._producers)]])
        return is_sent and not self.missing and not any([consumer.unsettled for consumer in self._consumers])
