"""The archive has every row once, also after a kill."""

import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import SparkRuntimeException
from pyspark.sql import DataFrame, SparkSession

from quire.clock import ManualClock
from quire.errors import InvalidArgument
from quire.spark.pipelines.archive_files import Archive, ArchiveDirectory, ArchiveList, DataFile, Layout
from quire.spark.pipelines.command import Place, told_by
from tests.docs.pages import ROOT
from tests.spark.message_rows import FIRST, frame, message

DAY_AFTER = round(FIRST.timestamp() * 1000) + 3_600_000

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(autouse=True)
def utc(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.session.timeZone", "UTC")


def stream_of(spark: SparkSession, source: Path) -> DataFrame:
    schema = spark.read.parquet(str(source)).schema
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(source))


def write_source(spark: SparkSession, source: Path, files: range) -> None:
    for number in files:
        rows = [message(10 * number + offset) for offset in range(1, 11)]
        frame(spark, rows).coalesce(1).write.mode("append").parquet(str(source))


def dies(*_: object) -> None:
    raise RuntimeError("died before the list was replaced")


def dying_after(patched: pytest.MonkeyPatch, changes: int) -> Callable[[], bool]:
    """Let so many changes to directories pass and none after them; the result says whether there were no more."""
    left = [changes]

    def counting(change: Callable[..., None]) -> Callable[..., None]:
        def changed(*arguments: Any) -> None:
            left[0] -= 1
            if left[0] < 0:
                dies()
            change(*arguments)

        return changed

    for name in ("touch", "write", "remove_named"):
        patched.setattr(ArchiveDirectory, name, counting(getattr(ArchiveDirectory, name)))
    return lambda: left[0] >= 0


def left_over(spark: SparkSession, directory: Path) -> set[str]:
    """The files that are in no list."""
    files = ArchiveDirectory(spark, str(directory))
    return {file.url for file in files.files()} ^ {file.url for file in ArchiveList(files).entries()}


def offsets(spark: SparkSession, directory: Path) -> list[int]:
    return sorted(row.offset for row in spark.read.parquet(str(directory)).select("offset").collect())


def test_a_killed_archive_goes_on_without_a_row_twice(spark: SparkSession, tmp_path: Path) -> None:
    source, directory = tmp_path / "source", tmp_path / "archive"
    write_source(spark, source, range(3))
    killed = subprocess.run(
        [sys.executable, "-m", "tests.spark.kill_archiving", str(source), str(directory)],
        cwd=ROOT,
        capture_output=True,
        timeout=100,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    assert len(offsets(spark, directory)) == 20  # the second batch is written, and Spark does not know it
    archive = Archive(spark, str(directory))
    archive.start(stream_of(spark, source)).awaitTermination()
    assert archive.written == 20
    assert not left_over(spark, directory)
    assert offsets(spark, directory) == list(range(1, 31))
    write_source(spark, source, range(3, 4))
    archive.start(stream_of(spark, source)).awaitTermination()
    assert offsets(spark, directory) == list(range(1, 41))


def test_rows_are_by_destination_and_day_in_utc(spark: SparkSession, tmp_path: Path) -> None:
    rows = frame(spark, [message(1, "queue://orders"), message(7, "queue://orders"), message(7, "queue://a/b")])
    Archive(spark, str(tmp_path)).add(rows)
    days = {str(path.relative_to(tmp_path)) for path in tmp_path.glob("batch=*/destination=*/day=*")}
    assert days == {
        "batch=0/destination=queue%3A%2F%2Forders/day=2026-01-31",
        "batch=0/destination=queue%3A%2F%2Forders/day=2026-02-01",
        "batch=0/destination=queue%3A%2F%2Fa%2Fb/day=2026-02-01",
    }
    archived = spark.read.parquet(str(tmp_path)).where("destination = 'queue://a/b'").collect()
    assert [(row.offset, bytes(row.value)) for row in archived] == [(7, b"body 7")]


def test_the_next_batch_read_adds_what_is_newer(spark: SparkSession, tmp_path: Path) -> None:
    archive = Archive(spark, str(tmp_path))
    archive.add(frame(spark, [message(1), message(2), message(5, partition=1)]))
    now = frame(
        spark, [message(2), message(3), message(5, partition=1), message(6, partition=1), message(1, "queue://q")]
    )
    archive.add(now)
    archive.add(now)
    assert archive.written == 6
    rows = spark.read.parquet(str(tmp_path)).select("destination", "partition", "offset").collect()
    assert sorted(map(tuple, rows)) == [
        ("queue://q", 0, 1), ("stream://events", 0, 1), ("stream://events", 0, 2), ("stream://events", 0, 3),
        ("stream://events", 1, 5), ("stream://events", 1, 6),
    ]  # fmt: skip


def test_a_batch_read_that_died_before_its_mark_is_done_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = Archive(spark, str(tmp_path))
    archive.add(frame(spark, [message(1)]))
    with monkeypatch.context() as patched:
        patched.setattr(ArchiveList, "publish", dies)
        with pytest.raises(RuntimeError, match="died"):
            archive.add(frame(spark, [message(1), message(2)]))
    assert offsets(spark, tmp_path) == [1]
    archive.add(frame(spark, [message(1), message(2), message(3)]))
    assert offsets(spark, tmp_path) == [1, 2, 3]
    assert not left_over(spark, tmp_path)


def test_small_files_of_closed_days_are_merged_and_every_reader_sees_each_message_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock(DAY_AFTER)
    directory = tmp_path / "archive"
    archive = Archive(spark, str(directory), clock=clock)
    for number in range(3):  # offsets from 7 on are of the day after
        archive.add(frame(spark, [message(offset + number, partition=number) for offset in (1, 4, 7)]))
    expected = [1, 2, 3, 4, 5, 6, 7, 8, 9]
    began_before = spark.read.parquet(str(directory))
    for changes in range(9):  # it dies before its first change to the directory, its second one, ...
        with monkeypatch.context() as patched:
            is_alive = dying_after(patched, changes)
            with suppress(RuntimeError):
                archive.compact()
        assert offsets(spark, directory) == expected
        if is_alive():
            break
    assert changes == 3  # the times of two files, and the list
    files = ArchiveDirectory(spark, str(directory))
    for url in left_over(spark, directory):
        files.touch(DataFile(url, 0, 0), clock.now_ms())
    # Two files of the closed day become one. The latest batch and the open day stay as they are.
    assert archive.merged == 2
    assert [row.offset for row in began_before.orderBy("offset").collect()] == expected
    assert (replaced := left_over(spark, directory))
    Archive(spark, str(directory), clock=clock).compact()
    assert left_over(spark, directory) == replaced  # a reader may still need them
    directory = directory.rename(tmp_path / "moved")
    clock.advance(2 * 3600)
    Archive(spark, str(directory), clock=clock).compact()
    assert offsets(spark, directory) == expected
    assert not left_over(spark, directory)
    assert len(list(directory.glob("batch=-1/**/*.parquet"))) == 1
    with pytest.raises(InvalidArgument, match="was compacted"):
        Place(parquet=str(directory)).read_stream(spark)


def test_the_files_of_an_archive_without_a_list_are_in_its_first_one(spark: SparkSession, tmp_path: Path) -> None:
    Archive(spark, str(tmp_path)).add(frame(spark, [message(1)]))
    shutil.rmtree(tmp_path / "_spark_metadata")
    Archive(spark, str(tmp_path)).add(frame(spark, [message(2)]))
    assert offsets(spark, tmp_path) == [1, 2]


def test_a_stream_compacts_behind_the_first_batch_of_each_day(spark: SparkSession, tmp_path: Path) -> None:
    clock = ManualClock(round(FIRST.timestamp() * 1000))
    archive = Archive(spark, str(tmp_path), clock=clock, is_daily=True)
    archive.compact()
    merged = []
    for number in range(4):
        if number == 2:
            clock.advance(86_400)
        archive.write(frame(spark, [message(1, partition=number)]).coalesce(1), number)
        merged.append(archive.merged)
    assert merged == [0, 0, 2, 2]
    assert offsets(spark, tmp_path) == [1] * 4


def test_files_have_the_target_size_and_the_columns_that_were_asked_for(spark: SparkSession, tmp_path: Path) -> None:
    dice = random.Random(1)
    rows = [
        message(offset, headers={"type": "ab"[offset % 2]}, value=dice.randbytes(1000), timestamp=FIRST)
        for offset in range(1, 101)
    ]
    source = frame(spark, rows).coalesce(1)
    layout = Layout(("day", "hour", "headers.type"), file_size=20_000)
    Archive(spark, str(tmp_path), layout).add(source)
    sizes = [path.stat().st_size for path in tmp_path.glob("batch=0/day=2026-01-31/hour=23/type=a/*.parquet")]
    assert len(sizes) == 3
    assert max(sizes) < 30_000
    read = spark.read.parquet(str(tmp_path)).where("type = 'b'").select("destination", "offset")
    assert sorted(row.offset for row in read.collect()) == list(range(1, 101, 2))
    with pytest.raises(InvalidArgument, match="is partitioned by day, hour, type, and stays so"):
        Archive(spark, str(tmp_path)).add(source)


def test_no_row_goes_to_the_driver(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched = list[int]()

    def looking(fetch: Callable[..., Any]) -> Callable[..., Any]:
        def look(rows: DataFrame) -> Any:
            found = fetch(rows)
            fetched.append(len(str(found)) if isinstance(found, list) else found.nbytes)
            return found

        return look

    kind = type(spark.range(1))
    for name in ("collect", "toArrow"):
        monkeypatch.setattr(kind, name, looking(getattr(kind, name)))
    Archive(spark, str(tmp_path)).add(frame(spark, [message(1, value=b"x" * 100_000)]))
    assert max(fetched) < 1000
    assert offsets(spark, tmp_path) == [1]


def test_a_header_that_is_too_long_for_a_directory_is_shortened_and_two_of_them_stay_apart(
    spark: SparkSession, tmp_path: Path
) -> None:
    values = ["x" * 300, "x" * 299 + "y", "/" * 84, "x" * 250, "short", "ß" * 200, None]
    headers = [{} if value is None else {"type": value} for value in values]
    rows = [message(number, headers=one) for number, one in enumerate(headers, 1)]
    Archive(spark, str(tmp_path), Layout(("headers.type",))).add(frame(spark, rows))
    read = {row.offset: row for row in spark.read.parquet(str(tmp_path)).collect()}
    assert {row.offset: row.headers.get("type") for row in read.values()} == dict(enumerate(values, 1))
    types = [read[number].type for number in range(1, 8)]
    assert types[3:5] + types[6:] == values[3:5] + values[6:]
    assert len(set(types)) == 7
    for short, value in zip((types[0], types[1], types[2], types[5]), (values[n] for n in (0, 1, 2, 5)), strict=True):
        assert value is not None
        assert short.startswith(value[:30])
        assert short[-19:-16] == "..."


def test_a_column_that_is_too_long_for_a_directory_is_refused_with_its_value_and_row(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = frame(spark, [message(1, key="k"), message(2, key="k\n" * 150)])
    with pytest.raises(SparkRuntimeException) as refused:
        Archive(spark, str(tmp_path), Layout(("key",))).add(rows)
    told = told_by(refused.value)
    assert isinstance(told, InvalidArgument)
    assert str(told) == (
        f"the archive cannot be partitioned by key: the value {'k?' * 20}..., of destination stream://events, "
        "partition 0, offset 2, is too long for the name of a directory. Choose another column for --partition-by"
    )


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ("headers.key", "there is another column key"),
        ("batch", "another column batch"),
        ("colour", "there is no column"),
    ],
)
def test_columns_that_cannot_be_are_refused(spark: SparkSession, column: str, text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        Layout((column,)).divided(frame(spark, [message(1)]))


def test_streams_and_batch_reads_do_not_mix(spark: SparkSession, tmp_path: Path) -> None:
    source = tmp_path / "source"
    write_source(spark, source, range(1))
    Archive(spark, str(tmp_path / "streamed")).start(stream_of(spark, source)).awaitTermination()
    with pytest.raises(InvalidArgument, match="was written by streaming reads"):
        Archive(spark, str(tmp_path / "streamed")).add(frame(spark, [message(1)]))
    Archive(spark, str(tmp_path / "read")).add(frame(spark, [message(1)]))
    with pytest.raises(InvalidArgument, match="was written by batch reads"):
        Archive(spark, str(tmp_path / "read")).start(stream_of(spark, source))


def test_a_ledger_is_archived_as_a_stream_only(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="lacks offset, partition: use a streaming read"):
        Archive(spark, str(tmp_path)).add(spark.sql("select 'queue://q' destination, current_timestamp() time"))
