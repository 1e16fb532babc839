"""What a cluster promises, as a ledger: what was sent, confirmed, delivered and settled, and by which owners.

What an owner has said may be on its way for long: it may come after what the next owner has said. So deliveries of a
message are ordered by where they were made, not by when they come.
"""

from collections import Counter, deque
from itertools import count
from typing import NamedTuple, Protocol

from quire.testing.stepped import Frame
from tests.simulation.cluster.setup import TOPIC, header_of
from tests.simulation.rules import Broken, Rule
from tests.simulation.sent import Outcome, Sent


class Delivery(NamedTuple):
    """A delivery of a message, in the order in which owners make them.

    Attributes:
        number: the how-manieth of all deliveries it is.
        epoch: of the owner.
    """

    number: int
    epoch: int


class Settler(Protocol):
    """Who settles messages."""

    @property
    def is_gone(self) -> bool:
        """Whether its connection is gone."""


class ClusterSent(Sent):
    """One message.

    Attributes:
        queue: where it was sent to.
        producer: the client, with the number of its connection unless it numbers its sends.
        number: the how-manieth of that client it is.
        size: how many bytes its body has beside its name.
        is_kept: whether it must be delivered, if it was confirmed.
        message_id: what the broker calls it, once it was seen.
        seen: its deliveries.
        fresh: the delivery that said that there was none before.
        settled: the last delivery that its consumer was done with.
        gone: the same, and the consumer knows that the broker knows.
        ending: the transaction in which it was settled, until it is clear that this one was not done.
        settler: who has settled it.
    """

    __slots__ = (
        "ending", "fresh", "gone", "is_kept", "message_id", "number", "producer", "queue", "seen", "settled", "settler",
        "size",
    )  # fmt: skip

    settler: Settler

    def __init__(self, producer: str, number: int, queue: str, size: int, *, is_kept: bool = True) -> None:
        super().__init__(f"{producer}-{number}")
        self.producer = producer
        self.number = number
        self.queue = queue
        self.size = size
        self.is_kept = is_kept
        self.message_id = ""
        self.seen: list[Delivery] = []
        self.fresh: Delivery | None = None
        self.settled: Delivery | None = None
        self.gone: Delivery | None = None
        self.ending: Outcome | None = None

    @property
    def is_settled(self) -> bool:
        """Whether a consumer was done with it."""
        return self.settled is not None and (self.ending is None or self.ending.done is not False)


class ClusterPromises:
    """The ledger.

    Attributes:
        sent: all messages, by name.
        kept: whether the topic has a durable subscription; None if it may have one, and its client does not know yet.
    """

    def __init__(self) -> None:
        self.kept: bool | None = False
        self.sent: dict[str, ClusterSent] = {}
        self._numbers: Counter[str] = Counter()
        self._given: dict[tuple[str, str], deque[Delivery]] = {}  # on their way, by connection and message id
        self._deliveries = count(1)
        self._doubts: list[tuple[str, Settler]] = []

    def send(self, producer: str, queue: str, size: int) -> ClusterSent:
        """A new message is about to be sent."""
        self._numbers[producer] += 1
        is_kept = queue != TOPIC or self.kept is True
        sent = ClusterSent(producer, self._numbers[producer], queue, size, is_kept=is_kept)
        self.sent[sent.name] = sent
        return sent

    def may_keep(self) -> None:
        """A client asks for the durable subscription."""
        self.kept = self.kept or None

    def keeps(self) -> None:
        """The durable subscription is there, as its client knows."""
        self.kept = True

    def gave(self, epoch: int, connection: str, message_id: str) -> None:
        """An owner gives a message to a client. It is on its way there; if it is lost, so is all that follows it."""
        given = self._given.setdefault((connection, message_id), deque())
        given.append(Delivery(next(self._deliveries), epoch))

    def deliver(self, connection: str, frame: Frame) -> tuple[ClusterSent, Delivery]:
        """A message has come to a client. May it have been given out?"""
        sent = self.sent[frame.body[: frame.body.index(b";")].decode()]
        delivery = self._given[connection, frame.headers["message-id"]].popleft()
        if frame.headers["destination"] != header_of(sent.queue):
            raise Broken(Rule.ROUTE, f"{sent} came out of {frame.headers['destination']}, it was sent to {sent.queue}")
        if sent.message_id not in ("", frame.headers["message-id"]):
            raise Broken(Rule.ONCE, f"{sent} is stored as {sent.message_id} and as {frame.headers['message-id']}")
        sent.message_id = frame.headers["message-id"]
        self._check_flag(sent, delivery, frame)
        if sent.outcome is not None:
            sent.outcome.decide(True, f"{sent} came out of {sent.queue}")
        if sent.settled is not None and delivery > sent.settled:
            self._came_again(sent, delivery)
        return sent, delivery

    def _check_flag(self, sent: ClusterSent, delivery: Delivery, frame: Frame) -> None:
        before = [seen for seen in sent.seen if seen < delivery]
        if frame.headers.get("redelivered") != "true":
            if before:
                raise Broken(Rule.FLAG, f"{sent} came without a flag as {delivery}, and before as {before[-1]}")
            sent.fresh = delivery
        elif int(frame.headers["JMSXDeliveryCount"]) <= len([seen for seen in before if seen.epoch == delivery.epoch]):
            text = f"{sent} says it is delivered {frame.headers['JMSXDeliveryCount']} times, but before as {before}"
            raise Broken(Rule.FLAG, text)
        if sent.fresh is not None and delivery < sent.fresh:
            raise Broken(Rule.FLAG, f"{sent} came as {delivery}, and later without a flag as {sent.fresh}")
        sent.seen.append(delivery)

    def _came_again(self, sent: ClusterSent, delivery: Delivery) -> None:
        """A message was given out after a delivery that was settled: so its owner did not hear of that."""
        if sent.ending is not None:
            sent.ending.decide(False, f"{sent} came again as {delivery}")
        self._check_gone(sent)
        self._doubts.append((f"{sent} came as {delivery}, it was settled as {sent.settled}", sent.settler))
        sent.settled = sent.ending = None

    def settle(self, sent: ClusterSent, delivery: Delivery, ending: Outcome | None, settler: Settler) -> None:
        """A consumer is done with a message, or is so if its transaction is done."""
        if later := [seen for seen in sent.seen if seen > delivery]:
            self._doubts.append((f"{sent} was settled as {delivery}, it came as {later[0]}", settler))
        elif sent.settled is None or sent.settled < delivery:
            sent.settled, sent.ending, sent.settler = delivery, ending, settler

    def confirm(self, sent: ClusterSent, delivery: Delivery) -> None:
        """A consumer knows that the owner knows that it is done with a message."""
        sent.gone = max(sent.gone or delivery, delivery)
        self._check_gone(sent)

    def _check_gone(self, sent: ClusterSent) -> None:
        if sent.gone is not None and (later := [seen for seen in sent.seen if seen > sent.gone]):
            raise Broken(Rule.AGAIN, f"{sent} came as {later[0]}, its acknowledgement was confirmed for {sent.gone}")

    def resolve_doubts(self) -> None:
        """All clients know by now if they have lost their connections: who has not was right in what it settled."""
        for text, settler in self._doubts:
            if not settler.is_gone:
                raise Broken(Rule.AGAIN, text)
        self._doubts.clear()

    def check_nothing_lost(self) -> None:
        """When everything is consumed: was somebody done with every message that was confirmed?"""
        for sent in self.sent.values():
            if sent.is_kept and sent.confirmed and not sent.is_settled:
                seen = "delivered, given back, and never again" if sent.seen else "never delivered"
                raise Broken(Rule.LOST, f"{sent} was confirmed and {seen}")
