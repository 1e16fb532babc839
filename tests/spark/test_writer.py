"""Rows become messages: every column, wrong rows and options, and writes that happen once."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.spark.target_broker import TargetBroker

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TargetBroker]:
    broker = TargetBroker(tmp_path_factory.mktemp("broker"))
    broker.start()
    yield broker
    broker.process.kill()


def write(rows: DataFrame, broker: TargetBroker, **options: Any) -> None:
    given = {"broker.url": broker.url, **{name: str(value) for name, value in options.items()}}
    rows.write.format("quire").options(**given).mode("append").save()


def numbered(spark: SparkSession, count: int, partitions: int = 2) -> DataFrame:
    return spark.range(count, numPartitions=partitions).selectExpr("CAST(id AS STRING) AS value")


# Rows.


def test_every_column_arrives(spark: SparkSession, broker: TargetBroker) -> None:
    broker.call("PUT", "/durables/c/d", {"topic": "prices"})
    rows = spark.createDataFrame(
        [
            ("queue://all", b"1", "k", None, {"a": "x:y", "none": None}, 9, False),
            ("all", b"2", None, None, None, None, None),
            ("topic://prices", b"3", None, None, {"b": "c"}, None, None),
            ("stream://events", b"4", "k", 2, None, 4, True),
            ("stream://events", b"5", "k", None, None, None, None),
        ],
        "destination string, value binary, key string, partition int, headers map<string,string>, priority int, "
        "persistent boolean",
    ).coalesce(1)
    write(rows, broker)
    first, second = broker.messages("all")
    assert (first["body"], first["priority"], first["persistent"]) == ("1", 9, False)
    assert {name: first["headers"].get(name) for name in ("a", "key", "none")} == {"a": "x:y", "key": "k", "none": None}
    assert (second["body"], second["priority"], second["persistent"]) == ("2", 4, True)
    (third,) = broker.messages("durables/c/d")
    assert (third["body"], third["headers"]["b"]) == ("3", "c")
    assert broker.partition("events", 2)[0]["body"] == "4"
    keyed = [message for number in range(4) for message in broker.partition("events", number) if message["body"] == "5"]
    assert keyed[0]["headers"]["partition-key"] == "k"


def test_rows_of_a_task_keep_their_order(spark: SparkSession, broker: TargetBroker) -> None:
    write(numbered(spark, 5000, partitions=1), broker, destination="queue://ordered")
    assert broker.bodies("ordered") == [str(number) for number in range(5000)]


def test_rows_of_a_staged_write_keep_the_order_of_their_tasks(spark: SparkSession, broker: TargetBroker) -> None:
    write(numbered(spark, 5000, partitions=3), broker, destination="queue://staged", token="order")
    assert broker.bodies("staged") == [str(number) for number in range(5000)]


def test_large_and_empty_bodies(spark: SparkSession, broker: TargetBroker) -> None:
    rows = spark.range(3, numPartitions=1).selectExpr("repeat('x', CAST(id AS INT) * 1500000) AS value")
    write(rows, broker, destination="queue://large")
    assert [len(body) for body in broker.bodies("large")] == [0, 1_500_000, 3_000_000]


def test_a_destination_that_is_null_is_that_of_the_option(spark: SparkSession, broker: TargetBroker) -> None:
    rows = spark.createDataFrame([("queue://own", "1"), (None, "2")], "destination string, value string").coalesce(1)
    write(rows, broker, destination="queue://given")
    assert (broker.bodies("own"), broker.bodies("given")) == (["1"], ["2"])


def test_nothing_is_written_of_no_rows(spark: SparkSession, broker: TargetBroker) -> None:
    write(numbered(spark, 0), broker, destination="queue://nothing")
    write(numbered(spark, 0), broker, destination="queue://nothing", token="nothing")
    assert "nothing" not in [queue["name"] for queue in broker.call("GET", "/queues")["queues"]]


# What cannot be written.

MARKS = ("a", "long", "nul", "refusal-cause", "refusal-destination")
"""The headers that tell what became of a row."""


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ("id AS value", "value bigint cannot be written; the columns are destination string, value binary"),
        ("'a' AS value, 1 AS key", "key int cannot be written"),
        ("'a' AS value, map('a', 1) AS headers", "headers map<string,int> cannot be written"),
        ("'a' AS value, 'a' AS headrs", "headrs string cannot be written"),
        ("'a' AS key", "the column value, which has the bodies, is missing"),
        ("'a' AS value", "give the option destination, or a column of that name"),
    ],
)
def test_columns_that_cannot_be_written(spark: SparkSession, broker: TargetBroker, columns: str, text: str) -> None:
    options = {} if columns == "'a' AS value" else {"destination": "q"}
    with pytest.raises(PySparkException) as caught:
        write(spark.sql(f"SELECT {columns} FROM range(1)"), broker, **options)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"desination": "q"}, "did you mean destination?"),
        ({"subscribe": "q"}, "the option subscribe is for batch reads and streaming reads, not for batch writes"),
        ({"destination": "file://q"}, "the option destination is 'file://q'"),
        ({"destination": "q", "token": ""}, "the option token is ''"),
        ({"destination": "q", "tokenNumber": "-1"}, "the option tokenNumber is '-1'"),
        ({"destination": "q", "writeTimeout": "soon"}, "the option writeTimeout is 'soon'"),
    ],
)
def test_options_that_cannot_be(spark: SparkSession, broker: TargetBroker, options: dict[str, str], text: str) -> None:
    with pytest.raises(PySparkException) as caught:
        write(numbered(spark, 1), broker, **options)
    assert text in str(caught.value)


def test_a_broker_has_to_be_named_and_nothing_is_replaced(spark: SparkSession, broker: TargetBroker) -> None:
    with pytest.raises(PySparkException, match=r"give broker\.url"):
        numbered(spark, 1).write.format("quire").option("destination", "q").mode("append").save()
    overwriting = numbered(spark, 1).write.format("quire").option("broker.url", broker.url).option("destination", "q")
    with pytest.raises(PySparkException, match=r"use mode\('append'\)"):
        overwriting.mode("overwrite").save()


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ("'/temp-queue/x' AS destination, 'v' AS value", "invalid-destination"),
        ("'stream://few' AS destination, 'v' AS value, 99 AS partition", "few has partitions 0 to 3"),
        ("'queue://q' AS destination, 'v' AS value, 0 AS partition", "only streams have partitions"),
        (
            "'queue://q' AS destination, 'v' AS value, 10 AS priority",
            "the priority of a row is 10: a number from 0 to 9",
        ),
        (
            "'queue://q' AS destination, 'v' AS value, 'k' AS key, map('a', repeat('x', 20000)) AS headers",
            "key 'k', a body that begins with 'v', for queue://q, cannot be sent: the header 'a' is longer",
        ),
        (
            "'queue://q' AS destination, 'v' AS value, map('a', '\\u0000') AS headers",
            "the header 'a' has no name, or a NUL",
        ),
        ("'queue://q' AS destination, CAST(NULL AS STRING) AS value", "the value of a row is null"),
        ("CAST(NULL AS STRING) AS destination, 'v' AS value", "the destination of a row is null"),
    ],
)
def test_a_row_that_cannot_be_written_fails_a_staged_write_as_a_whole(
    spark: SparkSession, broker: TargetBroker, row: str, text: str
) -> None:
    good = numbered(spark, 100).selectExpr("'queue://whole' AS destination", "value")
    rows = good.unionByName(spark.sql(f"SELECT {row}"), allowMissingColumns=True)
    with pytest.raises(PySparkException) as caught:
        write(rows, broker, token=f"whole {row}")
    assert text in str(caught.value)
    names = [queue["name"] for queue in broker.call("GET", "/queues")["queues"]]
    assert "whole" not in names or broker.bodies("whole") == []


WRONG = """
    SELECT * FROM VALUES
    ('queue://right', CAST('1' AS BINARY), CAST(NULL AS STRING), CAST(NULL AS INT), map('a', 'b')),
    ('queue://right', CAST('long' AS BINARY), NULL, NULL, map('a', 'b', 'long', repeat('x', 20000), 'nul', '\\u0000')),
    ('queue://right', CAST('key' AS BINARY), repeat('k', 20000), NULL, map('a', 'b')),
    ('queue://no,name', CAST('name' AS BINARY), 'k', NULL, map('a', 'b')),
    ('queue://right', CAST('2' AS BINARY), NULL, NULL, map('a', 'b')),
    ('queue://right', CAST('partition' AS BINARY), NULL, 3, map('a', 'b')),
    ('queue://right', NULL, NULL, NULL, map('a', 'b')),
    ('queue://right', CAST('3' AS BINARY), NULL, NULL, NULL)
    AS rows(destination, value, key, partition, headers)
"""


def test_rows_that_the_broker_refuses_go_to_a_place_of_their_own(
    spark: SparkSession, broker: TargetBroker, tmp_path: Path
) -> None:
    spark.sql(WRONG).coalesce(1).write.parquet(str(tmp_path / "rows"))
    stream = spark.readStream.schema(spark.sql(WRONG).schema).parquet(str(tmp_path / "rows"))
    options = {"broker.url": broker.url, "checkpointLocation": str(tmp_path / "work"), "invalidRowsTo": "queue://wrong"}
    stream.writeStream.format("quire").options(**options).trigger(availableNow=True).start().awaitTermination()
    assert broker.bodies("right") == ["1", "2", "3"]
    found = {
        message["body"]: {name: value for name, value in message["headers"].items() if name in MARKS}
        for message in broker.messages("wrong")
    }
    right = {"a": "b", "refusal-destination": "/queue/right"}
    partitions = "a row for queue://right has partition 3, but only streams have partitions"
    null = "the value of a row is null: give each row one"
    cause = "refusal-cause"
    assert found.pop("name").pop(cause).startswith("'no,name' is not a name for a queue")
    assert found == {
        "long": right | {cause: "the header 'nul' has no name, or a NUL character"},
        "key": right | {cause: "the header 'key' is longer than 10240 bytes"},
        "partition": right | {cause: partitions},
        "": right | {cause: null},
    }


def test_a_broker_that_is_not_there_is_told_after_a_while(spark: SparkSession) -> None:
    nowhere = {"broker.url": "http://127.0.0.1:9", "destination": "q", "writeTimeout": "0.3s"}
    with pytest.raises(PySparkException, match=r"no broker answers at http://127\.0\.0\.1:9.*tries in 0\.3 s"):
        numbered(spark, 1).write.format("quire").options(**nowhere).mode("append").save()


def test_a_broker_without_room_is_told_after_a_while(spark: SparkSession, tmp_path: Path) -> None:
    full = TargetBroker(tmp_path, settings={"STORE__LIMIT": "1MB"})
    full.start()
    try:
        rows = spark.range(3, numPartitions=1).selectExpr("repeat('x', 1000000) AS value")
        with pytest.raises(PySparkException, match="producer-held"):
            write(rows, full, destination="q", token="t", writeTimeout="0.3s")
        assert full.call("GET", "/write/stages") == {"bytes": 0, "stages": []}  # so that there is room again
        write(rows.limit(1), full, destination="q", token="t")
        assert len(full.bodies("q")) == 1
    finally:
        full.process.kill()


# Once.


def test_a_write_under_a_token_happens_once(spark: SparkSession, broker: TargetBroker) -> None:
    for _ in range(2):
        write(numbered(spark, 10), broker, destination="once", token="once")
    assert sorted(broker.bodies("once")) == sorted(map(str, range(10)))
    write(numbered(spark, 1), broker, destination="once", token="once", tokenNumber=5)
    write(numbered(spark, 2), broker, destination="once", token="once", tokenNumber=4)
    assert len(broker.bodies("once")) == 11
    assert "token/once" not in [stage["producer"] for stage in broker.call("GET", "/write/stages")["stages"]]


def test_foreach_batch_writes_each_batch_once(spark: SparkSession, broker: TargetBroker, tmp_path: Path) -> None:
    def twice(rows: DataFrame, number: int) -> None:
        for _ in range(2):
            write(rows, broker, destination="batches", token="batches", tokenNumber=number)

    source = tmp_path / "source"
    for number in range(3):
        spark.range(number, number + 1).selectExpr("CAST(id AS STRING) AS value").write.mode("append").text(str(source))
    stream = spark.readStream.option("maxFilesPerTrigger", 1).text(str(source))
    query = stream.writeStream.foreachBatch(twice).option("checkpointLocation", str(tmp_path / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination()
    assert sorted(broker.bodies("batches")) == ["0", "1", "2"]
