"""The scenarios of the benchmarks as a user runs them, with real brokers and few messages."""

import json
import subprocess
import sys
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.alone]


def found_by(*arguments: str, exit_codes: tuple[int, ...] = (0,)) -> Any:
    """Run a scenario and read what it found, which it prints as JSON."""
    command = [sys.executable, "-m", "benchmarks.scenarios", *arguments, "--output", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode in exit_codes, done.stdout + done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


def broken(findings: list[dict[str, Any]]) -> list[str]:
    """The promises that were not kept."""
    return [finding["figure"] for finding in findings if finding["kept"] is False]


def values(findings: list[dict[str, Any]]) -> dict[str, float]:
    return {finding["figure"]: finding["value"] for finding in findings}


def test_reconnect_keeps_all_its_promises() -> None:
    found = found_by("reconnect", "--messages", "5000", "--memory-limit", "1MB")
    assert broken(found) == []
    assert values(found)["received"] == 5000
    assert values(found)["duplicates"] > 0
    assert values(found)["connections"] > 5


def test_depth_loses_nothing_and_restarts_at_once() -> None:
    # Too few messages to compare rates.
    found = found_by("depth", "--messages", "5000", "--memory-limit", "1MB", exit_codes=(0, 1))
    assert set(broken(found)) <= {"deep_to_shallow"}
    assert values(found)["lost"] == 0


def test_hostile_clients_are_refused_and_take_no_memory() -> None:
    # Too few messages to compare rates.
    found = found_by("hostile", "--messages", "1000", exit_codes=(0, 1))
    assert set(broken(found)) <= {"attacked_to_alone"}
    assert values(found)["hostile_connections"] > 1000
    assert values(found)["errors"] > 0


def test_a_selector_finds_the_last_messages_and_another_consumer_gets_the_rest() -> None:
    # Too few messages to tell how long others wait while so many are looked at.
    found = found_by("selector", "--messages", "20000", exit_codes=(0, 1))
    assert set(broken(found)) <= {"other_queue_p99_ms"}
    assert values(found)["lost"] == 0
    assert values(found)["other_queue_messages"] > 0


def test_message_groups_keep_their_order_and_are_shared_evenly() -> None:
    found = found_by("groups", "--messages", "40000", "--memory-limit", "4MB")
    assert broken(found) == []
    assert values(found)["received"] == 40_000
    assert values(found)["duplicates"] > 0
    assert values(found)["connections"] > 8


def test_wakeups_reach_every_queue() -> None:
    # Too few queues to compare processor times.
    found = found_by("wakeups", "--queues", "500", "--seconds", "1", exit_codes=(0, 1))
    assert set(broken(found)) <= {"idle_cores", "half_to_full", "with_to_without_idle"}
    assert values(found)["missing"] == 0
    assert values(found)["messages"] > 1000
