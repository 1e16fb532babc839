"""What is shown while Spark works: how many tasks of its stages are done, and how far its streams are."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

INTERVAL = 0.5
"""How often Spark is asked, in seconds."""


@contextmanager
def live(spark: SparkSession, text: str) -> Iterator[None]:
    """Show a line on standard error while the context lasts, if that is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    ended = Event()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        watcher = Thread(target=_watch, args=(spark, text, bar, ended), name="quire-live")
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()


def _watch(spark: SparkSession, text: str, bar: Progress, ended: Event) -> None:
    task = bar.add_task(text, total=None)
    # The thread that waits for Spark reports its end.
    with suppress(ConnectionError, Py4JError):
        while not ended.wait(INTERVAL):
            done, total = _tasks(spark)
            bar.update(task, description=", ".join([text, *_streams(spark)]), completed=done, total=total or None)


def _tasks(spark: SparkSession) -> tuple[int, int]:
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    # A stage may end between the two questions.
    running = [stage for stage in stages if stage is not None]
    return sum(stage.numCompletedTasks for stage in running), sum(stage.numTasks for stage in running)


def _streams(spark: SparkSession) -> list[str]:
    texts = []
    for query in spark.streams.active:
        if progress := query.lastProgress:
            rate = progress.processedRowsPerSecond or 0.0
            texts.append(f"batch {progress.batchId}: {progress.numInputRows} rows, {rate:.0f}/s")
    return texts
