"""``quire perf`` as a user runs it, with real brokers and few messages."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from quire.cli.perf.load import SCENARIOS
from quire.cli.perf.own_broker import OwnBroker

pytestmark = [pytest.mark.slow, pytest.mark.alone]

PROGRAM = [sys.executable, "-c", "from quire.cli.main import main; main()", "perf"]


def perf(*arguments: str, exit_codes: tuple[int, ...] = (0,)) -> Any:
    """Run ``quire perf`` and read what it prints as JSON."""
    done = subprocess.run(
        [*PROGRAM, *arguments, "--output", "json"], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode in exit_codes, done.stdout + done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


def broken(findings: list[dict[str, Any]]) -> list[str]:
    """The promises that were not kept."""
    return [finding["figure"] for finding in findings if finding["kept"] is False]


def values(findings: list[dict[str, Any]]) -> dict[str, float]:
    return {finding["figure"]: finding["value"] for finding in findings}


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


def test_reconnect_keeps_all_its_promises() -> None:
    found = perf("scenario", "reconnect", "--messages", "5000", "--memory-limit", "1MB")
    assert broken(found) == []
    assert values(found)["received"] == 5000
    assert values(found)["duplicates"] > 0
    assert values(found)["connections"] > 5


def test_depth_loses_nothing_and_restarts_at_once() -> None:
    # Too few messages to compare rates.
    found = perf("scenario", "depth", "--messages", "5000", "--memory-limit", "1MB", exit_codes=(0, 1))
    assert set(broken(found)) <= {"deep_to_shallow"}
    assert values(found)["lost"] == 0


def test_hostile_clients_are_refused_and_take_no_memory() -> None:
    # Too few messages to compare rates.
    found = perf("scenario", "hostile", "--messages", "1000", exit_codes=(0, 1))
    assert set(broken(found)) <= {"attacked_to_alone"}
    assert values(found)["hostile_connections"] > 1000
    assert values(found)["errors"] > 0


def test_a_selector_finds_the_last_messages_and_another_consumer_gets_the_rest() -> None:
    # Too few messages to tell how long others wait while so many are looked at.
    found = perf("scenario", "selector", "--messages", "20000", exit_codes=(0, 1))
    assert set(broken(found)) <= {"other_queue_p99_ms"}
    assert values(found)["lost"] == 0
    assert values(found)["other_queue_messages"] > 0


def test_message_groups_keep_their_order_and_are_shared_evenly() -> None:
    found = perf("scenario", "groups", "--messages", "40000", "--memory-limit", "4MB")
    assert broken(found) == []
    assert values(found)["received"] == 40_000
    assert values(found)["duplicates"] > 0
    assert values(found)["connections"] > 8


def test_wakeups_reach_every_queue() -> None:
    # Too few queues to compare processor times.
    found = perf("scenario", "wakeups", "--queues", "500", "--seconds", "1", exit_codes=(0, 1))
    assert set(broken(found)) <= {"idle_cores", "half_to_full", "with_to_without_idle"}
    assert values(found)["missing"] == 0
    assert values(found)["messages"] > 1000
