"""What a measurement sends and takes, and the scenarios people ask for most."""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from random import Random
from typing import Any, NamedTuple

STAMP = b"sent:"
STAMP_DIGITS = 20
STAMP_EVERY = 100
"""One message in so many carries the time it was sent, at the start of its body: a header would make heads differ, and
brokers may read equal heads faster."""

_PREFETCH = 1000
_NOISE = 1 << 20
"""Bytes of which random bodies are cut: many more than a store compresses at once."""


class Target(NamedTuple):
    """A broker's STOMP port, and who we are; without a login if it is empty."""

    host: str
    port: int
    login: str = ""
    passcode: str = ""
    tls: bool = False

    def __repr__(self) -> str:
        return f"Target({self.host!r}, {self.port}, {self.login!r}, tls={self.tls})"


@dataclass(frozen=True, slots=True)
class Load:
    """What is sent and received."""

    messages: int  # of all producers together
    size: int = 1024  # of a body, in bytes
    producers: int = 1
    consumers: int = 1
    window: int = 256  # how many messages of a producer may wait for a receipt
    receipts: bool = True  # whether every batch asks for a receipt; otherwise only the last one
    batch: int = 1  # how many messages a producer sends together, with one receipt
    persistent: bool = True
    random: bool = False  # whether bodies are random bytes, which no store makes smaller
    ack: str = "client-individual"
    ack_every: int = 1  # the last of so many messages is acknowledged; 0: the last one of each read
    stuck: int = 0  # how many of the first messages are never acknowledged
    rate: float = 0.0  # messages per second of all producers together; 0 for no limit
    backlog: bool = False  # send all messages before the first is received
    latency: bool = False  # one message in flight, from its SEND to its MESSAGE
    kind: str = "queue"  # or ``stream``
    queue: str = field(default_factory=lambda: f"perf.{uuid.uuid4().hex[:12]}")
    subscribe: str = ""  # more header lines of SUBSCRIBE, each with its newline

    @property
    def destination(self) -> str:
        return f"/{self.kind}/{self.queue}"

    @property
    def is_stamped(self) -> bool:
        """Whether bodies tell when they were sent. In a backlog that would measure the backlog."""
        return not self.backlog and self.size >= len(STAMP) + STAMP_DIGITS

    def shares(self) -> list[int]:
        """How many messages each producer sends."""
        each, rest = divmod(self.messages, self.producers)
        return [each + (number < rest) for number in range(self.producers)]

    def frames(self, first: int, count: int, last: int, now: float) -> Iterator[bytes]:
        """The SEND frames ``first`` to ``last``, stamped with ``now``, in seconds; the last one asks for a receipt."""
        head = f"SEND\ndestination:{self.destination}\ncontent-length:{self.size}\n"
        start = f"{head}persistent:{'true' if self.persistent else 'false'}\n".encode()
        filler = b"x" * self.size
        plain = b"%b\n%b\0" % (start, filler)
        noise = _noise(self.size) if self.random else b""
        stamp = STAMP + b"%0*d" % (STAMP_DIGITS, round(now * 1e9)) if self.is_stamped else b""
        batch, stamp_every = self.batch, self.batch if self.batch > 1 else STAMP_EVERY
        for number in range(first, first + count):
            asks = (self.receipts and (number + 1) % batch == 0) or number == last
            stamped = number % stamp_every == 0
            if noise:
                at = number * self.size % _NOISE
                filler = noise[at : at + self.size]
            if asks or stamped or noise:
                body = stamp + filler[len(stamp) :] if stamped else filler
                yield b"%b%b\n%b\0" % (start, b"receipt:%d\n" % number if asks else b"", body)
            else:
                yield plain

    def subscription(self) -> bytes:
        """A consumer's SUBSCRIBE frame."""
        return (
            f"SUBSCRIBE\nid:1\ndestination:{self.destination}\nack:{self.ack}\nactivemq.prefetchSize:{_PREFETCH}\n"
            f"prefetch-count:{_PREFETCH}\n{self.subscribe}\n\0"
        ).encode()


@cache
def _noise(size: int) -> bytes:
    """Bytes from which a body can be cut at each place before ``_NOISE``; the same ones each time."""
    return Random(1).randbytes(_NOISE + size)  # noqa: S311 - nothing secret


class Scenario(NamedTuple):
    """A load with a name: what it does, and where it differs from a plain ``Load``."""

    text: str
    changes: dict[str, Any]


SCENARIOS = {
    "confirm": Scenario("persistent, a receipt and an acknowledgement for each message", {}),
    "fire": Scenario("persistent, no receipts", {"receipts": False}),
    "nonpersistent": Scenario("non-persistent, no receipts", {"receipts": False, "persistent": False}),
    "fanin": Scenario("as confirm, with 8 producers and 4 consumers", {"producers": 8, "consumers": 4}),
    "sync": Scenario("8 producers, each waits for the receipt before its next message", {"producers": 8, "window": 1}),
    "cumulative": Scenario(
        "as confirm, with one acknowledgement for all messages of one read", {"ack": "client", "ack_every": 0}
    ),
    "backlog": Scenario("all messages are sent first, then consumed", {"backlog": True}),
    "latency": Scenario("one message at a time, from its SEND to its MESSAGE", {"receipts": False, "latency": True}),
}
"""The scenarios by name. Messages have 1 KiB and a window of 256 unless the options say otherwise."""
