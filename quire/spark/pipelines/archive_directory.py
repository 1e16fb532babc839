"""The files of an archive's directory, on any file system that Spark knows."""

from typing import Any, NamedTuple
from urllib.parse import unquote

from pyspark.sql import SparkSession

_HIDDEN = ("_", ".")
"""How the names begin that readers of Parquet pass over."""


class DataFile(NamedTuple):
    """A file: its path as a URL, its size in bytes, when it was changed, in milliseconds since the epoch."""

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
        """All files but hidden ones, in a directory below this one too."""
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
        """The names in a directory."""
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
        """The path of what is below, by its name as it is on disk."""
        root = self._of(self.url)
        return self._hadoop.Path(root, below) if below else root

    def _of(self, url: str) -> Any:
        return self._hadoop.Path(self._jvm.java.net.URI(url))
