"""Producer flow control: who is held, why, since when, and how long at the most.

A held producer's input waits: its session keeps what it has read and reads no more from the socket. Other connections
go on, so consumers can make the room the producer waits for. Every wait has a cause, an age and a limit.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from quire.broker.core.subscription import Session
from quire.clock import Clock
from quire.errors import ProducerHeld
from quire.logs import event
from quire.scheduler import Scheduler, Timer


class HoldCause(StrEnum):
    """Which limit a producer is over."""

    STORE = "store-limit"
    SPOOL = "spool-limit"
    STORE_DISK = "store-disk-limit"
    SPOOL_DISK = "spool-disk-limit"


@dataclass(slots=True)
class Hold:
    """One held producer.

    Attributes:
        session: who.
        cause: which limit.
        destination: where it wants to send.
        since: on the monotonic clock, in seconds.
        timer: ends the wait with an error.
    """

    session: Session
    cause: HoldCause
    destination: str
    since: float
    timer: Timer


class ProducerFlow:
    """The held producers.

    Args:
        limit: seconds a producer may be held.
        over: says whether a limit is exceeded now.
    """

    def __init__(self, clock: Clock, scheduler: Scheduler, limit: float, over: Callable[[HoldCause], bool]) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self._limit = limit
        self._over = over
        self.holds: dict[Session, Hold] = {}
        self.held_total = 0

    def hold(self, session: Session, cause: HoldCause, destination: str) -> None:
        """Hold a producer until there is room, or until its time is up."""
        self.held_total += 1
        timer = self._scheduler.call_later(self._limit, lambda: self._give_up(session))
        self.holds[session] = Hold(session, cause, destination, self._clock.monotonic(), timer)

    def forget(self, session: Session) -> None:
        """The session is gone."""
        if hold := self.holds.pop(session, None):
            hold.timer.cancel()

    def release(self) -> None:
        """Let producers go on whose limit is not exceeded any more, in the order they were held. Called once a turn."""
        for hold in list(self.holds.values()):
            if not self._over(hold.cause):
                self.forget(hold.session)
                hold.session.resume()

    def _give_up(self, session: Session) -> None:
        hold = self.holds.pop(session)
        text = f"no room to send to {hold.destination} for {self._limit:g} s: {hold.cause}"
        facts = {"cause": str(hold.cause), "destination": hold.destination}
        event("producer.refused", text, logging.WARNING, **facts)
        session.fail(ProducerHeld(text, **facts))
