"""Reading the store of a running broker without the broker: a database answers many readers at a time."""

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from typing import Any, TypeVar

import pyarrow as pa

from quire.arrow.lanes import Condition, LaneRange, LaneStates, read
from quire.errors import QuireError
from quire.spark.online.patience import Patience
from quire.spark.online.read_on import read_on
from quire.store.base import Link, Store, StoreReader
from quire.store.maintenance.open_store import open_for_reading
from quire.store.positions import offset_at

T = TypeVar("T")


class BrokerStore:
    """A store on which a broker runs; ``patience`` limits retries, in s. It stays open where reads are planned."""

    def __init__(self, url: str, patience: float) -> None:
        self._url = url
        self._seconds = patience
        self._open = ExitStack()
        self._store: Store | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._url, self._seconds)

    def lanes(self, kind: str | None = None) -> LaneStates:
        """The destinations, of one kind or of all, and the states of their lanes, all at one moment."""
        return self._look(lambda reader: LaneStates.of(reader, kind))

    def links(self, lane: int, start: int, limit: int) -> list[Link]:
        """Links of a lane (``StoreReader.links``)."""
        return self._look(lambda reader: reader.links(lane, start, limit))

    def offset_at(self, lane: int, time_ms: int) -> int:
        """Where a time is in a lane (``quire.store.positions.offset_at``)."""
        return self._look(lambda reader: offset_at(reader, lane, time_ms))

    def read(
        self, part: LaneRange, columns: list[str], conditions: tuple[Condition, ...] = (), *, whole: bool = False
    ) -> Generator[pa.RecordBatch, None, None]:
        """Read a part of a lane (``quire.arrow.lanes.read``). After a failure it goes on where it was."""

        def batches(rest: LaneRange, wanted: list[str]) -> Iterator[pa.RecordBatch]:
            with open_for_reading(self._url) as (store, _):
                yield from read(store, rest, wanted, conditions, whole=whole)

        return read_on(batches, part, columns, Patience(self._seconds, "readTimeout"))

    def _look(self, ask: Callable[[StoreReader], T]) -> T:
        def look() -> T:
            try:
                if self._store is None:
                    self._store = self._open.enter_context(open_for_reading(self._url)).store
                with self._store.snapshot() as reader:
                    return ask(reader)
            except QuireError:
                self._store = None
                self._open.close()
                raise

        return Patience(self._seconds, "readTimeout").tried(look)
