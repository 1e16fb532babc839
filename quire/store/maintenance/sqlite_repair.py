"""Repair of an SQLite store inside one transaction: the records say what the links must be."""

import zlib
from collections import Counter
from collections.abc import Iterator

from sqlalchemy import Connection, delete, exists, func, insert, select

from quire.store.base import LaneState, Link
from quire.store.maintenance.damaged import DamagedFile
from quire.store.maintenance.verify import STEP, groups
from quire.store.sql.tables import deliveries, lanes, links, records


class SqliteLaneRepair:
    """Repairs one lane; ``done`` counts by the fields of ``RepairReport``."""

    def __init__(self, connection: Connection, lane: int, damaged: DamagedFile, done: Counter[str]) -> None:
        self._connection = connection
        self._lane = lane
        self._damaged = damaged
        self._done = done

    def run(self) -> None:
        """Remove damaged records, then rebuild the links and the state, and remove delivery states without a record."""
        for record in self._records():
            self._drop_damaged(record)
        self._done["lost"] += self._delete_without_record()
        state = self._relink()
        self._write_state(state)

    def _records(self) -> Iterator[list[Link]]:
        """The records in order, in runs that fit in memory, as links without neighbours."""
        start = 0
        columns = (records.c.sequence, records.c.size, records.c.checksum)
        while True:
            query = select(*columns).where(records.c.lane == self._lane, records.c.sequence >= start)
            rows = self._connection.execute(query.order_by(records.c.sequence).limit(STEP)).all()
            if not rows:
                return
            yield from groups([Link(sequence, 0, 0, size, checksum) for sequence, size, checksum in rows])
            start = rows[-1][0] + 1

    def _drop_damaged(self, group: list[Link]) -> None:
        query = select(records.c.sequence, records.c.content).where(
            records.c.lane == self._lane, records.c.sequence.between(group[0].sequence, group[-1].sequence)
        )
        contents = {sequence: bytes(content) for sequence, content in self._connection.execute(query)}
        for record in group:
            content = contents[record.sequence]
            if len(content) != record.size or zlib.crc32(content) != record.checksum:
                self._damaged.write(self._lane, record.sequence, record.checksum, content)
                self._done["damaged"] += 1
                for table in (records, links):
                    at = (table.c.lane == self._lane, table.c.sequence == record.sequence)
                    self._connection.execute(delete(table).where(*at))

    def _delete_without_record(self) -> int:
        """Remove links and delivery states without a record; returns how many links."""
        counts = []
        for table in (links, deliveries):
            here = exists().where(records.c.lane == table.c.lane, records.c.sequence == table.c.sequence)
            counts.append(self._connection.execute(delete(table).where(table.c.lane == self._lane, ~here)).rowcount)
        self._done["cleared"] += counts[1]
        return counts[0]

    def _relink(self) -> LaneState:
        """Rebuild every link from the records around it; returns the lane's state, as far as they say."""
        lane, sequence, size = records.c.lane, records.c.sequence, records.c.size
        previous = func.coalesce(func.lag(sequence).over(order_by=sequence), 0)
        following = func.coalesce(func.lead(sequence).over(order_by=sequence), 0)
        wanted = select(lane, sequence, previous, following, size, records.c.checksum).where(lane == self._lane)
        wrong = wanted.except_(select(links).where(links.c.lane == self._lane))
        count = self._connection.scalar(select(func.count()).select_from(wrong.subquery())) or 0
        if count:
            self._done["relinked"] += count
            at = links.c.sequence.in_(select(wrong.subquery().c.sequence))
            self._connection.execute(delete(links).where(links.c.lane == self._lane, at))
            self._connection.execute(insert(links).from_select(list(links.c), wrong))
        totals = select(func.min(sequence), func.max(sequence), func.count(), func.sum(size)).where(lane == self._lane)
        head, tail, number, total = self._connection.execute(totals).one()
        return LaneState(head or 0, tail or 0, number, int(total or 0), (tail or 0) + 1)

    def _write_state(self, found: LaneState) -> None:
        row = self._connection.execute(select(lanes).where(lanes.c.lane == self._lane)).first()
        # Without a state it is unknown which records were delivered: all of them may have been.
        old = LaneState(*row[1:]) if row else LaneState(dispatch_mark=found.tail)
        new = found._replace(next_sequence=max(found.next_sequence, old.next_sequence), dispatch_mark=old.dispatch_mark)
        if not row or new != old:
            self._connection.execute(delete(lanes).where(lanes.c.lane == self._lane))
            self._connection.execute(insert(lanes), {"lane": self._lane, **new._asdict()})
            self._done["lanes"] += 1
