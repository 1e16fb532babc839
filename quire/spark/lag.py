"""How far streaming queries are behind, from the progress that Spark reports, and as a metric for Prometheus.

spark.streams.addListener(LagListener())
prometheus_client.start_http_server(9108)
"""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from prometheus_client import REGISTRY, CollectorRegistry, Gauge
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    SourceProgress,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from quire.spark.reading import GROUP, Position, by_stream


class PartitionLag(NamedTuple):
    """How far a query is behind in one partition.

    Attributes:
        group: the consumer group that shows the progress of the query.
        stream: the name of the stream.
        partition: its number.
        offsets: what is left to read behind the micro-batch, as of its start.
    """

    group: str
    stream: str
    partition: int
    offsets: int


def lags(progress: StreamingQueryProgress) -> list[PartitionLag]:
    """How far a query is behind in each partition of its Quire sources.

    Args:
        progress: ``query.lastProgress``, or that of a listener's event.
    """
    return [found for source in progress.sources for found in _of_source(source)]


def _of_source(source: SourceProgress) -> Iterator[PartitionLag]:
    end, latest = _offsets(source.endOffset), _offsets(source.latestOffset)
    if GROUP not in end:  # another kind of source
        return
    position = Position.of(end)
    for stream, read in by_stream(position.offsets).items():
        for partition, offset in read.items():
            newest = latest.get(stream, {}).get(str(partition), offset)
            yield PartitionLag(position.group, stream, partition, max(0, newest - offset))


def _offsets(text: str) -> dict[str, Any]:
    """Offsets as Spark reports them; it writes ``None`` for none, and other sources have texts of their own."""
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


class LagListener(StreamingQueryListener):
    """Exports ``quire_spark_lag_offsets`` with the labels ``query``, ``group``, ``stream`` and ``partition``.

    ``query`` is the name of the query, or else its id. The series of a query end with it.

    Args:
        registry: where the metric is registered; by default the registry of prometheus-client.

    Raises:
        ValueError: the registry has a metric of that name: use one listener for all queries of a session.
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._lag = Gauge(
            "quire_spark_lag_offsets",
            "Offsets that a streaming query has yet to read behind its last micro-batch, as of the start of that.",
            ("query", "group", "stream", "partition"),
            registry=registry,
        )
        self._series: dict[str, set[tuple[str, ...]]] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """There is nothing to export before the first micro-batch."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        series = self._series.setdefault(str(progress.runId), set())
        for lag in lags(progress):
            labels = (progress.name or str(progress.id), lag.group, lag.stream, str(lag.partition))
            series.add(labels)
            self._lag.labels(*labels).set(lag.offsets)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        for labels in self._series.pop(str(event.runId), ()):
            self._lag.remove(*labels)
