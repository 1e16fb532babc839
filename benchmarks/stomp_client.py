"""The STOMP client of the benchmarks: it costs little, and sees what it is asked to see.

It counts answers instead of decoding them, and reads a header only when it is asked for. Where none of that matters,
the benchmarks use ``quire.client.sync``.
"""

import re
from collections.abc import Iterable, Sequence
from contextlib import closing
from itertools import islice
from typing import NamedTuple

from benchmarks.load import GROUP, NUMBER_DIGITS
from quire.cli.perf.load import ANSWER_LIMIT, Link, Target
from quire.clock import SystemClock
from quire.errors import BrokerUnreachable

CHUNK = 500
"""How many frames are sent at once."""

_ACK = re.compile(rb"\nack:([^\n]+)")
_RECEIPT = re.compile(rb"RECEIPT\nreceipt-id:(\d+)\n")


def send_frame(queue: str, body: bytes, headers: str = "") -> bytes:
    """A SEND frame of a persistent message; each line of more headers has its newline."""
    head = f"SEND\ndestination:/queue/{queue}\npersistent:true\ncontent-length:{len(body)}\n{headers}\n"
    return head.encode() + body + b"\0"


def send_all(target: Target, frames: Iterable[bytes]) -> None:
    """Send frames, and wait until what they bring is on disk."""
    rest = iter(frames)
    with closing(Link(target)) as link:
        while chunk := list(islice(rest, CHUNK)):
            link.send(b"".join(chunk))
        link.disconnect()


class Message(NamedTuple):
    """What came: a message, or a marker that tells of an event; its command and header lines, and its body."""

    head: bytes
    body: bytes

    def header(self, name: str) -> str:
        return self.head.partition(b"\n%b:" % name.encode())[2].partition(b"\n")[0].decode()

    @property
    def number(self) -> int:
        return int(self.body[:NUMBER_DIGITS])

    @property
    def is_redelivered(self) -> bool:
        return self.header("redelivered") == "true"

    @property
    def event(self) -> str:
        """Which event a marker tells of; empty for a message."""
        return self.header("event")

    @property
    def place(self) -> tuple[int, int]:
        return int(self.header("partition")), int(self.header("offset"))

    @property
    def epoch(self) -> int:
        """The assignment it came under: ``ack`` is ``OFFSET.PARTITION.EPOCH-SUBSCRIPTION``."""
        return int(self.header("ack").partition("-")[0].rpartition(".")[2])


class Consumer:
    """A connection of its own with one subscription, or with more of them."""

    def __init__(self, target: Target, destination: str, prefetch: int = 1000, headers: str = "") -> None:
        self.link = Link(target)
        self.received = 0  # how many messages were counted
        self._subscriptions = 0
        self._receipts = 0
        self._unconfirmed: dict[bytes, int] = {}
        self._early = b""
        self.subscribe([destination], prefetch, headers)

    @property
    def unconfirmed(self) -> int:
        """How many acknowledgements the broker was asked to confirm and has not."""
        return sum(self._unconfirmed.values())

    def subscribe(self, destinations: Iterable[str], prefetch: int = 1000, headers: str = "") -> None:
        frames = [
            f"SUBSCRIBE\nid:{number}\ndestination:{destination}\nack:client-individual\n"
            f"activemq.prefetchSize:{prefetch}\n{headers}\n\0"
            for number, destination in enumerate(destinations, self._subscriptions)
        ]
        self._subscriptions += len(frames)
        self._confirmed("".join(frames).encode(), 0)

    def confirm(self) -> None:
        while self._unconfirmed:
            self._early += self._wait()

    def receive(self, seconds: float) -> list[Message]:
        """Take the messages that have come: none after so many seconds, or if something else came."""
        data, self._early = self._early or self._read(seconds) or b"", b""
        parts = [frame.lstrip(b"\n").partition(b"\n\n") for frame in data.split(b"\0")]
        return [Message(head, body) for head, _, body in parts if head.startswith(b"MESSAGE\n")]

    def take(self, count: int) -> list[Message]:
        """Wait until so many messages have come, or a few more."""
        clock = SystemClock()
        came: list[Message] = []
        last = clock.monotonic()
        while len(came) < count:
            if messages := self.receive(ANSWER_LIMIT):
                came += messages
                last = clock.monotonic()
            elif clock.monotonic() - last >= ANSWER_LIMIT:
                raise BrokerUnreachable(f"{len(came)} of {count} messages came within {ANSWER_LIMIT:g} s")
        return came

    def acknowledge(self, messages: Sequence[Message], confirmed: bool = False) -> None:
        self.acknowledge_ids([message.header("ack").encode() for message in messages], confirmed=confirmed)

    def settle(self, messages: Sequence[Message]) -> None:
        self.acknowledge(messages, confirmed=True)
        self.confirm()

    def extend(self, message: Message, milliseconds: int) -> None:
        self.link.send(f"NACK\nid:{message.header('ack')}\nextend:{milliseconds}\n\n\0".encode())

    def count(self) -> list[bytes]:
        """Wait for messages and count them; of each only the id of its acknowledgement is read."""
        data, self._early = self._early or self._wait(), b""
        ids = _ACK.findall(data)
        self.received += len(ids)
        return ids

    def collect(self, total: int) -> list[bytes]:
        """Count messages until there are so many in all; the ids of those that came, none of which is acknowledged."""
        ids: list[bytes] = []
        while self.received < total:
            ids += self.count()
        return ids

    def drain(self, total: int) -> None:
        """Count messages until there are so many in all, and acknowledge each."""
        while self.received < total:
            self.acknowledge_ids(self.count())

    def acknowledge_ids(self, ids: Sequence[bytes], transaction: str = "", confirmed: bool = False) -> None:
        if ids:
            tail = f"\ntransaction:{transaction}\n\n\0".encode() if transaction else b"\n\n\0"
            frames = b"".join([b"ACK\nid:%b%b" % (id, tail) for id in ids])
            if confirmed:
                self._confirmed(frames, len(ids))
            else:
                self.link.send(frames)

    def unsubscribe(self) -> None:
        """End the first subscription, and wait until it has ended."""
        self.link.send(b"UNSUBSCRIBE\nid:0\nreceipt:ended\n\n\0")
        self.link.receive_until(b"receipt-id:ended\n")

    def disconnect(self) -> None:
        self.link.disconnect()
        self.link.close()

    def close(self) -> None:
        self.link.close()

    def _confirmed(self, frames: bytes, acknowledgements: int) -> None:
        self._receipts += 1
        self._unconfirmed[b"%d" % self._receipts] = acknowledgements
        self.link.send(frames.removesuffix(b"\n\0") + b"receipt:%d\n\n\0" % self._receipts)

    def _read(self, seconds: float) -> bytes | None:
        data = self.link.receive(seconds)
        if data and self._unconfirmed:
            for number in _RECEIPT.findall(data):
                self._unconfirmed.pop(number, None)
        return data

    def _wait(self) -> bytes:
        data = self._read(ANSWER_LIMIT)
        if data is None:
            raise BrokerUnreachable(f"the broker sent nothing for {ANSWER_LIMIT:g} s")
        return data


def member(target: Target, stream: str, headers: str = "", prefetch: int = 1000) -> Consumer:
    return Consumer(target, f"/stream/{stream}", prefetch, f"group:{GROUP}\nstart:earliest\n{headers}")
