"""What the broker sees of itself every few seconds: rates, history, what needs attention, and the state at a glance.

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
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple
from weakref import WeakKeyDictionary

import msgspec

from quire.broker.core.core import HoldCause
from quire.broker.queues.browsing import read, timestamp
from quire.broker.queues.shared_lane import LaneSubscription
from quire.broker.streams.groups.groups import EXTERNAL
from quire.clock import told
from quire.errors import InvalidArgument, QuireError, StoreError
from quire.management.blocked import cause_text, held_producers
from quire.resources import HeldProducer, Status, doc
from quire.units import format_size

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


NEAR = 0.9  # a limit that is used up to this part is near
HELD_LONG = 10.0  # a producer that is held for so many seconds gets an error soon
VERY_NEAR = 0.97  # one that is used up to this part is reached soon


class Attention(Status, frozen=True):
    """One thing that needs attention."""

    severity: Annotated[Literal["critical", "warning", "info"], doc("How bad it is.")]
    code: Annotated[str, doc("What it is, in one word that stays the same.")]
    text: Annotated[str, doc("What is wrong, in words.")]
    advice: Annotated[str, doc("What to do.")]
    kind: Annotated[str, doc("What it is about: broker, queue, durable or group.")]
    name: Annotated[str, doc("Its name; of a durable subscription CLIENT/NAME, of a group STREAM/GROUP.")]
    since_seconds: Annotated[float | None, doc("For how long; null if unknown.")]


ADVICE = {
    "paused": "Resume it when its consumers may go on.",
    "dead-letters": "Look at their causes, mend the consumer, then redrive or purge them.",
    "no-consumer": "Start a consumer; or purge or delete the queue if its messages are not needed any more.",
    "durable-offline": "Start its client; or delete the durable subscription if it is not needed any more.",
    "consumers-idle": "Look at its consumers: each one says why it is given nothing.",
    "old-message": "Look at the first message and at the consumer that has it; add consumers if they are busy.",
    "slow-consumers": "Add consumers, or let each one do less for a message.",
    "no-member": "Start a member of the group; or delete the group if it is not needed any more.",
    "group-lags": "Add members, as many as there are partitions at the most; look at its retries.",
    "store-failing": "Free space or repair the disk of the store; the broker tries again every second.",
    "producers-held": "Consume or purge messages, free disk space, or raise the limit.",
    "store-near-limit": "Consume or purge messages, or raise store.limit.",
    "spool-near-limit": "Consume or purge non-persistent messages, or raise spool.limit.",
    "memory-near-limit": "Nothing: other messages wait in the store. A higher memory.limit may make deliveries faster.",
    "disk-low": "Free space on the disk.",
    "clock-set": "Synchronise the clock (NTP), and let it be slewed: expirations, schedules and retention go by it.",
    "many-destinations": "Delete destinations that are not used, or raise broker.max_destinations.",
}
"""What to do, by code."""


def attention(broker: "Broker", sampler: "Sampler") -> tuple[list[Attention], int]:
    """The worst concerns, and how many more there are."""
    concerns = sampler.latest.concerns
    found = [_attention(concern, text) for concern, text in _of_broker(broker)]
    total = len(found) + concerns.counts.total()
    found += [_attention(concern, _text(broker, concern)) for concern in concerns.worst()[: MOST - len(found)]]
    found.sort(key=lambda each: SEVERITIES.index(each.severity))
    return found, total - len(found)


def _of_broker(broker: "Broker") -> Iterator[tuple[Concern, str]]:
    core = broker.core
    if (error := broker.failure.error) is not None:
        yield _concern(CRITICAL, "store-failing", broker.failure.age), f"the store accepts no writes: {error}"
    yield from _held(broker)
    uses = (
        ("store", core.stored_bytes, core.settings.store.limit), ("spool", core.spool.used, core.spool.limit),
    )  # fmt: skip
    for what, used, limit in uses:
        if used >= NEAR * limit:
            text = f"the {what} has {format_size(used)} of {format_size(limit)}"
            yield _concern(CRITICAL if used >= VERY_NEAR * limit else WARNING, f"{what}-near-limit"), text
    if core.memory.used >= VERY_NEAR * core.memory.limit:
        text = f"resident messages take {format_size(core.memory.used)} of {format_size(core.memory.limit)}"
        yield _concern(INFO, "memory-near-limit"), text
    for cause, disk in broker.disks.disks.items():
        if disk.room < 2 * disk.limit:
            what = "store" if cause is HoldCause.STORE_DISK else "spool"
            least = format_size(disk.limit)
            text = f"the disk of the {what} has {format_size(disk.room)} left; producers wait below {least}"
            yield _concern(CRITICAL if disk.is_low else WARNING, "disk-low"), text
    yield from _clock(broker)
    limits = core.limits
    if limits.destinations >= NEAR * limits.max_destinations:
        text = f"there are {limits.destinations} of {limits.max_destinations} destinations"
        yield _concern(WARNING, "many-destinations"), text


def _clock(broker: "Broker") -> Iterator[tuple[Concern, str]]:
    clock, step = broker.core.clock, broker.core.wall.latest_step()
    if step is not None:
        yield _concern(WARNING, "clock-set", clock.monotonic() - step.at), told(step)


def _held(broker: "Broker") -> Iterator[tuple[Concern, str]]:
    core = broker.core
    causes = Counter([hold.cause for hold in core.flow.holds.values()])
    for cause, count in causes.items():
        first = next(hold.since for hold in core.flow.holds.values() if hold.cause is cause)
        age = core.clock.monotonic() - first
        text = f"producers wait: {count}, the longest for {age:.0f} s; the cause is {cause}"
        yield _concern(CRITICAL if age >= HELD_LONG else WARNING, "producers-held", age), text


def _text(broker: "Broker", concern: Concern) -> str:
    number, age = f"{concern.number:,}", _age(concern.age)
    texts = {
        "paused": f"deliveries are paused; messages: {number}",
        "dead-letters": f"dead letters: {number}; the oldest is {age} old",
        "no-consumer": f"messages wait, and there is no consumer: {number}; the oldest is {age} old",
        "durable-offline": f"the subscription is offline; messages wait: {number}, the oldest for {age}",
        "consumers-idle": f"consumers have taken nothing for {age}; messages: {number}{_cause(broker, concern)}",
        "old-message": f"the oldest message has waited for {age}; messages: {number}{_cause(broker, concern)}",
        "slow-consumers": f"consumers that do not keep up: {number}, for {age}",
        "no-member": f"messages are not finished, and no member is connected: {number}",
        "group-lags": f"the group lags by {number} messages; the oldest is {age} old",
    }
    return texts[concern.code]


def _cause(broker: "Broker", concern: Concern) -> str:
    try:
        source: Any = existing(broker, concern.kind, concern.name)
    except QuireError:  # it has gone since the sample
        return ""
    text = cause_text(broker, source)
    return f"; {text}" if text else ""


def _concern(rank: int, code: str, age: float | None = None) -> Concern:
    return Concern(rank, 0.0, code, "broker", "", 0, age)


def _attention(concern: Concern, text: str) -> Attention:
    severity: Any = SEVERITIES[concern.rank]
    return Attention(severity, concern.code, text, ADVICE[concern.code], concern.kind, concern.name, concern.age)


def _age(seconds: float | None) -> str:
    if seconds is None:
        return "an unknown time"
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


HELD_SHOWN = 20  # how many held producers are shown, those that wait longest first


class Use(Status, frozen=True):
    """A part of a limit."""

    used: Annotated[int, doc("How many bytes are used.")]
    limit: Annotated[int, doc("The limit in bytes.")]


class DiskSpace(Status, frozen=True):
    """A watched disk."""

    disk: Annotated[Literal["store", "spool"], doc("What is on it.")]
    free: Annotated[int, doc("Available space in bytes.")]
    limit: Annotated[int, doc("With less available space the broker holds producers, in bytes.")]


class OldestMessage(Status, frozen=True):
    """The oldest message that waits."""

    kind: Annotated[str, doc("queue, durable or group.")]
    name: Annotated[str, doc("The name; of a durable subscription CLIENT/NAME, of a group STREAM/GROUP.")]
    age_seconds: Annotated[float, doc("Its age.")]


class ObjectCounts(Status, frozen=True):
    """How many there are."""

    queues: int
    topics: int
    streams: int
    durables: int
    groups: int
    temporaries: int
    scheduled: int
    prepared: int


class HistoryUse(Status, frozen=True):
    """What the history of rates takes."""

    objects: Annotated[int, doc("How many destinations, durable subscriptions and groups have a history.")]
    limit: Annotated[int, doc("How many may have one; those with traffic come first.")]
    bytes: Annotated[int, doc("The memory of all of them in bytes, about.")]


class Overview(Status, frozen=True):
    """The broker as a whole. Rates, depth and ages are those of the last sample, without temporary destinations."""

    name: Annotated[str, doc("The name of the broker.")]
    version: Annotated[str, doc("The version of Quire.")]
    state: Annotated[str, doc("running, stopping, suspended or store-failed.")]
    uptime_seconds: Annotated[float, doc("Seconds since the broker started.")]
    at: Annotated[int, doc("The time of the broker, in milliseconds since the epoch.")]
    sampled_seconds: Annotated[float | None, doc("The age of the last sample; null if there is none yet.")]
    in_rate: Annotated[float, doc("Messages that come to queues, topics and streams, per second.")]
    out_rate: Annotated[float, doc("Messages acknowledged, or delivered by topics, per second.")]
    depth: Annotated[int, doc("Messages in queues, and in the backlog of durable subscriptions.")]
    in_flight: Annotated[int, doc("Those of them that are in flight.")]
    oldest: Annotated[OldestMessage | None, doc("The oldest message, if known.")]
    memory: Annotated[Use, doc("The memory of resident messages.")]
    store: Annotated[Use, doc("The messages in the store.")]
    spool: Annotated[Use, doc("The non-persistent messages in the spool.")]
    disks: Annotated[list[DiskSpace], doc("The watched disks.")]
    held: Annotated[int, doc("How many producers are held.")]
    producers_held: Annotated[list[HeldProducer], doc("The first twenty of them, the longest held first.")]
    connections: Annotated[int, doc("Open connections of clients.")]
    consumers: Annotated[int, doc("Consumers of queues and durable subscriptions.")]
    counts: Annotated[ObjectCounts, doc("The number of destinations and others.")]
    history: Annotated[HistoryUse, doc("What the history takes.")]
    attention: Annotated[list[Attention], doc("What needs attention, the worst first; fifty at the most.")]
    attention_left_out: Annotated[int, doc("How many more there are.")]


def overview(broker: "Broker", sampler: "Sampler", **process: Any) -> Overview:
    """It costs the same however many destinations there are; ``process`` has the fields that only the process knows."""
    sample, core, now = sampler.latest, broker.core, broker.core.clock.now_ms()
    concerns, left_out = attention(broker, sampler)
    return Overview(
        **process, at=now, sampled_seconds=max(now - sample.at_ms, 0) / 1000 if sample.at_ms else None,
        in_rate=round(sample.in_rate, 3), out_rate=round(sample.out_rate, 3), depth=sample.depth,
        in_flight=sample.in_flight, oldest=_oldest(sample, now), memory=Use(core.memory.used, core.memory.limit),
        store=Use(core.stored_bytes, core.settings.store.limit), spool=Use(core.spool.used, core.spool.limit),
        disks=disk_space(broker), held=len(core.flow.holds),
        producers_held=held_producers(broker, most=HELD_SHOWN),
        consumers=sample.consumers, counts=_counts(broker),
        history=HistoryUse(sample.histories, MOST_HISTORIES, (sample.histories + 1) * HISTORY_BYTES),
        attention=concerns, attention_left_out=left_out,
    )  # fmt: skip


def _oldest(sample: "Sample", now: int) -> OldestMessage | None:
    if sample.oldest is None:
        return None
    sent, kind, name = sample.oldest
    return OldestMessage(kind, name, max(now - sent, 0) / 1000)


def _counts(broker: "Broker") -> ObjectCounts:
    found, temporaries = broker.destinations, broker.routing.temporaries
    return ObjectCounts(
        queues=len(found.queues), topics=len(found.topics), streams=len(found.streams),
        durables=len(broker.durables), groups=sum([len(stream.groups) for stream in found.streams.values()]),
        temporaries=len(temporaries.queues) + len(temporaries.topics), scheduled=broker.schedule.depth,
        prepared=len(broker.xa.prepared()),
    )  # fmt: skip


def disk_space(broker: "Broker") -> list[DiskSpace]:
    return [
        DiskSpace("store" if cause is HoldCause.STORE_DISK else "spool", disk.room, disk.limit)
        for cause, disk in broker.disks.disks.items()
    ]


Values = list[float | None]


class HistoryPoints(Status, frozen=True):
    """The last minutes or hours of an object: arrays of the same length. Null stands for what is not known."""

    of: Annotated[str, doc("broker, queue, topic, stream, durable or group.")]
    name: Annotated[str, doc("The name; empty for the broker.")]
    span: Annotated[str, doc("How far back: 5m, 1h or 24h.")]
    step_seconds: Annotated[int, doc("The time between two points, at the least.")]
    at: Annotated[list[int], doc("The times of the points, in milliseconds since the epoch, oldest first.")]
    entered: Annotated[Values, doc("Messages that came, per second, up to each point.")] = msgspec.field(name="in")
    left: Annotated[Values, doc("Messages that left, per second.")] = msgspec.field(name="out")
    depth: Annotated[Values, doc("Messages at that time; of a group its lag.")]
    oldest: Annotated[Values, doc("The age of the first message in seconds.")]


def history(broker: "Broker", sampler: "Sampler", of: str, name: str, span: str) -> HistoryPoints:
    """Without traffic there is no history yet; an unknown object is an error."""
    index = next((index for index, known in enumerate(SPANS) if known.name == span), None)
    if index is None:
        raise InvalidArgument(f"span is {span[:20]!r}: write 5m, 1h or 24h", argument="span")
    found = sampler.history
    if of != "broker":
        known = sampler.of(existing(broker, of, name))
        if known is None or known.history is None:
            return HistoryPoints(of, name, span, SPANS[index].step, [], [], [], [], [])
        found = known.history
    wall = broker.core.wall
    slots = list(sampler.timelines[index].slots(wall.steady_ms()))
    points = [found.point(index, slot) for slot, _ in slots]
    times = [wall.shown_ms(at) for _, at in slots]
    return HistoryPoints(
        of, name, span, SPANS[index].step, times, [point.entered for point in points],
        [point.left for point in points], [point.depth for point in points], [point.oldest for point in points],
    )  # fmt: skip
