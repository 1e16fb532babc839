"""What a stream and its groups promise, as a plain model: where each record stands for each group, and who has it."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec
from msgspec import Struct

from quire.broker.queues.shared_lane import LaneRecords, read_finished
from quire.broker.streams.groups.group import Group
from quire.broker.streams.groups.group_definition import DEFINITIONS, GroupDefinition, Order, partition_keys, prefix_of
from quire.broker.streams.groups.retries import RetryMessage, origin_of
from quire.broker.streams.stream import Stream
from quire.cursors.ack_set import AckSet
from quire.message import timestamp_of
from quire.settings import Settings
from quire.store.base import Delivery, LaneState, Store, walk_marks
from quire.testing.stepped import Frame
from tests.simulation.client import Broken, Outcome, Rule, Sent
from tests.simulation.history import Setup
from tests.simulation.life import ALL, RightClock
from tests.unit.broker.harness import settings

if TYPE_CHECKING:
    from tests.simulation.streams import StreamClient


class GroupSetup(Struct, frozen=True, omit_defaults=True):
    """A group that clients may join."""

    name: str = "g"  # its name; empty for a reader
    order: Order = Order.CONCURRENT  # what order it relies on
    color: str = ""  # which messages it wants; empty for all
    start: Literal["earliest", "latest"] = "earliest"  # where it begins


class StreamSetup(Setup, frozen=True, tag_field="world", tag="streams"):
    """What a history begins with.

    Attributes:
        strategy: how partitions are dealt out.
    """

    memory_limit: int = 10**6  # bytes that everything together keeps in memory
    store_limit: int = 10**9  # bytes of messages in the store before producers are held
    partitions: int = 2  # how many the stream has at first
    retention_time: float = -1.0  # how many seconds it keeps a message; -1 for ever
    retention_bytes: int = 0  # how many bytes it keeps; 0 for no limit
    retention_groups_done: bool = False  # whether it lets go what all groups have finished
    max_in_flight: int = 2000  # how many messages of a partition a group has in hands
    max_in_flight_bytes: int = 10**6  # how many bytes of a partition it keeps in memory
    consume_timeout: float = 30.0  # how long a member has a message that asks for no time, in seconds
    retry: Literal["relocated", "in-place"] = "relocated"  # where a message waits that failed
    retry_maximum: int = 16  # how often it is tried again
    retry_delays: tuple[float, ...] = (1.0, 2.0)  # how long it waits, in seconds, retry by retry
    strategy: Literal["averagely", "averagely-by-circle", "consistent-hash", "sticky", "shared"] = "averagely"
    grace: float = 5.0  # how long a member with a name is awaited, in seconds
    revoke_timeout: float = 2.0  # how long a member may finish with a partition that goes to another one, in seconds
    groups: tuple[GroupSetup, ...] = (GroupSetup(),)

    def group(self, name: str) -> GroupSetup | None:
        return next((group for group in self.groups if group.name == name), None)

    def settings(self) -> Settings:
        return settings(
            memory={"limit": self.memory_limit},
            store={"limit": self.store_limit},
            producer={"hold_limit": 5.0},
            broker={"expiry_interval": 1.0},
            policy={
                "partitions": self.partitions,
                "retention_time": self.retention_time,
                "retention_bytes": self.retention_bytes,
                "retention_groups_done": self.retention_groups_done,
                "max_in_flight": self.max_in_flight,
                "max_in_flight_bytes": self.max_in_flight_bytes,
                "consume_timeout": self.consume_timeout,
                "retry": self.retry,
                "retry_maximum": self.retry_maximum,
                "retry_delays": " ".join([f"{delay:g}s" for delay in self.retry_delays]),
                "rebalance_strategy": self.strategy,
                "member_grace": self.grace,
                "revoke_timeout": self.revoke_timeout,
            },
        )


class Draft(NamedTuple):
    size: int = 0  # how long its body is, besides its name
    partition: int = -1  # which partition it names; -1 for none
    key: str = ""  # its partition key; empty for none
    color: str = ""  # a header that groups select by

    def headers(self) -> dict[str, str]:
        headers = {"partition-key": self.key, "color": self.color}
        if self.partition >= 0:
            headers["partition"] = str(self.partition)
        return {name: value for name, value in headers.items() if value}


class StreamSent(Sent):
    __slots__ = ("draft", "partitions", "record")

    def __init__(self, name: str, draft: Draft, partitions: int) -> None:
        super().__init__(name)
        self.draft = draft
        self.partitions = partitions
        self.record: Record | None = None  # where it is, or was, in the stream; None while it was not seen there


class Record:
    """One record of a partition.

    Attributes:
        is_leaving: whether the broker has begun to remove it; nobody is given it any more.
        is_gone: whether retention has let it go.
    """

    __slots__ = ("is_gone", "is_leaving", "offset", "partition", "sent", "size", "time_ms")

    def __init__(self, sent: StreamSent, partition: int, offset: int, time_ms: int, size: int) -> None:
        self.sent = sent
        self.partition = partition
        self.offset = offset  # its place there
        self.time_ms = time_ms  # when the broker took it
        self.size = size  # its size in the store
        self.is_leaving = self.is_gone = False

    def __repr__(self) -> str:
        return f"{self.sent} ({self.offset}.{self.partition})"

    @property
    def place(self) -> tuple[int, int]:
        return self.partition, self.offset


class StreamLog:
    def __init__(self) -> None:
        self.sent: dict[str, StreamSent] = {}
        self.records: list[dict[int, Record]] = []
        self.end: list[int] = []
        self._keys: dict[tuple[str, int], int] = {}

    def look(self, store: Store, stream: Stream) -> list[Record]:
        lanes = stream.stored.lanes
        if len(self.records) < len(lanes):
            self.records += [{} for _ in lanes[len(self.records) :]]
            self.end += [0 for _ in lanes[len(self.end) :]]
        went: list[Record] = []
        for partition, lane in enumerate(lanes):
            records = self.records[partition]
            for message in store.page(lane, self.end[partition] + 1, ALL, ALL).messages:
                self._came(partition, message.sequence, message.body, timestamp_of(message), message.size)
            if store.lane_state(lane).count != len(records):
                there = {link.sequence for link in store.links(lane, 0, ALL)}
                went += [record for offset, record in records.items() if offset not in there]
                self.records[partition] = {offset: r for offset, r in records.items() if offset in there}
        for record in went:
            record.is_gone = True
        for known, records in zip(stream.partitions, self.records, strict=False):
            for record in records.values():
                record.is_leaving = record.offset in known.gone
        return went

    def _came(self, partition: int, offset: int, body: bytes, time_ms: int, size: int) -> None:
        sent = self.sent[body[: body.index(b";")].decode()]
        record = Record(sent, partition, offset, time_ms, size)
        if sent.record is not None:
            raise Broken(Rule.ROUTE, f"{record} is in the stream as {sent.record} too")
        if sent.draft.partition not in (-1, partition):
            raise Broken(Rule.ROUTE, f"{record} was sent to partition {sent.draft.partition}")
        if sent.draft.partition < 0 and sent.draft.key and sent.partitions and sent.outcome is None:
            known = self._keys.setdefault((sent.draft.key, sent.partitions), partition)
            if known != partition:
                raise Broken(Rule.ROUTE, f"{record} is not in partition {known}, as others of its key are")
        if sent.outcome is not None:
            sent.outcome.decide(True, f"{record} is in the stream")
        sent.record = self.records[partition][offset] = record
        self.end[partition] = offset

    def at(self, partition: int, offset: int) -> Record | None:
        """The record at a place, if there is one."""
        return self.records[partition].get(offset) if partition < len(self.records) else None

    def crash(self) -> None:
        for sent in self.sent.values():
            if sent.outcome is not None and sent.record is None:
                sent.outcome.decide(False, f"{sent} is not in the stream")

    def check_nothing_lost(self) -> None:
        for sent in self.sent.values():
            if sent.confirmed and sent.record is None:
                raise Broken(Rule.LOST, f"{sent} was confirmed and never was in the stream")


class Moments:
    """Counts what happens, and knows how much of it is durable."""

    def __init__(self) -> None:
        self.now = self.durable = 0

    def next(self) -> int:
        self.now += 1
        return self.now

    def confirm(self, moment: int) -> None:
        """What had happened at a moment is durable: a receipt says so, or the broker is at rest."""
        self.durable = max(self.durable, moment)


class Place(StrEnum):
    """Where a message is for a group."""

    WAITING = "at its place"
    RETRY = "in the retry lane"
    DONE = "finished"


class State(NamedTuple):
    """What the store says of a message for a group."""

    place: Place = Place.WAITING  # where it is
    returns: int = 0  # how often it came back from a member
    failures: int = 0  # how many of these count against the maximum
    not_before: int = 0  # when it may be delivered again, in milliseconds since the epoch; 0 for at once
    letters: int = 0  # how many dead letters there are of it

    @property
    def is_open(self) -> bool:
        return self.place is not Place.DONE

    def done(self, letters: int = 0) -> "State":
        return State(Place.DONE, letters=self.letters + letters)


States = frozenset[State]

UNTOUCHED: States = frozenset({State()})
PASSED: States = frozenset({State(Place.DONE)})


class Work:
    __slots__ = ("_trail", "holder", "outcome", "record", "written")

    def __init__(self, record: Record, states: States = UNTOUCHED) -> None:
        self.record = record
        self.holder: Grip | None = None
        self.written = 0
        self.outcome: Outcome | None = None
        self._trail: list[tuple[int, States]] = [(0, states)]

    @property
    def possible(self) -> States:
        return self._trail[-1][1]

    @property
    def is_open(self) -> bool:
        """Whether it certainly is not finished."""
        return all([state.is_open for state in self.possible])

    @property
    def may_be_open(self) -> bool:
        """Whether it may be not finished."""
        return any([state.is_open for state in self.possible])

    def change(self, moment: int, change: Callable[[State], Iterable[State]]) -> None:
        """Something happens to it."""
        self._trail.append((moment, frozenset([new for state in self.possible for new in change(state)])))

    def narrow(self, holds: Callable[[State], bool]) -> bool:
        """Something is seen that only some states allow; whether there are such."""
        moment, states = self._trail[-1]
        left = frozenset([state for state in states if holds(state)])
        if left:
            self._trail[-1] = (moment, left)
        return bool(left)

    def after_crash(self, durable: int) -> States:
        """The states it may have in the store."""
        last = max([index for index, (moment, _) in enumerate(self._trail) if moment <= durable], default=0)
        return frozenset().union(*[states for _, states in self._trail[last:]])

    def is_in(self, state: State, moment: int) -> None:
        """It is known to be in one state, durably."""
        self._trail = [(moment, frozenset({state}))]


AckMode = Literal["auto", "client", "client-individual"]

RETRIES = -1
"""Stands for the number of a partition where the retries are meant."""

FOREVER = float("inf")

EPSILON = 1e-6
"""What floating point numbers may be wrong by, in seconds."""

Key = tuple[int, int]
"""A partition, or ``RETRIES``, and a sequence in its lane."""


def written(key: Key) -> str:
    """A key as ids of acknowledgements and the header ``held`` have it."""
    lane, sequence = key
    return f"{sequence}.{'r' if lane == RETRIES else lane}"


class Remembered(NamedTuple):
    ack: str  # the id to acknowledge it by
    record: Record  # the message


class Grip:
    """A message in the hands of a member."""

    __slots__ = ("ack", "deadline", "key", "latest", "member", "transacted", "work")

    def __init__(self, work: Work, member: "Membership", key: Key, ack: str, now: float) -> None:
        self.work = work
        self.member = member
        self.key = key
        self.ack = ack
        self.transacted: bool | None = None
        self.extend(now + member.timeout)

    def __repr__(self) -> str:
        return f"{self.work.record.sent} ({written(self.key)})"

    def is_up(self, now: float) -> bool:
        """Whether the lease may have ended."""
        return self.transacted is None and self.deadline <= now + EPSILON

    def extend(self, deadline: float) -> None:
        self.deadline = self.latest = deadline


class Membership:
    def __init__(
        self, consumption: "Consumption", id: str, client: "StreamClient | None", *, static: bool, ack: AckMode,
        prefetch: int, timeout: float,
    ) -> None:  # fmt: skip
        self.consumption = consumption
        self.id = id
        self.client = client
        self.static = static
        self.ack = ack
        self.prefetch = prefetch
        self.timeout = timeout
        self.grips: dict[Key, Grip] = {}
        self.grace_end = FOREVER
        self.served: dict[int, int] = {}
        self.revoked: dict[int, float] = {}
        self.claims: dict[Key, Remembered] = {}

    def __repr__(self) -> str:
        return self.id

    @property
    def free(self) -> list[Grip]:
        return [grip for grip in self.grips.values() if grip.transacted is None]

    def of(self, lane: int) -> list[Grip]:
        """What it has of a partition, or of the retries, in the order it was given."""
        return [grip for grip in self.grips.values() if grip.key[0] == lane]

    def covered(self, grip: Grip) -> list[Grip]:
        """What an acknowledgement is about: in ``client`` mode everything that was given up to it."""
        if self.ack != "client":
            return [grip]
        grips = list(self.grips.values())
        return [other for other in grips[: grips.index(grip) + 1] if other.transacted is None]

    def take(self, grip: Grip) -> None:
        self.grips[grip.key] = grip
        grip.work.holder = grip

    def drop(self, grip: Grip) -> None:
        del self.grips[grip.key]
        grip.work.holder = None


SUSPENDED = 1000
"""How long a partition pauses that is consumed in order, in milliseconds."""


class Consumption:
    def __init__(
        self, of: GroupSetup, setup: StreamSetup, log: StreamLog, moments: Moments, begin: list[int],
        *, is_stored: bool = True,
    ) -> None:  # fmt: skip
        self.name = of.name
        self.of = of
        self.begin = begin
        self.is_stored = is_stored
        self.created = moments.next()
        self.members: dict[str, Membership] = {}
        self.is_shared = setup.strategy == "shared"
        self.excluded = {r.place for records in log.records for r in records.values() if r.is_leaving}
        self.has_crashed = False
        self.moved: set[int] = set()
        self.moved_at = 0
        self.is_purging = False
        self._setup = setup
        self.log = log
        self.moments = moments
        self._works: dict[tuple[int, int], Work] = {}
        self._places: dict[int, int] = {}
        self.retries: dict[int, Work] = {}

    def __repr__(self) -> str:
        return self.name

    @property
    def relocates(self) -> bool:
        """Whether a message that failed goes to the retry lane."""
        return self.is_stored and self.of.order is Order.CONCURRENT and self._setup.retry == "relocated"

    @property
    def most_in_hands(self) -> int:
        """How many messages of a partition members may have, all together."""
        return 1 if self.of.order is Order.ORDERLY else self._setup.max_in_flight

    # Its messages.

    def is_about(self, record: Record) -> bool:
        """Whether it is to get a message: it comes after its begin, and its selector matches."""
        begin = self.begin[record.partition] if record.partition < len(self.begin) else 1
        is_there = record.offset >= begin and record.place not in self.excluded
        return is_there and self.of.color in ("", record.sent.draft.color)

    def work(self, record: Record) -> Work:
        if record.place not in self._works:
            # What was sent before the group was moved, and stored after it, may be before its place or not.
            is_unclear = record.offset < self._places.get(record.partition, 0)
            self._works[record.place] = Work(record, UNTOUCHED | PASSED if is_unclear else UNTOUCHED)
        return self._works[record.place]

    def works(self, partition: int) -> list[Work]:
        """The messages of a partition that it is about and that are there, in order."""
        return [self.work(record) for record in self.log.records[partition].values() if self.is_about(record)]

    def known(self) -> Iterable[Work]:
        return self._works.values()

    def in_hands(self, partition: int) -> list[Grip]:
        return [grip for member in self.members.values() for grip in member.of(partition)]

    def crash(self) -> None:
        self.has_crashed = True
        self.members.clear()
        self.retries.clear()
        self.moved.clear()
        for work in self._works.values():
            work.holder = None

    def resumed(self) -> None:
        """It is known where each message stands after a crash."""
        self._places.clear()

    def await_member(self, id: str, served: dict[int, int], grace_end: float) -> None:
        member = Membership(self, id, None, static=True, ack="client-individual", prefetch=0, timeout=0)
        member.served, member.grace_end = dict(served), grace_end
        self.members[id] = member

    # What becomes of one.

    def finish(self, work: Work) -> None:
        work.change(self.moments.next(), lambda state: [state.done()])

    def dead_letter(self, work: Work) -> None:
        """A member wants it to be a dead letter."""
        work.change(self.moments.next(), lambda state: [state.done(letters=1)])

    def fail(self, work: Work, now_ms: int, delay_ms: int | None = None) -> None:
        work.change(self.moments.next(), lambda state: [self.failed(state, now_ms, delay_ms)])

    def give_back(self, grips: Iterable[Grip], now: float, now_ms: int, *, lost: bool) -> None:
        """Messages are taken from a member, because it goes, or because the leases on them have ended."""
        grips = list(grips)
        oldest = {grip.key[0]: grip for grip in reversed(grips)}
        unclear = {grip.key[0] for grip in grips if grip.is_up(now)}
        for grip in grips:
            options = (True, False) if lost and grip.key[0] in unclear else (lost and grip is oldest[grip.key[0]],)
            self.take(grip, now_ms, lease=grip.is_up(now), gone=options)

    def take(self, grip: Grip, now_ms: int, *, lease: bool, gone: tuple[bool, ...]) -> None:
        def become(state: State) -> list[State]:
            ended = [self.failed(state, now_ms, None)] if lease else []
            return ended + [self.returned(state, failed=failed) for failed in gone]

        grip.member.drop(grip)
        grip.work.change(self.moments.next(), become)

    def failed(self, state: State, now_ms: int, delay_ms: int | None) -> State:
        """What a state becomes when a delivery fails and the next one has to wait."""
        failures = state.failures + 1
        if self._is_too_often(failures):
            return state.done(letters=int(self.is_stored))
        delay = self._delay_ms(failures) if delay_ms is None else delay_ms
        moves = self.relocates and state.place is Place.WAITING
        place = Place.RETRY if moves else state.place
        return State(place, state.returns + 1, failures, now_ms + delay if delay or moves else 0, state.letters)

    def returned(self, state: State, *, failed: bool) -> State:
        """What a state becomes when it comes back at once."""
        failures = state.failures + failed
        if self._is_too_often(failures):
            return state.done(letters=int(self.is_stored))
        return State(state.place, state.returns + 1, failures, 0, state.letters)

    def _is_too_often(self, failures: int) -> bool:
        return self.of.order is not Order.ORDERLY and failures > self._setup.retry_maximum

    def _delay_ms(self, failures: int) -> int:
        if self.of.order is Order.ORDERLY:
            return SUSPENDED
        delays = self._setup.retry_delays
        return round(delays[min(failures, len(delays)) - 1] * 1000)

    def move(self, places: dict[int, int]) -> None:
        """An operator has it go on from elsewhere. What members have is taken from them, and has not failed."""
        for member in self.members.values():
            for grip in [grip for grip in member.grips.values() if grip.work.record.partition in places]:
                member.drop(grip)
            member.served = {p: epoch for p, epoch in member.served.items() if p not in places}
        self.begin += [1] * (len(self.log.records) - len(self.begin))
        for partition, place in places.items():
            for record in self.log.records[partition].values():
                if not self.is_about(record) and self.of.color in ("", record.sent.draft.color):
                    self._works[record.place] = Work(record, PASSED)
                work = self.work(record)
                new = Place.WAITING if record.offset >= place else Place.DONE
                work.change(self.moments.next(), lambda state, new=new: [State(new, letters=state.letters)])  # type: ignore[misc]
                work.outcome, work.written = None, 0
            self._places[partition] = max(place, self.begin[partition], self._places.get(partition, 0))
            self.begin[partition] = 1
        self.excluded = {place for place in self.excluded if place[0] not in places}
        self.moved |= places.keys()
        self.moved_at = self.moments.now
        self.is_purging = True

    # It is given out.

    def deliver(self, work: Work, key: Key, now_ms: int, count: int) -> None:
        """A message was written to a member. May it have been?"""
        record = work.record
        if not self.is_about(record):
            raise Broken(Rule.UNWANTED, f"{record} came to {self}, which does not want it")
        if record.is_leaving:
            raise Broken(Rule.RETENTION, f"{record} came to {self}, and is being removed")
        if not work.narrow(lambda state: state.is_open):
            raise Broken(Rule.AGAIN, f"{record} came to {self} again, and is finished")
        place = Place.RETRY if key[0] == RETRIES else Place.WAITING
        if not work.narrow(lambda state: state.place is place):
            raise Broken(Rule.ROUTE, f"{record} came to {self} as {written(key)}, and is in {set(work.possible)}")
        if work.holder is not None:
            raise Broken(Rule.HANDS, f"{record} came to {self}, and {work.holder.member} has it")
        if not work.narrow(lambda state: state.not_before <= now_ms):
            raise Broken(Rule.DELAY, f"{record} came to {self}, too early: {set(work.possible)}")
        self._check_count(work, count)
        if key[0] == RETRIES:
            self.retries[key[1]] = work
        work.written += 1

    def _check_count(self, work: Work, count: int) -> None:
        record = work.record
        if work.written and not count and self.is_stored:
            raise Broken(Rule.FLAG, f"{record} came to {self} without a flag, it was written before")
        if count and not work.written and not self.has_crashed:
            raise Broken(Rule.FLAG, f"{record} came to {self} with a flag, it was never written before")
        holds = (lambda s: s.returns == 0) if not count else (lambda s: max(s.returns, 1) + 1 == count)
        if not work.narrow(holds):
            raise Broken(Rule.ATTEMPTS, f"{record} came to {self} with the count {count}, it is {set(work.possible)}")

    def check_order(self, work: Work, *, is_done: bool) -> None:
        """A message came in this step: nothing that has to come before it is open still."""
        if self.of.order is Order.CONCURRENT:
            return
        record = work.record
        key = None if self.of.order is Order.ORDERLY else record.sent.draft.key
        if key == "":
            return
        for other in self.works(record.partition):
            is_before = other.record.offset < record.offset
            if other is work or other.record.is_leaving or key not in (None, other.record.sent.draft.key):
                continue
            if is_before and other.is_open:
                raise Broken(Rule.ORDER, f"{record} came to {self}, and {other.record} is not finished")
            if other.holder is not None and not is_done:
                raise Broken(Rule.ORDER, f"{record} came to {self}, and {other.record} is in hands")


def in_flight(group: Group, member: Membership) -> list[Key]:
    """What a member has, as the broker knows it, in the order in which it was given that."""
    known = group.members.get(member.id)
    if known is None:
        return []

    def rank(key: Key) -> int:
        return sum([len(sequences) for _, sequences in known.up_to(known.children[key[0]], key[1])])

    return sorted([(lane, seq) for lane, child in known.children.items() for seq in child.in_flight], key=rank)


def its_own(consumption: Consumption, member: Membership, lanes: Collection[int]) -> dict[Key, Work]:
    """What a member must be given of what it says it has: what is open, and with nobody."""
    own: dict[Key, Work] = {}
    for key, (_, record) in member.claims.items():
        work, place = consumption.work(record), Place.RETRY if key[0] == RETRIES else Place.WAITING
        is_there = not (record.is_gone or record.is_leaving) and key[0] in lanes
        if record.partition in consumption.moved or (key[0] == RETRIES and consumption.is_purging):
            continue  # it may be of before
        if is_there and work.holder is None and all([state.place is place for state in work.possible]):
            own[key] = work
    return own


def hand_over(consumption: Consumption, group: Group, member: Membership, lanes: Collection[int], now: float) -> None:
    """A member is given partitions: what it says that it still has of them is in its hands."""
    own, has = its_own(consumption, member, lanes), in_flight(group, member)
    if missing := own.keys() - set(has):
        raise Broken(Rule.HELD, f"{member} still has {sorted(missing)}, and they are not its own")
    for key in has:
        if key in own:
            member.take(Grip(own[key], member, key, member.claims[key].ack, now))
    member.claims = {key: claim for key, claim in member.claims.items() if key[0] not in lanes}


def check_handed(consumption: Consumption, group: Group, member: Membership, key: Key) -> Work:
    """A member has something in its hands that is not known to be its own. May it have it?"""
    lane, sequence = key
    place = key
    if lane == RETRIES:
        message = group.members[member.id].children[RETRIES].in_flight[sequence]
        assert isinstance(message, RetryMessage)
        place = (group.stream.stored.lanes.index(message.origin_lane), message.origin_sequence)
    record = consumption.log.at(*place)
    if record is None:
        raise Broken(Rule.HELD, f"{written(key)} is handed to {member}, and its record is gone")
    work = consumption.work(record)
    if work.holder is not None or not work.may_be_open:
        raise Broken(Rule.HANDS, f"{record} is handed to {member}; {work.holder} has it, it is {set(work.possible)}")
    return work


RETRY_SHARE = 5
"""Of so many messages that a member may have, one may be a retry."""

SLACK = 0.3
"""How many seconds after its time a lease ends at the latest: three ticks."""


class Lookout:
    """Watches one group."""

    def __init__(self, consumption: Consumption, log: StreamLog) -> None:
        self._consumption = consumption
        self._log = log
        self._owners: dict[tuple[int, int], tuple[str, int]] = {}
        self._highest: dict[int, int] = {}
        self._newest: dict[tuple[str, int], int] = {}
        self._came: list[tuple[Work, bool]] = []

    def crash(self, durable: int) -> None:
        self._owners = {epoch: owner for epoch, owner in self._owners.items() if owner[1] <= durable}
        self._highest.clear()
        self._newest.clear()

    def moved(self, partitions: Collection[int]) -> None:
        self._newest = {place: offset for place, offset in self._newest.items() if place[1] not in partitions}

    # What is taken.

    def look(self, group: Group, now: float, now_ms: int, revoke_timeout: float) -> None:
        """See what members have lost since the last look, and why."""
        for member in list(self._consumption.members.values()):
            table = in_flight(group, member)
            ended = [grip for key, grip in member.grips.items() if key not in table]
            if ended:
                self._lose(member, ended, now, now_ms)
            for grip in member.grips.values():
                if grip.transacted is None and grip.latest + SLACK < now:
                    raise Broken(Rule.LEASE, f"{member} has {grip} still, its lease ended at {grip.latest:g}")
            self._look_at_assignment(group, member, now, revoke_timeout)

    def _lose(self, member: Membership, ended: list[Grip], now: float, now_ms: int) -> None:
        """What a member has lost comes back, or waits for its next delivery, by what ended its time."""
        consumption, oldest = self._consumption, {grip.key[0]: grip for grip in reversed(ended)}
        unclear = {grip.key[0] for grip in ended if grip.is_up(now)}
        for grip in ended:
            lane = grip.key[0]
            is_gone = min(member.grace_end, member.revoked.get(lane, FOREVER)) <= now + EPSILON
            if not is_gone and not grip.is_up(now):
                text = f"{grip} was taken from {member} at {now:g}, its lease ends at {grip.deadline:g}"
                raise Broken(Rule.LEASE, text)
            options = (True, False) if lane in unclear else (grip is oldest[lane],)
            consumption.take(grip, now_ms, lease=grip.is_up(now), gone=options if is_gone else ())

    def _look_at_assignment(self, group: Group, member: Membership, now: float, revoke_timeout: float) -> None:
        """See which partitions a member has, and that an awaited one keeps them."""
        status = next((status for status in group.coordinator.members if status.id == member.id), None)
        if status is None:
            if member.grace_end > now + EPSILON:
                raise Broken(Rule.GRACE, f"{member} is not a member of {group.name} any more")
            del self._consumption.members[member.id]
            return
        if member.client is None and member.grace_end + SLACK < now:
            raise Broken(Rule.GRACE, f"{member} is awaited still, until {member.grace_end:g}")
        if member.client is None and not member.served.items() <= status.partitions.items():
            raise Broken(Rule.GRACE, f"{member} is away and had {member.served}, and has {status.partitions}")
        known_member = group.members.get(member.id)
        begun = status.partitions if member.client is None or known_member is None else known_member.children
        served, member.served = member.served, {p: e for p, e in status.partitions.items() if p in begun}
        if new := {lane for lane in member.served if served.get(lane) != member.served[lane]}:
            hand_over(self._consumption, group, member, new, now)
        known, member.revoked = member.revoked, {}
        for partition in status.revoking:
            member.revoked[partition] = known.get(partition, now + revoke_timeout)

    def check_owners(self, group: Group) -> None:
        for partition in range(len(group.partitions)):
            owners = group.coordinator.owners(partition)
            if len(owners) > 1 and not self._consumption.is_shared:
                raise Broken(Rule.OWNER, f"partition {partition} of {group.name} has the owners {owners}")
            served = [member.id for member in group.members.values() if partition in member.children]
            if len(served) > 1 and not self._consumption.is_shared:
                raise Broken(Rule.OWNER, f"partition {partition} of {group.name} is still at {served}")

    # What is given.

    def deliver(self, member: Membership, frame: Frame, now: float, now_ms: int) -> Grip:
        name = frame.body[: frame.body.index(b";")].decode()
        sequence, lane, rest = frame.headers["ack"].split(".")
        key = (RETRIES if lane == "r" else int(lane), int(sequence))
        record = self._log.at(int(frame.headers["partition"]), int(frame.headers["offset"]))
        if record is None or record.sent.name != name:
            raise Broken(Rule.ROUTE, f"{name} came as {frame.headers['ack']}, where {record} is")
        if lane != "r":
            self._check_epoch(member, key[0], int(rest.partition("-")[0]))
        count = int(frame.headers.get("JMSXDeliveryCount", "0"))
        work = self._consumption.work(record)
        self._consumption.deliver(work, key, now_ms, count)
        if not count and self._consumption.of.order is not Order.KEY_ORDERED:
            self._check_fresh(member, key)
        grip = Grip(work, member, key, frame.headers["ack"], now)
        self._came.append((work, member.ack == "auto"))
        if member.ack == "auto":
            self._consumption.finish(work)
        else:
            member.take(grip)
            self._check_credit(member, key[0])
        return grip

    def check_order(self) -> None:
        came, self._came = self._came, []
        for work, is_done in came:
            self._consumption.check_order(work, is_done=is_done)

    def _check_epoch(self, member: Membership, partition: int, epoch: int) -> None:
        if self._consumption.is_shared:
            return
        owner, _ = self._owners.setdefault((partition, epoch), (member.id, self._consumption.moments.next()))
        if owner != member.id:
            text = f"partition {partition} goes to {owner} and to {member} in epoch {epoch}"
            raise Broken(Rule.OWNER, text)
        newest = self._highest.get(partition, 0)
        if epoch < newest:
            raise Broken(Rule.OWNER, f"partition {partition} goes to {member} in epoch {epoch}, after {newest}")
        self._highest[partition] = epoch

    def _check_fresh(self, member: Membership, key: Key) -> None:
        """What comes for the first time comes in order."""
        partition, offset = key
        place = (member.id if self._consumption.is_shared else "", partition)
        if offset < self._newest.get(place, 0):
            raise Broken(Rule.ORDER, f"{offset} of partition {partition} came after {self._newest[place]}")
        self._newest[place] = offset

    def _check_credit(self, member: Membership, lane: int) -> None:
        if len(member.free) > member.prefetch:
            raise Broken(Rule.CREDIT, f"{member} has {list(member.grips.values())}, its prefetch is {member.prefetch}")
        if lane == RETRIES and len(member.of(RETRIES)) > max(member.prefetch // RETRY_SHARE, 1):
            raise Broken(Rule.CREDIT, f"{member} has {member.of(RETRIES)}, its prefetch is {member.prefetch}")
        if len(self._consumption.in_hands(lane)) > self._consumption.most_in_hands:
            raise Broken(Rule.CREDIT, f"members have {self._consumption.in_hands(lane)} of one lane")


LATE = 3000
"""How many milliseconds a record may stay that is due, when nobody needs it."""


class Pinned(NamedTuple):
    first: int  # the first offset that it is about
    places: set[tuple[int, int]]  # what it keeps
    until: int  # when it ends, in milliseconds since the epoch
    moment: int  # when it was set
    before: "Pinned | None"  # what the name had pinned before


class Keeping:
    """Sees that retention keeps what it has to keep."""

    def __init__(self, setup: StreamSetup, clock: RightClock) -> None:
        self.pins: dict[str, Pinned] = {}
        self._setup = setup
        self._clock = clock
        self._due: set[tuple[int, int]] = set()

    def pin(self, name: str, stream: Stream, log: StreamLog, first: int, seconds: float, moment: int) -> None:
        """Everything from an offset on is to stay for a time, in all partitions.

        What is being removed already is not kept.
        """
        leaving = [partition.gone for partition in stream.partitions]
        places = {
            record.place for records in log.records for record in records.values()
            if record.offset >= first and record.offset not in leaving[record.partition]
        }  # fmt: skip
        until = self._clock.now_ms() + round(seconds * 1000)
        self.pins[name] = Pinned(first, places, until, moment, self.pins.get(name))

    def commit_failed(self, stream: Stream, durable: int) -> None:
        """A commit failed: the pins that it would have set are as they were before."""
        for name, pin in list(self.pins.items()):
            known = stream.pins.by_name.get(name)
            was: Pinned | None = pin
            while was is not None and was.moment > durable and (known is None or known.until != was.until):
                was = was.before
            if was is None:
                del self.pins[name]
            else:
                self.pins[name] = was

    def crash(self, stream: Stream, durable: int) -> None:
        """The broker starts again: pins that were durable are there."""
        for name, pin in list(self.pins.items()):
            known = stream.pins.by_name.get(name)
            if known is None or known.until != pin.until or pin.first not in known.offsets.values():
                if pin.moment <= durable and pin.until > self._clock.now_ms():
                    raise Broken(Rule.RETENTION, f"the pin {name} is gone")
                del self.pins[name]

    def check(self, log: StreamLog, went: list[Record], groups: list[Consumption]) -> None:
        """Were records to go?"""
        size = sum([record.size for records in log.records for record in records.values()])
        size += sum([record.size for record in went])
        if self._is_too_much(size):  # what was due once and had to stay goes later
            self._due.update([record.place for known in log.records for record in known.values()])
            self._due.update([record.place for record in went])
        for record in went:
            if not (self._is_old(record, 0) or record.place in self._due or self._is_done(record, groups)):
                raise Broken(Rule.RETENTION, f"{record} is gone, and was not due")
            self._check_needless(record, groups)

    def _is_old(self, record: Record, late: int) -> bool:
        limit = round(self._setup.retention_time * 1000)
        return limit >= 0 and self._clock.now_ms() - self._clock.right_ms(record.time_ms) >= limit + late

    def _is_too_much(self, size: int) -> bool:
        return 0 < self._setup.retention_bytes < size

    def _is_done(self, record: Record, groups: list[Consumption]) -> bool:
        stored = [group for group in groups if group.is_stored]
        done = [not group.is_about(record) or not group.work(record).is_open for group in stored]
        return self._setup.retention_groups_done and bool(stored) and all(done)

    def _check_needless(self, record: Record, groups: list[Consumption]) -> None:
        now = self._clock.now_ms()
        for name, pin in self.pins.items():
            if record.place in pin.places and pin.until > now:
                raise Broken(Rule.RETENTION, f"{record} is gone, and was pinned by {name}")
        for group in groups:
            work = group.work(record)
            if work.holder is not None:
                raise Broken(Rule.RETENTION, f"{record} is gone, and {work.holder.member} of {group} has it")
            if work.may_be_open and all([state.place is Place.RETRY for state in work.possible]):
                raise Broken(Rule.RETENTION, f"{record} is gone, and a retry of {group} needs it")

    def late(self, log: StreamLog) -> list[Record]:
        """What should be gone, when nobody has needed anything for a while."""
        if self._clock.wrong.was_set:  # what has a wrong time goes with what comes after it
            return []
        if any([pin.until > self._clock.now_ms() - LATE for pin in self.pins.values()]):
            return []
        left = [record for records in log.records for record in records.values()]
        if self._is_too_much(sum([record.size for record in left])):
            return left
        return [record for record in left if self._is_old(record, LATE)]


class Strays:
    """Says what must become of them, and sees that it does."""

    def __init__(self, log: StreamLog, find: Callable[[Consumption], Group]) -> None:
        self._log = log
        self._find = find

    @contextmanager
    def expected(
        self, consumption: Consumption, member: Membership, key: Key, ack: str, *, reject: bool
    ) -> Iterator[None]:
        """Something is acknowledged or rejected that the member does not have.

        Late, it counts if nobody has the message and it would be delivered again. Stale, it does not, and fenced
        neither: of an assignment that has ended.
        """
        group = self._find(consumption)
        child = group.members[member.id].children.get(key[0])
        is_fenced = child is None or not child.is_meant(int(ack.split(".")[2].partition("-")[0]), key[1])
        before = (group.late, group.stale, group.fenced)
        yield
        counted = tuple([now - then for now, then in zip((group.late, group.stale, group.fenced), before, strict=True)])
        if member.client is None or member.client.is_gone:
            return  # the store could not be read: the client was told
        if is_fenced or reject:
            wanted = (0, 0, int(is_fenced))
            if counted != wanted:
                raise Broken(Rule.ACKNOWLEDGED, f"{ack} is late, stale, fenced {counted}, it should be {wanted}")
            return
        work = self._work(consumption, key)
        may_count = _counts(key)
        if counted == (1, 0, 0):
            if consumption.has_crashed and work is not None:  # it may have been delivered before the crash
                may_count = _is_open
            if work is None or work.holder is not None or not work.narrow(may_count):
                raise Broken(Rule.ACKNOWLEDGED, f"{ack} counts, and should not")
            consumption.finish(work)
        elif counted != (0, 1, 0):
            raise Broken(Rule.ACKNOWLEDGED, f"{ack} is late, stale, fenced {counted}")
        elif work is not None and work.holder is None and not work.narrow(lambda state: not may_count(state)):
            raise Broken(Rule.ACKNOWLEDGED, f"{ack} does not count, and should: {work.record} is {set(work.possible)}")

    def _work(self, consumption: Consumption, key: Key) -> Work | None:
        lane, sequence = key
        if lane == RETRIES:
            return consumption.retries.get(sequence)
        record = self._log.at(lane, sequence)
        return None if record is None or record.is_leaving else consumption.work(record)


def _is_open(state: State) -> bool:
    return state.is_open


def _counts(key: Key) -> Callable[[State], bool]:
    if key[0] == RETRIES:
        return lambda state: state.place is Place.RETRY
    return lambda state: state.is_open and state.returns > 0


class Truth:
    """What the store has of one group."""

    def __init__(self, store: Store, number: int, definition: GroupDefinition) -> None:
        self.finished: list[AckSet] = []
        self.links: dict[tuple[int, int], list[Delivery]] = {}
        self.is_purging = False
        self._name = definition.name
        self._deliveries: dict[tuple[int, int], Delivery] = {}
        destinations = store.destinations()
        lanes = next(d.lanes for d in destinations if (d.kind, d.name) == ("stream", definition.stream))
        for partition, lane in enumerate(lanes):
            keys = partition_keys(number, partition)
            with store.snapshot() as reader:
                is_known = reader.mark(keys.progress) is not None
                self.finished.append(read_finished(reader, keys) if is_known else AckSet())
            records = LaneRecords(store, lane, AckSet(), keys, LaneState())
            for offset, state in records.deliveries(lane, 0, ALL):
                self._deliveries[partition, offset] = state
        self._read_links(store, number, definition, lanes)
        letters = next((d.lanes[0] for d in destinations if d.name == f"%DLQ%{definition.name}"), 0)
        bodies = [message.body for message in store.page(letters, 0, ALL, ALL).messages] if letters else []
        self._letters = Counter([body[: body.index(b";")].decode() for body in bodies])

    def _read_links(self, store: Store, number: int, definition: GroupDefinition, lanes: tuple[int, ...]) -> None:
        if definition.retry:
            purge = store.mark(f"{prefix_of(number)}purge")  # these are to go, whatever happens
            purged: dict[int, int] = {} if purge is None else msgspec.msgpack.decode(purge, type=dict[int, int])
            self.is_purging = bool(purged)
            for link in store.page(definition.retry, 0, ALL, ALL).messages:
                origin = origin_of(definition.retry, link)
                if link.sequence <= purged.get(origin.lane, 0):
                    continue
                place = (lanes.index(origin.lane), origin.sequence)
                state = Delivery(link.deliveries, link.failures, link.not_before, "")
                self.links.setdefault(place, []).append(state)

    def state_of(self, record: Record) -> State:
        place, letters = record.place, self._letters[record.sent.name]
        is_finished = record.partition < len(self.finished) and record.offset in self.finished[record.partition]
        links, delivery = self.links.get(place, []), self._deliveries.get(place)
        if len(links) > 1 or (links and not is_finished) or (delivery and is_finished):
            text = f"{record} is finished: {is_finished}, has the retries {links} and the state {delivery}"
            raise Broken(Rule.STORED, text)
        if links:
            return State(Place.RETRY, *links[0][:3], letters)
        if is_finished:
            return State(Place.DONE, letters=letters)
        return State(Place.WAITING, *(delivery[:3] if delivery else (0, 0, 0)), letters)

    def check_nothing_else(self, known: set[tuple[int, int]]) -> None:
        """It says something only of records that are there."""
        if lost := self.links.keys() - known:
            raise Broken(Rule.RETENTION, f"{self._name} needs the records {sorted(lost)} for retries, they are gone")
        if left := self._deliveries.keys() - known:
            raise Broken(Rule.LEFT, f"{self._name} remembers deliveries of {sorted(left)}, which are gone")


def truths(store: Store) -> dict[str, Truth]:
    with store.snapshot() as reader:
        marks = list(walk_marks(reader, DEFINITIONS))
    found = {}
    for key, value in marks:
        definition = msgspec.msgpack.decode(value, type=GroupDefinition)
        if not definition.is_removed:
            found[definition.name] = Truth(store, int(key.removeprefix(DEFINITIONS)), definition)
    return found
