"""The API's connections: who is connected."""

import msgspec

from quire.http.endpoint import Call, listing
from quire.http.rights import MONITOR
from quire.server.connected_session import ConnectedSession


class Connection(msgspec.Struct, frozen=True):
    """A client's connection.

    ``destinations`` are those it consumes. ``held`` says whether its input waits because a limit is reached,
    ``writable`` whether it reads what it is sent.
    """

    address: str
    client_id: str | None
    protocol: str
    connected_seconds: float
    destinations: list[str]
    in_flight: int
    held: bool
    writable: bool


def _described(session: ConnectedSession, now: int) -> Connection:
    subscriptions = session.subscriptions.values()
    return Connection(
        address=session.name, client_id=session.client_id, protocol=session.protocol,
        connected_seconds=max(now - session.connected_at, 0) / 1000,
        destinations=sorted({str(subscription.source.destination) for subscription in subscriptions}),
        in_flight=sum(len(subscription.in_flight) for subscription in subscriptions), held=session.held,
        writable=session.writable,
    )  # fmt: skip


def _connections(call: Call) -> list[Connection]:
    now = call.service.clock.now_ms()
    return [_described(session, now) for session in call.service.connections.values()]


ENDPOINTS = [
    listing(
        "ConnectionList", "/connections", MONITOR, "List the connections and their subscriptions.", "connections",
        Connection, _connections,
    )
]  # fmt: skip
