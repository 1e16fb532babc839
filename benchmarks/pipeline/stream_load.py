"""Streams with messages to read: random bodies, which neither a store nor Parquet makes smaller."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from random import Random

from benchmarks.load import NUMBER_DIGITS, no_tick, send
from benchmarks.rig import OwnBroker
from quire.cli.perf.load import Load

PARTITIONS = 4
"""Of the stream, and of Kafka's topic."""

_NOISE = 1 << 24


@dataclass(frozen=True, slots=True)
class RandomLoad(Load):
    """Messages for a stream, to its partitions in turn; bodies begin with their numbers, from 0."""

    def frames(self, first: int, count: int, last: int, now: float) -> Iterator[bytes]:
        """SEND frames, as ``Load.frames``; they tell no time."""
        head = f"SEND\ndestination:{self.destination}\ncontent-length:{self.size}\npersistent:true\n".encode()
        filler = _noise()
        room = len(filler) - self.size
        for number in range(first, first + count):
            at = number * self.size % room
            receipt = b"receipt:%d\n" % number if (number + 1) % self.batch == 0 or number == last else b""
            body = b"%0*d%b" % (NUMBER_DIGITS, number, filler[at : at + self.size - NUMBER_DIGITS])
            yield b"%bpartition:%d\nkey:%d\n%b\n%b\0" % (head, number % PARTITIONS, number % 1000, receipt, body)


@cache
def _noise() -> bytes:
    """Bytes of which bodies are cut; the same ones each time."""
    return Random(1).randbytes(_NOISE)


def fill(broker: OwnBroker, stream: str, messages: int, size: int) -> float:
    """Make a stream and send messages to it; how many a second."""
    broker.api.call("PUT", f"/streams/{stream}", {"partitions": PARTITIONS})
    return send(broker.target, RandomLoad(messages, size, batch=128, kind="stream", queue=stream), no_tick)
