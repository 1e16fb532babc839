"""A Spark of its own that reads a stream some times: ``python -m benchmarks.pipeline.reading``.

It takes a ``Reading`` as JSON from its standard input, and writes a ``Run`` as JSON in a line for each time.
"""

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession

import quire.spark
from benchmarks.pipeline.processors import Tree, machine_seconds, tree
from quire.clock import SystemClock

COLUMNS = ("key", "value", "partition", "offset", "timestamp")
"""What both sources have, and what is read of them."""


class Reading(msgspec.Struct, frozen=True):
    """What is read, how often, and where to."""

    source: str  # the format
    options: dict[str, str]
    sink: str  # ``parquet`` or ``noop``
    runs: int
    cores: int
    directory: str  # for files and checkpoints
    server: int  # the process id of the broker that is read
    jars: str = ""
    copy_to: dict[str, str] | None = None  # options of Kafka's sink: then the stream is copied to a topic, once


class Run(msgspec.Struct, frozen=True):
    """How long it took, in seconds, and what it took of the processors, in seconds."""

    rows: int
    elapsed: float
    java: float
    python: float
    server: float
    bulk: list[float]  # each process of the bulk server
    machine: float  # everything on the machine, other work too


class _Meter(msgspec.Struct, frozen=True):
    """What was used up to now."""

    spark: Tree
    server: Tree
    machine: float

    @classmethod
    def now(cls, java: int, server: int) -> "_Meter":
        return cls(tree(java), tree(server), machine_seconds())

    def since(self, before: "_Meter", rows: int, elapsed: float) -> Run:
        python, bulk = _used(self.spark, before.spark), _used(self.server, before.server)
        return Run(
            rows, elapsed, self.spark.own - before.spark.own, sum(python), self.server.own - before.server.own, bulk,
            self.machine - before.machine,
        )  # fmt: skip


def _used(now: Tree, before: Tree) -> list[float]:
    """What each process that a process has started has used meanwhile; nothing for those that have ended."""
    used = [seconds - before.others.get(pid, 0.0) for pid, seconds in now.others.items()]
    return [seconds for seconds in used if seconds > 0]


def main() -> None:
    """Do what the standard input says."""
    reading = msgspec.json.decode(sys.stdin.buffer.read(), type=Reading)
    spark = _session(reading)
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    java = gateway.proc.pid
    for number in range(reading.runs):
        before, began = _Meter.now(java, reading.server), SystemClock().monotonic()
        rows = _copy(spark, reading) if reading.copy_to else _run(spark, reading, Path(reading.directory, str(number)))
        elapsed = SystemClock().monotonic() - began
        run = _Meter.now(java, reading.server).since(before, rows, elapsed)
        sys.stdout.buffer.write(msgspec.json.encode(run) + b"\n")
        sys.stdout.buffer.flush()
    spark.stop()


def _session(reading: Reading) -> SparkSession:
    settings: dict[str, Any] = {"spark__ui__enabled": "false", "spark__ui__showConsoleProgress": "false"}
    if reading.jars:
        settings["spark__jars"] = reading.jars
    spark = quire.spark.session(reading.cores, "2g", **settings)
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _run(spark: SparkSession, reading: Reading, directory: Path) -> int:
    """Read what the stream has in one query; how many rows it wrote."""
    source = spark.readStream.format(reading.source).options(**reading.options).load().select(*COLUMNS)
    sink: Any = source.writeStream.format(reading.sink).trigger(availableNow=True)
    sink = sink.option("checkpointLocation", f"{directory}/checkpoint")
    if reading.sink == "parquet":
        sink = sink.option("path", f"{directory}/files")
    query = sink.start()
    query.awaitTermination()
    rows: int = sum([progress["numInputRows"] for progress in query.recentProgress])
    if reading.sink == "parquet":
        written = spark.read.parquet(f"{directory}/files").count()
        assert written == rows, f"{rows} rows were read and {written} written"
    shutil.rmtree(directory)
    return rows


def _copy(spark: SparkSession, reading: Reading) -> int:
    """Copy a stream with its partitions to a topic of Kafka."""
    assert reading.copy_to is not None
    messages: DataFrame = spark.read.format(reading.source).options(**reading.options).load()
    messages.select("key", "value", "partition").write.format("kafka").options(**reading.copy_to).save()
    return 0


if __name__ == "__main__":
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    main()
