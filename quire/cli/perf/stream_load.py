"""What a measurement of a stream sends and takes: messages in batches, by producers and the members of a group."""

from dataclasses import dataclass
from math import ceil

from quire.cli.perf.load import NUMBER_DIGITS, STAMP, STAMP_DIGITS, Load

BATCH = 32
"""How many messages share a receipt, and how many share an acknowledgement."""


@dataclass(frozen=True, slots=True)
class StreamLoad(Load):
    """A load for a stream; ``queue`` is the stream's name.

    The first message of each batch tells when it was sent, unless messages are numbered: then message n goes to
    partition n % ``partitions``.

    Attributes:
        ack: ``client`` acknowledges every ``batch`` messages together, ``client-individual`` each message.
        batch: how many messages share a receipt.
        group: which consumer group takes them.
        partitions: how many partitions numbered messages are spread over.
        stuck: whether the first message that comes is never acknowledged.
    """

    ack: str = "client"
    batch: int = BATCH
    group: str = "perf"
    partitions: int = 4
    stuck: bool = False

    @property
    def path(self) -> str:
        """The stream as a destination of STOMP."""
        return f"/stream/{self.queue}"

    def batches(self, count: int) -> int:
        """How many batches some messages make; the last one may have fewer of them."""
        return ceil(count / self.batch)

    def batch_frames(self, index: int, count: int, now: float) -> bytes:
        """The SEND frames of a batch; the last one asks for a receipt.

        Args:
            index: which batch of its producer, from 0.
            count: how many messages the producer sends in all.
            now: the time for its stamp, in seconds.
        """
        first = index * self.batch
        last = min(first + self.batch, count) - 1
        if self.numbered:
            return b"".join([self._numbered(number, number == last) for number in range(first, last + 1)])
        head = f"SEND\ndestination:{self.path}\ncontent-length:{self.size}\npersistent:true\n".encode()
        filler = b"x" * self.size
        stamp = STAMP + b"%0*d" % (STAMP_DIGITS, round(now * 1e9)) if self.is_stamped else b""
        body, receipt = stamp + filler[len(stamp) :], b"receipt:%d\n" % last
        if first == last:
            return b"%b%b\n%b\0" % (head, receipt, body)
        between = b"%b\n%b\0" % (head, filler) * (last - first - 1)
        return b"%b\n%b\0%b%b%b\n%b\0" % (head, body, between, head, receipt, filler)

    def _numbered(self, number: int, is_last: bool) -> bytes:
        receipt = f"receipt:{number}\n" if is_last else ""
        head = (
            f"SEND\ndestination:{self.path}\ncontent-length:{self.size}\npersistent:true\n"
            f"partition:{number % self.partitions}\n{receipt}\n"
        )
        return head.encode() + b"%0*d" % (NUMBER_DIGITS, number) + b"x" * (self.size - NUMBER_DIGITS) + b"\0"
