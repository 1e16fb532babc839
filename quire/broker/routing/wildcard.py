"""Subscriptions to more than one destination: wildcards (``/queue/orders.>``) and lists (``/queue/a,/topic/b``).

There is one child for each destination. To the client they are one subscription: one id, one prefetch for all of them,
and a cumulative acknowledgement covers what any of them was given before.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from quire.broker.shared_prefetch import ChildSubscription, SharedPrefetch
from quire.broker.stomp.stomp_destination import Address
from quire.destination import Destination, DestinationKind
from quire.destination_pattern import Pattern
from quire.errors import QuireError

if TYPE_CHECKING:
    from quire.broker.broker import Broker


class WildcardSubscription(SharedPrefetch):
    """A subscription to all destinations that match patterns, those that come later too.

    Args:
        broker: the broker.
        addresses: the patterns; a name without wildcards is one destination, which is made if it is not there.
        prefetch: how many messages all children together may have in flight.
        make: makes the child of a destination, whose parent this is, and puts it there.
        fail: told of an error when a child cannot be made for a destination that comes later.

    Attributes:
        children: by destination.
    """

    def __init__(
        self, broker: "Broker", addresses: Sequence[Address], prefetch: int,
        make: "Callable[[Destination, WildcardSubscription], ChildSubscription]", fail: Callable[[QuireError], None],
    ) -> None:  # fmt: skip
        super().__init__(broker, prefetch)
        self.children: dict[Destination, ChildSubscription] = {}
        self._being_made: set[Destination] = set()
        self._patterns = [(address.kind, Pattern(address.name)) for address in addresses]
        self._make = make
        self._fail = fail

    # Destinations come.

    def start(self) -> None:
        """Subscribe to everything that matches, and to what comes from now on.

        Raises:
            QuireError: a child cannot be made; ``end`` ends those that were.
        """
        destinations = self._broker.destinations
        for pattern in self._topic_wildcards():
            self._broker.advisories.watch(pattern)
        destinations.created.append(self._created)
        for kind, pattern in self._patterns:
            if not pattern.is_wildcard:
                self._add(Destination(kind, pattern.text))
                continue
            names = destinations.queues if kind is DestinationKind.QUEUE else destinations.topics
            for name in [name for name in names if pattern.matches(name)]:
                self._add(Destination(kind, name))

    def _topic_wildcards(self) -> list[Pattern]:
        return [pattern for kind, pattern in self._patterns if kind is DestinationKind.TOPIC and pattern.is_wildcard]

    def _created(self, destination: Destination) -> None:
        if any([kind is destination.kind and pattern.matches(destination.name) for kind, pattern in self._patterns]):
            try:
                self._add(destination)
            except QuireError as error:  # it is this subscription's, not that of whoever makes the destination
                self._broker.after_commit(partial(self._fail, error))

    def _add(self, destination: Destination) -> None:
        if destination in self.children or destination in self._being_made:
            return
        self._being_made.add(destination)  # a queue that is made for its child is announced meanwhile
        try:
            self.children[destination] = self._make(destination, self)
        finally:
            self._being_made.discard(destination)

    def end(self, cause: str, *, lost: bool) -> None:
        """All children go.

        Args:
            cause: why.
            lost: whether they vanished without a word.
        """
        self._broker.destinations.created.remove(self._created)
        for pattern in self._topic_wildcards():
            self._broker.advisories.unwatch(pattern)
        for child in self.children.values():
            child.source.remove(child, cause, lost=lost)
        self.children.clear()
        self._in_flight.clear()
        self._waiting.clear()
