"""The scenarios of the benchmarks as a user runs them, with real brokers and few messages.

Their figures of speed are for a machine with nothing else to do: these tests look at the others.
"""

import json
import re
import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.slow

SPEED = re.compile(r".*_(seconds|ms|per_s|cores)|.*_to_(shallow|full|free|without_idle)|on_time")
"""The figures of speed."""


def found_by(*arguments: str) -> Any:
    """Run a scenario and read what it found, which it prints as JSON."""
    command = [sys.executable, "-m", "benchmarks.scenarios", *arguments, "--output", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


def broken(findings: list[dict[str, Any]]) -> list[str]:
    """The promises that were not kept, without those of speed."""
    figures = [finding["figure"] for finding in findings if finding["kept"] is False]
    return [figure for figure in figures if not SPEED.fullmatch(figure)]


def values(findings: list[dict[str, Any]]) -> dict[str, float]:
    return {finding["figure"]: finding["value"] for finding in findings}


def test_reconnect_keeps_all_its_promises() -> None:
    found = found_by("reconnect", "--messages", "5000", "--memory-limit", "1MB")
    assert broken(found) == []
    assert values(found)["received"] == 5000
    assert values(found)["duplicates"] > 0
    assert values(found)["connections"] > 5


def test_depth_loses_nothing() -> None:
    found = found_by("depth", "--messages", "5000", "--memory-limit", "1MB")
    assert broken(found) == []
    assert values(found)["lost"] == 0


def test_a_selector_finds_the_last_messages_and_another_consumer_gets_the_rest() -> None:
    found = found_by("selector", "--messages", "20000")
    assert broken(found) == []
    assert values(found)["lost"] == 0
    assert values(found)["other_queue_messages"] > 0


def test_message_groups_keep_their_order_and_are_shared_evenly() -> None:
    found = found_by("groups", "--messages", "40000", "--memory-limit", "4MB")
    assert broken(found) == []
    assert values(found)["received"] == 40_000
    assert values(found)["duplicates"] > 0
    assert values(found)["connections"] > 4


def test_wakeups_reach_every_queue() -> None:
    found = found_by("wakeups", "--queues", "500", "--seconds", "1")
    assert broken(found) == []
    assert values(found)["missing"] == 0
    assert values(found)["messages"] > 500
