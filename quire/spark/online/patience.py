"""Trying again what fails for a reason that may pass: the broker is away or restarts, or has no room."""

import time
from collections.abc import Callable
from typing import TypeVar

from quire.clock import Clock, SystemClock
from quire.errors import QuireError

BACK_OFF = 0.1
LONGEST_BACK_OFF = 2.0
"""How long the pauses between tries are, in seconds: the first one, and those from the sixth on."""

T = TypeVar("T")


class Patience:
    """The patience with one thing that is tried until it succeeds, or has failed for as long as an option says."""

    def __init__(self, seconds: float, option: str, clock: Clock | None = None) -> None:
        self._seconds = seconds
        self._option = option
        self._clock = clock or SystemClock()
        self._failures = 0
        self._failing_since = 0.0
        self._pause = BACK_OFF

    def tried(self, attempt: Callable[[], T]) -> T:
        """Do it, again and again if need be."""
        while True:
            try:
                return attempt()
            except QuireError as error:
                self.pause_after(error)

    def succeeded(self) -> None:
        """A part of it is done: what fails from now on may do so for as long again."""
        self._failures = 0

    def pause_after(self, error: QuireError) -> None:
        """Wait a while, or raise the error if it is not retriable or went on for too long."""
        if not error.entry.retriable:
            raise error
        now = self._clock.monotonic()
        if not self._failures:
            self._failing_since, self._pause = now, BACK_OFF
        self._failures += 1
        if now + self._pause > self._failing_since + self._seconds:
            text = f"{error}, after {self._failures} tries in {self._seconds:g} s ({self._option})"
            raise type(error)(text, **error.data) from error
        time.sleep(self._pause)
        self._pause = min(2 * self._pause, LONGEST_BACK_OFF)
