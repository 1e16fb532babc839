"""The picture of producers, destinations and consumers."""

from typing import Any

from quire.testing.stepped import SteppedBroker, SteppedClient
from tests.unit.broker.harness import consumer, core_session, drain, settings
from tests.unit.http.conftest import Api

Edges = dict[tuple[str, str], dict[str, Any]]


def connected(api: Api, client: SteppedClient) -> SteppedClient:
    api.service.connections[client] = client.session  # type: ignore[index]
    return client


def producer(api: Api, client_id: str, *destinations: str) -> SteppedClient:
    client = connected(api, api.stepped.connect(headers={"client-id": client_id}))
    for destination in destinations:
        client.frame("SEND", {"destination": destination}, b"x")
    api.stepped.run()
    return client


def drawn(api: Api, **query: object) -> tuple[dict[str, dict[str, Any]], Edges]:
    found = api.call("GET", "/topology", params=query).json()
    nodes = {node["id"]: node for node in found["nodes"]}
    edges = {(edge["from"], edge["to"]): edge for edge in found["edges"]}
    assert {end for edge in edges for end in edge} <= set(nodes)
    return nodes, edges


def sample(api: Api, seconds: float = 2) -> None:
    api.stepped.advance(seconds)
    api.stepped.run()
    api.application.services.admin.queues.sampler.sample()


def test_producers_and_consumers_are_joined_by_their_queues(api: Api) -> None:
    sample(api)
    producer(api, "p", "/queue/q", "/queue/q")
    producer(api, "r", "/queue/q", "/queue/q")
    drain(api.stepped, connected(api, consumer(api.stepped)))
    sample(api)
    nodes, edges = drawn(api)
    assert set(nodes) == {"queue:q", "producer:p", "producer:r", "consumer:client-3"}
    assert (nodes["queue:q"]["in_rate"], nodes["queue:q"]["out_rate"], nodes["queue:q"]["depth"]) == (2, 2, 0)
    assert (edges["producer:p", "queue:q"]["rate"], edges["producer:p", "queue:q"]["estimated"]) == (1, True)
    delivery = edges["queue:q", "consumer:client-3"]
    assert (delivery["rate"], delivery["estimated"], delivery["waits"]) == (2, False, None)


def test_messages_that_wait_say_why(api: Api) -> None:
    producer(api, "p", "/queue/alone", "/queue/q", "/queue/q")
    connected(api, consumer(api.stepped, prefetchSize="1"))
    sample(api)
    nodes, edges = drawn(api)
    assert nodes["queue:alone"]["waits"] == {"cause": "no-consumer", "text": "there is no consumer", "messages": 1}
    waits = edges["queue:q", "consumer:client-2"]["waits"]
    assert (waits["cause"], waits["messages"]) == ("prefetch-full", 1)


def test_virtual_topics_composites_durables_groups_and_dead_letters_are_drawn() -> None:
    composites = [{"queue": "both", "forward_to": ["queue://a", "topic://t"]}]
    api = Api(SteppedBroker(settings({"maximum_redeliveries": 0}, composites=composites)))
    api.call("PUT", "/queues/Consumer.x.VirtualTopic.v")
    api.call("PUT", "/durables/c/d", json={"topic": "t"})
    api.call("PUT", "/streams/s", json={"partitions": 1})
    api.call("POST", "/streams/s/groups/g/receive", json={"start": "earliest"})
    producer(api, "p", "/topic/VirtualTopic.v", "/queue/both", "/stream/s")
    client = connected(api, consumer(api.stepped, "a"))
    client.nack(client.take("MESSAGE")[0])
    sample(api)
    sample(api)
    nodes, edges = drawn(api)
    assert (nodes["topic:VirtualTopic.v"]["role"], nodes["queue:both"]["role"]) == ("virtual-topic", "composite")
    assert nodes["queue:ActiveMQ.DLQ"]["role"] == "dead-letter"
    kinds = {ends: edge["kind"] for ends, edge in edges.items()}
    assert kinds["topic:VirtualTopic.v", "queue:Consumer.x.VirtualTopic.v"] == "forward"
    assert (kinds["queue:both", "queue:a"], kinds["queue:both", "topic:t"]) == ("forward", "forward")
    assert kinds["queue:a", "queue:ActiveMQ.DLQ"] == "dead-letter"
    assert (kinds["topic:t", "durable:c/d"], kinds["stream:s", "group:s/g"]) == ("subscribe", "subscribe")
    assert kinds["producer:p", "topic:VirtualTopic.v"] == "send"


def test_the_busiest_are_shown_and_the_others_summed(api: Api) -> None:
    for number in range(5):
        producer(api, f"p{number}", *[f"/queue/q{number}"] * (number + 1))
    sample(api)
    found = api.call("GET", "/topology", params={"limit": 2}).json()
    nodes = {node["id"]: node for node in found["nodes"]}
    assert {"queue:q4", "queue:q3", "others"} <= set(nodes)
    assert (found["left_out"], nodes["others"]["depth"], nodes["others"]["count"]) == (3, 6, 3)
    assert api.error("GET", "/topology?limit=0") == (400, "invalid-argument")


def test_more_clients_than_the_limit_are_one_node(api: Api) -> None:
    for number in range(5):
        producer(api, f"p{number}", "/queue/q")
    sample(api)
    nodes, edges = drawn(api, limit=2)
    assert {node for node in nodes if "p" in node} == {"producer:p0", "producer:p1", "others:producer"}
    assert nodes["others:producer"]["kind"] == "producer"
    assert ("others:producer", "queue:q") in edges


def test_the_picture_of_one_destination_has_its_neighbours(api: Api) -> None:
    api.call("PUT", "/queues/Consumer.x.VirtualTopic.v")
    producer(api, "p", "/topic/VirtualTopic.v", "/queue/other")
    sample(api)
    for focus in ("VirtualTopic.v", "topic://VirtualTopic.v", "queue://Consumer.x.VirtualTopic.v"):
        nodes, _ = drawn(api, focus=focus)
        assert set(nodes) == {"topic:VirtualTopic.v", "queue:Consumer.x.VirtualTopic.v", "producer:p"}
    assert api.error("GET", "/topology?focus=none") == (404, "unknown-destination")


def test_clients_without_an_id_are_grouped_by_host(api: Api) -> None:
    for port in (1, 2):
        client = connected(api, consumer(api.stepped))
        client.session.name = core_session(client).name = f"10.0.0.7:{port}"
    nodes, edges = drawn(api)
    assert nodes["consumer:10.0.0.7"]["count"] == 2
    assert edges["queue:q", "consumer:10.0.0.7"]["estimated"] is False
