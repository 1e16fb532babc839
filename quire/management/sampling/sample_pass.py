"""One look at all objects, in steps."""

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from quire.management.sampling.concerns import Concerns, concern_of
from quire.management.sampling.history import History, Timeline
from quire.management.sampling.objects import lanes_of, name_of, objects
from quire.management.sampling.sampled import COUNTS, Sampled

if TYPE_CHECKING:
    from quire.broker.broker import Broker
    from quire.management.sampling.first_messages import FirstMessages

BUDGET = 0.002
"""How long one step takes, in seconds."""

BETWEEN = 16
"""After so many objects the time is looked at."""

HEADS = 300
"""Of so many objects one pass reads when their first message was sent; the others have their turn in the next ones."""

MOST_HISTORIES = 1000
"""How many objects have a history."""

QUIET = 300.0
"""One that had no traffic for so many seconds gives its history up when another one needs it."""


@dataclass(slots=True)
class Sample:
    """What one pass found of all objects together."""

    at_ms: int = 0  # when it began, in milliseconds since the epoch
    at: float = 0.0  # the same on the monotonic clock
    steady_ms: int = 0  # the same by the steady time
    entered: int = 0  # messages that came since the pass before
    left: int = 0  # messages that left since then
    in_rate: float = 0.0
    out_rate: float = 0.0
    depth: int = 0  # messages in queues, and in the backlog of durable subscriptions
    in_flight: int = 0
    consumers: int = 0
    oldest: tuple[int, str, str] | None = None  # when the oldest message was sent, and the kind and name of its object
    histories: int = 0
    concerns: Concerns = field(default_factory=Concerns)


class SamplePass:
    """One pass; ``sampled`` has what it found when it is done: what is gone by then is not in it."""

    def __init__(
        self, broker: "Broker", before: dict[Any, Sampled], last: Sample, timelines: list[Timeline],
        heads: "FirstMessages", waiting: dict[Any, str],
    ) -> None:  # fmt: skip
        clock = broker.core.clock
        self._clock = clock
        self._before = before
        self._heads = heads
        self._waiting = waiting  # objects whose first message is to be looked at, with their kinds
        self.sampled: dict[Any, Sampled] = {}
        self.sample = Sample(clock.now_ms(), clock.monotonic(), broker.core.wall.steady_ms())
        self._elapsed = self.sample.at - last.at if last.at_ms else 0.0
        self._work = [(kind, source) for kind, sources in objects(broker) for source in sources]
        self._next = self._looked = 0
        self.due = [index for index, line in enumerate(timelines) if line.is_due(self.sample.steady_ms)]
        self._slots = [(index, timelines[index].next_slot) for index in self.due]
        self._spare = self._histories_to_give_up()
        self._histories = sum([known.history is not None for known in before.values()])

    def step(self) -> bool:
        """Look at some more; whether there are more."""
        end = self._clock.monotonic() + BUDGET
        while self._next < len(self._work):
            some = self._work[self._next : self._next + BETWEEN]
            self._next += len(some)
            for kind, source in some:
                self._look(kind, source)
            if self._clock.monotonic() >= end:
                return True
        while self._waiting and self._looked < HEADS:
            self._looked += 1
            source = next(iter(self._waiting))
            self._look_at_first(self._waiting.pop(source), source)
            if self._clock.monotonic() >= end:
                return True
        self.sample.histories = self._histories
        return False

    def _look(self, kind: str, source: Any) -> None:
        known = self._before.get(source)
        elapsed = self._elapsed
        if known is None:  # its counters began at zero, after the pass before
            known = Sampled(self.sample.at)
        self.sampled[source] = known
        counts, entered, left = COUNTS[kind](source), known.entered, known.left
        if known.take(counts, self.sample.at, elapsed):
            self._waiting[source] = kind
        self._note_alone(kind, source, known)
        if elapsed:
            self._count(kind, counts.entered - entered, counts.left - left)
        if kind in ("queue", "durable"):
            self._count_lane(source, known)
        self._judge(kind, source, known)
        if known.history is not None or self._begins_history(known, entered, left):
            self._note_history(known)

    def _count(self, kind: str, came: int, went: int) -> None:
        """Messages come to destinations; they leave queues, topics' subscriptions and groups: each counts once."""
        if kind in ("queue", "topic", "stream"):
            self.sample.entered += max(came, 0)
            self.sample.left += max(went, 0)

    def _count_lane(self, source: Any, known: Sampled) -> None:
        self.sample.depth += known.depth
        if source.subscriptions:
            self.sample.consumers += len(source.subscriptions)
            self.sample.in_flight += source.in_flight

    def _note_alone(self, kind: str, source: Any, known: Sampled) -> None:
        """Note since when an object has messages and no consumer."""
        if kind == "group":
            has_some = bool(source.members)
        else:
            has_some = kind in ("topic", "stream") or bool(source.subscriptions)
        if has_some or not known.depth:
            known.alone_since = None
        elif known.alone_since is None:
            known.alone_since = self.sample.at

    def _judge(self, kind: str, source: Any, known: Sampled) -> None:
        if not known.depth and not (kind == "queue" and source.paused):
            known.concern = ""
            return
        name = name_of(kind, source)
        if known.first_at is not None and (self.sample.oldest is None or known.first_at < self.sample.oldest[0]):
            self.sample.oldest = (known.first_at, kind, name)
        found = concern_of(kind, name, source, known, self.sample.at, self.sample.at_ms)
        known.concern = "" if found is None else found.code
        if found is not None:
            self.sample.concerns.add(found)

    def _begins_history(self, known: Sampled, entered: int, left: int) -> bool:
        """An object that had traffic since the last pass, when the counters had some values, gets a history."""
        if known.moved_at < self.sample.at or not self._elapsed or not self._has_room():
            return False
        known.history = History(self.sample.at - self._elapsed, entered, left)
        self._histories += 1
        return True

    def _note_history(self, known: Sampled) -> None:
        age = None if known.first_at is None else max(self.sample.at_ms - known.first_at, 0) / 1000
        if (history := known.history) is not None:
            for index, slot in self._slots:
                history.note(index, slot, self.sample.at, known.entered, known.left, known.depth, age)

    def _has_room(self) -> bool:
        """Whether one more object may have a history: there are not too many, or one gives its own up."""
        if self._histories < MOST_HISTORIES:
            return True
        if not self._spare:
            return False
        self._spare.popleft().history = None
        self._histories -= 1
        return True

    def _histories_to_give_up(self) -> deque[Sampled]:
        """Objects that had no traffic for long, the longest first."""
        quiet = [
            known for known in self._before.values()
            if known.history is not None and self.sample.at - known.moved_at >= QUIET
        ]  # fmt: skip
        return deque(sorted(quiet, key=lambda known: known.moved_at))

    def _look_at_first(self, kind: str, source: Any) -> None:
        known = self.sampled.get(source)
        if known is not None and known.depth:
            found = [self._heads.sent_at(lane) for lane in lanes_of(kind, source)]
            known.first_at = min([sent for sent in found if sent is not None], default=None)
