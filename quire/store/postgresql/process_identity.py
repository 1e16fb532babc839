"""Which process of which machine the owner is: a broker on the same machine need not wait for a dead one's lease.

A boot of a kernel has an id, each container a namespace of process ids, and a process the time of its start: a text of
all these with the process's id is never used again. Where there is no ``/proc``, the lease decides alone.
"""

import os
from pathlib import Path

_PROC = Path("/proc")
_ENDED = ("Z", "X")


def own() -> str:
    """This process; an empty text where that cannot be told."""
    try:
        return f"{_machine()} {os.getpid()} {_stat(os.getpid())[1]}"
    except (OSError, ValueError):
        return ""


def is_dead(process: str) -> bool:
    """Whether a process of this machine has ended. Of other machines, and of none, it is not known."""
    try:
        *machine, pid, started = process.split()
        if " ".join(machine) != _machine():
            return False
        os.kill(int(pid), 0)  # finds what /proc may hide, those of other users
        state, start = _stat(int(pid))
    except ProcessLookupError:
        return True
    except (OSError, ValueError):
        return False
    return state in _ENDED or start != started


def _machine() -> str:
    """The boot of this machine, and the namespace of its process ids."""
    return f"{(_PROC / 'sys/kernel/random/boot_id').read_text('ascii').strip()} {os.readlink(_PROC / 'self/ns/pid')}"


def _stat(pid: int) -> tuple[str, str]:
    """The state of a process, and when it started."""
    fields = (_PROC / str(pid) / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    return fields[0], fields[19]
