"""The operator's door to the schedule: list scheduled messages, cancel them, and when the next one is due."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from quire.broker.schedule import KIND, ScheduledMessage
from quire.errors import InvalidArgument, StoreError
from quire.management.queues import Management
from quire.resources import Scheduled, Status
from quire.units import parse_number

if TYPE_CHECKING:
    from quire.broker.broker import Broker


STEP = 500  # how many scheduled messages are counted in one step


class SchedulePage(Status, frozen=True):
    """Scheduled messages in the order of scheduling; a repeated one in the order of its last send."""

    messages: list[Scheduled]
    next: str | None
    total: int


class ScheduleManagement:
    """Lists and cancels a broker's scheduled messages. An id may raise ``UnknownMessage``."""

    def __init__(self, management: Management) -> None:
        self._schedule = management.broker.schedule

    def page(self, after: str, limit: int) -> SchedulePage:
        """A page of the messages that wait; ``after`` is the ``next`` of the page before, ``0`` for the first one."""
        first = parse_number(after)
        if first is None:
            raise InvalidArgument(f"after is {after[:60]!r}: give the next of an earlier page", argument="after")
        page = self._schedule.browse(first, limit)
        following = None if page.next is None else str(page.next)
        return SchedulePage([_described(each) for each in page.messages], following, self._schedule.depth)

    def cancel(self, id: str) -> None:
        self._schedule.cancel(id)

    def count_between(self, earliest: int, latest: int) -> Iterator[int]:
        """Count what ``cancel_between`` would cancel, in steps."""
        after: int | None = 0
        while after is not None:
            page = self._schedule.browse(after, STEP)
            yield len([each for each in page.messages if earliest <= each.due <= latest])
            after = page.next

    def cancel_between(self, earliest: int, latest: int) -> Iterator[int]:
        """Cancel the messages that are due between two times, in milliseconds since the epoch, in steps."""
        return self._schedule.cancel_between(earliest, latest)


def _described(message: ScheduledMessage) -> Scheduled:
    timing = message.timing
    return Scheduled(
        id=message.id, message_id=message.message_id, destination=message.destination, due=message.due,
        delay=timing.delay, period=timing.period, repeat=timing.repeat, left=message.left, cron=timing.cron,
        priority=message.priority, persistent=message.persistent, time_to_live=message.time_to_live,
        size=message.size,
    )  # fmt: skip


MOST = 1000  # how many entries of the index are looked at: the messages of all destinations that expire are in it

_EVER = 1 << 62


class NextDue:
    """Looks up when the next scheduled message is due."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._lane = 0

    def read(self) -> int | None:
        """When it is due, in ms since the epoch; None if it is not among the first ``MOST``, or unreadable."""
        schedule = self._broker.schedule
        if schedule.depth == 0 or schedule.soon.earliest is not None:
            return schedule.soon.earliest
        try:
            return self._from_store()
        except StoreError:  # the part that has to read it tells of it
            return None

    def _from_store(self) -> int | None:
        if not self._lane:
            known = self._broker.core.store.destinations()
            self._lane = next((stored.lanes[0] for stored in known if stored.kind == KIND), 0)
        found = self._broker.core.store.expired(_EVER, MOST)
        sequence = next((entry.sequence for entry in found if entry.lane == self._lane), None)
        if sequence is None:
            return None
        return next((message.due for message in self._broker.schedule.browse(sequence - 1, 1).messages), None)
