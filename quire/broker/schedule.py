"""The schedule: messages that are sent later, and again and again, kept in the same store as everything else.

It is an internal destination with one lane. A message that waits is a record of that lane whose expiration is the time
it is due, so the store's index of expirations is the index of due times. Where it goes, how, and when again stands in
headers of the record, ``quire-scheduled-...``, which no client sees; what the client asked for stands in ActiveMQ's
AMQ_SCHEDULED_* headers. When it is due, one batch removes its record, sends the message and, if it recurs, appends the
record for the next time. A crash leaves all of that or nothing.

Only what is due within the next seconds is in memory (``DueSoon``): the store is looked at for it every second, and
what is scheduled meanwhile is added when it is committed. A million messages that are due later take no memory. Looking
and sending are work in steps: a million that are due at once hold up no other client.
"""

import logging
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

from quire.broker.core.core import Commit, Core, Owner, Target
from quire.broker.dead_letter import CAUSE, ORIGIN, dead_letter_destination
from quire.cron import HEADER, Cron
from quire.destination import Destination, DestinationKind
from quire.errors import AccessRefused, InvalidHeader, LimitExceeded, QuireError, StoreCorrupt, UnknownMessage
from quire.logs import event
from quire.message import MESSAGE_OVERHEAD, Message, header_lines, with_headers
from quire.scheduler import Timer
from quire.store.base import FIRST_EXPIRATION, Expiration, StoredDestination, StoreReader, WriteBatch


class SchedulePart:
    """What concerns the schedule in one commit.

    Attributes:
        again: records that are tried again if the commit fails, by their id in the schedule.
        removals: the sizes of the records to remove, by sequence.
    """

    __slots__ = ("again", "appends", "listed", "owner", "removals", "written")

    def __init__(self, owner: Owner) -> None:
        self.owner = owner
        self.listed = False
        self.appends: list[Message] = []
        self.again: dict[str, Message] = {}
        self.removals: dict[int, int] = {}
        self.written: list[Message] = []

    def write(self, batch: WriteBatch, lane: int) -> None:
        self.written = sorted([*self.appends, *self.again.values()], key=lambda record: record.sequence)
        part = batch.lane(lane)
        part.appends, part.removals = self.written, list(self.removals)


CRON = HEADER
"""The header that has a cron entry."""

DELAY = "AMQ_SCHEDULED_DELAY"
"""The header that says how long to wait before the first send, in milliseconds."""

PERIOD = "AMQ_SCHEDULED_PERIOD"
"""The header that says how long to wait before each repeat, in milliseconds."""

REPEAT = "AMQ_SCHEDULED_REPEAT"
"""The header that says how many sends follow the first one; -1 for no end."""

MAX_WAIT = 100 * 365 * 86_400_000
"""The longest delay and the longest period, in milliseconds: about a hundred years."""

MAX_REPEAT = (1 << 31) - 1
"""The most repeats: what ActiveMQ's type for them holds."""

MANY = 10_000
"""With more repeats than this a message is taken for one that is sent without end."""

LEAST_PERIOD = 1000
"""The shortest period of what is sent without end, in milliseconds: else one message would fill the store."""

_cron = lru_cache(maxsize=1000)(Cron)


@dataclass(frozen=True, slots=True)
class Timing:
    """When a message is sent.

    It is sent in *runs*: the first send, then its repeats, each a period after the one before. Without a cron entry
    there is one run, which begins now. With one, each time of the entry begins a run; times that come while a run lasts
    are passed over. The first send of a run waits for the delay, or, as in ActiveMQ, for the period if there is none.

    Attributes:
        delay: milliseconds.
        period: milliseconds.
        repeat: how many sends follow the first one of a run; -1 for no end.
        cron: a cron entry, in UTC; empty for none.
    """

    delay: int = 0
    period: int = 0
    repeat: int = 0
    cron: str = ""

    def __post_init__(self) -> None:
        _check(DELAY, self.delay, 0, MAX_WAIT)
        _check(PERIOD, self.period, 0, MAX_WAIT)
        _check(REPEAT, self.repeat, -1, MAX_REPEAT)
        if self.repeat and not self.period:
            raise InvalidHeader(f"{REPEAT} needs {PERIOD}, the milliseconds between the repeats", header=REPEAT)
        if self.cron:
            _cron(self.cron)

    @classmethod
    def of(cls, headers: Mapping[str, str]) -> Self | None:
        """As in ActiveMQ, repeats alone schedule nothing."""
        if not any([headers.get(name, "").strip() for name in (DELAY, PERIOD, CRON)]):
            return None
        delay, period, repeat = [_number(headers, name) for name in (DELAY, PERIOD, REPEAT)]
        timing = cls(delay, period, repeat, headers.get(CRON, "").strip())
        if timing._is_too_dense:
            text = f"{PERIOD} is {period}: {LEAST_PERIOD} is the least for what is sent without end"
            raise InvalidHeader(text, header=PERIOD)
        return timing

    @property
    def recurs(self) -> bool:
        return bool(self.repeat or self.cron)

    @property
    def is_endless(self) -> bool:
        return bool(self.cron) or self.repeat < 0 or self.repeat > MANY

    @property
    def _is_too_dense(self) -> bool:
        runs_on = self.repeat < 0 or self.repeat > MANY or (bool(self.cron) and self.repeat >= 60)
        return runs_on and self.period < LEAST_PERIOD

    def first(self, now_ms: int) -> int:
        start = _cron(self.cron).next_after(now_ms) if self.cron else now_ms
        return start + self._wait

    def following(self, due: int, left: int, now_ms: int) -> tuple[int, int] | None:
        """When the next send is due, and the repeats left then. Times that have gone by are passed over, not made
        up for.
        """
        if left:
            period = LEAST_PERIOD if self._is_too_dense else self.period  # an older broker has taken it
            passed = max(0, now_ms - due) // period
            return due + (passed + 1) * period, left - 1 if left > 0 else left
        if self.cron:
            start = _cron(self.cron).next_after(max(due, now_ms) - self._wait)
            return start + self._wait, self.repeat
        return None

    @property
    def _wait(self) -> int:
        return self.delay or self.period


def _number(headers: Mapping[str, str], name: str) -> int:
    text = headers.get(name, "").strip() or "0"
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal() and len(digits) < 20):
        raise InvalidHeader(f"{name} is {text[:60]!r}: a whole number", header=name)
    return int(text)


def _check(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise InvalidHeader(f"{name} is {value}: a whole number from {least} to {most}", header=name)


JOB_ID = "scheduledJobId"
"""The header of a message that was sent by the schedule: the id it had there (ActiveMQ's name for it)."""

_PREFIX = "quire-scheduled-"
_DESTINATION = _PREFIX + "destination"
_TIME_TO_LIVE = _PREFIX + "time-to-live"
_PERSISTENT = _PREFIX + "persistent"
_DELAY = _PREFIX + "delay"
_PERIOD = _PREFIX + "period"
_REPEAT = _PREFIX + "repeat"
_CRON = _PREFIX + "cron"
_LEFT = _PREFIX + "left"
_ID = _PREFIX + "id"

SENDER = _PREFIX + "by"
"""The header that says who has scheduled a message; no client writes or sees it."""

_SENDER_LINE, _REPEAT_LINE = f"\n{SENDER}:".encode(), f"\n{_REPEAT}:".encode()

_LEFT_OUT = (_PREFIX.encode(), *[name.encode() + b":" for name in (DELAY, PERIOD, REPEAT, CRON, JOB_ID)])
"""How the header lines begin that are not sent on."""


@dataclass(frozen=True, slots=True)
class ScheduledMessage:
    """What a record of the schedule says.

    Attributes:
        id: its id in the schedule; the same for all sends of a message that recurs.
        due: when it is sent next, in milliseconds since the epoch.
        left: how many repeats of its run are left after the next send; -1 for no end.
        time_to_live: how long it lives once it is sent, in milliseconds; None for ever.
        persistent: whether it is persistent once it is sent. In the schedule every message is.
        sender: who has scheduled it (``Accounts.remembered``); empty if there were no users.
    """

    id: str
    message_id: str
    sequence: int
    due: int
    destination: str
    timing: Timing
    left: int
    time_to_live: int | None
    priority: int
    persistent: bool
    size: int
    sender: str

    @classmethod
    def of(cls, record: Message) -> Self:
        headers = record.headers()
        try:
            delay, period, repeat = [int(headers.get(name, 0)) for name in (_DELAY, _PERIOD, _REPEAT)]
            timing = Timing(delay, period, repeat, headers.get(_CRON, ""))
            time_to_live = headers.get(_TIME_TO_LIVE)
            return cls(
                id=headers.get(_ID, str(record.sequence)),
                message_id=headers["message-id"],
                sequence=record.sequence,
                due=record.expiration,
                destination=headers[_DESTINATION],
                timing=timing,
                left=int(headers.get(_LEFT, timing.repeat)),
                time_to_live=None if time_to_live is None else int(time_to_live),
                priority=record.priority,
                persistent=_PERSISTENT not in headers,
                size=record.size,
                sender=headers.get(SENDER, ""),
            )
        except (KeyError, ValueError, InvalidHeader) as error:
            text = f"record {record.sequence} is not a scheduled message: {error}"
            raise StoreCorrupt(text, sequence=record.sequence) from error


def record_content(
    content: bytes, destination: str, timing: Timing, time_to_live: int | None, persistent: bool
) -> bytes:
    """The record of a message: headers that only the schedule may write, and those about it, are left out."""
    added = {_DESTINATION: destination}
    if sender := Message(0, content).header(SENDER.encode()):
        added[SENDER] = sender
    if time_to_live is not None:
        added[_TIME_TO_LIVE] = str(time_to_live)
    if not persistent:
        added[_PERSISTENT] = "false"
    if timing.recurs:
        added |= {_DELAY: str(timing.delay), _PERIOD: str(timing.period), _REPEAT: str(timing.repeat)}
        if timing.cron:
            added[_CRON] = timing.cron
    head, rest = _split(content)
    return b"".join([*head, header_lines(added), rest])


def endless_sender(content: bytes) -> str:
    end = content.index(b"\n\n")
    if content.find(_SENDER_LINE, 0, end) < 0 or content.find(_REPEAT_LINE, 0, end) < 0:
        return ""
    scheduled = ScheduledMessage.of(Message(0, content))
    return scheduled.sender if scheduled.timing.is_endless else ""


def following_record(record: Message, scheduled: ScheduledMessage, left: int) -> bytes:
    return with_headers(record.content, {_ID: scheduled.id, _LEFT: str(left)})


def sent_content(record: Message, scheduled: ScheduledMessage, now_ms: int, new_id: bytes) -> tuple[bytes, int]:
    """The message as it is sent.

    As in ActiveMQ, a message that recurs gets a new id each time, and one with a limited life begins it now.
    """
    head, rest = _split(record.content)
    if scheduled.timing.recurs:
        head[0] = new_id + b"\n"
    expiration = 0
    if scheduled.time_to_live is not None:
        expiration = max(1, now_ms + scheduled.time_to_live)
        head[1] = b"timestamp:%d\n" % now_ms
        head = [*[line for line in head if not line.startswith(b"expires:")], b"expires:%d\n" % expiration]
    return b"".join([*head, header_lines({JOB_ID: scheduled.id}), rest]), expiration


def _split(content: bytes) -> tuple[list[bytes], bytes]:
    end = content.index(b"\n\n")
    lines = content[:end].split(b"\n")
    return [line + b"\n" for line in lines if not line.startswith(_LEFT_OUT)], content[end + 1 :]


@dataclass(frozen=True, slots=True)
class SchedulePage:
    """A part of the schedule.

    Attributes:
        next: what to ask for the next page with; None at the end.
    """

    messages: list[ScheduledMessage]
    next: int | None


MOST = 1000
"""How many messages may be in memory."""

MOST_BYTES = 1 << 20
"""How many bytes they may take; a larger message is alone."""

MOST_READS = 200
"""How many reads one look at the store makes; neighbours in the lane are read together."""

MOST_EXPIRATIONS = 4000
"""How many entries of the index of expirations one look goes through; those of all queues are in it."""


def _order(record: Message) -> tuple[int, int]:
    return record.expiration, record.sequence


class DueSoon:
    """The records of the schedule that are due first, in their order.

    The index of expirations, which has the entries of all queues too, is read on from where the last look ended: behind
    other queues' entries the schedule's are found some looks later, and none is read twice. All records are here that
    the index has up to there, but for those that were taken out.

    Attributes:
        has_more: whether the index may have more records up to the horizon of the last look.
    """

    def __init__(self) -> None:
        self.has_more = True
        self._records: list[Message] = []
        self._bytes = 0
        self._lane = 0
        self._read_to = FIRST_EXPIRATION

    def __len__(self) -> int:
        return len(self._records)

    @property
    def earliest(self) -> int | None:
        return self._records[0].expiration if self._records else None

    def read(self, reader: StoreReader, lane: int, horizon: int, passed: set[int]) -> None:
        """Take what the store has next, as far as it fits and one look may read. A missing record is
        ``StoreCorrupt``.
        """
        self._lane, self.has_more = lane, True
        found = reader.expired(horizon, MOST_EXPIRATIONS, self._read_to)
        own = [entry for entry in found if entry.lane == lane and entry.sequence not in passed]
        records: list[Message] = []
        room = MOST_BYTES
        for reads, run in enumerate(_runs([entry.sequence for entry in own[:MOST]])):
            if room <= 0 or reads == MOST_READS:
                break
            records += _read_run(reader, lane, run, room)
            room = MOST_BYTES - _charge(records)
            if records[-1].sequence != run[-1]:
                break
        if len(records) < len(own):
            self._read_to = own[len(records) - 1]
        elif len(found) == MOST_EXPIRATIONS:
            self._read_to = found[-1]
        else:
            self._read_to = max(self._read_to, Expiration(horizon + 1, 0, 0))
            self.has_more = False
        self._records, self._bytes = records, _charge(records)

    def add(self, record: Message) -> None:
        """Have one more record, if the index was read so far; otherwise it is found there."""
        if Expiration(record.expiration, self._lane, record.sequence) > self._read_to:
            return
        self._records.insert(bisect_right(self._records, _order(record), key=_order), record)
        self._bytes += record.size + MESSAGE_OVERHEAD
        while len(self._records) > MOST or (self._bytes > MOST_BYTES and len(self._records) > 1):
            last = self._records.pop()
            self._bytes -= last.size + MESSAGE_OVERHEAD
            self._read_to = Expiration(last.expiration, self._lane, last.sequence - 1)
            self.has_more = True

    def pop(self, now_ms: int) -> Message | None:
        if not self._records or self._records[0].expiration > now_ms:
            return None
        record = self._records.pop(0)
        self._bytes -= record.size + MESSAGE_OVERHEAD
        return record

    def discard(self, sequence: int) -> None:
        for index, record in enumerate(self._records):
            if record.sequence == sequence:
                self._bytes -= record.size + MESSAGE_OVERHEAD
                del self._records[index]
                return


def _charge(records: list[Message]) -> int:
    return sum([record.size for record in records]) + len(records) * MESSAGE_OVERHEAD


def _read_run(reader: StoreReader, lane: int, run: list[int], room: int) -> list[Message]:
    """The first records of a run, as many as fit, and one at least."""
    records = reader.page(lane, run[0], room, len(run)).messages
    found = [record.sequence for record in records] or [0]
    for expected, sequence in zip(run, found, strict=False):
        if sequence != expected:
            text = f"record {expected} of lane {lane} is in the index of expirations, but missing"
            raise StoreCorrupt(text, lane=lane, sequence=expected)
    return records


def _runs(sequences: list[int]) -> Iterator[list[int]]:
    run: list[int] = []
    for sequence in sequences:
        if run and sequence != run[-1] + 1:
            yield run
            run = []
        run.append(sequence)
    if run:
        yield run


KIND = "schedule"
"""The kind of the schedule's destination in the store."""

NAME = "$quire.schedule"
"""Its name."""

LOOK_INTERVAL = 1.0
"""How often the store is looked at for messages that are due soon, in seconds."""

AHEAD = 2000
"""How long before it is due a message may be read, in milliseconds."""

BUDGET = 0.006
"""How long messages are sent before others have their turn, in seconds; one that has begun is sent."""

STEP = 1000
"""How many messages one step of a cancellation looks at."""

PAGE_BYTES = 2 << 20
"""How many bytes of messages a page or a step has, if it has more than one message."""


class Schedule:
    """The schedule of a broker.

    Attributes:
        sent: how many it has sent since the broker started.
        check_send: called before a message is sent, with who has scheduled it and where it goes; raises an error if
            that user may not send it there now.
    """

    ledger = None

    def __init__(
        self, core: Core, create_stored: Callable[[str, str], StoredDestination], target: Callable[[str], Target]
    ) -> None:
        self._core = core
        self._create_stored = create_stored
        self._target = target
        self._stored: StoredDestination | None = None
        self.depth = self.bytes = self.sent = 0
        self.soon = DueSoon()
        self._endless: dict[str, int] = {}  # how many messages without end each user has scheduled
        self.check_send: Callable[[str, str], None] = lambda sender, destination: None
        self._next_sequence = self._first_counted = 1
        self._open = SchedulePart(self)
        self._under_way: SchedulePart | None = None
        self._damaged: set[int] = set()
        self._timer: Timer | None = None
        self._is_busy = self._stopped = False

    def load(self) -> None:
        for stored in self._core.store.destinations():
            if stored.kind == KIND:
                self._load(stored)

    def _load(self, stored: StoredDestination) -> None:
        self._stored = stored
        state = self._core.store.lane_state(self._lane)
        self.depth, self.bytes, self._next_sequence = state.count, state.bytes, state.next_sequence
        self._first_counted = state.next_sequence
        self._core.charge_stored(state.bytes)
        self._wake_in(0.0)

    @property
    def _lane(self) -> int:
        assert self._stored is not None
        return self._stored.lanes[0]

    def now_ms(self) -> int:
        return self._core.wall.past_ms()

    # A message comes in.

    def send_later(self, content: bytes, due: int, priority: int = 4) -> None:
        self._open.appends.append(self._append(content, due, priority))

    def transfer_later(self, content: bytes, due: int, priority: int = 4) -> None:
        """As ``send_later``, for what is given up elsewhere in this commit: if it fails, both are in the next one."""
        record = self._append(content, due, priority)
        self._open.again[str(record.sequence)] = record

    def _transfer_again(self, id: str, content: bytes, due: int, priority: int) -> None:
        """Take the record for the next time of a message that has an id already, and note where it is."""
        record = self._open.again[id] = self._append(content, due, priority)
        self._core.set_mark(_mark(id), b"%d" % record.sequence)

    def _append(self, content: bytes, due: int, priority: int) -> Message:
        self._count(content, 1)
        if self._stored is None:
            self._stored = self._create_stored(KIND, NAME)
        record = Message(self._next_sequence, content, due, priority)
        self._next_sequence += 1
        self._core.charge_open(record.size)
        self._core.list_part(self._open)
        return record

    def check_room(self, sender: str, more: int = 1) -> None:
        """See that a user may schedule more messages without end."""
        limit = self._core.settings.limits.schedules_per_user
        if limit and self._endless.get(sender, 0) + more > limit:
            text = f"this user has {limit} scheduled messages without end: limits.schedules_per_user"
            raise LimitExceeded(text, limit=limit)

    def _count(self, content: bytes, more: int) -> None:
        """A user has more messages without end, or fewer. Those of before the start count once they are sent."""
        self._count_of(endless_sender(content), more)

    def _count_of(self, sender: str, more: int) -> None:
        if sender:
            self._endless[sender] = self._endless.get(sender, 0) + more
            if not self._endless[sender]:
                del self._endless[sender]

    # Commits.

    def fill(self, commit: Commit) -> None:
        part, self._open = self._open, SchedulePart(self)
        self._under_way = part
        commit.parts[self] = part
        part.write(commit.batch, self._lane)

    def committed(self, part: SchedulePart) -> None:
        self._under_way = None
        grown = sum([record.size for record in part.written]) - sum(part.removals.values())
        self.depth += len(part.written) - len(part.removals)
        self.bytes += grown
        self._core.charge_stored(grown)
        for record in part.written:
            if record.sequence not in self._open.removals:
                self.soon.add(record)
        if self.soon or self._timer is None:
            self._wake()

    def commit_failed(self, part: SchedulePart, restored: set[int]) -> None:
        """A commit failed: what was sent in it is refused; what the schedule did itself is done in the next one."""
        self._under_way = None
        following = self._open
        for record in part.written:
            if following.removals.pop(record.sequence, None) is None:
                self._count(record.content, -1)
        following.removals |= part.removals
        for id, record in part.again.items():
            if id == str(record.sequence):
                self.transfer_later(record.content, record.expiration, record.priority)
            else:
                self._transfer_again(id, record.content, record.expiration, record.priority)
        if following.removals:
            self._core.list_part(following)

    def stop(self) -> None:
        self._stopped = True
        if self._timer:
            self._timer.cancel()

    # A message is due.

    def _wake_in(self, seconds: float) -> None:
        if self._timer:
            self._timer.cancel()
        self._timer = self._core.scheduler.call_later(seconds, self._wake)

    def _wake(self) -> None:
        if not (self._is_busy or self._stopped):
            self._is_busy = True
            self._core.steps.add(self._step, "the schedule")

    def _step(self) -> bool:
        if self._stopped or self.depth == 0:
            self._is_busy, self._timer = False, None
            return False
        now = self.now_ms()
        self._send_due(now)
        if not self.soon:
            self._look_ahead(now)
        earliest = self.soon.earliest
        if (self.soon.has_more and earliest is None) or (earliest is not None and earliest <= now):
            return True
        self._is_busy = False
        self._wake_in(LOOK_INTERVAL if earliest is None else min(LOOK_INTERVAL, (earliest - now) / 1000))
        return False

    def _send_due(self, now: int) -> None:
        clock = self._core.clock
        end = clock.monotonic() + BUDGET
        while (record := self.soon.pop(now)) is not None:
            self._send(record, now)
            if clock.monotonic() >= end:
                return

    def _send(self, record: Message, now: int) -> None:
        try:
            scheduled = ScheduledMessage.of(record)
        except StoreCorrupt as damage:
            self._note_damage(record.sequence, damage)
            return
        new_id = self._core.id_prefix + b"%d" % self._core.next_message_id()
        content, expiration = sent_content(record, scheduled, now, new_id)
        is_allowed = self._deliver(scheduled, content, expiration)
        following = scheduled.timing.following(scheduled.due, scheduled.left, now) if is_allowed else None
        if following is not None:
            due, left = following
            self._transfer_again(scheduled.id, following_record(record, scheduled, left), due, record.priority)
        self._remove(scheduled, recurs=following is not None)
        self.sent += 1
        self._core.hurry()

    def _deliver(self, scheduled: ScheduledMessage, content: bytes, expiration: int) -> bool:
        """Give a message to its destination, or to the dead letters; whether its user may go on with it."""
        is_allowed = True
        with self._core.limits.own_work():
            try:
                self.check_send(scheduled.sender, scheduled.destination)
                if scheduled.sender and scheduled.timing.is_endless:  # a transaction may have brought many at once
                    self.check_room(scheduled.sender, 0)
                target = self._target(scheduled.destination)
            except QuireError as error:
                is_allowed = not isinstance(error, AccessRefused | LimitExceeded)
                origin = Destination(DestinationKind.QUEUE, NAME)
                letters = dead_letter_destination(origin, self._core.settings.policies.of(origin))
                target = self._target(f"/{letters.kind}/{letters.name}")
                content = with_headers(content, {ORIGIN: scheduled.destination, CAUSE: str(error)})
                expiration = 0
        target.transfer(content, expiration, scheduled.priority, scheduled.persistent)
        return is_allowed

    def _remove(self, scheduled: ScheduledMessage, *, recurs: bool) -> None:
        self._open.removals[scheduled.sequence] = scheduled.size
        if scheduled.timing.is_endless and scheduled.sequence >= self._first_counted:
            self._count_of(scheduled.sender, -1)
        if not recurs and scheduled.id != str(scheduled.sequence):
            self._core.set_mark(_mark(scheduled.id), None)
        self._core.list_part(self._open)

    def _note_damage(self, sequence: int, damage: StoreCorrupt) -> None:
        """A record cannot be read: it stays where it is, and the others go on."""
        self._damaged.add(sequence)
        text = f"a scheduled message cannot be sent: {damage} {damage.entry.advice}"
        event("schedule.damaged", text, logging.ERROR, sequence=sequence)

    def _look_ahead(self, now: int) -> None:
        passed = self._damaged | self._open.removals.keys()
        if self._under_way:  # the store may have it already, while it is not announced
            passed |= self._under_way.removals.keys() | {record.sequence for record in self._under_way.written}
        try:
            with self._core.store.snapshot() as reader:
                self.soon.read(reader, self._lane, now + AHEAD, passed)
        except StoreCorrupt as damage:  # it is passed over by the next look
            self._note_damage(damage.data["sequence"], damage)

    # For operators.

    def browse(self, after: int = 0, limit: int = 100) -> SchedulePage:
        """A page of the messages that wait.

        Args:
            after: what the page before gave as ``next``; 0 for the first page.
        """
        if self._stored is None:
            return SchedulePage([], None)
        page = self._core.store.page(self._lane, after + 1, PAGE_BYTES, limit)
        messages = [ScheduledMessage.of(record) for record in page.messages if not self._is_leaving(record.sequence)]
        return SchedulePage(messages, None if page.end else page.messages[-1].sequence)

    def cancel(self, id: str) -> None:
        for part in (self._open, self._under_way):
            if part is not None and (record := part.again.pop(id, None)) is not None:
                self._core.set_mark(_mark(id), None)
                self._count(record.content, -1)
                if part is self._under_way:
                    self._open.removals[record.sequence] = record.size
                    self._core.list_part(self._open)
                return
        self._take_out(self._stored_message(id))

    def cancel_between(self, earliest: int, latest: int) -> Iterator[int]:
        """Take all messages out that are due between two times, in steps; the caller lets the commit end between
        two.
        """
        after: int | None = 0
        last = self._next_sequence
        while after is not None and after < last:
            page = self.browse(after, STEP)
            found = [scheduled for scheduled in page.messages if earliest <= scheduled.due <= latest]
            for scheduled in found:
                self._take_out(scheduled)
            yield len(found)
            after = page.next

    def _stored_message(self, id: str) -> ScheduledMessage:
        found: list[Message] = []
        if self._stored is not None and id.isascii() and id.isdecimal() and len(id) < 19:
            mark = self._core.store.mark(_mark(id))
            sequence = int(mark or id)
            if not self._is_leaving(sequence):
                found = self._core.store.load(self._lane, [sequence])
        scheduled = ScheduledMessage.of(found[0]) if found else None
        if scheduled is None or scheduled.id != id:
            raise UnknownMessage(f"the schedule has no message {id[:60]!r}", id=id[:60])
        return scheduled

    def _take_out(self, scheduled: ScheduledMessage) -> None:
        self.soon.discard(scheduled.sequence)
        self._remove(scheduled, recurs=False)

    def _is_leaving(self, sequence: int) -> bool:
        parts = (self._open, self._under_way)
        return any([part is not None and sequence in part.removals for part in parts])


class ScheduledSend:
    """Takes messages that are sent later: the target of a send with ``AMQ_SCHEDULED_`` headers.

    Attributes:
        sender: who sends, as the messages are to keep it; empty if that is not asked for, or they have it already.
    """

    def __init__(
        self, schedule: Schedule, destination: str, delay: int = 0, period: int = 0, repeat: int = 0, cron: str = ""
    ) -> None:
        self.sender = ""
        self._schedule = schedule
        self._destination = destination
        self._timing = Timing(delay, period, repeat, cron)

    @property
    def is_endless(self) -> bool:
        return self._timing.is_endless

    def check_room(self, sender: str) -> None:
        if self._timing.is_endless:
            self._schedule.check_room(sender)

    def send(self, content: bytes, expiration: int = 0, priority: int = 4, persistent: bool = True) -> None:
        """Take a message. As long as its expiration is away, so long it lives once it is sent (ActiveMQ)."""
        record, due = self._record(content, expiration, persistent)
        self._schedule.send_later(record, due, priority)

    def transfer(self, content: bytes, expiration: int = 0, priority: int = 4, persistent: bool = True) -> None:
        record, due = self._record(content, expiration, persistent)
        self._schedule.transfer_later(record, due, priority)

    def expect_groups(self) -> None:
        """Messages of groups need nothing here: their destination hears of them when they are sent."""

    def signed(self, content: bytes) -> bytes:
        return with_headers(content, {SENDER: self.sender}) if self.sender else content

    def _record(self, content: bytes, expiration: int, persistent: bool) -> tuple[bytes, int]:
        now = self._schedule.now_ms()
        time_to_live = expiration - now if expiration else None
        record = record_content(self.signed(content), self._destination, self._timing, time_to_live, persistent)
        return record, self._timing.first(now)


def _mark(id: str) -> str:
    return f"schedule/{id}"
