"""What a program prints that reads with Spark: nothing about what is handled."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.spark.running_broker import running_broker

pytestmark = [pytest.mark.spark, pytest.mark.slow]

LOUD = re.compile(r"^.*(?: ERROR |^\s+at |Exception|Traceback|data source quire).*$", re.MULTILINE)
"""Errors, Java traces, Python's, and Spark's warning of a second registration."""


def test_a_program_that_succeeds_logs_no_error(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        broker.create("s", 3)
        for partition in range(3):
            broker.send("s", 10 + partition, partition)
        program = [sys.executable, "-m", "tests.spark.quiet_query", broker.url, "s", str(tmp_path / "checkpoint")]
        ended = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "files None None\n" in ended.stdout
    assert "rows 33\n" in ended.stdout
    assert re.search(r"Exchange hashpartitioning\(key#\d+, 32\)", ended.stdout)
    assert re.search(r'quire_spark_lag_offsets\{.*,partition="2",query="copy",stream="s"\} 0\.0', ended.stdout)
    assert LOUD.findall(ended.stderr) == []


def test_a_pipeline_that_succeeds_logs_no_error(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        broker.create("s", 2)
        for partition in range(2):
            broker.send("s", 20_000, partition, body="x" * 500)
        program = [sys.executable, "-c", "from quire.cli.main import main; main()", "pipeline", "run", "archive"]
        arguments = [str(tmp_path / "archive"), "--url", broker.url, "--destination", "stream://s"]
        ended = subprocess.run(
            [*program, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=240, check=False
        )
    assert ended.returncode == 0, ended.stderr
    assert "archived 40000 messages" in ended.stdout
    assert [line for line in ended.stderr.splitlines() if LOUD.search(line) or "Error" in line] == []
