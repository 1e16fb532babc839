"""A Spark of its own that reads a stream some times: ``python -m benchmarks.pipeline.reading``.

It takes a ``Reading`` as JSON from its standard input, and writes a ``Run`` as JSON in a line for each time.
"""

import os
import shutil
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from pyspark.sql import DataFrame, SparkSession

import quire.spark
from quire.clock import SystemClock

_TICKS = os.sysconf("SC_CLK_TCK")


class _Process(NamedTuple):
    parent: int
    own: float
    ended: float


class Tree(NamedTuple):
    """A process and those that it has started, directly or not: its own seconds, and those of the others by process."""

    own: float
    others: dict[int, float]


def tree(root: int) -> Tree:
    """What a process and its descendants have used; with each are its children that have ended."""
    processes = dict(_processes())
    children = defaultdict(list)
    for pid, process in processes.items():
        children[process.parent].append(pid)
    found = {}
    left = list(children[root])
    while left:
        pid = left.pop()
        found[pid] = processes[pid].own + processes[pid].ended
        left += children[pid]
    return Tree(processes[root].own, found)


def machine_seconds() -> float:
    user, nice, system, _, _, interrupts, soft = map(int, Path("/proc/stat").read_text().split()[1:8])
    return (user + nice + system + interrupts + soft) / _TICKS


def _processes() -> list[tuple[int, _Process]]:
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            # The name, in brackets, may have spaces.
            fields = (path / "stat").read_text().rpartition(")")[2].split()
            user, system, ended_user, ended_system = map(int, fields[11:15])
            process = _Process(int(fields[1]), (user + system) / _TICKS, (ended_user + ended_system) / _TICKS)
            found.append((int(path.name), process))
    return found


COLUMNS = ("key", "value", "partition", "offset", "timestamp")
"""What both sources have, and what is read of them."""


class Reading(msgspec.Struct, frozen=True):
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
    rows: int
    elapsed: float
    java: float
    python: float
    server: float
    bulk: list[float]  # each process of the bulk server
    machine: float  # everything on the machine, other work too


class _Meter(msgspec.Struct, frozen=True):
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
    reading = msgspec.json.decode(sys.stdin.buffer.read(), type=Reading)
    spark = _session(reading)
    for run in runs(spark, reading):
        sys.stdout.buffer.write(msgspec.json.encode(run) + b"\n")
        sys.stdout.buffer.flush()
    spark.stop()


def runs(spark: SparkSession, reading: Reading) -> Iterator[Run]:
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    java = gateway.proc.pid
    for number in range(reading.runs):
        before, began = _Meter.now(java, reading.server), SystemClock().monotonic()
        rows = _copy(spark, reading) if reading.copy_to else _run(spark, reading, Path(reading.directory, str(number)))
        elapsed = SystemClock().monotonic() - began
        yield _Meter.now(java, reading.server).since(before, rows, elapsed)


def _session(reading: Reading) -> SparkSession:
    settings: dict[str, Any] = {"spark__ui__enabled": "false", "spark__ui__showConsoleProgress": "false"}
    if reading.jars:
        settings["spark__jars"] = reading.jars
    spark = quire.spark.session(reading.cores, "2g", **settings)
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _run(spark: SparkSession, reading: Reading, directory: Path) -> int:
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
    assert reading.copy_to is not None
    messages: DataFrame = spark.read.format(reading.source).options(**reading.options).load()
    messages.select("key", "value", "partition").write.format("kafka").options(**reading.copy_to).save()
    return 0


if __name__ == "__main__":
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    main()
