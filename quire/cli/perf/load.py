"""What a measurement sends and takes, and the scenarios people ask for most."""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

STAMP = b"sent:"
STAMP_DIGITS = 20
STAMP_EVERY = 100
"""One message in so many carries the time it was sent, at the start of its body: a header would make heads differ, and
brokers may read equal heads faster."""

NUMBER_DIGITS = 12


class Target(NamedTuple):
    """A broker's STOMP port, and who we are.

    Attributes:
        host: its name or address.
        port: its STOMP port.
        login: the user; empty for none.
        passcode: the user's password.
    """

    host: str
    port: int
    login: str = ""
    passcode: str = ""


@dataclass(frozen=True, slots=True)
class Load:
    """What is sent and taken.

    Attributes:
        messages: how many, by all producers together.
        size: of a body, in bytes.
        producers: how many send.
        consumers: how many receive.
        window: how many messages of a producer may be without their receipt.
        receipts: whether every message asks for a receipt; otherwise the last one only.
        persistent: whether the broker must store them.
        ack: ``client-individual`` acknowledges each message, ``client`` all that one read brought.
        rate: messages per second, of all producers together; 0 for as many as possible.
        backlog: send all before the first is taken.
        latency: one message in flight, from its SEND to its MESSAGE.
        numbered: every body starts with the message's number, in ``NUMBER_DIGITS`` digits.
        headers: more header lines of every message, each with its newline.
        groups: how many message groups the messages belong to, in turn; 0 for none.
        queue: where to.
    """

    messages: int
    size: int = 1024
    producers: int = 1
    consumers: int = 1
    window: int = 256
    receipts: bool = True
    persistent: bool = True
    ack: str = "client-individual"
    rate: float = 0.0
    backlog: bool = False
    latency: bool = False
    numbered: bool = False
    headers: str = ""
    groups: int = 0
    queue: str = field(default_factory=lambda: f"perf.{uuid.uuid4().hex[:12]}")

    @property
    def is_stamped(self) -> bool:
        """Whether bodies tell when they were sent. In a backlog that would measure the backlog."""
        return not (self.numbered or self.backlog) and self.size >= len(STAMP) + STAMP_DIGITS

    def shares(self) -> list[int]:
        """How many messages each producer sends."""
        each, rest = divmod(self.messages, self.producers)
        return [each + (number < rest) for number in range(self.producers)]

    def frames(self, first: int, count: int, last: int, now: float) -> Iterator[bytes]:
        """SEND frames.

        Args:
            first: the number of the first one.
            count: how many.
            last: the number of the producer's last message, which always asks for a receipt.
            now: the time for their stamps, in seconds.
        """
        head = f"SEND\ndestination:/queue/{self.queue}\ncontent-length:{self.size}\n"
        start = f"{head}persistent:{'true' if self.persistent else 'false'}\n{self.headers}".encode()
        filler = b"x" * self.size
        stamp = STAMP + b"%0*d" % (STAMP_DIGITS, round(now * 1e9))
        for number in range(first, first + count):
            receipt = b"receipt:%d\n" % number if self.receipts or number == last else b""
            group = b"JMSXGroupID:%d\n" % (number % self.groups) if self.groups else b""
            body = filler
            if self.numbered:
                body = b"%0*d" % (NUMBER_DIGITS, number) + filler[NUMBER_DIGITS:]
            elif number % STAMP_EVERY == 0 and self.is_stamped:
                body = stamp + filler[len(stamp) :]
            yield b"%b%b%b\n%b\0" % (start, group, receipt, body)


class Scenario(NamedTuple):
    """A load with a name.

    Attributes:
        text: what it does.
        changes: where it differs from a plain ``Load``.
    """

    text: str
    changes: dict[str, Any]


SCENARIOS = {
    "confirm": Scenario("persistent, a receipt for each, each acknowledged", {}),
    "fire": Scenario("persistent, no receipts", {"receipts": False}),
    "nonpersistent": Scenario("not persistent, no receipts", {"receipts": False, "persistent": False}),
    "fanin": Scenario("as confirm, 8 producers and 4 consumers", {"producers": 8, "consumers": 4}),
    "sync": Scenario("8 producers, each waits for a receipt before its next message", {"producers": 8, "window": 1}),
    "cumulative": Scenario("as confirm, one acknowledgement for all that one read brought", {"ack": "client"}),
    "backlog": Scenario("all is sent first, then taken", {"backlog": True}),
    "latency": Scenario("one message at a time, from its SEND to its MESSAGE", {"receipts": False, "latency": True}),
}
"""The scenarios by name. Messages have 1 KiB and a window of 256 unless the options say otherwise."""
