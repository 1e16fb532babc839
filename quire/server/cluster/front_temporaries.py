"""The temporary destinations of a client that is connected to a process without a shard."""

import itertools
import secrets

from quire.broker.routing.addresses import Address, Scope
from quire.destination import DestinationKind

NAME = "temporary-name"
"""The header of SUBSCRIBE that tells the owner the name of the client's temporary destination."""


class FrontTemporaries:
    """Makes up their names; the map says where they lie. The owner makes the destination when it is subscribed to."""

    def __init__(self) -> None:
        self._run = secrets.token_hex(8)
        self._numbers = itertools.count(1)

    def create(self, kind: DestinationKind, name: str = "") -> Address:
        """Make up a name."""
        return Address(kind, name or f"{self._run}-{next(self._numbers)}", Scope.REMOTE)

    def delete(self, address: Address) -> None:
        """Its owner does so when the client's virtual connection ends."""
