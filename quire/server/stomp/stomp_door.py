"""STOMP as a door: frames become verbs of the client's session, and what the session tells becomes frames.

The hot path is ``receive``, ``_process``, ``deliver``, ``confirmed``, ``flush``. A SEND whose head was seen before
costs one look into ``StompSends.routes``; an acknowledgement costs its share of a run. Everything else goes through the
table of handlers. What the head of one SEND frame says of others that are like it, ``RoutePattern`` knows: a
correlation id changes no route.

In 1.2 the ``ack`` header of a MESSAGE is the message's sequence; ``-`` and the part's number follow from the second
part of a connection on. In 1.0 and 1.1 messages are acknowledged by message id. The frames that stand for no message
(the end of a browse, a pull in vain) have ``0`` for both; acknowledging them does nothing. An acknowledgement of a
member's message that comes late is never an error: the message may have been taken from the member a moment ago. Its
session counts it.
"""

import re
from collections.abc import Callable, Mapping
from functools import partial
from operator import itemgetter
from typing import Any

from quire import __version__
from quire.broker.broker import Broker
from quire.broker.core.core import Core
from quire.broker.core.subscription import AckMode
from quire.broker.routing.addresses import read_destination
from quire.broker.routing.route import NOT_STORED, read_priority, read_producer, whole_number
from quire.broker.routing.temporary import REPLY_TO
from quire.broker.schedule import CRON, DELAY, PERIOD, Timing
from quire.broker.streams.groups.group import RETRIES, RETRY_LANE
from quire.broker.streams.groups.retries import LEVELS_MS, level_ms
from quire.broker.streams.stream import PARTITION
from quire.cluster.cluster_map import ClusterMap
from quire.destination import Destination, DestinationKind
from quire.errors import (
    ConnectionTimeout,
    InvalidHeader,
    QuireError,
    TransactionRolledBack,
    UnknownMessage,
    UnknownTransaction,
)
from quire.message import Message, escape, header_lines, unescape
from quire.protocols.stomp.decoder import BATCH, Decoder, Event, Limits
from quire.protocols.stomp.frames import (
    AckRun,
    Head,
    Version,
    encode_frame,
    encode_receipts,
    error_frame,
    heart_beat,
    negotiate,
)
from quire.protocols.stomp.heads import State, check_required, next_state
from quire.server.connection import OUTPUT_LIMIT, ConnectedDoor, Connection, HeartBeat, MakesSession, ProtocolDoors
from quire.server.stomp.stomp_consumers import (
    NO_MESSAGE,
    PULL,
    MessageIds,
    OwnTemporaries,
    StompConsumers,
    is_of_member,
)
from quire.sessions.base import (
    ACCEPTED,
    PLAIN,
    Consumer,
    ConsumerKind,
    Handle,
    Handles,
    Leaving,
    LeavingKind,
    Opening,
    Part,
    Route,
    Sending,
    Session,
    Settlement,
    SettlementKind,
    Step,
    These,
    Token,
    Traits,
    Tx,
    UpTo,
    What,
)
from quire.sessions.rights import Gate
from quire.units import MAX_DIGITS, parse_number

MAX_DELAY = 365 * 86_400_000
"""The longest delay a client may ask for, in milliseconds."""

MAX_EXTENSION = 7 * 86_400_000
"""By how much a lease may be extended at once, in milliseconds."""

DEAD_LETTER = -1
"""The delay level that makes a dead letter at once (RocketMQ's)."""

_OLD_PREFIX = re.compile(rb"s\d{1,4}~")  # of ids that a cluster has given out before it named messages alike everywhere


def read_ack_id(id: bytes) -> tuple[Handle, str] | None:
    """The handle and the subscription in the id of an acknowledgement of a member's message; None if it is none."""
    if prefix := _OLD_PREFIX.match(id):
        id = id[prefix.end() :]
    head, dash, subscription = id.partition(b"-")
    parts = head.split(b".")
    if len(parts) != 3 or not dash:
        return None
    offset, partition, epoch = parts
    is_retry = partition == RETRY_LANE.encode()
    numbers = (offset, b"0" if is_retry else partition, epoch)
    if not all([text.isdigit() and len(text) < 19 for text in numbers]):
        return None
    handle = Handle(int(offset), int(offset), RETRIES if is_retry else int(partition), int(epoch))
    return handle, unescape(subscription).decode("utf-8", "replace")


def read_rejection(headers: Mapping[str, str]) -> Settlement:
    if "extend" in headers:
        return Settlement(SettlementKind.EXTEND, whole_number(headers, "extend", 0, 1000, MAX_EXTENSION))
    level = whole_number(headers, "delay-level", 0, DEAD_LETTER, len(LEVELS_MS))
    if level > 0:
        return Settlement(SettlementKind.REJECTED, level_ms(level), "rejected by the consumer")
    delay = whole_number(headers, "redelivery-delay", -1, 0, MAX_DELAY)
    kind = SettlementKind.DEAD if level == DEAD_LETTER else SettlementKind.REJECTED
    return Settlement(kind, None if delay < 0 else delay, "rejected by the consumer")


class StompAcks:
    def __init__(self, session: Session, version: Version, consumers: StompConsumers, message_ids: MessageIds) -> None:
        self._session = session
        self._version = version
        self._consumers = consumers
        self._message_ids = message_ids
        self._indexed: set[int] = set()

    # Runs, in 1.2.

    def acknowledge_run(self, ids: list[bytes]) -> None:
        """A run of ACK frames: nearly all there are. An id that is unknown is an error when the others are done."""
        if b"." in ids[0]:
            ids = self._acknowledge_members(ids)
        parts = self._session.parts
        only = parts.get(0) if len(parts) == 1 else None
        if only is None or not only.writer.takes_runs:
            self._acknowledge_each(ids)
            return
        try:
            sequences = [int(id) for id in ids]
        except ValueError:
            self._acknowledge_each(ids)
            return
        if left := only.acknowledge(sequences):
            self._acknowledge_each([b"%d" % sequence for sequence in left])

    def _acknowledge_each(self, ids: list[bytes]) -> None:
        """Acknowledge some of several parts; the first that is unknown is told when all others are done."""
        unknown: UnknownMessage | None = None
        for id in self._acknowledge_at_once(ids):
            try:
                self._by_ack_id(unescape(id).decode(), ACCEPTED, None, None)
            except UnknownMessage as error:
                unknown = unknown or error
        if unknown is not None:
            raise unknown

    def _acknowledge_at_once(self, ids: list[bytes]) -> list[bytes]:
        """Acknowledge the messages of each part at once; the ids that have to be looked at one by one."""
        runs: dict[bytes, tuple[Part | None, list[int]]] = {}
        others: list[bytes] = []
        for id in ids:
            sequence, _, number = id.partition(b"-")
            run = runs.get(number)
            if run is None:
                run = runs[number] = self._numbered(number or b"0"), []
            if run[0] is None or not (sequence.isdigit() and len(sequence) < MAX_DIGITS):
                others.append(id)
            else:
                run[1].append(int(sequence))
        for part, sequences in runs.values():
            if part is not None and sequences:
                end = b"-%d" % part.number if part.number else b""
                others += [b"%d%b" % (sequence, end) for sequence in part.acknowledge(sequences)]
        return others

    def _numbered(self, text: bytes) -> Part | None:
        part = self._session.parts.get(int(text)) if text.isdigit() and len(text) < MAX_DIGITS else None
        return part if part is not None and part.writer.takes_runs else None

    def _acknowledge_members(self, ids: list[bytes]) -> list[bytes]:
        """Acknowledge what ids of members are about, those of one partition together; the other ids."""
        others: list[bytes] = []
        known: dict[bytes, tuple[Part, list[int]] | None] = {}
        for id in ids:
            offset, _, rest = id.partition(b".")
            if rest not in known:
                known[rest] = self._run_of(id)
            run = known[rest]
            if run is None or not offset.isdigit() or len(offset) > 18:
                others.append(id)
            else:
                run[1].append(int(offset))
        late = [(run[0], offset) for run in known.values() if run is not None for offset in run[0].acknowledge(run[1])]
        for part, sequence in late:  # one by one: each of a message that is named twice counts
            self._session.settle(Handles(part.consumer, [_handle(part, sequence)]), ACCEPTED)
        return others

    def _run_of(self, id: bytes) -> tuple[Part, list[int]] | None:
        """Where a run of acknowledgements begins; None if each one of it has to be looked at."""
        if (ack_id := read_ack_id(id)) is None:
            return None
        handle, subscription = ack_id
        member = self._consumers.member(subscription)
        part = None if member is None else member.parts.get(handle.partition)
        if part is None or part.epoch != handle.epoch:
            return None
        return (part, []) if part.consumer.spec.ack is AckMode.INDIVIDUAL else None

    # Single frames.

    def settle(self, head: Head, how: Settlement, tx: Tx | None, receipt: bytes | None) -> bool:
        headers = head.headers
        if self._version is Version.V1_2:
            return self._by_ack_id(headers["id"], how, tx, receipt)
        id, subscription = headers["message-id"], headers.get("subscription")
        if id == NO_MESSAGE:
            return self._nothing(receipt)
        given = self._message_ids.find(id, subscription)
        if given is None:
            self._enter_held()
            given = self._message_ids.find(id, subscription)
        if given is not None:
            return self._one(*given, id, how, tx, receipt)
        if not self._is_stale(subscription):
            raise _unknown_message(id)
        return self._nothing(receipt)

    def _by_ack_id(self, id: str, how: Settlement, tx: Tx | None, receipt: bytes | None) -> bool:
        if id == NO_MESSAGE:
            return self._nothing(receipt)
        if (ack_id := read_ack_id(escape(id.encode()))) is not None:
            handle, subscription = ack_id
            member = self._consumers.member(subscription)
            if member is None:
                return self._nothing(receipt)
            return self._session.settle(Handles(member.consumer, [handle]), how, tx=tx, token=receipt)
        first, _, second = id.partition("-")
        sequence, number = parse_number(first), parse_number(second or "0")
        part = None if number is None else self._session.parts.get(number)
        if sequence is None or part is None or is_of_member(part.consumer.spec):
            raise _unknown_message(id)
        return self._one(part, sequence, id, how, tx, receipt)

    def _one(
        self, part: Part, sequence: int, id: str, how: Settlement, tx: Tx | None, receipt: bytes | None
    ) -> bool:  # fmt: skip
        """One message, or in ``client`` mode all up to it."""
        consumer = part.consumer
        if how is not ACCEPTED and consumer.spec.kind is ConsumerKind.BROWSER:
            text = "a browser's messages cannot be rejected: they are still in their queue"
            raise InvalidHeader(text, header="id")
        what: What = These(part, [sequence])
        if is_of_member(consumer.spec):
            what = Handles(consumer, [_handle(part, sequence)])
        elif consumer.spec.ack is AckMode.CLIENT:
            what = UpTo(part, None, sequence)
        try:
            return self._session.settle(what, how, tx=tx, token=receipt)
        except UnknownMessage as error:
            raise _unknown_message(id) from error

    def _nothing(self, receipt: bytes | None) -> bool:
        if receipt is not None:
            self._session.confirm(receipt)
        return True

    # Members in 1.0 and 1.1.

    def _enter_held(self) -> None:
        """Enter what members had before they came back: nothing of it was delivered on this connection."""
        parts = [part for member in self._consumers.members() for part in member.parts.values()]
        new = [part for part in parts if part.number not in self._indexed]
        self._indexed = {part.number for part in parts}
        for part in new:
            self._message_ids.note(part, list(part.in_flight.values()))

    def _is_stale(self, subscription: str | None) -> bool:
        """Whether a message id that is not known may be one that a member had long ago; if so, that is counted."""
        for member in self._consumers.members():
            if subscription in (None, member.spec.id):
                part = next(iter(member.parts.values()), None)
                if part is not None:  # what it never had, it does not have any more
                    self._session.settle(Handles(member.consumer, [_handle(part, 0)]), ACCEPTED)
                return True
        return False


def _handle(part: Part, sequence: int) -> Handle:
    assert part.partition is not None
    return Handle(sequence, sequence, part.partition, part.epoch)


def _unknown_message(id: str) -> UnknownMessage:
    return UnknownMessage(f"{id[:60]!r} is not in flight on this connection: acknowledge a message once", id=id[:60])


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
    """The head of a SEND frame, understood once; ``lines`` are the header lines that are stored, and the empty line."""

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
    """The SEND frames of a client: routes of plain messages by heads seen before, at a version of the session."""

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
        if not self.accept(route, body, tx, receipt):
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

    def accept(self, route: SendRoute, body: bytes | bytearray, tx: Tx | None, receipt: bytes | None) -> bool:
        core = self._core
        stamp = b"\ntimestamp:%d\n" % core.clock.now_ms()
        content = b"".join((core.id_prefix, b"%d" % core.next_message_id(), stamp, route.lines, body))
        return self._session.accept(route.route, content, route.how, tx=tx, token=receipt)

    def _traits(self, destination: str, headers: Mapping[str, str]) -> Traits:
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
    """The route of a head, for heads that are like it (``Head.base``)."""

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


MIN_HEART_BEAT = 1000
"""The shortest heart-beat interval the broker agrees to, in milliseconds."""


class _Goodbye(bytes):
    """The receipt of DISCONNECT, empty if none is asked for: when it comes back, the connection is closed."""


class StompDoor(ConnectedDoor):
    batch = BATCH
    temporaries: OwnTemporaries
    message_ids: MessageIds
    _sends: StompSends
    _consumers: StompConsumers
    _acks: StompAcks

    def __init__(self, broker: Broker, gate: Gate, connection: Connection, session_of: MakesSession) -> None:
        settings = broker.core.settings.stomp
        self._decoder = Decoder(Limits(settings.max_headers, settings.max_line, settings.max_body))
        super().__init__(broker, gate, connection, self._decoder)
        self.version = Version.V1_2
        self._session_of = session_of
        self._state = State.CONNECTING
        self._open: set[str] = set()  # the names of its transactions
        self._subscribes_at: int | None = None  # where in the output the receipt goes of what is being subscribed
        self._connect_timer = broker.core.scheduler.call_later(settings.connect_timeout, self._connect_timed_out)
        self._handlers: dict[bytes, Callable[[Head, bytes | None], bool]] = {
            b"CONNECT": self._connect, b"STOMP": self._connect, b"DISCONNECT": self._disconnect,
            b"SUBSCRIBE": self._subscribe, b"UNSUBSCRIBE": lambda *frame: self._consumers.unsubscribe(*frame),
            b"ACK": self._ack, b"NACK": self._nack, b"BEGIN": self._begin,
            b"COMMIT": partial(self._end_transaction, Step.COMMIT),
            b"ABORT": partial(self._end_transaction, Step.ROLLBACK),
        }  # fmt: skip

    def _new_session(self) -> Session:
        session = self._session_of(self.guard, self)
        self.temporaries = OwnTemporaries(session.temporary)
        self.message_ids = MessageIds(session.parts)
        self._sends = StompSends(self._core, session, self.temporaries, self.user_id)
        self._consumers = StompConsumers(session, self)
        self._acks = StompAcks(session, self.version, self._consumers, self.message_ids)
        return session

    @property
    def protocol(self) -> str:
        return f"stomp {self.version}"

    @property
    def sends_to(self) -> list[str]:
        return list(self._sends.destinations) if self.is_logged_in else []

    # Input.

    def _next_input(self) -> list[Event]:
        return self._decoder.next_events()

    # Long, but without a call per frame that could be spared: the hottest code beside the decoder.
    def _process(self, events: list[Event], end: float) -> None:  # noqa: C901
        """Do what frames say. One SEND costs one pass of the loop and ``Queue.send``."""
        if self._state is State.CONNECTING:
            self._process_first(events, end)
            return
        core, session, sends = self._core, self.session, self._sends
        if sends.version != session.version:
            sends.forget()
        session.takes_input()
        restricted = session.restricted
        stamp = b"\ntimestamp:%d\n" % core.clock.now_ms()
        sent = False
        routes, prefix, next_id, join = sends.routes, core.id_prefix, core.next_message_id, b"".join
        try:
            for index, (head, receipt, body) in enumerate(events):
                route = routes.get(head)
                try:
                    if route is not None:
                        if restricted:
                            if sends.accept(route, body, None, receipt):
                                continue
                            self._wait(events[index:])
                            break
                        content = join((prefix, b"%d" % next_id(), stamp, route.lines, body))
                        route.target.send(content, route.expiration, route.priority, route.persistent)
                        sent = sent or route.stored
                        if receipt is not None:
                            route.receipts.append(receipt)
                    elif head.base and not restricted and (like := sends.send_like(head, receipt, stamp, body)):
                        sent = sent or like.stored
                    elif isinstance(head, AckRun):
                        self._acks.acknowledge_run(head.ids)
                    elif not self._take_other(events, index, end):
                        break
                    else:
                        restricted = restricted or session.is_awaited
                except QuireError as error:
                    self.fail(error, receipt)
                    break
        except Exception as defect:
            self.fail(QuireError(f"the broker failed: {defect!r}"))
            raise
        finally:
            session.took_input(sent)

    def _process_first(self, events: list[Event], end: float) -> None:
        """Do what frames say while the client has not connected: the first one has to be CONNECT."""
        head, receipt, _ = events[0]
        try:
            if not self._connect(head, receipt):
                self._wait(events)
                return
        except QuireError as error:
            self.fail(error, receipt)
            return
        if len(events) > 1:
            self._process(events[1:], end)

    def _take_other(self, events: list[Event], index: int, end: float) -> bool:
        """Take an event that is more than a plain SEND or ACK; whether there is time for the next one now."""
        head, receipt, body = events[index]
        state = next_state(self._state, head.command)
        check_required(head, self.version)
        if not (
            self._send(head, receipt, body) if head.command == b"SEND" else self._handlers[head.command](head, receipt)
        ):
            self._wait(events[index:])
            return False
        self._state = state
        if self._core.clock.monotonic() > end:
            self._put_off(events[index + 1 :])
            return False
        return True

    def _send(self, head: Head, receipt: bytes | None, body: bytes | bytearray) -> bool:
        if not head.headers["destination"].startswith(PULL):
            return self._sends.send(head, body, self._tx_of(head), receipt)
        self._consumers.pull(head)
        if receipt is not None:
            self.session.confirm(receipt)
        return True

    def _subscribe(self, head: Head, receipt: bytes | None) -> bool:
        self._subscribes_at = len(self._output)
        try:
            self._consumers.subscribe(head, receipt)
        finally:
            self._subscribes_at = None
        return True

    def _ack(self, head: Head, receipt: bytes | None) -> bool:
        return self._acks.settle(head, ACCEPTED, self._tx_of(head), receipt)

    def _nack(self, head: Head, receipt: bytes | None) -> bool:
        how, tx = read_rejection(head.headers), self._tx_of(head)
        return self._acks.settle(head, how, None if how.kind is SettlementKind.EXTEND else tx, receipt)

    # Transactions.

    def _tx_of(self, head: Head) -> Tx | None:
        """The transaction that a frame is part of; None if it is part of none."""
        name = head.headers.get("transaction")
        if name is None:
            return None
        if name not in self._open:
            raise UnknownTransaction(f"there is no transaction {name[:60]!r}", transaction=name[:60])
        return b"l" + name.encode()

    def _begin(self, head: Head, receipt: bytes | None) -> bool:
        name = head.headers["transaction"]
        if name in self._open:
            raise UnknownTransaction(f"there is a transaction {name[:60]!r} already", transaction=name[:60])
        if not self.session.begin(b"l" + name.encode(), receipt):
            return False
        self._open.add(name)
        return True

    def _end_transaction(self, step: Step, head: Head, receipt: bytes | None) -> bool:
        tx = self._tx_of(head)
        assert tx is not None
        if not self.session.end(tx, step, receipt):
            return False
        self._open.discard(head.headers["transaction"])
        return True

    # What the session tells.

    def deliver(self, part: Part, messages: list[Message], first: bool) -> None:
        self._output += part.writer.frames(messages, first)
        self._output_size += sum([message.size for message in messages])
        self._core.unwritten(self)
        if self._output_size > OUTPUT_LIMIT:
            self.session.writable = False

    def confirmed(self, tokens: list[Token]) -> None:
        if self.is_closed:
            return
        if isinstance(tokens[-1], _Goodbye):
            self.write(encode_receipts(tokens if tokens[-1] else tokens[:-1]))
            self.flush()
            self._connection.close()
        elif self._subscribes_at is None:
            self.write(encode_receipts(tokens))
        else:  # before what was written meanwhile: the receipt comes before the first message, and before events
            self._output.insert(self._subscribes_at, encode_receipts(tokens))
            self._core.unwritten(self)

    def answered(self, token: Token, result: object) -> None:
        """A verb has a result, and nothing was asked for but that it is done."""
        self.confirmed([token])

    def failed(self, token: Token | None, error: QuireError) -> None:
        """A verb has failed: the connection ends."""
        self.fail(error, token or None)

    def part_added(self, part: Part) -> None:
        self._consumers.part_added(part)

    def part_gone(self, part: Part) -> None:
        self._consumers.part_gone(part)

    def pull_ended(self, consumer: Consumer, left: int) -> None:
        """Say that a pull ended without a message: a MESSAGE frame without one, marked by a header."""
        self.write(self._consumers.pull_ended(consumer, left))

    def browse_ended(self, consumer: Consumer, damaged: int) -> None:
        self.write(self._consumers.browse_ended(consumer, damaged))

    def event(self, consumer: Consumer, name: str, headers: dict[str, str]) -> None:
        if self.session.writable:
            self.write(self._consumers.event(consumer, name, headers))

    def consumer_ended(self, consumer: Consumer, error: QuireError) -> None:
        """The broker ends a consumer: STOMP cannot end it alone."""
        self.fail(error)

    # A connection's life.

    def _connect(self, head: Head, receipt: bytes | None) -> bool:
        """CONNECT; False if it has to wait until it is known who the client is. Nothing else may come before it."""
        state = next_state(self._state, head.command)
        self.version = negotiate(head)
        if self._must_log_in(head.headers.get("login"), head.headers.get("passcode")):
            return False
        check_required(head, self.version)
        if not self.session.open(Opening(self.protocol, head.headers.get("client-id") or None)):
            return False
        self._state = next_state(state, b"CONNECTED")
        self._decoder.version = self.version
        self._connect_timer.cancel()
        can_send, wants = (max(beat, MIN_HEART_BEAT) if beat else 0 for beat in heart_beat(head))
        headers = {
            "version": str(self.version),
            "server": f"quire/{__version__}",
            "session": self.name.replace(":", "-"),
        }
        headers["heart-beat"] = f"{wants},{can_send}"
        self.write(encode_frame(b"CONNECTED", headers, version=self.version))
        if can_send or wants:
            patience = can_send / 1000 * self._core.settings.stomp.heart_beat_grace
            self._heart_beat = HeartBeat(self._core, self, b"\n", wants / 1000, patience)
        if receipt is not None:
            self.session.confirm(receipt)
            self.session.took_input(sent=False)
        return True

    def _connect_timed_out(self) -> None:
        seconds = self._core.settings.stomp.connect_timeout
        self.fail(ConnectionTimeout(f"no CONNECT frame within {seconds:g} s", seconds=seconds))

    def _disconnect(self, head: Head, receipt: bytes | None) -> bool:
        leaving = Leaving(LeavingKind.CLEAN, "the consumer disconnected")
        return self.session.leave(leaving, _Goodbye(receipt or b""))

    def fail(self, error: QuireError, receipt: bytes | None = None) -> None:
        if not self.is_closed:
            error = _first_cause(error)
            self.write(error_frame(error, self.version, receipt))
            self.end(error.code)

    def closed(self) -> None:
        super().closed()
        self._state = State.CLOSED
        self._connect_timer.cancel()


def _first_cause(error: QuireError) -> QuireError:
    """What a client is told: of a transaction that was rolled back because of an error, that error."""
    kinds: list[type[QuireError]] = [QuireError]
    if isinstance(error, TransactionRolledBack):
        if isinstance(error.__cause__, QuireError):
            return error.__cause__
        for kind in kinds:
            if kind.code == error.data.get("cause"):
                return kind(str(error), **error.data)
            kinds += kind.__subclasses__()
    return error


class StompDoors(ProtocolDoors):
    name = "stomp"

    def __init__(self, broker: Broker, gate: Gate, session_of: MakesSession, cluster: ClusterMap | None = None) -> None:
        super().__init__(broker, gate, session_of, cluster)
        settings = broker.core.settings.stomp
        self.max_connections, self.patience = settings.max_connections, settings.connect_timeout

    def session(self, connection: Connection) -> StompDoor:
        return StompDoor(self._broker, self._gate, connection, self._session_of)

    def refusal(self, error: QuireError) -> bytes:
        return error_frame(error, Version.V1_2, None)
