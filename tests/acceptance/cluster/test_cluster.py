"""Three brokers as one: a client reaches every queue at each; one is killed, and the others take its shards."""

import asyncio
from pathlib import Path
from random import Random

import pytest

from tests.acceptance.cluster.cluster_load import AnyBroker, ClusterLoad
from tests.acceptance.cluster.running_cluster import RunningCluster, running_cluster
from tests.postgresql_server import PostgresqlServer

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(300)]

TAKEOVER = 5.0
"""How long shards may be without an owner when a broker is killed, in seconds; a busy machine gets some more."""

QUEUES = [f"load.{number}" for number in range(12)]


def test_a_killed_broker_s_shards_are_taken_by_others_and_nothing_is_lost(
    postgresql_server: PostgresqlServer, tmp_path: Path
) -> None:
    with running_cluster(postgresql_server, tmp_path) as cluster:
        cluster.start("athens", "berlin", "cairo")
        cluster.wait_until_even()
        asyncio.run(kill_under_load(cluster))


async def kill_under_load(cluster: RunningCluster) -> None:
    random = Random(1)
    place = AnyBroker(lambda: [broker.port() for broker in cluster.living], random)
    async with ClusterLoad(place, QUEUES, random) as load:
        await load.wait_for_progress(30)
        cluster.brokers["berlin"].kill()
        took = await asyncio.to_thread(
            cluster.wait_for_owners, lambda owners: None not in owners and "berlin" not in owners, TAKEOVER * 3
        )
        print(f"the shards of berlin were taken over within {took:.1f} s")
        assert took < TAKEOVER * 2
        await load.wait_for_progress(30)
        cluster.start("berlin")
        await asyncio.to_thread(cluster.wait_until_even)
        await load.wait_for_progress(30)
        await load.finish()


def test_a_broker_leaves_without_an_error_of_lost_messages(postgresql_server: PostgresqlServer, tmp_path: Path) -> None:
    with running_cluster(postgresql_server, tmp_path, CLUSTER__SHARDS="3") as cluster:
        cluster.start("athens", "berlin")
        cluster.wait_until_even()
        asyncio.run(leave_under_load(cluster))


async def leave_under_load(cluster: RunningCluster) -> None:
    random = Random(2)
    staying = cluster.brokers["berlin"]
    async with ClusterLoad(AnyBroker(lambda: [staying.port()], random), QUEUES[:6], random) as load:
        await load.wait_for_progress(30)
        status, _ = await asyncio.to_thread(cluster.call, "berlin", "/cluster/leave", "POST", {"broker": "athens"})
        assert status == 200
        assert await asyncio.to_thread(cluster.brokers["athens"].wait) == 0
        assert set(cluster.owners().values()) == {"berlin"}
        await load.wait_for_progress(30)
        await load.finish()


def test_the_http_api_of_every_broker_shows_and_changes_the_whole_cluster(
    postgresql_server: PostgresqlServer, tmp_path: Path
) -> None:
    with running_cluster(postgresql_server, tmp_path, CLUSTER__SHARDS="3") as cluster:
        cluster.start("athens", "berlin")
        cluster.wait_until_even()
        queues = [f"q{number:02}" for number in range(10)]
        for number, name in enumerate(queues):
            one, other = ("athens", "berlin") if number % 2 else ("berlin", "athens")
            assert cluster.call(one, f"/queues/{name}", "PUT")[0] == 201
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
        place = cluster.call("athens", "/cluster/places/queue/new")[1]
        wanted = (place["shard"] + 1) % 3
        assert cluster.call("berlin", "/cluster/places/queue/new", "PUT", {"shard": wanted})[0] == 200
        assert cluster.call("athens", "/queues/new", "PUT")[0] in (201, 503)
        status, refused = cluster.call("athens", "/cluster/places/queue/q01", "PUT", {"shard": wanted})
        assert (status, refused["error"]["code"]) == (409, "destination-exists")
        assert cluster.call("berlin", "/users", "POST", {"name": "eve"})[0] == 409
