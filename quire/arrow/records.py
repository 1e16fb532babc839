"""Some messages of one lane, as columns."""

from collections.abc import Callable
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from quire.arrow.columns import COLUMNS, schema_of
from quire.arrow.conditions import Condition
from quire.arrow.heads import Heads, times
from quire.errors import InvalidArgument
from quire.store.base import Content

KEY = "key"
"""The header that has a message's key."""

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
        """The records for which all conditions hold."""
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
        """The columns asked for, in that order."""
        return pa.RecordBatch.from_arrays([self.column(name) for name in names], schema=schema_of(names))

    def column(self, name: str) -> pa.Array:
        """One of ``COLUMNS``."""
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
