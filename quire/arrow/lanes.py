"""Ranges of lanes as Arrow record batches: the columns, the conditions on them, and what the bulk server is asked.

The header lines of many messages are read at once by Arrow's kernels: no Python object is made for a message. A
condition says what need not be read, or need not be handed on. An Arrow stream without the ``Trailer`` after it was cut
off.
"""

import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from typing import Any, NamedTuple, Self

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from quire.arrow.failure import Failure
from quire.destination import DestinationKind
from quire.errors import DataLost, InvalidArgument, StreamReplaced
from quire.message import Message, escape, unescape
from quire.store.base import Content, LaneState, Store, StoredDestination, StoreReader
from quire.store.positions import extent

TIME = pa.timestamp("us", tz="UTC")

COLUMNS: dict[str, pa.DataType] = {
    "destination": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "message_id": pa.string(),
    "timestamp": TIME,
    "priority": pa.int32(),
    "persistent": pa.bool_(),
    "expiration": TIME,
    "deliveries": pa.int32(),
    "key": pa.string(),
    "value": pa.binary(),
    "headers": pa.map_(pa.string(), pa.string()),
}
"""The columns by name, in their order.

``partition`` is the index of the lane among those of its destination: always 0 but for streams, and for queues
and topics that are prioritized. ``offset`` is the sequence. ``expiration`` is null for never. ``key`` is the header
``key``, or else ``partition-key``.
``headers`` has all header lines, the first two included.
"""


def schema_of(names: Iterable[str]) -> pa.Schema:
    return pa.schema([(name, COLUMNS[name]) for name in names])


class Comparison(StrEnum):
    AMONG = "in"
    BELOW = "<"
    UP_TO = "<="
    ABOVE = ">"
    FROM = ">="


_OPERATORS: dict[Comparison, tuple[Callable[[Any, Any], bool], Callable[[pa.Array, pa.Scalar], pa.Array]]] = {
    Comparison.BELOW: (operator.lt, pc.less),
    Comparison.UP_TO: (operator.le, pc.less_equal),
    Comparison.ABOVE: (operator.gt, pc.greater),
    Comparison.FROM: (operator.ge, pc.greater_equal),
}
"""How a value is compared, and a column."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on one column that is never null: any number of values with ``AMONG``, otherwise one."""

    column: str
    comparison: Comparison
    values: tuple[Any, ...]

    def holds(self, value: Any) -> bool:
        if self.comparison is Comparison.AMONG:
            return value in self.values
        return _OPERATORS[self.comparison][0](value, self.values[0])

    def mask(self, column: pa.Array) -> pa.Array:
        kind = COLUMNS[self.column]
        if self.comparison is Comparison.AMONG:
            return pc.is_in(column, value_set=pa.array(self.values, kind))
        return _OPERATORS[self.comparison][1](column, pa.scalar(self.values[0], kind))


_TO_THE_END = 2**31 - 1  # behind the end of every text: without an end, Arrow's slices of binary columns fail


class Heads:
    def __init__(self, heads: pa.Array) -> None:
        self._heads = heads
        self._first_lines: pa.Array | None = None

    def message_ids(self) -> pa.Array:
        return _texts(self._value(0, len("message-id:")))

    def timestamps(self) -> pa.Array:
        return times(self._value(1, len("timestamp:")).cast(pa.string()).cast(pa.int64()))

    def header(self, name: str) -> pa.Array:
        """One header of each message, or null, but for the first two. Of a repeated one the first counts."""
        behind = _second(pc.split_pattern(self._heads, b"\n" + escape(name.encode()) + b":", max_splits=1))
        if behind.null_count == len(behind):
            return pa.nulls(len(behind), pa.string())
        return _texts(pc.list_element(pc.split_pattern(behind, b"\n", max_splits=1), 0))

    def maps(self) -> pa.Array:
        """All headers of each message. Of a repeated one the first counts (STOMP 1.2, "Repeated Header Entries")."""
        lines = pc.split_pattern(self._heads, b"\n")
        parts = pc.split_pattern(lines.flatten(), b":", max_splits=1)
        names, values = _texts(pc.list_element(parts, 0)), _texts(_second(parts))
        numbers = names.dictionary_encode()
        pairs = pc.add(
            pc.multiply(pc.list_parent_indices(lines), len(numbers.dictionary)), numbers.indices.cast(pa.int64())
        )
        if pc.count_distinct(pairs).as_py() == len(pairs):
            return pa.MapArray.from_arrays(lines.offsets, names, values, COLUMNS["headers"])
        maps = [list(Message(0, head + b"\n\n").headers().items()) for head in self._heads.to_pylist()]
        return pa.array(maps, COLUMNS["headers"])

    def _value(self, line: int, start: int) -> pa.Array:
        """What stands in one of the first two lines, from a place on."""
        if self._first_lines is None:
            self._first_lines = pc.split_pattern(self._heads, b"\n", max_splits=2)
        return pc.binary_slice(pc.list_element(self._first_lines, line), start, _TO_THE_END)


def times(milliseconds: pa.Array) -> pa.Array:
    return pc.multiply(milliseconds, 1000).cast(TIME)


def _second(lists: pa.Array) -> pa.Array:
    """The second element of each list; null where there is none."""
    return pc.list_slice(lists, 1, 2, return_fixed_size_list=True).flatten()


def _texts(escaped: pa.Array) -> pa.Array:
    """Undo the escapes, and read UTF-8; nulls stay."""
    try:
        texts = escaped.cast(pa.string())
    except pa.ArrowInvalid:  # it is not UTF-8 everywhere
        return _texts_one_by_one(escaped)
    if not _any_backslash(texts):
        return texts
    texts = pc.replace_substring(texts, "\\c", ":")  # ids with colons, the usual case
    return _texts_one_by_one(escaped) if _any_backslash(texts) else texts


def _any_backslash(texts: pa.Array) -> bool:
    return bool(pc.any(pc.match_substring(texts, "\\")).as_py())


def _texts_one_by_one(escaped: pa.Array) -> pa.Array:
    plain = [text and unescape(text).decode("utf-8", "replace") for text in escaped.to_pylist()]
    return pa.array(plain, pa.string())


KEY = "key"  # the header that has a message's key
PARTITION_KEY = "partition-key"
"""The header that has the key if there is no ``key``: what decides on a stream's partition, unless a policy differs."""

LATEST_MS = 253_402_300_799_999
"""The end of the year 9999 in milliseconds since the epoch: what expires later is shown to expire then.

JMS clients write the largest number there is for "never", and no column of microseconds can hold that.
"""


class Records:
    """Messages of one lane as columns, each of which is made when it is asked for."""

    def __init__(self, found: list[Content], destination: str, partition: int) -> None:
        self._found = found
        self._destination = destination
        self._partition = partition

    def __len__(self) -> int:
        return len(self._found)

    def those_that(self, conditions: tuple[Condition, ...]) -> "Records":
        if not conditions or not self._found:
            return self
        masks = [condition.mask(self.column(condition.column)) for condition in conditions]
        chosen = masks[0]
        for mask in masks[1:]:
            chosen = pc.and_(chosen, mask)
        if pc.all(chosen).as_py():
            return self
        found = [content for content, is_chosen in zip(self._found, chosen.to_pylist(), strict=True) if is_chosen]
        return Records(found, self._destination, self._partition)

    def batch(self, names: list[str]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([self.column(name) for name in names], schema=schema_of(names))

    def column(self, name: str) -> pa.Array:
        make = self._makers.get(name)
        if make is None:
            raise InvalidArgument(f"messages have no column {name!r}: they have {', '.join(COLUMNS)}", column=name)
        return make()

    @cached_property
    def _makers(self) -> dict[str, Callable[[], pa.Array]]:
        return {
            "destination": lambda: self._same(self._destination, "destination"),
            "partition": lambda: self._same(self._partition, "partition"),
            "offset": lambda: pa.array([content[0] for content in self._found], COLUMNS["offset"]),
            "message_id": lambda: self._heads.message_ids(),
            "timestamp": lambda: self._heads.timestamps(),
            "priority": lambda: pa.array([content[3] for content in self._found], COLUMNS["priority"]),
            "persistent": lambda: self._same(True, "persistent"),  # or it would not be in the store
            "expiration": self._expirations,
            "deliveries": self._deliveries,
            "key": self._keys,
            "value": self._bodies,
            "headers": lambda: self._heads.maps(),
        }

    @cached_property
    def _ends(self) -> list[int]:
        """Where the head of each message ends; the body begins two bytes later."""
        return [content[1].index(b"\n\n") for content in self._found]

    @cached_property
    def _heads(self) -> Heads:
        heads = [content[1][:end] for content, end in zip(self._found, self._ends, strict=True)]
        return Heads(pa.array(heads, pa.binary()))

    def _bodies(self) -> pa.Array:
        bodies = [content[1][end + 2 :] for content, end in zip(self._found, self._ends, strict=True)]
        return pa.array(bodies, COLUMNS["value"])

    def _same(self, value: str | int, name: str) -> pa.Array:
        return pa.repeat(pa.scalar(value, COLUMNS[name]), len(self._found))

    def _expirations(self) -> pa.Array:
        expirations = [content[2] for content in self._found]
        if not any(expirations):
            return pa.nulls(len(expirations), COLUMNS["expiration"])
        return times(pa.array([min(time, LATEST_MS) or None for time in expirations], pa.int64()))

    def _deliveries(self) -> pa.Array:
        deliveries = [content[4] for content in self._found]
        return pa.array(deliveries, COLUMNS["deliveries"]) if any(deliveries) else self._same(0, "deliveries")

    def _keys(self) -> pa.Array:
        keys = self._heads.header(KEY)
        return pc.coalesce(keys, self._heads.header(PARTITION_KEY)) if keys.null_count else keys


PAGE_BYTES = 4 << 20
"""How many bytes of records one read takes, if one record is not larger. About five times as much is in memory."""

PAGE_RECORDS = 8192  # how many records one read takes at the most


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


class ReadRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which messages are wanted: ``POST /read``; with ``whole`` it is an error that retention has taken some."""

    part: LaneRange
    columns: list[str]
    conditions: list[Condition] = []
    whole: bool = False

    def typed_conditions(self) -> tuple[Condition, ...]:
        """The conditions with their values as they were before they were sent: JSON has no times."""
        return tuple([_typed(condition) for condition in self.conditions])


class Trailer(msgspec.Struct, frozen=True):
    """How a read ended: ``error`` says why it is not whole."""

    error: Failure | None = None


class LaneStates(msgspec.Struct, frozen=True):
    """What is known of all lanes at one moment: ``GET /lanes``. ``states`` are by lane."""

    destinations: list[StoredDestination]
    states: dict[int, LaneState]

    @classmethod
    def of(cls, reader: StoreReader, kind: str | None) -> Self:
        """What a snapshot has of one kind of destinations, or of all; the store has things of the broker's own too."""
        kinds = list(DestinationKind) if kind is None else [kind]
        found = [stored for stored in reader.destinations() if stored.kind in kinds]
        return cls(found, {lane: reader.lane_state(lane) for stored in found for lane in stored.lanes})


def _typed(condition: Condition) -> Condition:
    if COLUMNS.get(condition.column) != TIME:
        return condition
    times = [datetime.fromisoformat(value) for value in condition.values]
    return Condition(condition.column, condition.comparison, tuple(times))
