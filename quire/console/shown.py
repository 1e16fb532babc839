"""Values as the pages show them. Text of clients stays text, and what would not be seen is named."""

import re
from datetime import UTC, datetime

MOST_SHOWN = 200  # how many characters of a name or a header a page shows, unless it is about that one
UNKNOWN = "–"  # noqa: RUF001 - an en dash: nothing is known

_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
_SIZES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def text(value: object, limit: int = MOST_SHOWN) -> str:
    """Text of a client on one line: control characters and those that turn the direction are shown by their codes."""
    if value is None:
        return UNKNOWN
    whole = str(value)
    cut = whole[:limit]
    shown = _UNSEEN.sub(_named, cut)
    return shown if len(whole) <= limit else f"{shown}… ({number(len(whole))} characters)"


def body(value: str) -> str:
    """Text of a client on many lines: line ends and tabs stay."""
    return _UNSEEN.sub(lambda found: found[0] if found[0] in "\n\t\r" else _named(found), value)


def _named(found: re.Match[str]) -> str:
    code = ord(found[0])
    return chr(0x2400 + code) if code < 0x20 else f"⟨U+{code:04X}⟩"


def number(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.0f}"


def rate(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    return "0" if not value else f"{value:,.0f}/s" if value >= 100 else f"{value:.1f}/s" if value >= 0.05 else "<0.1/s"


def size(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    for unit in _SIZES[:-1]:
        if value < 1024:
            return f"{value:,.0f} {unit}" if value >= 100 or unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:,.1f} {_SIZES[-1]}"


def span(seconds: float | None) -> str:
    if seconds is None:
        return UNKNOWN
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole, parts = int(seconds), []
    for length, unit in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        if count := whole // length:
            parts.append(f"{count} {unit}")
            whole -= count * length
        elif parts:
            break
    return " ".join(parts[:2])


def time(milliseconds: float | None) -> str:
    if not milliseconds:
        return UNKNOWN
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):  # a client's header may say anything
        return str(milliseconds)


def yes(value: object) -> str:
    return "yes" if value else "no"


def words(code: object) -> str:
    """A code of the API in words: ``store-limit``, ``in_flight``."""
    return text(code).replace("_", " ").replace("-", " ")
