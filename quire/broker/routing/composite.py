"""Sends that go to several destinations at once: all copies are in the same commit, or none is."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from quire.broker.core.services import Target
from quire.broker.dead_letter import ORIGIN
from quire.message import Message, with_headers
from quire.selectors import Selector


class FanOut(ABC):
    """A target that stands for several; what it passes on becomes durable together, for it is in one commit."""

    @abstractmethod
    def targets(self) -> "Sequence[Target]":
        """All targets that a message may go to."""

    @abstractmethod
    def copies(
        self, content: bytes, expiration: int, priority: int, persistent: bool
    ) -> "Iterator[tuple[Target, bytes]]":
        """Where a message goes, and with which content."""

    def send(self, content: bytes, expiration: int = 0, priority: int = 4, persistent: bool = True) -> None:
        """Take a message, as ``Target``."""
        for target, copy in self.copies(content, expiration, priority, persistent):
            target.send(copy, expiration, priority, persistent)

    def transfer(self, content: bytes, expiration: int = 0, priority: int = 4, persistent: bool = True) -> None:
        """Take a message that is given up elsewhere, as ``Target``."""
        for target, copy in self.copies(content, expiration, priority, persistent):
            target.transfer(copy, expiration, priority, persistent)

    def expect_groups(self) -> None:
        """Messages of groups are about to be sent here."""
        for target in self.targets():
            target.expect_groups()


class CompositeTarget(FanOut):
    """A composite destination that a client wrote: ``/queue/a,/topic/b``.

    Args:
        origin: the destination as the client wrote it: a header of each copy, as in ActiveMQ.
    """

    def __init__(self, targets: "Sequence[Target]", origin: str) -> None:
        self._targets = targets
        self._origin = {ORIGIN: origin}

    def targets(self) -> "Sequence[Target]":
        """Its parts."""
        return self._targets

    def copies(
        self, content: bytes, expiration: int, priority: int, persistent: bool
    ) -> "Iterator[tuple[Target, bytes]]":
        """A copy goes to every part."""
        copy = with_headers(content, self._origin)
        return ((target, copy) for target in self._targets)


class ForwardTarget(NamedTuple):
    """One place to which a configured composite forwards.

    Attributes:
        target: the place.
        selector: which messages go there; None for all.
    """

    target: "Target"
    selector: Selector | None


class ForwardingTarget(FanOut):
    """A composite destination of the settings (``[[composites]]``). What it forwards says where it was sent to.

    Args:
        own: the destination itself; None if it only forwards.
    """

    def __init__(self, own: "Target | None", forwards: Sequence[ForwardTarget], origin: str) -> None:
        self._own = own
        self._forwards = forwards
        self._origin = {ORIGIN: origin}

    def targets(self) -> "Sequence[Target]":
        """The destination itself, if messages stay in it, and those it forwards to."""
        own = [self._own] if self._own is not None else []
        return [*own, *[forward.target for forward in self._forwards]]

    def copies(
        self, content: bytes, expiration: int, priority: int, persistent: bool
    ) -> "Iterator[tuple[Target, bytes]]":
        """The message goes to the destination itself, and a copy to each place whose selector matches."""
        if self._own is not None:
            yield self._own, content
        message = Message(0, content, expiration, priority, persistent)
        matching = [target for target, selector in self._forwards if selector is None or selector.matches(message)]
        if matching:
            copy = with_headers(content, self._origin)
            for target in matching:
                yield target, copy
