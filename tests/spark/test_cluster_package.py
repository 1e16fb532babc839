"""The archive for executors: a Python without packages imports all that tasks need from it, and another one says so."""

import subprocess
from pathlib import Path
from zipfile import ZipFile

import pytest
from click.testing import CliRunner

from quire.cli.main import main
from quire.spark.cluster_package import submit_lines, wanted_python
from tests.spark.standalone_cluster import HOME, bare_python

pytestmark = [pytest.mark.spark, pytest.mark.slow]

IMPORTS = """
import sys
import pyspark.worker
import quire.spark.data_source
from quire.store.urls import store_for_url
for url in ("lmdb:///nowhere", "sqlite:////nowhere", "postgresql://user@nowhere/quire"):
    store_for_url(url)
print(quire.__file__, sys.modules["msgspec"].__file__, sys.modules["pyarrow"].__file__)
"""


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("package") / "deep" / "quire.zip"
    done = CliRunner().invoke(main, ["pipeline", "package", str(file)], catch_exceptions=False)
    assert submit_lines(file) in done.stdout
    assert wanted_python() in done.stdout
    return file


def test_a_python_without_packages_finds_all_in_the_archive(archive: Path, tmp_path: Path) -> None:
    with ZipFile(archive) as opened:
        opened.extractall(tmp_path / "packages")
    check = tmp_path / "packages" / "sitecustomize.py"
    python = bare_python(tmp_path / "bare")
    spark = [str(path) for path in (HOME / "python" / "lib").glob("*.zip")]

    def run() -> subprocess.CompletedProcess[str]:
        environment = {"PYTHONPATH": ":".join(["packages", *spark]), "SPARK_HOME": str(HOME)}
        return subprocess.run(
            [python, "-c", IMPORTS], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120,
            check=False,
        )  # fmt: skip

    done = run()
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(str(tmp_path / "packages")) == 3
    check.write_text(check.read_text().replace(wanted_python(), "Python 3.10 on linux mips"))
    refused = run()
    assert refused.returncode == 1
    assert "is for Python 3.10 on linux mips, and " in refused.stderr
    assert f"is {wanted_python()}: make an archive" in refused.stderr


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = CliRunner().invoke(main, ["pipeline", "package", str(tmp_path / "file" / "quire.zip")])
    assert done.exit_code == 2
    assert "cannot be written" in done.stderr
