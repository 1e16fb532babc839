"""The scenario of the message groups: a thousand of them, shared by consumers that come and go."""

import random
import time
from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

from benchmarks.load import NumberedLoad
from benchmarks.scenarios.logs import GroupLog, Team
from benchmarks.scenarios.scenario import IDLE, SILENCE, Finding, Scenario, at_least, at_most
from benchmarks.stomp_client import Consumer
from quire.cli.api import queue_path
from quire.cli.perf.load import Pace
from quire.cli.perf.measure import Crew

GROUPS = 1000
MOST, FEWEST = 8, 4
"""How many consumers there are; the first of them come together."""
RATE = 10_000.0
"""How many messages they acknowledge per second, all together: so it takes long enough to be calm in between."""
MOST_CHANGES = 6
"""How many consumers come or go shortly after each other at the most, before it is calm again."""
CALM = 1.1
"""How long nothing changes then until the shares are looked at, in seconds."""
MAX_UNEVENNESS = 0.2
"""How far the number of a consumer's groups may be from equal shares, as a share of that."""

_PREFETCHES = (10, 100, 1000)
_SLOWEST = 2000.0
"""How many messages a consumer works off per second at least: with a larger prefetch it may hold them longer."""
_LONGEST_PAUSE = 0.2


@dataclass
class Groups(Scenario):
    """Let consumers of a thousand message groups come and go.

    Each group must keep its order and be with one consumer at a time; and consumers must have equally many groups.
    """

    # Dead letters are no part of this: consumers that leave early again and again must not make any.
    ENVIRONMENT: ClassVar = {
        "QUIRE_POLICY__REBALANCE_MESSAGE_GROUPS": "true",
        "QUIRE_POLICY__MAXIMUM_REDELIVERIES": "1000000000",
    }

    messages: int
    seed: int

    def run(self) -> list[Finding]:
        self._dice = random.Random(self.seed)
        self._load = NumberedLoad(self.messages, receipts=False, turns=("JMSXGroupID", GROUPS))
        self._unevenness: list[float] = []
        with Crew(self.broker.target, self._load, lambda counts: self.watch.look()) as crew:
            crew.start_producers()
            self._team = Team(GroupLog(self.messages, GROUPS), Pace(RATE, self.clock))
            began = self.clock.monotonic()
            self._take(crew)
            elapsed = self.clock.monotonic() - began
            crew.finish()
        for name in list(self._team.workers):
            self._team.leave(name, settles=False, politely=True)
        return self._findings(elapsed)

    def _take(self, crew: Crew) -> None:
        for _ in range(MOST):
            self._come()
        last = self.clock.monotonic()
        self._changes_left, self._next_change = 0, last + CALM
        while not self._is_done() and self.clock.monotonic() - last < SILENCE:
            names = list(self._team.workers)
            self._dice.shuffle(names)
            if self._team.serve(names):
                last = self.clock.monotonic()
            else:
                time.sleep(IDLE)
            if self.clock.monotonic() >= self._next_change:
                self._change()
            crew.look()
            self._show(crew)

    def _is_done(self) -> bool:
        # What is acknowledged may come again: the broker may not have seen it when the consumer left.
        return self._team.acknowledged >= self.messages and not self.broker.depth(self._load.queue)

    def _change(self) -> None:
        """Look at the shares if it was calm, and let a consumer come or go."""
        if not self._changes_left:
            if self._team.log.every_group_goes_on:
                self._look_at_shares()
            self._changes_left = self._dice.randint(1, MOST_CHANGES)
        names = list(self._team.workers)
        if len(names) < MOST and (len(names) == FEWEST or self._dice.random() < 0.5):
            self._come()
        else:
            self._team.leave(self._dice.choice(names), settles=False, politely=self._dice.random() < 0.5)
        self._changes_left -= 1
        pause = self._dice.uniform(0, _LONGEST_PAUSE) if self._changes_left else CALM
        self._next_change = self.clock.monotonic() + pause

    def _come(self) -> None:
        prefetch = self._dice.choice(_PREFETCHES)
        consumer = Consumer(self.broker.target, self._load.destination, prefetch)
        self._team.come(str(self._team.connections), consumer, self._dice.uniform(0, prefetch / _SLOWEST))

    def _look_at_shares(self) -> None:
        page = self.broker.api.call("GET", queue_path(self._load.queue, "groups"), limit=GROUPS)
        owned = Counter(group["connection"] for group in page["groups"] if group["connection"])
        consumers = len(self._team.workers)
        equal = GROUPS / consumers
        counts = [*owned.values(), *[0] * (consumers - len(owned))]
        self._unevenness.append(max(abs(count - equal) / equal for count in counts))

    def _show(self, crew: Crew) -> None:
        team, worst = self._team, max(self._unevenness, default=0.0)
        text = f"sent {crew.counts().sent}, acknowledged {team.acknowledged}, {len(team.workers)} consumers"
        self.show(f"{text}, shares off by {worst:.0%} at the most", team.acknowledged / self.messages)

    def _findings(self, elapsed: float) -> list[Finding]:
        log = self._team.log
        return [
            Finding("messages", self.messages),
            Finding("received", log.received),
            at_most("missing", log.missing, 0),
            at_most("out_of_order", log.out_of_order, 0),
            at_most("at_two_consumers", log.at_two_consumers, 0),
            at_most("unflagged_duplicates", log.unflagged_duplicates, 0),
            at_most("left_in_the_queue", self.broker.depth(self._load.queue), 0),
            at_least("shares_looked_at", len(self._unevenness), 1),
            at_most("most_uneven_share", round(max(self._unevenness, default=0.0), 3), MAX_UNEVENNESS),
            Finding("redelivered", log.redelivered),
            Finding("duplicates", log.duplicates),
            Finding("connections", self._team.connections),
            self.rss_anon(),
            Finding("elapsed_seconds", round(elapsed, 3)),
            Finding("acknowledged_per_s", round(self._team.acknowledged / elapsed)),
        ]
