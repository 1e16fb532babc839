"""What Spark needs, looked at before it starts."""

import subprocess
import sys
from pathlib import Path

import pytest

from quire.errors import UnsupportedEnvironment
from quire.spark import data_source


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    (tmp_path / "bin").mkdir()
    return tmp_path


def install(home: Path, says: str, code: int = 0) -> None:
    program = home / "bin" / "java"
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\nexit {code}\n")
    program.chmod(0o755)


@pytest.mark.parametrize(
    ("says", "version"),
    [('openjdk version "17.0.15" 2025-04-15', 17), ('java version "1.8.0_392"', 8), ('openjdk version "25" 2025', 25)],
)
def test_the_version_of_java_is_found(home: Path, says: str, version: int) -> None:
    install(home, says)
    assert data_source._installed_java() == version


def test_an_old_java_is_refused_with_what_to_do(home: Path) -> None:
    install(home, 'openjdk version "11.0.2"')
    with pytest.raises(
        UnsupportedEnvironment, match="this is Java 11: install Java 17 or later, and set JAVA_HOME to its dir"
    ):
        data_source.session()


@pytest.mark.parametrize(("says", "code"), [("no", 0), ("broken", 1)])
def test_a_java_that_does_not_run_is_refused(home: Path, says: str, code: int) -> None:
    install(home, says, code)
    with pytest.raises(UnsupportedEnvironment, match=f"there is none in JAVA_HOME, which is {home}"):
        data_source.session()


def test_no_java_at_all_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnsupportedEnvironment, match="Java 17 or later, and there is none in the PATH"):
        data_source.session()


@pytest.mark.parametrize("version", ["3.5.1", "4.1.0"])
def test_an_old_spark_is_refused(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.__version__", version)
    with pytest.raises(
        UnsupportedEnvironment, match=rf"this is Spark {version}, and the data source needs 4\.2 or later"
    ):
        data_source.session()


def test_what_spark_starts_for_each_plan_does_not_load_pandas() -> None:
    code = "import sys, quire.spark.data_source as source; source.QuireDataSource({'broker.url': 'http://a', 'assign': "
    code += "'{\"a\": [0]}'}).schema(); sys.exit('pandas' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
