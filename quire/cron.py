"""Cron entries as ActiveMQ's scheduler takes them: when something that comes again and again comes next.

An entry has five fields: minute (0 to 59), hour (0 to 23), day of the month (1 to 31), month (1 to 12) and day of the
week (0 to 6, 0 is Sunday). A field is a list of numbers and ranges, ``0,15,30-45``, or ``*`` or ``?`` for every value.
A step at its end keeps the multiples of a number: ``*/10``, ``8-18/2``. If both day fields are restricted, a day has to
match one of them.

As in ActiveMQ, and not as in Unix, a step counts from 0 and not from the start of its range, and goes for the whole
list before it: ``1-9/2`` is 2,4,6,8.
"""

import re
from calendar import monthrange
from collections.abc import Iterator
from datetime import UTC, date, datetime, tzinfo
from typing import NamedTuple

from quire.errors import InvalidHeader

HEADER = "AMQ_SCHEDULED_CRON"
"""The header that has an entry."""

MAX_LENGTH = 200
"""The longest entry, in characters."""

_YEARS = 9
"""Within so many years every date comes that comes at all: the 29 February is 8 years away around 2100."""

_LONGEST = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)

_FIELD = re.compile(r"(?P<list>[^/]+)(?:/(?P<step>[0-9]{1,4}))?")
_PART = re.compile(r"(?P<first>[0-9]{1,4})(?:-(?P<last>[0-9]{1,4}))?")


class _Field(NamedTuple):
    name: str
    first: int
    last: int


_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of month", 1, 31),
    _Field("month", 1, 12),
    _Field("day of week", 0, 6),
)


class Cron:
    """One entry; ``InvalidHeader`` if it is none, or names dates that never come; ``data`` has the ``field``."""

    def __init__(self, text: str) -> None:
        fields = text[: MAX_LENGTH + 1].split()
        if len(fields) != len(_FIELDS) or len(text) > MAX_LENGTH:
            raise InvalidHeader(
                f"{HEADER} is {text[:60]!r}: five fields, minute hour day-of-month month day-of-week", header=HEADER
            )
        self.text = " ".join(fields)  # as given, with single blanks
        self._minutes, self._hours, self._days, self._months, self._weekdays = [
            _values(field, token) for field, token in zip(_FIELDS, fields, strict=True)
        ]
        self._any_day, self._any_weekday = _is_any(fields[2]), _is_any(fields[4])
        if self._any_weekday and min(self._days) > max([_LONGEST[month - 1] for month in self._months]):
            raise _invalid(_FIELDS[2], fields[2], "no such day in any of the months")

    def next_after(self, time_ms: int, zone: tzinfo = UTC) -> int:
        """When it comes next after a time: a full minute, in milliseconds since the epoch.

        Where clocks change, a time that they skip does not come, and one that they show twice comes the first time. The
        calendar may end before (``InvalidHeader``).
        """
        start = datetime.fromtimestamp(time_ms / 1000, zone)
        for day in self._days_from(start.date()):
            for hour in self._hours:
                if day == start.date() and hour < start.hour:
                    continue
                for minute in self._minutes:
                    shown = datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone)
                    found = int(shown.timestamp()) * 1000
                    if found > time_ms and _is_shown(shown, zone):
                        return found
        raise InvalidHeader(f"{HEADER} is {self.text!r}: it does not occur again", header=HEADER)

    def _days_from(self, start: date) -> Iterator[date]:
        """The days that match, from a day on."""
        for year in range(start.year, min(start.year + _YEARS, date.max.year + 1)):
            for month in self._months:
                if (year, month) >= (start.year, start.month):
                    for number in range(1, monthrange(year, month)[1] + 1):
                        day = date(year, month, number)
                        if day >= start and self._matches(day):
                            yield day

    def _matches(self, day: date) -> bool:
        in_month, in_week = day.day in self._days, day.isoweekday() % 7 in self._weekdays
        if self._any_day or self._any_weekday:
            return in_month and in_week
        return in_month or in_week


def _is_any(token: str) -> bool:
    return token in ("*", "?")


def _values(field: _Field, token: str) -> tuple[int, ...]:
    """The values that a field's token names, ascending."""
    found = _FIELD.fullmatch(token)
    if not found:
        raise _invalid(field, token, "write numbers, ranges, lists, * and a step: 0,10-20 or */15")
    values: set[int] = set()
    for part in found["list"].split(","):
        values.update(_range(field, token, part))
    step = int(found["step"] or 1)
    kept = tuple(sorted(value for value in values if step and value % step == 0))
    if not kept:
        raise _invalid(field, token, f"no value is a multiple of {step}")
    return kept


def _range(field: _Field, token: str, part: str) -> range:
    if _is_any(part):
        return range(field.first, field.last + 1)
    found = _PART.fullmatch(part)
    if not found:
        raise _invalid(field, token, f"{part[:30]!r} is neither a number nor a range")
    first = int(found["first"])
    last = int(found["last"] or first)
    if not field.first <= first <= last <= field.last:
        raise _invalid(field, token, f"from {field.first} to {field.last}, in ascending order")
    return range(first, last + 1)


def _is_shown(shown: datetime, zone: tzinfo) -> bool:
    """Whether the clocks of a zone show this time at all: they do not while they are being put forward."""
    return datetime.fromtimestamp(shown.timestamp(), zone).replace(fold=0) == shown


def _invalid(field: _Field, token: str, text: str) -> InvalidHeader:
    return InvalidHeader(f"{HEADER}: the {field.name} is {token[:30]!r}: {text}", header=HEADER, field=field.name)
