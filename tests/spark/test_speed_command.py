"""The benchmark of reads, with little to read, in the Spark of all tests."""

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from benchmarks.pipeline import speed
from benchmarks.pipeline.__main__ import main
from benchmarks.pipeline.reading import Reading, Run, runs

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_a_small_stream_is_read_through_the_bulk_server_and_from_the_store(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[Run] = []

    def read(reading: Reading) -> list[Run]:
        found = list(runs(spark, reading))
        measured.extend(found)
        return found

    monkeypatch.setattr(speed, "read", read)
    given = ["speed", "--messages", "2000", "--readers", "2", "--sink", "noop", "--runs", "2", "--no-kafka"]
    result = CliRunner().invoke(main, given)
    assert result.exit_code == 0, result.output
    assert result.output.count("| bulk server, 2 processes | nothing |") == 2  # as it goes on, and in the table
    assert result.output.count("| the store itself | nothing |") == 2
    through, _, direct, _ = measured
    assert [run.rows for run in measured] == [2000] * 4
    assert len(through.bulk) == 2
    assert direct.bulk == []
