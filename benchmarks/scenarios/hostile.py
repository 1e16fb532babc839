"""The scenario of the hostile clients: a client that behaves must not notice those that do not."""

import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import ClassVar

from benchmarks.load import send
from benchmarks.rig import START_LIMIT
from benchmarks.scenarios.attacks import MAX_BODY, SILENT_CONNECTIONS, Tally, attack
from benchmarks.scenarios.findings import Finding, at_least, at_most
from benchmarks.scenarios.scenario import HEADERS, Scenario
from quire.cli.perf.load import Load
from quire.cli.perf.measure import measure
from quire.errors import BrokerUnreachable
from quire.message import MESSAGE_OVERHEAD

ROUNDS = 5
"""How often the victim is measured alone and under attack, in turn: machines are not equally fast at all times."""
MIN_SHARE = 0.9
"""How fast the victim must be under attack, as a share of its rate alone."""

_BAIT = Load(messages=5000, size=10_000, queue="perf.bait")
_PAUSE = 0.5


@dataclass
class Hostile(Scenario):
    """Measure a client alone and beside attackers, in turn; --messages is for each measurement.

    The attackers send garbage, half frames, too long heads and bodies, send or receive slowly, or say nothing.
    """

    ENVIRONMENT: ClassVar = {"QUIRE_STOMP__MAX_BODY": str(MAX_BODY), "QUIRE_OPENWIRE__MAX_FRAME_SIZE": str(MAX_BODY)}

    messages: int

    def run(self) -> list[Finding]:
        """Measure the victim alone and under attack, in turn."""
        # In shared memory: the attackers' process counts.
        self._tally: Tally = multiprocessing.get_context("fork").RawValue(Tally)
        send(self.broker.target, _BAIT, lambda counts: self.watch.look())
        alone, attacked = [], []
        for number in range(ROUNDS):
            alone.append(self._measure("alone", 2 * number))
            with self._attack():
                attacked.append(self._measure("under attack", 2 * number + 1))
        return self._findings(median(alone), median(attacked))

    def _measure(self, text: str, number: int) -> float:
        tick = self.tick(text, 2 * self.messages, number / (2 * ROUNDS), 1 / (2 * ROUNDS))
        # A queue of its own for each round, as the first one had.
        return measure(self.broker.target, Load(self.messages, queue=f"perf.victim.{number}"), tick).messages_per_s

    @contextmanager
    def _attack(self) -> Iterator[None]:
        """All attacks, from when the last silent connection is there."""
        context = multiprocessing.get_context("fork")
        stop = context.Event()
        arguments = (self.broker.target, _BAIT.queue, self._tally, stop)
        process = context.Process(target=attack, args=arguments, daemon=True)
        process.start()
        try:
            deadline = self.clock.monotonic() + START_LIMIT
            while self._tally.silent < SILENT_CONNECTIONS:
                if not process.is_alive() or self.clock.monotonic() > deadline:
                    text = f"only {self._tally.silent} of {SILENT_CONNECTIONS} connections were opened"
                    raise BrokerUnreachable(text)
                time.sleep(_PAUSE)
                self.watch.look()
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
        tally, one_message = self._tally, _BAIT.size + HEADERS + MESSAGE_OVERHEAD
        return [
            Finding("alone_per_s", round(alone)),
            Finding("attacked_per_s", round(attacked)),
            at_least("attacked_to_alone", round(attacked / alone, 3), MIN_SHARE),
            self.rss_anon(),
            at_most("peak_resident_bytes", self.broker.memory_peak(), self.memory_limit + 2 * one_message),
            Finding("hostile_connections", tally.connections),
            Finding("refused", tally.refused),
            at_least("errors", tally.errors, 1),
            at_least("closes", tally.closes, 1),
        ]
