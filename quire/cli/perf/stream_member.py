"""A member of a consumer group that looks at every message it gets."""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from quire.cli.perf.link import ANSWER_LIMIT, Link
from quire.cli.perf.load import NUMBER_DIGITS, Target
from quire.clock import SystemClock
from quire.errors import BrokerUnreachable


class StreamMessage(NamedTuple):
    """What came: a message, or a marker that tells of an event.

    Attributes:
        headers: as they came.
        body: as it came.
    """

    headers: dict[str, str]
    body: bytes

    @property
    def event(self) -> str:
        """Which event a marker tells of; empty for a message."""
        return self.headers.get("event", "")

    @property
    def place(self) -> tuple[int, int]:
        """The message's partition and offset: no other message of the stream has them."""
        return int(self.headers["partition"]), int(self.headers["offset"])

    @property
    def number(self) -> int:
        """The number at the start of its body."""
        return int(self.body[:NUMBER_DIGITS])

    @property
    def is_redelivered(self) -> bool:
        """Whether it is flagged so."""
        return self.headers.get("redelivered") == "true"

    @property
    def epoch(self) -> int:
        """The assignment it came under: ``ack`` is ``OFFSET.PARTITION.EPOCH-SUBSCRIPTION``."""
        return int(self.headers["ack"].partition("-")[0].rpartition(".")[2])


class StreamMember:
    """A connection with one subscription of a group, which acknowledges message by message.

    Args:
        target: the broker.
        stream: the stream's name.
        group: the group's name.
        headers: more of the SUBSCRIBE frame, each with its newline: ``member:a`` say.
        prefetch: how many unacknowledged messages the broker may give.
    """

    def __init__(self, target: Target, stream: str, group: str, headers: str = "", prefetch: int = 1000) -> None:
        self._link = Link(target)
        self._early: list[StreamMessage] = []
        self._unconfirmed: deque[int] = deque()
        self._link.send(
            f"SUBSCRIBE\nid:1\ndestination:/stream/{stream}\ngroup:{group}\nstart:earliest\nack:client-individual\n"
            f"prefetch-count:{prefetch}\n{headers}\n\0".encode()
        )

    @property
    def unconfirmed(self) -> int:
        """How many acknowledgements the broker has not confirmed."""
        return sum(self._unconfirmed)

    def receive(self, seconds: float) -> list[StreamMessage]:
        """Take what has come; that may be confirmations only.

        Args:
            seconds: how long to wait for anything.
        """
        if not self._early:
            self._read(seconds)
        came, self._early = self._early, []
        return came

    def take(self, count: int) -> list[StreamMessage]:
        """Wait until so many messages have come, or a few more.

        Raises:
            BrokerUnreachable: nothing came for ``ANSWER_LIMIT``.
        """
        clock = SystemClock()
        came: list[StreamMessage] = []
        last = clock.monotonic()
        while len(came) < count:
            if messages := self.receive(ANSWER_LIMIT):
                came += messages
                last = clock.monotonic()
            elif clock.monotonic() - last >= ANSWER_LIMIT:
                raise BrokerUnreachable(f"{len(came)} of {count} messages came within {ANSWER_LIMIT:g} s")
        return came

    def acknowledge(self, messages: Sequence[StreamMessage]) -> None:
        """Acknowledge messages, if there are any, and ask for one receipt for all of them."""
        if messages:
            frames = [f"ACK\nid:{message.headers['ack']}\n" for message in messages]
            frames[-1] += "receipt:ack\n"
            self._unconfirmed.append(len(messages))
            self._link.send("".join([f"{frame}\n\0" for frame in frames]).encode())

    def settle(self, messages: Sequence[StreamMessage]) -> None:
        """Acknowledge messages, and wait until the broker has confirmed all acknowledgements."""
        self.acknowledge(messages)
        while self._unconfirmed:
            self._read(ANSWER_LIMIT)

    def extend(self, message: StreamMessage, milliseconds: int) -> None:
        """Ask for a message's lease to end so long from now."""
        self._link.send(f"NACK\nid:{message.headers['ack']}\nextend:{milliseconds}\n\n\0".encode())

    def disconnect(self) -> None:
        """Wait until the broker has done what was sent, and close."""
        self._link.disconnect()
        self._link.close()

    def close(self) -> None:
        """Leave without a word."""
        self._link.close()

    def _read(self, seconds: float) -> None:
        """Wait for frames: messages are kept, receipts counted."""
        for frame in (self._link.receive(seconds) or b"").split(b"\0"):
            command, _, rest = frame.lstrip(b"\n").partition(b"\n")
            if command == b"RECEIPT":
                self._unconfirmed.popleft()
            elif command == b"MESSAGE":
                head, _, body = rest.partition(b"\n\n")
                headers = dict(line.split(":", 1) for line in head.decode().split("\n"))
                self._early.append(StreamMessage(headers, body))
