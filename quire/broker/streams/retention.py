"""Retention: which records of a stream go, and when.

Three rules, from the stream's policy: what is older than ``retention_time`` goes; the oldest go while there are more
bytes than ``retention_bytes``, from each partition its share; with ``retention_groups_done`` what all groups have
finished goes, if there are any.

Some records stay for now: those that members of groups have in flight, those that waiting retries need, those that are
pinned (``pins``). The rules end at what is pinned, and while a partition can give up nothing because of that, its bytes
do not count. What is in flight or needed by a retry is passed over, and looked at again, a step each second.

Everything is done in steps (``Steps``): a bounded look at one partition, the commit of what it removes, a pause. No
body is read, but for a few in a search by time, and where times are in no order (``Partition.ordered_from``).
"""

from collections.abc import Iterator
from copy import copy
from functools import reduce
from typing import Protocol

from quire.broker.streams.groups.group import GroupedStream
from quire.broker.streams.partition import Partition, Pins
from quire.cursors.ack_set import AckSet
from quire.errors import StoreCorrupt
from quire.store.base import Link, StoreReader
from quire.store.positions import extent, offset_at, sound_page, time_from, timestamp_of

STEP = 1000
"""How many records one step looks at."""

STEP_BYTES = 1 << 20
"""How many bytes of records it reads where their times are not in order, if one record is not larger."""

PAUSE = 0.01
"""How long what is to go gathers between two steps, in seconds."""

CHECK_PERIOD = 1.0
"""How often time is looked at, and what was passed over, in seconds."""

_Range = tuple[int, int]


class _Place:
    """How far retention has come in one partition.

    Attributes:
        partition: which.
        passed: what is before this offset was due by age or size, and is gone or was passed over.
        again: where the next look at what was passed over begins.
        is_again_due: whether there is to be one.
        done: where the next look for what all groups have finished begins.
        is_done_due: whether there is to be one.
        surplus: how many bytes it has to give up still, by its share of what the stream has too many.
        old_before: what is before this offset was too old when time was looked at.
        look_at: when it is to be looked at again, in milliseconds since the epoch.
        look_by: the same by the steady time: whichever comes first, if the clock is set meanwhile.
    """

    __slots__ = (
        "again", "done", "is_again_due", "is_done_due", "look_at", "look_by", "old_before", "partition", "passed",
        "surplus",
    )  # fmt: skip

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.passed = self.again = self.done = 0
        self.is_again_due = False
        self.is_done_due = True
        self.surplus = self.old_before = self.look_at = self.look_by = 0

    @property
    def next(self) -> int:
        """The first offset that was not looked at yet, or one before it that has no record."""
        return max(self.passed, self.partition.head)


class RetainedStream(GroupedStream, Protocol):
    """The stream that retention is for.

    Attributes:
        pins: what has to stay whatever the policy says.
    """

    pins: Pins


class Retention:
    """Removes records of one stream, as long as it is there.

    Args:
        stream: the stream. Its partitions say when they have grown (``grown``), its groups when they have finished
            something (``finished``).
    """

    def __init__(self, stream: RetainedStream) -> None:
        self._stream = stream
        self._core = stream.core
        self._places: dict[int, _Place] = {}
        self._turn = 0
        self._is_busy = False
        self._core.scheduler.call_later(CHECK_PERIOD, self._check)

    # When there is something to do.

    def grown(self) -> None:
        """Messages were stored."""
        if self._stream.policy.retention_bytes:
            self._wake()

    def finished(self, partition: int) -> None:
        """A group has finished messages of a partition, or is gone."""
        if self._stream.policy.retention_groups_done:
            self._place(partition).is_done_due = True
            self._wake()

    def policy_changed(self) -> None:
        """Another policy applies from now on."""
        self._places.clear()
        self._wake()

    def _check(self) -> None:
        if not self._is_there:
            return
        self._core.scheduler.call_later(CHECK_PERIOD, self._check)
        self._stream.pins.expire()
        for place in self._places.values():
            place.is_again_due = place.is_done_due = True
        self._wake()

    def _wake(self) -> None:
        if not self._is_busy:
            self._is_busy = True
            self._plan()

    def _plan(self) -> None:
        self._core.scheduler.call_later(PAUSE, self._begin)

    def _begin(self) -> None:
        self._core.steps.add(self._step, f"retention of {self._stream.destination.name}")

    @property
    def _is_there(self) -> bool:
        """Whether the stream was not deleted."""
        return not self._stream.is_deleted

    def _place(self, index: int) -> _Place:
        place = self._places.get(index)
        if place is None:
            place = self._places[index] = _Place(self._stream.partitions[index])
        return place

    # A step.

    def _step(self) -> bool:
        """Look at the next partition that has something; if there is one, it goes on after the commit and a pause."""
        self._is_busy = self._is_there and self._look_at_all()
        if self._is_busy:
            self._core.after_commit(self._plan)
        return False

    def _look_at_all(self) -> bool:
        count = len(self._stream.partitions)
        self._share_out()
        for _ in range(count):
            self._turn = (self._turn + 1) % count
            if self._look(self._turn):
                return True
        return False

    def _look(self, index: int) -> bool:
        """Let go what may go of the next records of a partition that are due; whether there were some.

        How far it has come is noted when everything is read.
        """
        place = copy(self._place(index))
        links = self._passed(place) or self._due(place) or self._done(place)
        kept = self._kept(place.partition, links[0].sequence, links[-1].sequence) if links else set()
        self._places[index] = place
        if going := [link for link in links if link.sequence not in kept]:
            place.partition.remove(going)
        return bool(links)

    def _kept(self, partition: Partition, first: int, last: int) -> set[int]:
        """The offsets in a range whose records stay for now.

        What is being acknowledged is among them: a transaction that fails brings it back.
        """
        busy = [subscriber.out_sequences() for subscriber in partition.subscribers]
        kept = {sequence for sequences in busy for sequence in sequences if first <= sequence <= last}
        for group in self._stream.groups.values():
            if group.retries is not None:
                kept.update(group.retries.pinned(partition.lane, first, last, STEP))
        return kept

    # What goes by age or size: the oldest first.

    def _due(self, place: _Place) -> list[Link]:
        """The next records of a partition that are too old or too many."""
        old_before, end = self._old_before(place), self._end(place)
        if not place.partition.count or place.next >= (end if place.surplus > 0 else min(end, old_before)):
            return []
        due: list[Link] = []
        for link in self._core.store.links(place.partition.lane, place.next, STEP):
            if link.sequence >= end or (link.sequence >= old_before and place.surplus <= 0):
                break
            due.append(link)
            place.surplus -= link.size
            place.passed = link.sequence + 1
        return due

    def _old_before(self, place: _Place) -> int:
        """The first offset of a partition that is not too old."""
        kept_for = round(self._stream.policy.retention_time * 1000)
        if kept_for < 0:
            return 0
        wall = self._core.wall
        now, steady, latest = wall.past_ms(), wall.steady_ms(), wall.future_ms()
        if now >= place.look_at or steady >= place.look_by:
            with self._core.store.snapshot() as reader:
                lane, young = place.partition.lane, now - kept_for + 1
                if place.next < place.partition.ordered_from:
                    place.old_before, is_known = _walk(reader, place, young, latest)
                else:
                    place.old_before, is_known = offset_at(reader, lane, young, place.next, latest), True
                oldest = time_from(reader, lane, place.old_before) if is_known else None
            if is_known:
                left = kept_for if oldest is None else 0 if oldest > latest else oldest + kept_for - now
                left = max(left, round(CHECK_PERIOD * 1000))
                place.look_at, place.look_by = now + left, steady + left
        return place.old_before

    def _share_out(self) -> None:
        """Say how many bytes each partition has to give up: its share, by bytes, of what the stream has too many."""
        limit = self._stream.policy.retention_bytes
        if not limit:
            return
        excess, givers = -limit, []
        for index in range(len(self._stream.partitions)):
            place = self._place(index)
            if place.next < self._stream.pins.first(index):
                excess += place.partition.bytes
            if place.partition.count and place.next < self._end(place):
                givers.append(place)
            else:
                place.surplus = 0
        is_begun = any([place.surplus > 0 for place in givers])
        whole = sum([place.partition.bytes for place in givers])
        for place in givers:
            share = place.surplus if is_begun else -(-excess * place.partition.bytes // whole)
            place.surplus = max(min(share, excess), 0)

    def _end(self, place: _Place) -> int:
        """The first offset of a partition that may not go: it is pinned, or its commit is not announced."""
        return min(self._stream.pins.first(place.partition.index), place.partition.announced + 1)

    def _passed(self, place: _Place) -> list[Link]:
        """Some of the records that were due and had to stay: perhaps they can go now."""
        if not (place.is_again_due and 0 < place.partition.head < place.passed):
            return []
        place.is_again_due = False
        links = self._core.store.links(place.partition.lane, place.again, STEP)
        place.again = links[-1].sequence + 1 if len(links) == STEP else 0
        end = min(place.passed, self._end(place))
        return [link for link in links if link.sequence < end]

    # What goes because it is done.

    def _done(self, place: _Place) -> list[Link]:
        """The next records of a partition that all groups have finished."""
        partition = place.partition
        sets = [subscriber.finished for subscriber in partition.subscribers if subscriber.is_stored]
        if not (place.is_done_due and sets and self._stream.policy.retention_groups_done):
            return []
        ranges = reduce(_common, [_finished(ack_set) for ack_set in sets], _present(partition))
        end = self._end(place)
        start = next((max(first, place.done) for first, last in ranges if last >= place.done), end)
        if start >= end:
            place.done, place.is_done_due = 0, False
            return []
        links = self._core.store.links(partition.lane, start, STEP)
        place.done = links[-1].sequence + 1 if links else end
        return [link for link in links if link.sequence < end and all([link.sequence in s for s in sets])]


def _walk(reader: StoreReader, place: _Place, young: int, latest: int) -> tuple[int, bool]:
    """Where the first young record of a partition is, of those whose times are in no order.

    A record is as old as the youngest one before it: so none goes that is younger than it may be. One with a time after
    the latest possible one is as old as the next one without.
    """
    lane, first = place.partition.lane, place.next
    until = min(place.partition.ordered_from, extent(reader, lane).end)
    if first >= until:
        return until, False
    try:
        page = sound_page(reader, lane, first, until, STEP_BYTES, STEP)
    except StoreCorrupt as damage:
        return damage.data["sequence"] + 1, False
    ahead = 0
    for message in page.messages:
        if young <= (time := timestamp_of(message)) <= latest:
            return ahead or message.sequence, True
        ahead = 0 if time < young else ahead or message.sequence
    if ahead:
        return ahead, True
    return until if page.end else page.messages[-1].sequence + 1, False


def _finished(ack_set: AckSet) -> Iterator[_Range]:
    """The ranges of what is finished, in ascending order."""
    if ack_set.base:
        yield 1, ack_set.base
    yield from ack_set.ranges()


def _present(partition: Partition) -> Iterator[_Range]:
    """The ranges of offsets that have a record."""
    start = 1
    for first, last in _finished(partition.gone):
        if start < first:
            yield start, first - 1
        start = last + 1
    if start <= partition.announced:
        yield start, partition.announced


def _common(left: Iterator[_Range], right: Iterator[_Range]) -> Iterator[_Range]:
    """What the ranges of two have in common."""
    one, other = next(left, None), next(right, None)
    while one and other:
        first, last = max(one[0], other[0]), min(one[1], other[1])
        if first <= last:
            yield first, last
        if one[1] < other[1]:
            one = next(left, None)
        else:
            other = next(right, None)
