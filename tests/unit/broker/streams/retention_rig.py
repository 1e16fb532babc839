"""A stream whose records stay unless a test's policy says otherwise, and short ways to what happens to it."""

from typing import Any

from quire.broker.streams.partition import Start, StartKind
from quire.broker.streams.stream import CHECK_PERIOD, PAUSE, Stream
from quire.store.base import Link, Page
from quire.store.memory import MemoryStore
from quire.testing.stepped import SteppedBroker, SteppedClient
from tests.unit.broker.harness import settings

KEPT: dict[str, Any] = {"partitions": 1, "retention_time": -1.0, "retry_delays": "10s"}
"""A policy under which nothing goes."""

EARLIEST = Start(StartKind.EARLIEST)


def made(*, store: MemoryStore | None = None, **policy: Any) -> SteppedBroker:
    """A broker with a stream ``s`` of one partition whose records stay, but for what the policy says."""
    if store is not None:
        store.open()
    stepped = SteppedBroker(settings(policy={**KEPT, **policy}), store)
    stepped.broker.stream("s")
    stepped.run()
    return stepped


def stream_of(stepped: SteppedBroker) -> Stream:
    return stepped.broker.stream("s")


def send(stepped: SteppedBroker, count: int = 1, partition: int = 0, size: int = 100) -> None:
    """Messages of a size each, at this time."""
    for _ in range(count):
        head = b"message-id:%08d\ntimestamp:%d\n\n" % (stepped.broker.core.next_message_id(), stepped.clock.now_ms())
        stream_of(stepped).partitions[partition].send(head.ljust(size, b"x"))
    stepped.run()


def left(stepped: SteppedBroker, partition: int = 0) -> list[int]:
    """The offsets whose records are there."""
    lane = stream_of(stepped).partitions[partition].lane
    return [link.sequence for link in stepped.store.links(lane, 0, 10_000)]


def settle(stepped: SteppedBroker, seconds: float = 3 * CHECK_PERIOD) -> None:
    """Let retention do its work for a time."""
    for _ in range(round(seconds / PAUSE)):
        stepped.advance(PAUSE)
        stepped.run()


def member(stepped: SteppedBroker, group: str = "g", ack: str = "client-individual", **headers: str) -> SteppedClient:
    """A member of a group that begins at the first record."""
    client = stepped.connect()
    wanted = {"destination": "/stream/s", "id": "0", "ack": ack, "group": group, "start": "earliest", **headers}
    client.frame("SUBSCRIBE", wanted)
    stepped.run()
    return client


class CountingStore(MemoryStore):
    """Counts how often links or records of a lane are read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0
        self.limits: list[int] = []

    def links(self, lane: int, start: int, limit: int) -> list[Link]:
        self.reads += 1
        self.limits.append(limit)
        return super().links(lane, start, limit)

    def page(self, lane: int, start: int, byte_budget: int, limit: int) -> Page:
        self.reads += 1
        return super().page(lane, start, byte_budget, limit)
