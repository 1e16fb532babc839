"""The scenario of the message groups: a thousand of them, shared by consumers that come and go."""

import random
import time
from collections import Counter, deque
from dataclasses import dataclass, field, replace
from typing import ClassVar

from quire.cli.api import queue_path
from quire.cli.perf.crew import Crew
from quire.cli.perf.findings import Finding, at_least, at_most
from quire.cli.perf.group_log import GroupLog
from quire.cli.perf.live import LiveFigures
from quire.cli.perf.load import Load
from quire.cli.perf.numbered_consumer import Delivery, NumberedConsumer
from quire.cli.perf.own_broker import MemoryWatch, OwnBroker
from quire.cli.perf.workers import Pace
from quire.clock import SystemClock

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
MAX_RSS_ANON = 120_000_000
"""How much memory the broker's process may take, in bytes."""

_PREFETCHES = (10, 100, 1000)
_SLOWEST = 2000.0
"""How many messages a consumer works off per second at least: with a larger prefetch it may hold them longer."""
_LONGEST_PAUSE = 0.2
_IDLE = 0.002
_SILENCE = 10.0


@dataclass
class _Member:
    """A consumer.

    Attributes:
        consumer: its connection.
        lag: how long it works on a message before it acknowledges it, in seconds.
        held: what it has not acknowledged, in the order it came, with when it came.
    """

    consumer: NumberedConsumer
    lag: float
    held: deque[tuple[float, Delivery]] = field(default_factory=deque)


@dataclass
class Groups:
    """One run.

    Args:
        broker: a running broker of its own, with ``ENVIRONMENT``.
        load: how many messages, of what size.
        seed: decides who comes and goes, when, and how.
        live: shows how far it is.
    """

    # Dead letters are no part of this: consumers that leave early again and again must not make any.
    ENVIRONMENT: ClassVar = {
        "QUIRE_POLICY__REBALANCE_MESSAGE_GROUPS": "true",
        "QUIRE_POLICY__MAXIMUM_REDELIVERIES": "1000000000",
    }

    broker: OwnBroker
    load: Load
    seed: int
    live: LiveFigures

    def run(self) -> list[Finding]:
        """Send, and take until everything is acknowledged or nothing comes any more.

        Raises:
            QuireError: the broker failed.
        """
        self._random = random.Random(self.seed)  # noqa: S311 - it only has to be repeatable
        self._clock = SystemClock()
        self._log = GroupLog(self.load.messages, GROUPS)
        self._watch = MemoryWatch(self.broker)
        self._members: dict[int, _Member] = {}
        self._connections = self._acknowledged = 0
        self._unevenness: list[float] = []
        load = replace(self.load, consumers=0, receipts=False, numbered=True, groups=GROUPS)
        with Crew(self.broker.target, load, lambda counts: self._watch.look()) as crew:
            crew.start_producers()
            began = self._clock.monotonic()
            self._take(crew)
            elapsed = self._clock.monotonic() - began
            crew.finish()
        for number in list(self._members):
            self._leave(number, politely=True)
        return self._findings(elapsed)

    def _take(self, crew: Crew) -> None:
        """Receive and acknowledge, while consumers come and go."""
        for _ in range(MOST):
            self._come()
        self._changes_left, self._next_change = 0, self._clock.monotonic() + CALM
        self._pace, last = Pace(RATE, self._clock), self._clock.monotonic()
        while not self._is_done() and self._clock.monotonic() - last < _SILENCE:
            if self._serve():
                last = self._clock.monotonic()
            else:
                time.sleep(_IDLE)
            if self._clock.monotonic() >= self._next_change:
                self._change()
            crew.look()
            self._show(crew)

    def _is_done(self) -> bool:
        # What is acknowledged may come again: the broker may not have seen it when the consumer left.
        return self._acknowledged >= self.load.messages and not self._depth()

    def _depth(self) -> int:
        depth: int = self.broker.api.call("GET", queue_path(self.load.queue))["depth"]
        return depth

    def _serve(self) -> bool:
        """Receive what has come, and acknowledge what is due, each consumer in turn.

        Returns:
            Whether there was anything.
        """
        received, before = 0, self._acknowledged
        numbers = list(self._members)
        self._random.shuffle(numbers)
        for number in numbers:
            member = self._members[number]
            for delivery in member.consumer.receive(0):
                self._log.delivered(number, delivery.number, delivery.redelivered)
                member.held.append((self._clock.monotonic(), delivery))
                received += 1
            self._acknowledge(number, member)
        return received > 0 or self._acknowledged > before

    def _acknowledge(self, number: int, member: _Member) -> None:
        now, due = self._clock.monotonic(), []
        for _ in range(self._pace.room(self._acknowledged, len(member.held))):
            if member.held[0][0] + member.lag > now:
                break
            due.append(member.held.popleft()[1])
            self._log.acknowledged(number, due[-1].number)
        if due:
            member.consumer.acknowledge(due)
            self._acknowledged += len(due)

    # Consumers come and go.

    def _change(self) -> None:
        """Look at the shares if it was calm, and let somebody come or go."""
        if not self._changes_left:
            if self._log.every_group_goes_on:
                self._look_at_shares()
            self._changes_left = self._random.randint(1, MOST_CHANGES)
        if len(self._members) < MOST and (len(self._members) == FEWEST or self._random.random() < 0.5):
            self._come()
        else:
            self._leave(self._random.choice(list(self._members)), politely=self._random.random() < 0.5)
        self._changes_left -= 1
        pause = self._random.uniform(0, _LONGEST_PAUSE) if self._changes_left else CALM
        self._next_change = self._clock.monotonic() + pause

    def _come(self) -> None:
        prefetch = self._random.choice(_PREFETCHES)
        consumer = NumberedConsumer(self.broker.target, self.load.queue, prefetch)
        self._members[self._connections] = _Member(consumer, self._random.uniform(0, prefetch / _SLOWEST))
        self._connections += 1

    def _leave(self, number: int, *, politely: bool) -> None:
        member = self._members.pop(number)
        self._log.left(number, politely=politely)
        if politely:
            member.consumer.disconnect()
        else:
            member.consumer.close()

    def _look_at_shares(self) -> None:
        page = self.broker.api.call("GET", f"{queue_path(self.load.queue)}/groups", limit=GROUPS)
        owned = Counter(group["connection"] for group in page["groups"] if group["connection"])
        equal = GROUPS / len(self._members)
        counts = [*owned.values(), *[0] * (len(self._members) - len(owned))]
        self._unevenness.append(max(abs(count - equal) / equal for count in counts))

    def _show(self, crew: Crew) -> None:
        self._watch.look()
        text = f"sent {crew.counts().sent}, acknowledged {self._acknowledged}, {len(self._members)} consumers"
        worst = max(self._unevenness, default=0.0)
        self.live.show(f"{text}, shares off by {worst:.0%} at the most", self._acknowledged / self.load.messages)

    def _findings(self, elapsed: float) -> list[Finding]:
        log = self._log
        return [
            Finding("messages", self.load.messages),
            Finding("received", log.received),
            at_most("missing", log.missing, 0),
            at_most("out_of_order", log.out_of_order, 0),
            at_most("at_two_consumers", log.at_two_consumers, 0),
            at_most("unflagged_duplicates", log.unflagged_duplicates, 0),
            at_most("left_in_the_queue", self._depth(), 0),
            at_least("shares_looked_at", len(self._unevenness), 1),
            at_most("most_uneven_share", round(max(self._unevenness, default=0.0), 3), MAX_UNEVENNESS),
            Finding("redelivered", log.redelivered),
            Finding("duplicates", log.duplicates),
            Finding("connections", self._connections),
            at_most("peak_rss_anon_bytes", self._watch.peak, MAX_RSS_ANON),
            Finding("elapsed_seconds", round(elapsed, 3)),
            Finding("acknowledged_per_s", round(self._acknowledged / elapsed)),
        ]
