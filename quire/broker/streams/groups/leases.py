"""Leases: how long a member of a consumer group may have a message. Exact to a tick, whatever the timeout.

A wheel of ticks says when to look at which consumer. It holds consumers and not messages: each message in flight knows
its own deadline, and a look goes over what its consumer has in flight. So a lease costs nothing but that number, and
nothing is left of it when the message is acknowledged.
"""

import math
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from quire.clock import Clock
from quire.message import Message
from quire.scheduler import Scheduler, Timer

TICK = 0.1
"""How fine deadlines are told apart, in seconds; a lease never ends early."""

NEVER = 1 << 62
"""The tick of a consumer that is not planned to be looked at."""


class Leased(Protocol):
    """A consumer with leases.

    Attributes:
        in_flight: what it has, by sequence.
        looked_at: the tick at which its leases are looked at next.
    """

    in_flight: dict[int, Message]
    looked_at: int

    @property
    def in_transaction(self) -> set[int]:
        """Those of them that are acknowledged in an open transaction."""


Consumer = TypeVar("Consumer", bound=Leased)


class Leases(Generic[Consumer]):
    """The leases of all groups of a broker."""

    def __init__(self, clock: Clock, scheduler: Scheduler, expired: Callable[[Consumer, list[Message]], None]) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self._expired = expired
        self._ticks: dict[int, dict[Consumer, None]] = {}
        self._next = NEVER
        self._timer: Timer | None = None

    def watch(self, consumer: Consumer, deadline: float) -> None:
        """Look at a consumer when a message of it is due, if that is not planned for then or earlier."""
        tick = math.ceil(deadline / TICK)
        tick += tick * TICK < deadline  # the quotient was rounded down
        if consumer.looked_at <= tick:
            return
        self._forget(consumer)
        consumer.looked_at = tick
        self._ticks.setdefault(tick, {})[consumer] = None
        if tick < self._next:
            self._plan(tick)

    def forget(self, consumer: Consumer) -> None:
        """A consumer goes."""
        self._forget(consumer)
        consumer.looked_at = NEVER

    def _forget(self, consumer: Consumer) -> None:
        planned = self._ticks.get(int(consumer.looked_at)) if consumer.looked_at < NEVER else None
        if planned is not None:
            planned.pop(consumer, None)
            if not planned:
                del self._ticks[int(consumer.looked_at)]

    def _plan(self, tick: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._next = tick
        self._timer = self._scheduler.call_later(max(tick * TICK - self._clock.monotonic(), 0.0), self._look)

    def _look(self) -> None:
        """The time of a tick has come. Whatever becomes of one consumer, the others are looked at."""
        now, self._next = self._clock.monotonic(), NEVER
        try:
            for tick in sorted([tick for tick in self._ticks if tick * TICK <= now]):
                for consumer in list(self._ticks.get(tick, ())):
                    self.forget(consumer)
                    self._look_at(consumer, now)
        finally:
            earliest = min(self._ticks, default=NEVER)
            if earliest < self._next:
                self._plan(earliest)

    def _look_at(self, consumer: Consumer, now: float) -> None:
        late = [message for message in consumer.in_flight.values() if message.deadline <= now]
        if held := consumer.in_transaction:  # an open transaction has a time limit of its own
            for message in [message for message in late if message.sequence in held]:
                message.deadline = now + 1.0
            late = [message for message in late if message.sequence not in held]
        if late:
            self._expired(consumer, late)
        earliest = min([message.deadline for message in consumer.in_flight.values()], default=None)
        if earliest is not None:
            self.watch(consumer, earliest)
