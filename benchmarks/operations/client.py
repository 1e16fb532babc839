"""STOMP clients that cost little: frames are joined, and answers are counted instead of decoded."""

import re
from collections.abc import Iterable, Sequence
from itertools import islice

from quire.cli.perf.link import ANSWER_LIMIT, Link
from quire.cli.perf.own_broker import OwnBroker
from quire.errors import BrokerUnreachable

CHUNK = 500
"""How many frames are sent at once."""

_MESSAGE = re.compile(rb"(?:^|[\0\n])MESSAGE\n")
_ACK = re.compile(rb"\nack:([^\n]+)")


def send_frame(queue: str, body: bytes, headers: str = "") -> bytes:
    """A SEND frame of a persistent message.

    Args:
        queue: where to.
        body: its body.
        headers: more header lines, each with its newline.
    """
    head = f"SEND\ndestination:/queue/{queue}\npersistent:true\ncontent-length:{len(body)}\n{headers}\n"
    return head.encode() + body + b"\0"


def send_all(broker: OwnBroker, frames: Iterable[bytes]) -> None:
    """Send frames, and wait until what they bring is on disk."""
    link, rest = Link(broker.target), iter(frames)
    while chunk := list(islice(rest, CHUNK)):
        link.send(b"".join(chunk))
    link.disconnect()
    link.close()


def names(count: int, prefix: str = "many") -> list[str]:
    """Names of many queues, all of which the pattern ``many.>`` matches."""
    return [f"{prefix}.{number:05d}" for number in range(count)]


class Consumer:
    """One consumer in a connection of its own.

    Args:
        broker: the broker.
        destination: what it consumes.
        prefetch: how many messages it may have.
        ack: how it acknowledges.
        headers: more header lines of SUBSCRIBE, each with its newline.

    Attributes:
        received: how many messages came.
        unacknowledged: the acknowledgement ids of those that came and were not acknowledged.
    """

    def __init__(
        self, broker: OwnBroker, destination: str, prefetch: int = 1000, ack: str = "client-individual",
        headers: str = "",
    ) -> None:  # fmt: skip
        self.link = Link(broker.target)
        self.received = 0
        self.unacknowledged: list[bytes] = []
        self.link.send(
            f"SUBSCRIBE\nid:1\ndestination:{destination}\nack:{ack}\nactivemq.prefetchSize:{prefetch}\n"
            f"receipt:there\n{headers}\n\0".encode()
        )
        self._is_there = False

    def subscribed(self) -> None:
        """Wait until the broker says that it is there."""
        while not self._is_there:
            self._take(ANSWER_LIMIT)

    def receive(self, count: int) -> None:
        """Take messages until so many have come in all, and acknowledge none."""
        while self.received < count:
            self._take(ANSWER_LIMIT)

    def drain(self, count: int) -> None:
        """Take messages until so many have come in all, and acknowledge each."""
        self.acknowledge()
        while self.received < count:
            self._take(ANSWER_LIMIT)
            self.acknowledge()

    def acknowledge(self, transaction: str = "") -> None:
        """Acknowledge what has come.

        Args:
            transaction: in this transaction; in none if empty.
        """
        tail = f"\ntransaction:{transaction}\n\n\0".encode() if transaction else b"\n\n\0"
        if self.unacknowledged:
            self.link.send(b"".join([b"ACK\nid:" + id + tail for id in self.unacknowledged]))
        self.unacknowledged = []

    def unsubscribe(self) -> None:
        """End the consumer, and wait until it has ended."""
        self.link.send(b"UNSUBSCRIBE\nid:1\nreceipt:ended\n\n\0")
        self.link.receive_until(b"receipt-id:ended\n")

    def _take(self, seconds: float) -> None:
        data = self.link.receive(seconds)
        if data is None:
            raise BrokerUnreachable(f"the broker sent nothing for {seconds:g} s")
        self._is_there = self._is_there or b"receipt-id:there\n" in data
        found = _ACK.findall(data)
        self.unacknowledged += found
        self.received += len(found)


def lines(link: Link, frames: Sequence[bytes], last: bytes) -> None:
    """Send frames, the last one with a receipt, and wait for it."""
    link.send(b"".join(frames))
    link.receive_until(b"receipt-id:" + last)
