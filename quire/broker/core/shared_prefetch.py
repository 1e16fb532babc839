"""One prefetch and one order of acknowledgement for several consumers that are one subscription to the client."""

from collections import OrderedDict
from collections.abc import Iterable, Mapping

from quire.broker.core.core import Core
from quire.broker.core.subscription import AckMode, Subscription
from quire.message import Message


class ChildSubscription(Subscription):
    """One source's part of a subscription to several. Its credit is that of the whole."""

    __slots__ = ("parent",)

    parent: "SharedPrefetch"

    @property
    def credit(self) -> int:
        return self.parent.credit(self)

    @property
    def waits_for_credit(self) -> bool:
        return self.parent.waits(self)

    def leave_now(self) -> None:
        self.parent.leave_now(self)

    def take(self, sequences: list[int]) -> list[Message]:
        messages = super().take(sequences)
        self.parent.settled(self, messages)
        return messages

    def extend(self, sequences: Iterable[int]) -> None:
        super().extend(sequences)
        self.parent.extended(self)

    def unextend(self, sequences: Iterable[int]) -> None:
        super().unextend(sequences)
        self.parent.extended(self)


class SharedPrefetch:
    """What the children of one subscription have in flight, all together.

    A child that finds no credit waits. When there is some again, children get it in the order they have waited: what is
    done for an acknowledgement does not grow with their number.
    """

    def __init__(self, core: Core, prefetch: int) -> None:
        self.prefetch = prefetch
        self.pulled = 0
        self._core = core
        self._in_flight: dict[tuple[Subscription, int], None] = {}
        self._extended: dict[Subscription, int] = {}
        self._extension = 0
        self._waiting: OrderedDict[Subscription, None] = OrderedDict()

    def credit(self, child: Subscription) -> int:
        """How many messages a child may be given now; if none, it is served when there is credit again."""
        credit = self._credit if child.session.writable else 0
        if credit <= 0:
            self._waiting.setdefault(child)
        return credit

    def waits(self, child: Subscription) -> bool:
        return child in self._waiting

    @property
    def _credit(self) -> int:
        if not self.prefetch:
            return self.pulled
        return self.prefetch + self._extension - len(self._in_flight)

    @property
    def given_out(self) -> Mapping[tuple[Subscription, int], None]:
        return self._in_flight

    def grant(self, count: int) -> None:
        self.pulled = count

    def given(self, child: Subscription, messages: list[Message]) -> None:
        """A child was given messages. They are in flight, unless they are done when they are written."""
        if child.ack is not AckMode.AUTO:
            self._in_flight.update([((child, message.sequence), None) for message in messages])
        if not self.prefetch:
            self.pulled = max(self.pulled - len(messages), 0)
        if self._credit <= 0:  # who was given the last of the credit may not ask for more
            self._waiting.setdefault(child)

    def settled(self, child: Subscription, messages: list[Message]) -> None:
        for message in messages:
            self._in_flight.pop((child, message.sequence), None)
        self._count_extension(child)
        self.wake()

    def extended(self, child: Subscription) -> None:
        self._count_extension(child)
        self.wake()

    def _count_extension(self, child: Subscription) -> None:
        if child.extended or child in self._extended:
            self._extension += len(child.extended) - self._extended.pop(child, 0)
            if child.extended:
                self._extended[child] = len(child.extended)

    def child_left(self, child: Subscription) -> None:
        self._waiting.pop(child, None)
        self._extension -= self._extended.pop(child, 0)
        child.extended.clear()  # a transaction that ends later does not count it again
        for key in [key for key in self._in_flight if key[0] is child]:
            del self._in_flight[key]
        self.wake()

    def leave_now(self, child: Subscription) -> None:
        """Children leave at once as it is."""

    def wake(self) -> None:
        if self._waiting:
            self._core.dispatch.credit(self)

    def serve_waiting(self) -> None:
        """While there is credit: let children have it that wait for it, the longest waiting first."""
        core = self._core
        for _ in range(len(self._waiting)):
            child = next(iter(self._waiting))
            if self._credit <= 0 or not child.session.writable:
                return
            if core.dispatch.is_over:
                self.wake()
                return
            del self._waiting[child]
            core.dispatch.serve(child.source)

    def up_to(self, child: Subscription, sequence: int) -> list[tuple[Subscription, list[int]]]:
        covered: dict[Subscription, list[int]] = {}
        for candidate, number in self._in_flight:
            covered.setdefault(candidate, []).append(number)
            if candidate is child and number == sequence:
                break
        return list(covered.items())
