"""An archive: Parquet files of each batch in ``batch=N``, by destination and day; a repeated batch replaces them."""

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from quire.errors import InvalidArgument
from quire.spark.pipelines.files import is_there, read_or_none, start_batches

LANE = ("destination", "partition")
"""What offsets count in."""


class Archive:
    """Adds to an archive in a directory; ``written`` counts the rows."""

    def __init__(self, spark: SparkSession, directory: str) -> None:
        self._spark = spark
        self._directory = directory.rstrip("/")
        # Readers of Parquet pass over names that begin with an underscore.
        self._checkpoint = f"{self._directory}/_checkpoint"
        self._marks = f"{self._directory}/_marks"
        self.written = 0

    def start(self, rows: DataFrame, every: float | None = None) -> StreamingQuery:
        """Archive a stream, from where the last query ended; every so many seconds, or with None to its end."""
        if is_there(self._spark, self._marks):
            raise self._mixed("was written by batch reads")
        return start_batches(rows, self.write, self._checkpoint, every)

    def add(self, rows: DataFrame) -> None:
        """Archive the messages of a batch read that are newer than those archived before."""
        if is_there(self._spark, f"{self._checkpoint}/metadata"):
            raise self._mixed("was written by streaming reads")
        if missing := {*LANE, "offset"} - set(rows.columns):
            text = f"a batch read is archived by offset, and lacks {', '.join(sorted(missing))}: use a streaming read"
            raise InvalidArgument(text, missing=sorted(missing))
        number, marks = 0, read_or_none(self._spark, self._marks)
        if marks is not None:
            last = marks.agg(F.max("batch")).first()
            assert last is not None
            number = last[0] + 1
            rows = newer(rows, marks)
        batch = f"{self._directory}/batch={number}"
        self.write(rows, number)
        archived = read_or_none(self._spark, batch)
        if archived is not None:
            # The mark comes last: a batch without one is done again.
            highest = archived.groupBy(*LANE).agg(F.max("offset").alias("offset"))
            highest.coalesce(1).write.mode("overwrite").parquet(f"{self._marks}/batch={number}")

    def write(self, rows: DataFrame, number: int) -> None:
        """Write a batch, in place of what an earlier try left of it."""
        time = "timestamp" if "timestamp" in rows.columns else "time"
        counted = Observation()
        rows = rows.withColumn("day", F.to_date(time)).observe(counted, F.count("*").alias("rows"))
        rows.write.mode("overwrite").partitionBy("destination", "day").parquet(f"{self._directory}/batch={number}")
        self.written += counted.get["rows"]

    def _mixed(self, was: str) -> InvalidArgument:
        text = f"the archive {self._directory} {was}, which count offsets differently: choose another directory"
        return InvalidArgument(text, directory=self._directory)


def newer(rows: DataFrame, marks: DataFrame) -> DataFrame:
    """The messages above the archived offsets of their lane (``marks``): offsets ascend in the order of commits."""
    last = marks.groupBy(*LANE).agg(F.max("offset").alias("last"))
    known = rows.join(F.broadcast(last), [*LANE], "left")
    return known.where(F.col("last").isNull() | (F.col("offset") > F.col("last"))).select(*rows.columns)
