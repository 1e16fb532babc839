"""The database of a cluster, on a PostgreSQL server: pins, and who may join."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from quire.cluster.directory import Directory
from quire.cluster.view import BrokerRow, PinRow
from quire.errors import InvalidSettings
from tests.acceptance.cluster.running_cluster import cluster_store
from tests.postgresql_server import PostgresqlServer

pytestmark = [pytest.mark.slow, pytest.mark.alone]


@pytest.fixture
def directory(postgresql_server: PostgresqlServer, tmp_path: Path) -> Iterator[Directory]:
    """That of a cluster that was just formed."""
    with closing(Directory(cluster_store(postgresql_server, tmp_path))) as directory:
        directory.form(3, ("postgresql://h/n",))
        yield directory


def broker(name: str, placement: str, run: str = "run") -> BrokerRow:
    return BrokerRow(name, run, "s", "o", "h", "1", placement)


def test_the_latest_version_of_a_pin_stays(directory: Directory) -> None:
    rows = [PinRow("queue://q", "queue://q", shard, version) for shard, version in ((1, 1), (2, 3), (0, 2), (1, 3))]
    for row in rows:
        directory.pin(row)
    assert directory.read().pins == {"queue://q": rows[1]}


def test_a_broker_that_places_destinations_otherwise_does_not_join(directory: Directory) -> None:
    assert directory.renew(broker("athens", "one"))
    with pytest.raises(InvalidSettings, match="athens"):
        directory.renew(broker("berlin", "two"))
    assert directory.renew(broker("berlin", "one"))
    assert not directory.renew(broker("berlin", "one", run="another"))
    assert directory.renew(broker("berlin", "one"))
    directory.remove(broker("athens", "one"))
    directory.remove(broker("berlin", "one"))
    assert directory.renew(broker("cairo", "two"))
    assert list(directory.read().brokers) == ["cairo"]
