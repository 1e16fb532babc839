"""A small file system that can be filled to the last byte."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_STEPS = (1 << 20, 4096, 1)


class CannotMount(Exception):
    """No file system can be mounted here; mostly because this is not root."""


class SmallDisk:
    """A file system of its own.

    Args:
        path: where it is mounted.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ballast = path / "ballast"

    @property
    def free(self) -> int:
        """How many bytes are free."""
        found = os.statvfs(self.path)
        return found.f_bavail * found.f_frsize

    def fill(self, leave: int = 0) -> None:
        """Write a file until no more than so many bytes are free; what is in it already stays."""
        with self._ballast.open("ab", buffering=0) as file:
            for step in _STEPS:
                with suppress(OSError):
                    while self.free > leave and file.write(bytes(min(step, max(self.free - leave, 1)))):
                        pass

    def empty(self) -> None:
        """Remove that file."""
        self._ballast.unlink()


@contextmanager
def mounted(path: Path, size: str) -> Iterator[SmallDisk]:
    """Mount a small file system.

    Args:
        path: where; it is made.
        size: how large: ``64m`` say.

    Raises:
        CannotMount: it cannot be mounted.
    """
    path.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", f"size={size}", "quire-test", str(path)]
    done = subprocess.run(mounting, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotMount(done.stderr.strip())
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)
