"""Whichever process of a cluster is asked, the request goes to the shards that it concerns."""

from dataclasses import replace
from typing import Any, cast

import msgspec
import pytest

from quire.cluster.cluster_map import BrokerRow, ClusterMap, Peer, Pin, PinRow, ShardRow, View
from quire.destination import queue
from quire.http.app import ENDPOINTS
from quire.http.cluster_router import HEADER, VALID, signed
from quire.http.endpoint import Endpoint
from quire.security import Origin
from quire.security.accounts import SavedState
from quire.settings import User
from quire.settings.users import read_rules
from tests.unit.http.cluster.conftest import SHARDS, Cluster
from tests.unit.http.sample_requests import Running, sample_request

pytestmark = pytest.mark.slow  # each cluster is three brokers with their whole API


def depths(cluster: Cluster) -> list[dict[str, int]]:
    """What each shard has in itself."""
    brokers = [api.stepped.broker for api in cluster.apis]
    return [{name: queue.depth for name, queue in broker.queues.items()} for broker in brokers]


def test_a_queue_is_at_one_shard_whichever_is_asked(cluster: Cluster) -> None:
    name = cluster.name_at(1)
    for shard in range(SHARDS):
        assert cluster.call(shard, "POST", f"/queues/{name}/messages", json={"body": "b"}).status_code == 201
    assert depths(cluster) == [{}, {name: 3}, {}]
    for shard in range(SHARDS):
        assert cluster.call(shard, "GET", f"/queues/{name}").json()["depth"] == 3
        page = cluster.call(shard, "GET", f"/queues/{name}/messages?limit=2").json()
        assert len(page["messages"]) == 2


def test_lists_have_the_entries_of_all_shards_in_order(cluster: Cluster) -> None:
    for number in range(12):
        cluster.call(0, "POST", f"/queues/q{number:02}/messages", json={"body": "b" * number})
    for shard in range(SHARDS):
        seen, after = list[str](), cast(Any, "")
        for names in (5, 5, 2):
            page = cluster.call(shard, "GET", f"/queues?limit=5&after={after}").json()
            assert (len(page["queues"]), page["total"]) == (names, 12)
            seen += [entry["name"] for entry in page["queues"]]
            after = page["next"]
        assert seen == [f"q{number:02}" for number in range(12)]
        assert after is None
        page = cluster.call(shard, "GET", "/queues?sort=-bytes&offset=2&limit=3").json()
        assert [entry["name"] for entry in page["queues"]] == ["q09", "q08", "q07"]
        assert page["next"] is None
        page = cluster.call(shard, "GET", "/queues?search=Q1").json()
        assert [entry["name"] for entry in page["queues"]] == ["q10", "q11"]
        assert {entry["name"]: entry["shard"] for entry in page["queues"]} == {
            name: cluster.shard_of(name) for name in ("q10", "q11")
        }


def test_lists_without_an_order_follow_each_other(cluster: Cluster) -> None:
    for api in cluster.apis:
        for _ in range(2):
            transport: Any = object()
            api.service.connections[transport] = api.stepped.connect().session
    page = cluster.call(1, "GET", "/connections?limit=4").json()
    assert (len(page["connections"]), page["total"], page["next"]) == (4, 6, None)
    assert [entry["shard"] for entry in page["connections"]] == [0, 0, 1, 1]
    page = cluster.call(1, "GET", "/connections?limit=4&offset=4").json()
    assert [entry["shard"] for entry in page["connections"]] == [2, 2]


def test_a_list_is_not_joined_to_any_depth(cluster: Cluster) -> None:
    assert cluster.error(0, "GET", "/queues?offset=20000") == (413, "limit-exceeded")
    assert cluster.error(0, "GET", "/queues?limit=x") == (400, "invalid-argument")
    assert cluster.error(0, "GET", "/queues?sort=x") == (400, "invalid-argument")


def test_the_parts_of_a_spread_queue_are_one_and_each_can_be_named(cluster: Cluster) -> None:
    for shard in range(SHARDS):
        sent = {"body": "b", "count": shard + 1}
        assert cluster.call(0, "POST", f"/queues/ActiveMQ.DLQ/messages?shard={shard}", json=sent).status_code == 201
    assert [parts["ActiveMQ.DLQ"] for parts in depths(cluster)] == [1, 2, 3]
    (entry,) = cluster.call(1, "GET", "/queues").json()["queues"]
    assert (entry["depth"], entry["shard"]) == (6, None)
    assert cluster.call(1, "GET", "/queues/ActiveMQ.DLQ").json()["depth"] == 6
    assert cluster.call(1, "GET", "/queues/ActiveMQ.DLQ?shard=2").json()["depth"] == 3
    assert cluster.error(1, "GET", "/queues/ActiveMQ.DLQ/messages") == (400, "invalid-argument")
    for wrong in ("3", "-1", "x", ""):
        assert cluster.error(1, "GET", f"/queues/ActiveMQ.DLQ?shard={wrong}") == (400, "invalid-argument")
    assert len(cluster.call(1, "GET", "/queues/ActiveMQ.DLQ/messages?shard=1").json()["messages"]) == 2
    assert cluster.error(1, "POST", "/queues/ActiveMQ.DLQ/purge?dry_run=true") == (400, "invalid-argument")
    assert cluster.call(1, "POST", "/queues/ActiveMQ.DLQ/purge", json={}).json()["removed"] == 6


def test_the_numbers_of_the_whole_add_up(cluster: Cluster) -> None:
    for shard in range(SHARDS):
        cluster.call(0, "POST", f"/queues/{cluster.name_at(shard)}/messages", json={"body": "b"})
    status = cluster.call(2, "GET", "/broker").json()
    assert (status["queues"], status["messages"], status["state"]) == (3, 3, "running")
    overview = cluster.call(2, "GET", "/overview").json()
    assert overview["counts"]["queues"] == 3


def test_a_durable_subscription_is_found_wherever_its_topic_is(cluster: Cluster) -> None:
    topics = [f"t{number}" for number in range(6)]
    for number, topic in enumerate(topics):
        assert cluster.call(0, "PUT", f"/durables/c/s{number}", json={"topic": topic}).status_code == 201
    held = [{durable.key[1] for durable in api.stepped.broker.durables} for api in cluster.apis]
    assert sum(map(len, held)) == 6
    assert sum(map(bool, held)) > 1
    assert cluster.call(1, "GET", "/durables").json()["total"] == 6
    for number, topic in enumerate(topics):
        for shard in range(SHARDS):
            assert cluster.call(shard, "GET", f"/durables/c/s{number}").json()["topic"] == topic
        assert cluster.call(1, "DELETE", f"/durables/c/s{number}").status_code == 200
    assert cluster.error(1, "GET", "/durables/c/s1") == (404, "unknown-subscription")
    assert cluster.error(1, "PUT", "/durables/c/s1", json={"topic": 1}) == (400, "invalid-argument")


def test_what_is_at_no_shard_is_not_found(cluster: Cluster) -> None:
    assert cluster.error(0, "GET", "/queues/none") == (404, "unknown-destination")
    assert cluster.error(0, "DELETE", "/schedule/7") == (404, "unknown-message")
    assert cluster.error(0, "GET", "/operations/7") == (404, "unknown-operation")


def test_a_shard_without_an_owner_is_an_error_that_says_so(cluster: Cluster) -> None:
    cluster.maps[0].update({0: Peer("", 1, "b0", "x:1")}, {})
    name = cluster.name_at(1)
    assert cluster.error(0, "GET", f"/queues/{name}") == (503, "shard-unavailable")
    assert cluster.error(0, "GET", "/queues") == (503, "shard-unavailable")
    assert cluster.call(0, "GET", "/ready", base="").status_code == 200
    assert cluster.call(0, "GET", "/metrics", base="").status_code == 200


def test_messages_are_not_moved_to_another_shard(cluster: Cluster) -> None:
    source, near, far = cluster.name_at(1), cluster.name_at(1, 1), cluster.name_at(2)
    cluster.call(0, "POST", f"/queues/{source}/messages", json={"body": "b"})
    assert cluster.error(0, "POST", f"/queues/{source}/move", json={"to": far}) == (409, "illegal-state")
    assert cluster.call(0, "POST", f"/queues/{source}/move", json={"to": near}).json()["moved"] == 1


def test_users_are_not_changed_and_what_has_no_shard_needs_one(cluster: Cluster) -> None:
    assert cluster.error(0, "POST", "/users", json={"name": "alice"}) == (409, "illegal-state")
    assert cluster.call(0, "GET", "/users").status_code == 200
    assert cluster.error(0, "POST", "/store/verify") == (400, "invalid-argument")


def test_the_bulk_servers_of_all_shards_are_told_in_order(cluster: Cluster) -> None:
    for api in cluster.apis:
        api.application.services.bulk = Running("memory:", api.stepped.settings)
    servers = cluster.call(1, "POST", "/bulk").json()["servers"]
    assert len({server["token"] for server in servers}) == SHARDS
    for shard in range(SHARDS):
        (named,) = cluster.call(1, "POST", f"/bulk?shard={shard}").json()["servers"]
        assert named == servers[shard]
    cluster.maps[1].update({0: Peer("", 1, "b0", "x:1")}, {})
    assert cluster.error(1, "POST", "/bulk") == (503, "shard-unavailable")


def test_metrics_have_the_samples_of_the_shards_of_the_broker(cluster: Cluster) -> None:
    for map in cluster.maps:  # one broker runs shards 0 and 2
        map.update({s: Peer("", 1, "b0" if s != 1 else "b1", f"s{s}:1") for s in range(SHARDS)}, {})
    text = cluster.call(0, "GET", "/metrics", base="").text
    lines = text.splitlines()
    assert [line for line in lines if line.startswith("quire_connections{")] == [
        'quire_connections{shard="0"} 0.0', 'quire_connections{shard="2"} 0.0'
    ]  # fmt: skip
    heads = [line for line in lines if line.startswith("# TYPE")]
    assert len(heads) == len(set(heads))
    samples = [line for line in lines if not line.startswith("#")]
    assert all(line.partition("{")[2].startswith(('shard="0"', 'shard="2"')) for line in samples)


def test_a_request_keeps_its_user_and_its_rights(cluster: Cluster) -> None:
    name = cluster.name_at(1)
    rules = read_rules([{"subject": "user:alice", "allow": ["write", "create"], "destination": name}], "test")
    for api in cluster.apis:
        accounts = api.service.security.accounts
        accounts.take(replace(accounts.settings, users=(User("alice", ""),), rules=rules), SavedState())
    local = {"authorization": f"Bearer {cluster.apis[0].service.security.accounts.local_token}"}
    assert cluster.call(0, "GET", "/queues", headers=local).status_code == 200
    assert cluster.call(0, "POST", f"/queues/{name}/messages", headers=local, json={"body": "b"}).status_code == 201
    assert cluster.error(0, "GET", "/queues") == (401, "not-authenticated")
    forged = {HEADER: "e30=.00"}
    assert cluster.error(0, "GET", "/queues", headers=forged) == (401, "not-authenticated")


@pytest.mark.parametrize("change", ["method", "target", "age", "shard", "signature"])
def test_a_signature_is_for_one_request_at_one_shard_and_soon(cluster: Cluster, change: str) -> None:
    service, map = cluster.apis[0].service, cluster.maps[1]
    calls = cluster._routers[0]._calls
    access = service.security.vouched("", [], Origin("http", "client"))
    header = signed(calls._context, service.clock, access, 1, "GET /api/v1/queues")
    assert cluster.call(1, "GET", "/queues", headers={HEADER: header}).status_code == 200
    method, path, shard = "GET", "/queues", 1
    if change == "method":
        method = "POST"
    elif change == "target":
        path = "/topics"
    elif change == "age":
        cluster.apis[1].stepped.advance(VALID / 1000 + 1)
    elif change == "shard":
        shard = 2
    else:
        header = header[:-1] + ("0" if header[-1] != "0" else "1")
    answer = cluster.call(shard, method, path, headers={HEADER: header})
    assert answer.status_code in (401, 503)
    assert map.own == 1


def test_places_are_pinned_at_the_owner_only_if_nothing_lies_there(cluster: Cluster) -> None:
    name, other = cluster.name_at(1), cluster.name_at(1, 1)
    assert cluster.call(0, "PUT", f"/cluster/places/queue/{name}", json={"shard": 2}).status_code == 200
    assert list(cluster.pins.values()) == [PinRow(f"queue://{name}", f"queue://{name}", 2, 1)]
    assert cluster.maps[1].shard_of(queue(name)) == 2
    assert cluster.error(0, "PUT", f"/cluster/places/queue/{name}?shard=1", json={"shard": 0}) == (503, "shard-moved")
    cluster.call(0, "PUT", f"/queues/{other}")
    refused = cluster.error(0, "PUT", f"/cluster/places/queue/{other}", json={"shard": 2})
    assert refused == (409, "destination-exists")
    assert cluster.maps[1].shard_of(queue(other)) == 1
    assert cluster.error(0, "PUT", f"/cluster/places/queue/{other}", json={"shard": 3}) == (400, "invalid-argument")
    assert cluster.error(0, "PUT", "/cluster/places/queue/ActiveMQ.DLQ?shard=0", json={"shard": 2}) == (
        400, "invalid-argument"
    )  # fmt: skip


def away(map: ClusterMap) -> int:
    """A shard that the queue of the samples is not at without a pin."""
    return (map.home_of("queue://q") + 1) % SHARDS


@pytest.mark.parametrize(
    "row", [row for row in ENDPOINTS if row.path.startswith("/cluster")], ids=lambda row: f"{row.method} {row.path}"
)
def test_what_is_answered_about_a_cluster_is_what_the_document_says(cluster: Cluster, row: Endpoint) -> None:
    use_directory(cluster)
    path, sent = sample_request(row)
    for map in cluster.maps:
        map.update({s: Peer("", 1, f"b{s}", f"s{s}:1") for s in range(SHARDS)}, {"queue://q": Pin(away(map), 1)})
    answer = cluster.call(0, row.method, path, **sent)
    assert answer.status_code == row.status
    msgspec.json.decode(answer.content, type=row.answer)


def test_the_status_of_the_cluster_says_who_runs_and_who_should_run_each_shard(cluster: Cluster) -> None:
    use_directory(cluster)
    status = cluster.call(1, "GET", "/cluster").json()
    assert (status["asked"], status["shard"]) == ("b1", 1)
    assert [(row["name"], row["shards"]) for row in status["brokers"]] == [
        ("b", [0]), ("b1", [1]),
    ]  # fmt: skip
    assert [(row["shard"], row["broker"], row["wanted"]) for row in status["shards"]] == [
        (0, "b", "b"), (1, "b1", "b1"), (2, None, "b"),
    ]  # fmt: skip
    assert cluster.error(0, "POST", "/cluster/shards/1/move", json={"broker": "none"}) == (404, "unknown-broker")
    assert cluster.error(0, "POST", "/cluster/shards/9/move", json={"broker": "b"}) == (400, "invalid-argument")
    assert cluster.error(0, "DELETE", "/cluster/places/queue/q") == (404, "unknown-destination")
    assert cluster.error(0, "GET", "/cluster/places/box/q") == (400, "invalid-destination")


def test_the_place_of_a_destination_needs_no_answer_of_its_shard(cluster: Cluster) -> None:
    """The process that is asked may not know its owner yet, or the shard may have none."""
    use_directory(cluster)
    names = [cluster.name_at(shard) for shard in range(SHARDS)]
    for map in cluster.maps:
        map.update({}, {})
    places = [cluster.call(2, "GET", f"/cluster/places/queue/{name}") for name in names]
    assert [place.status_code for place in places] == [200] * SHARDS
    assert [(place.json()["shard"], place.json()["broker"]) for place in places] == [(0, "b"), (1, "b1"), (2, None)]


def test_a_foreign_name_is_refused_by_the_process_that_is_asked(cluster: Cluster) -> None:
    headers = {"host": "evil.example"}
    for path in ("/queues", f"/queues/{cluster.name_at(1)}", f"/queues/{cluster.name_at(0)}"):
        assert cluster.error(0, "GET", path, headers=headers) == (400, "protocol-violation"), path


class FakeDirectory:
    """The database, in memory: two brokers run two of three shards."""

    def read(self) -> View:
        brokers = {name: BrokerRow(name, "r", "s", "o", "h", "1", "digest") for name in ("b", "b1")}
        rows = [ShardRow(0, "b", 3, "l:0", "h:0", 7, 1.0), ShardRow(1, "b1", 1, "l:1", "h:1", 8, 1.0, "b1")]
        return View(brokers, {row.shard: row for row in [*rows, ShardRow(2, "gone", 1, "l", "h", 9, 1.0)]}, {})

    def prefer(self, shard: int, broker: str) -> None:
        """It is wanted there."""

    def ask_to_leave(self, broker: str) -> None:
        """It is told."""


def use_directory(cluster: Cluster) -> FakeDirectory:
    """Have all processes use a database in memory."""
    directory = FakeDirectory()
    for api in cluster.apis:
        door = api.application.services.cluster
        assert door is not None
        door.__dict__["_directory"] = directory
    return directory
