"""The API's connections and consumers, scheduled messages, and prepared XA transactions."""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from quire.broker.core.subscription import Subscription
from quire.broker.schedule import ScheduledMessage
from quire.broker.transactions.decisions import Xid
from quire.errors import InvalidArgument
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
from quire.management.tables import Reader, Table
from quire.resources import ConnectedConsumer, Connection, Prepared, Scheduled, Status
from quire.server.connection import ConnectedDoor
from quire.units import parse_number

MOST_SHOWN = 100  # how many destinations of a connection are named: a wildcard may match thousands


class _Consuming(NamedTuple):
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
    waits = Waits(call.broker, subscription.source)
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
STEP = 500  # how many scheduled messages are counted in one step


class ScheduleQuery(Fields, frozen=True):
    """Which part of the schedule to show."""

    limit: PageLimit = 100
    after: str = "0"


class CancelQuery(ActionQuery, frozen=True):
    """Which messages to cancel: those that are due between two times, in milliseconds since the epoch."""

    earliest: Number = 0
    latest: Number = ALWAYS


class SchedulePage(Status, frozen=True):
    """Scheduled messages in the order of scheduling; a repeated one in the order of its last send."""

    messages: list[Scheduled]
    next: str | None
    total: int


class Cancelled(msgspec.Struct, frozen=True):
    """The scheduled message that was cancelled, with all its repeats."""

    cancelled: str


def _page(call: Call) -> SchedulePage:
    first = parse_number(call.query.after)
    if first is None:
        text = f"after is {call.query.after[:60]!r}: give the next of an earlier page"
        raise InvalidArgument(text, argument="after")
    page = call.broker.schedule.browse(first, call.query.limit)
    following = None if page.next is None else str(page.next)
    return SchedulePage([_described(each) for each in page.messages], following, call.broker.schedule.depth)


def _described(message: ScheduledMessage) -> Scheduled:
    timing = message.timing
    return Scheduled(
        id=message.id, message_id=message.message_id, destination=message.destination, due=message.due,
        delay=timing.delay, period=timing.period, repeat=timing.repeat, left=message.left, cron=timing.cron,
        priority=message.priority, persistent=message.persistent, time_to_live=message.time_to_live,
        size=message.size,
    )  # fmt: skip


async def _cancel(call: Call) -> Cancelled:
    id = call.path["id"]
    call.broker.schedule.cancel(id)
    return await call.changed("schedule.cancelled", "the scheduled message {id} was cancelled", Cancelled(id))


async def _cancel_between(call: Call) -> Removed:
    earliest, latest = call.query.earliest, call.query.latest
    text, steps = "scheduled messages were cancelled", call.broker.schedule.cancel_between(earliest, latest)
    return await call.removed("schedule.cancelled", text, steps, earliest=earliest, latest=latest)


def _count_between(call: Call) -> Iterator[int]:
    after: int | None = 0
    while after is not None:
        page = call.broker.schedule.browse(after, STEP)
        yield len([each for each in page.messages if call.query.earliest <= each.due <= call.query.latest])
        after = page.next


ENDPOINTS += [
    Endpoint(
        "GET", "/schedule", MONITOR, "List the scheduled messages.", _page, SchedulePage, ScheduleQuery,
    ),
    Endpoint(
        "DELETE", "/schedule", OPERATE, "Cancel scheduled messages: all, or by time.", _cancel_between, Removed,
        CancelQuery, dry_run=lambda call: counted(call.service.clock, _count_between(call)),
    ),
    Endpoint(
        "DELETE", "/schedule/{id}", OPERATE, "Cancel a scheduled message, with all its repeats.", _cancel, Cancelled,
    ),
]  # fmt: skip


class Resolved(msgspec.Struct, frozen=True):
    """The outcome of a prepared transaction: ``commit``, ``rollback`` or ``forget``."""

    xid: str
    outcome: str


def _prepared(call: Call) -> Table[Prepared]:
    return Table(
        call.broker.xa.prepared,
        lambda entry: entry.xid,
        Reader(Prepared).columns,
        {"undecided": lambda entry: not entry.outcome},
    )  # fmt: skip


async def _resolve(call: Call, outcome: str) -> Resolved:
    xid = Xid.parse(call.path["xid"])
    if outcome == "commit":
        call.broker.xa.commit(xid)
    elif outcome == "rollback":
        call.broker.xa.rollback(xid)
    else:
        call.broker.xa.branch(xid).forget()
    text = "the prepared transaction {xid} was resolved: {outcome}"
    return await call.changed("xa.resolved", text, Resolved(str(xid), outcome), xid=str(xid), outcome=outcome)


ENDPOINTS += [
    table_listing(
        "PreparedList", "/xa", MONITOR, "List the prepared transactions, the oldest first.", "transactions", Prepared,
        _prepared, lambda _call, entry: entry,
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
