"""The API's topics and durable subscriptions."""

from typing import Any

import pytest

from quire.broker.topics.topic import DurableSubscription
from quire.testing.stepped import SteppedClient
from tests.unit.http.conftest import Api


def subscriber(api: Api, name: str = "t", **headers: str) -> SteppedClient:
    """A client with a plain subscription of a topic."""
    client = api.stepped.connect()
    client.frame("SUBSCRIBE", {"destination": f"/topic/{name}", "id": "0", "ack": "client-individual", **headers})
    api.stepped.run()
    return client


def durable(api: Api, **headers: str) -> SteppedClient:
    """A client ``c`` that consumes its durable subscription ``d``."""
    client = api.stepped.connect(headers={"client-id": "c"})
    named = {"activemq.subscriptionName": "d", "ack": "client-individual"}
    client.frame("SUBSCRIBE", {"destination": "/topic/t", "id": "0", **named, **headers})
    api.stepped.run()
    return client


def publish(api: Api, count: int, name: str = "t", **headers: str) -> None:
    body = {"body": "b", "headers": headers, "count": count}
    assert api.call("POST", f"/topics/{name}/messages", json=body).json()["sent"] == count


def audit(caplog: pytest.LogCaptureFixture) -> list[tuple[str, dict[str, Any]]]:
    found = [(record.event, dict(record.data)) for record in caplog.records]  # type: ignore[attr-defined]
    return [(event, {key: value for key, value in data.items() if key != "by"}) for event, data in found]


# Topics.


def test_topic_has_all_that_the_command_line_shows(api: Api) -> None:
    subscriber(api, selector="JMSPriority = 4")
    durable(api)
    publish(api, 5)
    (topic,) = api.call("GET", "/topics").json()["topics"]
    assert topic == api.call("GET", "/topics/t").json()
    assert (topic["consumers"], topic["durables"], topic["offline_durables"]) == (2, 1, 0)
    assert (topic["enqueued"], topic["depth"], topic["backlog"]) == (5, 5, 5)
    plain, lasting = topic["subscriptions"]
    assert (plain["client_id"], plain["connection"], plain["selector"]) == (None, "client-1", "JMSPriority = 4")
    assert (lasting["client_id"], lasting["name"], lasting["in_flight"]) == ("c", "d", 5)


def test_slow_subscription_shows_what_it_loses_and_why(api: Api) -> None:
    subscriber(api, **{"activemq.prefetchSize": "1", "activemq.maximumPendingMessageLimit": "2"})
    publish(api, 10)
    topic = api.call("GET", "/topics/t").json()
    assert (topic["discarded_for_pending_limit"], topic["discarded_for_memory_limit"]) == (7, 0)
    assert topic["pending"] == 2
    (subscription,) = topic["subscriptions"]
    assert (subscription["in_flight"], subscription["pending"], subscription["discarded"]) == (1, 2, 7)


def test_topic_is_created_and_deleted_and_that_is_logged(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "quire"):
        assert api.call("PUT", "/topics/a%2Fb").json()["name"] == "a/b"
        assert api.error("PUT", "/topics/a%2Fb") == (409, "destination-exists")
        assert api.call("DELETE", "/topics/a%2Fb").json() == {"removed": 0}
    assert audit(caplog) == [
        ("topic.created", {"topic": "a/b"}),
        ("topic.deleted", {"topic": "a/b", "messages": 0, "whole": True}),
    ]
    assert api.error("GET", "/topics/a%2Fb") == (404, "unknown-destination")
    assert api.error("DELETE", "/topics/a%2Fb") == (404, "unknown-destination")
    assert api.stepped.store.destinations() == []


def test_topic_that_is_used_is_deleted_by_force_only(api: Api) -> None:
    client = subscriber(api)
    api.call("PUT", "/durables/c/d", json={"topic": "t"})
    publish(api, 3)
    assert api.error("DELETE", "/topics/t") == (409, "destination-in-use")
    assert api.call("DELETE", "/topics/t?force=true").json() == {"removed": 3}
    assert client.connection.closed
    assert api.call("GET", "/durables").json() == {"durables": [], "next": None, "total": 0}
    api.stepped.run()
    assert api.stepped.store.destinations() == []


def test_message_is_sent_to_a_topic(api: Api) -> None:
    client = subscriber(api)
    publish(api, 1, colour="red")
    (frame,) = client.take("MESSAGE")
    assert (frame.body, frame.headers["colour"]) == (b"b", "red")


def test_moving_to_a_topic_publishes(api: Api) -> None:
    client = subscriber(api)
    api.call("POST", "/queues/q/messages", json={"body": "m", "count": 3})
    assert api.call("POST", "/queues/q/move", json={"to": "topic://t"}).json()["moved"] == 3
    assert client.messages() == [b"m"] * 3


# Durable subscriptions.


def test_durable_subscription_is_created_before_its_client_comes(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    body = {"topic": "t", "selector": "colour = 'red'", "no_local": True}
    with caplog.at_level("INFO", "quire"):
        created = api.call("PUT", "/durables/c%2F1/d", json=body)
    assert created.status_code == 201
    publish(api, 2, colour="red")
    publish(api, 3, colour="blue")
    api.stepped.advance(60)
    status = api.call("GET", "/durables/c%2F1/d").json()
    assert (status["client_id"], status["name"], status["topic"]) == ("c/1", "d", "t")
    assert (status["selector"], status["no_local"]) == ("colour = 'red'", True)
    assert (status["depth"], status["consumers"], status["offline_seconds"]) == (2, [], 60.0)
    assert status["oldest_message_age_seconds"] == 60.0
    assert audit(caplog) == [("subscription.created", {"client": "c/1", "subscription": "d", "topic": "t"})]
    assert api.error("PUT", "/durables/c%2F1/d", json=body) == (409, "destination-exists")
    assert api.error("PUT", "/durables/c/d", json={"topic": "t", "selector": "a ="}) == (400, "invalid-selector")


def test_durable_subscription_shows_its_consumer(api: Api) -> None:
    durable(api)
    publish(api, 3)
    status = api.call("GET", "/durables/c/d").json()
    assert (status["depth"], status["in_flight"], status["offline_seconds"]) == (3, 3, None)
    (consumer,) = status["consumers"]
    assert (consumer["connection"], consumer["in_flight"]) == ("client-1", 3)


def test_durable_subscription_that_waits_for_its_acknowledgements_says_so(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    durable(api)
    publish(api, 101)
    monkeypatch.setattr(DurableSubscription, "goes_up_to", lambda self, lane: self.finished.highest)
    (source,) = api.stepped.broker.durables
    source.full_of_holes_since = api.stepped.clock.monotonic()
    api.stepped.advance(3)
    assert api.call("GET", "/durables/c/d").json()["blocked"] == {"cause": "ack-set-full", "age_seconds": 3.0}


def test_durable_subscription_is_browsed_and_purged(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    api.call("PUT", "/durables/c/d", json={"topic": "t"})
    api.call("PUT", "/durables/c/other", json={"topic": "t"})
    for number in range(5):
        publish(api, 1, n=str(number))
    page = api.call("GET", "/durables/c/d/messages?limit=2").json()
    assert [message["headers"]["n"] for message in page["messages"]] == ["0", "1"]
    page = api.call("GET", f"/durables/c/d/messages?after={page['next']}&selector=n+%3E+2").json()
    assert [message["headers"]["n"] for message in page["messages"]] == ["3", "4"]
    with caplog.at_level("INFO", "quire"):
        assert api.call("POST", "/durables/c/d/purge", json={"selector": "n = 1"}).json() == {
            "removed": 1,
            "next": None,
        }
        assert api.call("POST", "/durables/c/d/purge", json={"limit": 2}).json()["removed"] == 2
        assert api.call("POST", "/durables/c/d/purge").json()["removed"] == 2
    assert {name for name, _ in audit(caplog)} == {"messages.purged"}
    assert api.call("GET", "/durables/c/d").json()["depth"] == 0
    assert api.call("GET", "/durables/c/d/messages").json() == {"messages": [], "next": None, "total": 0}
    assert api.call("GET", "/durables/c/other").json()["depth"] == 5
    assert len(api.call("GET", "/durables/c/other/messages").json()["messages"]) == 5
    assert api.call("POST", "/durables/c/other/purge").json()["removed"] == 5
    assert api.call("GET", "/topics/t").json()["depth"] == 0


def test_purge_leaves_what_the_consumer_has(api: Api) -> None:
    client = durable(api, **{"activemq.prefetchSize": "2"})
    publish(api, 5)
    assert api.call("POST", "/durables/c/d/purge").json()["removed"] == 3
    assert len(client.messages()) == 2
    assert api.call("GET", "/durables/c/d").json()["depth"] == 2


def test_durable_subscription_is_removed(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    client = durable(api)
    publish(api, 2)
    assert api.error("DELETE", "/durables/c/d") == (409, "destination-in-use")
    with caplog.at_level("INFO", "quire"):
        assert api.call("DELETE", "/durables/c/d?force=true").json() == {"removed": 2}
    assert client.connection.closed
    data = {"client": "c", "subscription": "d", "messages": 2, "whole": True}
    assert audit(caplog) == [("subscription.deleted", data)]
    assert api.call("GET", "/durables").json() == {"durables": [], "next": None, "total": 0}
    assert api.error("GET", "/durables/c/d")[1] == "unknown-subscription"
    assert api.error("DELETE", "/durables/c/d")[1] == "unknown-subscription"
