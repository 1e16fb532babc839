"""What must hold of a broker in any world."""

from collections.abc import Iterable

from quire.store.base import Store
from quire.store.maintenance.verify import verify
from quire.testing.stepped import SteppedBroker
from tests.simulation.client import SimulatedClient
from tests.simulation.rules import Broken, Rule

GREATEST = 2000
"""No message is charged more than this: content, headers, a dead letter's headers, and the overhead."""

ALL = 1 << 30
"""More than there ever is."""


def check_answered(stepped: SteppedBroker, clients: Iterable[SimulatedClient]) -> None:
    """At rest: no producer is held without a reason, and every receipt has come."""
    broker = stepped.broker
    for session, hold in broker.core.flow.holds.items():
        if not broker.core.is_over(hold.cause):
            raise Broken(Rule.STALL, f"{session.name} is held for {hold.cause}, and there is room")
    held = {session.name for session in broker.core.flow.holds}
    for client in clients:
        if client.receipts and client.connection.connection.peer not in held:
            raise Broken(Rule.STALL, f"{client.name} waits for {list(client.receipts)}")


def check_links(store: Store) -> None:
    """At any time: the store finds nothing wrong with itself."""
    for finding in verify(store):
        raise Broken(Rule.LINKS, finding.text)
