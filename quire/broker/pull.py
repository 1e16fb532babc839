"""A consumer without prefetch asks for messages (JMS ``receive`` and ``receiveNoWait``)."""

from collections.abc import Callable
from typing import Protocol

from quire.broker.core.core import Core
from quire.errors import InvalidArgument
from quire.scheduler import Timer

LOOKS = 2
"""How many commits a pull that does not wait sees through: before it is given anything, a consumer that has just come
may need one that settles what others gave back, and then one that stores the dispatch mark."""


class Puller(Protocol):
    prefetch: int
    pulled: int

    def grant(self, count: int) -> None: ...

    @property
    def id(self) -> str: ...

    def wake(self) -> None: ...

    def look(self) -> None: ...


class Pull:
    """A pull of one consumer.

    Its session cancels it when the consumer leaves or pulls again.

    Args:
        timeout_ms: how long it waits, in milliseconds; 0 for ever, -1 not at all. What has not come when the time is
            up does not come any more.
        ended: told once when it is over, with how many have not come.
    """

    def __init__(
        self, core: Core, puller: Puller, quantity: int, timeout_ms: int, ended: Callable[[int], None]
    ) -> None:  # fmt: skip
        if puller.prefetch:
            raise InvalidArgument(f"{puller.id!r} has a prefetch and cannot pull", argument="prefetch")
        if quantity < 1:
            raise InvalidArgument(f"{quantity} messages cannot be pulled: request at least one", argument="quantity")
        if timeout_ms < -1:
            raise InvalidArgument(f"a timeout of {timeout_ms} ms: -1 not to wait, 0 for ever", argument="timeout")
        self._core = core
        self._puller = puller
        self._wanted = quantity
        puller.grant(quantity)
        self._looks = 0
        self._ended: Callable[[int], None] | None = ended
        self._timer: Timer | None = None
        if timeout_ms > 0:
            self._timer = core.scheduler.call_later(timeout_ms / 1000, self._end)
        elif timeout_ms < 0:
            core.after_commit(self._look_soon)
        puller.wake()

    def cancel(self) -> None:
        """It is to bring nothing more, and to say nothing."""
        if self._ended is not None:
            self._ended = None
            self._puller.grant(0)
        if self._timer is not None:
            self._timer.cancel()

    def came(self) -> None:
        if self._puller.pulled <= 0:
            self._tell()

    def _look_soon(self) -> None:
        """A commit is done: see in this turn whether there is anything now. While commits fail, there is not."""
        core = self._core
        if core.store_error is not None:
            self._tell()
        else:
            core.steps.add(self._look, f"a pull for {self._puller.id}")

    def _look(self) -> bool:
        """Is there anything? If not it is looked at again after the next commit; this step is done."""
        if self._ended is not None:
            self._looks += 1
            self._puller.look()
            if self._looks < LOOKS and self._puller.pulled == self._wanted:
                self._core.after_commit(self._look_soon)
            else:
                self._tell()
        return False

    def _end(self) -> None:
        self._puller.look()
        self._tell()

    def _tell(self) -> None:
        ended, left = self._ended, self._puller.pulled
        if ended is not None:
            self.cancel()
            ended(left)
