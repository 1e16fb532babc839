"""The verbs of a session as frames: what the entry of a client and the owner of a shard say to each other.

A frame is a head, which says its kind and how many it is about, and a payload. What is small and rare is msgpack. What
there are many of stands in columns: all sequences, then all sizes, then all contents. So a run of messages costs one
frame, and taking it apart costs one call for each column.

``ref`` is a number that both sides know: of a route, of a consumer, of a part. ``ask`` numbers what is to be answered,
rising from 1; 0 says that no door waits. Nothing is taken of a frame before its length is known to be allowed, and no
count is believed before the payload is seen to be as long as it says. A fault ends the virtual connection.
"""

import struct
from collections.abc import Sequence
from enum import IntEnum
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, TypeVar

import msgspec

from quire.cluster.link import error_of_code
from quire.errors import LimitExceeded, ProtocolViolation, QuireError
from quire.message import MAX_VALUE, Message
from quire.selectors import Selector
from quire.sessions.base import Opening, Settlement, Step, SubscribeSpec

HEAD = struct.Struct(">IBBHI")
"""How a frame begins: the length of its payload, its kind, its flags, how many it is about, a number."""

MAX_BODY = 8 << 20
"""The largest payload of a frame without messages, in bytes."""

MAX_FRAME = MAX_VALUE + MAX_BODY
"""The largest payload of a frame with messages: one may be as large as a store takes."""

LARGE = 64 * 1024
"""A payload with more bytes than this is not copied before it is taken apart."""

MOST = 0xFFFF
"""So many messages are in one frame at most."""

ROUTES = 1024
"""So many routes have a number at a time."""


class Kind(IntEnum):
    OPEN = 1
    ROUTE = 2
    ACCEPT = 3
    SUBSCRIBE = 4
    UNSUBSCRIBE = 5
    CREDIT = 6
    PULL = 7
    SETTLE = 8
    TX = 9
    TEMPORARY = 10
    CALL = 11
    CONFIRM = 12
    LEAVE = 13
    SPOIL = 14

    DELIVER = 32
    DONE = 33
    RESULT = 34
    FAILED = 35
    PART = 36
    PART_GONE = 37
    PULL_ENDED = 38
    BROWSE_ENDED = 39
    EVENT = 40
    CONSUMER_ENDED = 41


KINDS = {int(kind): kind for kind in Kind}
"""All kinds, by number."""

WITH_MESSAGES = frozenset([Kind.ACCEPT, Kind.DELIVER])

Payload = bytes | memoryview
T = TypeVar("T")


class VerbFrame(NamedTuple):
    kind: Kind
    flags: int
    items: int
    ref: int
    payload: Payload


class VerbDecoder:
    """Takes the bytes of one direction of a virtual connection apart."""

    def __init__(self) -> None:
        self.buffered = 0  # how many bytes have come that were not given as frames
        self._pieces: list[bytes] = []
        self._needed = HEAD.size  # with so many bytes there may be a frame, and not with fewer

    def receive(self, data: bytes) -> None:
        self._pieces.append(data)
        self.buffered += len(data)

    def frames(self) -> list[VerbFrame]:
        """The whole frames that have come."""
        if self.buffered < self._needed:
            return []
        data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        frames: list[VerbFrame] = []
        position, size, self._needed = 0, len(data), HEAD.size
        while size - position >= HEAD.size:
            length, number, flags, count, ref = HEAD.unpack_from(data, position)
            kind = KINDS.get(number)
            if kind is None:
                raise ProtocolViolation(f"a link has no verb of kind {number}", command=str(number))
            if length > (MAX_FRAME if kind in WITH_MESSAGES else MAX_BODY):
                raise LimitExceeded(f"a verb has {length} bytes, which is too many: {kind.name}", size=length)
            start = position + HEAD.size
            if start + length > size:
                self._needed += length
                break
            position = start + length
            payload = data[start:position] if length <= LARGE else memoryview(data)[start:position]
            frames.append(VerbFrame(kind, flags, count, ref, payload))
        self.buffered = size - position
        self._pieces = [data[position:]] if self.buffered else []
        return frames


def encode(kind: Kind, payload: bytes = b"", ref: int = 0, flags: int = 0, count: int = 0) -> bytes:
    return HEAD.pack(len(payload), kind, flags, count, ref) + payload


# Small ones.


class Route(msgspec.Struct, frozen=True, array_like=True):
    """ROUTE, with ``ref``: where messages go that are sent with this number from now on."""

    destination: str  # as a header has it
    grouped: bool = False  # ``Traits.grouped``; the others are of ``Traits``, too
    timing: tuple[int, int, int, str] | None = None  # delay, period, repeat and cron entry; None for at once
    partition_key: str | None = None
    partition: str | None = None
    by_content: bool = True


class Open(msgspec.Struct, frozen=True, array_like=True):
    who: Opening
    ask: int


class Subscribe(msgspec.Struct, frozen=True, array_like=True):
    spec: SubscribeSpec
    ask: int


class Unsubscribe(msgspec.Struct, frozen=True, array_like=True):
    """UNSUBSCRIBE, with the consumer's number.

    Attributes:
        last: the part, if it is of this shard, and the sequence of the last message that was seen; None if none was.
    """

    is_known: bool
    last: tuple[int | None, int] | None
    is_alone: bool  # ``Seen.is_alone``; the others are of it, too
    ask: int


class Credit(msgspec.Struct, frozen=True, array_like=True):
    prefetch: int


class Pull(msgspec.Struct, frozen=True, array_like=True):
    """PULL, with the consumer's number."""

    pull: int  # numbers the pulls of a consumer; PULL_ENDED says which one is over
    count: int
    wait_ms: int


class Settle(msgspec.Struct, frozen=True, array_like=True):
    """What stands before the messages of SETTLE, if it is more than that they are accepted.

    Attributes:
        up_to: the first one, how many they are, and the part of the first one, if SETTLE is about all up to one.
        handles: of a member's messages: first, last, partition, epoch. Then ``ref`` is the consumer.
    """

    how: Settlement
    tx: bytes | None = None
    ask: int = 0
    up_to: tuple[int | None, int, int | None] | None = None
    handles: list[tuple[int, int, int, int]] | None = None


class Transact(msgspec.Struct, frozen=True, array_like=True):
    """TX: a transaction begins (``step`` None), goes on, or makes a step of one over several shards (``text``)."""

    tx: bytes
    ask: int
    step: Step | None = None
    text: str = ""


class Temporary(msgspec.Struct, frozen=True, array_like=True):
    kind: str
    name: str
    ask: int


class Call(msgspec.Struct, frozen=True, array_like=True):
    name: str
    arguments: tuple[Any, ...]
    ask: int


class Confirm(msgspec.Struct, frozen=True, array_like=True):
    ask: int


class Leave(msgspec.Struct, frozen=True, array_like=True):
    """LEAVE."""

    kind: str  # of ``LeavingKind``, by name
    cause: str
    ask: int


class Result(msgspec.Struct, frozen=True, array_like=True):
    ask: int
    result: Any


class Failed(msgspec.Struct, frozen=True, array_like=True):
    """FAILED, and CONSUMER_ENDED with the consumer's number."""

    ask: int
    code: str
    text: str
    data: dict[str, Any] = {}


class Spoil(msgspec.Struct, frozen=True, array_like=True):
    """SPOIL: something in a transaction has failed at the entry."""

    tx: bytes
    error: Failed


class PartAdded(msgspec.Struct, frozen=True, array_like=True):
    """PART, with the part's number."""

    consumer: int
    is_only: bool  # whether the consumer can have no other one
    kind: str
    name: str
    partition: int | None
    epoch: int


class PullEnded(msgspec.Struct, frozen=True, array_like=True):
    pull: int
    left: int


class BrowseEnded(msgspec.Struct, frozen=True, array_like=True):
    damaged: int


class Event(msgspec.Struct, frozen=True, array_like=True):
    name: str
    headers: dict[str, str]


def _to_plain(value: object) -> object:
    if isinstance(value, Selector):
        return value.text
    return str(value)


def _from_plain(kind: type, value: Any) -> object:
    if kind is Selector and isinstance(value, str):
        return Selector(value)
    raise NotImplementedError(kind)


_pack = msgspec.msgpack.Encoder(enc_hook=_to_plain).encode
_decoders: dict[type, Any] = {}


def encode_body(kind: Kind, body: msgspec.Struct, ref: int = 0) -> bytes:
    return encode(kind, _pack(body), ref)


def read_body(frame: VerbFrame, kind: type[T]) -> T:
    return _unpack(frame.payload, kind)


def _unpack(payload: Payload, kind: type[T]) -> T:
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.msgpack.Decoder(kind, dec_hook=_from_plain)
    try:
        body: T = decoder.decode(payload)
    except QuireError:
        raise
    except (msgspec.DecodeError, ValueError, RecursionError) as error:  # a ValidationError is a DecodeError
        raise ProtocolViolation(f"a verb has no {kind.__name__}: {error}", command=kind.__name__) from None
    return body


def failed(ask: int, error: QuireError) -> Failed:
    """An error, as it goes over a link: of its data, what is text, number or a list of them."""
    data = {name: value for name, value in error.data.items() if _is_plain(value)}
    return Failed(ask, error.code, str(error), data)


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, str | int | float) or (
        isinstance(value, list | tuple) and all([_is_plain(each) for each in value])
    )  # fmt: skip


def error_of(told: Failed) -> QuireError:
    """The error that was told, an object of its class again."""
    error = error_of_code(told.code, told.text)
    error.data = told.data
    return error


# Tokens that come back: at the owner the token of an ask is its number as bytes.

_ASK = struct.Struct(">I")


def token_of(ask: int) -> bytes | None:
    return _ASK.pack(ask) if ask else None


def ask_of(token: bytes | None) -> int:
    return 0 if token is None else int.from_bytes(token)


def encode_done(tokens: list[bytes]) -> bytes:
    """Write DONE: what was asked with these is durable."""
    pieces = []
    for start in range(0, len(tokens), MOST):
        some = tokens[start : start + MOST]
        pieces.append(encode(Kind.DONE, b"".join(some), count=len(some)))
    return b"".join(pieces)


def read_done(frame: VerbFrame) -> tuple[int, ...]:
    if len(frame.payload) != _ASK.size * frame.items:
        raise _wrong(frame)
    return struct.unpack(f">{frame.items}I", frame.payload)


# Messages that are accepted.

TX, ASKS, EXPIRATION, PRIORITY, PERSISTENT, PRODUCER = 1, 2, 4, 8, 16, 32
"""Which columns ACCEPT has; PERSISTENT: some are not."""

_SHORT = struct.Struct(">H")
_ASKS = struct.Struct(">HI")


class Run:
    """Messages of one route, as ACCEPT has them."""

    __slots__ = ("ask", "asked", "contents", "expirations", "numbers", "priorities", "producer", "transient", "tx")

    def __init__(self, tx: bytes | None = None, producer: str = "") -> None:
        self.tx = tx  # the transaction that they are part of; None for none
        self.producer = producer  # who numbers them; empty for none
        self.contents: list[bytes] = []  # header lines and bodies
        self.expirations: list[int] = []  # one each; empty if none ever expires
        self.priorities: list[int] = []  # one each; empty if all are usual
        self.transient: set[int] = set()  # which are not persistent, by their places
        self.numbers: list[int] = []  # of the producer; empty without one
        self.ask = 0  # the number of the first token; the next ones follow it
        self.asked: list[int] = []  # the places of the messages whose senders wait for the tokens, ascending


def encode_run(route: int, run: Run) -> list[bytes]:
    """Write ACCEPT; in pieces, so that large contents are not copied once more."""
    contents = run.contents
    count, flags = len(contents), 0
    columns: list[bytes] = []
    if run.tx is not None:
        flags |= TX
        columns += (_SHORT.pack(len(run.tx)), run.tx)
    if run.asked:
        flags |= ASKS
        columns.append(_ASKS.pack(len(run.asked), run.ask))
        columns.append(struct.pack(f">{len(run.asked)}H", *run.asked))
    columns.append(struct.pack(f">{count}I", *[len(content) for content in contents]))
    if run.expirations:
        flags |= EXPIRATION
        columns.append(struct.pack(f">{count}Q", *run.expirations))
    if run.priorities:
        flags |= PRIORITY
        columns.append(bytes(run.priorities))
    if run.transient:
        flags |= PERSISTENT
        columns.append(bytes([place not in run.transient for place in range(count)]))
    if run.numbers:
        flags |= PRODUCER
        name = run.producer.encode()
        columns += (_SHORT.pack(len(name)), name, struct.pack(f">{count}Q", *run.numbers))
    return _with_contents(Kind.ACCEPT, flags, route, columns, contents)


def read_run(frame: VerbFrame) -> Run:
    reader, flags, count = _Columns(frame), frame.flags, frame.items
    run = Run(reader.short_bytes() if flags & TX else None)
    if flags & ASKS:
        asks, run.ask = reader.unpack(_ASKS)
        run.asked = list(reader.column("H", asks))
        if run.ask < 1 or run.asked != sorted(set(run.asked)) or (run.asked and run.asked[-1] >= count):
            raise _wrong(frame)
    sizes = reader.column("I", count)
    if flags & EXPIRATION:
        run.expirations = list(reader.column("Q", count))
    if flags & PRIORITY:
        run.priorities = list(reader.column("B", count))
        if max(run.priorities, default=0) > 9:
            raise _wrong(frame)
    if flags & PERSISTENT:
        run.transient = {place for place, stays in enumerate(reader.column("B", count)) if not stays}
    if flags & PRODUCER:
        run.producer = reader.short_text()
        run.numbers = list(reader.column("Q", count))
    run.contents = reader.contents(sizes)
    return run


# Messages that are delivered.

FIRST, STATES, ORIGINS = 1, 2, 4
"""What DELIVER says: they are the first ones of their group; it has columns of states; of origins."""

_REDELIVERED, _STAYS = 1, 2


def encode_deliver(
    part: int, messages: list[Message], *, first: bool, origins: Sequence[tuple[int, int]] = ()
) -> list[bytes]:
    """Write DELIVER, in pieces, of at most ``MOST`` messages; origins are the partition and the offset of retries."""
    count, flags = len(messages), FIRST if first else 0
    contents = [message.content for message in messages]
    columns = [
        struct.pack(f">{count}Q", *[message.sequence for message in messages]),
        struct.pack(f">{count}I", *[len(content) for content in contents]),
    ]
    if any([m.expiration or m.deliveries or m.redelivered or m.priority != 4 or not m.persistent for m in messages]):
        flags |= STATES
        columns += _states(messages)
    if origins:
        flags |= ORIGINS
        columns.append(struct.pack(f">{count}i", *[origin[0] for origin in origins]))
        columns.append(struct.pack(f">{count}Q", *[origin[1] for origin in origins]))
    return _with_contents(Kind.DELIVER, flags, part, columns, contents)


def _states(messages: list[Message]) -> list[bytes]:
    count = len(messages)
    bits = [m.redelivered * _REDELIVERED + m.persistent * _STAYS for m in messages]
    return [
        struct.pack(f">{count}Q", *[message.expiration for message in messages]),
        bytes([message.priority for message in messages]),
        bytes(bits),
        struct.pack(f">{count}I", *[message.deliveries for message in messages]),
        struct.pack(f">{count}I", *[message.failures for message in messages]),
    ]


class RelayedRetry(Message):
    """A retry of a stream's message that another shard has given."""

    __slots__ = ("origin",)

    origin: tuple[int, int]  # the partition and the offset of what it is a retry of


def read_deliver(frame: VerbFrame) -> list[Message]:
    reader, count = _Columns(frame), frame.items
    sequences, sizes = reader.column("Q", count), reader.column("I", count)
    states: list[tuple[int, ...]] = []
    if frame.flags & STATES:
        states = [reader.column(code, count) for code in "QBBII"]
    origins: list[tuple[int, ...]] = []
    if frame.flags & ORIGINS:
        origins = [reader.column(code, count) for code in "iQ"]
    kind = RelayedRetry if origins else Message
    messages = [kind(*each) for each in zip(sequences, reader.contents(sizes), strict=True)]
    if states:
        for message, *state in zip(messages, *states, strict=True):
            message.expiration, message.priority, bits, message.deliveries, message.failures = state
            message.redelivered = bool(bits & _REDELIVERED)
            message.persistent = message.stored = bool(bits & _STAYS)
    if origins:
        for message, partition, offset in zip(messages, *origins, strict=True):
            message.origin = partition, offset
    return messages


# Messages that are settled.

RANGE, DETAILED = 1, 2
"""How SETTLE names messages: from the first to the last, instead of one by one; it begins with ``Settle``."""

MOST_SETTLED = 100_000
"""So many messages are settled by one frame at most."""

_RANGE = struct.Struct(">QQ")


def encode_settle(part: int, sequences: list[int], details: Settle | None = None) -> bytes:
    """Write SETTLE; there are as many frames as are needed, if there are no details that one alone can have."""
    if len(sequences) > MOST_SETTLED:
        parts = [sequences[at : at + MOST_SETTLED] for at in range(0, len(sequences), MOST_SETTLED)]
        *others, last = parts
        quiet = None if details is None else msgspec.structs.replace(details, ask=0)
        return b"".join([encode_settle(part, some, quiet) for some in others]) + encode_settle(part, last, details)
    flags, count, start = 0, len(sequences), b""
    if details is not None:
        body = _pack(details)
        flags, start = DETAILED, _ASK.pack(len(body)) + body
    if (
        count > 2
        and sequences[-1] - sequences[0] == count - 1
        and sequences == [*range(sequences[0], sequences[-1] + 1)]
    ):
        return encode(Kind.SETTLE, start + _RANGE.pack(sequences[0], sequences[-1]), part, flags | RANGE)
    return encode(Kind.SETTLE, start + struct.pack(f">{count}Q", *sequences), part, flags)


def read_settle(frame: VerbFrame) -> tuple[list[int], Settle | None]:
    payload, details = frame.payload, None
    if frame.flags & DETAILED:
        if len(payload) < _ASK.size:
            raise _wrong(frame)
        end = _ASK.size + _ASK.unpack_from(payload)[0]
        details, payload = _unpack(payload[_ASK.size : end], Settle), payload[end:]
    if frame.flags & RANGE:
        if len(payload) != _RANGE.size:
            raise _wrong(frame)
        first, last = _RANGE.unpack(payload)
        if not 0 <= last - first < MOST_SETTLED:
            raise _wrong(frame)
        return [*range(first, last + 1)], details
    count, rest = divmod(len(payload), 8)
    if rest or count > MOST_SETTLED:
        raise _wrong(frame)
    return [*struct.unpack(f">{count}Q", payload)], details


# Columns.


class _Columns:
    __slots__ = ("_at", "_frame", "_payload")

    def __init__(self, frame: VerbFrame) -> None:
        self._frame = frame
        self._payload = frame.payload
        self._at = 0

    def column(self, code: str, count: int) -> tuple[int, ...]:
        kind = f">{count}{code}"
        end = self._at + struct.calcsize(kind)
        if end > len(self._payload):
            raise _wrong(self._frame)
        start, self._at = self._at, end
        return struct.unpack_from(kind, self._payload, start)

    def unpack(self, kind: struct.Struct) -> tuple[Any, ...]:
        start, self._at = self._at, self._at + kind.size
        if self._at > len(self._payload):
            raise _wrong(self._frame)
        return kind.unpack_from(self._payload, start)

    def short_bytes(self) -> bytes:
        """Bytes, with their number before them."""
        (size,) = self.unpack(_SHORT)
        start, self._at = self._at, self._at + size
        if self._at > len(self._payload):
            raise _wrong(self._frame)
        return bytes(self._payload[start : self._at])

    def short_text(self) -> str:
        try:
            return self.short_bytes().decode()
        except UnicodeDecodeError:
            raise _wrong(self._frame) from None

    def contents(self, sizes: tuple[int, ...]) -> list[bytes]:
        """The rest: contents of messages, which have these sizes."""
        payload, start = self._payload, self._at
        ends = list(accumulate(sizes, initial=start))
        if ends[-1] != len(payload):
            raise _wrong(self._frame)
        if isinstance(payload, bytes):
            return [payload[a:b] for a, b in pairwise(ends)]
        return [bytes(payload[a:b]) for a, b in pairwise(ends)]


def _with_contents(kind: Kind, flags: int, ref: int, columns: list[bytes], contents: list[bytes]) -> list[bytes]:
    """A frame that ends with contents: in one piece, if that is not large."""
    size = sum([len(content) for content in contents])
    head = HEAD.pack(sum([len(column) for column in columns]) + size, kind, flags, len(contents), ref)
    if size <= LARGE:
        return [b"".join([head, *columns, *contents])]
    return [b"".join([head, *columns]), *contents]


def _wrong(frame: VerbFrame) -> ProtocolViolation:
    return ProtocolViolation(f"the verb {frame.kind.name} cannot be read", command=frame.kind.name)
