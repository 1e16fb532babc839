"""Where the messages of some lanes are: with consumers, on their way out, or nowhere but in memory."""

from collections.abc import Callable, Sequence
from heapq import nsmallest
from operator import attrgetter

from quire.broker.core.subscription import Subscription
from quire.broker.queues.queue_lane import QueueLane
from quire.broker.queues.queue_part import QueuePart
from quire.message import Message


class MessageLocator:
    """Finds messages of some lanes by sequence. It changes nothing.

    Args:
        subscriptions: the consumers; the list changes with them.
        parts: what the lanes' owner has in commits.
    """

    __slots__ = ("_lanes", "_parts", "_subscriptions")

    def __init__(
        self, lanes: Sequence[QueueLane], subscriptions: list[Subscription], parts: Callable[[], list[QueuePart]]
    ) -> None:
        self._lanes = lanes
        self._subscriptions = subscriptions
        self._parts = parts

    @property
    def last(self) -> int:
        """The highest sequence whose commit was announced."""
        return max([lane.cursor.last for lane in self._lanes])

    def free_of(self, sequences: list[int], *, in_flight: bool = False) -> list[int]:
        """Those of some sequences that no consumer has and that are not being removed; what else is out costs nothing.

        Args:
            in_flight: whether those that consumers have count as free.
        """
        last = self.last
        free = {sequence for sequence in sequences if sequence <= last}
        if not in_flight:
            for subscription in self._subscriptions:
                free.difference_update(subscription.in_flight.keys() & free)
        for lane in self._lanes:
            free.difference_update(free & lane.cursor.excluded)
        for part in self._parts():
            free.difference_update([message.sequence for message in part.removals])
        return sorted(free)

    def unstored(self) -> list[Message]:
        """The messages that are nowhere but in memory, in order: non-persistent ones that found room."""
        found = [m for s in self._subscriptions for m in s.in_flight.values() if not m.stored]
        for lane in self._lanes:
            found += lane.unstored()
        return sorted(found, key=attrgetter("sequence"))

    def unstored_from(self, start: int, limit: int, *, in_flight: bool) -> list[Message]:
        """The first messages that are nowhere but in memory, in order.

        Args:
            start: the first sequence wanted; it need not be there.
            in_flight: whether those that consumers have are wanted too.
        """
        found = [message for lane in self._lanes for message in lane.unstored_from(start, limit)]
        if in_flight:
            given = [message for s in self._subscriptions for message in s.in_flight.values() if not message.stored]
            found += [message for message in given if message.sequence >= start]
        return nsmallest(limit, found, key=attrgetter("sequence"))

    def in_flight_of(self, sequences: list[int]) -> set[int]:
        """Those of some sequences that consumers have."""
        wanted = set(sequences)
        return {sequence for s in self._subscriptions for sequence in s.in_flight.keys() & wanted}

    def in_flight_sequences(self) -> set[int]:
        """The sequences of all messages that consumers have."""
        return {sequence for s in self._subscriptions for sequence in s.in_flight}

    def unsettled(self) -> set[int]:
        """The sequences of messages that came back and of which the store does not know it yet."""
        return {sequence for part in self._parts() for sequence in part.deliveries}

    def leaving(self) -> set[int]:
        """The sequences of messages that commits remove."""
        return {message.sequence for part in self._parts() for message in part.removals}

    def out_sequences(self) -> set[int]:
        """The sequences of messages that consumers have or that are being removed."""
        excluded = {sequence for lane in self._lanes for sequence in lane.cursor.excluded}
        return self.in_flight_sequences() | excluded | self.leaving()
