"""The API's connections: who is connected, and what consumes."""

from collections.abc import Iterator
from typing import Annotated, NamedTuple

import msgspec

from quire.broker.core.subscription import Subscription
from quire.http.endpoint import Call
from quire.http.listing import table_listing
from quire.http.rights import MONITOR
from quire.management.consumer_status import Consumer, consumer
from quire.management.described import doc
from quire.management.tables.table import Table
from quire.management.waits import Waits
from quire.server.connected_session import ConnectedSession

MOST_SHOWN = 100
"""How many destinations of a connection are named: a wildcard may match thousands."""


class Connection(msgspec.Struct, frozen=True):
    """A client's connection."""

    address: Annotated[str, doc("The address of the client.")]
    client_id: Annotated[str | None, doc("The client id; null for none.")]
    protocol: Annotated[str, doc("The protocol, with its version.")]
    connected_seconds: Annotated[float, doc("For how long it has been connected.")]
    consumers: Annotated[int, doc("How many subscriptions it has; a wildcard has one for each destination.")]
    destinations: Annotated[list[str], doc("What it consumes: the first hundred destinations, by name.")]
    in_flight: Annotated[int, doc("How many messages it has that are not acknowledged.")]
    held: Annotated[bool, doc("Whether its input waits because a limit is reached.")]
    writable: Annotated[bool, doc("Whether it reads what the broker sends.")]


class ConnectedConsumer(msgspec.Struct, frozen=True):
    """A consumer, and whose it is."""

    client_id: Annotated[str | None, doc("The client id of its connection; null for none.")]
    protocol: Annotated[str, doc("The protocol of its connection.")]
    destination: Annotated[str, doc("What it consumes, with its kind: ``queue://orders``.")]
    consumer: Annotated[Consumer, doc("The consumer.")]


class _Consuming(NamedTuple):
    """A subscription, and whose it is."""

    session: ConnectedSession
    subscription: Subscription


def _connection(call: Call, session: ConnectedSession) -> Connection:
    subscriptions = session.subscriptions.values()
    now = call.service.clock.now_ms()
    return Connection(
        address=session.name, client_id=session.client_id, protocol=session.protocol,
        connected_seconds=max(now - session.connected_at, 0) / 1000, consumers=len(subscriptions),
        destinations=sorted({str(each.source.destination) for each in subscriptions})[:MOST_SHOWN],
        in_flight=_in_flight(session), held=session.held, writable=session.writable,
    )  # fmt: skip


def _in_flight(session: ConnectedSession) -> int:
    return sum([len(subscription.in_flight) for subscription in session.subscriptions.values()])


def _connections(call: Call) -> Table[ConnectedSession]:
    return Table(
        lambda: list(call.service.connections.values()), lambda s: f"{s.name} {s.client_id or ''}",
        {
            "address": lambda s: s.name, "client_id": lambda s: s.client_id or "", "protocol": lambda s: s.protocol,
            "connected": lambda s: -s.connected_at, "in_flight": _in_flight,
            "consumers": lambda s: len(s.subscriptions),
        },
        {
            "held": lambda s: s.held, "blocked": lambda s: not s.writable,
            "consuming": lambda s: bool(s.subscriptions),
        },
    )  # fmt: skip


def _consumer(call: Call, entry: _Consuming) -> ConnectedConsumer:
    session, subscription = entry
    waits = Waits(call.service.broker, subscription.source)
    return ConnectedConsumer(
        session.client_id, session.protocol, str(subscription.source.destination),
        consumer(subscription, call.service.clock.monotonic(), waits),
    )  # fmt: skip


def _consuming(call: Call) -> Iterator[_Consuming]:
    for session in call.service.connections.values():
        for subscription in session.subscriptions.values():
            yield _Consuming(session, subscription)


def _consumers(call: Call) -> Table[_Consuming]:
    return Table(
        lambda: list(_consuming(call)),
        lambda e: f"{e.subscription.source.destination} {e.session.name} {e.session.client_id or ''}",
        {
            "connection": lambda e: e.session.name, "client_id": lambda e: e.session.client_id or "",
            "destination": lambda e: str(e.subscription.source.destination),
            "in_flight": lambda e: len(e.subscription.in_flight), "prefetch": lambda e: e.subscription.prefetch,
            "slow": lambda e: -(e.subscription.full_since or float("inf")),
        },
        {
            "slow": lambda e: e.subscription.full_since is not None,
            "full": lambda e: e.subscription.credit <= 0, "exclusive": lambda e: e.subscription.exclusive,
        },
    )  # fmt: skip


ENDPOINTS = [
    table_listing(
        "ConnectionList", "/connections", MONITOR, "List the connections and their subscriptions.", "connections",
        Connection, _connections, _connection,
    ),
    table_listing(
        "ConsumerList", "/consumers", MONITOR, "List the consumers of all connections, and why they get nothing.",
        "consumers", ConnectedConsumer, _consumers, _consumer,
    ),
]  # fmt: skip
