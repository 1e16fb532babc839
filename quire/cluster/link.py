"""A link between two processes of a cluster, without a socket and without a clock: bytes in, bytes out, ticks.

The side that has connected is the entry: it opens virtual connections. The other side is the owner: it is told of each.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol

from quire.cluster.link_frames import (
    MAX_PAYLOAD,
    Closing,
    Kind,
    LinkDecoder,
    LinkFrame,
    Opening,
    encode,
    encode_struct,
    read_credit,
    read_struct,
)
from quire.cluster.link_handshake import EntryHandshake, OwnerHandshake
from quire.cluster.virtual_connection import VirtualConnection
from quire.errors import LimitExceeded, ProtocolViolation, QuireError, ShardMoved

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
    """One side of a link.

    Args:
        handshake: how it begins; its class says which side this is.
        watcher: whose link it is.
        accept: takes a virtual connection that the entry opens, and sets its end; an error refuses it. None at the
            entry.

    Attributes:
        handshake: as given.
        port: what carries the bytes; set before there are any.
        virtual: the virtual connections, by id.
        is_ready: whether both sides are known.
        error: why it is over; None while it is not.
    """

    port: LinkPort

    def __init__(
        self, handshake: EntryHandshake | OwnerHandshake, watcher: LinkWatcher,
        accept: Callable[[VirtualConnection], None] | None = None,
    ) -> None:  # fmt: skip
        self.handshake = handshake
        self.virtual: dict[int, VirtualConnection] = {}
        self.is_ready = False
        self.error: QuireError | None = None
        self._watcher = watcher
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
        """Whether it has ended."""
        return self.error is not None

    # Virtual connections.

    def open(self, connection: VirtualConnection) -> None:
        """Carry a virtual connection to the owner; before the link is ready it waits.

        Raises:
            LimitExceeded: the link carries as many as it may.
        """
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
        """A virtual connection has something to send."""
        if connection not in self._are_sending:
            self._are_sending.add(connection)
            self._sending.append(connection)
            self._ask()

    def forget(self, connection: VirtualConnection) -> None:
        """A virtual connection is over on this side."""
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
        """A second has gone by."""
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
        """The connection that carries it is gone."""
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
    if not closing.code:
        return None
    kinds = [QuireError]
    for kind in kinds:
        if kind.code == closing.code:
            return kind(closing.text)
        kinds += kind.__subclasses__()
    return ShardMoved(f"{closing.code}: {closing.text}")
