"""What the SEND frames of one connection mean, by their heads: read once, and looked up from then on.

What the head of one SEND frame says of others that are like it, ``RoutePattern`` knows: a correlation id changes no
route.
"""

from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any

from quire.broker.core.core import Core
from quire.broker.routing.addresses import read_destination
from quire.broker.routing.route import NOT_STORED, read_priority, read_producer, whole_number
from quire.broker.routing.temporary import REPLY_TO
from quire.broker.schedule import CRON, DELAY, PERIOD, Timing
from quire.broker.streams.stream import PARTITION
from quire.destination import Destination, DestinationKind
from quire.message import escape, header_lines
from quire.protocols.stomp.frames import Head
from quire.server.stomp.stomp_frames import OwnTemporaries
from quire.sessions.base import PLAIN, Route, Sending, Session, Traits, Tx

MAX_ROUTES = 128
"""How many routes are kept: more than the decoder keeps heads, so that none is kept in vain."""

MAX_KNOWN = 10_000
"""Of how many destinations it is kept where messages to them go, if their heads are like others."""

USER_ID = "JMSXUserID"
"""The header that says which user has sent a message."""

_STREAM = "/stream/"
_EXPIRES = b"expires:"
_MOST_DIGITS = 18

_COMMON = (b"destination:/queue/", b"destination:/topic/")
"""How the lines begin of destinations that mean the same in all connections."""

_FIXED = frozenset(name.encode() for name in NOT_STORED | {"persistent", REPLY_TO, DELAY, PERIOD, CRON})
"""Headers with another value of which a message is sent in another way; all others are only kept with it."""


class SendRoute:
    """The head of a SEND frame, understood once.

    Attributes:
        route: where its messages go.
        target, receipts, stored: the route's.
        lines: the header lines that are stored, and the empty line.
        expiration, priority, persistent: as ``Target.send`` takes them.
        how: the same for the session.
    """

    __slots__ = ("expiration", "how", "lines", "persistent", "priority", "receipts", "route", "stored", "target")

    def __init__(self, route: Route, headers: Mapping[str, str], temporaries: OwnTemporaries) -> None:
        stored = {name: value for name, value in headers.items() if name not in NOT_STORED}
        if REPLY_TO in stored:
            stored[REPLY_TO] = temporaries.remote_reply_to(stored[REPLY_TO])
        persistent = headers.get("persistent", "true").strip().lower() != "false"
        producer, number = read_producer(headers)
        self.route = route
        self.target = route.target
        self.receipts = route.receipts
        self.stored = route.stored
        self.lines = header_lines(stored) + b"\n"
        self.expiration = whole_number(headers, "expires", 0, 0, 1 << 62)
        self.priority = read_priority(headers)
        self.persistent = persistent if route.persistent is None else route.persistent
        self.how = Sending(self.expiration, self.priority, self.persistent, producer or "", number)


class StompSends:
    """The SEND frames of a client.

    Attributes:
        routes: of plain messages, by heads that were seen before.
        destinations: where it has sent to lately, for operators.
        version: the session's, when the first of the routes was found.
    """

    def __init__(self, core: Core, session: Session, temporaries: OwnTemporaries, user_id: str) -> None:
        self.routes: dict[Head, SendRoute] = {}
        self.destinations: dict[str, None] = {}
        self.version = session.version
        self._core = core
        self._session = session
        self._temporaries = temporaries
        self._user_id = user_id
        self._patterns: dict[Head | None, RoutePattern | None] = {}
        self._known: dict[str, Route] = {}

    def forget(self) -> None:
        """Forget all routes: destinations have come or gone since they were found, or there are too many."""
        self.routes.clear()
        self._patterns.clear()
        self._known.clear()
        self.version = self._session.version

    def send(self, head: Head, body: bytes | bytearray, tx: Tx | None, receipt: bytes | None) -> bool:
        """A SEND whose head was not seen before, or that is more than a plain one. False if it has to wait."""
        headers = {**head.headers, USER_ID: self._user_id} if self._user_id else head.headers
        destination = self._temporaries.remote_text(headers["destination"])
        traits = self._traits(destination, headers)
        route = SendRoute(self._session.route(destination, traits), headers, self._temporaries)
        if len(self.destinations) >= MAX_ROUTES:
            self.destinations.clear()
        self.destinations[destination] = None
        if not self._accept(route, body, tx, receipt):
            return False
        if tx is None and route.route.is_plain and not route.how.producer:
            if len(self.routes) >= MAX_ROUTES:
                self.forget()
            if head.base is None:
                self.routes[head] = route
            elif head.base not in self._patterns and headers is head.headers:
                self._learn(head, route, traits)
            if traits is PLAIN and destination is headers["destination"]:
                self._know(destination, route.route)
        return True

    def send_again(self, route: SendRoute, body: bytes | bytearray, receipt: bytes | None) -> bool:
        """A SEND whose head was seen before, while sends may have to wait. False if it has to."""
        return self._accept(route, body, None, receipt)

    def _accept(self, route: SendRoute, body: bytes | bytearray, tx: Tx | None, receipt: bytes | None) -> bool:
        core = self._core
        stamp = b"\ntimestamp:%d\n" % core.clock.now_ms()
        content = b"".join((core.id_prefix, b"%d" % core.next_message_id(), stamp, route.lines, body))
        return self._session.accept(route.route, content, route.how, tx=tx, token=receipt)

    def _traits(self, destination: str, headers: Mapping[str, str]) -> Traits:
        """What the headers say of a message's way."""
        timing, grouped = Timing.of(headers), "JMSXGroupID" in headers
        if not destination.startswith(_STREAM):
            return Traits(grouped, timing) if grouped or timing is not None else PLAIN
        addresses, _ = read_destination(destination)
        policy = self._core.settings.policies.of(Destination(DestinationKind.STREAM, addresses[0].name))
        key = headers.get(policy.partition_key_header)
        return Traits(grouped, timing, key, headers.get(PARTITION), by_content=False)

    def _learn(self, head: Head, route: SendRoute, traits: Traits) -> None:
        """Others may come that are like a head, as it is like its base. The base may be one of another shard."""
        if len(self._patterns) >= MAX_ROUTES:
            self._patterns.clear()
        is_simple = traits.timing is None and not route.route.text.startswith(_STREAM)
        self._patterns[head.base] = RoutePattern(route, head) if is_simple else None

    def _know(self, destination: str, route: Route) -> None:
        if len(self._known) >= MAX_KNOWN:
            self._known.clear()
        self._known[destination] = route

    def send_like(
        self, head: Head, receipt: bytes | None, stamp: bytes, body: bytes | bytearray
    ) -> Route | None:  # fmt: skip
        """A SEND whose head is like another one: where it went; None if it has to be read in full."""
        pattern = self._patterns.get(head.base)
        if pattern is None:
            return None
        route = pattern.route_of(head, self._known)
        lines, expiration = pattern.lines(head), pattern.expiration(head)
        if route is None or lines is None or expiration is None:
            return None
        core, usual = self._core, pattern.route
        content = b"".join((core.id_prefix, b"%d" % core.next_message_id(), stamp, lines, body))
        route.target.send(content, expiration, usual.priority, usual.persistent)
        if receipt is not None:
            route.receipts.append(receipt)
        return route


class RoutePattern:
    """The route of a head, for heads that are like it (``Head.base``).

    Attributes:
        route: as given.
    """

    __slots__ = (
        "_content", "_destination", "_destination_line", "_expires_at", "_fixed", "_fixed_lines", "_free", "_frees",
        "_is_common", "route",
    )  # fmt: skip

    def __init__(self, route: SendRoute, head: Head) -> None:
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

    def route_of(self, head: Head, known: Mapping[str, Route]) -> Route | None:
        """Where a message goes whose head is like the pattern's; None if that is not ``known``."""
        line = head.lines[self._destination]
        if line == self._destination_line:
            return self.route.route
        if not (self._is_common and line.startswith(_COMMON)) or b"," in line:
            return None
        return known.get(line[12:].decode())

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
