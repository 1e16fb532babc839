"""Processes of Spark, which starts its own below those that a test has started: found by their parents, ended by id."""

import contextlib
import os
import signal
from pathlib import Path
from typing import NamedTuple

EXECUTOR = "CoarseGrainedExecutorBackend"
PYTHON_WORKER = "pyspark.daemon"
"""What stands in the command lines of executors, and of the Python processes that they start."""


class Process(NamedTuple):
    """A process, which another one that gets its number later is not."""

    pid: int  # its number
    began: str  # when it began, in the system's ticks

    @property
    def command(self) -> str:
        return _read(Path(f"/proc/{self.pid}/cmdline")).replace("\0", " ")

    def kill(self) -> None:
        if _read(Path(f"/proc/{self.pid}/stat")).rpartition(")")[2].split()[_BEGAN:][:1] == [self.began]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


_PARENT, _BEGAN = 1, 19
"""Where in ``/proc/PID/stat`` these stand, behind the name."""


def descendants(pid: int) -> set[Process]:
    """The processes that a process has begun, and those that they have."""
    children: dict[int, list[Process]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and (stat := _read(entry / "stat")):
            fields = stat.rpartition(")")[2].split()
            children.setdefault(int(fields[_PARENT]), []).append(Process(int(entry.name), fields[_BEGAN]))
    found, unseen = set[Process](), [pid]
    while unseen:
        of_one = children.get(unseen.pop(), [])
        found.update(of_one)
        unseen += [child.pid for child in of_one]
    return found


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""
