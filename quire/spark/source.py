"""Where batch reads are from: a store, or a running broker."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pyarrow as pa

from quire.arrow.lanes import read
from quire.spark.lanes import Lanes
from quire.spark.online.broker import Broker
from quire.spark.options import Options
from quire.store.maintenance.open_store import open_for_reading

Read = Callable[..., Iterator[pa.RecordBatch]]
"""Reads a part of a lane: ``quire.arrow.lanes.read`` of one store."""


class Source:
    """The store, on which a broker may run, or the broker that the options name."""

    def __init__(self, options: Options) -> None:
        self._store_url = options.store_url or ""
        self._broker = Broker.of(options) if options.broker_url else None

    @contextmanager
    def lanes(self) -> Iterator[Lanes]:
        if self._broker:
            yield Lanes.of_broker(self._broker, self._broker.lanes())
        else:
            with open_for_reading(self._store_url) as (store, _), store.snapshot() as reader:
                yield Lanes.of_store(reader)

    @contextmanager
    def reader(self) -> Iterator[Read]:
        """What reads, for as long as the context lasts."""
        if self._broker:
            yield self._broker.read
        else:
            with open_for_reading(self._store_url) as (store, _):
                yield partial(read, store)
