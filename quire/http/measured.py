"""Measures what a request takes of the event loop: each stretch of its coroutine between two waits is a turn."""

from collections.abc import Coroutine, Generator
from typing import Any

from quire.broker.core.turn import TurnMeter


class Measured:
    """A coroutine that is driven step by step, and each step is measured."""

    def __init__(self, coroutine: Coroutine[Any, Any, None], meter: TurnMeter, what: str) -> None:
        self._coroutine = coroutine
        self._meter = meter
        self._what = what

    def __await__(self) -> Generator[Any, Any, None]:
        """Await it."""
        step, argument = self._coroutine.send, None
        while True:
            self._meter.begin()
            try:
                waits_for = step(argument)
            except StopIteration:
                return
            finally:
                self._meter.end("request", self._what)
            try:
                argument = yield waits_for
                step = self._coroutine.send
            except BaseException as error:  # a cancellation, say: the coroutine's matter
                step, argument = self._coroutine.throw, error
