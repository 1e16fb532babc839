"""The end of a consumer of a queue: what it has in flight comes back in steps, and then it is gone."""

from collections.abc import Callable

from quire.broker.core.core import Core
from quire.broker.core.subscription import Subscription
from quire.broker.queues.lane_dispatch import LaneDispatch


class Departure:
    """The end of one consumer. Until it is gone its queue gives out nothing: what comes back comes before later ones.

    Args:
        gone: called when it is gone.
        lost: whether it vanished without a word.
    """

    def __init__(
        self, core: Core, queue: LaneDispatch, subscription: Subscription, cause: str, gone: Callable[[], None], *,
        lost: bool,
    ) -> None:  # fmt: skip
        self._core = core
        self._queue = queue
        self._subscription = subscription
        self._cause = cause
        self._gone = gone
        self._lost = lost
        self._is_over = False

    def begin(self) -> None:
        """Take the first step, and the others in later turns if there are any."""
        self._queue.awaited += 1
        self._core.departs(self)
        self._subscription.departure = self
        if self._step():
            self._core.steps.add(self._step, "the end of a consumer", stores=False)

    def _step(self) -> bool:
        if self._is_over:
            return False
        if self._queue.return_some(self._subscription, self._cause):
            return True
        self._is_over = True
        self._core.departed(self)
        self._queue.awaited -= 1
        self._queue.remove(self._subscription, self._cause, lost=self._lost)
        self._gone()
        return False

    def finish(self) -> None:
        """It is gone at once."""
        while self._step():
            pass
