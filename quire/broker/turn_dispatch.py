"""The part of a turn that gives out messages: bounded in time, and what is left is first in the next turn."""

import logging
import math
from typing import TYPE_CHECKING

from quire.broker.subscription import Dispatching
from quire.errors import StoreError
from quire.logs import event

if TYPE_CHECKING:
    from quire.broker.broker import Broker

BUDGET = 0.01
"""How long the queues that are ready may take in a turn, in seconds; what has begun ends."""

WAITERS_BUDGET = 0.005
"""How long those may take that waited for memory, or for credit, in seconds."""


class TurnDispatch:
    """Dispatch, a turn at a time.

    Args:
        broker: the broker; it knows who is ready.
    """

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._ends = math.inf

    @property
    def is_over(self) -> bool:
        """Whether the time is up that what runs now has in this turn."""
        return self._broker.clock.monotonic() >= self._ends

    def relieve(self) -> None:
        """While a cursor waits for memory: queues without consumers give theirs up (rule 8)."""
        broker = self._broker
        while broker.idle_residents and broker.memory.is_waited_for:
            queue, _ = broker.idle_residents.popitem(last=False)
            try:
                if queue.give_up_memory():
                    return
            except StoreError as error:
                event("spool.failed", f"an idle queue keeps its memory: {error}", logging.WARNING, code=error.code)

    def wake_refused(self) -> None:
        """Let those that found no memory try again."""
        broker = self._broker
        self._begin(WAITERS_BUDGET)
        if broker.memory.wake(lambda: self.is_over):
            broker.ask_turn()
        self._ends = math.inf
        broker.meter.part("what waited for memory")

    def run(self) -> None:
        """Give out messages: first to those that found no memory, then for new credit, then what queues have ready."""
        broker = self._broker
        if broker.memory.is_waited_for:
            self.relieve()
            self.wake_refused()  # first, or a busy queue would take what a waiting one was promised
        if broker.with_credit:
            self._serve_credit()
        if broker.ready:
            self._serve_ready()
        if broker.ready or broker.with_credit:
            broker.ask_turn()

    def _serve_credit(self) -> None:
        broker = self._broker
        self._begin(WAITERS_BUDGET)
        wholes, broker.with_credit = list(broker.with_credit), {}
        for number, whole in enumerate(wholes):
            if number and self.is_over:
                broker.with_credit = {**dict.fromkeys(wholes[number:]), **broker.with_credit}
                break
            whole.serve_waiting()
        self._ends = math.inf

    def _serve_ready(self) -> None:
        broker = self._broker
        self._begin(BUDGET)
        ready, broker.ready = list(broker.ready), {}
        for number, queue in enumerate(ready):
            if number and self.is_over:
                broker.ready = {**dict.fromkeys(ready[number:]), **broker.ready}
                break
            self.serve(queue)
        self._ends = math.inf

    def _begin(self, seconds: float) -> None:
        self._ends = self._broker.meter.latest + seconds

    def serve(self, queue: Dispatching) -> None:
        """Have a queue give out what it can now; from now on consumers are looked for there that do not keep up."""
        self._broker.watched[queue] = None
        queue.dispatch()
        self._broker.meter.part("dispatch of", queue.destination)
