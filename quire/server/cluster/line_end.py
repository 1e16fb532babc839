"""One end of a virtual connection on which two processes of a cluster exchange lines of text."""

from collections.abc import Callable

from quire.cluster.virtual_connection import VirtualConnection
from quire.errors import ProtocolViolation, QuireError

LONGEST = 1000
"""The longest line, in bytes."""


class LineEnd:
    """One end.

    Args:
        take: takes a line that has come, as words.
        gone: is called when the connection is over.

    Attributes:
        connection: what carries it; set before anything can come.
    """

    connection: VirtualConnection

    def __init__(
        self, take: Callable[["LineEnd", list[str]], None], gone: Callable[["LineEnd"], None]
    ) -> None:  # fmt: skip
        self._take = take
        self._gone = gone
        self._rest = b""

    def say(self, *words: object) -> None:
        """Send a line."""
        self.connection.write(" ".join([str(word) for word in words]).encode() + b"\n")

    def close(self) -> None:
        """Close it."""
        self.connection.close()

    # The virtual connection calls these.

    def data_came(self, data: bytes) -> None:
        """Bytes have come; what is no line of this version ends the connection."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        try:
            for line in lines:
                self._take(self, line.decode("ascii", "replace").split())
            if len(self._rest) > LONGEST:
                raise ProtocolViolation("a line between processes of the cluster has no end", command="line")
        except QuireError as fault:
            self.connection.close(fault)
            self._gone(self)
        self.connection.taken(len(data))

    def drained(self) -> None:
        """More output is welcome again."""

    def ended(self, error: QuireError | None) -> None:
        """The connection is over."""
        self._gone(self)
