"""Messages that others than consumers take out of where they wait: expiry, purge, move, transactions."""

from collections.abc import Callable
from typing import Protocol

from quire.broker.core.destination_ledger import DestinationLedger
from quire.broker.queues.dispatched import Dispatched
from quire.message import Message


class Withdrawn(Dispatched, Protocol):
    """A queue that messages are taken out of.

    Attributes:
        ledger: where events of its messages are noted; None if its policy does not ask for it.
        dequeued: how many messages were acknowledged.
    """

    ledger: DestinationLedger | None
    dequeued: int

    def settle(self, messages: list[Message]) -> None:
        """Messages are done with: they are gone when the open commit is done."""


class Withdrawal:
    """The withdrawal from one queue. No cursor moves.

    Args:
        put_back: has hidden messages wait again.
        refuse: is told how many messages were to be hidden, where none may be; None where they may.
    """

    __slots__ = ("_put_back", "_queue", "_refuse")

    def __init__(
        self, queue: Withdrawn, put_back: Callable[[list[Message]], None], refuse: Callable[[int], None] | None
    ) -> None:
        self._queue = queue
        self._put_back = put_back
        self._refuse = refuse

    def take_out(self, sequences: list[int]) -> list[int]:
        """Begin to remove messages; those of them that are not in flight, and not being removed."""
        free = self._discard(sequences)
        if free:
            self._queue.commits.exclude(free)
        return free

    def removed(self, messages: list[Message], *, by_operator: bool = False) -> None:
        """Remove messages that ``take_out`` gave, whose memory is released or was never reserved.

        Args:
            by_operator: whether an operator or the retention removes them; if not, the caller says what became of them.
        """
        if by_operator and self._queue.ledger is not None:
            self._queue.ledger.removed(messages)
        self._queue.settle(messages)

    def hide(self, sequences: list[int]) -> list[int]:
        """Take messages out of where they wait until they are shown, or settled. They take no memory.

        Returns:
            Those of them that are not in flight, and not being removed.
        """
        if self._refuse is not None:
            self._refuse(len(sequences))
            return []
        return self._discard(sequences)

    def settle_hidden(self, messages: list[Message]) -> None:
        """Hidden messages are acknowledged."""
        if messages:
            queue = self._queue
            queue.dequeued += len(messages)
            if queue.ledger is not None:
                queue.ledger.acknowledged(messages)
            queue.commits.exclude([message.sequence for message in messages])
            queue.settle(messages)

    def show(self, messages: list[Message]) -> None:
        """Hidden messages wait again: those without contents where the store has them."""
        self._put_back(messages)
        self._queue.wake()

    def _discard(self, sequences: list[int]) -> list[int]:
        free = self._queue.locator.free_of(sequences)
        if free:
            for lane in self._queue.lanes:
                lane.discard(set(free))
        return free
