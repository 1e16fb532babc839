"""The counts of an audit are those of clients that count for themselves, over kills; a broken ledger shows."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from quire.spark.pipelines.command import LEDGER, Place
from tests.spark.ground_truth.acts import Acts
from tests.spark.ground_truth.comparison import BREAKS, compared

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_every_count_is_that_of_the_clients_and_a_broken_ledger_shows(spark: SparkSession, tmp_path: Path) -> None:
    acts = Acts(tmp_path, seed=1)
    try:
        acts.play(rounds=2)
        ledger = Place(url=acts.broker.api.url).read(spark, LEDGER).localCheckpoint()
        depths = acts.depths()
    finally:
        acts.broker.kill()
    found = compared(acts.truths, ledger, depths)
    assert found.wrong == []
    planted = {"dead_lettered", "expired", "removed", "earlier", "redelivered", "out_of_order"}
    assert planted <= {count.name for count in found.counts if count.found}
    assert set(found.shown) == set(BREAKS)
    assert found.missed == []
