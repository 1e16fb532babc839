"""Shards that move, vanish or cannot be reached: clients are told, and nothing confirmed is lost."""

import pytest

from quire.cluster.cluster_map import Pin
from quire.destination import queue
from quire.errors import ShardMoved
from quire.server.cluster.links import PATIENCE
from quire.testing.stepped_cluster import SteppedCluster
from tests.unit.broker.harness import settings


@pytest.fixture
def cluster() -> SteppedCluster:
    """A cluster of three shards."""
    return SteppedCluster(3)


def test_clients_of_a_shard_that_vanishes_are_told_and_go_on_elsewhere(cluster: SteppedCluster) -> None:
    name = cluster.name_at(1)
    producer, consumer, other = cluster.connect(0), cluster.connect(2), cluster.connect(0)
    consumer.subscribe(name)
    other.send(cluster.name_at(0), b"m", {"receipt": "o"})
    producer.send(name, b"m", {"receipt": "r"})
    cluster.run()
    assert producer.receipts() == ["r"]
    assert consumer.messages() == [b"m"]
    cluster.kill(1)
    cluster.run()
    assert producer.errors() == consumer.errors() == ["shard-moved"]
    assert producer.connection.closed
    assert other.receipts() == ["o"]
    assert not other.connection.closed
    cluster.start(1)
    consumer = cluster.connect(2)
    consumer.subscribe(name)
    cluster.run()
    (message,) = consumer.take("MESSAGE")
    assert message.headers["redelivered"] == "true"


def test_input_waits_for_a_shard_without_an_owner(cluster: SteppedCluster) -> None:
    name = cluster.name_at(1)
    cluster.kill(1)
    client = cluster.connect(0)
    for number in range(10):
        client.send(name, b"m", {"receipt": str(number)})
    cluster.advance(PATIENCE / 2)
    assert client.receipts() == client.errors() == []
    cluster.start(1)
    cluster.run()
    assert len(client.receipts()) == 10
    assert cluster.owner(name).queue(name).depth == 10


def test_a_shard_that_stays_without_an_owner_is_an_error(cluster: SteppedCluster) -> None:
    name = cluster.name_at(1)
    cluster.kill(1)
    client = cluster.connect(0)
    client.send(name, b"m", {"receipt": "r"})
    cluster.advance(PATIENCE + 1)
    assert client.errors() == ["shard-unavailable"]
    assert client.connection.closed


def test_an_owner_that_does_not_answer_yet_is_tried_again(cluster: SteppedCluster) -> None:
    name = cluster.name_at(1)
    cluster.kill(1, publishes=False)  # the map still has it
    client = cluster.connect(0)
    client.send(name, b"m", {"receipt": "r"})
    cluster.advance(2)
    assert client.errors() == []
    cluster.start(1)
    cluster.advance(1)
    assert client.receipts() == ["r"]


def test_a_link_from_which_nothing_comes_is_lost_on_both_sides(cluster: SteppedCluster) -> None:
    name = cluster.name_at(1)
    client = cluster.connect(0)
    client.subscribe(name)
    client.send(name, b"m")
    cluster.run()
    cluster.advance(20)
    assert client.errors() == []  # the links' beats
    cluster.cut(1)
    cluster.advance(7)
    assert client.errors() == ["shard-moved"]
    assert len(cluster.members[1].sessions) == 0
    assert [s for s in cluster.members[1].queue(name).subscriptions] == []


def test_a_client_that_comes_again_while_its_old_entry_stands_still_gets_its_messages_in_order(
    cluster: SteppedCluster,
) -> None:  # fmt: skip
    """The shard of its client id has let it in again: where it consumes its old connection may not be lost yet."""
    home = cluster.members[2]
    client_id = next(id for id in "abcdefgh" if home.cluster_map.shard_of_client(id) == 2)
    name = cluster.name_at(1)
    old = cluster.connect(0, headers={"client-id": client_id})
    old.subscribe(name, headers={"activemq.prefetchSize": "2"})
    for number in range(4):
        old.send(name, b"%d" % number)
    cluster.run()
    assert old.messages() == [b"0", b"1"]
    cluster.cut(0)
    for link in list(home.virtual_clients.links):
        link.lost(ShardMoved("the home of the client id notices it first"))
    cluster.run()
    new = cluster.connect(2, headers={"client-id": client_id})
    new.subscribe(name)
    cluster.run()
    messages = [(message.body, message.headers.get("redelivered")) for message in new.take("MESSAGE")]
    assert messages == [(b"0", "true"), (b"1", "true"), (b"2", None), (b"3", None)]
    cluster.advance(10)
    new.send(name, b"4")
    cluster.run()
    assert new.messages() == [b"4"]
    assert new.errors() == []


def test_an_owner_with_another_epoch_is_not_used(cluster: SteppedCluster) -> None:
    name = cluster.name_at(1)
    cluster.members[1].cluster_map.epoch = 99
    client = cluster.connect(0)
    client.send(name, b"m", {"receipt": "r"})
    cluster.advance(PATIENCE + 1)
    assert client.errors() == ["shard-unavailable"]
    assert cluster.members[1].queue(name).depth == 0


def test_a_process_without_the_secret_is_refused(cluster: SteppedCluster) -> None:
    name = cluster.name_at(1)
    cluster.members[0].links._secret = b"guessed"
    client = cluster.connect(0)
    client.send(name, b"m", {"receipt": "r"})
    cluster.advance(PATIENCE + 1)
    assert client.errors() == ["shard-unavailable"]


def test_a_clean_stop_leaves_messages_unflagged(cluster: SteppedCluster) -> None:
    name = cluster.name_at(1)
    consumer = cluster.connect(0)
    consumer.subscribe(name)
    consumer.send(name, b"m")
    cluster.run()
    assert consumer.messages() == [b"m"]
    cluster.stop(1)
    assert consumer.errors() == ["broker-stopping"]
    cluster.start(1)
    consumer = cluster.connect(0)
    consumer.subscribe(name)
    cluster.run()
    assert consumer.messages() == [b"m"]


@pytest.mark.parametrize(
    ("event", "counts"), [("client", True), ("entry", False), ("link", False), ("stop", False)], ids=lambda of: str(of)
)
def test_only_the_loss_of_a_client_counts_as_a_failed_delivery(event: str, counts: bool) -> None:
    cluster = SteppedCluster(3, settings({"maximum_redeliveries": 0}))
    name = cluster.name_at(1)
    consumer = cluster.connect(0)
    consumer.subscribe(name)
    consumer.send(name, b"m")
    cluster.run()
    assert consumer.messages() == [b"m"]
    match event:
        case "client":
            consumer.vanish()
        case "entry":
            cluster.kill(0)
        case "link":
            cluster.cut(1)
            cluster.advance(7)
        case "stop":
            cluster.stop(0)
            assert consumer.errors() == ["broker-stopping"]
    cluster.run()
    assert cluster.members[1].queue("ActiveMQ.DLQ").depth == int(counts)
    assert cluster.members[1].queue(name).depth == int(not counts)


KINDS = ("queue", "durable", "group", "transaction")


def consumed(kind: str, cluster: SteppedCluster, shard: int) -> dict[str, str]:
    """The headers of a SUBSCRIBE frame to something of a kind that a shard has."""
    path = {"durable": "topic", "group": "stream"}.get(kind, "queue")
    name = next(name for n in range(1000) if cluster.shard_of(f"{path}://{(name := f'x{n}')}") == shard)
    headers = {"destination": f"/{path}/{name}", "id": f"{kind}-{shard}", "ack": "client-individual"}
    more = {"durable": {"activemq.subscriptionName": f"s{shard}"}, "group": {"group": "g", "start": "earliest"}}
    return headers | more.get(kind, {})


def failures(cluster: SteppedCluster) -> list[int]:
    """How many failed deliveries count of each message that consumers have."""
    return [
        message.failures
        for member in cluster.members.values()
        for session in member.sessions.values()
        for subscription in session.subscriptions.values()
        for message in subscription.in_flight.values()
    ]


def lose(cluster: SteppedCluster, event: str, name: str) -> None:
    """Shard 1, which has a queue, is lost in one of several ways."""
    match event:
        case "kill":
            cluster.kill(1)
        case "stop":
            cluster.stop(1)
        case "cut":
            cluster.cut(1)
            cluster.advance(7)
        case "pin":
            cluster.pin(queue(name), 2)
            cluster.run()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("event", ["kill", "stop", "cut", "pin", "client"])
def test_what_a_client_has_of_other_shards_does_not_fail_when_one_is_lost(kind: str, event: str) -> None:
    """Neither at its entry nor at a third shard: only the client's own end counts there."""
    cluster = SteppedCluster(3, settings({"rebalance_initial_delay": 0.0, "retry_delays": "0s"}))
    at_all = [consumed(kind, cluster, shard) for shard in (0, 2)]
    lost = cluster.name_at(1, "lost")
    client = cluster.connect(0, headers={"client-id": "c"})
    client.subscribe(lost, id="lost")
    client.send(lost, b"m")
    for headers in at_all:
        client.frame("SUBSCRIBE", headers)
        cluster.advance(3)
        client.frame("SEND", {"destination": headers["destination"]}, b"m")
    cluster.advance(3)
    messages = client.take("MESSAGE")
    assert len(messages) == 3
    if kind == "transaction":
        client.frame("BEGIN", {"transaction": "t"})
        for message in messages:
            client.ack(message, {"transaction": "t"})
        cluster.run()
    if event == "client":
        client.vanish()
    else:
        lose(cluster, event, lost)
    cluster.run()
    assert client.connection.closed
    if 1 not in cluster.members:
        cluster.start(1)
    again = cluster.connect(0, headers={"client-id": "c"})
    for headers in at_all:
        again.frame("SUBSCRIBE", headers)
    cluster.advance(30)
    assert len(again.messages()) == 2
    assert failures(cluster) == [int(event == "client")] * 2


def test_a_pinned_destination_is_where_the_pin_says(cluster: SteppedCluster) -> None:
    name = cluster.name_at(1)
    producer, consumer, here = cluster.connect(0), cluster.connect(2), cluster.connect(1)
    consumer.subscribe(name)
    here.subscribe(name)
    producer.send(cluster.name_at(1, "other"), b"m")
    cluster.run()
    cluster.pin(queue(name), 2)
    cluster.run()
    assert consumer.errors() == here.errors() == ["shard-moved"]
    assert producer.errors() == []
    producer.send(name, b"m", {"receipt": "r"})
    cluster.run()
    assert producer.receipts() == ["r"]
    assert cluster.members[2].queue(name).depth == 1
    assert cluster.members[1].queue(name).depth == 0


def test_an_owner_refuses_what_is_no_more_its_own(cluster: SteppedCluster) -> None:
    name = cluster.name_at(1)
    client = cluster.connect(0)
    owner_map = cluster.members[1].cluster_map
    peers = {number: peer for number in range(3) if (peer := owner_map.peer(number)) is not None}
    owner_map.update(peers, {owner_map.key_of(queue(name)): Pin(2, 1)})
    client.send(name, b"m", {"receipt": "r"})
    cluster.run()
    assert client.errors() == ["shard-moved"]
    assert name not in cluster.members[1].broker.destinations.queues


def test_a_front_passes_everything_on() -> None:
    cluster = SteppedCluster(2, fronts=1)
    names = [cluster.name_at(shard) for shard in range(2)]
    client, other = cluster.connect_to_front(), cluster.connect(0)
    for name in names:
        client.send(name, b"m", {"receipt": name})
        client.subscribe(name, id=name)
    client.send("ActiveMQ.DLQ", b"spread", {"receipt": "spread"})
    other.subscribe("ActiveMQ.DLQ")
    cluster.run()
    assert sorted(client.receipts()) == sorted([*names, "spread"])
    assert len(client.messages()) == 2
    assert other.messages() == [b"spread"]
    assert cluster.fronts[0].broker.destinations.queues == {}


def test_a_client_id_is_its_own_at_a_front_too() -> None:
    cluster = SteppedCluster(2, fronts=1)
    first = cluster.connect_to_front(headers={"client-id": "c"})
    assert len(first.take("CONNECTED")) == 1
    second = cluster.connect(0, headers={"client-id": "c"})
    cluster.advance(2, 0.1)
    assert second.errors() == ["invalid-header"]


def test_a_client_of_a_front_gets_answers_in_its_temporary_queue() -> None:
    cluster = SteppedCluster(2, fronts=1)
    service, asker = cluster.connect(0), cluster.connect_to_front()
    service.subscribe("requests")
    for number in range(4):  # their names lie at both shards
        asker.frame("SUBSCRIBE", {"destination": f"/temp-queue/{number}", "id": str(number)})
        asker.send("requests", b"?", {"reply-to": f"/temp-queue/{number}"})
        asker.frame("SEND", {"destination": f"/temp-queue/{number}"}, b"own")
    cluster.run()
    for message in service.take("MESSAGE"):
        service.frame("SEND", {"destination": message.headers["reply-to"]}, b"!")
    cluster.run()
    answers = asker.take("MESSAGE")
    assert sorted(answer.headers["subscription"] for answer in answers) == sorted("0123" * 2)
    assert all(answer.headers["destination"] == f"/temp-queue/{answer.headers['subscription']}" for answer in answers)
    assert asker.errors() == service.errors() == []
    asker.vanish()
    cluster.run()
    assert [len(member.broker.routing.temporaries.queues) for member in cluster.members.values()] == [0, 0]
