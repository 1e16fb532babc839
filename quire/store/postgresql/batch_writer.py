"""Writes a batch: reads what is not known of its lanes, and makes the parts of one statement of the changes."""

import psycopg

from quire.store.base import WriteBatch
from quire.store.damage import tells_of_damage
from quire.store.postgresql.change import change_of
from quire.store.postgresql.committer import COMMIT_TRIES, Committer
from quire.store.postgresql.database import Database, is_lost
from quire.store.postgresql.lane_cache import KnownLane, LaneCache
from quire.store.postgresql.lane_edit import LaneEdit
from quire.store.postgresql.ownership import Ownership
from quire.store.postgresql.writer_reads import WriterReads


class BatchWriter:
    """Writes the batches of one store."""

    def __init__(self, database: Database, ownership: Ownership, committer: Committer) -> None:
        self._database = database
        self._ownership = ownership
        self._committer = committer
        self.cache = LaneCache()

    @tells_of_damage
    def write(self, batch: WriteBatch) -> None:
        """Commit a batch. After an error nothing of it is stored, and what is known stays true."""
        edits, dropped = self._edits(batch)
        try:
            if change := change_of(edits, batch, dropped):
                self._committer.commit(change)
            for edit in edits:
                edit.commit()
                batch.lanes[edit.lane].state = edit.state
            for lane in dropped:
                self.cache.drop(lane)
        finally:
            for edit in edits:
                self.cache.put(edit.lane, edit.known)

    def _edits(self, batch: WriteBatch) -> tuple[list[LaneEdit], list[int]]:
        """What a batch changes, and the lanes that it drops. Nothing was sent yet: a lost connection is replaced."""
        for tries_left in reversed(range(COMMIT_TRIES)):
            try:
                return self._read_edits(batch)
            except psycopg.Error as error:
                if not tries_left or not is_lost(error):
                    raise
                self._ownership.drop()
        raise AssertionError("the last try raises what it met")

    def _read_edits(self, batch: WriteBatch) -> tuple[list[LaneEdit], list[int]]:
        # Having the right to write comes first: from then on no other broker changes what is known or read.
        reader = WriterReads(self._database.prefix, self._ownership.writer)
        dropped = reader.lanes_of([number for number, found in batch.destinations.items() if found is None])
        lanes = [lane for lane, part in batch.lanes.items() if part and lane not in dropped]
        known = self._known(reader, lanes)
        edits = [LaneEdit(lane, known[lane], reader) for lane in lanes]
        for edit in edits:
            edit.apply(batch.lanes[edit.lane])
        return edits, dropped

    def _known(self, reader: WriterReads, wanted: list[int]) -> dict[int, KnownLane]:
        found = {lane: known for lane in wanted if (known := self.cache.get(lane)) is not None}
        missing = [lane for lane in wanted if lane not in found]
        return {**found, **reader.lanes(missing)} if missing else found
