"""The data source that Spark knows as ``quire``, and the sessions that know it."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from quire.errors import UnsupportedEnvironment
from quire.spark.options import Options, Use, explaining, wanted_headers
from quire.spark.reading import StreamReader, columns_of, read_schema, reader_class
from quire.spark.writing import BatchWriter, StreamWriter


class QuireDataSource(DataSource):
    """Messages as rows: ``spark.read.format("quire")``. A given schema names the columns to read."""

    @classmethod
    def name(cls) -> str:
        return "quire"

    def schema(self) -> StructType:
        with explaining():
            return read_schema(wanted_headers(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        with explaining():
            options = Options.of(self.options, Use.READ)
            return reader_class()(options, columns_of(schema, options.include_headers))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        with explaining():
            options = Options.of(self.options, Use.STREAM)
            return StreamReader(options, columns_of(schema, options.include_headers))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        with explaining():
            return BatchWriter(Options.of(self.options, Use.WRITE), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        with explaining():
            return StreamWriter(Options.of(self.options, Use.STREAM_WRITE), schema)


OLDEST_JAVA = 17  # Spark 4 runs on no older one
OLDEST_SPARK = (4, 2)  # the first version whose Python data sources can limit what a micro-batch reads
PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"
"""Spark's setting that lets a Python data source apply filters; off by default."""

BATCH_PARTITIONS = 16
"""How many partitions for each core the shuffle of a batch begins with; Spark then joins those that are small."""

BATCH_PARTITION_SIZE = "8m"
"""How large joined partitions become: these are compressed bytes, and a task holds many times as much."""

JOIN_CACHED = "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning"
"""Spark's setting that lets it join the small partitions of a cached result too; off by default."""

_JAVA_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


def register(spark: SparkSession, *, push_filters: bool = False) -> None:
    """Make the data source known to a session, which finds it by itself too where ``pyspark_quire`` is installed.

    Args:
        push_filters: whether filters on destination, partition, offset, time, priority and message id decide on what
            is read. Then use each DataFrame that ``load`` gives in one query, and there once: Spark 4.3 keeps the
            filters of its last use and applies them to the others as well, which gives wrong rows without a word. The
            options ``subscribe``, ``assign``, ``startingOffsets``, ``startingTimestamp`` and so on narrow a read
            without that.
    """
    _check_spark(spark.version)
    _check_java(_java_of(spark))
    if push_filters:
        spark.conf.set(PUSH_DOWN, "true")
    if not _is_known(spark):  # Spark warns of a second registration
        spark.dataSource.register(QuireDataSource)


def session(cores: int = 2, memory: str = "1g", *, push_filters: bool = False, **settings: str) -> SparkSession:
    """A session of this machine's own, with the data source registered.

    Args:
        cores: how many tasks run at once. Unless the settings say otherwise, a shuffle of a streaming query has as many
            partitions, and that of a batch begins with ``BATCH_PARTITIONS`` times as many.
        memory: the heap of the driver, in which the tasks run too.
        push_filters: as in ``register``.
        **settings: of Spark, with two underscores for each dot: ``spark__sql__shuffle__partitions="8"``.

    Raises:
        UnsupportedEnvironment: Java or Spark is missing or too old.
    """
    _check_spark(pyspark.__version__)
    _check_java(_installed_java())
    # Or Spark's workers run the first python3 on the PATH, which may be one without Quire.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.Builder().master(f"local[{cores}]").appName("quire").config("spark.driver.memory", memory)
    if "spark__sql__shuffle__partitions" not in settings:  # Spark's default of 200 is for clusters
        builder = builder.config("spark.sql.shuffle.partitions", cores)
        builder = builder.config("spark.sql.adaptive.coalescePartitions.initialPartitionNum", BATCH_PARTITIONS * cores)
        builder = builder.config(JOIN_CACHED, "true")
        builder = builder.config("spark.sql.adaptive.advisoryPartitionSizeInBytes", BATCH_PARTITION_SIZE)
    for name, value in settings.items():
        builder = builder.config(name.replace("__", "."), value)
    spark = builder.getOrCreate()
    register(spark, push_filters=push_filters)
    return spark


def _check_spark(version: str) -> None:
    if tuple([int(part) for part in re.findall(r"\d+", version)[:2]]) < OLDEST_SPARK:
        text = f"this is Spark {version}, and the data source needs 4.2 or later: install quire[spark]"
        raise UnsupportedEnvironment(text, spark=version)


def _check_java(version: int | None) -> None:
    if version is not None and version < OLDEST_JAVA:
        text = f"this is Java {version}: install Java {OLDEST_JAVA} or later, and set JAVA_HOME to its directory"
        raise UnsupportedEnvironment(text, java=version)


def _is_known(spark: SparkSession) -> bool:
    """Whether Spark has found the data source by itself; what a remote one has found (Spark Connect) is not known."""
    if _is_remote(spark):
        return False
    return bool(spark._jsparkSession.sessionState().dataSourceManager().dataSourceExists(QuireDataSource.name()))


def _is_remote(spark: SparkSession) -> bool:
    return type(spark).__module__.startswith("pyspark.sql.connect")


def _java_of(spark: SparkSession) -> int | None:
    """The version of the Java that a session runs on; None if it is on another machine (Spark Connect)."""
    if _is_remote(spark):
        return None
    machine = spark.sparkContext._jvm
    assert machine is not None
    version: str = machine.java.lang.System.getProperty("java.specification.version")
    return int(version.removeprefix("1."))


def _installed_java() -> int:
    """The version of the Java that a new session would run on."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    place = f"JAVA_HOME, which is {home}" if home else "the PATH"
    wrong = f"Spark needs Java {OLDEST_JAVA} or later, and there is none in {place}"
    try:
        # The program's name is the user's own setting.
        answer = subprocess.run([java or "java", "-version"], capture_output=True, text=True, check=True)  # noqa: S603
    except (OSError, subprocess.CalledProcessError) as error:
        raise UnsupportedEnvironment(f"{wrong}: {error}", java=java) from error
    found = _JAVA_VERSION.search(answer.stderr)
    if found is None:
        raise UnsupportedEnvironment(f"{wrong}: it printed {answer.stderr[:100]!r}", java=java)
    return int(found[1])
