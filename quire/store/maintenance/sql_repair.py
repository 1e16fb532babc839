"""Repair of a SQL store inside one transaction: the records say what the links must be."""

import zlib
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from sqlalchemy import Connection, bindparam, delete, exists, insert, select

from quire.store.base import LaneState, Link
from quire.store.maintenance.damaged import DamagedFile
from quire.store.maintenance.verify import STEP, groups
from quire.store.sql.tables import deliveries, lanes, links, records


class SqlLaneRepair:
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
        head = tail = count = size = 0
        for group in self._chain():
            head = head or group[0].sequence
            tail = group[-1].sequence
            count += len(group)
            size += sum([link.size for link in group])
            self._write_links(group)
        return LaneState(head, tail, count, size, tail + 1)

    def _chain(self) -> Iterator[list[Link]]:
        """The links as they must be, in runs."""
        run: list[Link] = []
        flat = (record for group in self._records() for record in group)
        end = Link(0, 0, 0, 0, 0)
        before = 0
        for record, following in pairwise(_ended(flat, end)):
            run.append(record._replace(previous=before, next=following.sequence))
            before = record.sequence
            if len(run) == STEP or not following.sequence:
                yield run
                run = []

    def _write_links(self, wanted: list[Link]) -> None:
        query = select(links.c.sequence, links.c.previous, links.c.next, links.c.size, links.c.checksum).where(
            links.c.lane == self._lane, links.c.sequence.between(wanted[0].sequence, wanted[-1].sequence)
        )
        there = {Link(*row) for row in self._connection.execute(query)}
        changed = [link for link in wanted if link not in there]
        if changed:
            self._done["relinked"] += len(changed)
            at = delete(links).where(links.c.lane == self._lane, links.c.sequence == bindparam("at_sequence"))
            self._connection.execute(at, [{"at_sequence": link.sequence} for link in changed])
            self._connection.execute(insert(links), [{"lane": self._lane, **link._asdict()} for link in changed])

    def _write_state(self, found: LaneState) -> None:
        row = self._connection.execute(select(lanes).where(lanes.c.lane == self._lane)).first()
        # Without a state it is unknown which records were delivered: all of them may have been.
        old = LaneState(*row[1:]) if row else LaneState(dispatch_mark=found.tail)
        new = found._replace(next_sequence=max(found.next_sequence, old.next_sequence), dispatch_mark=old.dispatch_mark)
        if not row or new != old:
            self._connection.execute(delete(lanes).where(lanes.c.lane == self._lane))
            self._connection.execute(insert(lanes), {"lane": self._lane, **new._asdict()})
            self._done["lanes"] += 1


def _ended(flat: Iterator[Link], end: Link) -> Iterator[Link]:
    yield from flat
    yield end
