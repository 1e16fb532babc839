"""The data source in a real Spark."""

import re
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # everybody calls it so

import quire.spark
from quire.spark.options import Headers
from quire.spark.reading import read_schema
from quire.testing.faults import tear
from tests.spark.stored import START, append, fill, message, opened, remove

pytestmark = [pytest.mark.spark, pytest.mark.slow]

LAST = 300
"""How many messages the first partition has; the second one has a tenth of them."""

CONTENTS = {
    "stream://events": [
        [message(n, priority=n % 10) for n in range(1, LAST + 1)],
        [message(n, "other") for n in range(1, LAST // 10 + 1)],
    ],
    "queue://orders": [[message(n, "order") for n in range(1, 6)]],
}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = f"lmdb://{tmp_path_factory.mktemp('store')}"
    with opened(url) as store:
        fill(store, CONTENTS)
    return url


def load(spark: SparkSession, url: str, **options: str) -> DataFrame:
    reader = spark.read.format("quire").option("store.url", url)
    for name, value in {"subscribe": "events", **options}.items():
        reader = reader.option(name, value)
    return reader.load()


@pytest.fixture
def pushing(spark: SparkSession) -> SparkSession:
    """A session that lets the source apply filters."""
    session = spark.newSession()
    quire.spark.register(session, push_filters=True)
    return session


def places(rows: Iterable[Row]) -> list[tuple[int, int]]:
    return sorted((row.partition, row.offset) for row in rows)


def test_messages_are_rows(spark: SparkSession, url: str) -> None:
    found = load(spark, url, includeHeaders="true", minPartitions="3")
    assert found.schema == read_schema(Headers.MAP)
    assert found.rdd.getNumPartitions() == 4
    rows = found.collect()
    assert places(rows) == [*[(0, n) for n in range(1, LAST + 1)], *[(1, n) for n in range(1, LAST // 10 + 1)]]
    row = next(row for row in rows if (row.partition, row.offset) == (0, 42))
    assert (row.destination, row.message_id, row.key, bytes(row.value)) == (
        "stream://events",
        "ID:42",
        "k0",
        b"body 42",
    )
    assert (row.priority, row.persistent, row.expiration, row.deliveries) == (2, True, None, 0)
    assert round(row.timestamp.timestamp() * 1000) == START + 42_000
    assert row.headers == message(42).headers()


def test_headers_have_the_shape_that_they_have_from_kafka(spark: SparkSession, url: str) -> None:
    found = load(spark, url, subscribe="orders", includeHeaders="array").where("offset = 2").select("headers")
    assert found.schema.simpleString() == "struct<headers:array<struct<key:string,value:binary>>>"
    (row,) = found.collect()
    assert [(one.key, bytes(one.value).decode()) for one in row.headers] == list(message(2).headers().items())


def test_each_partition_of_a_stream_is_a_task(spark: SparkSession, url: str) -> None:
    assert load(spark, url).rdd.getNumPartitions() == 2
    assert load(spark, url, maxRecordsPerPartition="100").rdd.getNumPartitions() == 4


def test_spark_finds_the_source_by_itself(spark: SparkSession, url: str) -> None:
    other = spark.newSession()
    assert load(other, url).where("offset = 7").count() == 2


def test_a_schema_that_is_given_says_which_columns_are_read(spark: SparkSession, url: str) -> None:
    reader = spark.read.format("quire").schema("value binary, offset bigint")
    rows = reader.options(**{"store.url": url, "subscribe": "queue://orders"}).load().collect()
    assert [(bytes(row.value), row.offset) for row in rows] == [(b"order %d" % n, n) for n in range(1, 6)]


CONDITIONS: dict[str, Callable[[int, int], bool]] = {
    "offset >= 12 AND offset < 15": lambda _, n: 12 <= n < 15,
    "offset IN (3, 299) OR partition = 1": lambda partition, n: n in (3, 299) or partition == 1,
    "offset > 290 AND key = 'k1'": lambda _, n: n > 290 and n % 3 == 1,
    "partition = 1 AND value LIKE 'other 1%'": lambda partition, n: partition == 1 and str(n).startswith("1"),
    "priority IN (7, 9) AND partition = 0": lambda partition, n: n % 10 in (7, 9) and partition == 0,
    "priority > 7": lambda partition, n: partition == 0 and n % 10 > 7,
    "message_id = 'ID:20'": lambda _, n: n == 20,
    "message_id IN ('ID:20', 'ID:x')": lambda _, n: n == 20,
    "destination = 'queue://orders'": lambda *_: False,
    "destination <= 'stream://events' AND offset = 1": lambda _, n: n == 1,
    "timestamp >= timestamp_millis(1700000100000) AND timestamp < timestamp_millis(1700000103000)": lambda _, n: (
        100 <= n < 103
    ),
    "timestamp = timestamp_millis(1700000100000)": lambda _, n: n == 100,
    "NOT offset = 3 AND offset < 5": lambda _, n: n < 5 and n != 3,
    "expiration IS NULL AND offset = 5": lambda _, n: n == 5,
}


def test_without_pushed_filters_a_frame_may_be_used_many_times(spark: SparkSession, url: str) -> None:
    frame = load(spark, url)
    seven, few = frame.where("offset = 7"), frame.where("offset < 3 AND partition = 0")
    assert places(seven.union(few).collect()) == [(0, 1), (0, 2), (0, 7), (1, 7)]
    assert frame.count() == LAST + LAST // 10


def test_a_frame_keeps_the_end_of_its_first_use(spark: SparkSession, tmp_path: Path) -> None:
    url = f"lmdb://{tmp_path}"
    with opened(url) as store:
        fill(store, {"queue://orders": [[message(1)]]})
        frame = load(spark, url, subscribe="orders")
        assert frame.count() == 1
        append(store, 1, [message(2)])
        assert frame.count() == 1
        assert load(spark, url, subscribe="orders").count() == 2


@pytest.mark.parametrize("pushed", [True, False], ids=["pushed", "not-pushed"])
def test_filters_find_the_same_rows_whoever_applies_them(
    spark: SparkSession, pushing: SparkSession, url: str, pushed: bool
) -> None:
    for text, holds in CONDITIONS.items():
        wanted = [
            (partition, n) for partition, last in ((0, LAST), (1, LAST // 10)) for n in range(1, last + 1)
            if holds(partition, n)
        ]  # fmt: skip
        assert (
            places(load(pushing if pushed else spark, url).where(text).select("partition", "offset").collect())
            == wanted
        ), text


def test_records_outside_a_filter_are_not_even_read(spark: SparkSession, pushing: SparkSession, tmp_path: Path) -> None:
    url = f"lmdb://{tmp_path}"
    with opened(url) as store:
        fill(store, CONTENTS)
        for sequence in range(1, LAST + 1):
            if not 100 <= sequence < 110:
                tear(store, 1, sequence)
    text = "offset >= 100 AND offset < 110 AND partition = 0"
    assert load(pushing, url).where(text).count() == 10
    with pytest.raises(Exception, match=r"is damaged\. Stop the broker"):
        load(spark, url).where(text).count()


def test_the_plan_shows_what_the_source_applies_and_what_is_left_to_spark(pushing: SparkSession, url: str) -> None:
    wanted = load(pushing, url).where("offset > 5 AND priority = 3 AND key = 'k1'")
    left = re.search(r"Filter (.*)", wanted._jdf.queryExecution().optimizedPlan().toString())
    assert left is not None
    assert re.findall(r"(\w+)#\d+L? [=>]", left[1]) == ["key"]


@pytest.mark.xfail(strict=True, reason="Spark 4.3 keeps the filters of one use of a DataFrame for its other uses")
def test_pushed_filters_of_one_use_of_a_frame_do_not_reach_another_one(pushing: SparkSession, url: str) -> None:
    frame = load(pushing, url)
    assert frame.where("offset = 7").count() == 2
    assert frame.count() == LAST + LAST // 10


def test_a_read_that_is_broken_off_leaves_nothing_open(spark: SparkSession, url: str) -> None:
    for _ in range(3):
        assert len(load(spark, url).limit(1).collect()) == 1
    assert load(spark, url).count() == LAST + LAST // 10


def test_a_store_is_read_beside_a_broker_that_goes_on_writing(spark: SparkSession, tmp_path: Path) -> None:
    url = f"lmdb://{tmp_path}"
    with opened(url) as store:
        assert store.try_lock("a broker")
        fill(store, CONTENTS)
        orders = load(spark, url, subscribe="queue://orders")
        assert orders.count() == 5
        remove(store, 3, [1, 2])
        assert places(orders.collect()) == [(0, 3), (0, 4), (0, 5)]


def test_rows_go_to_parquet_and_back(spark: SparkSession, url: str, tmp_path: Path) -> None:
    place = str(tmp_path / "events")
    load(spark, url, includeHeaders="true").write.parquet(place)
    back = spark.read.parquet(place)
    assert back.agg(F.count("*"), F.sum(F.length("value"))).collect()[0][0] == LAST + LAST // 10
    assert back.where("partition = 0 AND offset = 9").collect()[0].headers["n"] == "9"


# Errors, as Spark's users see them.


@pytest.mark.parametrize(
    ("options", "texts"),
    [
        ({"colour": "red"}, ["no option 'colour'", "[invalid-argument]"]),
        ({"startingOffsets": "soon"}, ["the option startingOffsets is 'soon': it must be earliest, latest, or JSON"]),
        ({"maxOffsetsPerTrigger": "5"}, ["maxOffsetsPerTrigger is for streaming reads, not for batch reads"]),
        ({"subscribe": "event"}, ["no destination event: did you mean events?", "[unknown-destination]"]),
        ({"store.url": "lmdb:///nowhere/at/all"}, ["there is no store at lmdb:///nowhere/at/all"]),
    ],
)
def test_a_mistake_is_explained(spark: SparkSession, url: str, options: dict[str, str], texts: list[str]) -> None:
    with pytest.raises(Exception, match=re.escape(texts[0])) as caught:
        load(spark, url, **options).count()
    assert all(text in str(caught.value) for text in texts)


def test_a_newer_store_is_explained(spark: SparkSession, tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/store"
    with opened(url) as store:
        fill(store, CONTENTS)
    with closing(sqlite3.connect(tmp_path / "store")) as connection, connection:
        connection.execute("UPDATE meta SET value = '99' WHERE key = 'format'")
    with pytest.raises(Exception, match="A newer version of Quire wrote this store: start that version"):
        load(spark, url).count()


def test_a_column_that_there_is_not_is_named(spark: SparkSession, url: str) -> None:
    reader = spark.read.format("quire").schema("value string").options(**{"store.url": url, "subscribe": "events"})
    with pytest.raises(Exception, match="there is no column value string to read; the columns are destination string"):
        reader.load().count()
