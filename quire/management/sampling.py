"""What the broker sees of itself every few seconds: rates, history, what needs attention.

The sampler looks at all destinations, durable subscriptions and consumer groups in steps. It remembers of each a
history in arrays of a fixed size, and the age of its first message, whose header is read only when another one is
first. Concerns are judged for each object when it is sampled, and bounded in number.
"""

import heapq
from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import isnan, nan
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from quire.broker.queues.browsing import read, timestamp
from quire.broker.queues.shared_lane import LaneSubscription
from quire.broker.streams.groups.groups import EXTERNAL
from quire.errors import InvalidArgument, StoreError

if TYPE_CHECKING:
    from quire.broker.broker import Broker
    from quire.broker.queues.queue import LaneDispatch
    from quire.broker.streams.groups.group import Group
    from quire.broker.streams.stream import Stream
    from quire.broker.topics.topic import Topic
    from quire.message import Message


KINDS = ("queue", "topic", "stream", "durable", "group")  # the kinds of objects


def objects(broker: "Broker") -> Iterator[tuple[str, list[Any]]]:
    found = broker.destinations
    yield "queue", list(found.queues.values())
    yield "topic", list(found.topics.values())
    yield "stream", list(found.streams.values())
    yield "durable", list(broker.durables)
    yield "group", list(broker.groups.all())


def name_of(kind: str, source: Any) -> str:
    """The name of an object: ``orders``, ``CLIENT/SUBSCRIPTION``, ``STREAM/GROUP``."""
    if kind == "durable":
        return "/".join(source.key)
    if kind == "group":
        return f"{source.definition.stream}/{source.name}"
    return str(source.destination.name)


def existing(broker: "Broker", kind: str, name: str) -> Any:
    if kind == "durable":
        client, _, subscription = name.partition("/")
        for durable in broker.durables:  # a client id may have a slash too
            if name_of(kind, durable) == name:
                return durable
        return broker.durables.existing(client, subscription)
    if kind == "group":
        stream, _, group = name.rpartition("/")
        return broker.groups.existing(stream, group)
    finders = {
        "queue": broker.destinations.existing_queue, "topic": broker.destinations.existing_topic,
        "stream": broker.destinations.existing_stream,
    }  # fmt: skip
    if kind not in finders:
        raise InvalidArgument(f"{kind[:60]!r} is no kind: write {', '.join(KINDS)}", argument="of")
    return finders[kind](name)


def lanes_of(kind: str, source: Any) -> "list[LaneDispatch]":
    if kind in ("queue", "durable"):
        return [source]
    if kind == "group":
        return [*source.partitions, *([] if source.retries is None else [source.retries])]
    return []


SERIES = 4  # the values of a point: rate in, rate out, depth, age of the oldest message


class Span(NamedTuple):
    name: str  # as a request names it
    seconds: int  # how many seconds it covers
    step: int  # how many seconds are between two points, if the broker is not too busy
    points: int  # how many points it keeps


SPANS = (Span("5m", 300, 2, 150), Span("1h", 3600, 60, 60), Span("24h", 86_400, 900, 96))

HISTORY_BYTES = sum([span.points * SERIES * array("f").itemsize + 80 for span in SPANS]) + 300
"""The memory of one history in bytes, about."""


class Point(NamedTuple):
    entered: float | None
    left: float | None
    depth: float | None
    oldest: float | None


class Timeline:
    """The times of the points of a span: all histories have their points at the same times."""

    def __init__(self, span: Span) -> None:
        self.span = span
        self.slot = -1  # the newest point
        self._at = [0] * span.points  # by the steady time; 0 for none

    def is_due(self, steady_ms: int) -> bool:
        return self.slot < 0 or steady_ms - self._at[self.slot] >= self.span.step * 1000

    @property
    def next_slot(self) -> int:
        return (self.slot + 1) % self.span.points

    def advance(self, steady_ms: int) -> None:
        self.slot = self.next_slot
        self._at[self.slot] = steady_ms

    def slots(self, steady_ms: int) -> Iterator[tuple[int, int]]:
        first = steady_ms - self.span.seconds * 1000
        for number in range(self.slot + 1, self.slot + 1 + self.span.points):
            slot = number % self.span.points
            if self._at[slot] > max(first, 0):
                yield slot, self._at[slot]


class History:
    """The points of one object. The counters at the last coarse point tell the mean rates of the next one."""

    __slots__ = ("_began", "_rings")

    def __init__(self, now: float, entered: int, left: int) -> None:
        self._rings = [array("f", [nan]) * (span.points * SERIES) for span in SPANS]
        self._began = [(now, entered, left) for _ in SPANS]

    def note(self, span: int, slot: int, now: float, entered: int, left: int, depth: int, age: float | None) -> None:
        """Write a point of one span: the mean rates since the last one, and what holds now."""
        since, entered_then, left_then = self._began[span]
        self._began[span] = (now, entered, left)
        elapsed = now - since
        rate_in = max(entered - entered_then, 0) / elapsed if elapsed > 0 else nan
        rate_out = max(left - left_then, 0) / elapsed if elapsed > 0 else nan
        start = slot * SERIES
        self._rings[span][start : start + SERIES] = array("f", [rate_in, rate_out, depth, nan if age is None else age])

    def point(self, span: int, slot: int) -> Point:
        start = slot * SERIES
        values = self._rings[span][start : start + SERIES]
        return Point(*[None if isnan(value) else round(value, 3) for value in values])


class Counts(NamedTuple):
    entered: int
    left: int
    depth: int


class Sampled:
    """The last look at one object."""

    __slots__ = (
        "alone_since", "concern", "depth", "entered", "first_at", "history", "in_rate", "left", "left_at", "moved_at",
        "out_rate",
    )  # fmt: skip

    def __init__(self, now: float) -> None:
        self.entered = self.left = self.depth = 0
        self.in_rate = self.out_rate = 0.0
        self.moved_at = -1.0  # when it last had traffic, on the monotonic clock
        self.left_at = now  # when a message last left it, or came while it was empty
        self.alone_since: float | None = None  # since when it has messages and no consumer
        self.first_at: int | None = None  # when its first message was sent, in ms since the epoch
        self.concern = ""  # the code of what needs attention
        self.history: History | None = None  # None without traffic

    def take(self, counts: Counts, now: float, elapsed: float) -> bool:
        """Take the counters. Whether anything has left, or the depth fell: another message may be first."""
        entered, left, depth = counts
        came, went = max(entered - self.entered, 0), max(left - self.left, 0)
        if elapsed > 0:
            self.in_rate, self.out_rate = came / elapsed, went / elapsed
            if came or went:
                self.moved_at = now
        other_first = bool(went) or depth < self.depth or self.depth == 0
        if went or self.depth == 0:
            self.left_at = now
        self.entered, self.left, self.depth = entered, left, depth
        if depth == 0:
            self.first_at = None
        return other_first and depth > 0


def lane_counts(source: Any) -> Counts:
    return Counts(source.enqueued, source.dequeued, source.depth)


def topic_counts(topic: "Topic") -> Counts:
    """What leaves a topic is what all its subscriptions are given."""
    given = topic.dispatched + sum([durable.dispatched for durable in topic.durables])
    return Counts(topic.enqueued, given, topic.depth)


def stream_counts(stream: "Stream") -> Counts:
    """What leaves a stream is what all its groups acknowledge."""
    return Counts(stream.enqueued, sum([_acknowledged(group) for group in stream.groups.values()]), stream.count)


def group_counts(group: "Group") -> Counts:
    return Counts(sum([part.enqueued for part in group.partitions]), _acknowledged(group), group.lag)


def _acknowledged(group: "Group") -> int:
    retried = 0 if group.retries is None else group.retries.dequeued
    return retried + sum([part.dequeued for part in group.partitions])


COUNTS: dict[str, Callable[[Any], Counts]] = {
    "queue": lane_counts, "topic": topic_counts, "durable": lane_counts, "stream": stream_counts,
    "group": group_counts,
}  # fmt: skip
"""How the counts of each kind of object are read."""


class FirstMessages:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._known: WeakKeyDictionary[LaneDispatch, tuple[int, int]] = WeakKeyDictionary()

    def age(self, queue: "LaneDispatch") -> float | None:
        sent = self.sent_at(queue)
        return None if sent is None else max(self._broker.core.clock.now_ms() - sent, 0) / 1000

    def sent_at(self, queue: "LaneDispatch") -> int | None:
        if queue.depth == 0:
            return None
        try:
            return self._timestamp(queue)
        except StoreError:  # the part that has to read the message tells of it
            return None

    def _timestamp(self, queue: "LaneDispatch") -> int | None:
        head, known = self._head_sequence(queue), self._known.get(queue)
        if known is None or known[0] != head:
            messages = self._read(queue, head)
            if not messages:
                return None
            known = self._known[queue] = (head, timestamp(messages[0]))
        return known[1]

    def _read(self, queue: "LaneDispatch", head: int) -> "list[Message]":
        """The first message; a subscription may have to pass over much to find the next one, so it is not asked."""
        if isinstance(queue, LaneSubscription):
            return [message for lane in queue.lanes for message in lane.reader.load(lane.id, [head])]
        return read(self._broker.core, queue, head, 0, 1).messages

    def _head_sequence(self, queue: "LaneDispatch") -> int:
        heads = [message.sequence for message in queue.unstored_from(0, 1, in_flight=True)]
        for lane in queue.lanes:
            if (head := lane.head()) is not None:
                heads.append(head)
            if not self._broker.core.spool.is_empty(lane.id):
                heads += [link.sequence for link in self._broker.core.spool.links(lane.id, 0, 1)]
        return min(heads, default=0)


MOST = 50  # how many concerns are kept, the worst first

CRITICAL, WARNING, INFO = range(3)
SEVERITIES = ("critical", "warning", "info")  # the words of the ranks
ALONE = 10.0  # messages without a consumer for longer than so many seconds are told of

IDLE = 30.0
"""A consumer that takes nothing for longer than so many seconds is told of, and one that is slow for so long."""

OLD = 300.0  # a message that waits for longer than so many seconds is told of
VERY_OLD = 3600.0  # so is one that waits for so long, and that is worse


class Concern(NamedTuple):
    """The smallest is the worst."""

    rank: int  # CRITICAL, WARNING or INFO
    weight: float  # of two with the same rank the one with less weight is worse
    code: str  # what is wrong
    kind: str  # the kind of object
    name: str  # its name
    number: int  # of messages, or of consumers
    age: float | None  # for how long, in seconds


class Concerns:
    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._kept: list[Concern] = []

    def add(self, concern: Concern) -> None:
        self.counts[concern.code] += 1
        self._kept.append(concern)
        if len(self._kept) >= 10 * MOST:
            self._kept = heapq.nsmallest(MOST, self._kept)

    def worst(self) -> list[Concern]:
        return heapq.nsmallest(MOST, self._kept)


def concern_of(kind: str, name: str, source: Any, known: Sampled, now: float, now_ms: int) -> Concern | None:
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


BUDGET = 0.002  # how long one step takes, in seconds
BETWEEN = 16  # after so many objects the time is looked at

HEADS = 300
"""Of so many objects one pass reads when their first message was sent; the others have their turn in the next ones."""

MOST_HISTORIES = 1000  # how many objects have a history
QUIET = 300.0  # one that had no traffic for so many seconds gives its history up when another one needs it


@dataclass(slots=True)
class Sample:
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
        """Whether there are more."""
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


INTERVAL = 2.0  # how many seconds are between two passes, at the least
SHARE = 100  # the pause after a pass is at least so many times what the pass took: it never takes more than a hundredth


class Sampler:
    """One sampler for all who look. It samples from ``start`` on."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._clock = broker.core.clock
        self._sampled: dict[Any, Sampled] = {}
        self._waiting: dict[Any, str] = {}
        self._entered = self._left = 0
        self._busy = 0.0
        self.first_messages = FirstMessages(broker)
        self.timelines = [Timeline(span) for span in SPANS]
        self.latest = Sample()  # what the last whole pass found
        self.history = History(self._clock.monotonic(), 0, 0)  # of the whole broker

    def start(self) -> None:
        self._begin()

    def of(self, source: Any) -> Sampled | None:
        """What is known of an object; None if it has not been looked at yet."""
        return self._sampled.get(source)

    def rates(self, source: Any) -> tuple[float, float]:
        known = self._sampled.get(source)
        return (0.0, 0.0) if known is None else (round(known.in_rate, 3), round(known.out_rate, 3))

    def age(self, source: Any) -> float:
        """The age of an object's first message when it was last looked at, in seconds; -1 if unknown."""
        known = self._sampled.get(source)
        if known is None or known.first_at is None:
            return -1.0
        return max(self._clock.now_ms() - known.first_at, 0) / 1000

    def sample(self) -> None:
        work = self._new_pass()
        while work.step():
            pass
        self._take(work)

    def _begin(self) -> None:
        work, self._busy = self._new_pass(), 0.0

        def step() -> bool:
            began = self._clock.monotonic()
            has_more = work.step()
            if not has_more:
                self._take(work)
            self._busy += self._clock.monotonic() - began
            if not has_more:
                self._broker.core.scheduler.call_later(max(INTERVAL, self._busy * SHARE), self._begin)
            return has_more

        self._broker.core.steps.add(step, "the sample of all destinations", stores=False)

    def _new_pass(self) -> SamplePass:
        return SamplePass(self._broker, self._sampled, self.latest, self.timelines, self.first_messages, self._waiting)

    def _take(self, work: SamplePass) -> None:
        sample, last = work.sample, self.latest
        self._sampled = work.sampled
        self._entered += sample.entered
        self._left += sample.left
        elapsed = sample.at - last.at
        if last.at_ms and elapsed > 0:
            sample.in_rate, sample.out_rate = sample.entered / elapsed, sample.left / elapsed
        age = None if sample.oldest is None else max(sample.at_ms - sample.oldest[0], 0) / 1000
        for index in work.due:
            line = self.timelines[index]
            self.history.note(index, line.next_slot, sample.at, self._entered, self._left, sample.depth, age)
            line.advance(sample.steady_ms)
        self.latest = sample
