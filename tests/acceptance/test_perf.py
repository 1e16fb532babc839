"""``quire perf`` as a user runs it, with real brokers and few messages."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.rig import OwnBroker
from quire.cli.perf.load import SCENARIOS

pytestmark = pytest.mark.slow

PROGRAM = [sys.executable, "-c", "from quire.cli.main import main; main()", "perf"]


def perf(*arguments: str) -> Any:
    """Run ``quire perf`` and read what it prints as JSON."""
    done = subprocess.run(
        [*PROGRAM, *arguments, "--output", "json"], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


def test_every_scenario_of_run_measures_a_broker_and_leaves_nothing(tmp_path: Path) -> None:
    with OwnBroker(tmp_path, {}) as broker:
        for scenario in SCENARIOS:
            record = perf("run", "--data", str(tmp_path / "data"), "--scenario", scenario, "-n", "203")
            assert record["messages"] == 203
            assert record["messages_per_s"] > 0
            assert ("latency_ms" in record) == (scenario != "backlog")
        assert broker.api.call("GET", "/queues")["queues"] == []


def test_a_rate_is_kept(tmp_path: Path) -> None:
    with OwnBroker(tmp_path, {}):
        arguments = ("run", "--data", str(tmp_path / "data"), "--rate", "200", "-n", "201", "--producers", "2")
        assert perf(*arguments)["elapsed_seconds"] >= 0.99


def test_a_broker_that_is_not_there_is_an_error() -> None:
    done = subprocess.run([*PROGRAM, "run", "--stomp", "127.0.0.1:1"], capture_output=True, timeout=60, check=False)
    assert done.returncode == 5
    assert b"no broker answers at 127.0.0.1:1" in done.stderr
