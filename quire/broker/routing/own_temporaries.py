"""The temporary destinations of one STOMP connection, and the names it has for them."""

import re
from typing import Protocol

from quire.broker.routing.addresses import Address, Scope, read_destination
from quire.destination import DestinationKind
from quire.errors import InvalidDestination, LimitExceeded
from quire.message import header_lines

MAX_TEMPORARIES = 1000
"""How many temporary destinations a connection may have."""

REPLY_TO = "reply-to"
"""The header that says where an answer goes."""

_REPLY_TO_LINE = re.compile(rb"\nreply-to:(/remote-temp-(?:queue|topic)/[^\n]*)")


class Makes(Protocol):
    """Makes temporary destinations, and deletes them (``Temporaries``)."""

    def create(self, kind: DestinationKind, name: str = "") -> Address:
        """Make one; without a name it is made up."""

    def delete(self, address: Address) -> None:
        """Delete one whose consumers are gone."""


class OwnTemporaries:
    """Translates between the connection's names and the broker's. The first use of a name makes the destination.

    Attributes:
        lines: what the ``reply-to`` header of a message is here, by its value in the broker; empty without any.
    """

    def __init__(self, temporaries: Makes) -> None:
        self._temporaries = temporaries
        self._remote: dict[Address, Address] = {}
        self.lines: dict[bytes, bytes] = {}

    def remote(self, address: Address, name: str = "") -> Address:
        """The broker's address of a temporary destination.

        Args:
            name: what it is to be called here if it is new; without one the broker makes it up.
        """
        if address.scope is not Scope.OWN:
            return address
        known = self._remote.get(address)
        if known is None:
            if not address.name:
                raise InvalidDestination(f"{str(address)!r} has no name: write {address}NAME", destination=str(address))
            if len(self._remote) >= MAX_TEMPORARIES:
                text = f"a connection may have {MAX_TEMPORARIES} temporary destinations"
                raise LimitExceeded(text, limit=MAX_TEMPORARIES)
            known = self._remote[address] = self._temporaries.create(address.kind, name)
            self.lines[str(known).encode()] = b"\n" + header_lines({REPLY_TO: str(address)})[:-1]
        return known

    def own(self, address: Address) -> Address | None:
        """The connection's name for a temporary destination that it has; None if it has it not."""
        return next((own for own, remote in self._remote.items() if address in (own, remote)), None)

    def remote_text(self, text: str) -> str:
        """A destination header with the broker's names in it, as any connection can use it."""
        if "/temp-" not in text:
            return text
        addresses, _ = read_destination(text)
        return ",".join([str(self.remote(address)) for address in addresses])

    def remote_reply_to(self, text: str) -> str:
        """A ``reply-to`` header with the broker's name in it; one that names another destination stays as it is."""
        return self.remote_text(text) if text.startswith(("/temp-queue/", "/temp-topic/")) else text

    def localized(self, content: bytes) -> bytes:
        """A message's content in which ``reply-to`` has the connection's own name again."""
        end = content.find(b"\n\n")
        if content.find(b"\nreply-to:/remote-temp-", 0, end) < 0:
            return content
        return _REPLY_TO_LINE.sub(self._own_line, content, 1)

    def _own_line(self, found: re.Match[bytes]) -> bytes:
        return self.lines.get(found[1], found[0])

    def end(self) -> None:
        """The connection ends, its consumers are gone: its temporary destinations go."""
        for remote in self._remote.values():
            self._temporaries.delete(remote)
        self._remote.clear()
        self.lines.clear()
