"""Consumers of topics without a protocol, and short ways to send to topics."""

from typing import Any

from quire.broker.core.subscription import AckMode, Session, Subscription
from quire.broker.pull import Pull
from quire.broker.topics.topic import DurableSubscription
from quire.broker.transactions.transaction import Transaction
from quire.errors import QuireError, StoreCorrupt
from quire.message import Message, header_lines
from quire.selectors import selector
from quire.store.base import Page
from quire.store.memory import MemoryStore
from quire.testing.stepped import SteppedBroker


class Recipient(Session):
    """A session that keeps what is delivered to it.

    Attributes:
        got: the messages that came and were not looked at yet.
        errors: the codes of errors it was failed with.
    """

    def __init__(self, stepped: SteppedBroker, name: str = "recipient") -> None:
        self.name = name
        self.writable = True
        self.got: list[Message] = []
        self.errors: list[str] = []
        self._stepped = stepped

    def subscribe(
        self, topic: str = "t", ack: AckMode = AckMode.AUTO, wanted: str | None = None, **options: Any
    ) -> Subscription:
        """Consume a topic.

        Args:
            topic: its name.
            ack: how it acknowledges.
            wanted: a selector.
            **options: of ``Topic.subscribe``.
        """
        chosen = None if wanted is None else selector(wanted)
        return self._stepped.broker.topic(topic).subscribe(self, id=self.name, ack=ack, selector=chosen, **options)

    def subscribe_durably(
        self, name: str = "d", topic: str = "t", wanted: str | None = None, client: str = "c", **options: Any
    ) -> Subscription:
        """Consume a durable subscription; what there is comes at once.

        Args:
            name: the subscription's name.
            topic: its topic's.
            wanted: a selector.
            client: the client id.
            **options: of ``Durables.subscribe``.
        """
        broker, chosen = self._stepped.broker, None if wanted is None else selector(wanted)
        subscription = broker.durables.subscribe(
            client, name, broker.topic(topic), self, id=self.name, selector=chosen, **options
        )  # fmt: skip
        self._stepped.run()
        return subscription

    def deliver(self, subscription: Subscription, messages: list[Message], first: bool = False) -> None:
        """Keep messages."""
        self.got += messages

    def pull(self, subscription: Subscription, quantity: int = 1, timeout_ms: int = 0) -> Pull:
        """Ask for messages; that nothing came is kept as an error would be."""

        def ended(left: int) -> None:
            if left == quantity:
                self.errors.append("nothing-came")

        return Pull(self._stepped.broker.core, subscription, quantity, timeout_ms, ended)

    def confirmed(self, receipts: list[bytes]) -> None:
        """Nothing asks for receipts."""

    def fail(self, error: QuireError) -> None:
        """Keep the error's code."""
        self.errors.append(error.code)

    def flush(self) -> None:
        """Nothing to write."""

    def resume(self) -> None:
        """Nothing to go on with."""

    def bodies(self) -> list[bytes]:
        """The bodies of what came since the last call."""
        return [message.body for message in self.take()]

    def take(self) -> list[Message]:
        """What came since the last call."""
        got, self.got = self.got, []
        return got


def publish(stepped: SteppedBroker, *bodies: bytes | str, topic: str = "t", **fields: Any) -> None:
    """Send messages to a topic and let everything settle.

    Args:
        stepped: the broker.
        *bodies: a message each.
        topic: the topic's name.
        **fields: ``priority``, ``expiration``, ``persistent``, ``sender``; anything else is a header.
    """
    put(stepped, *bodies, topic=topic, **fields)
    stepped.run()


def put(stepped: SteppedBroker, *bodies: bytes | str, topic: str = "t", **fields: Any) -> None:
    """As ``publish``, and nothing more: it is in the open commit."""
    broker = stepped.broker
    broker.core.sender = fields.pop("sender", None)
    how = {name: fields.pop(name) for name in ("priority", "expiration", "persistent") if name in fields}
    for body in bodies:
        headers = {
            "message-id": f"m{broker.core.next_message_id()}",
            "timestamp": str(stepped.clock.now_ms()),
            **fields,
        }
        plain = body if isinstance(body, bytes) else body.encode()
        broker.topic(topic).send(header_lines(headers) + b"\n" + plain, **how)
    broker.core.sender = None


def acknowledge(subscription: Subscription, *sequences: int, transaction: Transaction | None = None) -> None:
    """Acknowledge messages, at once or in a transaction."""
    if transaction is not None:
        transaction.acknowledge(subscription, list(sequences))
    else:
        assert subscription.acknowledge(list(sequences)) == []


def accept(subscription: Subscription, *messages: Message) -> None:
    """Acknowledge messages."""
    subscription.source.acknowledge(subscription.take([message.sequence for message in messages]))


def reject(subscription: Subscription, *messages: Message, **how: Any) -> None:
    """Reject messages: they have failed."""
    taken = subscription.take([message.sequence for message in messages])
    subscription.source.redeliver(taken, len(taken), "rejected", at_once=False, **how)


def leave(subscription: Subscription, *, lost: bool = False) -> None:
    """A consumer goes."""
    subscription.source.remove(subscription, "it went", lost=lost)


def records(stepped: SteppedBroker, topic: str = "t") -> int:
    """How many records the store has of a topic."""
    return sum([stepped.store.lane_state(lane).count for lane in stepped.broker.topic(topic).lanes])


def settle(stepped: SteppedBroker, seconds: float = 0.1) -> None:
    """Let what is done step by step, a moment apart, come to its end."""
    for _ in range(round(seconds / 0.01)):
        stepped.run()
        stepped.advance(0.01)
    stepped.run()


class DamagedPages(MemoryStore):
    """An open store in memory in which one record can be damaged: no page with it can be read.

    Attributes:
        damaged: its sequence; 0 for none.
    """

    def __init__(self) -> None:
        super().__init__()
        self.damaged = 0
        self.open()

    def page(self, lane: int, start: int, byte_budget: int, limit: int) -> Page:
        """Read records in order; the damaged one is an error."""
        page = super().page(lane, start, byte_budget, limit)
        if self.damaged in [message.sequence for message in page.messages]:
            raise StoreCorrupt("the record is damaged", lane=lane, sequence=self.damaged)
        return page


def offline(stepped: SteppedBroker, name: str = "d", **options: Any) -> DurableSubscription:
    """A durable subscription without a consumer."""
    leave(Recipient(stepped).subscribe_durably(name, **options))
    stepped.run()
    return durable(stepped, name)


def durable(stepped: SteppedBroker, name: str = "d") -> DurableSubscription:
    """A durable subscription of the client ``c``."""
    return stepped.broker.durables.existing("c", name)


def marks(stepped: SteppedBroker) -> list[str]:
    """The keys of what the store remembers of durable subscriptions."""
    return [key for key, _ in stepped.store.marks("sub/")]
