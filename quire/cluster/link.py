"""A link between two processes of a cluster, without a socket and without a clock: bytes in, bytes out, ticks.

The side that has connected is the entry: it opens virtual connections, each a client's. The other side is the owner of
a shard: it is told of each.

**How it begins.** The entry says HELLO: who it is, and which shard with which epoch it looks for. The owner answers
with a CHALLENGE that proves that it has the secret of the cluster, if it is that owner. The entry then gives its PROOF,
and the answer is READY. Both proofs are HMACs over everything that was said, under a name for the role, so neither can
be used for the other, or for another link. With TLS they cover the certificate too.

**A virtual connection.** Each side may send as many bytes as the other side has given it credit for; at first that is
``WINDOW``. What is beyond waits here, and whose input or output it is knows by ``is_full`` and ``drained``. So one slow
client holds up no other.
"""

import hmac
import secrets
import struct
from collections import deque
from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from quire.errors import LimitExceeded, NotAuthenticated, ProtocolViolation, QuireError, ShardMoved, UnsupportedVersion

HEAD = struct.Struct(">BII")
"""How a frame begins: its kind, the id of its virtual connection (0 for the link itself), the length of its payload."""

MAX_PAYLOAD = 64 * 1024
"""The largest payload, in bytes: data of a virtual connection is cut to this size, so that all have their turns."""

MAX_EARLY_PAYLOAD = 1024
"""The same before both sides have shown that they are of the cluster."""

_COUNT = struct.Struct(">I")
T = TypeVar("T", bound=msgspec.Struct)


class Kind(IntEnum):
    HELLO = 1
    CHALLENGE = 2
    PROOF = 3
    READY = 4
    OPEN = 5
    DATA = 6
    CREDIT = 7
    CLOSE = 8
    BEAT = 9


KINDS = {int(kind): kind for kind in Kind}
"""All kinds, by number."""


class LinkFrame(NamedTuple):
    kind: Kind
    id: int
    payload: bytes


class Opening(msgspec.Struct, frozen=True):
    """What the entry says of the client for which it opens a virtual connection."""

    protocol: str  # what is spoken on it: ``stomp`` or ``openwire``
    user: str  # the user that the client has logged in as; empty while there are no users
    roles: list[str]  # its roles that count
    peer: str  # the address of the client, as operators see it
    door: str  # by which protocol it has come to the entry, as the audit log has it


class Closing(msgspec.Struct, frozen=True):
    """Why a virtual connection or a link ends; without a code it ends as it should."""

    code: str = ""
    text: str = ""


def encode(kind: Kind, id: int = 0, payload: bytes = b"") -> bytes:
    return HEAD.pack(kind, id, len(payload)) + payload


def encode_credit(id: int, size: int) -> bytes:
    """Write a CREDIT frame: so many bytes more may be sent."""
    return encode(Kind.CREDIT, id, _COUNT.pack(size))


def encode_struct(kind: Kind, id: int, content: msgspec.Struct) -> bytes:
    return encode(kind, id, msgspec.msgpack.encode(content))


def read_credit(payload: bytes) -> int:
    if len(payload) != _COUNT.size:
        raise ProtocolViolation("a link frame CREDIT has the wrong length", command="CREDIT")
    count: int = _COUNT.unpack(payload)[0]
    return count


def read_struct(payload: bytes, kind: type[T]) -> T:
    try:
        return msgspec.msgpack.decode(payload, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:  # a ValidationError is a DecodeError
        raise ProtocolViolation(f"a link frame has no {kind.__name__}: {error}", command=kind.__name__) from None


class LinkDecoder:
    """Takes the bytes of one direction of a link apart."""

    def __init__(self) -> None:
        self.most = MAX_EARLY_PAYLOAD  # the largest payload that may come
        self._data = b""

    @property
    def buffered(self) -> int:
        return len(self._data)

    def receive(self, data: bytes) -> None:
        self._data = self._data + data if self._data else data

    def frames(self) -> "list[LinkFrame]":
        """The whole frames that have come. What came before a fault is lost: the link has to end."""
        frames: list[LinkFrame] = []
        data, position = self._data, 0
        while len(data) - position >= HEAD.size:
            number, id, length = HEAD.unpack_from(data, position)
            if (kind := KINDS.get(number)) is None:
                raise ProtocolViolation(f"a link has no frame of kind {number}", command=str(number))
            if length > self.most:
                raise LimitExceeded(f"a link frame has {length} bytes, the limit is {self.most}", limit=self.most)
            end = position + HEAD.size + length
            if end > len(data):
                break
            frames.append(LinkFrame(kind, id, data[position + HEAD.size : end]))
            position = end
            if kind is Kind.READY or kind is Kind.PROOF:  # what follows may be larger
                break
        self._data = data[position:]
        return frames


LINK_VERSION = 2
"""The version of what is spoken on links."""

NONCE = 32
"""How many random bytes each side adds."""


class _Hello(msgspec.Struct, frozen=True):
    version: int
    shard: int  # of the side that connects; -1 for a front
    owner: int  # the shard that it looks for
    epoch: int
    nonce: bytes


class _Challenge(msgspec.Struct, frozen=True):
    nonce: bytes
    proof: bytes


class EntryHandshake:
    """The side that connects: shard ``shard``, or ``FRONT``; it looks for ``owner`` with an epoch."""

    def __init__(
        self, secret: bytes, shard: int, owner: int, epoch: int, nonce: Callable[[int], bytes] = secrets.token_bytes
    ) -> None:
        self.binding = b""  # what TLS says of the certificate of the owner; empty without TLS
        self.is_done = False  # whether both sides are known
        self._secret = secret  # of the cluster
        self._hello = encode_struct(Kind.HELLO, 0, _Hello(LINK_VERSION, shard, owner, epoch, nonce(NONCE)))
        self._has_proven = False

    def begin(self) -> bytes:
        return self._hello

    def take(self, frame: LinkFrame) -> bytes:
        """Take a frame; returns the answer."""
        if frame.kind is Kind.READY and self._has_proven:
            self.is_done = True
            return b""
        if frame.kind is not Kind.CHALLENGE or self._has_proven:
            raise ProtocolViolation(f"the link frame {frame.kind.name} may not come now", command=frame.kind.name)
        challenge = read_struct(frame.payload, _Challenge)
        said = (self._hello, challenge.nonce, self.binding)
        if not hmac.compare_digest(challenge.proof, _proof(self._secret, b"owner", *said)):
            raise NotAuthenticated("the process at the address of a shard has not the secret of the cluster")
        self._has_proven = True
        return encode(Kind.PROOF, 0, _proof(self._secret, b"entry", *said))


class OwnerHandshake:
    """The side that is connected to."""

    def __init__(
        self, secret: bytes, shard: int, epoch: Callable[[], int], nonce: Callable[[int], bytes] = secrets.token_bytes
    ) -> None:
        self.binding = b""  # what TLS says of the own certificate; empty without TLS
        self.is_done = False  # whether both sides are known
        self.entry: int | None = None  # the shard of the other side; ``FRONT`` for a front; None before HELLO
        self._secret = secret  # of the cluster
        self._shard = shard  # the own number
        self._epoch = epoch  # gives the own epoch
        self._nonce = nonce(NONCE)
        self._hello = b""

    def begin(self) -> bytes:
        return b""

    def take(self, frame: LinkFrame) -> bytes:
        """Take a frame; returns the answer."""
        if frame.kind is Kind.HELLO and not self._hello:
            self._check(read_struct(frame.payload, _Hello))
            self._hello = encode(frame.kind, frame.id, frame.payload)
            proof = _proof(self._secret, b"owner", self._hello, self._nonce, self.binding)
            return encode_struct(Kind.CHALLENGE, 0, _Challenge(self._nonce, proof))
        if frame.kind is Kind.PROOF and self._hello:
            proof = _proof(self._secret, b"entry", self._hello, self._nonce, self.binding)
            if not hmac.compare_digest(frame.payload, proof):
                raise NotAuthenticated("a process that has connected as one of the cluster has not its secret")
            self.is_done = True
            return encode(Kind.READY)
        raise ProtocolViolation(f"the link frame {frame.kind.name} may not come now", command=frame.kind.name)

    def _check(self, hello: _Hello) -> None:
        if hello.version != LINK_VERSION:
            text = f"the link speaks version {hello.version}; this broker speaks {LINK_VERSION}"
            raise UnsupportedVersion(text, offered=str(hello.version), supported=[str(LINK_VERSION)])
        if len(hello.nonce) != NONCE:
            raise ProtocolViolation(f"HELLO of a link needs {NONCE} random bytes", command="HELLO")
        if (hello.owner, hello.epoch) != (self._shard, self._epoch()):
            raise ShardMoved(
                f"shard {hello.owner} with epoch {hello.epoch} is not here: this is shard {self._shard}",
                shard=hello.owner,
            )
        self.entry = hello.shard


def _proof(secret: bytes, role: bytes, hello: bytes, nonce: bytes, binding: bytes) -> bytes:
    said = b"".join([len(part).to_bytes(4) + part for part in (role, hello, nonce, binding)])
    return hmac.digest(secret, said, "sha256")


WINDOW = 256 * 1024
"""How many bytes may be under way in one direction before the other side has taken them."""

CREDIT_STEP = WINDOW // 4
"""Credit is given in steps of at least so many bytes."""

FULL = 256 * 1024
"""With more bytes waiting than this, no more is welcome."""

DRAINED = FULL // 4
"""With no more waiting than this, more is welcome again."""


class VirtualEnd(Protocol):
    """Whose virtual connection it is."""

    def data_came(self, data: bytes) -> None:
        """Bytes have come. Say ``taken`` of the connection once they are out of the way."""

    def room_again(self) -> None:
        """More output is welcome again, after ``is_full``."""

    def ended(self, error: QuireError | None) -> None:
        """The other side has closed it, with the error that it names, or the link is lost. Nothing comes after this."""


class VirtualConnection:
    """One end.

    Args:
        charge: is told how many bytes more or fewer wait to be sent; whether they are more than all may have together.

    Attributes:
        is_closed: whether it is closed on this side, or has ended.
        is_full: whether so much waits to be sent that no more is welcome.
        is_over_limit: whether it had something to send when all together had too much: it should be closed.
        waiting: how many bytes wait to be sent.
        unread: how many bytes have come that ``taken`` was not said of.
    """

    __slots__ = (
        "_carrier", "_charge", "_closing", "_control", "_credit", "_owed", "_pieces", "end", "id", "is_closed",
        "is_full", "is_over_limit", "opening", "unread", "waiting",
    )  # fmt: skip

    end: VirtualEnd  # whose it is; set before anything can come

    def __init__(self, opening: Opening, charge: Callable[[int], bool] | None = None) -> None:
        self.opening = opening  # what the entry says of its client
        self.id = 0  # its id in the link; 0 until a link carries it
        self.is_closed = self.is_full = self.is_over_limit = False
        self._charge = charge
        self.waiting = self.unread = 0
        self._carrier: Link | None = None
        self._pieces: deque[bytes | memoryview] = deque()
        self._control: list[bytes] = []
        self._closing: Closing | None = None
        self._credit = WINDOW
        self._owed = 0

    # Its owner calls these.

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes, once the other side takes them; dropped if it is closed. They must not change any more."""
        if self.is_closed or not data:
            return
        self._pieces.append(data if isinstance(data, bytes) else memoryview(data))
        self._add_waiting(len(data))
        self.is_full = self.is_full or self.waiting > FULL
        if self._credit:
            self._ask()

    def taken(self, size: int) -> None:
        """So many bytes that have come are out of the way: the other side may send as many more."""
        size = min(size, self.unread)  # with its close all are
        self.unread -= size
        self._owed += size
        if self._owed >= CREDIT_STEP and (self._closing is not None or not self.is_closed):
            self._control.append(encode_credit(self.id, self._owed))
            self._owed = 0
            self._ask()

    def close(self, error: QuireError | None = None) -> None:
        """Close it once what was written is sent; the other side is told the error. ``ended`` is not called."""
        if not self.is_closed:
            self.is_closed = True
            self._closing = Closing() if error is None else Closing(error.code, str(error))
            self.taken(self.unread)  # without room for its output the other side may read no more, and never the end
            self._ask()

    def abort(self, error: QuireError | None = None) -> None:
        """Close it at once; what waits is dropped. The other side is told the error."""
        self._drop()
        if not self.is_closed:
            self.close(error)
        elif self._closing is not None:
            self._ask()

    # The link calls these.

    def carry(self, carrier: "Link", id: int) -> None:
        self._carrier, self.id = carrier, id
        if self.waiting or self._control or self._closing is not None:
            self._ask()

    @property
    def has_output(self) -> bool:
        return bool(self._control or (self._pieces and self._credit) or (self._closing and not self._pieces))

    def next_output(self) -> list[bytes]:
        """The next frames to send: at most one of them has data. The link forgets it once it has told its end."""
        output, self._control = self._control, []
        if (most := min(self._credit, MAX_PAYLOAD)) and self._pieces:
            data = self._cut(most)
            self._credit -= len(data)
            self._add_waiting(-len(data))
            output.append(encode(Kind.DATA, self.id, data))
        if self._closing is not None and not self._pieces:
            output.append(encode_struct(Kind.CLOSE, self.id, self._closing))
            self._closing = None
            if self._carrier is not None:
                self._carrier.forget(self)
        return output

    def tell_drained(self) -> None:
        """Say that more is welcome again, if that is so."""
        if self.is_full and self.waiting <= DRAINED and not self.is_closed:
            self.is_full = False
            self.end.room_again()

    def data_came(self, data: bytes) -> None:
        self.unread += len(data)
        if self.unread + self._owed > WINDOW:
            raise ProtocolViolation("a virtual connection has sent more than its window", command="DATA")
        if self.is_closed:
            self.taken(len(data))
        else:
            self.end.data_came(data)

    def credit_came(self, size: int) -> None:
        self._credit += size
        if self._credit > WINDOW:
            raise ProtocolViolation("a virtual connection has got more credit than its window", command="CREDIT")
        if self._pieces:
            self._ask()

    def end_now(self, error: QuireError | None) -> None:
        was_closed, self.is_closed = self.is_closed, True
        self._closing, self._carrier = None, None
        self._control.clear()
        self._drop()
        if not was_closed:
            self.end.ended(error)

    def _ask(self) -> None:
        if self._carrier is not None:
            self._carrier.has_output(self)

    def _drop(self) -> None:
        self._pieces.clear()
        self._add_waiting(-self.waiting)

    def _add_waiting(self, size: int) -> None:
        self.waiting += size
        if self._charge is not None and self._charge(size):
            self.is_over_limit = True

    def _cut(self, most: int) -> bytes:
        pieces, size = self._pieces, 0
        cut: list[bytes | memoryview] = []
        while pieces and size < most:
            piece = pieces.popleft()
            if size + len(piece) > most:
                view = memoryview(piece)
                pieces.appendleft(view[most - size :])
                piece = view[: most - size]
            cut.append(piece)
            size += len(piece)
        return b"".join(cut)


SILENCE = 5
"""A link from which nothing has come for so many ticks is lost."""

OUTPUT = 1 << 20
"""How many bytes are taken at once to be sent."""

MAX_VIRTUAL = 50_000
"""How many virtual connections one link may carry."""

ENDED_AT_ONCE = 32
"""Of how many virtual connections the ends are told in one step, when a link is lost."""


class LinkPort(Protocol):
    """What carries the bytes of a link."""

    def wants_output(self) -> None:
        """There is output to take, where there was none."""

    def close(self) -> None:
        """The link is over: take the last output, send it and close."""


class LinkWatcher(Protocol):
    """Whose link it is."""

    def link_ready(self, link: "Link") -> None:
        """Both sides are known; virtual connections work."""

    def link_ended(self, link: "Link", error: QuireError) -> None:
        """The link is over; the virtual connections are told by the steps of ``ends``."""


class Link:
    """One side of a link; at the owner, ``accept`` takes or refuses what the entry opens, and sets its end."""

    port: LinkPort  # what carries the bytes; set before there are any

    def __init__(
        self, handshake: EntryHandshake | OwnerHandshake, watcher: LinkWatcher,
        accept: Callable[[VirtualConnection], None] | None = None,
    ) -> None:  # fmt: skip
        self.handshake = handshake  # how it begins; its class says which side this is
        self.virtual: dict[int, VirtualConnection] = {}  # the virtual connections, by id
        self.is_ready = False  # whether both sides are known
        self.error: QuireError | None = None  # why it is over; None while it is not
        self._watcher = watcher  # whose link it is
        self._accept = accept
        self._decoder = LinkDecoder()
        self._early = [handshake.begin()]  # what may be sent before the link is ready, and why it ends
        self._control: list[bytes] = []
        self._sending: deque[VirtualConnection] = deque()  # those with output, each once
        self._are_sending: set[VirtualConnection] = set()
        self._last_id = 0
        self._silent = 0  # so many ticks
        self._has_sent = True  # something since the last tick
        self._asked = False

    @property
    def is_over(self) -> bool:
        return self.error is not None

    # Virtual connections.

    def open(self, connection: VirtualConnection) -> None:
        """Carry a virtual connection to the owner; before the link is ready it waits."""
        if len(self.virtual) >= MAX_VIRTUAL:
            raise LimitExceeded(f"{MAX_VIRTUAL} virtual connections are the limit of a link", limit=MAX_VIRTUAL)
        self._last_id += 1
        self.virtual[self._last_id] = connection
        self._say(encode_struct(Kind.OPEN, self._last_id, connection.opening))
        connection.carry(self, self._last_id)

    def release(self) -> list[VirtualConnection]:
        """Take back the virtual connections of a link that never was ready: another one can carry them."""
        connections = [] if self.is_ready else list(self.virtual.values())
        if connections:
            self.virtual.clear()
            self._sending.clear()
            self._are_sending.clear()
        return connections

    def has_output(self, connection: VirtualConnection) -> None:
        if connection not in self._are_sending:
            self._are_sending.add(connection)
            self._sending.append(connection)
            self._ask()

    def forget(self, connection: VirtualConnection) -> None:
        self.virtual.pop(connection.id, None)

    # Bytes.

    def receive(self, data: bytes) -> None:
        """Take what came; a fault ends the link."""
        if self.is_over:
            return
        self._silent = 0
        self._decoder.receive(data)
        try:
            self._take_all()
        except QuireError as fault:
            self.fail(fault)

    def take_output(self) -> bytes:
        """What is to be sent now: of each virtual connection a piece in turn. More is there if it asks again."""
        self._asked = False
        self._has_sent = True
        output = [*self._early]
        self._early.clear()
        if self.is_ready:
            output += self._control
            self._control.clear()
        size, drained = 0, []
        while self._sending and size < OUTPUT and self.is_ready and self.error is None:
            connection = self._sending.popleft()
            self._are_sending.discard(connection)
            pieces = connection.next_output()
            output += pieces
            size += sum([len(piece) for piece in pieces])
            if connection.has_output:
                self._are_sending.add(connection)
                self._sending.append(connection)
            if connection.is_full:
                drained.append(connection)
        joined = b"".join(output)
        for connection in drained:
            connection.tell_drained()
        if self._sending and self.is_ready:
            self._ask()
        return joined

    def tick(self) -> None:
        if self.error is not None:
            return
        self._silent += 1
        if self._silent > SILENCE:
            self.fail(ShardMoved(f"nothing came over the link for {SILENCE} s"))
        elif self.is_ready and not self._has_sent:
            self._say(encode(Kind.BEAT))
        self._has_sent = False

    # Its end.

    def fail(self, error: QuireError) -> None:
        """End the link; the other side is told why."""
        if self.error is None:
            self._control.clear()
            self._early.append(encode_struct(Kind.CLOSE, 0, Closing(error.code, str(error))))
            self.lost(error)

    def lost(self, error: QuireError) -> None:
        if self.error is None:
            self.error = error
            self._sending.clear()
            self.port.close()
            self._watcher.link_ended(self, error)

    def ends(self) -> Iterator[None]:
        """Tell the ends of the virtual connections of a lost link, some at each step."""
        while self.virtual:
            for id in list(self.virtual)[:ENDED_AT_ONCE]:
                self.virtual.pop(id).end_now(ShardMoved(f"the link to a process of the cluster is lost: {self.error}"))
            yield

    # What came.

    def _take_all(self) -> None:
        while frames := self._decoder.frames():
            for frame in frames:
                self._take(frame)
                if self.is_over:
                    return

    def _take(self, frame: LinkFrame) -> None:
        kind = frame.kind
        if not self.is_ready:
            self._take_early(frame)
        elif kind is Kind.DATA:
            if (connection := self._known(frame)) is not None:
                connection.data_came(frame.payload)
        elif kind is Kind.CREDIT:
            size = read_credit(frame.payload)
            if (connection := self._known(frame)) is not None:
                connection.credit_came(size)
        elif kind is Kind.CLOSE:
            self._take_close(frame)
        elif kind is Kind.OPEN and self._accept is not None:
            self._take_open(frame, self._accept)
        elif kind is not Kind.BEAT:
            raise ProtocolViolation(f"the link frame {kind.name} may not come now", command=kind.name)

    def _take_early(self, frame: LinkFrame) -> None:
        if frame.kind is Kind.CLOSE:
            self._take_close(frame)
            return
        if answer := self.handshake.take(frame):
            self._early.append(answer)
            self._ask()
        if self.handshake.is_done:
            self.is_ready = True
            self._decoder.most = MAX_PAYLOAD
            self._watcher.link_ready(self)
            self._ask()

    def _take_open(self, frame: LinkFrame, accept: Callable[[VirtualConnection], None]) -> None:
        if frame.id <= self._last_id:
            raise ProtocolViolation("a link opens a virtual connection twice", command="OPEN")
        self._last_id = frame.id
        connection = VirtualConnection(read_struct(frame.payload, Opening))
        connection.carry(self, frame.id)
        try:
            if len(self.virtual) >= MAX_VIRTUAL:
                raise LimitExceeded(f"{MAX_VIRTUAL} virtual connections are the limit of a link", limit=MAX_VIRTUAL)
            self.virtual[frame.id] = connection
            accept(connection)
        except QuireError as error:
            connection.close(error)

    def _take_close(self, frame: LinkFrame) -> None:
        closing = read_struct(frame.payload, Closing)
        if not frame.id:
            self.lost(ended_by(closing) or ShardMoved("the other side has closed the link"))
        elif (connection := self._known(frame)) is not None:
            self.forget(connection)
            connection.end_now(ended_by(closing))

    def _known(self, frame: LinkFrame) -> VirtualConnection | None:
        """The virtual connection of a frame; None if it is over on this side, as the other one will find out."""
        connection = self.virtual.get(frame.id)
        if connection is None and not 0 < frame.id <= self._last_id:
            raise ProtocolViolation(f"a link has no virtual connection {frame.id}", command=frame.kind.name)
        return connection

    # Output.

    def _say(self, frame: bytes) -> None:
        self._control.append(frame)
        self._ask()

    def _ask(self) -> None:
        if not self._asked:
            self._asked = True
            self.port.wants_output()


def ended_by(closing: Closing) -> QuireError | None:
    """The error that the other side names; None if it has closed without one."""
    return error_of_code(closing.code, closing.text) if closing.code else None


def error_of_code(code: str, text: str) -> QuireError:
    """The error that another process names, an object of its class again."""
    kinds = [QuireError]
    for kind in kinds:
        if kind.code == code:
            return kind(text)
        kinds += kind.__subclasses__()
    return ShardMoved(f"{code}: {text}")
