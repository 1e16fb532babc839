"""The scenario of the hostile clients: a client that behaves must not notice those that do not."""

import multiprocessing
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import ClassVar

from quire.cli.perf.attacks import MAX_BODY, SILENT_CONNECTIONS, Tally, attack
from quire.cli.perf.crew import Counts
from quire.cli.perf.findings import Finding, at_least, at_most
from quire.cli.perf.live import LiveFigures
from quire.cli.perf.load import Load
from quire.cli.perf.measure import measure, send
from quire.cli.perf.own_broker import START_LIMIT, MemoryWatch, OwnBroker
from quire.clock import SystemClock
from quire.errors import BrokerUnreachable
from quire.message import MESSAGE_OVERHEAD
from quire.units import format_size

ROUNDS = 5
"""How often the victim is measured alone and under attack, in turn: machines are not equally fast at all times."""
MAX_RSS_ANON = 120_000_000
"""How much memory the broker's process may take, in bytes."""
MIN_SHARE = 0.9
"""How fast the victim must be under attack, as a share of its rate alone."""

_BAIT = Load(messages=5000, size=10_000, consumers=0, queue="perf.bait")
_HEADERS = 256
_PAUSE = 0.5


@dataclass
class Hostile:
    """One run.

    Args:
        broker: a running broker of its own, with ``ENVIRONMENT``.
        load: what the victim sends and takes in each round.
        memory_limit: the broker's, in bytes.
        live: shows how far it is.
    """

    ENVIRONMENT: ClassVar = {"QUIRE_STOMP__MAX_BODY": str(MAX_BODY)}

    broker: OwnBroker
    load: Load
    memory_limit: int
    live: LiveFigures

    def run(self) -> list[Finding]:
        """Measure the victim alone and under attack, in turn.

        Raises:
            QuireError: the broker failed.
        """
        # In shared memory: the attackers' process counts.
        self._tally: Tally = multiprocessing.get_context("fork").RawValue(Tally)
        self._watch = MemoryWatch(self.broker)
        self._done = 0
        send(self.broker.target, _BAIT, lambda counts: self._watch.look())
        alone, attacked = [], []
        for _ in range(ROUNDS):
            alone.append(self._measure("alone"))
            with self._attack():
                attacked.append(self._measure("under attack"))
        return self._findings(statistics.median(alone), statistics.median(attacked))

    def _measure(self, text: str) -> float:
        def tick(counts: Counts) -> None:
            self._watch.look()
            done = self._done + counts.received
            figures = f"received {counts.received}, memory {format_size(self._watch.peak)}"
            self.live.show(f"{text}: {figures}", done / (2 * ROUNDS * self.load.messages))

        # A queue of its own for each round, as the first one had.
        load = replace(self.load, queue=f"perf.victim.{self._done}")
        figures = measure(self.broker.target, load, tick)
        self._done += self.load.messages
        return figures.messages_per_s

    @contextmanager
    def _attack(self) -> Iterator[None]:
        """All attacks, from when the last silent connection is there."""
        context = multiprocessing.get_context("fork")
        stop = context.Event()
        arguments = (self.broker.target, _BAIT.queue, self._tally, stop)
        process = context.Process(target=attack, args=arguments, daemon=True)
        process.start()
        try:
            deadline = SystemClock().monotonic() + START_LIMIT
            while self._tally.silent < SILENT_CONNECTIONS:
                if not process.is_alive() or SystemClock().monotonic() > deadline:
                    text = f"only {self._tally.silent} of {SILENT_CONNECTIONS} connections were opened"
                    raise BrokerUnreachable(text)
                time.sleep(_PAUSE)
                self._watch.look()
            yield
        finally:
            stop.set()
            process.join(_PAUSE)
            process.kill()
            process.join()
            self._tally.silent = 0
        # What the broker still has to do about them must not slow the victim alone.
        time.sleep(_PAUSE)

    def _findings(self, alone: float, attacked: float) -> list[Finding]:
        tally, one_message = self._tally, _BAIT.size + _HEADERS + MESSAGE_OVERHEAD
        return [
            Finding("alone_per_s", round(alone)),
            Finding("attacked_per_s", round(attacked)),
            at_least("attacked_to_alone", round(attacked / alone, 3), MIN_SHARE),
            at_most("peak_rss_anon_bytes", self._watch.peak, MAX_RSS_ANON),
            at_most("peak_resident_bytes", self.broker.memory_peak(), self.memory_limit + 2 * one_message),
            Finding("hostile_connections", tally.connections),
            Finding("refused", tally.refused),
            at_least("errors", tally.errors, 1),
            at_least("closes", tally.closes, 1),
        ]
