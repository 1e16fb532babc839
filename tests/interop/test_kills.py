"""A broker that is killed under Java clients loses nothing, and doubles nothing that may not be doubled."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.interop.brokers import Broker, Quire, QuireCluster
from tests.interop.java_build import NoJavaTools, class_path
from tests.interop.kills import run_rounds

pytestmark = pytest.mark.slow

ROUNDS = 3


@pytest.fixture(params=["quire-client5", "quire-client6", "cluster-client6"])
def line_and_broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[int, Broker]]:
    """A line of the client, and a broker that is not started."""
    kind, client = request.param.split("-")
    line = int(client[-1])
    try:
        class_path(client, "java")
        if kind == "cluster":
            yield line, QuireCluster(request.getfixturevalue("postgresql_server"), tmp_path)
        else:
            yield line, Quire(tmp_path)
    except NoJavaTools as error:
        pytest.skip(str(error))


def test_killed_broker_keeps_every_promise_to_java_clients(line_and_broker: tuple[int, Broker]) -> None:
    line, broker = line_and_broker
    outcomes = run_rounds(broker, line, ROUNDS, Random(line))
    for outcome in outcomes.values():
        assert outcome.good, outcome
        assert outcome.confirmed > 30 * ROUNDS, outcome
    assert outcomes["plain"].redelivered > 0, "the broker was killed when there was nothing in flight"
