"""The clients of the picture: who sends where, grouped by client id, or by host without one."""

from collections.abc import Iterable
from typing import NamedTuple

from quire.broker.core.subscription import Session
from quire.broker.routing.addresses import Scope, read_destination
from quire.errors import InvalidDestination


class Client(NamedTuple):
    """A connection."""

    session: Session
    client_id: str | None
    sends_to: Iterable[str]  # destinations as headers have them


def label_of(client_id: str | None, address: str) -> str:
    """What stands for a client: its client id, or its host."""
    return client_id or address.rpartition(":")[0] or address


def destinations_of(texts: Iterable[str]) -> set[tuple[str, str]]:
    """The destinations that a client sends to, by kind and name; temporary ones are left out."""
    found: set[tuple[str, str]] = set()
    for text in texts:
        try:
            addresses, _ = read_destination(text)
        except InvalidDestination:
            continue
        found.update([(str(each.kind), each.name) for each in addresses if each.scope is Scope.COMMON])
    return found
