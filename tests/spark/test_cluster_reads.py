"""Reads of a cluster of brokers: each stream from the shard that has it, whichever broker is asked."""

import itertools
import time
from collections.abc import Iterator
from typing import Any

import pytest

from quire.clock import SystemClock
from quire.errors import InvalidArgument
from quire.spark.options import Options, Use
from quire.spark.reading import BatchReader, StreamReader
from tests.acceptance.cluster.running_cluster import RunningCluster, running_cluster
from tests.postgresql_server import PostgresqlServer

pytestmark = pytest.mark.slow

NAMES = ("athens", "berlin")
SHARDS = 3
LEDGER = "$quire.ledger"
NUMBERS = itertools.count()
PATIENCE = 90.0
CLOCK = SystemClock()


@pytest.fixture(scope="module")
def cluster(postgresql_server: PostgresqlServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    directory = tmp_path_factory.mktemp("cluster")
    with running_cluster(postgresql_server, directory, CLUSTER__SHARDS=str(SHARDS), POLICY__LEDGER="true") as cluster:
        cluster.start(*NAMES)
        cluster.wait_until_even()
        yield cluster


def ask(cluster: RunningCluster, path: str, method: str = "GET", body: object = None) -> Any:
    """What a broker answers; it is asked again while a shard has no owner."""
    deadline = CLOCK.monotonic() + PATIENCE
    while True:
        status, answer = cluster.call(cluster.living[-1].name, path, method, body)
        if status < 400:
            return answer
        assert CLOCK.monotonic() < deadline, answer
        time.sleep(0.2)


def stream_at(cluster: RunningCluster, shard: int, messages: int) -> str:
    """A stream that a shard has, with two partitions, and messages in the second one."""
    names = (f"s{number}" for number in NUMBERS)
    name = next(name for name in names if ask(cluster, f"/cluster/places/stream/{name}")["shard"] == shard)
    ask(cluster, f"/streams/{name}", "PUT", {"partitions": 2})
    sent = {"body": name, "count": messages, "headers": {"partition": "1"}}
    ask(cluster, f"/streams/{name}/messages", "POST", sent)
    return name


def found(reader: BatchReader) -> list[tuple[str, int, int]]:
    """Destination, partition and offset of all rows."""
    return [
        (row["destination"], row["partition"], row["offset"])
        for task in reader.partitions()
        for batch in reader.read(task)
        for row in batch.to_pylist()
    ]


def batch(cluster: RunningCluster, **given: str) -> BatchReader:
    options = {"broker.url": cluster.living[-1].http, **given}
    return BatchReader(Options.of(options, Use.READ), ["destination", "partition", "offset"])


def test_streams_of_all_shards_are_read_from_any_broker(cluster: RunningCluster) -> None:
    names = [stream_at(cluster, shard, 3 + shard) for shard in range(SHARDS)]
    rows = found(batch(cluster, subscribe=",".join(names), minPartitions="4"))
    assert rows == [
        (f"stream://{name}", 1, offset) for shard, name in enumerate(names) for offset in range(1, 4 + shard)
    ]
    assert found(batch(cluster, subscribe=names[2], startingTimestamp="2100-01-01T00:00:00Z")) == []


def test_a_streaming_read_goes_on_when_the_shard_is_at_another_broker(cluster: RunningCluster) -> None:
    owner = NAMES[0]
    shard = next(shard for shard, name in cluster.owners().items() if name == owner)
    name = stream_at(cluster, shard, 5)
    asked = cluster.brokers[NAMES[1]].http
    given = {"broker.url": asked, "subscribe": name, "startingOffsets": "earliest", "groupId": "job"}
    source = StreamReader(Options.of(given, Use.STREAM), ["partition", "offset"])
    start = source.initialOffset()
    end = source.latestOffset(start, source.getDefaultReadLimit())
    assert rows_of(source, start, end) == [(1, offset) for offset in range(1, 6)]
    source.commit(end)
    assert ask(cluster, f"/groups/{name}/job/lag")["lag"] == 0
    cluster.brokers[owner].kill()
    assert rows_of(source, start, end) == [(1, offset) for offset in range(1, 6)]
    cluster.start(owner)
    cluster.wait_until_even()


def rows_of(source: StreamReader, start: dict[str, object], end: dict[str, object]) -> list[tuple[int, int]]:
    return [
        (row["partition"], row["offset"])
        for task in source.partitions(start, end)
        for part in source.read(task)
        for row in part.to_pylist()
    ]


def test_a_stream_with_a_part_at_each_shard_is_read_in_batches_only(cluster: RunningCluster) -> None:
    for number in range(8):
        ask(cluster, f"/queues/q{number}/messages", "POST", {"body": "b"})
    time.sleep(1)
    lanes = {row[1] for row in found(batch(cluster, subscribe=f"stream://{LEDGER}"))}
    assert len(lanes) > 1
    given = {"broker.url": cluster.living[-1].http, "subscribe": LEDGER}
    with pytest.raises(InvalidArgument, match="part at each shard"):
        StreamReader(Options.of(given, Use.STREAM), ["offset"]).initialOffset()
