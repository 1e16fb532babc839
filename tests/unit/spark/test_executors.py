"""What executors import: they have a Python, Spark and Quire's archive, and no other packages."""

import subprocess
import sys

import pytest

BLOCKED = """
import importlib, sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("click", "jinja2", "matplotlib", "rich"):
            raise ImportError(f"an executor has no {name}")

sys.meta_path.insert(0, Missing())
importlib.import_module(sys.argv[1])
"""


@pytest.mark.slow
@pytest.mark.parametrize("module", ["archive_files", "ledger", "replay_plan"])
def test_modules_with_functions_for_executors_need_no_packages_of_the_driver(module: str) -> None:
    command = [sys.executable, "-c", BLOCKED, f"quire.spark.pipelines.{module}"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
