"""The scenario of the wakeups: thousands of queues with a message a second each, beside as many idle consumers."""

import statistics
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass

from quire.cli.perf.findings import Finding, at_most
from quire.cli.perf.link import Link
from quire.cli.perf.live import LiveFigures
from quire.cli.perf.own_broker import MemoryWatch, OwnBroker
from quire.cli.perf.subscriptions import Subscriptions
from quire.cli.perf.workers import Pace
from quire.clock import SystemClock

SIZE = 1024
"""Of a body, in bytes."""
ROUNDS = 3
"""How often each load is measured, in turn: machines are not equally fast at all times."""
SETTLING = 0.5
"""How long nothing happens before the broker at rest is measured, in seconds."""
MAX_IDLE_CORES = 0.05
"""How much of a processor the broker may take while no message moves."""
MAX_HALF_TO_FULL = 0.65
"""How much it may take at half the rate, as a share of what it takes at the full rate."""
MAX_WITH_TO_WITHOUT_IDLE = 1.15
"""How much it may take with the idle consumers, as a share of what it takes without them."""
MAX_START = 2.0
"""How long a restart after a kill may take until a client is connected, in seconds."""

_BUSY, _IDLE = "perf.busy", "perf.idle"
_TICK = 0.01
_SILENCE = 10.0


@dataclass
class Wakeups:
    """One run.

    Args:
        broker: a running broker of its own.
        queues: how many are busy, and how many idle ones come on top.
        persistent: whether messages are stored.
        seconds: how long a measurement takes.
        live: shows how far it is.
    """

    broker: OwnBroker
    queues: int
    persistent: bool
    seconds: float
    live: LiveFigures

    def run(self) -> list[Finding]:
        """Measure the broker's processor time under each load, and its restart.

        Raises:
            QuireError: the broker failed.
        """
        self._clock = SystemClock()
        self._watch = MemoryWatch(self.broker)
        self._done, self._missing, self._twice = 0, 0, 0
        # How many had come when the last one was sent, as a share of each load: whether it keeps up.
        self._in_time: list[float] = []
        head = f"content-length:{SIZE}\npersistent:{'true' if self.persistent else 'false'}\n\n"
        body = "x" * SIZE
        self._frames = [
            f"SEND\ndestination:/queue/{_BUSY}.{number}\n{head}{body}\0".encode() for number in range(self.queues)
        ]
        with Subscriptions(self.broker.target, _BUSY, self.queues):
            self.live.show(f"{self.queues} queues are there", 0)
        start = self._restart()
        with Subscriptions(self.broker.target, _BUSY, self.queues) as busy:
            idle, alone, full, half = self._measure(busy)
        start_twice = self._restart()
        return [
            Finding("busy_queues", self.queues),
            Finding("idle_consumers", self.queues),
            at_most("idle_cores", round(idle, 4), MAX_IDLE_CORES),
            Finding("without_idle_cores", round(alone, 3)),
            Finding("full_rate_cores", round(full, 3)),
            Finding("half_rate_cores", round(half, 3)),
            at_most("half_to_full", round(half / full, 3), MAX_HALF_TO_FULL),
            at_most("with_to_without_idle", round(full / alone, 3), MAX_WITH_TO_WITHOUT_IDLE),
            Finding("messages", self._done),
            Finding("in_time", round(min(self._in_time), 3)),
            at_most("missing", self._missing, 0),
            at_most("twice", self._twice, 0),
            Finding("peak_rss_anon_bytes", self._watch.peak),
            Finding("accepts_after_seconds", round(start, 3)),
            at_most("accepts_with_idle_after_seconds", round(start_twice, 3), MAX_START),
        ]

    def _restart(self) -> float:
        return statistics.median([self.broker.restart() for _ in range(ROUNDS)])

    def _measure(self, busy: Subscriptions) -> tuple[float, float, float, float]:
        """Measure each load.

        Returns:
            How many processors the broker needs: at rest with the idle consumers, at the full rate without and with
            them, at half the rate with them.
        """
        idle, alone, full, half = [], [], [], []
        for _ in range(ROUNDS):
            alone.append(self._drive(busy, self.queues, "without idle consumers"))
            with Subscriptions(self.broker.target, _IDLE, self.queues):
                idle.append(self._rest())
                full.append(self._drive(busy, self.queues, "at the full rate"))
                half.append(self._drive(busy, self.queues / 2, "at half the rate"))
        return statistics.median(idle), statistics.median(alone), statistics.median(full), statistics.median(half)

    def _rest(self) -> float:
        """How many processors the broker takes while no message moves."""
        time.sleep(SETTLING)
        before, began = self.broker.cpu_seconds(), self._clock.monotonic()
        time.sleep(self.seconds)
        return (self.broker.cpu_seconds() - before) / (self._clock.monotonic() - began)

    def _drive(self, busy: Subscriptions, rate: float, text: str) -> float:
        """Send messages to the queues in turn, and take them.

        Args:
            busy: the queues' consumers.
            rate: messages per second.
            text: what is measured.

        Returns:
            How many processors the broker needs for that.
        """
        busy.received = Counter()
        before, began, sent = self.broker.cpu_seconds(), self._clock.monotonic(), 0
        pace = Pace(rate, self._clock)
        with closing(Link(self.broker.target)) as link:
            while (elapsed := self._clock.monotonic() - began) < self.seconds:
                room = pace.room(sent, self.queues)
                link.send(b"".join([self._frames[number % self.queues] for number in range(sent, sent + room)]))
                sent += room
                self._receive(busy)
                self.live.show(f"{text}: sent {sent}, received {busy.received.total()}", self._share(elapsed))
            self._in_time.append(busy.received.total() / sent)
            self._wait_for_the_rest(busy, sent)
            link.disconnect()
        self._count(busy, sent)
        # What it takes for all of them, spread over the time in which they were sent: it may be behind.
        return (self.broker.cpu_seconds() - before) * rate / sent

    def _receive(self, busy: Subscriptions) -> None:
        time.sleep(_TICK)
        busy.receive()
        self._watch.look()

    def _wait_for_the_rest(self, busy: Subscriptions, sent: int) -> None:
        before, last = busy.received.total(), self._clock.monotonic()
        while before < sent and self._clock.monotonic() - last < _SILENCE:
            self._receive(busy)
            if busy.received.total() > before:
                before, last = busy.received.total(), self._clock.monotonic()

    def _count(self, busy: Subscriptions, sent: int) -> None:
        """Compare what was sent to each queue with what came from it."""
        each, rest = divmod(sent, self.queues)
        for number in range(self.queues):
            surplus = busy.received[number] - (each + (number < rest))
            self._missing += max(0, -surplus)
            self._twice += max(0, surplus)
        self._done += sent

    def _share(self, elapsed: float) -> float:
        """How much of all measurements is done."""
        return (len(self._in_time) + elapsed / self.seconds) / (3 * ROUNDS)
