"""A consumer of numbered messages: cheap, and it tells each message from all others."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from quire.cli.perf.link import Link
from quire.cli.perf.load import NUMBER_DIGITS, Target

_MESSAGE = re.compile(rb"MESSAGE\n(.*?\n)\n(\d{%d})" % NUMBER_DIGITS, re.DOTALL)
_ACK_ID = re.compile(rb"^ack:(.*)$", re.MULTILINE)


class Delivery(NamedTuple):
    """A message that came.

    Attributes:
        number: the message's number.
        redelivered: whether it was flagged so.
        ack: what acknowledges it.
        head: the header lines.
    """

    number: int
    redelivered: bool
    ack: bytes
    head: bytes


class NumberedConsumer:
    """A connection with one subscription, which acknowledges message by message.

    Args:
        target: the broker.
        queue: a queue of numbered messages.
        prefetch: how many unacknowledged messages the broker may give.
        selector: which messages it wants; empty for all.
    """

    def __init__(self, target: Target, queue: str, prefetch: int, selector: str = "") -> None:
        self._link = Link(target)
        wanted = f"selector:{selector}\n" if selector else ""
        self._link.send(
            f"SUBSCRIBE\nid:1\ndestination:/queue/{queue}\nack:client-individual\n"
            f"activemq.prefetchSize:{prefetch}\n{wanted}\n\0".encode()
        )

    def receive(self, seconds: float) -> list[Delivery]:
        """Take what has come.

        Args:
            seconds: how long to wait for anything.
        """
        data = self._link.receive(seconds) or b""
        return [_delivery(head, int(number)) for head, number in _MESSAGE.findall(data)]

    def acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        """Acknowledge messages."""
        self._link.send(b"".join([b"ACK\nid:%b\n\n\0" % delivery.ack for delivery in deliveries]))

    def disconnect(self) -> None:
        """Wait until the broker has done what was sent, and close."""
        self._link.disconnect()
        self._link.close()

    def close(self) -> None:
        """Leave without a word."""
        self._link.close()


def _delivery(head: bytes, number: int) -> Delivery:
    found = _ACK_ID.search(head)
    assert found
    return Delivery(number, b"redelivered:true\n" in head, found.group(1), head)
