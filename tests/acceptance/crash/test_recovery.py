"""A broker killed again and again loses nothing, doubles nothing that may not be doubled, and leaves a sound store."""

import asyncio
from pathlib import Path

import pytest

from tests.acceptance.crash.rounds import Plan, run_rounds

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "plan",
    [
        Plan("lmdb", rounds=12, seed=1),
        Plan("sqlite", rounds=6, seed=2),
        Plan("lmdb", rounds=5, seed=3, sync="never"),
        Plan("sqlite", rounds=5, seed=4, sync="interval"),
        Plan("lmdb", rounds=8, seed=5, shards=2),
    ],
    ids=lambda plan: f"{plan.store}-{plan.sync}-{plan.shards}",
)
def test_killed_broker_keeps_every_promise(plan: Plan, tmp_path: Path) -> None:
    load = asyncio.run(run_rounds(plan, tmp_path))
    assert load.confirmed > 10 * plan.rounds  # or there was no load worth the name
    assert load.redelivered > 0
    lost = {"broker-stopping", "shard-moved", "shard-unavailable"} if plan.shards > 1 else set()  # they hear of that
    assert load.errors <= {"store-full"} | lost
