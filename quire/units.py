"""Sizes, durations and times as people write them: ``64MB``, ``1GiB``, ``30s``, ``500ms``, ``2026-01-31T12:00:00Z``."""

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal

MAX_DIGITS = 15
"""How many digits a number may have that says a time or an offset: enough for all of them."""

LARGEST = 2**63 - 1
"""The largest whole number that every store takes."""

_SIZE = re.compile(r"\s*(\d{1,30}(?:\.\d{1,30})?)\s*([kmgt]?)(i?)b?\s*", re.IGNORECASE)
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|)\s*", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_SECONDS = {
    "ms": Decimal("0.001"),
    "": Decimal(1),
    "s": Decimal(1),
    "m": Decimal(60),
    "h": Decimal(3600),
    "d": Decimal(86400),
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_number(text: str) -> int | None:
    """The number of decimal digits that a client wrote, from 0 to ``LARGEST``; None if it is anything else."""
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(LARGEST))):
        return None
    number = int(text)
    return number if number <= LARGEST else None


def parse_size(text: str | int) -> int:
    found = _SIZE.fullmatch(str(text))
    if not found:
        raise ValueError(f"{text!r} is not a size: write 1024, 64MB or 1GiB")
    number, unit, binary = found.groups()
    factor: int = (1024 if binary else 1000) ** _POWERS[unit.lower()]
    return round(Decimal(number) * factor)


def parse_duration(text: str | float) -> float:
    """Read a duration such as ``30``, ``30s``, ``500ms``, ``5m``, ``1h`` or ``7d``, in seconds."""
    found = _DURATION.fullmatch(str(text))
    if not found:
        raise ValueError(f"{text!r} is not a duration: write 500ms, 30s, 5m, 1h or 7d")
    return float(Decimal(found.group(1)) * _SECONDS[found.group(2).lower()])


_IN_SECONDS = range(100_000_000, 100_000_000_000)
"""Times from 1973 to 5138 in seconds; in milliseconds they were before March 1973."""


class TimeInSeconds(ValueError):
    """A time in seconds where milliseconds are meant; the text says so."""


def parse_time(text: str) -> int:
    """Read a time. A number of milliseconds that would be a time of our days in seconds is refused."""
    if text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS:
        if int(text) in _IN_SECONDS:
            raise TimeInSeconds(f"{text} is a time in seconds: write it in milliseconds, as {text}000")
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        forms = "milliseconds since the epoch, or ISO 8601 as 2026-01-31T12:00:00Z"
        raise ValueError(f"{text[:60]!r} is not a time: write {forms}") from error
    return ((time if time.tzinfo else time.replace(tzinfo=UTC)) - _EPOCH) // timedelta(milliseconds=1)


def format_size(size: float) -> str:
    """Write a size in bytes for people."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
