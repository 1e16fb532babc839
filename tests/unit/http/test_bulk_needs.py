"""What bulk reads need beside the broker: pyarrow alone, and an error that says how to install it."""

import subprocess
import sys

import msgspec
import pytest

from quire.http.bulk.readers import Announcement, Instructions

pytestmark = pytest.mark.slow

READ = """
from quire.http.bulk import bulk_server
from quire.arrow.lanes import COLUMNS
from quire.arrow.lanes import Records
print(Records([], "stream://events", 0).batch(list(COLUMNS)).num_columns == len(COLUMNS))
"""
SERVE = "from quire.http.bulk.__main__ import main; sys.exit(main())"
"""What a broker starts."""


def run_without(missing: list[str], program: str, line: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run a program in which some packages cannot be imported."""
    program = f"import sys; sys.modules.update(dict.fromkeys({missing!r})); exec({program!r})"
    return subprocess.run(
        [sys.executable, "-c", program], input=line + b"\n", capture_output=True, timeout=60, check=False
    )


def test_pyarrow_is_enough() -> None:
    done = run_without(["numpy", "pandas", "pyspark"], READ)
    assert done.stdout == b"True\n", done.stderr


def test_without_it_the_error_has_the_command() -> None:
    instructions = Instructions("lmdb:///nowhere", "127.0.0.1:0", "secret", 1.0, "json", "info")
    done = run_without(["pyarrow"], SERVE, msgspec.json.encode(instructions))
    error = msgspec.json.decode(done.stdout, type=Announcement).error
    assert error is not None
    assert error.text.endswith(f"run there {sys.executable} -m pip install 'pyarrow>=18'")
    assert (error.code, done.returncode != 0) == ("unsupported-environment", True)
