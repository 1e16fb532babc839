"""The scheduled messages that are due soon: the only ones that are in memory."""

from bisect import bisect_right
from collections.abc import Iterator

from quire.errors import StoreCorrupt
from quire.message import MESSAGE_OVERHEAD, Message
from quire.store.base import StoreReader

MOST = 1000
"""How many messages may be in memory."""

MOST_BYTES = 1 << 20
"""How many bytes they may take; a larger message is alone."""

MOST_READS = 200
"""How many reads one look at the store makes; neighbours in the lane are read together."""

MOST_EXPIRATIONS = 64_000
"""How many entries of the index of expirations one look goes through; those of all queues are in it."""


def _order(record: Message) -> tuple[int, int]:
    return record.expiration, record.sequence


class DueSoon:
    """Records of the schedule in the order they are due. The earliest stay when it becomes too many."""

    def __init__(self) -> None:
        self._records: list[Message] = []
        self._bytes = 0
        self._end: tuple[int, int] | None = None

    def __len__(self) -> int:
        return len(self._records)

    @property
    def is_spent(self) -> bool:
        """Whether all records are taken out, and there are more in the store."""
        return not self._records and self._end is not None

    @property
    def earliest(self) -> int | None:
        """When the first of them is due, in milliseconds since the epoch; None if there is none."""
        return self._records[0].expiration if self._records else None

    def read(self, reader: StoreReader, lane: int, horizon: int, passed: set[int]) -> None:
        """Have what the store has, as far as it fits.

        Args:
            reader: a snapshot of the store.
            lane: the schedule's lane.
            horizon: until when they are due, in milliseconds since the epoch.
            passed: the sequences of records to leave out.

        Raises:
            StoreCorrupt: a record is damaged or missing; ``data`` has its ``sequence``. Nothing has changed here.
        """
        sequences, complete = _find(reader, lane, horizon, passed)
        records: list[Message] = []
        room = MOST_BYTES
        for reads, run in enumerate(_runs(sequences)):
            if room <= 0 or reads == MOST_READS:
                break
            records += _read_run(reader, lane, run, room)
            room = MOST_BYTES - sum([record.size + MESSAGE_OVERHEAD for record in records])
            if records[-1].sequence != run[-1]:
                break
        self._replace(records, complete=complete and len(records) == len(sequences))

    def _replace(self, records: list[Message], *, complete: bool) -> None:
        self._records = []
        self._bytes = 0
        self._end = None
        for record in records:
            self.add(record)
        if not complete and records and self._end is None:
            self._end = _order(records[-1])

    def add(self, record: Message) -> None:
        """Have one more record, unless it is due after others that found no place."""
        if self._end is not None and _order(record) > self._end:
            return
        self._records.insert(bisect_right(self._records, _order(record), key=_order), record)
        self._bytes += record.size + MESSAGE_OVERHEAD
        while len(self._records) > MOST or (self._bytes > MOST_BYTES and len(self._records) > 1):
            last = self._records.pop()
            self._bytes -= last.size + MESSAGE_OVERHEAD
            self._end = _order(last)

    def pop(self, now_ms: int) -> Message | None:
        """Take the first record out, if it is due."""
        if not self._records or self._records[0].expiration > now_ms:
            return None
        record = self._records.pop(0)
        self._bytes -= record.size + MESSAGE_OVERHEAD
        return record

    def discard(self, sequence: int) -> None:
        """Take a record out that is removed; it need not be here."""
        for index, record in enumerate(self._records):
            if record.sequence == sequence:
                self._bytes -= record.size + MESSAGE_OVERHEAD
                del self._records[index]
                return


def _find(reader: StoreReader, lane: int, horizon: int, passed: set[int]) -> tuple[list[int], bool]:
    """The sequences of a lane's records in the order they are due, and whether these are all."""
    limit = MOST + len(passed)
    while True:
        found = reader.expired(horizon, limit)
        own = [sequence for owner, sequence in found if owner == lane and sequence not in passed]
        if len(own) >= MOST or len(found) < limit or limit >= MOST_EXPIRATIONS:
            return own[:MOST], len(own) < MOST
        limit = min(limit * 8, MOST_EXPIRATIONS)


def _read_run(reader: StoreReader, lane: int, run: list[int], room: int) -> list[Message]:
    """The first records of a run, as many as fit, and one at least."""
    records = reader.page(lane, run[0], room, len(run)).messages
    found = [record.sequence for record in records] or [0]
    for expected, sequence in zip(run, found, strict=False):
        if sequence != expected:
            text = f"record {expected} of lane {lane} is in the index of expirations, but it is not there"
            raise StoreCorrupt(text, lane=lane, sequence=expected)
    return records


def _runs(sequences: list[int]) -> Iterator[list[int]]:
    """Split sequences into runs of neighbours."""
    run: list[int] = []
    for sequence in sequences:
        if run and sequence != run[-1] + 1:
            yield run
            run = []
        run.append(sequence)
    if run:
        yield run
