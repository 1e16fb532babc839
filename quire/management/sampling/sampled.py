"""What the sampler remembers of one destination, durable subscription or group."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from quire.broker.streams.groups.group import Group
    from quire.broker.streams.stream import Stream
    from quire.broker.topics.topic import Topic
    from quire.management.sampling.history import History


class Counts(NamedTuple):
    """The counters of an object: they only go up; and how many messages it has."""

    entered: int
    left: int
    depth: int


class Sampled:
    """The last look at one object.

    Attributes:
        entered: how many messages had come.
        left: how many had left: acknowledged, or delivered by a topic.
        depth: how many messages it had.
        in_rate: messages that come, per second.
        out_rate: messages that leave, per second.
        moved_at: when it last had traffic, on the monotonic clock.
        left_at: when a message last left it, or came while it was empty.
        alone_since: since when it has messages and no consumer; None if it has either none or some.
        first_at: when its first message was sent, in milliseconds since the epoch; None if unknown or empty.
        concern: the code of what needs attention; empty for nothing.
        history: its last minutes and hours; None without traffic.
    """

    __slots__ = (
        "alone_since", "concern", "depth", "entered", "first_at", "history", "in_rate", "left", "left_at", "moved_at",
        "out_rate",
    )  # fmt: skip

    def __init__(self, now: float) -> None:
        self.entered = self.left = self.depth = 0
        self.in_rate = self.out_rate = 0.0
        self.moved_at, self.left_at = -1.0, now
        self.alone_since: float | None = None
        self.first_at: int | None = None
        self.concern = ""
        self.history: History | None = None

    def take(self, counts: Counts, now: float, elapsed: float) -> bool:
        """Take what the counters say now. Whether anything has left, or the depth fell: another message may be first.

        Args:
            counts: the counters.
            now: the time on the monotonic clock.
            elapsed: how many seconds ago they were read before; 0 if this is the first time.
        """
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
    """The counts of a queue or a durable subscription."""
    return Counts(source.enqueued, source.dequeued, source.depth)


def topic_counts(topic: "Topic") -> Counts:
    """The counts of a topic: what leaves it is what all its subscriptions are given."""
    given = topic.dispatched + sum([durable.dispatched for durable in topic.durables])
    return Counts(topic.enqueued, given, topic.depth)


def stream_counts(stream: "Stream") -> Counts:
    """The counts of a stream: what leaves it is what all its groups acknowledge."""
    return Counts(stream.enqueued, sum([_acknowledged(group) for group in stream.groups.values()]), stream.count)


def group_counts(group: "Group") -> Counts:
    """The counts of a consumer group; its depth is its lag."""
    return Counts(sum([part.enqueued for part in group.partitions]), _acknowledged(group), group.lag)


def _acknowledged(group: "Group") -> int:
    retried = 0 if group.retries is None else group.retries.dequeued
    return retried + sum([part.dequeued for part in group.partitions])


COUNTS: dict[str, Callable[[Any], Counts]] = {
    "queue": lane_counts, "topic": topic_counts, "durable": lane_counts, "stream": stream_counts,
    "group": group_counts,
}  # fmt: skip
"""How the counts of each kind of object are read."""
