"""Batch reads of every kind of store, without a Spark around them."""

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from quire.arrow.lanes import COLUMNS
from quire.errors import (
    DataLost,
    QuireError,
    StoreCorrupt,
    StoreError,
    StoreOutdated,
    StoreTooNew,
    StoreUnreachable,
    UnknownDestination,
)
from quire.spark.options import Options, Use
from quire.spark.reading import BatchReader, FilteringBatchReader, Task
from quire.store import sqlite
from quire.testing.faults import tear
from tests.postgresql_server import PostgresqlServer
from tests.spark.stored import fill, message, opened, remove

pytestmark = pytest.mark.slow

EVENTS = {"stream://events": [[message(n) for n in range(1, 31)], [message(n, "other") for n in range(1, 11)]]}


@pytest.fixture(params=["lmdb", "sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a store that is not there yet."""
    if request.param == "postgresql":
        server: PostgresqlServer = request.getfixturevalue("postgresql_server")
        return server.url_for(tmp_path)
    return f"{request.param}://{tmp_path}/store"


def options(url: str, **given: str) -> Options:
    return Options.of({"store.url": url, "subscribe": "events", **given}, Use.READ)


def rows(reader: BatchReader) -> list[dict[str, Any]]:
    return [row for task in reader.partitions() for batch in reader.read(task) for row in batch.to_pylist()]


def offsets(url: str, *filters: Filter, **given: str) -> list[tuple[int, int]]:
    reader = FilteringBatchReader(options(url, **given), ["partition", "offset"])
    assert list(reader.pushFilters(list(filters))) == []
    return [(row["partition"], row["offset"]) for row in rows(reader)]


def test_everything_is_read_once(url: str) -> None:
    with opened(url) as store:
        fill(store, EVENTS)
    found = rows(BatchReader(options(url, minPartitions="3"), list(COLUMNS)))
    assert [(row["partition"], row["offset"]) for row in found] == [
        *[(0, n) for n in range(1, 31)], *[(1, n) for n in range(1, 11)],
    ]  # fmt: skip
    assert {row["destination"] for row in found} == {"stream://events"}
    assert [row["value"] for row in found[:2]] == [b"body 1", b"body 2"]
    assert dict(found[0]["headers"]) == message(1).headers()


@pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True)  # one process opens an LMDB store only once
def test_a_store_is_read_while_its_broker_has_its_lock_and_goes_on_writing(url: str) -> None:
    with opened(url) as store:
        assert store.try_lock("a broker")
        fill(store, EVENTS)
        reader = BatchReader(options(url), ["offset"])
        planned = reader.partitions()
        remove(store, 2, [1])
        with pytest.raises(DataLost, match=r"offsets 1 to 1 of partition 1 .* were removed by retention"):
            list(reader.read(planned[1]))
        lenient = BatchReader(options(url, failOnDataLoss="false"), ["offset"])
        assert sum(len(batch) for task in planned for batch in lenient.read(task)) == 39


@pytest.mark.parametrize(
    ("filters", "read"),
    [
        ([GreaterThanOrEqual(("offset",), 12), LessThan(("offset",), 15)], {(0, 12), (0, 13), (0, 14)}),
        ([GreaterThan(("offset",), 12), LessThanOrEqual(("offset",), 14)], {(0, 13), (0, 14)}),
        ([EqualTo(("offset",), 7)], {(0, 7), (1, 7)}),
        ([In(("offset",), (7, 29, None)), EqualTo(("destination",), "stream://events")], {(0, 7), (0, 29), (1, 7)}),
        ([EqualTo(("partition",), 1), In(("offset",), (2, 3))], {(1, 2), (1, 3)}),
        ([EqualTo(("destination",), "queue://events")], set()),
    ],
)
def test_records_outside_the_filters_are_never_read(
    url: str, filters: list[Filter], read: set[tuple[int, int]]
) -> None:
    with opened(url) as store:
        fill(store, EVENTS)
        for lane, last in ((1, 30), (2, 10)):
            for sequence in range(1, last + 1):
                if (lane - 1, sequence) not in read:
                    tear(store, lane, sequence)
    assert set(offsets(url, *filters)) == read
    with pytest.raises(StoreCorrupt):
        offsets(url)


@pytest.mark.parametrize(
    "given",
    [
        EqualTo(("key",), "k1"),
        EqualTo(("headers", "n"), "1"),
        EqualNullSafe(("offset",), 1),
        Not(EqualTo(("offset",), 1)),
        StringStartsWith(("destination",), "stream"),
        EqualTo(("offset",), True),
        In(("offset",), (None,)),
        EqualTo(("timestamp",), "2023-11-14"),
    ],
)
def test_what_the_source_does_not_apply_goes_back_to_spark(given: Filter) -> None:
    reader = FilteringBatchReader(options("lmdb:///data"), ["offset"])
    pushed = EqualTo(("priority",), 4)
    back = list(reader.pushFilters([given, pushed]))
    assert len(back) == 1
    assert back[0] is given
    assert [condition.column for condition in reader.conditions] == ["priority"]


def test_without_messages_there_is_one_task_that_reads_none(url: str) -> None:
    with opened(url) as store:
        fill(store, {"stream://events": [[]]})
    reader = BatchReader(options(url), ["offset"])
    (task,) = reader.partitions()
    assert isinstance(task, Task)
    assert (task.parts, list(reader.read(task))) == ((), [])


@pytest.mark.parametrize(
    ("pattern", "hint"),
    [("orders.>", ""), ("queue://events", ""), ("event.*", r" \(a pattern is no regular expression: .*\)")],
)
def test_a_pattern_that_matches_nothing_is_an_error_unless_told_otherwise(url: str, pattern: str, hint: str) -> None:
    with opened(url) as store:
        fill(store, EVENTS)
    given = {"store.url": url, "subscribePattern": pattern}
    with pytest.raises(
        UnknownDestination,
        match=rf"no destination matches subscribePattern {re.escape(pattern)}{hint}; there are stream://events;",
    ):
        BatchReader(Options.of(given, Use.READ), ["offset"]).partitions()
    (task,) = BatchReader(Options.of(given | {"failOnNoMatch": "false"}, Use.READ), ["offset"]).partitions()
    assert isinstance(task, Task)
    assert task.parts == ()


# Errors.


def failure(kind: type[QuireError], url: str, **given: str) -> str:
    with pytest.raises(kind) as caught:
        rows(BatchReader(options(url, **given), ["offset"]))
    return str(caught.value)


def test_a_store_that_is_not_there_is_not_made(url: str, tmp_path: Path) -> None:
    text = failure(StoreUnreachable, url)
    assert "there is no store at " in text
    assert text.endswith("Check the store's URL, and that its server runs. [store-unreachable]")
    assert list(tmp_path.iterdir()) == []


def test_a_destination_that_is_not_there_is_named(url: str) -> None:
    with opened(url) as store:
        fill(store, EVENTS)
    text = failure(UnknownDestination, url, subscribe="event")
    assert text.startswith("the store has no destination event: did you mean events?")


@pytest.fixture
def sqlite_file(tmp_path: Path) -> Path:
    with opened(f"sqlite://{tmp_path}/store") as store:
        fill(store, EVENTS)
    return tmp_path / "store"


def set_format(file: Path, version: int) -> None:
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE meta SET value = ? WHERE key = 'format'", [str(version)])


def test_a_newer_store_needs_its_version_of_quire(sqlite_file: Path) -> None:
    set_format(sqlite_file, 99)
    assert "A newer version of Quire wrote this store: start that version." in failure(
        StoreTooNew, f"sqlite://{sqlite_file}"
    )


def test_an_older_store_is_to_be_migrated(sqlite_file: Path) -> None:
    set_format(sqlite_file, 1)
    assert "Run `quire store migrate`" in failure(StoreOutdated, f"sqlite://{sqlite_file}")


def test_a_store_that_maintenance_keeps_for_itself_says_so(sqlite_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "BUSY_SECONDS", 0.01)
    with closing(sqlite3.connect(sqlite_file)) as connection:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("BEGIN EXCLUSIVE")
        text = failure(StoreError, f"sqlite://{sqlite_file}")
    assert "locked" in text


def test_a_damaged_record_is_named(url: str) -> None:
    with opened(url) as store:
        fill(store, EVENTS)
        tear(store, 2, 5)
    text = failure(StoreCorrupt, url)
    assert text.startswith("record 5 of lane 2 is damaged. Stop the broker")


def test_a_password_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    text = failure(StoreUnreachable, "postgresql+psycopg://quire:secret@127.0.0.1:1/none")
    assert "secret" not in text
