"""Reads an SQLite store, within one transaction."""

import zlib
from collections.abc import Sequence
from typing import Any

from sqlalchemy import BigInteger, Column, Connection, Select, and_, bindparam, select, tuple_

from quire.errors import StoreCorrupt
from quire.message import MESSAGE_OVERHEAD, Message
from quire.store.base import (
    FIRST_EXPIRATION,
    Delivery,
    Expiration,
    LaneState,
    Link,
    Page,
    StoredDestination,
    StoreReader,
)
from quire.store.damage import reader_tells_of_damage
from quire.store.marks import end_of_prefix, mark_key
from quire.store.sql.tables import MOST_VALUES, deliveries, destinations, lanes, links, marks, producers, records


def _of_lane(sequence: Column[int], *columns: Column[Any]) -> Select[Any]:
    table = sequence.table
    query = select(sequence, *columns).where(table.c.lane == bindparam("in_lane"), sequence >= bindparam("start"))
    return query.order_by(sequence).limit(bindparam("most"))


_LANE_STATE = select(*list(lanes.c)[1:]).where(lanes.c.lane == bindparam("in_lane"))
_LINKS = _of_lane(links.c.sequence, links.c.previous, links.c.next, links.c.size, links.c.checksum)
_SIZES = _LINKS.with_only_columns(links.c.sequence, links.c.size)
_MESSAGES = select(
    records.c.sequence,
    records.c.content,
    records.c.expiration,
    records.c.priority,
    records.c.checksum,
    deliveries.c.deliveries,
    deliveries.c.failures,
    deliveries.c.not_before,
).select_from(
    records.outerjoin(
        deliveries, and_(deliveries.c.lane == records.c.lane, deliveries.c.sequence == records.c.sequence)
    )
)
_PAGE = _MESSAGES.where(
    records.c.lane == bindparam("in_lane"), records.c.sequence.between(bindparam("first"), bindparam("last"))
).order_by(records.c.sequence)
_DELIVERIES = _of_lane(*list(deliveries.c)[1:])
_EXPIRATION = (records.c.expiration, records.c.lane, records.c.sequence)
_EXPIRED = (
    select(*_EXPIRATION)
    .where(
        records.c.expiration > 0,
        records.c.expiration.between(bindparam("time"), bindparam("now_ms")),
        tuple_(*_EXPIRATION) > tuple_(*[bindparam(name, type_=BigInteger) for name in ("time", "in_lane", "start")]),
    )
    .order_by(*_EXPIRATION)
    .limit(bindparam("most"))
)


@reader_tells_of_damage
class SqlReader(StoreReader):
    """Reads within a transaction of a connection, which sees one state of the store."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def destinations(self) -> list[StoredDestination]:
        return [
            StoredDestination(number, kind, name, settings, tuple(owned))
            for number, kind, name, settings, owned in self.connection.execute(
                select(destinations).order_by(destinations.c.id)
            )
        ]

    def lane_state(self, lane: int) -> LaneState:
        row = self.connection.execute(_LANE_STATE, {"in_lane": lane}).first()
        return LaneState(*row) if row else LaneState()

    def page(self, lane: int, start: int, byte_budget: int, limit: int) -> Page:
        chosen: list[int] = []
        end = True
        sizes = self.connection.execute(_SIZES, {"in_lane": lane, "start": start, "most": limit + 1})
        for sequence, size in sizes:
            byte_budget -= size + MESSAGE_OVERHEAD
            if chosen and (byte_budget < 0 or len(chosen) >= limit):
                end = False
                break
            chosen.append(sequence)
        sizes.close()
        if not chosen:
            return Page([], end=True)
        rows = self.connection.execute(_PAGE, {"in_lane": lane, "first": chosen[0], "last": chosen[-1]})
        messages = [_read_message(lane, row) for row in rows.all()]
        if len(messages) != len(chosen):
            missing = min(set(chosen) - {message.sequence for message in messages}, default=chosen[0])
            raise StoreCorrupt(f"record {missing} of lane {lane} is linked but missing", lane=lane, sequence=missing)
        return Page(messages, end)

    def load(self, lane: int, sequences: list[int]) -> list[Message]:
        found: dict[int, Message] = {}
        for start in range(0, len(sequences), MOST_VALUES):
            wanted = records.c.sequence.in_(sequences[start : start + MOST_VALUES])
            for row in self.connection.execute(_MESSAGES.where(records.c.lane == lane, wanted)).all():
                found[row[0]] = _read_message(lane, row)
        return [found[sequence] for sequence in sequences if sequence in found]

    def links(self, lane: int, start: int, limit: int) -> list[Link]:
        rows = self.connection.execute(_LINKS, {"in_lane": lane, "start": start, "most": limit})
        return [Link(*row) for row in rows]

    def deliveries(self, lane: int, start: int, limit: int) -> list[tuple[int, Delivery]]:
        rows = self.connection.execute(_DELIVERIES, {"in_lane": lane, "start": start, "most": limit})
        return [(sequence, Delivery(*state)) for sequence, *state in rows]

    def expired(self, now_ms: int, limit: int, after: Expiration = FIRST_EXPIRATION) -> list[Expiration]:
        time, lane, sequence = after
        start = {"time": time, "in_lane": lane, "start": sequence}
        rows = self.connection.execute(_EXPIRED, {"now_ms": now_ms, "most": limit, **start})
        return [Expiration._make(row) for row in rows]

    def producer(self, producer_id: str) -> int:
        query = select(producers.c.sequence).where(producers.c.producer == producer_id)
        return self.connection.scalar(query) or 0

    def producers(self, start: str = "", limit: int = 1000) -> list[tuple[str, int]]:
        id = producers.c.producer
        rows = self.connection.execute(select(producers).where(id >= start).order_by(id).limit(limit))
        return [(row.producer, row.sequence) for row in rows]

    def mark(self, key: str) -> bytes | None:
        mark_key(key)
        return self.connection.scalar(select(marks.c.value).where(marks.c.key == key))

    def marks(self, prefix: str, start: str = "", limit: int = 1000) -> list[tuple[str, bytes]]:
        key = marks.c.key
        query = select(marks).where(key >= max(prefix, start)).order_by(key).limit(limit)
        end = end_of_prefix(prefix)
        rows = self.connection.execute(query if end is None else query.where(key < end))
        return [(row.key, row.value) for row in rows]


# All rows are fetched before any is read: a result left open by an error would keep SQLite's old view of the store.
def _read_message(lane: int, row: Sequence[Any]) -> Message:
    sequence, content, expiration, priority, checksum, given, failures, not_before = row
    if zlib.crc32(content) != checksum:
        raise StoreCorrupt(f"record {sequence} of lane {lane} is damaged", lane=lane, sequence=sequence)
    message = Message(sequence, content, expiration, priority)
    if given is not None:
        message.deliveries, message.failures = given, failures
        message.redelivered, message.not_before = given > 0, not_before
    return message
