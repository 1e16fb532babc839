"""Subscriptions to more than one destination: wildcards (``/queue/orders.>``) and lists (``/queue/a,/topic/b``).

There is one child for each destination. To the client they are one subscription: one id, one prefetch for all of them,
and a cumulative acknowledgement covers what any of them was given before.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice

from quire.broker.core.core import Core
from quire.broker.core.shared_prefetch import ChildSubscription, SharedPrefetch
from quire.broker.core.subscription import Subscription
from quire.broker.destinations import Destinations
from quire.broker.queues.queue import LaneDispatch
from quire.broker.routing.addresses import Address
from quire.destination import Destination, DestinationKind
from quire.destination_pattern import Pattern
from quire.errors import QuireError, StoreError

STEP = 100
"""How many destinations come to a subscription, or leave it, at once."""

LOOK = 2000
"""How many destinations are looked at at once whether they match."""


class WildcardSubscription(SharedPrefetch):
    """A subscription to all destinations that match patterns, those that come later too.

    Its children come and go in steps: there may be ten thousand of them.

    Args:
        addresses: the patterns; a name without wildcards is one destination, which is made if it is not there.
        fail: told of an error when a child cannot be made later.
        allows: whether it may have a destination that a pattern matches.
    """

    def __init__(
        self, core: Core, destinations: Destinations, addresses: Sequence[Address], prefetch: int,
        make: "Callable[[Destination, WildcardSubscription], ChildSubscription]", fail: Callable[[QuireError], None],
        allows: Callable[[Destination], bool],
    ) -> None:  # fmt: skip
        super().__init__(core, prefetch)
        self._destinations = destinations
        self.children: dict[Destination, ChildSubscription] = {}
        self._being_made: set[Destination] = set()
        self._patterns = [(address.kind, Pattern(address.name)) for address in addresses]
        self._make = make
        self._fail = fail
        self._allows = allows
        self._coming: Iterator[Destination | None] | None = None
        self._tell_started: Callable[[], None] = lambda: None
        self._leaving: dict[ChildSubscription, bool] = {}
        self._is_over = False
        self._cause = ""
        self._end_child: Callable[[ChildSubscription], None]

    # Destinations come.

    def start(self) -> None:
        """Subscribe to all that match, in steps. If a child cannot be made, ``end`` ends those that were."""
        for pattern in self._topic_wildcards():
            self._core.advisories.watch(pattern)
        if any([pattern.is_wildcard for _, pattern in self._patterns]):
            self._destinations.watch(self, self._created)
        self._coming = self._matching()
        if self._come():
            self._core.steps.add(self._come_on, "a subscription to many destinations", stores=False)

    def when_started(self, call: Callable[[], None]) -> bool:
        if self._coming is None:
            return False
        self._tell_started = call
        return True

    def look_again(self) -> None:
        """It may have other destinations now: subscribe to those that it has not."""
        is_coming, self._coming = self._coming is not None, self._matching()
        if not is_coming:
            self._core.steps.add(self._come_on, "a subscription to many destinations", stores=False)

    def _topic_wildcards(self) -> list[Pattern]:
        return [pattern for kind, pattern in self._patterns if kind is DestinationKind.TOPIC and pattern.is_wildcard]

    def _matching(self) -> "Iterator[Destination | None]":
        destinations = self._destinations
        for kind, pattern in self._patterns:
            if not pattern.is_wildcard:
                yield Destination(kind, pattern.text)
                continue
            named: Mapping[str, object] = destinations.queues if kind is DestinationKind.QUEUE else destinations.topics
            for name in list(named):
                there = pattern.matches(name) and name in named
                yield found if there and self._allows(found := Destination(kind, name)) else None

    def _come(self) -> bool:
        assert self._coming is not None
        before = len(self.children)
        for destination in islice(self._coming, LOOK):
            if destination is not None:
                self._add(destination)
                if len(self.children) - before >= STEP:
                    return True
        if next(self._coming, self) is self:
            self._coming = None
        return self._coming is not None

    def _come_on(self) -> bool:
        try:
            if not self._is_over and self._come():
                return True
        except StoreError:
            raise
        except QuireError as error:
            self._fail(error)
        else:
            tell, self._tell_started = self._tell_started, lambda: None
            tell()
        return False

    def _created(self, destination: Destination) -> None:
        wanted = [kind is destination.kind and pattern.matches(destination.name) for kind, pattern in self._patterns]
        if any(wanted) and self._allows(destination):
            try:
                self._add(destination)
            except QuireError as error:  # it is this subscription's, not of the client that creates the destination
                self._core.after_commit(partial(self._fail, error))

    def _add(self, destination: Destination) -> None:
        if destination in self.children or destination in self._being_made:
            return
        self._being_made.add(destination)  # a queue that is made for its child is announced meanwhile
        try:
            self.children[destination] = self._make(destination, self)
        finally:
            self._being_made.discard(destination)

    # They go.

    def credit(self, child: Subscription) -> int:
        return 0 if self._is_over else super().credit(child)

    def end(self, cause: str, gone: Callable[[ChildSubscription], None], *, lost: bool) -> None:
        """All children go, in steps; from now on none is given anything.

        What they had comes back before anything later is given out: until then their queues give out nothing.
        """
        self._is_over = True
        self._cause = cause
        self._end_child = partial(self._end_one, cause, gone, lost=lost)
        self._destinations.watch(self, None)
        for pattern in self._topic_wildcards():
            self._core.advisories.unwatch(pattern)
        for child in self.children.values():
            source, holds = child.source, bool(child.in_flight)
            self._leaving[child] = holds
            if holds and isinstance(source, LaneDispatch):
                source.awaited += 1
        self.children.clear()
        self._in_flight.clear()
        self._waiting.clear()
        if not self._leaving:
            return  # no step would say that it has left
        self._core.departs(self)
        if self._go():
            self._core.steps.add(self._go, "the end of a subscription to many destinations", stores=False)

    def _go(self) -> bool:
        for child in list(islice(self._leaving, STEP)):
            if isinstance(child.source, LaneDispatch) and child.source.return_some(child, self._cause):
                return True
            self.leave_now(child)
        return bool(self._leaving)

    def finish(self) -> None:
        while self._go():
            pass

    def leave_now(self, child: Subscription) -> None:
        if isinstance(child, ChildSubscription) and (holds := self._leaving.pop(child, None)) is not None:
            if holds and isinstance(child.source, LaneDispatch):
                child.source.awaited -= 1
            self._end_child(child)
            if not self._leaving:
                self._core.departed(self)

    def _end_one(
        self, cause: str, gone: Callable[[ChildSubscription], None], child: ChildSubscription, *, lost: bool
    ) -> None:
        child.source.remove(child, cause, lost=lost)
        gone(child)
