"""A cluster whose executors have no packages, a broker with TLS and users: source, sink and each pipeline."""

from pathlib import Path

import pytest

from tests.spark.cluster_tour import Tour, faults

ROWS = 500


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timeout(400)
def test_source_sink_and_each_pipeline_on_a_cluster(tmp_path: Path) -> None:
    seen = Tour(tmp_path, ROWS).run()
    assert not faults(seen, ROWS), seen
