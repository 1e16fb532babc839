"""The schedule: messages that are sent later, and again and again, kept in the same store as everything else.

It is an internal destination with one lane. A message that waits is a record of that lane whose expiration is the time
it is due, so the store's index of expirations is the index of due times. When it is due, one batch removes its record,
sends the message and, if it recurs, appends the record for the next time. A crash leaves all of that or nothing.

Only what is due within the next seconds is in memory (``due_soon``): the store is looked at for it every second, and
what is scheduled meanwhile is added when it is committed. A million messages that are due later take no memory. Looking
and sending are work in steps: a million that are due at once hold up no other client.
"""

import logging
from collections.abc import Callable, Iterator

from quire.broker.core.commit import Commit
from quire.broker.core.core import Core
from quire.broker.core.services import Target
from quire.broker.dead_letter import CAUSE, ORIGIN, dead_letter_destination
from quire.broker.scheduling.due_soon import DueSoon
from quire.broker.scheduling.schedule_page import SchedulePage
from quire.broker.scheduling.schedule_part import SchedulePart
from quire.broker.scheduling.scheduled_message import (
    ScheduledMessage,
    endless_sender,
    following_record,
    record_content,
    sent_content,
)
from quire.broker.scheduling.timing import Timing
from quire.destination import Destination, DestinationKind
from quire.errors import AccessRefused, LimitExceeded, QuireError, StoreCorrupt, UnknownMessage
from quire.logs import event
from quire.message import Message, with_headers
from quire.scheduler import Timer
from quire.store.base import StoredDestination

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
        depth: how many messages it has; exact.
        bytes: their sizes.
        sent: how many it has sent since the broker started.
        soon: those that are in memory.
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
        """Take what the store has."""
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
        """The time that due times are on, in milliseconds since the epoch."""
        return self._core.wall.past_ms()

    # A message comes in.

    def send_later(self, content: bytes, due: int, priority: int = 4) -> None:
        """Take a message. It is in the schedule when the open commit is done, and refused if that fails.

        Args:
            due: when it is sent, in milliseconds since the epoch.
        """
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
        """See that a user may schedule more messages without end.

        Raises:
            LimitExceeded: it has as many as it may.
        """
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
        """Put what has gathered into a commit."""
        part, self._open = self._open, SchedulePart(self)
        self._under_way = part
        commit.parts[self] = part
        part.write(commit.batch, self._lane)

    def committed(self, part: SchedulePart) -> None:
        """A commit is done: what it brought can become due, what it sent is gone, and more may be due."""
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
        """Before a clean stop: nothing more is sent."""
        self._stopped = True
        if self._timer:
            self._timer.cancel()

    # A message is due.

    def _wake_in(self, seconds: float) -> None:
        if self._timer:
            self._timer.cancel()
        self._timer = self._core.scheduler.call_later(seconds, self._wake)

    def _wake(self) -> None:
        """Something may be due, or due soon."""
        if not (self._is_busy or self._stopped):
            self._is_busy = True
            self._core.steps.add(self._step, "the schedule")

    def _step(self) -> bool:
        """Send some of what is due, or read what is due next; whether there is more to do at once."""
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
        """Send what is due, for a while."""
        clock = self._core.clock
        end = clock.monotonic() + BUDGET
        while (record := self.soon.pop(now)) is not None:
            self._send(record, now)
            if clock.monotonic() >= end:
                return

    def _send(self, record: Message, now: int) -> None:
        """Send a message, remove its record, and append the next one, all in the open commit."""
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
        """Give a message to its destination; to the dead letters if that is there no more, or its user may not send.

        Returns:
            Whether its user may send it, and go on with it.
        """
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
        """Read what is due soon, as far as one look goes.

        Raises:
            StoreError: the store cannot be read.
        """
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
            limit: how many messages at the most. There are fewer when they are large.
        """
        if self._stored is None:
            return SchedulePage([], None)
        page = self._core.store.page(self._lane, after + 1, PAGE_BYTES, limit)
        messages = [ScheduledMessage.of(record) for record in page.messages if not self._is_leaving(record.sequence)]
        return SchedulePage(messages, None if page.end else page.messages[-1].sequence)

    def cancel(self, id: str) -> None:
        """Take a message out, with all its repeats. It is gone when the open commit is done.

        Raises:
            UnknownMessage: there is none, or it is being sent for the last time.
            StoreError: it cannot be read.
        """
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
        """Take all messages out that are due next between two times, in steps.

        The caller lets the open commit end before it asks for the next step.

        Raises:
            StoreError: a message cannot be read.
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

    Args:
        delay: how long to wait before the first send, in milliseconds.
        period: how long to wait before each repeat, in milliseconds.
        cron: a cron entry, in UTC; empty for none.
    """

    def __init__(
        self, schedule: Schedule, destination: str, delay: int = 0, period: int = 0, repeat: int = 0, cron: str = ""
    ) -> None:
        self._schedule = schedule
        self._destination = destination
        self._timing = Timing(delay, period, repeat, cron)

    @property
    def is_endless(self) -> bool:
        """Whether messages are sent again and again without end: each of them counts."""
        return self._timing.is_endless

    def check_room(self, sender: str) -> None:
        """See that a user may schedule a message, as ``Schedule.check_room``."""
        if self._timing.is_endless:
            self._schedule.check_room(sender)

    def send(self, content: bytes, expiration: int = 0, priority: int = 4, persistent: bool = True) -> None:
        """Take a message. It is stored, persistent or not.

        Args:
            expiration: milliseconds since the epoch; 0 for never. As long as it is away, so long the message lives once
                it is sent (ActiveMQ).
            persistent: whether it is persistent once it is sent.
        """
        record, due = self._record(content, expiration, persistent)
        self._schedule.send_later(record, due, priority)

    def transfer(self, content: bytes, expiration: int = 0, priority: int = 4, persistent: bool = True) -> None:
        """As ``send``, for what is given up elsewhere in this commit: if it fails, both are in the next one."""
        record, due = self._record(content, expiration, persistent)
        self._schedule.transfer_later(record, due, priority)

    def expect_groups(self) -> None:
        """Messages of groups need nothing here: their destination hears of them when they are sent."""

    def _record(self, content: bytes, expiration: int, persistent: bool) -> tuple[bytes, int]:
        now = self._schedule.now_ms()
        time_to_live = expiration - now if expiration else None
        record = record_content(content, self._destination, self._timing, time_to_live, persistent)
        return record, self._timing.first(now)


def _mark(id: str) -> str:
    """The key of the mark that says which record a message has that was sent before."""
    return f"schedule/{id}"
