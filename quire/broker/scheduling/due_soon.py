"""The scheduled messages that are due soon: the only ones that are in memory."""

from bisect import bisect_right
from collections.abc import Iterator

from quire.errors import StoreCorrupt
from quire.message import MESSAGE_OVERHEAD, Message
from quire.store.base import FIRST_EXPIRATION, Expiration, StoreReader

MOST = 1000
"""How many messages may be in memory."""

MOST_BYTES = 1 << 20
"""How many bytes they may take; a larger message is alone."""

MOST_READS = 200
"""How many reads one look at the store makes; neighbours in the lane are read together."""

MOST_EXPIRATIONS = 4000
"""How many entries of the index of expirations one look goes through; those of all queues are in it."""


def _order(record: Message) -> tuple[int, int]:
    return record.expiration, record.sequence


class DueSoon:
    """The records of the schedule that are due first, in their order.

    The index of expirations, which has the entries of all queues too, is read on from where the last look ended: behind
    other queues' entries the schedule's are found some looks later, and none is read twice. All records are here that
    the index has up to there, but for those that were taken out.

    Attributes:
        has_more: whether the index may have more records up to the horizon of the last look.
    """

    def __init__(self) -> None:
        self.has_more = True
        self._records: list[Message] = []
        self._bytes = 0
        self._lane = 0
        self._read_to = FIRST_EXPIRATION

    def __len__(self) -> int:
        return len(self._records)

    @property
    def earliest(self) -> int | None:
        """When the first of them is due, in milliseconds since the epoch; None if there is none."""
        return self._records[0].expiration if self._records else None

    def read(self, reader: StoreReader, lane: int, horizon: int, passed: set[int]) -> None:
        """When all of them are taken out: have what the store has next, as far as it fits and one look may read.

        Args:
            horizon: until when they are due, in milliseconds since the epoch.

        Raises:
            StoreCorrupt: a record is damaged or missing; ``data`` has its ``sequence``. Nothing has changed here.
        """
        self._lane, self.has_more = lane, True
        found = reader.expired(horizon, MOST_EXPIRATIONS, self._read_to)
        own = [entry for entry in found if entry.lane == lane and entry.sequence not in passed]
        records: list[Message] = []
        room = MOST_BYTES
        for reads, run in enumerate(_runs([entry.sequence for entry in own[:MOST]])):
            if room <= 0 or reads == MOST_READS:
                break
            records += _read_run(reader, lane, run, room)
            room = MOST_BYTES - _charge(records)
            if records[-1].sequence != run[-1]:
                break
        if len(records) < len(own):
            self._read_to = own[len(records) - 1]
        elif len(found) == MOST_EXPIRATIONS:
            self._read_to = found[-1]
        else:
            self._read_to = max(self._read_to, Expiration(horizon + 1, 0, 0))
            self.has_more = False
        self._records, self._bytes = records, _charge(records)

    def add(self, record: Message) -> None:
        """Have one more record, if the index was read so far; otherwise it is found there."""
        if Expiration(record.expiration, self._lane, record.sequence) > self._read_to:
            return
        self._records.insert(bisect_right(self._records, _order(record), key=_order), record)
        self._bytes += record.size + MESSAGE_OVERHEAD
        while len(self._records) > MOST or (self._bytes > MOST_BYTES and len(self._records) > 1):
            last = self._records.pop()
            self._bytes -= last.size + MESSAGE_OVERHEAD
            self._read_to = Expiration(last.expiration, self._lane, last.sequence - 1)
            self.has_more = True

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


def _charge(records: list[Message]) -> int:
    return sum([record.size for record in records]) + len(records) * MESSAGE_OVERHEAD


def _read_run(reader: StoreReader, lane: int, run: list[int], room: int) -> list[Message]:
    """The first records of a run, as many as fit, and one at least."""
    records = reader.page(lane, run[0], room, len(run)).messages
    found = [record.sequence for record in records] or [0]
    for expected, sequence in zip(run, found, strict=False):
        if sequence != expected:
            text = f"record {expected} of lane {lane} is in the index of expirations, but missing"
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
