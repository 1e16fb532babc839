"""Consumers of many queues at once, which count what comes."""

import re
from collections import Counter
from types import TracebackType
from typing import Self

from quire.cli.perf.link import Link
from quire.cli.perf.load import Target

PER_CONNECTION = 1000
"""How many subscriptions a connection has; the broker allows no more."""

_SUBSCRIPTION = re.compile(rb"\nsubscription:(\d+)\n")
_ACK_ID = re.compile(rb"\nack:([^\n]*)\n")


class Subscriptions:
    """One consumer for each of some queues. As a context manager they leave at the end.

    Args:
        target: the broker.
        prefix: what the queues' names begin with; their numbers follow, from 0.
        count: how many queues.

    Attributes:
        received: how many messages came from each queue, by its number.
    """

    def __init__(self, target: Target, prefix: str, count: int) -> None:
        self.received: Counter[int] = Counter()
        self._links: list[Link] = []
        try:
            for first in range(0, count, PER_CONNECTION):
                link = Link(target)
                self._links.append(link)
                numbers = range(first, min(first + PER_CONNECTION, count))
                link.send(b"".join([_subscribe(prefix, number, number == numbers[-1]) for number in numbers]))
                link.receive_until(b"RECEIPT\n")
        except BaseException:
            self.close()
            raise

    def receive(self) -> None:
        """Take what has come, without waiting, and acknowledge it."""
        for link in self._links:
            if data := link.receive(0):
                self.received.update([int(number) for number in _SUBSCRIPTION.findall(data)])
                link.send(b"".join([b"ACK\nid:%b\n\n\0" % id for id in _ACK_ID.findall(data)]))

    def close(self) -> None:
        """Leave without a word."""
        for link in self._links:
            link.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                for link in self._links:
                    link.disconnect()
        finally:
            self.close()


def _subscribe(prefix: str, number: int, is_last: bool) -> bytes:
    receipt = "receipt:1\n" if is_last else ""
    return (
        f"SUBSCRIBE\nid:{number}\ndestination:/queue/{prefix}.{number}\nack:client-individual\n{receipt}\n\0".encode()
    )
