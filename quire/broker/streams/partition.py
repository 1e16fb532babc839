"""A partition of a stream: one lane, whose records stay until retention lets them go.

Their timestamps ascend: one that would go back is that of the record before it. But if that lies ahead of the clock by
far, the clock was wrong then: times begin anew (``set_back``), and the later records have their own. What older
versions stored need not be so: ``ordered_from`` says where that ends.

What concerns a partition of a stream in a commit.

Pins: a reader of a stream without a group has its records kept while it is away, for a limited time.

A pin names an offset for each partition it is about: what is there or behind it stays, whatever the policy says. It
ends at its time, unless it is set again before. A batch job that reads ranges (``range_reads``) sets one.

What a commit that fails would have set or released stays as it was. Until its commit is done, both count: what is
pinned now and what was before.

Where in a stream a consumer is to start.

An offset is a record's sequence in its partition's lane, from 1. Offsets ascend and are never used again; some have no
record: retention removed it, or its commit failed.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import msgspec

from quire.broker.core.core import Commit, Core, MarksOwner, MarksPart, Owner
from quire.broker.queues.shared_lane import LaneKeys, read_finished
from quire.cursors.ack_set import AckSet
from quire.cursors.lane import MemoryUsage
from quire.destination import Destination
from quire.errors import InvalidArgument, LimitExceeded
from quire.message import Message
from quire.settings import Policy
from quire.store.base import LaneState, Link, Store, StoredDestination, StoreReader, walk_marks
from quire.store.positions import extent, offset_at, set_back, set_back_key, time_from
from quire.units import MAX_DIGITS, parse_duration, parse_time


class PartitionPart:
    """What concerns one partition in a commit; ``transferred`` is what another destination gives up of the appends."""

    __slots__ = ("appends", "listed", "owner", "removals", "transferred")

    def __init__(self, owner: Owner) -> None:
        self.owner = owner
        self.appends: list[Message] = []
        self.transferred: list[Message] = []
        self.removals: list[Link] = []
        self.listed = False


_TIMESTAMP = b"\ntimestamp:"
"""What the first header line ends with, and the second one begins with."""


MOST_SET_BACK = 16
"""At how many offsets times may begin anew; if all of them have records still, times wait for the clock to catch up."""


class PartitionedStream(Protocol):
    """The stream, as its partitions and its groups see it: ``Stream`` knows them."""

    core: Core
    destination: Destination
    stored: StoredDestination
    policy: Policy
    memory: MemoryUsage
    partitions: list["Partition"]
    pins: "Pins"
    is_deleted: bool

    def committed(self, count: int) -> None:
        """Messages that were sent to it are stored."""

    def finished(self, partition: int) -> None:
        """A group has finished messages of a partition, or is gone."""


class Subscriber(Protocol):
    """A group's part of a partition, ``GroupPartition``. It has finished all offsets that have no message."""

    finished: AckSet
    is_stored: bool

    def take_in(self, stored: list[Message]) -> None:
        """Take what was committed to the partition, in order."""

    def out_sequences(self) -> set[int]:
        """The offsets of messages that members have or that are being removed."""

    def skip(self, first: int, last: int) -> None:
        """No message will ever have these offsets."""

    def records_gone(self, sequences: list[int]) -> None:
        """Retention removes records that no member has in flight."""


class Partition:
    """One partition. The offset of a message is the sequence of its record.

    Args:
        ordered_from: from which offset on timestamps ascend; None if everything that is stored is of an older version.
        new: whether it is made now: then nothing is read.

    Attributes:
        gone: the sequences that have no record: retention let them go, or their commit failed.
        head: the first sequence that has a record; 0 if there is none.
        announced: the highest sequence of those commits that are done.
    """

    def __init__(
        self, stream: PartitionedStream, index: int, lane: int, ordered_from: int | None, *, new: bool = False
    ) -> None:
        self.stream = stream
        self.core = stream.core
        self.destination = stream.destination
        self.index = index
        self.lane = lane
        self.subscribers: list[Subscriber] = []
        self._keys = LaneKeys(progress="", pages=f"stream/{lane}/gone/", states="")
        state = LaneState() if new else self.core.store.lane_state(lane)
        self.gone = AckSet() if new else self._read_gone()
        self.count, self.bytes, self.head = state.count, state.bytes, state.head
        self.next_sequence = state.next_sequence
        self.announced = state.next_sequence - 1
        self.start_after(self.gone.highest)
        last = time_from(self.core.store, lane, state.tail) if state.count else 0
        self._set_back = [] if new else set_back(self.core.store, lane)
        self._stamp, self._stamp_at = b"%b%d\n" % (_TIMESTAMP, last or 0), slice(0, 0)
        self.ordered_from = self.next_sequence if ordered_from is None or last is None else ordered_from
        self._open = PartitionPart(self)
        self.policy_changed()

    def policy_changed(self) -> None:
        self.ledger = self.core.ledger.of(self.stream.destination, lane=self.index)

    def _read_gone(self) -> AckSet:
        with self.core.store.snapshot() as reader:
            known = reader.marks(self._keys.pages, limit=1)
            return read_finished(reader, self._keys) if known else AckSet()

    @property
    def lanes(self) -> tuple[int, ...]:
        return (self.lane,)

    @property
    def memory(self) -> MemoryUsage:
        return self.stream.memory

    @property
    def filled_to(self) -> int:
        return self.next_sequence - 1

    def start_after(self, sequence: int) -> None:
        if sequence >= self.next_sequence:
            self.next_sequence = sequence + 1
            self.announced = max(self.announced, sequence)

    # A message comes in.

    def send(self, content: bytes, expiration: int = 0, priority: int = 4, persistent: bool = True) -> None:
        if content[self._stamp_at] != self._stamp:
            content = self._stamped(content)
        message = Message(self.next_sequence, content, 0, priority)
        self.next_sequence += 1
        part = self._open
        part.appends.append(message)
        self.core.charge_open(message.size)
        if self.ledger is not None:
            self.ledger.sent(self.core.sender)
        if not part.listed:
            self.core.list_part(part)

    def _stamped(self, content: bytes) -> bytes:
        """The content of a message with a time that does not go back; mostly that is the time it has.

        Its line is mostly where it was in the message before: then one comparison tells that the time is the same.
        """
        place = content.index(b"\n")
        end = content.index(b"\n", place + 1) + 1
        self._stamp_at = slice(place, end)
        time, last = int(content[place + len(_TIMESTAMP) : end]), int(self._stamp[len(_TIMESTAMP) :])
        if behind := self.core.wall.behind_ms():
            time = min(time, self.core.clock.now_ms()) + behind
            content = b"%b%b%d\n%b" % (content[:place], _TIMESTAMP, time, content[end:])
            end = content.index(b"\n", place + 1) + 1
            self._stamp_at = slice(place, end)
        if time < last and not self._begin_anew(last):
            return b"".join((content[:place], self._stamp, content[end:]))
        self._stamp = content[place:end]
        return content

    def _begin_anew(self, last_ms: int) -> bool:
        """Let times begin anew with the next record, if that of the last one lies ahead; whether they do."""
        if last_ms <= self.core.wall.future_ms():
            return False
        first = self.head or self.announced + 1
        known = [offset for offset in self._set_back if offset > first]
        if len(known) == MOST_SET_BACK:
            return False
        self._set_back = [*known, self.next_sequence]
        self.core.set_mark(set_back_key(self.lane), msgspec.msgpack.encode(self._set_back))
        return True

    def transfer(self, content: bytes, expiration: int = 0, priority: int = 4, persistent: bool = True) -> Message:
        """As ``send``, for what another destination gives up in this commit. If it fails, both are in the next one."""
        self.send(content, expiration, priority, persistent)
        message = self._open.appends[-1]
        self._open.transferred.append(message)
        return message

    def expect_groups(self) -> None:
        """Messages of groups are about to be sent. Their order is that of the partition: there is nothing to do."""

    def fill(self, commit: Commit) -> None:
        part, self._open = self._open, PartitionPart(self)
        commit.parts[self] = part
        if part.appends or part.removals:
            lane = commit.batch.lane(self.lane)
            lane.appends = part.appends
            lane.removals = [link.sequence for link in part.removals]
        for page, value in self.gone.changed_pages().items():
            commit.batch.marks[self._keys.page(page)] = value

    def committed(self, part: PartitionPart) -> None:
        appends, removals = part.appends, part.removals
        grown = sum([message.size for message in appends]) - sum([link.size for link in removals])
        self.count += len(appends) - len(removals)
        self.bytes += grown
        self.core.charge_stored(grown)
        if appends:
            self.announced = appends[-1].sequence
            self.head = self.head or appends[0].sequence
        if removals:
            first = self.gone.next_unfinished(0)
            self.head = first if first <= self.announced else 0
        if appends:
            self.stream.committed(len(appends))
            for subscriber in self.subscribers:
                subscriber.take_in(appends)

    def commit_failed(self, part: PartitionPart, restored: set[int]) -> None:
        if part.appends:  # no message ever has these sequences: no group is to wait for them
            first, last = part.appends[0].sequence, part.appends[-1].sequence
            self.gone.add_range(first, last)
            self.announced = max(self.announced, last)
            for subscriber in self.subscribers:
                subscriber.skip(first, last)
        self._open.removals += part.removals
        for message in part.transferred:
            self.transfer(message.content, message.expiration, message.priority)
        self.core.list_part(self._open)

    def write(self) -> None:
        self.core.list_part(self._open)

    # Records go.

    def remove(self, links: list[Link]) -> None:
        """Remove records with the open commit; groups that had not finished them will not get them."""
        sequences = [link.sequence for link in links]
        self._open.removals += links
        self.gone.add_all(sequences)
        for subscriber in self.subscribers:
            subscriber.records_gone(sequences)
        self.core.list_part(self._open)

    def done_by_all(self, sequences: list[int]) -> list[int]:
        """None: a stream keeps its records, whichever groups have finished them."""
        return []

    def forget_marks(self) -> None:
        for key in (set_back_key(self.lane), *[self._keys.page(page) for page in self.gone.page_keys()]):
            self.core.set_mark(key, None)


MAX_PINS = 1000
"""How many pins a stream may have."""

MAX_NAME = 200
"""How long the name of a pin may be, in bytes of UTF-8."""

MAX_TIME_TO_LIVE = 365 * 86_400_000
"""How long a pin may last without being set again, in milliseconds."""

NOTHING_PINNED = 1 << 62
"""An offset above all others."""


class Pin(msgspec.Struct, array_like=True, frozen=True):
    """The mark ``stream/LANE/pin/NAME``, with the lane of the stream's first partition.

    Attributes:
        offsets: the first offset that stays, by partition.
        until: when it ends, in milliseconds since the epoch.
    """

    offsets: dict[int, int]
    until: int


class Pins(MarksOwner[dict[str, Pin | None]]):
    """The pins of one stream that have not ended, or not long ago.

    A commit has what those names had pinned before that are set or released in it.
    """

    def __init__(self, core: Core, partitions: list[Partition], *, new: bool = False) -> None:
        super().__init__(core, dict)
        self._partitions = partitions
        self._prefix = f"stream/{partitions[0].lane}/pin/"
        self.by_name: dict[str, Pin] = {}
        if not new:
            with self._core.store.snapshot() as reader:
                for key, value in walk_marks(reader, self._prefix):
                    self.by_name[key.removeprefix(self._prefix)] = msgspec.msgpack.decode(value, type=Pin)

    def set(self, name: str, offsets: Mapping[int, int], time_to_live_ms: int) -> Pin:
        """Pin records, in place of what the name had pinned. It counts when the open commit is done.

        Args:
            offsets: the first offset that is to stay, by partition. What is gone already does not come back: a look at
                the partition's extent afterwards tells.
            time_to_live_ms: how long it lasts, in milliseconds.
        """
        if not 0 < len(name.encode()) <= MAX_NAME or "\0" in name:
            raise InvalidArgument(f"a pin's name has 1 to {MAX_NAME} bytes and no NUL character", argument="name")
        if not 0 < time_to_live_ms <= MAX_TIME_TO_LIVE:
            text = f"a pin lasts 1 to {MAX_TIME_TO_LIVE} ms, not {time_to_live_ms}: set it again before it ends"
            raise InvalidArgument(text, argument="time_to_live_ms")
        partitions = len(self._partitions)
        for partition, offset in offsets.items():
            if not (0 <= partition < partitions and offset >= 1):
                text = f"there is no offset {offset} of partition {partition}: partitions are 0 to {partitions - 1}"
                raise InvalidArgument(text, argument="offsets")
        self.expire()
        if name not in self.by_name and len(self.by_name) >= MAX_PINS:
            raise LimitExceeded(f"the stream has {MAX_PINS} pins: release some", limit=MAX_PINS)
        pin = Pin(dict(offsets), self._core.wall.believed_ms() + time_to_live_ms)
        self._change(name, pin)
        return pin

    def release(self, name: str) -> bool:
        if name not in self.by_name:
            return False
        self._change(name, None)
        return True

    def _change(self, name: str, pin: Pin | None) -> None:
        self.part.changes.setdefault(name, self.by_name.get(name))
        self._core.list_part(self.part)
        self._put(name, pin)

    def _put(self, name: str, pin: Pin | None) -> None:
        if pin is None:
            self.by_name.pop(name, None)
        else:
            self.by_name[name] = pin
        self._core.set_mark(self._prefix + name, None if pin is None else msgspec.msgpack.encode(pin))

    def expire(self) -> None:
        now = self._core.wall.past_ms()
        for name in [name for name, pin in self.by_name.items() if pin.until <= now]:
            self._put(name, None)

    def clear(self) -> None:
        self._core.forget(self)
        self.part = MarksPart(self, {})
        for name in list(self.by_name):
            self._put(name, None)

    def first(self, partition: int) -> int:
        now, pins = self._core.wall.past_ms(), list(self.by_name.values())
        for part in (self.part, *self._core.parts_of(self)):
            pins += [pin for pin in part.changes.values() if pin is not None]
        pinned = [pin.offsets[partition] for pin in pins if partition in pin.offsets and pin.until > now]
        return min(pinned, default=NOTHING_PINNED)

    # Commits.

    def committed(self, part: MarksPart[dict[str, Pin | None]]) -> None:
        """What was pinned before it is not any more."""

    def commit_failed(self, part: MarksPart[dict[str, Pin | None]], restored: Collection[int]) -> None:
        for name, before in part.changes.items():
            if name in self.part.changes:  # it was changed again meanwhile: if that fails too, this is what it was
                self.part.changes[name] = before
            else:
                self._put(name, before)


class StartKind(StrEnum):
    EARLIEST = "earliest"
    LATEST = "latest"
    LAST = "last"
    TIMESTAMP = "timestamp"
    OFFSET = "offset"
    AGO = "ago"


@dataclass(frozen=True, slots=True)
class Start:
    """Where a consumer starts that was not here before.

    Attributes:
        kind: ``latest`` is behind the last record, ``last`` before it.
        value: with ``timestamp`` milliseconds since the epoch, with ``offset`` the offset, with ``ago`` so many
            milliseconds before now.
    """

    kind: StartKind
    value: int = 0

    @classmethod
    def parse(cls, text: str) -> "Start":
        name, equals, value = text.partition("=")
        if text in (StartKind.EARLIEST, StartKind.LATEST):
            return cls(StartKind(text))
        if name == StartKind.OFFSET and _is_number(value):
            return cls(StartKind.OFFSET, int(value))
        if name == StartKind.TIMESTAMP and equals:
            return cls(StartKind.TIMESTAMP, int(_parsed(parse_time, value)))
        if name == StartKind.AGO and equals:
            return cls(StartKind.AGO, _duration(value))
        forms = "earliest, latest, offset=N, timestamp=MILLISECONDS, timestamp=2026-01-31T12:00:00Z or ago=30m"
        raise InvalidArgument(f"no start position: {text[:60]!r}; write {forms}", argument="start")

    @classmethod
    def parse_stream_offset(cls, text: str) -> "Start":
        """Read a start position as RabbitMQ's clients write it in the header ``x-stream-offset``.

        Args:
            text: ``first``, ``last``, ``next``, ``offset=2101``, ``timestamp=`` with seconds since the epoch.
                RabbitMQ's ``last`` is the last run of messages that it stored together; here it is the last message.

        Raises:
            InvalidArgument: it is none.
        """
        name, _, value = text.partition("=")
        words = {"first": StartKind.EARLIEST, "last": StartKind.LAST, "next": StartKind.LATEST}
        if text in words:
            return cls(words[text])
        if name == StartKind.OFFSET and _is_number(value):
            return cls(StartKind.OFFSET, int(value))
        if name == StartKind.TIMESTAMP and _is_number(value):
            return cls(StartKind.TIMESTAMP, int(value) * 1000)
        forms = "first, last, next, offset=N or timestamp=SECONDS"
        raise InvalidArgument(f"no x-stream-offset: {text[:60]!r}; write {forms}", argument="x-stream-offset")

    def __str__(self) -> str:
        match self.kind:
            case StartKind.OFFSET | StartKind.TIMESTAMP:
                return f"{self.kind}={self.value}"
            case StartKind.AGO:
                return f"{self.kind}={self.value}ms"
            case _:
                return str(self.kind)

    def offset(self, reader: StoreReader, lane: int, now_ms: int) -> int:
        """The first offset that is to be read of a lane.

        An offset before the first record or behind the end is moved there: one number is meant for all partitions.
        """
        state = reader.lane_state(lane)
        earliest, end, *_ = extent(reader, lane)
        match self.kind:
            case StartKind.EARLIEST:
                return earliest
            case StartKind.LATEST:
                return end
            case StartKind.LAST:
                return state.tail or end
            case StartKind.OFFSET:
                return min(max(self.value, earliest), end)
            case StartKind.TIMESTAMP:
                return offset_at(reader, lane, self.value)
            case StartKind.AGO:
                return offset_at(reader, lane, now_ms - self.value)

    def offsets(self, store: Store, lanes: Iterable[int], now_ms: int) -> list[int]:
        with store.snapshot() as reader:
            return [self.offset(reader, lane, now_ms) for lane in lanes]


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS


def _parsed(parse: Callable[[str], float], text: str) -> float:
    try:
        return parse(text)
    except ValueError as error:
        raise InvalidArgument(str(error), argument="start") from error


def _duration(text: str) -> int:
    milliseconds = _parsed(parse_duration, text) * 1000
    if milliseconds >= 10**MAX_DIGITS:
        raise InvalidArgument(f"{text[:60]!r} is too long a duration", argument="start")
    return round(milliseconds)
