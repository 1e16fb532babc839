"""Compaction of an archive: the small files of closed days become files of the target size."""

from collections.abc import Iterator
from urllib.parse import unquote

from pyspark.sql import SparkSession

from quire.clock import Clock, SystemClock
from quire.spark.pipelines.archive_directory import ArchiveDirectory, DataFile
from quire.spark.pipelines.archive_layout import Layout, order_of
from quire.spark.pipelines.archive_list import ArchiveList
from quire.spark.pipelines.files import LARGE_ROWS
from quire.spark.pipelines.printing import time_text

COMPACTED = "batch=-1"
"""Where compacted files are."""

KEEP_MS = 3_600_000
"""How long replaced files stay: a reader that began before may still read them."""

_STEP = 8
"""How many files of the target size one step writes at the most."""


class Compaction:
    """Merges small files. Each step writes new files and then replaces the list; ``merged`` counts the small files.

    A process that is killed before the list is replaced leaves files that are in no list, which a later run removes.
    The files of the latest batch are left alone: a killed run may have to write that batch again.
    """

    def __init__(
        self, spark: SparkSession, directory: ArchiveDirectory, layout: Layout, clock: Clock | None = None
    ) -> None:
        self._spark = spark
        self._directory = directory
        self._list = ArchiveList(directory)
        self._layout = layout
        self._clock = clock or SystemClock()
        self.merged = 0

    def run(self) -> None:
        self._sweep()
        for folder, small in self._steps():
            self._merge(folder, small)
            self.merged += len(small)

    def _sweep(self) -> None:
        """Remove the files that have not been in the list for a while."""
        known = {file.url for file in self._list.entries()}
        before = self._clock.now_ms() - KEEP_MS
        unlisted = [file for file in self._directory.files() if file.url not in known]
        self._directory.remove([file for file in unlisted if file.modified < before])

    def _steps(self) -> Iterator[tuple[str, list[DataFile]]]:
        """The small files to merge, with the directory inside the batch that they are in."""
        entries = self._list.entries()
        latest = max([self._batch_of(file) for file in entries], default=-1)
        groups: dict[str, list[DataFile]] = {}
        for file in entries:
            folder = self._folder_of(file)
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
        before = set(self._directory.files(target))
        writer = rows.sortWithinPartitions(*order) if order else rows
        writer.write.mode("append").options(**LARGE_ROWS).parquet(f"{unquote(self._directory.url)}/{target}")
        new = [file for file in self._directory.files(target) if file not in before]
        for file in small:
            self._directory.touch(file, self._clock.now_ms())
        gone = {file.url for file in small}
        self._list.publish(lambda entries: [*[file for file in entries if file.url not in gone], *new])

    def _batch_of(self, file: DataFile) -> int:
        return int(self._below(file).partition("/")[0].removeprefix("batch="))

    def _folder_of(self, file: DataFile) -> str:
        """The directories between the batch and the file, as they are on disk."""
        return "/".join(self._below(file).split("/")[1:-1])

    def _below(self, file: DataFile) -> str:
        return file.path[len(unquote(self._directory.url)) + 1 :]

    def _is_closed(self, folder: str) -> bool:
        today = time_text(self._clock.now_ms())[:10]
        return any([part.startswith("day=") and part.removeprefix("day=") < today for part in folder.split("/")])
