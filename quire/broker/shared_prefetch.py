"""One prefetch and one order of acknowledgement for several consumers that are one subscription to the client."""

from typing import Protocol

from quire.broker.subscription import Subscription
from quire.message import Message


class Whole(Protocol):
    """What a child is a part of."""

    def credit(self, child: Subscription) -> int:
        """How many messages a child may be given now."""
        ...

    def given(self, child: Subscription, messages: list[Message]) -> None:
        """A child was given messages that it has to acknowledge."""
        ...

    def settled(self, child: Subscription, messages: list[Message]) -> None:
        """Messages of a child are settled."""
        ...

    def extended(self, child: Subscription) -> None:
        """Messages of a child were acknowledged in a transaction."""
        ...

    def up_to(self, child: Subscription, sequence: int) -> list[tuple[Subscription, list[int]]]:
        """What was given out up to and including a message, in that order, by child."""
        ...


class ChildSubscription(Subscription):
    """One source's part of a subscription to several. Its credit is that of the whole.

    Attributes:
        parent: the whole; set before the child is given anything.
    """

    __slots__ = ("parent",)

    parent: Whole

    @property
    def credit(self) -> int:
        """How many messages it may be given now."""
        return self.parent.credit(self) if self.session.writable else 0

    def take(self, sequences: list[int]) -> list[Message]:
        """Take settled messages out of the in-flight table."""
        messages = super().take(sequences)
        self.parent.settled(self, messages)
        return messages


class SharedPrefetch:
    """What the children of one subscription have in flight, all together.

    Args:
        prefetch: how many messages they may have.

    Attributes:
        prefetch: as given.
    """

    def __init__(self, prefetch: int) -> None:
        self.prefetch = prefetch
        self._in_flight: dict[tuple[Subscription, int], None] = {}
        self._extended: dict[Subscription, None] = {}
        self._waiting: dict[Subscription, None] = {}

    def credit(self, child: Subscription) -> int:
        """How many messages a child may be given now; if none, it is woken when there is credit again."""
        credit = self.prefetch - len(self._in_flight)
        if self._extended:
            for other in [other for other in self._extended if not other.extended]:
                del self._extended[other]
            credit += sum([len(other.extended) for other in self._extended])
        if credit > 0:
            self._waiting.pop(child, None)
        else:
            self._waiting.setdefault(child)
        return credit

    def given(self, child: Subscription, messages: list[Message]) -> None:
        """A child was given messages that it has to acknowledge."""
        self._in_flight.update([((child, message.sequence), None) for message in messages])
        if len(self._in_flight) >= self.prefetch:  # who was given the last of the credit may not ask for more
            self._waiting.setdefault(child)

    def settled(self, child: Subscription, messages: list[Message]) -> None:
        """Messages of a child are settled: there is credit for those that wait for it, the longest waiting first."""
        for message in messages:
            self._in_flight.pop((child, message.sequence), None)
        self._wake()

    def extended(self, child: Subscription) -> None:
        """Messages of a child were acknowledged in a transaction: until it ends they take no credit."""
        self._extended[child] = None
        self._wake()

    def child_left(self, child: Subscription) -> None:
        """A child is there no more: what it had in flight is not in flight any more."""
        self._waiting.pop(child, None)
        self._extended.pop(child, None)
        for key in [key for key in self._in_flight if key[0] is child]:
            del self._in_flight[key]
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
