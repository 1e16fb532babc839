"""What processes have used of the processors so far, in seconds: their trees, and the whole machine."""

import os
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_TICKS = os.sysconf("SC_CLK_TCK")


class _Process(NamedTuple):
    """What ``/proc`` says of a process: its parent, its own seconds, and those of children that have ended."""

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
    """What all processes together have used, and the system."""
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
