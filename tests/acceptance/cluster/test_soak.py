"""A short soak: things go wrong in a cluster under load of every kind, and its promises hold.

``python -m benchmarks.cluster soak`` does it for as long as one likes.
"""

import asyncio
from pathlib import Path

import pytest

from benchmarks.cluster.report import findings, kind_of
from benchmarks.cluster.soak import Plan, run
from benchmarks.takeover.planted import PLANTED
from tests.acceptance.test_scenarios import SPEED
from tests.postgresql_server import NoServer, find_account, find_programs

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _needs_postgresql() -> None:
    try:
        find_programs()
        find_account()
    except NoServer as error:
        pytest.skip(str(error))


def test_promises_hold_while_brokers_and_processes_are_lost(tmp_path: Path) -> None:
    kinds = ["kill-broker", "suspend-broker", "kill-shard", "add-or-remove", "add-or-remove"]
    result = asyncio.run(run(Plan(0, 1, queues=20, streams=2, kinds=kinds, java=False), tmp_path, print))
    broken = [finding for finding in findings(result) if finding.kept is False and not SPEED.fullmatch(finding.figure)]
    assert broken == [], result.violations
    assert result.rounds == len(kinds)
    assert {outage.event for outage in result.outages} >= {"broker killed", "broker left", "broker joined"}
    assert result.load.confirmed > 500  # or there was no load worth the name


def test_a_broker_that_forgets_what_it_has_delivered_is_found_out(tmp_path: Path) -> None:
    plan = Plan(20, 1, queues=10, streams=1, kinds=["kill-shard"], java=False, program=[*PLANTED, "unflagged"])
    result = asyncio.run(run(plan, tmp_path, print))
    assert "unflagged_duplicates" in {kind_of(violation) for violation in result.violations}
