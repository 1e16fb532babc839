"""An archive: Parquet files of each batch in ``batch=N``, and the list of them; a repeated batch replaces its files."""

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from quire.clock import Clock, SystemClock
from quire.errors import InvalidArgument
from quire.spark.pipelines.archive_compaction import Compaction
from quire.spark.pipelines.archive_directory import ArchiveDirectory
from quire.spark.pipelines.archive_layout import Layout
from quire.spark.pipelines.archive_list import ArchiveList
from quire.spark.pipelines.files import LARGE_ROWS, is_there, read_or_none, start_batches
from quire.spark.pipelines.printing import time_text

LANE = ("destination", "partition")
"""What offsets count in."""


class Archive:
    """Adds to an archive in a directory; ``written`` counts the rows, ``merged`` the files that were compacted.

    With ``is_daily`` a stream compacts behind the first batch of each day.
    """

    def __init__(
        self,
        spark: SparkSession,
        directory: str,
        layout: Layout | None = None,
        clock: Clock | None = None,
        *,
        is_daily: bool = False,
    ) -> None:
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
        today = time_text(self._clock.now_ms())[:10]
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
        """Merge the small files of closed days."""
        self._begin()
        compaction = Compaction(self._spark, self._files, self._layout, self._clock)
        compaction.run()
        self.merged += compaction.merged

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
