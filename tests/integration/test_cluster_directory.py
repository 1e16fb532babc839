"""The database of a cluster: pins, and who may join; on a PostgreSQL server, and in a file for one machine."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from quire.cluster.cluster_map import BrokerRow, ClusterFacts, PinRow, ShardRow
from quire.cluster.directory import Directory
from quire.errors import InvalidSettings
from tests.acceptance.cluster.running_cluster import cluster_store
from tests.postgresql_server import PostgresqlServer

pytestmark = pytest.mark.slow


@pytest.fixture
def directory(postgresql_server: PostgresqlServer, tmp_path: Path) -> Iterator[Directory]:
    """That of a cluster that was just formed."""
    with closing(Directory(cluster_store(postgresql_server, tmp_path))) as directory:
        directory.form(3, ("postgresql://h/n",))
        yield directory


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Directory]:
    """That of a broker with shards of its own machine."""
    with closing(Directory(f"sqlite:///{tmp_path}/shards.db")) as directory:
        directory.form(3, ("embedded",))
        yield directory


def broker(name: str, placement: str, run: str = "run") -> BrokerRow:
    return BrokerRow(name, run, "s", "o", "h", "1", placement)


@pytest.mark.parametrize("kind", ["directory", "local"])
def test_the_latest_version_of_a_pin_stays(kind: str, request: pytest.FixtureRequest) -> None:
    directory = request.getfixturevalue(kind)
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


def test_what_a_cluster_has_stays_as_it_was_formed(local: Directory) -> None:
    formed = local.facts()
    assert formed == ClusterFacts(3, formed.secret, ("embedded",))
    assert len(formed.secret) == 32
    assert local.form(5, ("another",)) == formed


def test_on_one_machine_the_next_process_of_a_broker_has_its_name_at_once(local: Directory) -> None:
    assert local.renew(broker("quire", "one", run="killed"))
    assert local.renew(broker("quire", "two", run="next"))
    assert [row.run for row in local.read().brokers.values()] == ["next"]


def test_the_owner_of_a_shard_with_the_latest_epoch_counts(local: Directory) -> None:
    assert local.announce(ShardRow(1, "quire", 2, "a", "h", 7, 0.0))
    assert not local.announce(ShardRow(1, "quire", 1, "b", "h", 8, 0.0))
    local.withdraw(1, 1)
    assert local.read().shards[1].address == "a"
    local.withdraw(1, 2)
    assert local.read().shards[1].address == ""
    local.prefer(1, "quire")
    assert local.read().shards[1].preferred == "quire"
