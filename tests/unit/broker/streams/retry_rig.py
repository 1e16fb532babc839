"""A consumer group whose messages fail: a stream of one partition, and consumers of it and of the retries."""

from typing import Any

from quire.broker.core.subscription import AckMode, Subscription
from quire.broker.queues.queue import LaneDispatch
from quire.broker.streams.groups.group import Group
from quire.broker.streams.groups.retries import RetryQueue
from quire.broker.streams.partition import Start, StartKind
from quire.message import Message, header_lines
from quire.store.base import Store
from quire.testing.stepped import SteppedBroker
from tests.unit.broker.harness import settings
from tests.unit.broker.recipients import Recipient


class RetryRig:
    """A broker with the stream ``s``, and its group ``g``.

    Args:
        store: as for ``SteppedBroker``.
        stepped: a broker that has them already; None for a new one.
        **policy: keys of the policy.

    Attributes:
        stepped: the broker.
        group: the group.
        retries: its retries.
        lane: the lane of the partition.
    """

    def __init__(self, store: Store | None = None, stepped: SteppedBroker | None = None, **policy: Any) -> None:
        self.stepped = stepped or SteppedBroker(settings(policy={"partitions": 1, **policy}), store)
        stream = self.stepped.broker.stream("s")
        self.group: Group = self.stepped.broker.groups.open(stream, "g", start=Start(StartKind.EARLIEST))
        assert self.group.retries is not None
        self.retries: RetryQueue = self.group.retries
        self.lane = stream.stored.lanes[0]
        self.stepped.run()

    def restarted(self) -> "RetryRig":
        """The same after a crash."""
        return RetryRig(stepped=self.stepped.reopen())

    def send(self, *bodies: bytes) -> None:
        """Send messages."""
        for body in bodies:
            broker = self.stepped.broker
            headers = {"message-id": f"m{broker.core.next_message_id()}", "timestamp": str(self.stepped.clock.now_ms())}
            broker.stream("s").send(header_lines(headers) + b"\n" + body)
        self.stepped.run()

    def consume(self, source: LaneDispatch, prefetch: int = 1000) -> "RetryConsumer":
        """A consumer; what it may be given at once has come."""
        return RetryConsumer(self.stepped, source, prefetch)

    def fail_all(self, *bodies: bytes, delay_ms: int | None = None) -> None:
        """Send messages that all fail, and let their retries settle."""
        self.send(*bodies)
        consumer = self.consume(self.group.partitions[0])
        while messages := consumer.take():
            consumer.reject(*messages, delay_ms=delay_ms)
            self.stepped.run()
        consumer.leave()
        self.stepped.run()

    def cancel(self, offset: int) -> bool:
        """A message is acknowledged that waits for its retry; whether it does."""
        return self.retries.finish_late([*self.retries.waiting(self.lane, offset)])

    def acknowledge_late(self, sequence: int) -> bool:
        """A retry is acknowledged by who does not have it any more; whether that counts."""
        return self.retries.finish_late(self.retries.find_late(sequence))

    def pass_time(self, seconds: float) -> None:
        """Let time go by, and everything that is due happen."""
        self.stepped.advance(seconds)
        self.stepped.run()

    def marks(self) -> int:
        """How many marks of retries the store has."""
        return len(self.stepped.store.marks(f"group/{self.group.number}/r/", limit=10_000))

    def records(self) -> list[Message]:
        """The records of the retry lane, as the store has them."""
        return self.stepped.store.page(self.retries.lanes[0].id, 0, 1 << 30, 10_000).messages


class RetryConsumer:
    """A consumer of a partition or of the retries.

    Args:
        stepped: the broker.
        source: what it consumes.
        prefetch: how many messages it may have.
    """

    def __init__(self, stepped: SteppedBroker, source: LaneDispatch, prefetch: int) -> None:
        self._source = source
        self._session = Recipient(stepped)
        self.subscription = Subscription(self._session, source, id="c", ack=AckMode.INDIVIDUAL, prefetch=prefetch)
        source.add(self.subscription)
        stepped.run()

    def take(self) -> list[Message]:
        """What came since the last call."""
        return self._session.take()

    def bodies(self) -> list[bytes]:
        """The bodies of what came since the last call."""
        return self._session.bodies()

    def accept(self, *messages: Message) -> None:
        """Acknowledge messages."""
        self._source.acknowledge(self._taken(messages))

    def reject(self, *messages: Message, delay_ms: int | None = None) -> None:
        """Messages have failed."""
        taken = self._taken(messages)
        self._source.redeliver(taken, len(taken), "rejected", at_once=False, delay_ms=delay_ms)

    def leave(self) -> None:
        """Go."""
        self._source.remove(self.subscription, "it went", lost=False)

    def _taken(self, messages: tuple[Message, ...]) -> list[Message]:
        return self.subscription.take([message.sequence for message in messages])
