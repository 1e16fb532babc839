"""Where batch reads are from: a store, or a running broker."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Protocol

import pyarrow as pa

from quire.arrow.conditions import Condition
from quire.arrow.lane_reader import LaneRange, read
from quire.spark.lanes import BrokerLanes, Lanes, StoredLanes
from quire.spark.online.broker import Broker
from quire.spark.options import Options
from quire.store.maintenance.open_store import open_for_reading


class Read(Protocol):
    """Reads a part of a lane (``quire.arrow.lane_reader.read``)."""

    def __call__(
        self, part: LaneRange, columns: list[str], conditions: tuple[Condition, ...] = (), *, whole: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """Read it."""
        ...


class Source(ABC):
    """Where messages are read."""

    @abstractmethod
    def lanes(self) -> AbstractContextManager[Lanes]:
        """What there is, for as long as the context lasts."""

    @abstractmethod
    def reader(self) -> AbstractContextManager[Read]:
        """What reads, for as long as the context lasts."""


class StoreSource(Source):
    """A store; a broker may run on it.

    Args:
        url: which.
    """

    def __init__(self, url: str) -> None:
        self._url = url

    @contextmanager
    def lanes(self) -> Iterator[Lanes]:
        """Those of a snapshot."""
        with open_for_reading(self._url) as (store, _), store.snapshot() as reader:
            yield StoredLanes(reader)

    @contextmanager
    def reader(self) -> Iterator[Read]:
        """What reads the open store."""
        with open_for_reading(self._url) as (store, _):
            yield partial(read, store)


class BrokerSource(Source):
    """A running broker.

    Args:
        broker: which.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    @contextmanager
    def lanes(self) -> Iterator[Lanes]:
        """Those of one moment."""
        yield BrokerLanes(self._broker, self._broker.lanes())

    @contextmanager
    def reader(self) -> Iterator[Read]:
        """What reads from the broker's bulk server."""
        yield self._broker.read


def source_of(options: Options) -> Source:
    """The source that the options name."""
    if options.store_url is not None:
        return StoreSource(options.store_url)
    assert options.broker_url is not None
    return BrokerSource(Broker(options.broker_url, options.read_timeout, options.fetch_timeout))
