"""The API's schedule: messages that the broker sends later."""

from typing import Any

import msgspec

from quire.http.endpoint import ActionQuery, Call, Endpoint, Fields, Number, PageLimit, Removed
from quire.http.rights import MONITOR, OPERATE
from quire.http.two_steps import counted
from quire.management.schedule_management import SchedulePage

ALWAYS = 1 << 62


class ScheduleQuery(Fields, frozen=True):
    """Which part of the schedule to show."""

    limit: PageLimit = 100
    after: str = "0"


class CancelQuery(ActionQuery, frozen=True):
    """Which messages to cancel: those that are due between two times, in milliseconds since the epoch."""

    earliest: Number = 0
    latest: Number = ALWAYS


class Cancelled(msgspec.Struct, frozen=True):
    """The scheduled message that was cancelled, with all its repeats."""

    cancelled: str


async def _cancel(call: Call) -> Cancelled:
    id = call.path["id"]
    call.schedule.cancel(id)
    return await call.changed("schedule.cancelled", "the scheduled message {id} was cancelled", Cancelled(id))


async def _cancel_between(call: Call) -> Removed:
    earliest, latest = call.query.earliest, call.query.latest
    text, steps = "scheduled messages were cancelled", call.schedule.cancel_between(earliest, latest)
    return await call.removed("schedule.cancelled", text, steps, earliest=earliest, latest=latest)


def _count(call: Call) -> Any:
    steps = call.schedule.count_between(call.query.earliest, call.query.latest)
    return counted(call.service.clock, steps)


ENDPOINTS = [
    Endpoint(
        "GET", "/schedule", MONITOR, "List the scheduled messages.",
        lambda call: call.schedule.page(call.query.after, call.query.limit), SchedulePage, ScheduleQuery,
    ),
    Endpoint(
        "DELETE", "/schedule", OPERATE, "Cancel scheduled messages: all, or by time.", _cancel_between, Removed,
        CancelQuery, dry_run=_count,
    ),
    Endpoint("DELETE", "/schedule/{id}", OPERATE,
    "Cancel a scheduled message, with all its repeats.", _cancel, Cancelled),
]  # fmt: skip
