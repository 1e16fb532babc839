"""The scenario of the wakeups: thousands of queues with a message a second each, beside as many idle consumers."""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from statistics import median

from benchmarks.scenarios.scenario import SILENCE, Finding, Scenario, at_most
from benchmarks.stomp_client import Consumer, send_frame
from quire.cli.perf.load import Link, Pace

SIZE = 1024
"""Of a body, in bytes."""
PER_CONNECTION = 1000
"""How many subscriptions a connection has; the broker allows no more."""
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

_TICK = 0.01


@dataclass
class Wakeups(Scenario):
    """Send a message every second to each of many queues, beside as many idle ones.

    What the broker has to do must depend on how many messages move, not on how many queues and consumers there are.
    """

    queues: int
    persistent: bool
    seconds: float

    def run(self) -> list[Finding]:
        self._done, self._missing, self._twice = 0, 0, 0
        # How many had come when the last one was sent, as a share of each load: whether it keeps up.
        self._in_time: list[float] = []
        frames = [send_frame(f"perf.busy.{number}", b"x" * SIZE) for number in range(self.queues)]
        self._frames = [
            frame if self.persistent else frame.replace(b"persistent:true", b"persistent:false") for frame in frames
        ]
        with self._consumers("perf.busy"):
            self.live.show(f"{self.queues} queues are there", 0)
        start = self._restart()
        with self._consumers("perf.busy") as busy:
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
            Finding("peak_rss_anon_bytes", self.watch.peak),
            Finding("accepts_after_seconds", round(start, 3)),
            at_most("accepts_with_idle_after_seconds", round(start_twice, 3), MAX_START),
        ]

    @contextmanager
    def _consumers(self, prefix: str) -> Iterator[list[Consumer]]:
        """A consumer for each of the queues, in few connections; in the end they leave politely."""
        with ExitStack() as stack:
            consumers = []
            for first in range(0, self.queues, PER_CONNECTION):
                last = min(first + PER_CONNECTION, self.queues)
                names = [f"/queue/{prefix}.{number}" for number in range(first, last)]
                consumer = stack.enter_context(closing(Consumer(self.broker.target, names[0])))
                consumer.subscribe(names[1:])
                consumer.confirm()
                consumers.append(consumer)
            yield consumers
            for consumer in consumers:
                consumer.disconnect()

    def _restart(self) -> float:
        return median([self.broker.restart() for _ in range(ROUNDS)])

    def _measure(self, busy: list[Consumer]) -> tuple[float, float, float, float]:
        """Measure each load.

        Returns:
            How many processors the broker needs: at rest with the idle consumers, at the full rate without and with
            them, at half the rate with them.
        """
        idle, alone, full, half = [], [], [], []
        for _ in range(ROUNDS):
            alone.append(self._drive(busy, self.queues, "without idle consumers"))
            with self._consumers("perf.idle"):
                idle.append(self._rest())
                full.append(self._drive(busy, self.queues, "at the full rate"))
                half.append(self._drive(busy, self.queues / 2, "at half the rate"))
        return median(idle), median(alone), median(full), median(half)

    def _rest(self) -> float:
        """How many processors the broker takes while no message moves."""
        time.sleep(SETTLING)
        before, began = self.broker.cpu_seconds(), self.clock.monotonic()
        time.sleep(self.seconds)
        return (self.broker.cpu_seconds() - before) / (self.clock.monotonic() - began)

    def _drive(self, busy: list[Consumer], rate: float, text: str) -> float:
        """Send so many messages per second to the queues in turn, and take them; how many processors that needs."""
        came: Counter[int] = Counter()
        before, began, sent = self.broker.cpu_seconds(), self.clock.monotonic(), 0
        pace = Pace(rate, self.clock)
        with closing(Link(self.broker.target)) as link:
            while (elapsed := self.clock.monotonic() - began) < self.seconds:
                room = pace.room(sent, self.queues)
                link.send(b"".join([self._frames[number % self.queues] for number in range(sent, sent + room)]))
                sent += room
                self._receive(busy, came)
                share = (len(self._in_time) + elapsed / self.seconds) / (3 * ROUNDS)
                self.show(f"{text}: sent {sent}, received {came.total()}", share)
            self._in_time.append(came.total() / sent)
            last = self.clock.monotonic()
            while came.total() < sent and self.clock.monotonic() - last < SILENCE:
                if self._receive(busy, came):
                    last = self.clock.monotonic()
            link.disconnect()
        self._count(came, sent)
        # What it takes for all of them, spread over the time in which they were sent: it may be behind.
        return (self.broker.cpu_seconds() - before) * rate / sent

    def _receive(self, busy: list[Consumer], came: Counter[int]) -> bool:
        """Take what has come to each queue, after a moment, and acknowledge it; whether there was anything."""
        time.sleep(_TICK)
        before = came.total()
        for index, consumer in enumerate(busy):
            messages = consumer.receive(0)
            came.update([PER_CONNECTION * index + int(message.header("subscription")) for message in messages])
            consumer.acknowledge(messages)
        self.watch.look()
        return came.total() > before

    def _count(self, came: Counter[int], sent: int) -> None:
        """Compare what was sent to each queue with what came from it."""
        each, rest = divmod(sent, self.queues)
        for number in range(self.queues):
            surplus = came[number] - (each + (number < rest))
            self._missing += max(0, -surplus)
            self._twice += max(0, surplus)
        self._done += sent
