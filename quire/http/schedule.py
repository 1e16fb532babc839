"""The API's schedule: messages that are sent later."""

import msgspec

from quire.broker.scheduling.scheduled_message import ScheduledMessage
from quire.errors import InvalidArgument
from quire.http.endpoint import Call, Endpoint, Fields, Number, PageLimit, Removed
from quire.units import parse_number

ALWAYS = 1 << 62


class Scheduled(msgspec.Struct, frozen=True):
    """A scheduled message.

    ``due`` says when it is sent next, ``left`` how many repeats follow that; -1 for no end. Times are in milliseconds
    since the epoch, ``delay``, ``period`` and ``time_to_live`` in milliseconds.
    """

    id: str
    message_id: str
    destination: str
    due: int
    delay: int
    period: int
    repeat: int
    left: int
    cron: str
    priority: int
    persistent: bool
    time_to_live: int | None
    size: int


class SchedulePage(msgspec.Struct, frozen=True):
    """Scheduled messages, in the order they were scheduled, those that recur as they were sent last."""

    messages: list[Scheduled]
    next: str | None


class ScheduleQuery(Fields, frozen=True):
    """Which part of the schedule to show."""

    limit: PageLimit = 100
    after: str = "0"


class CancelQuery(Fields, frozen=True):
    """Which messages to cancel: those that are due next between two times, in milliseconds since the epoch."""

    earliest: Number = 0
    latest: Number = ALWAYS


class Cancelled(msgspec.Struct, frozen=True):
    """The scheduled message that was cancelled, with all its repeats."""

    cancelled: str


def _list(call: Call) -> SchedulePage:
    after = parse_number(call.query.after)
    if after is None:
        text = f"after is {call.query.after[:60]!r}: give what a page before had as next"
        raise InvalidArgument(text, argument="after")
    page = call.service.broker.schedule.browse(after, call.query.limit)
    following = None if page.next is None else str(page.next)
    return SchedulePage([_described(message) for message in page.messages], following)


async def _cancel(call: Call) -> Cancelled:
    id = call.path["id"]
    call.service.broker.schedule.cancel(id)
    return await call.changed("schedule.cancelled", "the scheduled message {id} was cancelled", Cancelled(id))


async def _cancel_between(call: Call) -> Removed:
    earliest, latest = call.query.earliest, call.query.latest
    steps = call.service.broker.schedule.cancel_between(earliest, latest)
    text = "scheduled messages were cancelled"
    return await call.removed("schedule.cancelled", text, steps, earliest=earliest, latest=latest)


def _described(message: ScheduledMessage) -> Scheduled:
    timing = message.timing
    return Scheduled(
        id=message.id, message_id=message.message_id, destination=message.destination, due=message.due,
        delay=timing.delay, period=timing.period, repeat=timing.repeat, left=message.left, cron=timing.cron,
        priority=message.priority, persistent=message.persistent, time_to_live=message.time_to_live,
        size=message.size,
    )  # fmt: skip


ENDPOINTS = [
    Endpoint("GET", "/schedule", "Messages that are sent later.", _list, SchedulePage, ScheduleQuery),
    Endpoint(
        "DELETE", "/schedule", "Cancel scheduled messages: all, or by time.", _cancel_between, Removed, CancelQuery
    ),
    Endpoint("DELETE", "/schedule/{id}", "Cancel a scheduled message, with all its repeats.", _cancel, Cancelled),
]
