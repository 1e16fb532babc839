"""A local transaction: sends and acknowledgements that become durable together, over all their destinations."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from quire.errors import TransactionTooLarge
from quire.message import Message

if TYPE_CHECKING:
    from quire.broker.broker import Broker
    from quire.broker.stomp_route import Route
    from quire.broker.subscription import Source, Subscription


class Transaction:
    """One transaction of a session, from BEGIN to COMMIT or ABORT.

    Args:
        broker: the broker.

    Attributes:
        acknowledged: the messages acknowledged in it, with their subscriptions. They stay in flight until the commit.
        rejected: the same for those that were rejected (NACK).
        settled: after the commit, the same with their queues: what to restore if the store refuses.
    """

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._sends: list[tuple[Route, bytes]] = []
        self._size = 0
        self.acknowledged: dict[tuple[Subscription, int], None] = {}
        self.rejected: dict[tuple[Subscription, int], None] = {}
        self.settled: list[tuple[Source, list[Message]]] = []

    def send(self, route: "Route", content: bytes) -> None:
        """Hold a message back until the commit.

        Args:
            route: where it goes, and how.
            content: header lines and body.

        Raises:
            TransactionTooLarge: the open transactions would hold more than the memory limit.
        """
        limit = self._broker.settings.memory.limit
        if self._broker.transaction_bytes + len(content) > limit:
            raise TransactionTooLarge(
                f"the open transactions hold {self._broker.transaction_bytes} bytes, the limit is {limit}", limit=limit
            )
        self._sends.append((route, content))
        self._size += len(content)
        self._broker.transaction_bytes += len(content)

    def acknowledge(self, subscription: "Subscription", sequences: list[int]) -> None:
        """Hold acknowledgements back until the commit; meanwhile they take no credit, if the policy says so."""
        self._hold(self.acknowledged, subscription, sequences)

    def reject(self, subscription: "Subscription", sequences: list[int]) -> None:
        """Hold rejections back until the commit."""
        self._hold(self.rejected, subscription, sequences)

    def _hold(
        self, settled: "dict[tuple[Subscription, int], None]", subscription: "Subscription", sequences: list[int]
    ) -> None:
        for sequence in sequences:
            key = (subscription, sequence)
            if sequence in subscription.in_flight and key not in self.acknowledged and key not in self.rejected:
                settled[key] = None
                if subscription.source.policy.use_prefetch_extension:
                    subscription.extended.add(sequence)
        subscription.source.wake()

    def commit(self) -> None:
        """Do everything in the open commit."""
        self._end()
        for route, content in self._sends:
            if route.producer is None or self._broker.take_producer_sequence(route.producer, route.producer_sequence):
                target = self._broker.target(route.destination)  # it may have been deleted meanwhile
                target.send(content, route.expiration, route.priority, route.persistent)
        for subscription, sequences in _by_subscription(self.acknowledged):
            messages = subscription.take(sequences)
            subscription.source.acknowledge(messages)
            self.settled.append((subscription.source, messages))
        for subscription, sequences in _by_subscription(self.rejected):
            messages = subscription.take(sequences)
            subscription.source.take_back(messages, len(messages), "rejected by the consumer", at_once=False)
        self._broker.list_transaction(self)

    def abort(self) -> None:
        """Forget everything. Acknowledged messages are in flight as before and may be acknowledged again."""
        self._end()
        self._sends.clear()
        self.acknowledged.clear()
        self.rejected.clear()

    def _end(self) -> None:
        self._broker.transaction_bytes -= self._size
        self._size = 0
        for subscription, sequence in (*self.acknowledged, *self.rejected):
            subscription.extended.discard(sequence)


def _by_subscription(settled: "dict[tuple[Subscription, int], None]") -> "Iterable[tuple[Subscription, list[int]]]":
    grouped: dict[Subscription, list[int]] = {}
    for subscription, sequence in settled:
        grouped.setdefault(subscription, []).append(sequence)
    return grouped.items()
