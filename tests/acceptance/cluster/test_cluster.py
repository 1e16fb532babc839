"""Brokers as one, for operators; ``test_soak`` has what becomes of clients when brokers are killed, join and leave."""

import time
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.cluster.running_cluster import ClusterBroker, RunningCluster, running_cluster
from tests.postgresql_server import PostgresqlServer

pytestmark = pytest.mark.slow

PATIENCE = 60.0
"""How long shards may be without an owner on a busy machine, in seconds; benchmarks.cluster measures it."""


def test_the_http_api_of_every_broker_shows_and_changes_the_whole_cluster(
    postgresql_server: PostgresqlServer, tmp_path: Path
) -> None:
    with running_cluster(postgresql_server, tmp_path, CLUSTER__SHARDS="3") as cluster:
        cluster.start("athens", "berlin")
        cluster.wait_until_even()
        queues = [f"q{number:02}" for number in range(10)]
        for number, name in enumerate(queues):
            one, other = ("athens", "berlin") if number % 2 else ("berlin", "athens")
            assert changed(cluster, one, f"/queues/{name}", "PUT") == 201
            assert cluster.call(other, f"/queues/{name}/messages", "POST", {"body": "m" * number})[1]["sent"] == 1
        for broker in cluster.brokers:
            first = cluster.call(broker, "/queues?limit=4")[1]
            assert ([queue["name"] for queue in first["queues"]], first["total"]) == (queues[:4], 10)
            rest = cluster.call(broker, f"/queues?after={first['next']}")[1]
            assert ([queue["name"] for queue in rest["queues"]], rest["next"]) == (queues[4:], None)
            largest = cluster.call(broker, "/queues?sort=-bytes&limit=2&offset=1")[1]["queues"]
            assert [queue["name"] for queue in largest] == ["q08", "q07"]
            assert cluster.call(broker, "/broker")[1]["messages"] == 10
            assert {queue["shard"] for queue in rest["queues"]} <= {0, 1, 2}
        home = cluster.call("athens", "/cluster/places/queue/new")[1]["shard"]
        wanted = (home + 1) % 3
        assert changed(cluster, "berlin", "/cluster/places/queue/new", "PUT", {"shard": wanted}) == 200
        assert changed(cluster, "athens", "/queues/new", "PUT") == 201
        assert cluster.call("athens", f"/queues/new?shard={wanted}")[0] == 200
        assert cluster.call("athens", f"/queues/new?shard={home}")[0] == 404
        assert changed(cluster, "berlin", "/cluster/places/queue/new", "DELETE") == 409
        assert changed(cluster, "athens", "/queues/new", "DELETE") == 200
        assert changed(cluster, "athens", "/cluster/places/queue/new", "DELETE") == 200
        assert changed(cluster, "berlin", "/queues/new", "PUT") == 201
        assert cluster.call("athens", f"/queues/new?shard={home}")[0] == 200
        assert cluster.call("athens", "/cluster")[1]["pins"] == []
        status, refused = cluster.call("athens", "/cluster/places/queue/q01", "PUT", {"shard": wanted})
        assert (status, refused["error"]["code"]) == (409, "destination-exists")
        assert cluster.call("berlin", "/users", "POST", {"name": "eve"})[0] == 409


def changed(cluster: RunningCluster, broker: str, path: str, method: str, body: object = None) -> int:
    """Change something through the HTTP API of a broker: the status."""
    return answered(cluster, broker, path, method, body)[0]


def answered(
    cluster: RunningCluster, broker: str, path: str, method: str = "GET", body: object = None
) -> tuple[int, Any]:
    """Call the HTTP API of a broker, again as long as it says that a shard is elsewhere or has no owner."""
    end = time.monotonic() + PATIENCE
    while (answer := cluster.call(broker, path, method, body))[0] == 503:
        assert time.monotonic() < end, f"{answer}\n{cluster.log}"
        time.sleep(0.1)
    return answer


def test_settings_that_would_strand_what_is_stored_are_refused(
    postgresql_server: PostgresqlServer, tmp_path: Path
) -> None:
    with running_cluster(postgresql_server, tmp_path, CLUSTER__SHARDS="2") as cluster:
        cluster.start("athens")
        cluster.wait_for_owners(lambda owners: None not in owners)
        names = [f"VirtualTopic.{number}" for number in range(40)]
        for name in names:  # with other settings they are no virtual topics, and their queues may be anywhere
            assert changed(cluster, "athens", f"/queues/Consumer.a.{name}", "PUT") == 201
        (tmp_path / "berlin").mkdir()
        others = {"CLUSTER__SHARDS": "2", "VIRTUAL__VIRTUAL_TOPIC_PATTERN": "Other.>"}
        berlin = cluster.brokers["berlin"] = ClusterBroker(tmp_path / "berlin", "berlin", cluster.store, others)
        berlin.start()
        assert berlin.wait() != 0
        assert "athens" in berlin.log
        assert "must be the same" in berlin.log
        assert cluster.call("athens", "/broker/stop", "POST")[0] == 200
        assert cluster.brokers["athens"].wait() == 0
        berlin.start()
        end = time.monotonic() + PATIENCE
        while "is stored: start all brokers with" not in berlin.log:
            assert time.monotonic() < end, cluster.log
            time.sleep(0.1)
        berlin.process.terminate()
        berlin.wait()
        cluster.start("athens")
        cluster.wait_for_owners(lambda owners: None not in owners)
        status, queues = answered(cluster, "athens", "/queues?limit=1")  # a shard has an owner before it is opened
        assert (status, queues["total"]) == (200, len(names))
