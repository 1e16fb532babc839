"""How many destinations and stored subscriptions there may be: each of them takes memory for as long as it is there.

What the broker makes itself is never refused: dead letters, advisories, the ledger, and what was confirmed before a
destination was deleted may not be lost for a limit. It counts all the same.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from quire.errors import TooManyDestinations, TooManySubscriptions
from quire.settings.keys import BrokerSettings


class Limits:
    """The limits of one broker.

    Attributes:
        max_destinations: how many destinations there may be.
        max_subscriptions: how many durable subscriptions, and groups by partition.
        group_partitions: how many groups and readers have, each of them counted by itself.
    """

    def __init__(self, settings: BrokerSettings) -> None:
        self.max_destinations = settings.max_destinations
        self.max_subscriptions = settings.max_durable_subscriptions
        self._destinations: list[Callable[[], int]] = []
        self._subscriptions: list[Callable[[], int]] = []
        self.group_partitions = 0
        self._is_own_work = False

    def add_group_partitions(self, count: int) -> None:
        """Groups and readers have more partitions, or fewer, each of them counted by itself."""
        self.group_partitions += count

    def count_destinations(self, count: Callable[[], int]) -> None:
        """Count the destinations that one part of the broker has, too."""
        self._destinations.append(count)

    def count_subscriptions(self, count: Callable[[], int]) -> None:
        """Count the subscriptions that one part of the broker has, too."""
        self._subscriptions.append(count)

    @property
    def destinations(self) -> int:
        """How many there are: queues, topics, partitions of streams, temporary queues and topics."""
        return sum([count() for count in self._destinations])

    @property
    def subscriptions(self) -> int:
        """How many there are: durable subscriptions, and each group and reader once for each of its partitions."""
        return self.group_partitions + sum([count() for count in self._subscriptions])

    def check_destinations(self, more: int = 1) -> None:
        """Raises TooManyDestinations if there may be no more."""
        limit = self.max_destinations
        if not self._is_own_work and self.destinations + more > limit:
            text = f"there are {self.destinations} destinations, and there may be {limit}: broker.max_destinations"
            raise TooManyDestinations(text, destinations=self.destinations, limit=limit)

    def check_subscriptions(self, more: int = 1) -> None:
        """Raises TooManySubscriptions if there may be no more."""
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
