"""How far a query is behind, from what Spark reports."""

from typing import Any
from uuid import UUID

import pytest
from prometheus_client import CollectorRegistry
from pyspark.sql.streaming.listener import QueryProgressEvent, QueryTerminatedEvent, StreamingQueryProgress

from quire.spark.lag import LagListener, PartitionLag, lags

RUN = "5b1dbd19-9b2c-4b3c-8f3e-3f8f4d0f2a11"
KAFKA = {"description": "KafkaV2", "endOffset": {"t": {"0": 1}}, "latestOffset": {"t": {"0": 9}}}
RATE = {"description": "RateStream", "endOffset": 17, "latestOffset": 19}


def progress(*sources: dict[str, Any], name: str | None = "copy") -> StreamingQueryProgress:
    """What Spark reports of a micro-batch."""
    report = {
        "id": "00000000-0000-0000-0000-000000000007", "runId": RUN, "name": name, "timestamp": "", "batchId": 3,
        "numInputRows": 0, "inputRowsPerSecond": 0.0, "processedRowsPerSecond": 0.0, "batchDuration": 1,
        "durationMs": {}, "eventTime": {}, "stateOperators": [], "observedMetrics": {},
        "sink": {"description": "noop", "numOutputRows": 0},
        "sources": [
            {"startOffset": None, "numInputRows": 0, "inputRowsPerSecond": 0.0, "processedRowsPerSecond": 0.0} | source
            for source in sources
        ],
    }  # fmt: skip
    return StreamingQueryProgress.fromJson(report)


def quire(read: dict[str, dict[str, int]], latest: dict[str, dict[str, int]] | None) -> dict[str, Any]:
    """A Quire source that has read up to some offsets."""
    kept = {"?group": "job", "?identity": {}, "?start": {"?group": "job", "?identity": {}}, **read}
    return {"description": "PythonScan", "endOffset": kept, "latestOffset": latest}


def test_what_is_left_is_counted_in_each_partition() -> None:
    source = quire({"s": {"0": 41, "1": 11}, "t": {"0": 5}}, {"s": {"0": 101, "1": 11}, "t": {"0": 6}})
    assert lags(progress(KAFKA, source, RATE)) == [
        PartitionLag("job", "s", 0, 60), PartitionLag("job", "s", 1, 0), PartitionLag("job", "t", 0, 1),
    ]  # fmt: skip


@pytest.mark.parametrize("latest", [None, {}, {"s": {}}, {"s": {"0": 3}}])
def test_what_is_not_known_is_no_lag(latest: dict[str, dict[str, int]] | None) -> None:
    assert lags(progress(quire({"s": {"0": 41}}, latest))) == [PartitionLag("job", "s", 0, 0)]


@pytest.mark.parametrize(("name", "label"), [("copy", "copy"), (None, "00000000-0000-0000-0000-000000000007")])
def test_prometheus_sees_it_until_the_query_ends(name: str | None, label: str) -> None:
    registry = CollectorRegistry()
    listener = LagListener(registry)
    labels = {"query": label, "group": "job", "stream": "s", "partition": "0"}
    for read, behind in ((41, 60), (101, 0)):
        report = progress(quire({"s": {"0": read}}, {"s": {"0": 101}}), name=name)
        listener.onQueryProgress(QueryProgressEvent(report))
        assert registry.get_sample_value("quire_spark_lag_offsets", labels) == behind
    listener.onQueryTerminated(QueryTerminatedEvent(UUID(int=7), UUID(int=1), None, None))
    assert registry.get_sample_value("quire_spark_lag_offsets", labels) == 0
    listener.onQueryTerminated(QueryTerminatedEvent(UUID(int=7), UUID(RUN), None, None))
    assert registry.get_sample_value("quire_spark_lag_offsets", labels) is None
