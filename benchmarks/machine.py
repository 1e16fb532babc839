"""What a measurement ran on."""

import os
import platform
from importlib.metadata import version
from pathlib import Path

from quire import __version__

PACKAGES = ("lmdb", "SQLAlchemy", "uvloop")
"""What the speed depends on, beside Python."""


def machine() -> str:
    """The machine, in a line: processor, cores, kernel."""
    return f"{_processor()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}"


def versions() -> str:
    """Quire's version, Python's, and those of what the speed depends on."""
    others = [f"{name} {version(name)}" for name in PACKAGES]
    return ", ".join([f"Quire {__version__}", f"Python {platform.python_version()}", *others])


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()
