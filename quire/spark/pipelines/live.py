"""What people see while Spark works: how many tasks of its stages are done, and how far its streams are."""

import sys
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INTERVAL = 0.5
"""How often Spark is asked, in seconds."""


class Live:
    """A line on standard error while a block runs, if somebody sits there.

    Args:
        spark: the session.
        text: what is going on.
    """

    def __init__(self, spark: "SparkSession", text: str) -> None:
        self._spark = spark
        columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task(text, total=None)
        self._text = text
        self._ended = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="quire-live") if sys.stderr.isatty() else None

    def __enter__(self) -> Self:
        if self._watcher:
            self._bar.start()
            self._watcher.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._watcher:
            self._watcher.join()
            self._bar.stop()

    def _watch(self) -> None:
        while not self._ended.wait(INTERVAL):
            done, total = _tasks(self._spark)
            text = ", ".join([self._text, *_streams(self._spark)])
            self._bar.update(self._task, description=text, completed=done, total=total or None)


def _tasks(spark: "SparkSession") -> tuple[int, int]:
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    # A stage may end between the two questions.
    running = [stage for stage in stages if stage is not None]
    return sum(stage.numCompletedTasks for stage in running), sum(stage.numTasks for stage in running)


def _streams(spark: "SparkSession") -> list[str]:
    texts = []
    for query in spark.streams.active:
        if progress := query.lastProgress:
            rate = progress.processedRowsPerSecond or 0.0
            texts.append(f"batch {progress.batchId}: {progress.numInputRows} rows, {rate:.0f}/s")
    return texts
