"""How large messages may be, by policy: what bulk writers and operators are told, and what stays unchecked."""

from typing import Any

import msgspec
import pytest

from quire.testing.stepped import SteppedBroker
from quire.testing.stepped_cluster import SteppedCluster
from tests.unit.broker.harness import settings
from tests.unit.http.conftest import Api

SMALL: dict[str, Any] = {"policies": [{"destination": "small.>", "max_message_size": 10}]}
LARGE = b"x" * 11


@pytest.fixture
def api() -> Api:
    return Api(SteppedBroker(settings(**SMALL)))


def depth(api: Api, name: str) -> int:
    queue = api.stepped.broker.queues.get(name)
    return 0 if queue is None else queue.depth


@pytest.mark.parametrize(
    ("path", "params"),
    [("/write", {"producer": "p", "sequence": "1"}), ("/write/stages", {"producer": "p"})],
    ids=["written", "staged"],
)
@pytest.mark.parametrize("destination", ["small.q", ["other", "small.q"]])
def test_rows_are_refused_together_and_which_one_is_told(
    api: Api, path: str, params: dict[str, str], destination: Any
) -> None:
    rows = msgspec.msgpack.encode({"destination": destination, "value": [b"fits", LARGE]})
    answer = api.call("POST", path, content=rows, params=params)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["data"]) == (
        413, "message-too-large", {"destination": "queue://small.q", "size": 11, "limit": 10, "row": 1}
    )  # fmt: skip
    assert (depth(api, "other"), depth(api, "small.q")) == (0, 0)
    rows = msgspec.msgpack.encode({"destination": destination, "value": [LARGE[:10]] * 2})
    assert api.call("POST", path, content=rows, params=params).is_success


def test_what_an_operator_sends_is_refused_and_what_one_moves_is_not(api: Api) -> None:
    body = {"body": LARGE.decode(), "count": 3}
    assert api.error("POST", "/queues/small.q/messages", json=body) == (413, "message-too-large")
    assert depth(api, "small.q") == 0
    api.call("POST", "/queues/q/messages", json=body)
    api.call("POST", "/queues/q/move", json={"to": "small.q"})
    api.stepped.run()
    assert (depth(api, "q"), depth(api, "small.q")) == (0, 3)


@pytest.mark.parametrize("destination", ["/queue/small.q,/queue/large.q", "/queue/large.q,/queue/small.q"])
def test_the_smallest_limit_of_several_destinations_holds(destination: str) -> None:
    policies = [*SMALL["policies"], {"destination": "large.>", "max_message_size": 100}]
    api = Api(SteppedBroker(settings(policies=policies)))
    client = api.stepped.connect()
    client.frame("SEND", {"destination": destination}, LARGE)
    api.stepped.run()
    assert client.errors() == ["message-too-large"]
    assert (depth(api, "small.q"), depth(api, "large.q")) == (0, 0)


def test_what_was_sent_before_the_policy_came_is_sent(api: Api) -> None:
    client = api.stepped.connect()
    client.frame("BEGIN", {"transaction": "t"})
    client.send("q", LARGE, {"transaction": "t"})
    client.send("q", LARGE, {"AMQ_SCHEDULED_DELAY": "1000"})
    api.stepped.run()
    api.stepped.broker.reload(settings(policies=[{"destination": "q", "max_message_size": 10}]))
    client.frame("COMMIT", {"transaction": "t"})
    api.stepped.run()
    for _ in range(3):
        api.stepped.advance(1)
        api.stepped.run()
    assert (client.errors(), depth(api, "q")) == ([], 2)
    client.send("q", LARGE)
    api.stepped.run()
    (error,) = client.take("ERROR")
    assert (error.headers["code"], error.headers["message"]) == (
        "message-too-large", "message-too-large: a body of 11 bytes is too large for queue://q: its policy allows 10"
    )  # fmt: skip


@pytest.mark.parametrize("transaction", [{}, {"transaction": "t"}])
def test_a_list_over_several_shards_is_refused_whole(transaction: dict[str, str]) -> None:
    cluster = SteppedCluster(2, settings(**SMALL))
    one, other = cluster.name_at(0), cluster.name_at(1, "small.q")
    client = cluster.connect(0)
    client.frame("BEGIN", {"transaction": "t"})
    client.send("", LARGE, {"destination": f"/queue/{one},/queue/{other}", "receipt": "r", **transaction})
    cluster.run()
    assert (client.errors(), client.receipts()) == (["message-too-large"], [])
    assert [name in cluster.members[0].broker.queues and cluster.members[0].queue(name).depth for name in (one,)] == [0]


def test_a_run_of_messages_to_another_shard_loses_only_what_is_too_large() -> None:
    cluster = SteppedCluster(2, settings(**SMALL))
    name = cluster.name_at(1, "small.q")
    client = cluster.connect(0)
    for body in (b"1", b"2", LARGE, b"3"):
        client.send(name, body)
    cluster.run()
    assert (client.errors(), cluster.members[1].queue(name).depth) == (["message-too-large"], 3)
