"""Rolls back transactions that are open for too long: they keep messages from other consumers."""

import logging
from typing import Protocol

from quire.broker.core.core import Core
from quire.logs import event


class Timed(Protocol):
    """What has a limit of time."""

    def time_out(self) -> None:
        """The time is up."""


class TransactionTimeouts:
    """The open transactions in the order they began, and one timer for the oldest.

    A timer for each would stay in the scheduler's heap long after its transaction ended.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._max_age = core.settings.transaction.max_age
        self._deadlines: dict[Timed, float] = {}
        self._is_armed = False

    def add(self, transaction: Timed) -> None:
        """A transaction begins."""
        if self._max_age:
            self._deadlines[transaction] = self._core.clock.monotonic() + self._max_age
            self._arm()

    def discard(self, transaction: Timed) -> None:
        """A transaction is over, or prepared. It need not be here."""
        self._deadlines.pop(transaction, None)

    def _arm(self) -> None:
        if self._deadlines and not self._is_armed:
            self._is_armed = True
            delay = next(iter(self._deadlines.values())) - self._core.clock.monotonic()
            self._core.scheduler.call_later(delay, self._look)

    def _look(self) -> None:
        self._is_armed = False
        now = self._core.clock.monotonic()
        late = [transaction for transaction, deadline in self._deadlines.items() if deadline <= now]
        for transaction in late:
            transaction.time_out()
        if late:
            text = (
                f"{len(late)} transactions were open for more than {self._max_age:g} s, and the broker rolls them back"
            )
            event("transaction.timed_out", text, logging.WARNING, transactions=len(late), seconds=self._max_age)
        self._arm()
