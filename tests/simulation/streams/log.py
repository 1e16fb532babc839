"""What was sent to the stream, and what is in it: each record once, from the store itself."""

from typing import NamedTuple

from quire.broker.streams.stream import Stream
from quire.store.base import Store
from quire.store.positions import timestamp_of
from tests.simulation.checks import ALL
from tests.simulation.rules import Broken, Rule
from tests.simulation.sent import Sent


class Draft(NamedTuple):
    """What a client sends.

    Attributes:
        size: how long its body is, besides its name.
        partition: which partition it names; -1 for none.
        key: its partition key; empty for none.
        color: a header that groups select by.
    """

    size: int = 0
    partition: int = -1
    key: str = ""
    color: str = ""

    def headers(self) -> dict[str, str]:
        """The headers of its SEND frame."""
        headers = {"partition-key": self.key, "color": self.color}
        if self.partition >= 0:
            headers["partition"] = str(self.partition)
        return {name: value for name, value in headers.items() if value}


class StreamSent(Sent):
    """One message of the world of streams.

    Attributes:
        record: where it is, or was, in the stream; None while it was not seen there.
    """

    __slots__ = ("draft", "partitions", "record")

    def __init__(self, name: str, draft: Draft, partitions: int) -> None:
        super().__init__(name)
        self.draft = draft
        self.partitions = partitions
        self.record: Record | None = None


class Record:
    """One record of a partition.

    Attributes:
        sent: what was sent.
        partition: its partition.
        offset: its place there.
        time_ms: when the broker took it.
        size: its size in the store.
        is_leaving: whether the broker has begun to remove it; nobody is given it any more.
        is_gone: whether retention has let it go.
    """

    __slots__ = ("is_gone", "is_leaving", "offset", "partition", "sent", "size", "time_ms")

    def __init__(self, sent: StreamSent, partition: int, offset: int, time_ms: int, size: int) -> None:
        self.sent = sent
        self.partition = partition
        self.offset = offset
        self.time_ms = time_ms
        self.size = size
        self.is_leaving = self.is_gone = False

    def __repr__(self) -> str:
        return f"{self.sent} ({self.offset}.{self.partition})"

    @property
    def place(self) -> tuple[int, int]:
        """Partition and offset."""
        return self.partition, self.offset


class StreamLog:
    """All messages, and all records."""

    def __init__(self) -> None:
        self.sent: dict[str, StreamSent] = {}
        self.records: list[dict[int, Record]] = []
        self.end: list[int] = []
        self._keys: dict[tuple[str, int], int] = {}

    def look(self, store: Store, stream: Stream) -> list[Record]:
        """See what the store has now."""
        lanes = stream.stored.lanes
        if len(self.records) < len(lanes):
            self.records += [{} for _ in lanes[len(self.records) :]]
            self.end += [0 for _ in lanes[len(self.end) :]]
        went: list[Record] = []
        for partition, lane in enumerate(lanes):
            records = self.records[partition]
            for message in store.page(lane, self.end[partition] + 1, ALL, ALL).messages:
                self._came(partition, message.sequence, message.body, timestamp_of(message), message.size)
            if store.lane_state(lane).count != len(records):
                there = {link.sequence for link in store.links(lane, 0, ALL)}
                went += [record for offset, record in records.items() if offset not in there]
                self.records[partition] = {offset: r for offset, r in records.items() if offset in there}
        for record in went:
            record.is_gone = True
        for known, records in zip(stream.partitions, self.records, strict=False):
            for record in records.values():
                record.is_leaving = record.offset in known.gone
        return went

    def _came(self, partition: int, offset: int, body: bytes, time_ms: int, size: int) -> None:
        sent = self.sent[body[: body.index(b";")].decode()]
        record = Record(sent, partition, offset, time_ms, size)
        if sent.record is not None:
            raise Broken(Rule.ROUTE, f"{record} is in the stream as {sent.record} too")
        if sent.draft.partition not in (-1, partition):
            raise Broken(Rule.ROUTE, f"{record} was sent to partition {sent.draft.partition}")
        if sent.draft.partition < 0 and sent.draft.key and sent.partitions and sent.outcome is None:
            known = self._keys.setdefault((sent.draft.key, sent.partitions), partition)
            if known != partition:
                raise Broken(Rule.ROUTE, f"{record} is not in partition {known}, as others of its key are")
        if sent.outcome is not None:
            sent.outcome.decide(True, f"{record} is in the stream")
        sent.record = self.records[partition][offset] = record
        self.end[partition] = offset

    def at(self, partition: int, offset: int) -> Record | None:
        """The record at a place, if there is one."""
        return self.records[partition].get(offset) if partition < len(self.records) else None

    def crash(self) -> None:
        """The broker has crashed: what is not in the stream now was not taken."""
        for sent in self.sent.values():
            if sent.outcome is not None and sent.record is None:
                sent.outcome.decide(False, f"{sent} is not in the stream")

    def check_nothing_lost(self) -> None:
        """Was everything taken that was confirmed?"""
        for sent in self.sent.values():
            if sent.confirmed and sent.record is None:
                raise Broken(Rule.LOST, f"{sent} was confirmed and never was in the stream")
