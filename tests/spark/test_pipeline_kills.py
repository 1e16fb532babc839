"""Pipelines on a cluster lose and double no row, whatever is killed."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.pipeline_kills.findings import Window, findings, windows_of
from tests.spark.pipeline_kills.killing import FAR, Killing

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_windows_of_numbers() -> None:
    assert windows_of([0, 3, 1, 200]) == [Window(0, 0, 2, 3), Window(0, 1, 1, 1), Window(200, 2, 1, 200)]


@pytest.mark.alone
@pytest.mark.timeout(900)
def test_every_row_is_there_once_whatever_is_killed(spark: SparkSession, tmp_path: Path) -> None:
    victims = ["executor", "broker", "driver"]
    killing = Killing(tmp_path, seed=1, kills=len(victims))
    killing.run(victims, pause=1.0)
    found = findings(spark, killing.broker, killing.work, FAR)
    assert found.windows > 0
    assert found.replayed > 0
    assert not any(found.wrong.values()), found.wrong
