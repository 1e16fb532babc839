"""A connection as it is counted."""

from typing import Protocol


class Desk(Protocol):
    """Who counts connections."""

    def logged_in(self, visitor: "Visitor", user: str) -> None:
        """A client has logged in. Raises ``TooManyConnections`` if its user has as many connections as it may."""

    def left(self, visitor: "Visitor") -> None:
        """A connection is gone; nothing happens if it was counted out already."""


class Visitor:
    """One connection, from when it is accepted until it is gone.

    Attributes:
        host: the address of the client, without the port.
        door: by which protocol it comes: ``stomp``, ``openwire``, ``http``, ``websocket``.
        certificate: the subject of its certificate, which TLS has verified; empty without one.
        is_encrypted: whether it speaks TLS.
        user: the user that it logged in as; empty for none; None before that.
        is_counted: whether it counts: it is not gone.
        has_turn: whether it has begun TLS and not logged in yet.
    """

    __slots__ = ("_desk", "certificate", "door", "has_turn", "host", "is_counted", "is_encrypted", "user")

    def __init__(self, desk: Desk, door: str, host: str) -> None:
        self._desk = desk
        self.door = door
        self.host = host
        self.certificate = ""
        self.is_encrypted = False
        self.user: str | None = None
        self.is_counted = False
        self.has_turn = False

    def logged_in(self, user: str) -> None:
        """The client has shown who it is: it counts to the connections of its user, not to those before their login.

        Raises:
            TooManyConnections: the user has as many as it may.
        """
        self._desk.logged_in(self, user)

    def left(self) -> None:
        """The connection is gone."""
        self._desk.left(self)
