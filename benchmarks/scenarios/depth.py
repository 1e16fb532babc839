"""The scenario of the deep queue: memory, restart and speed must not depend on how many messages wait."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median

from benchmarks.load import Taken, send, take
from benchmarks.rig import START_LIMIT
from benchmarks.scenarios.findings import Finding, at_least, at_most
from benchmarks.scenarios.scenario import Scenario
from quire.cli.perf.load import Load
from quire.client import AckMode, Queue
from quire.client.sync import connect
from quire.errors import BrokerUnreachable

SLICE = 10_000
"""How many messages a measurement takes, from the deep queue and from a shallow one."""
ROUNDS = 5
"""How often each is measured, in turn: machines are not equally fast at all times."""
MAX_START = 1.0
"""How long a restart after a kill may take until connections are accepted, in seconds."""
MAX_FIRST_MESSAGE = 1.5
"""How long it may take until the first message has come, in seconds."""
MIN_DRAIN_SHARE = 0.9
"""How fast a deep queue must be drained, as a share of a shallow one's rate."""
MIN_DRAIN_SHARE_POSTGRESQL = 0.75
"""The same where what is not in memory comes over a connection."""
MAX_EMPTY_TABLES = 2_000_000
"""How many bytes the tables on PostgreSQL may take once the queue is empty: indexes have a least size."""
MAX_VACUUM = 30.0
"""How long it may take until they are that small, in seconds."""
_LOOK = 0.25


@dataclass
class Depth(Scenario):
    """Fill a queue, kill the broker, start it again, drain the queue.

    Memory, the time of the restart and the speed of draining may not depend on how many messages wait.
    """

    messages: int

    def run(self) -> list[Finding]:
        """Fill the queue, kill the broker, start it again, drain."""
        load = Load(self.messages)
        fill_rate = send(self.broker.target, load, self.tick("filling", self.messages))
        full = [Finding("tables_full_bytes", self.tables())] if self.tables else []
        self.broker.kill()
        accepts, first = self._restart(load)
        deep, shallow = self._compare(replace(load, messages=min(SLICE, self.messages // (2 * ROUNDS))))
        rest = self._take(replace(load, messages=self.broker.depth(load.queue)), "draining the rest")
        share = MIN_DRAIN_SHARE_POSTGRESQL if self.tables else MIN_DRAIN_SHARE
        deep_rate, shallow_rate = [median(each.per_s for each in taken) for taken in (deep, shallow)]
        return [
            Finding("messages", self.messages),
            Finding("filled_per_s", round(fill_rate)),
            at_most("accepts_after_seconds", round(accepts, 3), MAX_START),
            at_most("first_message_after_seconds", round(first, 3), MAX_FIRST_MESSAGE),
            Finding("deep_drained_per_s", round(deep_rate)),
            Finding("shallow_drained_per_s", round(shallow_rate)),
            at_least("deep_to_shallow", round(deep_rate / shallow_rate, 3), share),
            Finding("rest_drained_per_s", round(rest.per_s)),
            at_most("lost", self.messages - sum(each.messages for each in (*deep, rest)), 0),
            self.rss_anon(),
            *full,
            *(self._shrink(self.tables) if self.tables else []),
        ]

    def _shrink(self, tables: Callable[[], int]) -> list[Finding]:
        """Wait until the vacuum has given back the space of the queue."""
        began = self.clock.monotonic()
        while tables() > MAX_EMPTY_TABLES and self.clock.monotonic() < began + 2 * MAX_VACUUM:
            self.show("waiting for the vacuum", 1.0)
            time.sleep(_LOOK)
        return [
            at_most("tables_empty_bytes", tables(), MAX_EMPTY_TABLES),
            at_most("tables_empty_after_seconds", round(self.clock.monotonic() - began, 1), MAX_VACUUM),
        ]

    def _restart(self, load: Load) -> tuple[float, float]:
        """Start the broker again; after how many seconds a connection was accepted, and the first message had come."""
        began = self.clock.monotonic()
        self.broker.start()
        with connect(self.broker.openwire) as connection:
            accepts = self.clock.monotonic() - began
            consumer = connection.session(AckMode.INDIVIDUAL).consumer(Queue(load.queue), prefetch=1)
            if consumer.receive(START_LIMIT) is None:
                raise BrokerUnreachable(f"no message came within {START_LIMIT:g} s after the restart")
            return accepts, self.clock.monotonic() - began

    def _compare(self, part: Load) -> tuple[list[Taken], list[Taken]]:
        """Take messages from the deep queue and from a shallow one, in turn."""
        deep, shallow = [], []
        other = replace(part, queue=f"{part.queue}.shallow")
        for number in range(1, ROUNDS + 1):
            deep.append(self._take(part, f"draining the deep queue, {number} of {ROUNDS}"))
            send(self.broker.target, other, self.tick("filling the shallow queue", other.messages))
            shallow.append(self._take(other, f"draining the shallow queue, {number} of {ROUNDS}"))
        return deep, shallow

    def _take(self, load: Load, text: str) -> Taken:
        return take(self.broker.target, load, self.tick(text, load.messages))
