"""What the head of one SEND frame says of others that are like it: a correlation id changes no route."""

from collections.abc import Callable
from operator import itemgetter
from typing import Any

from quire.broker.core.core import Target
from quire.broker.routing.route import NOT_STORED, Route
from quire.broker.routing.temporary import REPLY_TO
from quire.broker.schedule import CRON, DELAY, PERIOD, ScheduledSend
from quire.broker.streams.partition import Partition
from quire.broker.streams.stream import Rotation
from quire.message import escape
from quire.protocols.stomp.frames import Head

_EXPIRES = b"expires:"
_MOST_DIGITS = 18

_COMMON = (b"destination:/queue/", b"destination:/topic/")
"""How the lines begin of destinations that mean the same in all connections."""

_FIXED = frozenset(name.encode() for name in NOT_STORED | {"persistent", REPLY_TO, DELAY, PERIOD, CRON})
"""Headers with another value of which a message is sent in another way; all others are only kept with it."""


class RoutePattern:
    """The route of a head, for heads that are like it (``Head.base``).

    Attributes:
        route: as given.
    """

    __slots__ = (
        "_content", "_destination", "_destination_line", "_expires_at", "_fixed", "_fixed_lines", "_free", "_frees",
        "_is_common", "route",
    )  # fmt: skip

    def __init__(self, route: Route, head: Head) -> None:
        self.route = route
        stored = dict([line.partition(b":")[::2] for line in route.lines.split(b"\n")[:-2]])
        fixed, free, content = [0], [], b""
        self._expires_at = -1
        for place, (name, _) in enumerate(head.fields, 1):
            raw = escape(name.encode())
            if raw == b"expires":
                self._expires_at = place
            elif raw == b"destination":
                self._destination, self._destination_line = place, _line(name, head.headers[name])
            elif raw in _FIXED:
                fixed.append(place)
                if raw in stored:
                    content += (raw + b":" + stored[raw] + b"\n").replace(b"%", b"%%")
            else:
                free.append(place)
                content += b"%s\n"
        self._content, self._frees = content + b"\n", len(free)
        self._free: Callable[[list[bytes]], Any] = itemgetter(*free) if free else lambda lines: ()
        self._fixed = itemgetter(*fixed)
        self._fixed_lines = self._fixed([b"SEND", *[_line(*field) for field in head.fields]])
        self._is_common = self._destination_line.startswith(_COMMON) and "JMSXGroupID" not in head.headers

    @staticmethod
    def suits(route: Route) -> bool:
        """Whether a route is that of all heads that are like its own."""
        simple = route.transaction is None and route.producer is None
        return simple and not isinstance(route.target, ScheduledSend | Rotation | Partition)

    def target(self, head: Head, known: Callable[[str], Target | None]) -> Target | None:
        """What takes a message with a head that is like the pattern's; None if that is not ``known``."""
        line = head.lines[self._destination]
        if line == self._destination_line:
            return self.route.target
        if not (self._is_common and line.startswith(_COMMON)) or b"," in line:
            return None
        return known(line[12:].decode())

    def lines(self, head: Head) -> bytes | None:
        """The header lines of a head that are stored, and the empty line; None if it may have another route."""
        lines = head.lines
        if self._fixed(lines) != self._fixed_lines:
            return None
        free = self._free(lines)
        if self._frees > 1:
            if b"".join(free).count(b":") != self._frees:
                free = tuple([_escaped(line) for line in free])
        elif self._frees and free.count(b":") != 1:
            free = _escaped(free)
        stored: bytes = self._content % free
        return stored

    def expiration(self, head: Head) -> int | None:
        """When a message with a head that is like the pattern's expires; None if it cannot be told here."""
        if self._expires_at < 0:
            return 0
        digits = head.lines[self._expires_at][len(_EXPIRES) :]
        return int(digits) if digits.isdigit() and len(digits) <= _MOST_DIGITS else None


def _line(name: str, value: str) -> bytes:
    return f"{name}:{value}".encode()


def _escaped(line: bytes) -> bytes:
    name, _, value = line.partition(b":")
    return name + b":" + escape(value)
