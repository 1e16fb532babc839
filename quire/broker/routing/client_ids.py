"""Client ids: the names that clients give themselves, each for one connection at a time."""

from quire.broker.core.subscription import Session
from quire.errors import InvalidHeader

MAX_CLIENT_ID = 200
"""The longest client id, in characters: it is part of keys in every store."""


class ClientIds:
    """Who is connected under which client id.

    A durable subscription belongs to a client id, so two connections may not have the same one. As in ActiveMQ the
    second one is refused; the first one stays.
    """

    def __init__(self) -> None:
        self._sessions: dict[str, Session] = {}

    def other(self, client_id: str, session: Session) -> Session | None:
        """Who has a client id, if it is not the connection itself."""
        holder = self._sessions.get(client_id)
        return None if holder is session else holder

    def claim(self, client_id: str, session: Session) -> None:
        """A connection takes a client id."""
        check_client_id(client_id)
        other = self._sessions.setdefault(client_id, session)
        if other is not session:
            data = {"connection": other.name} if other.user == session.user else {}  # of others, no address
            place = f", from {other.name}" if data else ""
            text = (
                f"client-id {client_id[:60]!r} is already connected{place}: end that connection first, or use another"
            )
            raise InvalidHeader(f"{text} client-id", header="client-id", **data)

    def release(self, client_id: str, session: Session) -> None:
        """A connection gives its client id back; if it never had it, nothing changes."""
        if self._sessions.get(client_id) is session:
            del self._sessions[client_id]


def check_client_id(client_id: str) -> None:
    """See that a client id has a length that is allowed.

    Raises:
        InvalidHeader: it has not.
    """
    if not 0 < len(client_id) <= MAX_CLIENT_ID:
        raise InvalidHeader(f"client-id needs 1 to {MAX_CLIENT_ID} characters", header="client-id")
