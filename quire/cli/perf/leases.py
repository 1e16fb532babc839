"""The scenario of the leases: each of thousands ends at a time of its own, while other messages flow."""

import random
import uuid
from contextlib import closing
from dataclasses import dataclass
from typing import ClassVar

from quire.cli.perf.findings import Finding, at_least, at_most
from quire.cli.perf.link import Link
from quire.cli.perf.live import LiveFigures
from quire.cli.perf.measure import percentiles
from quire.cli.perf.own_broker import OwnBroker
from quire.cli.perf.stream_crew import StreamCrew
from quire.cli.perf.stream_load import StreamLoad
from quire.cli.perf.stream_member import StreamMember
from quire.clock import SystemClock

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

_STREAM, _GROUP = "perf.leases", "workers"
_PATIENCE = 15.0
"""How long after the last one's time it waits for those that have not ended, in seconds."""
_LOOK_INTERVAL = 0.02


@dataclass
class Leases:
    """One run.

    Args:
        broker: a running broker of its own, with ``ENVIRONMENT``.
        count: how many leases.
        seed: decides how long each lasts.
        live: shows how far it is.
    """

    # A group may have 2,000 messages of each partition in flight; and what was lost comes again when all is over.
    ENVIRONMENT: ClassVar = {"QUIRE_POLICY__PARTITIONS": "8", "QUIRE_POLICY__RETRY_DELAYS": "60s"}

    broker: OwnBroker
    count: int
    seed: int
    live: LiveFigures

    def run(self) -> list[Finding]:
        """Take messages, say of each how long its lease is to last, and do nothing until all have ended.

        Raises:
            QuireError: the broker failed.
        """
        self._clock = SystemClock()
        self._due: dict[tuple[int, int], float] = {}
        self._late: list[float] = []
        self._send()
        flow = StreamLoad(round(RATE * LONGEST / 1000), rate=RATE, queue=f"perf.{uuid.uuid4().hex[:12]}")
        with StreamCrew(self.broker.target, flow, lambda counts: None) as crew:
            crew.start_consumers()
            crew.start_producers()
            with closing(StreamMember(self.broker.target, _STREAM, _GROUP, "events:true\n", self.count)) as member:
                self._lease(member)
                self._wait(member, crew)
                member.disconnect()
            crew.finish()
            rate = crew.figures().messages_per_s
        return self._findings(rate)

    def _send(self) -> None:
        """Send the messages to be leased, and wait until the broker has confirmed them."""
        load = StreamLoad(self.count, queue=_STREAM)
        with closing(Link(self.broker.target)) as link:
            link.send(b"".join([load.batch_frames(index, self.count, 0) for index in range(load.batches(self.count))]))
            link.disconnect()

    def _lease(self, member: StreamMember) -> None:
        """Take all messages, and say of each how long its lease is to last from then on."""
        dice = random.Random(self.seed)  # noqa: S311 - it only has to be repeatable
        while len(self._due) < self.count:
            for message in [message for message in member.take(1) if not message.event]:
                milliseconds = dice.randint(SHORTEST, LONGEST)
                self._due[message.place] = self._clock.monotonic() + milliseconds / 1000
                member.extend(message, milliseconds)

    def _wait(self, member: StreamMember, crew: StreamCrew) -> None:
        """Note when leases end, until all have or nothing is to be expected any more."""
        end = max(self._due.values()) + _PATIENCE
        while len(self._late) < self.count and (now := self._clock.monotonic()) < end:
            for message in member.receive(_LOOK_INTERVAL):
                if message.event == "lease-lost":
                    self._late.append(self._clock.monotonic() - self._due[message.place])
            crew.look()
            text = f"{len(self._late)} of {self.count} leases have ended, {crew.counts().received} messages flowed"
            self.live.show(text, max(0.0, 1 - (end - _PATIENCE - now) * 1000 / LONGEST))

    def _findings(self, rate: float) -> list[Finding]:
        on_time = sum(late <= ON_TIME for late in self._late) / self.count
        return [
            Finding("leases", self.count),
            at_most("not_ended", self.count - len(self._late), 0),
            at_most("ended_early", sum(late < 0 for late in self._late), 0),
            at_least("on_time", round(on_time, 4), MIN_ON_TIME),
            *[Finding(f"late_{name}_ms", value) for name, value in percentiles(self._late).items()],
            at_least("flow_per_s", round(rate), RATE * MIN_RATE),
        ]
