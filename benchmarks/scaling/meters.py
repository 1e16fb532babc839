"""What processes and the loopback interface have taken so far, as Linux counts it."""

import os
import resource
from contextlib import suppress
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def process_seconds(pid: int) -> float:
    """Seconds of processor of the threads of a process."""
    return sum([int((path / "schedstat").read_text().split()[0]) for path in Path(f"/proc/{pid}/task").iterdir()]) / 1e9


def family_seconds(pid: int) -> float:
    """Seconds of processor of a process and its children, with those that have ended."""
    found = sum(map(int, _fields(pid)[13:15])) / _TICKS
    for member in family(pid):
        with suppress(OSError):  # it ends right now
            found += process_seconds(member)
    return found


def family(pid: int) -> list[int]:
    """A process and its children."""
    found = [pid]
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            if int(_fields(int(path.name))[1]) == pid:
                found.append(int(path.name))
    return found


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


def _fields(pid: int) -> list[str]:
    """What ``/proc`` says of a process after its name, which is in brackets and may have spaces."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
