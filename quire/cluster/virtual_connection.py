"""One end of a virtual connection: a client connection that is carried, with many others, by one link.

Each side may send as many bytes as the other side has given it credit for; at first that is ``WINDOW``. What is beyond
waits here, and whose input or output it is knows by ``is_full`` and ``drained``. So one slow client holds up no other.
"""

from collections import deque
from collections.abc import Callable
from typing import Protocol

from quire.cluster.link_frames import MAX_PAYLOAD, Closing, Kind, Opening, encode, encode_credit, encode_struct
from quire.errors import ProtocolViolation, QuireError

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

    def drained(self) -> None:
        """More output is welcome again, after ``is_full``."""

    def ended(self, error: QuireError | None) -> None:
        """The other side has closed it, with the error that it names, or the link is lost. Nothing comes after this."""


class Carrier(Protocol):
    """The link, as its virtual connections see it."""

    def has_output(self, connection: "VirtualConnection") -> None:
        """A virtual connection has something to send."""

    def forget(self, connection: "VirtualConnection") -> None:
        """A virtual connection is over on this side."""


class VirtualConnection:
    """One end.

    Args:
        opening: what the entry says of its client.
        charge: is told how many bytes more or fewer wait to be sent; whether they are more than all may have together.

    Attributes:
        opening: as given.
        end: whose it is; set before anything can come.
        id: its id in the link; 0 until a link carries it.
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

    end: VirtualEnd

    def __init__(self, opening: Opening, charge: Callable[[int], bool] | None = None) -> None:
        self.opening = opening
        self.id = 0
        self.is_closed = self.is_full = self.is_over_limit = False
        self._charge = charge
        self.waiting = self.unread = 0
        self._carrier: Carrier | None = None
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

    def carry(self, carrier: Carrier, id: int) -> None:
        """A link carries it from now on."""
        self._carrier, self.id = carrier, id
        if self.waiting or self._control or self._closing is not None:
            self._ask()

    @property
    def has_output(self) -> bool:
        """Whether it has something that can be sent now."""
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
            self.end.drained()

    def data_came(self, data: bytes) -> None:
        """The other side has sent bytes.

        Raises:
            ProtocolViolation: it had no credit for them.
        """
        self.unread += len(data)
        if self.unread + self._owed > WINDOW:
            raise ProtocolViolation("a virtual connection has sent more than its window", command="DATA")
        if self.is_closed:
            self.taken(len(data))
        else:
            self.end.data_came(data)

    def credit_came(self, size: int) -> None:
        """The other side takes more.

        Raises:
            ProtocolViolation: it gives more credit than the window has.
        """
        self._credit += size
        if self._credit > WINDOW:
            raise ProtocolViolation("a virtual connection has got more credit than its window", command="CREDIT")
        if self._pieces:
            self._ask()

    def end_now(self, error: QuireError | None) -> None:
        """The other side has closed it, or the link is lost."""
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
        """Take the next bytes to send."""
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
