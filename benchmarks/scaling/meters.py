"""What processes and the loopback interface have taken so far, as Linux counts it."""

import os
import resource
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_TICKS = os.sysconf("SC_CLK_TCK")


class _Process(NamedTuple):
    """A process: its parent, its group, seconds of processor of its threads, and of children that have ended."""

    parent: int
    group: int
    own: float
    ended: float


def _processes() -> dict[int, _Process]:
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            # The name of the process, in brackets, may have spaces.
            fields = (path / "stat").read_text().rpartition(")")[2].split()
            own = sum([int(task.read_text().split()[0]) for task in path.glob("task/*/schedstat")])
            ended = int(fields[13]) + int(fields[14])
            found[int(path.name)] = _Process(int(fields[1]), int(fields[2]), own / 1e9, ended / _TICKS)
    return found


def group_seconds(group: int) -> float:
    """Seconds of processor of a process group, with those of its processes that have ended."""
    return sum([process.own + process.ended for process in _processes().values() if process.group == group])


def family_seconds(pid: int) -> float:
    """Seconds of processor of a process and all its children."""
    processes = _processes()
    children = [process.own for process in processes.values() if process.parent == pid]
    return processes[pid].own + processes[pid].ended + sum(children)


def client_seconds() -> float:
    """Seconds of processor of this process, and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum([one.ru_utime + one.ru_stime for one in used])


def loopback_bytes() -> float:
    """Bytes that the loopback interface has carried."""
    return float(Path("/sys/class/net/lo/statistics/rx_bytes").read_text())


def own_memory(pid: int) -> float:
    """Bytes of memory that are a process's own."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (kilobytes,) = [line.split()[1] for line in lines if line.startswith("RssAnon:")]
    return float(kilobytes) * 1024


def pin(pid: int, cores: set[int]) -> None:
    """Have all threads of a process, and those that it will start, run on these cores only."""
    for path in Path(f"/proc/{pid}/task").iterdir():
        with suppress(ProcessLookupError):
            os.sched_setaffinity(int(path.name), cores)


def group_members(group: int) -> list[int]:
    """The processes of a group."""
    return [pid for pid, process in _processes().items() if process.group == group]


def family_members(pid: int) -> list[int]:
    """A process and its children."""
    return [pid, *[child for child, process in _processes().items() if process.parent == pid]]
