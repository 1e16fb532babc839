"""How many destinations and stored subscriptions there may be: each of them takes memory for as long as it is there.

What the broker makes itself is never refused: dead letters, advisories, the ledger, and what was confirmed before a
destination was deleted may not be lost for a limit. It counts all the same.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from quire.errors import TooManyDestinations, TooManySubscriptions

if TYPE_CHECKING:
    from quire.broker.broker import Broker


class Limits:
    """The limits of one broker.

    Args:
        broker: the broker.

    Attributes:
        max_destinations: how many destinations there may be.
        max_subscriptions: how many durable subscriptions, and groups by partition.
    """

    def __init__(self, broker: "Broker") -> None:
        self.max_destinations = broker.settings.broker.max_destinations
        self.max_subscriptions = broker.settings.broker.max_durable_subscriptions
        self._broker = broker
        self._is_own_work = False

    @property
    def destinations(self) -> int:
        """How many there are: queues, topics, partitions of streams, temporary queues and topics."""
        there, temporaries = self._broker.destinations, self._broker.routing.temporaries
        named = len(there.queues) + len(there.topics) + there.partitions
        return named + len(temporaries.queues) + len(temporaries.topics)

    @property
    def subscriptions(self) -> int:
        """How many there are: durable subscriptions, and each group and reader once for each of its partitions."""
        return len(self._broker.durables) + self._broker.groups.partitions

    def check_destinations(self, more: int = 1) -> None:
        """See that there may be more.

        Raises:
            TooManyDestinations: there may not.
        """
        limit = self.max_destinations
        if not self._is_own_work and self.destinations + more > limit:
            text = f"there are {self.destinations} destinations, and there may be {limit}: broker.max_destinations"
            raise TooManyDestinations(text, destinations=self.destinations, limit=limit)

    def check_subscriptions(self, more: int = 1) -> None:
        """See that there may be more.

        Raises:
            TooManySubscriptions: there may not.
        """
        there, limit = self.subscriptions, self.max_subscriptions
        if not self._is_own_work and there + more > limit:
            what = "durable subscriptions, and groups by partition"
            text = f"there are {there} {what}, and there may be {limit}: broker.max_durable_subscriptions"
            raise TooManySubscriptions(text, subscriptions=there, limit=limit)

    @contextmanager
    def own_work(self) -> Iterator[None]:
        """What the broker makes meanwhile is its own work, and is not refused."""
        before, self._is_own_work = self._is_own_work, True
        try:
            yield
        finally:
            self._is_own_work = before
