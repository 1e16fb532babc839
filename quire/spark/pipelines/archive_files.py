"""An archive: the Parquet files of each batch, in ``batch=N``, and the list of them. A repeated batch replaces its own.

They are on any file system that Spark knows, in directories by columns. The small files of closed days become files of
the target size (compaction).

The list has the form that Spark's file sink writes and Spark's readers follow. A reader of Spark that finds it reads
the files in it and no others. A new list replaces the last one at once. So a reader sees a batch, or a compaction, as
a whole or not at all.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StringType

from quire.clock import Clock, SystemClock
from quire.errors import InvalidArgument
from quire.spark.pipelines.files import LARGE_ROWS, is_there, read_or_none, start_batches, time_text
from quire.spark.reading import SAMPLE

_HIDDEN = ("_", ".")  # how the names begin that readers of Parquet pass over


class DataFile(NamedTuple):
    url: str
    size: int
    modified: int

    @property
    def path(self) -> str:
        return unquote(self.url)


class ArchiveDirectory:
    """A directory, by Hadoop's file systems, which Spark reads and writes by; ``url`` is where it is."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        machine = spark.sparkContext._jvm
        assert machine is not None
        self._jvm = machine
        root = self._hadoop.Path(path)
        self._files: Any = root.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
        self.url: str = self._files.makeQualified(root).toUri().toString().rstrip("/")

    def files(self, below: str = "") -> list[DataFile]:
        start = self._path(below)
        if not self._files.exists(start):
            return []
        found, listed = list[DataFile](), self._files.listFiles(start, True)
        while listed.hasNext():
            status = listed.next()
            url = status.getPath().toUri().toString()
            if not any([part.startswith(_HIDDEN) for part in url[len(self.url) + 1 :].split("/")]):
                found.append(DataFile(url, status.getLen(), status.getModificationTime()))
        return found

    def names(self, below: str) -> list[str]:
        start = self._path(below)
        found = self._files.listStatus(start) if self._files.exists(start) else ()
        return [status.getPath().getName() for status in found]

    def read(self, name: str) -> str:
        stream = self._files.open(self._path(name))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        """Write a file that appears as a whole."""
        folder, _, last = name.rpartition("/")
        draft = self._path(f"{folder}/.{last}.tmp")
        stream = self._files.create(draft, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        if not self._files.rename(draft, self._path(name)):
            raise FileExistsError(name)

    def touch(self, file: DataFile, time: int) -> None:
        """Set the time of the last change, where the file system can."""
        self._files.setTimes(self._of(file.url), time, -1)

    def remove(self, files: list[DataFile]) -> None:
        """Remove files, and the directories that are empty then."""
        for file in files:
            gone = self._of(file.url)
            self._files.delete(gone, False)
            folder = gone.getParent()
            while folder.toUri().toString() != self.url and not self._files.listStatus(folder):
                self._files.delete(folder, False)
                folder = folder.getParent()

    def remove_named(self, name: str) -> None:
        self._files.delete(self._path(name), False)

    @property
    def _hadoop(self) -> Any:
        return self._jvm.org.apache.hadoop.fs

    def _path(self, below: str) -> Any:
        root = self._of(self.url)
        return self._hadoop.Path(root, below) if below else root

    def _of(self, url: str) -> Any:
        return self._hadoop.Path(self._jvm.java.net.URI(url))


_FOLDER = "_spark_metadata"
_VERSION = "v1"
_END = ".compact"  # the end of the name of a list that needs none before it
_KEPT = 20  # how many lists stay: a reader may be about to open an older one
_BATCH = "/batch="


class ArchiveList:
    def __init__(self, directory: ArchiveDirectory) -> None:
        self._directory = directory

    def begin(self) -> None:
        """Write the first list, so that readers see no batch that is not complete; and a new one after a move.

        The first one has all files that are there: an archive of an earlier version has no list.
        """
        numbers = self._numbers()
        if not numbers:
            self._write(0, self._directory.files())
        elif any([file != self._here(file) for file in self._read(numbers[-1])[:1]]):
            self.publish(lambda entries: entries)

    def entries(self) -> list[DataFile]:
        return [self._here(file) for file in self._read(self._numbers()[-1])]

    def publish(self, change: Callable[[list[DataFile]], list[DataFile]]) -> None:
        numbers = self._numbers()
        self._write(numbers[-1] + 1, change(self.entries()))
        for old in numbers[: 1 - _KEPT]:
            self._directory.remove_named(_name(old))

    def _numbers(self) -> list[int]:
        names = [name.removesuffix(_END) for name in self._directory.names(_FOLDER) if name.endswith(_END)]
        return sorted([int(name) for name in names if name.isdecimal()])

    def _read(self, number: int) -> list[DataFile]:
        version, *lines = self._directory.read(_name(number)).splitlines()
        assert version == _VERSION, version
        found = [json.loads(line) for line in lines]
        return [DataFile(entry["path"], entry["size"], entry["modificationTime"]) for entry in found]

    def _write(self, number: int, files: list[DataFile]) -> None:
        self._directory.write(_name(number), "\n".join([_VERSION, *[_line(file) for file in files]]))

    def _here(self, file: DataFile) -> DataFile:
        """A file of the list, where the archive is now: its directory may have been moved."""
        return file._replace(url=self._directory.url + file.url[file.url.rindex(_BATCH) :])


def _name(number: int) -> str:
    return f"{_FOLDER}/{number}{_END}"


def _line(file: DataFile) -> str:
    entry = {
        "path": file.url, "size": file.size, "isDir": False, "modificationTime": file.modified, "blockReplication": 1,
        "blockSize": max(file.size, 1), "action": "add",
    }  # fmt: skip
    return json.dumps(entry)


HEADER = "headers."  # what precedes the name of a header among the columns
_SAMPLE, _SAMPLE_BYTES = 1000, 4 << 20
"""How much of each task is looked at to estimate the size of a row: so many rows, and so many bytes of them."""

_ROW_NUMBER = (1 << 33) - 1  # the bits of ``monotonically_increasing_id`` that count the rows of a task
_ORDER = ("partition", "offset", "position")  # what files are sorted by, as far as their rows have it
_TIMES = ("timestamp", "time")

_NAME_BYTES = 255  # how long the name of a directory may be, in bytes: ``NAME=VALUE``
_ESCAPED = r"[\x01-\x1f\x7f\"#%'*/:=?\\{\[\]^]"
"""The characters that Spark writes as three."""

_HASH, _SHOWN = 16, 40
"""How many characters of a hash stand for the end of a long value, and how many of a value an error shows."""

_ROW = ("destination", "partition", "offset", "position")
"""What tells a row from others in an error, as far as rows have it."""


@dataclass(frozen=True, slots=True)
class Layout:
    """By which columns files are divided, as users write them, and the target size of a file in bytes."""

    columns: tuple[str, ...] = ("destination", "day")
    file_size: int = 128 * 1024 * 1024

    @property
    def names(self) -> list[str]:
        return [column.removeprefix(HEADER) for column in self.columns]

    def divided(self, rows: DataFrame) -> DataFrame:
        for column, name in zip(self.columns, self.names, strict=True):
            if column in rows.columns and column != "batch":
                if isinstance(rows.schema[column].dataType, StringType):
                    rows = rows.withColumn(column, _refused(rows, column))
                continue
            if name.lower() in ["batch", *[known.lower() for known in rows.columns]]:
                text = f"the archive cannot be partitioned by {column}: there is another column {name}"
                raise InvalidArgument(text, column=column)
            rows = rows.withColumn(name, _computed(rows, column))
        return rows

    def arranged(self, rows: DataFrame) -> DataFrame:
        """The rows of ``divided``, so gathered and sorted that each task writes one file of the target size."""
        rows.sparkSession.conf.set("spark.sql.adaptive.advisoryPartitionSizeInBytes", f"{self.file_size}b")
        gathered = rows.hint("rebalance", *[F.col(name) for name in self.names])
        return gathered.sortWithinPartitions(*self.names, *order_of(rows))

    def rows_per_file(self, rows: DataFrame) -> int:
        """How many rows make a file of the target size, by the first ones of each task; 0 if there are none.

        A task may have more rows than that. The rows stay in the tasks: bodies may be larger than the driver's heap.
        """
        context = rows.sparkSession.sparkContext
        number = F.monotonically_increasing_id().bitwiseAND(F.lit(_ROW_NUMBER))
        sizes = rows.where(number < _SAMPLE).mapInArrow(_sizes, "rows bigint, bytes bigint")
        context.setLocalProperty(SAMPLE, str(_SAMPLE_BYTES))
        try:
            [(count, size)] = sizes.agg(F.sum("rows"), F.sum("bytes")).collect()
        finally:
            context.setLocalProperty(SAMPLE, "")
        return max(1, int(self.file_size * count / size)) if count else 0


def _sizes(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    count = size = looked = 0
    for batch in batches:
        # The others are read and left alone: a writer that is not read to its end has a broken pipe.
        if batch.num_rows and looked < _SAMPLE_BYTES:
            file = pa.BufferOutputStream()
            pq.write_table(pa.table(batch), file, compression="snappy")
            count, size, looked = count + batch.num_rows, size + file.getvalue().size, looked + batch.nbytes
    yield pa.record_batch({"rows": [count], "bytes": [size]})


def order_of(rows: DataFrame) -> list[str]:
    return [name for name in _ORDER if name in rows.columns]


def _shortened(header: str) -> Column:
    """A header as the name of a directory: a value that is too long has a hash in the place of its end.

    The column ``headers`` has all of it.
    """
    value = F.try_element_at("headers", F.lit(header))
    # A character has up to four bytes, or up to three in its escaped form.
    beginning = F.substring(value, 1, (_room(header) - len("...") - _HASH) // 4)
    short = F.concat(beginning, F.lit("..."), F.substring(F.sha2(value, 256), 1, _HASH))
    return F.when(_is_too_long(header, value), short).otherwise(value)


def _refused(rows: DataFrame, column: str) -> Column:
    """A column of the rows as the name of a directory, which is where its value is kept: it cannot be shortened."""
    where = [F.concat(F.lit(f"{name} "), F.col(name).cast("string")) for name in _ROW if name in rows.columns]
    shown = F.regexp_replace(F.substring(column, 1, _SHOWN), r"\p{Cntrl}", "?")
    text = F.concat(
        F.lit("\nquire.errors.InvalidArgument: the archive cannot be partitioned by "),
        F.lit(f"{column}: the value "), shown, F.lit("..., of "), F.concat_ws(", ", *where),
        F.lit(", is too long for the name of a directory. Choose another column for --partition-by "),
        F.lit(f"[{InvalidArgument.code}]\n"),
    )  # fmt: skip
    return F.when(_is_too_long(column, F.col(column)), F.raise_error(text)).otherwise(F.col(column))


def _is_too_long(name: str, value: Column) -> Column:
    escapes = 2 * F.regexp_count(value, F.lit(_ESCAPED))
    return (F.octet_length(value) + escapes > _room(name)) | F.contains(value, F.lit("\0"))


def _room(name: str) -> int:
    """How many bytes a value may have in the name of a directory."""
    return _NAME_BYTES - len(f"{name}=".encode())


def _computed(rows: DataFrame, column: str) -> Column:
    if column.startswith(HEADER) and "headers" in rows.columns:
        return _shortened(column.removeprefix(HEADER))
    time = next((name for name in _TIMES if name in rows.columns), None)
    if column == "day" and time:
        return F.to_date(time)
    if column == "hour" and time:
        return F.hour(time)
    allowed = ", ".join(["day", "hour", *rows.columns, *([f"{HEADER}NAME"] if "headers" in rows.columns else [])])
    raise InvalidArgument(f"there is no column {column} to partition by; there are {allowed}", column=column)


COMPACTED = "batch=-1"  # where compacted files are
KEEP_MS = 3_600_000  # how long replaced files stay: a reader that began before may still read them
_STEP = 8  # how many files of the target size one step writes at the most


LANE = ("destination", "partition")  # what offsets count in


class Archive:
    """Adds to an archive in a directory; ``written`` counts the rows, ``merged`` the files that were compacted.

    With ``is_daily`` a stream compacts behind the first batch of each day.
    """

    def __init__(
        self, spark: SparkSession, directory: str, layout: Layout | None = None, clock: Clock | None = None, *,
        is_daily: bool = False,
    ) -> None:  # fmt: skip
        self._spark = spark
        self._directory = directory.rstrip("/")
        self._layout = layout or Layout()
        self._clock = clock or SystemClock()
        self._files = ArchiveDirectory(spark, self._directory)
        self._list = ArchiveList(self._files)
        # Readers of Parquet pass over names that begin with an underscore.
        self._checkpoint = f"{self._directory}/_checkpoint"
        self._marks = f"{self._directory}/_marks"
        self._is_daily = is_daily
        self._compacted_on = ""
        self.written = self.merged = 0

    def start(self, rows: DataFrame, every: float | None = None) -> StreamingQuery:
        """Archive a stream, from where the last query ended; every so many seconds, or with None to its end."""
        if is_there(self._spark, self._marks):
            raise self._mixed("was written by batch reads")
        self._begin()
        return start_batches(rows, self.write, self._checkpoint, every)

    def add(self, rows: DataFrame) -> None:
        """Archive the messages of a batch read that are newer than those archived before."""
        if is_there(self._spark, f"{self._checkpoint}/metadata"):
            raise self._mixed("was written by streaming reads")
        if missing := {*LANE, "offset"} - set(rows.columns):
            text = f"a batch read is archived by offset, and lacks {', '.join(sorted(missing))}: use a streaming read"
            raise InvalidArgument(text, missing=sorted(missing))
        self._begin()
        number, marks = 0, read_or_none(self._spark, self._marks)
        if marks is not None:
            last = marks.agg(F.max("batch")).first()
            assert last is not None
            number = last[0] + 1
            rows = newer(rows, marks)
        self.write(rows, number)
        archived = read_or_none(self._spark, f"{self._directory}/batch={number}")
        if archived is not None:
            # The mark comes last: a batch without one is done again.
            highest = archived.groupBy(*LANE).agg(F.max("offset").alias("offset"))
            highest.coalesce(1).write.mode("overwrite").parquet(f"{self._marks}/batch={number}")

    def write(self, rows: DataFrame, number: int) -> None:
        """Write a batch, and put its files into the list, in place of what an earlier try left of it."""
        rows = self._layout.divided(rows)
        if limit := self._layout.rows_per_file(rows):
            self._write(rows, number, limit)
        today = self._today()
        if self._is_daily and today != self._compacted_on:
            self.compact()
            self._compacted_on = today

    def _write(self, rows: DataFrame, number: int, limit: int) -> None:
        counted = Observation()
        rows = self._layout.arranged(rows.observe(counted, F.count("*").alias("rows")))
        batch = f"batch={number}"
        left = self._files.files(batch)
        writer = rows.write.mode("append").options(maxRecordsPerFile=limit, **LARGE_ROWS)
        writer.partitionBy(*self._layout.names).parquet(f"{self._directory}/{batch}")
        old = {file.url for file in left}
        new = [file for file in self._files.files(batch) if file.url not in old]
        self._list.publish(lambda entries: [*[file for file in entries if file.url not in old], *new])
        self._files.remove(left)
        self.written += counted.get["rows"]

    def compact(self) -> None:
        """Merge the small files of closed days. Each step writes new files and then replaces the list.

        A process that is killed before the list is replaced leaves files that are in no list, which a later run
        removes. The files of the latest batch are left alone: a killed run may have to write that batch again.
        """
        self._begin()
        self._sweep()
        for folder, small in self._steps():
            self._merge(folder, small)
            self.merged += len(small)

    def _sweep(self) -> None:
        """Remove the files that have not been in the list for a while."""
        known = {file.url for file in self._list.entries()}
        before = self._clock.now_ms() - KEEP_MS
        unlisted = [file for file in self._files.files() if file.url not in known]
        self._files.remove([file for file in unlisted if file.modified < before])

    def _steps(self) -> Iterator[tuple[str, list[DataFile]]]:
        """The small files to merge, with the directory inside the batch that they are in."""
        entries = self._list.entries()
        latest = max([self._batch_of(file) for file in entries], default=-1)
        groups: dict[str, list[DataFile]] = {}
        for file in entries:
            folder = "/".join(self._below(file).split("/")[1:-1])
            if file.size < self._layout.file_size // 2 and self._batch_of(file) != latest and self._is_closed(folder):
                groups.setdefault(folder, []).append(file)
        for folder, files in sorted(groups.items()):
            step, size = list[DataFile](), 0
            for file in sorted(files, key=self._batch_of):
                step.append(file)
                size += file.size
                if size >= _STEP * self._layout.file_size:
                    yield folder, step
                    step, size = [], 0
            if len(step) > 1:
                yield folder, step

    def _merge(self, folder: str, small: list[DataFile]) -> None:
        rows = self._spark.read.option("mergeSchema", "true").parquet(*[file.path for file in small])
        number = -(-sum(file.size for file in small) // self._layout.file_size)
        order = order_of(rows)
        if number == 1:
            rows = rows.coalesce(1)
        else:
            rows = rows.repartitionByRange(number, *order) if order else rows.repartition(number)
        target = f"{COMPACTED}/{folder}"
        before = set(self._files.files(target))
        writer = rows.sortWithinPartitions(*order) if order else rows
        writer.write.mode("append").options(**LARGE_ROWS).parquet(f"{unquote(self._files.url)}/{target}")
        new = [file for file in self._files.files(target) if file not in before]
        for file in small:
            self._files.touch(file, self._clock.now_ms())
        gone = {file.url for file in small}
        self._list.publish(lambda entries: [*[file for file in entries if file.url not in gone], *new])

    def _batch_of(self, file: DataFile) -> int:
        return int(self._below(file).partition("/")[0].removeprefix("batch="))

    def _below(self, file: DataFile) -> str:
        return file.path[len(unquote(self._files.url)) + 1 :]

    def _is_closed(self, folder: str) -> bool:
        today = self._today()
        return any([part.startswith("day=") and part.removeprefix("day=") < today for part in folder.split("/")])

    def _today(self) -> str:
        return time_text(self._clock.now_ms())[:10]

    def _begin(self) -> None:
        """Check that the files are divided as before, and let readers follow the list."""
        for file in self._files.files()[:1]:
            parts = file.path.split("/batch=")[-1].split("/")[1:-1]
            if (names := [part.partition("=")[0] for part in parts]) != self._layout.names:
                text = f"the archive {self._directory} is partitioned by {', '.join(names)}, and stays so"
                raise InvalidArgument(f"{text}: choose another directory", directory=self._directory)
        self._list.begin()

    def _mixed(self, was: str) -> InvalidArgument:
        text = f"the archive {self._directory} {was}, which count offsets differently: choose another directory"
        return InvalidArgument(text, directory=self._directory)


def newer(rows: DataFrame, marks: DataFrame) -> DataFrame:
    """The messages above the archived offsets of their lane (``marks``): offsets ascend in the order of commits."""
    last = marks.groupBy(*LANE).agg(F.max("offset").alias("last"))
    known = rows.join(F.broadcast(last), [*LANE], "left")
    return known.where(F.col("last").isNull() | (F.col("offset") > F.col("last"))).select(*rows.columns)
