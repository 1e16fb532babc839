"""Which files an archive has: a list in the form that Spark's file sink writes and Spark's readers follow.

A reader of Spark that finds the list reads the files in it and no others. A new list replaces the last one at once. So
a reader sees a batch, or a compaction, as a whole or not at all.
"""

import json
from collections.abc import Callable

from quire.spark.pipelines.archive_directory import ArchiveDirectory, DataFile

_FOLDER = "_spark_metadata"
_VERSION = "v1"
_END = ".compact"
"""The end of the name of a list that needs none before it."""

_KEPT = 20
"""How many lists stay: a reader may be about to open an older one."""

_BATCH = "/batch="


class ArchiveList:
    """The list of an archive's files."""

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
        """The files of the archive."""
        return [self._here(file) for file in self._read(self._numbers()[-1])]

    def publish(self, change: Callable[[list[DataFile]], list[DataFile]]) -> None:
        """Replace the list."""
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
