"""Subscriptions to more than one destination: wildcards (``/queue/orders.>``) and lists (``/queue/a,/topic/b``).

There is one child for each destination. To the client they are one subscription: one id, one prefetch for all of them,
and a cumulative acknowledgement covers what any of them was given before.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from quire.broker.stomp.stomp_destination import Address
from quire.broker.subscription import Subscription
from quire.destination import Destination, DestinationKind
from quire.destination_pattern import Pattern
from quire.errors import QuireError
from quire.message import Message

if TYPE_CHECKING:
    from quire.broker.broker import Broker


class ChildSubscription(Subscription):
    """One destination's part of a subscription to several. Its credit is that of the whole.

    Attributes:
        parent: the whole; set before the child is given anything.
    """

    __slots__ = ("parent",)

    parent: "WildcardSubscription"

    @property
    def credit(self) -> int:
        """How many messages it may be given now."""
        return self.parent.credit(self) if self.session.writable else 0

    def take(self, sequences: list[int]) -> list[Message]:
        """Take settled messages out of the in-flight table."""
        messages = super().take(sequences)
        self.parent.settled(self, messages)
        return messages


class WildcardSubscription:
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
        self.children: dict[Destination, ChildSubscription] = {}
        self._broker = broker
        self._patterns = [(address.kind, Pattern(address.name)) for address in addresses]
        self._prefetch = prefetch
        self._make = make
        self._fail = fail
        self._in_flight: dict[tuple[Subscription, int], None] = {}
        self._extended: dict[Subscription, None] = {}
        self._waiting: dict[Subscription, None] = {}

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
        if destination not in self.children:
            self.children[destination] = self._make(destination, self)

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

    # One credit for all of them.

    def credit(self, child: Subscription) -> int:
        """How many messages a child may be given now; if none, it is woken when there is credit again."""
        for other in [other for other in self._extended if not other.extended]:
            del self._extended[other]
        credit = self._prefetch - len(self._in_flight) + sum([len(other.extended) for other in self._extended])
        if credit > 0:
            self._waiting.pop(child, None)
        else:
            self._waiting.setdefault(child)
        return credit

    def given(self, child: Subscription, messages: list[Message]) -> None:
        """A child was given messages that it has to acknowledge."""
        self._in_flight.update([((child, message.sequence), None) for message in messages])

    def settled(self, child: Subscription, messages: list[Message]) -> None:
        """Messages of a child are settled: there is credit for those that wait for it, the longest waiting first."""
        for message in messages:
            self._in_flight.pop((child, message.sequence), None)
        self._wake()

    def extended(self, child: Subscription) -> None:
        """Messages of a child were acknowledged in a transaction: until it ends they take no credit."""
        self._extended[child] = None
        self._wake()

    def _wake(self) -> None:
        for child in self._waiting:
            child.source.wake()

    def up_to(self, child: Subscription, sequence: int) -> list[tuple[Subscription, list[int]]]:
        """What was given out up to and including a message, in that order, by child."""
        covered: dict[Subscription, list[int]] = {}
        for candidate, number in self._in_flight:
            covered.setdefault(candidate, []).append(number)
            if candidate is child and number == sequence:
                break
        return list(covered.items())
