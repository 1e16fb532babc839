"""What needs an operator's attention: judged for each object when it is sampled, bounded in number."""

import heapq
from collections import Counter
from typing import Any, NamedTuple

from quire.broker.streams.groups.groups import EXTERNAL
from quire.management.sampling.sampled import Sampled

MOST = 50
"""How many concerns are kept, the worst first."""

CRITICAL, WARNING, INFO = range(3)
SEVERITIES = ("critical", "warning", "info")
"""The words of the ranks."""

ALONE = 10.0
"""Messages without a consumer for longer than so many seconds are told of."""

IDLE = 30.0
"""A consumer that takes nothing for longer than so many seconds is told of, and one that is slow for so long."""

OLD = 300.0
"""A message that waits for longer than so many seconds is told of."""

VERY_OLD = 3600.0
"""So is one that waits for so long, and that is worse."""


class Concern(NamedTuple):
    """One thing that needs attention; the smallest is the worst."""

    rank: int  # CRITICAL, WARNING or INFO
    weight: float  # of two with the same rank the one with less weight is worse
    code: str  # what is wrong
    kind: str  # the kind of object
    name: str  # its name
    number: int  # of messages, or of consumers
    age: float | None  # for how long, in seconds


class Concerns:
    """The concerns of one sample: the worst ones, and how many there are of each code."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._kept: list[Concern] = []

    def add(self, concern: Concern) -> None:
        """Note a concern."""
        self.counts[concern.code] += 1
        self._kept.append(concern)
        if len(self._kept) >= 10 * MOST:
            self._kept = heapq.nsmallest(MOST, self._kept)

    def worst(self) -> list[Concern]:
        """The worst ones."""
        return heapq.nsmallest(MOST, self._kept)


def concern_of(kind: str, name: str, source: Any, known: Sampled, now: float, now_ms: int) -> Concern | None:
    """The worst concern of an object, as far as can be told without a read; None if all is well."""
    age = None if known.first_at is None else max(now_ms - known.first_at, 0) / 1000
    if kind == "queue":
        return _queue(name, source, known, now, age)
    if kind == "durable":
        return _durable(name, source, known, now, age)
    return _group(name, source, known, now, age) if kind == "group" else None


def _queue(name: str, queue: Any, known: Sampled, now: float, age: float | None) -> Concern | None:
    depth = known.depth

    def concern(rank: int, code: str, number: int, since: float | None) -> Concern:
        return Concern(rank, -depth, code, "queue", name, number, since)

    if queue.paused:
        return concern(WARNING if depth else INFO, "paused", depth, None)
    if not depth:
        return None
    if queue.is_dead_letter_queue:
        return concern(WARNING, "dead-letters", depth, age)
    if known.alone_since is not None:
        alone = now - known.alone_since
        return None if alone < ALONE else concern(WARNING, "no-consumer", depth, age or alone)
    return _consumed(queue, known, now, age, concern)


def _durable(name: str, durable: Any, known: Sampled, now: float, age: float | None) -> Concern | None:
    def concern(rank: int, code: str, number: int, since: float | None) -> Concern:
        return Concern(rank, -known.depth, code, "durable", name, number, since)

    if not known.depth:
        return None
    if not durable.subscriptions:
        return None if age is None or age < OLD else concern(INFO, "durable-offline", known.depth, age)
    return _consumed(durable, known, now, age, concern)


def _consumed(source: Any, known: Sampled, now: float, age: float | None, concern: Any) -> Concern | None:
    """The concern of what has messages and consumers."""
    idle = now - known.left_at
    if idle >= IDLE:
        found: Concern = concern(WARNING, "consumers-idle", known.depth, idle)
        return found
    if age is not None and age >= OLD:
        found = concern(CRITICAL if age >= VERY_OLD else WARNING, "old-message", known.depth, age)
        return found
    slow = [now - s.full_since for s in source.subscriptions if s.full_since is not None]
    if slow and max(slow) >= IDLE:
        found = concern(INFO, "slow-consumers", len(slow), max(slow))
        return found
    return None


def _group(name: str, group: Any, known: Sampled, now: float, age: float | None) -> Concern | None:
    if not known.depth:
        return None
    if group.definition.start == EXTERNAL:
        if group.name not in group.stream.pins.by_name:  # the reader has ended: that is no fault
            return None
    elif not any([member.connected for member in group.coordinator.members]):
        waits = known.alone_since is not None and now - known.alone_since >= ALONE
        return Concern(WARNING, -known.depth, "no-member", "group", name, known.depth, age) if waits else None
    if age is not None and age >= OLD:
        rank = CRITICAL if age >= VERY_OLD else WARNING
        return Concern(rank, -known.depth, "group-lags", "group", name, known.depth, age)
    return None
