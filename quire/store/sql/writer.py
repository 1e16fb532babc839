"""Writes a batch: a few statements for all rows. Appends come first, so that removals find the links of everything."""

import zlib
from collections.abc import Iterator, Mapping

from sqlalchemy import Connection, Delete, Dialect, bindparam, delete, exists, insert, select, update
from sqlalchemy.sql.dml import UpdateBase
from sqlalchemy.sql.schema import Table

from quire.message import Message
from quire.store.base import LaneBatch, LaneState, StoredDestination, WriteBatch
from quire.store.marks import mark_key
from quire.store.sql.tables import MOST_VALUES, deliveries, destinations, lanes, links, marks, producers, records

_Row = tuple[int | bytes, ...]
_Removed = tuple[int, int, int, int]
"""What is needed of a removed link: sequence, previous, next, size."""

_LINK_AT = (links.c.lane == bindparam("at_lane"), links.c.sequence == bindparam("at_sequence"))
_SET_NEXT = update(links).values(next=bindparam("other")).where(*_LINK_AT)
_SET_PREVIOUS = update(links).values(previous=bindparam("other")).where(*_LINK_AT)
_DELETE_LINKS = (
    delete(links)
    .where(links.c.lane == bindparam("in_lane"))
    .returning(links.c.sequence, links.c.previous, links.c.next, links.c.size)
)
_DELETE_LINKS_BETWEEN = _DELETE_LINKS.where(links.c.sequence.between(bindparam("first"), bindparam("last")))
_DELETE_LINKS_LISTED = _DELETE_LINKS.where(links.c.sequence.in_(bindparam("listed", expanding=True)))
_DELETE_DELIVERY = delete(deliveries).where(
    deliveries.c.lane == bindparam("in_lane"), deliveries.c.sequence == bindparam("at_sequence")
)
_NEW_DELIVERY = [bindparam(f"new_{column.name}", type_=column.type) for column in deliveries.c]
_INSERT_DELIVERY = insert(deliveries).from_select(
    list(deliveries.c),
    select(*_NEW_DELIVERY).where(
        exists().where(links.c.lane == _NEW_DELIVERY[0], links.c.sequence == _NEW_DELIVERY[1])
    ),
)
_UPDATE_LANE = update(lanes).where(lanes.c.lane == bindparam("in_lane"))


class BatchWriter:
    """Writes batches; hot statements are compiled once and given to the driver with tuples, which halves their cost."""

    def __init__(self, dialect: Dialect) -> None:
        def compiled(statement: UpdateBase) -> str:
            return str(statement.compile(dialect=dialect))

        self._insert_records = compiled(insert(records))
        self._insert_links = compiled(insert(links))
        self._set_next = compiled(_SET_NEXT)
        self._set_previous = compiled(_SET_PREVIOUS)
        self._delete_records = compiled(_delete_between(records))
        self._delete_deliveries = compiled(_delete_between(deliveries))

    def write(self, connection: Connection, batch: WriteBatch) -> None:
        """Write a batch in a transaction, which the caller commits, or rolls back if this fails."""
        parts = {lane: part for lane, part in batch.lanes.items() if part}
        stored = _read_states(connection, list(parts))
        states = {lane: stored.get(lane, LaneState()) for lane in parts}
        self._append(connection, parts, states)
        _set_deliveries(connection, parts)
        self._remove(connection, parts, states)
        for lane, part in parts.items():
            if part.dispatch_mark is not None:
                states[lane] = states[lane]._replace(dispatch_mark=part.dispatch_mark)
            part.state = states[lane]
        _write_states(connection, stored, states)
        _write_destinations(connection, batch.destinations)
        _replace(connection, producers, batch.producers)
        for key in batch.marks:
            mark_key(key)
        _replace(connection, marks, batch.marks)

    def _append(self, connection: Connection, parts: dict[int, LaneBatch], states: dict[int, LaneState]) -> None:
        record_rows: list[_Row] = []
        link_rows: list[_Row] = []
        joins: list[_Row] = []
        for lane, part in parts.items():
            if not part.appends:
                continue
            state, first, last = states[lane], part.appends[0].sequence, part.appends[-1].sequence
            if state.tail:
                joins.append((first, lane, state.tail))
            _add_rows(lane, part.appends, state.tail, record_rows, link_rows)
            states[lane] = state._replace(
                head=state.head or first, tail=last, count=state.count + len(part.appends),
                bytes=state.bytes + sum([message.size for message in part.appends]), next_sequence=last + 1,
            )  # fmt: skip
        _execute_many(connection, self._insert_records, record_rows)
        _execute_many(connection, self._insert_links, link_rows)
        _execute_many(connection, self._set_next, joins)

    def _remove(self, connection: Connection, parts: dict[int, LaneBatch], states: dict[int, LaneState]) -> None:
        ranges: list[_Row] = []
        next_joins: list[_Row] = []
        previous_joins: list[_Row] = []
        for lane, part in parts.items():
            if not part.removals:
                continue
            removed = _delete_links(connection, lane, part.removals)
            if not removed:
                continue
            head, tail = states[lane].head, states[lane].tail
            for (first, previous, _, _), (last, _, following, _) in _runs(removed):
                ranges.append((lane, first, last))
                if previous:
                    next_joins.append((following, lane, previous))
                else:
                    head = following
                if following:
                    previous_joins.append((previous, lane, following))
                else:
                    tail = previous
            states[lane] = states[lane]._replace(
                head=head, tail=tail, count=states[lane].count - len(removed),
                bytes=states[lane].bytes - sum([size for _, _, _, size in removed]),
            )  # fmt: skip
        _execute_many(connection, self._delete_records, ranges)
        _execute_many(connection, self._delete_deliveries, ranges)
        _execute_many(connection, self._set_next, next_joins)
        _execute_many(connection, self._set_previous, previous_joins)


def _delete_between(table: Table) -> Delete:
    between = table.c.sequence.between(bindparam("first"), bindparam("last"))
    return delete(table).where(table.c.lane == bindparam("in_lane"), between)


def _execute_many(connection: Connection, text: str, rows: list[_Row]) -> None:
    if rows:
        connection.exec_driver_sql(text, rows)


def _read_states(connection: Connection, numbers: list[int]) -> dict[int, LaneState]:
    states = {}
    for start in range(0, len(numbers), MOST_VALUES):
        query = select(lanes).where(lanes.c.lane.in_(numbers[start : start + MOST_VALUES]))
        states.update({lane: LaneState(*state) for lane, *state in connection.execute(query)})
    return states


def _write_states(connection: Connection, stored: dict[int, LaneState], states: dict[int, LaneState]) -> None:
    updates = [{"in_lane": lane, **states[lane]._asdict()} for lane in states if lane in stored]
    inserts = [{"lane": lane, **states[lane]._asdict()} for lane in states if lane not in stored]
    if updates:
        connection.execute(_UPDATE_LANE, updates)
    if inserts:
        connection.execute(insert(lanes), inserts)


def _add_rows(lane: int, messages: list[Message], tail: int, record_rows: list[_Row], link_rows: list[_Row]) -> None:
    """Add the rows of messages that are to follow ``tail``."""
    sequences = [message.sequence for message in messages]
    for message, previous, following in zip(messages, [tail, *sequences], [*sequences[1:], 0], strict=False):
        sequence, size, checksum = message.sequence, message.size, zlib.crc32(message.content)
        record_rows.append((lane, sequence, size, message.expiration, message.priority, checksum, message.content))
        link_rows.append((lane, sequence, previous, following, size, checksum))


def _delete_links(connection: Connection, lane: int, sequences: list[int]) -> list[_Removed]:
    """Remove the links of those sequences that are there, and return them in the order of the lane."""
    wanted = set(sequences)
    first, last = min(wanted), max(wanted)
    if last - first == len(wanted) - 1:
        # The usual case of a queue in order, and a fifth of the cost of a list.
        dense = connection.execute(_DELETE_LINKS_BETWEEN, {"in_lane": lane, "first": first, "last": last})
        return sorted(dense.all())
    removed: list[_Removed] = []
    listed = sorted(wanted)
    for start in range(0, len(listed), MOST_VALUES):
        part = {"in_lane": lane, "listed": listed[start : start + MOST_VALUES]}
        removed += connection.execute(_DELETE_LINKS_LISTED, part).all()
    return sorted(removed)


def _runs(removed: list[_Removed]) -> Iterator[tuple[_Removed, _Removed]]:
    """The first and the last link of each run of neighbours."""
    first = last = removed[0]
    for link in removed[1:]:
        if link[1] != last[0]:
            yield first, last
            first = link
        last = link
    yield first, last


def _set_deliveries(connection: Connection, parts: dict[int, LaneBatch]) -> None:
    """Replace delivery states. One of a record that is not there is passed over."""
    changes = [(lane, sequence, state) for lane, part in parts.items() for sequence, state in part.deliveries.items()]
    if not changes:
        return
    connection.execute(_DELETE_DELIVERY, [{"in_lane": lane, "at_sequence": sequence} for lane, sequence, _ in changes])
    rows = [
        {parameter.key: value for parameter, value in zip(_NEW_DELIVERY, (lane, sequence, *state), strict=True)}
        for lane, sequence, state in changes
        if state is not None
    ]
    if rows:
        connection.execute(_INSERT_DELIVERY, rows)


def _write_destinations(connection: Connection, changes: dict[int, StoredDestination | None]) -> None:
    for number, destination in changes.items():
        if destination is None:
            owned = connection.scalar(select(destinations.c.lanes).where(destinations.c.id == number))
            for table in (records, links, deliveries, lanes):
                connection.execute(delete(table).where(table.c.lane.in_(owned or [])))
        connection.execute(delete(destinations).where(destinations.c.id == number))
        if destination is not None:
            connection.execute(insert(destinations), destination._asdict())


def _replace(connection: Connection, table: Table, changes: Mapping[str, int | bytes | None]) -> None:
    """Replace rows of a table with two columns, a key and a value; None removes one."""
    if not changes:
        return
    key, value = table.c
    connection.execute(delete(table).where(key == bindparam("at_key")), [{"at_key": at} for at in changes])
    if rows := [{key.name: at, value.name: found} for at, found in changes.items() if found is not None]:
        connection.execute(insert(table), rows)
