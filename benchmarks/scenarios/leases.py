"""The scenario of the leases: each of thousands ends at a time of its own, while other messages flow."""

import random
from contextlib import closing
from dataclasses import dataclass
from typing import ClassVar

from benchmarks.load import send, stream_load
from benchmarks.scenarios.findings import Finding, at_least, at_most
from benchmarks.scenarios.scenario import Scenario
from benchmarks.stomp_client import Consumer, member
from quire.cli.perf.measure import Crew, figures, percentiles

SHORTEST, LONGEST = 1_000, 30_000
"""How long leases last, in milliseconds: any time between, at random."""
RATE = 5000.0
"""How many other messages a second go through the broker meanwhile."""
MIN_RATE = 0.95
"""How many of them must at least, as a share of that."""
ON_TIME = 1.0
"""How late a lease may end, in seconds, ..."""
MIN_ON_TIME = 0.99
"""... and how many leases must end so, as a share of all."""

_STREAM = "perf.leases"
_PATIENCE = 60.0
"""How long after the last one's time it waits for those that have not ended, in seconds."""
_LOOK_INTERVAL = 0.02


@dataclass
class Leases(Scenario):
    """Let thousands of leases end, each at a time of its own, while 5,000 messages a second flow."""

    # A group may have 2,000 messages of each partition in flight; and what was lost comes again when all is over.
    ENVIRONMENT: ClassVar = {"QUIRE_POLICY__PARTITIONS": "8", "QUIRE_POLICY__RETRY_DELAYS": "60s"}

    count: int
    seed: int

    def run(self) -> list[Finding]:
        """Take messages, say of each how long its lease is to last, and do nothing until all have ended."""
        self._due: dict[tuple[int, int], float] = {}
        self._late: list[float] = []
        send(self.broker.target, stream_load(self.count, queue=_STREAM))
        flow = stream_load(round(RATE * LONGEST / 1000), rate=RATE)
        with Crew(self.broker.target, flow, lambda counts: None) as crew:
            crew.start_consumers()
            crew.start_producers()
            with closing(member(self.broker.target, _STREAM, "events:true\n", self.count)) as consumer:
                self._lease(consumer)
                self._wait(consumer, crew)
                consumer.disconnect()
            crew.finish()
            rate = figures(crew, flow).messages_per_s
        on_time = sum(late <= ON_TIME for late in self._late) / self.count
        return [
            Finding("leases", self.count),
            at_most("not_ended", self.count - len(self._late), 0),
            at_most("ended_early", sum(late < 0 for late in self._late), 0),
            at_least("on_time", round(on_time, 4), MIN_ON_TIME),
            *[Finding(f"late_{name}_ms", value) for name, value in percentiles(self._late).items()],
            at_least("flow_per_s", round(rate), RATE * MIN_RATE),
        ]

    def _lease(self, consumer: Consumer) -> None:
        """Take all messages, and say of each how long its lease is to last from then on."""
        dice = random.Random(self.seed)
        while len(self._due) < self.count:
            for message in [message for message in consumer.take(1) if not message.event]:
                milliseconds = dice.randint(SHORTEST, LONGEST)
                self._due[message.place] = self.clock.monotonic() + milliseconds / 1000
                consumer.extend(message, milliseconds)

    def _wait(self, consumer: Consumer, crew: Crew) -> None:
        """Note when leases end, until all have or nothing is to be expected any more."""
        end = max(self._due.values()) + _PATIENCE
        while len(self._late) < self.count and (now := self.clock.monotonic()) < end:
            for message in consumer.receive(_LOOK_INTERVAL):
                if message.event == "lease-lost":
                    self._late.append(self.clock.monotonic() - self._due[message.place])
            crew.look()
            text = f"{len(self._late)} of {self.count} leases have ended, {crew.counts().received} messages flowed"
            self.show(text, max(0.0, 1 - (end - _PATIENCE - now) * 1000 / LONGEST))
