"""A client's connection as a session sees it: the transport's half of the contract."""

from typing import Protocol

from quire.server.entrance.visitor import Visitor


class Connection(Protocol):
    """Where a session writes to, and how it stops the input.

    Attributes:
        peer: the other side's address, for operators.
        is_writable: whether more output is welcome now.
        visitor: the connection as it is counted.
    """

    peer: str
    is_writable: bool
    visitor: Visitor

    @property
    def unread(self) -> int:
        """How many octets have come that are not read because reading is paused; 0 while it is not."""
        ...

    @property
    def has_ended(self) -> bool | None:
        """Whether the client has ended the connection, though not all that came was read; None if that is not known."""
        ...

    def write(self, data: bytes) -> None:
        """Send bytes; they may wait in the transport's buffer."""
        ...

    def close(self) -> None:
        """Close after what was written has been sent, or after some seconds all the same."""
        ...

    def abort(self) -> None:
        """Close at once; what waits in the transport's buffer is not sent."""
        ...

    def pause_reading(self, reason: str) -> None:
        """Read no more until ``resume_reading`` has been called for every reason there is."""
        ...

    def resume_reading(self, reason: str) -> None:
        """A reason not to read is gone."""
        ...
