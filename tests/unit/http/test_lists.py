"""The API's lists: sorted, searched and paged; the overview and the history."""

import pytest

from tests.unit.broker.harness import consumer
from tests.unit.http.conftest import Api


def fill(api: Api, name: str, count: int) -> None:
    assert api.call("POST", f"/queues/{name}/messages", json={"body": "b", "count": count}).status_code == 201


def names(api: Api, path: str, key: str, **query: object) -> list[str]:
    return [entry["name"] for entry in api.call("GET", path, params=query).json()[key]]


@pytest.fixture
def filled(api: Api) -> Api:
    for name, count in (("a", 2), ("b", 0), ("orders.c", 3), ("orders.d", 1)):
        api.call("PUT", f"/queues/{name}")
        if count:
            fill(api, name, count)
    return api


def test_queues_are_sorted_searched_and_chosen(filled: Api) -> None:
    assert names(filled, "/queues", "queues", sort="-depth") == ["orders.c", "a", "orders.d", "b"]
    assert names(filled, "/queues", "queues", sort="-depth", limit=1, offset=1) == ["a"]
    assert names(filled, "/queues", "queues", search="ORDERS") == ["orders.c", "orders.d"]
    assert names(filled, "/queues", "queues", only="unconsumed", sort="depth") == ["orders.d", "a", "orders.c"]
    page = filled.call("GET", "/queues", params={"only": "nonempty", "limit": 1}).json()
    assert (page["total"], page["next"]) == (3, "a")
    assert filled.error("GET", "/queues?sort=color") == (400, "invalid-argument")
    assert filled.error("GET", "/queues?only=all") == (400, "invalid-argument")


@pytest.mark.parametrize(
    ("kind", "columns"),
    [
        ("queues", "depth in_flight bytes consumers enqueued dequeued dispatched redelivered expired dead_lettered "
                   "suppressed in_rate out_rate oldest"),
        ("topics", "depth bytes consumers durables backlog pending enqueued dispatched in_rate out_rate"),
        ("durables", "client_id topic depth in_flight bytes enqueued dequeued in_rate out_rate oldest"),
        ("streams", "records bytes partitions groups members appended in_rate out_rate"),
        ("groups", "stream lag in_flight members retries in_rate out_rate oldest"),
        ("connections", "address client_id protocol connected in_flight consumers"),
        ("consumers", "connection client_id destination in_flight prefetch slow"),
        ("producers", "last_sent"), ("xa", "age messages state"),
    ],
)  # fmt: skip
def test_every_column_sorts(api: Api, kind: str, columns: str) -> None:
    api.call("PUT", "/queues/q")
    api.call("PUT", "/durables/c/d", json={"topic": "t"})
    api.call("PUT", "/streams/s")
    api.call("PUT", "/streams/s/groups/g/progress", json={"offsets": {}})
    client = consumer(api.stepped)
    api.service.connections[object()] = client.session  # type: ignore[index]
    api.stepped.broker.producers.take("p", 1)
    api.application.services.admin.queues.sampler.sample()
    for column in columns.split():
        for sign in ("", "-"):
            page = api.call("GET", f"/{kind}", params={"sort": sign + column})
            assert (page.status_code, page.json()["total"]) == (200, 0 if kind == "xa" else 1)


def test_consumers_say_why_they_get_nothing(api: Api) -> None:
    fill(api, "q", 2)
    clients = [consumer(api.stepped, prefetchSize="1"), consumer(api.stepped, "empty")]
    for client in clients:
        api.service.connections[object()] = client.session  # type: ignore[index]
    found = api.call("GET", "/consumers", params={"sort": "destination"}).json()["consumers"]
    assert [(each["destination"], each["consumer"]["waits"]["cause"]) for each in found] == [
        ("queue://empty", "nothing-waits"), ("queue://q", "prefetch-full"),
    ]  # fmt: skip
    assert "1 messages that are not acknowledged" in found[1]["consumer"]["waits"]["text"]
    (status,) = api.call("GET", "/queues/q").json()["subscriptions"]
    assert status["waits"]["cause"] == "prefetch-full"
    clients[0].connection.is_writable = clients[0].session.writable = False
    assert api.call("GET", "/queues/q").json()["subscriptions"][0]["waits"]["cause"] == "connection-full"
    assert api.call("GET", "/consumers?only=full").json()["total"] == 1


def test_a_consumer_behind_an_exclusive_one_stands_by(api: Api) -> None:
    consumer(api.stepped, exclusive="true", prefetchSize="1")
    consumer(api.stepped)
    fill(api, "q", 1)
    api.stepped.run()
    fill(api, "q", 1)
    waits = [each["waits"]["cause"] for each in api.call("GET", "/queues/q").json()["subscriptions"]]
    assert waits[0] == "prefetch-full"
    assert waits[1] in ("stand-by", "consumer-busy")


def test_overview_tells_the_state_at_a_glance(filled: Api) -> None:
    sampler = filled.application.services.admin.queues.sampler
    sampler.sample()
    filled.stepped.advance(20)
    sampler.sample()
    found = filled.call("GET", "/overview").json()
    assert (found["depth"], found["counts"]["queues"], found["state"]) == (6, 4, "running")
    assert found["oldest"] == {"kind": "queue", "name": "a", "age_seconds": 20.0}
    assert [(each["code"], each["name"]) for each in found["attention"]] == [
        ("no-consumer", "orders.c"), ("no-consumer", "a"), ("no-consumer", "orders.d"),
    ]  # fmt: skip
    assert "messages wait, and there is no consumer: 3" in found["attention"][0]["text"]
    assert found["attention"][0]["advice"]


def test_history_tells_the_last_minutes(api: Api) -> None:
    sampler = api.application.services.admin.queues.sampler
    sampler.sample()
    fill(api, "q", 4)
    api.stepped.advance(2)
    sampler.sample()
    found = api.call("GET", "/history", params={"of": "queue", "name": "q"}).json()
    assert (found["in"], found["out"], found["depth"]) == ([None, 2], [None, 0], [None, 4])
    assert found["at"][1] - found["at"][0] == 2000
    assert api.call("GET", "/history", params={"of": "broker", "span": "24h"}).json()["depth"] == [0]
    assert api.error("GET", "/history?of=queue&name=none") == (404, "unknown-destination")
    assert api.error("GET", "/history?of=durable&name=c/d") == (404, "unknown-subscription")
    assert api.error("GET", "/history?of=group&name=s/g")[0] == 404
    assert api.error("GET", "/history?of=planet&name=x") == (400, "invalid-argument")
    assert api.error("GET", "/history?span=1y") == (400, "invalid-argument")
