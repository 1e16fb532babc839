"""What a broker promises, as a ledger: what was sent, confirmed, delivered and settled, and what may not be then."""

from collections import Counter
from dataclasses import dataclass, field

from quire.testing.stepped import Frame

DEAD_LETTERS = "ActiveMQ.DLQ"


class Broken(AssertionError):
    """A promise was broken."""


@dataclass(slots=True, eq=False)
class Sent:
    """One message as its sender knows it.

    Attributes:
        name: what its body begins with; unique.
        producer: who sent it.
        number: its place among the messages of that producer.
        queue: where to.
        persistent: whether it must survive a crash.
        expires: whether it may become a dead letter or vanish by itself.
        epoch: in which of the broker's lives it was sent last.
        confirmed: whether its receipt, or that of its transaction, has come.
        withdrawn: whether its transaction ended without a COMMIT.
        message_id: what the broker calls it, once it was seen.
        written: how often it was written to a consumer, by queue.
        settled: in which life the broker took an acknowledgement of it, by queue.
        gone: the queues out of which it may never come again: its acknowledgement was confirmed.
    """

    name: bytes
    producer: int
    number: int
    queue: str
    persistent: bool
    expires: bool
    epoch: int
    confirmed: bool = False
    withdrawn: bool = False
    message_id: str = ""
    written: Counter[str] = field(default_factory=Counter)
    settled: dict[str, int] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)


class Promises:
    """The ledger.

    Attributes:
        epoch: how often the broker has crashed.
        sent: all messages, by name.
    """

    def __init__(self) -> None:
        self.epoch = 0
        self.sent: dict[bytes, Sent] = {}

    def send(self, producer: int, number: int, queue: str, *, persistent: bool, expires: bool) -> Sent:
        """A message is about to be sent."""
        name = b"%d-%d;" % (producer, number)
        sent = self.sent[name] = Sent(name, producer, number, queue, persistent, expires, self.epoch)
        return sent

    def deliver(self, queue: str, frame: Frame) -> Sent:
        """A message was written to a consumer of a queue. May it have been?"""
        name = frame.body[: frame.body.index(b";") + 1]
        sent = self.sent[name]
        where = f"{name!r} out of {queue}"
        if queue not in (sent.queue, DEAD_LETTERS):
            raise Broken(f"{where}: it was sent to {sent.queue}")
        if sent.withdrawn:
            raise Broken(f"{where}: its transaction was not committed")
        if queue in sent.gone:
            raise Broken(f"{where} again: its acknowledgement was confirmed")
        if sent.settled.get(queue) == self.epoch:
            raise Broken(f"{where} again: its acknowledgement was taken")
        if queue != DEAD_LETTERS and DEAD_LETTERS in sent.written:
            raise Broken(f"{where}: it is a dead letter already")
        if queue in sent.written and frame.headers.get("redelivered") != "true":
            raise Broken(f"{where} without a flag: it was written before")
        if sent.message_id not in ("", frame.headers["message-id"]):
            raise Broken(f"{where}: it is stored twice, as {sent.message_id} and as {frame.headers['message-id']}")
        sent.message_id = frame.headers["message-id"]
        sent.written[queue] += 1
        return sent

    def check_nothing_lost(self) -> None:
        """When everything is consumed: was every message delivered that must have been?"""
        for sent in self.sent.values():
            kept = sent.persistent or (sent.epoch == self.epoch and not sent.expires)
            if sent.confirmed and kept and not sent.written:
                raise Broken(f"{sent.name!r} was confirmed and never delivered")
