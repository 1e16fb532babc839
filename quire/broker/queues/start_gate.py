"""A queue may wait for a number of consumers, or for a time, before it delivers to the first of them."""

from collections.abc import Callable

from quire.clock import Clock
from quire.scheduler import Scheduler, Timer
from quire.settings.policy import Policy

DEFAULT_WAIT = 1.0
"""How long a queue waits that is to wait for a number of consumers and was given no time, in seconds (ActiveMQ's)."""


class StartGate:
    """Opens when enough consumers are there or the time is up; closes when all are gone.

    Args:
        opened: called when the time is up.

    Attributes:
        since: when the first consumer came, on the monotonic clock; None while no consumer waits.
    """

    __slots__ = ("_clock", "_is_open", "_opened", "_scheduler", "_timer", "since")

    def __init__(self, clock: Clock, scheduler: Scheduler, opened: Callable[[], None]) -> None:
        self.since: float | None = None
        self._clock = clock
        self._scheduler = scheduler
        self._opened = opened
        self._is_open = False
        self._timer: Timer | None = None

    def consumer_came(self, policy: Policy, consumers: int) -> None:
        """A consumer came; there are so many now."""
        wanted, seconds = policy.consumers_before_dispatch_starts, policy.time_before_dispatch_starts
        if self._is_open:
            return
        if (wanted and consumers >= wanted) or not (wanted or seconds):
            self._open()
        elif self.since is None:
            self.since = self._clock.monotonic()
            self._timer = self._scheduler.call_later(seconds or DEFAULT_WAIT, self._time_is_up)

    def all_gone(self) -> None:
        """The last consumer is gone."""
        self._open()
        self._is_open = False

    @property
    def is_closed(self) -> bool:
        """Whether the queue has consumers and waits all the same."""
        return self.since is not None

    def _open(self) -> None:
        self._is_open = True
        self.since = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _time_is_up(self) -> None:
        self._open()
        self._opened()
