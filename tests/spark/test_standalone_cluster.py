"""The cluster that tests use: it starts, loses a worker, gets it back, and leaves nothing behind."""

from pathlib import Path

import pytest

from tests.spark.processes import descendants
from tests.spark.standalone_cluster import StandaloneCluster

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_a_worker_is_killed_and_started_again(tmp_path: Path) -> None:
    with StandaloneCluster(tmp_path, workers=1) as cluster:
        assert cluster.url.startswith("spark://127.0.0.1:")
        cluster.kill_worker(0)
        cluster.start_worker(0)
        assert cluster.executors() == []
    assert not [process for process in descendants(1) if cluster.url in process.command]
