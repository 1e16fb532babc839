"""The scenario of the deep queue: memory, restart and speed must not depend on how many messages wait."""

import statistics
from dataclasses import dataclass, replace

from quire.cli.api import queue_path
from quire.cli.perf.crew import Counts, Tick
from quire.cli.perf.findings import Finding, at_least, at_most
from quire.cli.perf.live import LiveFigures
from quire.cli.perf.load import Load
from quire.cli.perf.measure import Taken, send, take
from quire.cli.perf.own_broker import START_LIMIT, MemoryWatch, OwnBroker
from quire.client.connection import connect
from quire.clock import SystemClock
from quire.errors import BrokerUnreachable
from quire.units import format_size

SLICE = 10_000
"""How many messages a measurement takes, from the deep queue and from a shallow one."""
ROUNDS = 5
"""How often each is measured, in turn: machines are not equally fast at all times."""
MAX_RSS_ANON = 120_000_000
"""How much memory the broker's process may take, in bytes."""
MAX_START = 1.0
"""How long a restart after a kill may take until connections are accepted, in seconds."""
MAX_FIRST_MESSAGE = 1.5
"""How long it may take until the first message has come, in seconds."""
MIN_DRAIN_SHARE = 0.9
"""How fast a deep queue must be drained, as a share of a shallow one's rate."""


@dataclass
class Depth:
    """One run.

    Args:
        broker: a running broker of its own.
        load: what fills the queue, and one consumer.
        live: shows how far it is.
    """

    broker: OwnBroker
    load: Load
    live: LiveFigures

    def run(self) -> list[Finding]:
        """Fill the queue, kill the broker, start it again, drain.

        Raises:
            QuireError: the broker failed.
        """
        messages = self.load.messages
        self._watch = MemoryWatch(self.broker)
        fill_rate = send(self.broker.target, replace(self.load, consumers=0), self._tick("filling", messages))
        self.broker.kill()
        accepts, first = self._restart()
        deep, shallow = self._compare(min(SLICE, messages // (2 * ROUNDS)))
        left = self.broker.api.call("GET", queue_path(self.load.queue))["depth"]
        rest = self._take(replace(self.load, producers=0, messages=left), "draining the rest")
        share = statistics.median(each.per_s for each in deep) / statistics.median(shallow)
        return [
            Finding("messages", messages),
            Finding("filled_per_s", round(fill_rate)),
            at_most("accepts_after_seconds", round(accepts, 3), MAX_START),
            at_most("first_message_after_seconds", round(first, 3), MAX_FIRST_MESSAGE),
            Finding("deep_drained_per_s", round(statistics.median(each.per_s for each in deep))),
            Finding("shallow_drained_per_s", round(statistics.median(shallow))),
            at_least("deep_to_shallow", round(share, 3), MIN_DRAIN_SHARE),
            Finding("rest_drained_per_s", round(rest.per_s)),
            at_most("lost", messages - sum(each.messages for each in (*deep, rest)), 0),
            at_most("peak_rss_anon_bytes", self._watch.peak, MAX_RSS_ANON),
        ]

    def _restart(self) -> tuple[float, float]:
        """Start the broker again.

        Returns:
            After how many seconds a connection was accepted, and after how many the first message had come.
        """
        clock = SystemClock()
        began = clock.monotonic()
        self.broker.start()
        with connect(self.broker.target.host, self.broker.target.port) as connection:
            accepts = clock.monotonic() - began
            connection.subscribe(f"/queue/{self.load.queue}", prefetch=1)
            if connection.receive(START_LIMIT) is None:
                raise BrokerUnreachable(f"no message came within {START_LIMIT:g} s after the restart")
            return accepts, clock.monotonic() - began

    def _compare(self, count: int) -> tuple[list[Taken], list[float]]:
        """Take messages from the deep queue and from a shallow one, in turn."""
        deep, shallow = [], []
        for number in range(1, ROUNDS + 1):
            part = replace(self.load, producers=0, messages=count)
            deep.append(self._take(part, f"draining the deep queue, {number} of {ROUNDS}"))
            load = replace(self.load, messages=count, queue=f"{self.load.queue}.shallow")
            send(self.broker.target, replace(load, consumers=0), self._tick("filling the shallow queue", count))
            text = f"draining the shallow queue, {number} of {ROUNDS}"
            shallow.append(self._take(replace(load, producers=0), text).per_s)
        return deep, shallow

    def _take(self, load: Load, text: str) -> Taken:
        return take(self.broker.target, load, self._tick(text, load.messages))

    def _tick(self, text: str, messages: int) -> Tick:
        def tick(counts: Counts) -> None:
            self._watch.look()
            done = counts.sent + counts.received
            self.live.show(f"{text}: {done}, memory {format_size(self._watch.peak)}", done / messages)

        return tick
