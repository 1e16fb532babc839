"""The API's connections and consumers, scheduled messages, and prepared XA transactions."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from quire.broker.core.subscription import Subscription
from quire.http.endpoint import (
    MONITOR,
    OPERATE,
    ActionQuery,
    Call,
    Endpoint,
    Fields,
    Number,
    PageLimit,
    Removed,
    table_listing,
)
from quire.http.operations import counted
from quire.management.blocked import Waits, consumer
from quire.management.schedule import SchedulePage
from quire.management.tables import Table
from quire.resources import ConnectedConsumer, Connection, Prepared
from quire.server.connection import ConnectedDoor

MOST_SHOWN = 100  # how many destinations of a connection are named: a wildcard may match thousands


class _Consuming(NamedTuple):
    """A subscription, and whose it is."""

    session: ConnectedDoor
    subscription: Subscription


def _connection(call: Call, session: ConnectedDoor) -> Connection:
    subscriptions = session.subscriptions.values()
    now = call.service.clock.now_ms()
    return Connection(
        address=session.name, client_id=session.client_id, protocol=session.protocol,
        connected_seconds=max(now - session.connected_at, 0) / 1000, consumers=len(subscriptions),
        destinations=sorted({str(each.source.destination) for each in subscriptions})[:MOST_SHOWN],
        in_flight=_in_flight(session), held=session.held, writable=session.writable,
    )  # fmt: skip


def _in_flight(session: ConnectedDoor) -> int:
    return sum([len(subscription.in_flight) for subscription in session.subscriptions.values()])


def _connections(call: Call) -> Table[ConnectedDoor]:
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


ALWAYS = 1 << 62


class ScheduleQuery(Fields, frozen=True):
    """Which part of the schedule to show."""

    limit: PageLimit = 100
    after: str = "0"


class CancelQuery(ActionQuery, frozen=True):
    """Which messages to cancel: those that are due between two times, in milliseconds since the epoch."""

    earliest: Number = 0
    latest: Number = ALWAYS


class Cancelled(msgspec.Struct, frozen=True):
    """The scheduled message that was cancelled, with all its repeats."""

    cancelled: str


async def _cancel(call: Call) -> Cancelled:
    id = call.path["id"]
    call.admin.schedule.cancel(id)
    return await call.changed("schedule.cancelled", "the scheduled message {id} was cancelled", Cancelled(id))


async def _cancel_between(call: Call) -> Removed:
    earliest, latest = call.query.earliest, call.query.latest
    text, steps = "scheduled messages were cancelled", call.admin.schedule.cancel_between(earliest, latest)
    return await call.removed("schedule.cancelled", text, steps, earliest=earliest, latest=latest)


def _count(call: Call) -> Any:
    steps = call.admin.schedule.count_between(call.query.earliest, call.query.latest)
    return counted(call.service.clock, steps)


ENDPOINTS += [
    Endpoint(
        "GET", "/schedule", MONITOR, "List the scheduled messages.",
        lambda call: call.admin.schedule.page(call.query.after, call.query.limit), SchedulePage, ScheduleQuery,
    ),
    Endpoint(
        "DELETE", "/schedule", OPERATE, "Cancel scheduled messages: all, or by time.", _cancel_between, Removed,
        CancelQuery, dry_run=_count,
    ),
    Endpoint(
        "DELETE", "/schedule/{id}", OPERATE, "Cancel a scheduled message, with all its repeats.", _cancel, Cancelled,
    ),
]  # fmt: skip


class Resolved(msgspec.Struct, frozen=True):
    """The outcome of a prepared transaction: ``commit``, ``rollback`` or ``forget``."""

    xid: str
    outcome: str


async def _resolve(call: Call, outcome: str) -> Resolved:
    xid = call.admin.xa.resolve(call.path["xid"], outcome)
    text = "the prepared transaction {xid} was resolved: {outcome}"
    return await call.changed("xa.resolved", text, Resolved(xid, outcome), xid=xid, outcome=outcome)


ENDPOINTS += [
    table_listing(
        "PreparedList", "/xa", MONITOR, "List the prepared transactions, the oldest first.", "transactions", Prepared,
        lambda call: call.admin.xa.prepared(), lambda _call, entry: entry,
    ),
    Endpoint(
        "POST", "/xa/{xid}/commit", OPERATE, "Commit a prepared transaction in place of its transaction manager.",
        lambda call: _resolve(call, "commit"), Resolved,
    ),
    Endpoint(
        "POST", "/xa/{xid}/rollback", OPERATE, "Roll back a prepared transaction in place of its transaction manager.",
        lambda call: _resolve(call, "rollback"), Resolved,
    ),
    Endpoint(
        "DELETE", "/xa/{xid}", OPERATE, "Forget the heuristic outcome of a transaction.",
        lambda call: _resolve(call, "forget"), Resolved,
    ),
]  # fmt: skip
