"""The records of a topic: its part of a commit, reading them, keeping some, removing those that nothing needs.

They are read in the order of their sequences, over all lanes. A topic keeps its newest messages for retroactive
consumers by its subscription recovery policy (``KeptMessages``). These are records like others, so they outlive the
broker. What is remembered here is where they begin, how many there are and their size; with the policy ``timed`` also
when they came, in a bounded number of steps. A retroactive consumer gets them before what is sent from then on.

Records that neither their topic nor a subscription needs any more are removed in steps (``LaneSweep``), for those
moments when many lose a holder at once: a durable subscription is removed, a retroactive consumer leaves early, the
broker starts after a crash. No body is read.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator
from heapq import merge
from itertools import islice
from operator import attrgetter
from typing import NamedTuple, Protocol

import msgspec

from quire.broker.core.core import Core, Owner
from quire.broker.core.subscription import Session
from quire.destination import Destination
from quire.errors import StoreCorrupt
from quire.logs import event
from quire.message import MESSAGE_OVERHEAD, Message
from quire.settings import Policy
from quire.store.base import LaneBatch, Page, StoredDestination, StoreReader, WriteBatch

_sequence = attrgetter("sequence")


class Place(NamedTuple):
    """Where a record is, known without its body.

    Attributes:
        sequence: the record's sequence.
        size: the content's size in bytes.
        lane: the lane's id.
    """

    sequence: int
    size: int
    lane: int


class RecordOwner(Protocol):
    """A topic, as those see it who look after its records.

    Attributes:
        core: the core.
        destination: its address.
        policy: what applies to it.
        records: reads its records.
        filled_to: the highest sequence that was put into a commit.
        announced: the highest sequence of those commits that are done.
    """

    core: Core
    destination: Destination
    policy: Policy
    records: "TopicRecords"
    filled_to: int
    announced: int

    @property
    def is_there(self) -> bool:
        """Whether it was not deleted."""

    @property
    def next_sequence(self) -> int:
        """The sequence of the next message."""

    @property
    def holder_count(self) -> int:
        """How many are asked whether they need a record."""

    def lane_of(self, priority: int) -> int:
        """The id of the lane that messages of a priority are in."""

    def remove_records(self, lanes: dict[int, int]) -> None:
        """A holder needs some records no more; their lanes, by their sequences."""

    def write_counts(self) -> None:
        """What its mark says has changed: store it with the open commit."""


class TopicRecords:
    """The records of one topic. A read sees one moment of the store, however many lanes there are."""

    def __init__(self, core: Core, lanes: tuple[int, ...]) -> None:
        self._core = core
        self._lanes = lanes

    def places(self, start: int, limit: int) -> list[Place]:
        """Where records are, in order.

        Args:
            start: the first sequence wanted; it need not be there.
        """
        with self._core.store.snapshot() as reader:
            return self._places(reader, start, limit)

    def _places(self, reader: StoreReader, start: int, limit: int) -> list[Place]:
        portion = limit if len(self._lanes) == 1 else -(-limit // len(self._lanes)) + 1
        return list(islice(merge(*[_walk(reader, lane, start, portion) for lane in self._lanes]), limit))

    def page(self, start: int, byte_budget: int, limit: int) -> Page:
        """Read records in order; arguments and errors are those of ``StoreReader.page``."""
        if len(self._lanes) == 1:
            return self._core.store.page(self._lanes[0], start, byte_budget, limit)
        with self._core.store.snapshot() as reader:
            found = self._places(reader, start, limit + 1)
            wanted: list[Place] = []
            for place in found[:limit]:
                byte_budget -= place.size + MESSAGE_OVERHEAD
                if wanted and byte_budget < 0:
                    break
                wanted.append(place)
            return Page(_load(reader, wanted), len(wanted) == len(found))


def _walk(reader: StoreReader, lane: int, start: int, portion: int) -> Iterator[Place]:
    """The records of one lane, their links read a portion at a time."""
    while links := reader.links(lane, start, portion):
        for link in links:
            yield Place(link.sequence, link.size, lane)
        if len(links) < portion:
            return
        start = links[-1].sequence + 1


def _load(reader: StoreReader, wanted: list[Place]) -> list[Message]:
    by_lane: dict[int, list[int]] = {}
    for place in wanted:
        by_lane.setdefault(place.lane, []).append(place.sequence)
    messages = [message for lane, sequences in by_lane.items() for message in reader.load(lane, sequences)]
    return sorted(messages, key=_sequence)


Senders = dict[int, Session | None]
"""Who sent messages, by sequence; empty if no subscription excludes its own connection's messages."""


class TopicPart:
    """What concerns one topic in a commit.

    Attributes:
        owner: the topic.
        appends: what was sent, in order.
        stored: those of them that are stored.
        senders: who sent them, if a subscription excludes its own connection's messages.
        transferred: those of them that another destination gives up in this commit.
        removals: sequences of records that it removes, each with its lane.
        lanes: what the batch has of the lanes that it changes.
        listed: whether the broker knows that there is something here.
    """

    __slots__ = ("appends", "lanes", "listed", "owner", "removals", "senders", "stored", "transferred")

    def __init__(self, owner: Owner) -> None:
        self.owner = owner
        self.appends: list[Message] = []
        self.stored: list[Message] = []
        self.senders: Senders = {}
        self.transferred: list[Message] = []
        self.removals: dict[int, int] = {}
        self.lanes: dict[int, LaneBatch] = {}
        self.listed = False

    def write(self, lanes: tuple[int, ...], batch: WriteBatch) -> None:
        """Put records that come and go into a batch."""
        if len(lanes) == 1:
            lane = self.lanes[lanes[0]] = batch.lane(lanes[0])
            lane.appends = self.stored
            lane.removals += self.removals
            return
        for message in self.stored:
            self._lane(batch, lanes[message.priority]).appends.append(message)
        for sequence, id in self.removals.items():
            self._lane(batch, id).removals.append(sequence)

    def _lane(self, batch: WriteBatch, id: int) -> LaneBatch:
        lane = self.lanes[id] = batch.lane(id)
        return lane


class Counts(msgspec.Struct, array_like=True, frozen=True):
    """What a topic remembers besides its records: the mark ``topic/LANE``.

    Attributes:
        appended: how many records it ever had.
        appended_bytes: their sizes.
        first_kept: the first sequence that is kept for retroactive consumers.
        kept: how many records are.
        kept_bytes: their sizes.
    """

    appended: int = 0
    appended_bytes: int = 0
    first_kept: int = 0
    kept: int = 0
    kept_bytes: int = 0


def counts_key(stored: StoredDestination) -> str:
    """The key of the mark that says what a topic remembers besides its records."""
    return f"topic/{stored.lanes[0]}"


def read_counts(reader: StoreReader, stored: StoredDestination) -> Counts:
    """What a topic remembers besides its records."""
    value = reader.mark(counts_key(stored))
    return Counts() if value is None else msgspec.msgpack.decode(value, type=Counts)


SWEEP_STEP = 1000
"""How many records one step looks at, at the most."""

QUESTIONS = 20_000
"""How many answers one step may need, of all durable subscriptions together."""


class LaneSweep:
    """One sweep. It begins after the open commit, so that it sees all that was sent before.

    Args:
        first: the first sequence to look at.
        last: the last one.
        done: called when all are looked at and what was to be removed is.
    """

    def __init__(self, topic: RecordOwner, first: int, last: int, done: Callable[[], None] | None = None) -> None:
        self._topic = topic
        self._position = first
        self._last = last
        self._done = done
        topic.core.after_commit(self._begin)

    def _begin(self) -> None:
        self._topic.core.steps.add(self._step, f"the removal of records of the topic {self._topic.destination.name}")

    def _step(self) -> bool:
        topic = self._topic
        if topic.is_there and self._position <= self._last:
            limit = max(10, min(SWEEP_STEP, QUESTIONS // topic.holder_count))
            places = topic.records.places(self._position, limit)
            topic.remove_records({place.sequence: place.lane for place in places if place.sequence <= self._last})
            self._position = places[-1].sequence + 1 if len(places) == limit else self._last + 1
            return True
        if self._done is not None:
            self._done()
        return False


PAGE_BYTES = 256 * 1024
"""How many bytes of messages are read at once."""


class Recovery:
    """A walk over the kept messages of a topic. Until it has passed them, they stay.

    Args:
        first: the first sequence.
        last: the last one.
        closed: called when the consumer has them all, or is gone.
    """

    def __init__(self, topic: RecordOwner, first: int, last: int, closed: Callable[["Recovery"], None]) -> None:
        self._topic = topic
        self._position = first
        self._last = last
        self._closed = closed

    @property
    def has_more(self) -> bool:
        """Whether there may be more messages."""
        return self._position <= self._last

    def done_of(self, sequences: list[int]) -> list[int]:
        """Those of some sequences whose records are not among those that are still to come."""
        return [sequence for sequence in sequences if not self._position <= sequence <= self._last]

    def fits(self, room: int) -> bool:
        """Whether the next message fits into so much memory, told from its indexed size."""
        places = self._topic.records.places(self._position, 1)
        return not places or places[0].size + MESSAGE_OVERHEAD <= room

    def read(self, limit: int, room: int) -> list[Message]:
        """The next messages, as many as fit but at least one, without those that are not kept any more.

        A damaged record is passed over, and the log says so.

        Args:
            room: how many bytes they may take together.

        Raises:
            StoreError: the store cannot be read.
        """
        try:
            page = self._topic.records.page(self._position, min(max(room, 0), PAGE_BYTES), limit)
        except StoreCorrupt as damage:
            return self._read_before(damage)
        messages = [message for message in page.messages if message.sequence <= self._last]
        past_end = page.end or len(messages) < len(page.messages)
        self._move(self._last + 1 if past_end else messages[-1].sequence + 1, messages)
        return self._young(messages)

    def _read_before(self, damage: StoreCorrupt) -> list[Message]:
        """What stands before a damaged record; if nothing does, the record is passed over."""
        sequence = damage.data["sequence"]
        places = self._topic.records.places(self._position, 1)
        if places and places[0].sequence < sequence:
            messages = self._topic.records.page(self._position, 0, 1).messages
            self._move(messages[0].sequence + 1, messages)
            return self._young(messages)
        name = self._topic.destination.name
        text = f"topic {name}: {damage} A retroactive consumer does not get this message. {damage.entry.advice}"
        event("topic.damaged", text, logging.ERROR, topic=name, **damage.data)
        self._move(sequence + 1, [])
        return []

    def _young(self, messages: list[Message]) -> list[Message]:
        """With the policy ``timed``, those that are not too old: records are let go in steps of time."""
        policy, now = self._topic.policy, self._topic.core.wall.past_ms()
        if policy.subscription_recovery_policy != "timed":
            return messages
        oldest = now - policy.recovery_duration * 1000
        return [message for message in messages if int(message.header(b"timestamp") or 0) > oldest]

    def _move(self, position: int, passed: list[Message]) -> None:
        self._position = position
        self._topic.remove_records({message.sequence: self._topic.lane_of(message.priority) for message in passed})

    @property
    def left(self) -> tuple[int, int]:
        """The first and the last sequence that are still to come."""
        return self._position, self._last

    def close(self) -> None:
        """The consumer has them all, or is gone: whatever was held for it is let go."""
        self._closed(self)


LET_GO_AT_ONCE = 1000
"""How many messages are let go at once, beside as many as just came."""

TIME_STEPS = 100
"""Into how many steps the duration of the policy ``timed`` is divided."""


class KeptMessages:
    """The kept messages of one topic.

    Args:
        first: the first sequence that is kept, as it was stored; 0 for none.

    Attributes:
        first: the first sequence that is kept; without a policy nothing is, whatever this is.
        count: how many are kept; exact.
        bytes: their sizes.
    """

    def __init__(self, topic: RecordOwner, first: int, count: int, bytes: int) -> None:
        self.first = first or topic.next_sequence
        self.count = count
        self.bytes = bytes
        self._topic = topic
        self._times: deque[tuple[int, int]] = deque()  # until when messages up to a sequence are kept
        self._late = 0  # the last sequence that was kept for long enough, with that policy
        self._is_timed = self._is_trimming = False
        self._fresh = 0  # how many have come since it was trimmed last
        self._was_keeping = self.is_keeping
        if count:
            self._note_time(topic.next_sequence - 1)
            self._trim_soon()

    @property
    def is_keeping(self) -> bool:
        """Whether the policy asks for it."""
        return self._topic.policy.subscription_recovery_policy != "none"

    def policy_changed(self) -> None:
        """Another policy applies from now on."""
        if self.is_keeping and not self._was_keeping and not self.count:
            self.first = self._topic.filled_to + 1
        self._was_keeping = self.is_keeping
        self._times.clear()
        if self.count:
            self._note_time(self._topic.announced)
            self._trim_soon()

    def done_of(self, sequences: list[int]) -> list[int]:
        """Those of some sequences that are not kept."""
        return [sequence for sequence in sequences if sequence < self.first] if self.is_keeping else sequences

    def share(self, stored: list[Message]) -> list[Message]:
        """Those of some stored messages that are kept."""
        return [message for message in stored if message.sequence >= self.first] if self.is_keeping else []

    def committed(self, stored: list[Message]) -> None:
        """Messages were stored: keep them, and let older ones go."""
        if share := self.share(stored):
            self.count += len(share)
            self.bytes += sum([message.size for message in share])
            self._note_time(share[-1].sequence)
            self._fresh += len(share)
            self._note_late()
            if self._has_too_many(self.first, self.count, self.bytes):
                self._trim_soon()

    def _note_time(self, last: int) -> None:
        """Messages up to a sequence have come; those that come soon after are let go together with them."""
        policy = self._topic.policy
        if policy.subscription_recovery_policy == "timed":
            until = self._topic.core.wall.steady_ms() + round(policy.recovery_duration * 1000)
            step = policy.recovery_duration * 1000 / TIME_STEPS
            if self._times and self._times[-1][0] // step == until // step:
                self._times.pop()
            self._times.append((until, last))
            self._wait()

    def _wait(self) -> None:
        """Trim when the first of them are to go."""
        if self._times and not self._is_timed:
            self._is_timed = True
            core = self._topic.core
            delay = max(self._times[0][0] - core.wall.steady_ms(), 1) / 1000
            core.scheduler.call_later(delay, self._time_is_up)

    def _time_is_up(self) -> None:
        self._is_timed = False
        self._note_late()
        self._trim_soon()
        self._wait()

    # What goes.

    def _trim_soon(self) -> None:
        """Let go in steps what the policy does not keep any more."""
        if not self._is_trimming:
            self._is_trimming = True
            self._topic.core.steps.add(self._step, f"letting go of what topic {self._topic.destination.name} kept")

    def _step(self) -> bool:
        """Let go of some; whether there is more."""
        more = self._topic.is_there and self._trim(LET_GO_AT_ONCE + self._fresh)
        self._fresh, self._is_trimming = 0, more
        return more

    def _trim(self, limit: int) -> bool:
        """Let go what the policy does not keep any more; whether there may be more of it."""
        self._note_late()
        gone = self._surplus(limit)
        if gone:
            self.first = gone[-1].sequence + 1
            self.count -= len(gone)
            self.bytes -= sum([place.size for place in gone])
            self._topic.write_counts()
            self._topic.remove_records({place.sequence: place.lane for place in gone})
        return len(gone) >= limit and self._has_too_many(self.first, self.count, self.bytes)

    def _surplus(self, limit: int) -> list[Place]:
        """The first messages that the policy does not keep any more; nothing changes before all is read."""
        found: list[Place] = []
        position, count, size = self.first, self.count, self.bytes
        while len(found) < limit and self._has_too_many(position, count, size):
            places = self._topic.records.places(position, min(limit - len(found), LET_GO_AT_ONCE))
            for place in places:
                if not self._has_too_many(place.sequence, count, size):
                    return found
                found.append(place)
                count, size = count - 1, size - place.size
            if not places:
                break
            position = places[-1].sequence + 1
        return found

    def _note_late(self) -> None:
        now = self._topic.core.wall.steady_ms()
        while self._times and self._times[0][0] <= now:
            self._late = self._times.popleft()[1]

    def _has_too_many(self, first: int, count: int, size: int) -> bool:
        """Whether the policy does not keep the first message any more, of so many that have a size together."""
        policy = self._topic.policy
        if not count:
            return False
        match policy.subscription_recovery_policy:
            case "last-image":
                return count > 1
            case "fixed-count":
                return count > policy.recovery_count
            case "fixed-size":
                return size > policy.recovery_size
            case "timed":
                return first <= self._late
            case _:
                return True

    def expired(self, messages: list[Message]) -> None:
        """Messages that no subscription needs have expired and are removed with the open commit."""
        kept = self.share(messages)
        self.count -= len(kept)
        self.bytes -= sum([message.size for message in kept])
        self._topic.write_counts()

    def window(self) -> tuple[int, int]:
        """The first and the last sequence that a retroactive consumer gets; the first is above if there is none."""
        if not self.is_keeping:
            return 1, 0
        self._trim(self.count)
        return self.first, self._topic.announced
