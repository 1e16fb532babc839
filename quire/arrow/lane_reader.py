"""Reading ranges of lanes in bulk."""

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from quire.arrow.conditions import Condition
from quire.arrow.records import Records
from quire.errors import DataLost, StreamReplaced
from quire.store.base import Content, Store, StoreReader
from quire.store.positions import extent

PAGE_BYTES = 4 << 20
"""How many bytes of records one read takes, if one record is not larger. About five times as much is in memory."""

PAGE_RECORDS = 8192
"""How many records one read takes at the most."""


class LaneRange(NamedTuple):
    """A part of a lane, from one sequence to before another one; ``partition`` is its index in the destination."""

    destination: str
    partition: int
    lane: int
    first: int
    until: int


def read(
    store: Store, part: LaneRange, columns: list[str], conditions: tuple[Condition, ...] = (), *, whole: bool = False
) -> Iterator[pa.RecordBatch]:
    """Read a part of a lane in batches, each from its own snapshot; with ``whole`` removed records are an error."""
    start = part.first
    while start < part.until:
        with store.snapshot() as reader:
            if whole:
                _check_whole(reader, part, start)
            found = _page(reader, part.lane, start, part.until)
        if not found:
            return
        start = found[-1][0] + 1
        batch = _batch(found, part, columns, conditions)
        del found  # the batch may be in use for long
        if batch.num_rows:
            yield batch
        del batch


def _batch(
    found: list[Content], part: LaneRange, columns: list[str], conditions: tuple[Condition, ...]
) -> pa.RecordBatch:
    return Records(found, part.destination, part.partition).those_that(conditions).batch(columns)


def _page(reader: StoreReader, lane: int, start: int, until: int) -> list[Content]:
    """The next records before the end of a range; the limit keeps the store from reading one behind it."""
    state = reader.lane_state(lane)
    start = max(start, state.head)
    limit = max(0, min(PAGE_RECORDS, until - start))
    has_gaps = state.count <= state.tail - state.head
    if has_gaps and until <= state.tail:
        limit = len([link for link in reader.links(lane, start, limit) if link.sequence < until])
    return reader.contents(lane, start, PAGE_BYTES, limit) if limit else []


def _check_whole(reader: StoreReader, part: LaneRange, start: int) -> None:
    found = extent(reader, part.lane)
    place = f"partition {part.partition} of {part.destination}"
    if found.end < part.until:
        raise StreamReplaced(
            f"{place} ends at {found.end}, and the read ends at {part.until}: it was deleted, or is an older copy",
            destination=part.destination, partition=part.partition, end=found.end,
        )  # fmt: skip
    if start < found.earliest:
        lost = f"the messages at offsets {start} to {min(found.earliest, part.until) - 1} of {place}"
        raise DataLost(
            f"{lost} were removed by retention", destination=part.destination, partition=part.partition,
            earliest=found.earliest,
        )  # fmt: skip
