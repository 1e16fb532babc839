"""STOMP clients of a cluster: what they do works alike, whichever process they are connected to."""

import pytest

from quire.cluster.link import FULL
from quire.server.connection import ClientTransport
from quire.testing.stepped import Frame, SteppedClient
from quire.testing.stepped_cluster import SteppedCluster
from tests.unit.broker.harness import settings


def acknowledged(client: SteppedClient, messages: list[Frame]) -> None:
    for message in messages:
        client.ack(message)


@pytest.fixture(params=[1 << 20, 61], ids=["whole", "cut"])
def cluster(request: pytest.FixtureRequest) -> SteppedCluster:
    """A cluster of three shards whose links cut frames, or do not."""
    return SteppedCluster(3, piece=request.param)


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_a_message_goes_over_two_entries_to_its_owner_and_back(cluster: SteppedCluster, version: str) -> None:
    queue = cluster.name_at(1)
    producer, consumer = cluster.connect(0, version), cluster.connect(2, version)
    consumer.subscribe(queue, ack="client")
    producer.send(queue, b"a\0b", {"receipt": "r", "colour": "red"})
    cluster.run()
    assert producer.receipts() == ["r"]
    (message,) = consumer.take("MESSAGE")
    assert message.body == b"a\0b"
    assert message.headers["colour"] == "red"
    assert message.headers["destination"] == f"/queue/{queue}"
    headers = {**message.headers, "id": message.headers.get("ack", ""), "receipt": "a"}
    lines = "".join([f"{name}:{value}\n" for name, value in headers.items()])
    consumer.feed(f"ACK\n{lines}\n\0".encode())
    cluster.run()
    assert consumer.receipts() == ["a"]
    assert cluster.members[1].queue(queue).depth == 0
    assert queue not in cluster.members[0].broker.destinations.queues
    assert producer.errors() + consumer.errors() == []


def test_a_producer_with_more_destinations_than_heads_are_kept_of_reaches_each_at_its_shard() -> None:
    cluster = SteppedCluster(3)
    queues = [f"many.{number}" for number in range(90)]
    for number in range(3):
        producer = cluster.connect(number)
        for queue in [*queues, *queues]:  # the head that those of later queues are like is one of another shard
            producer.send(queue, b"m")
        cluster.run()
        assert producer.errors() == []
    assert [cluster.owner(queue).queue(queue).depth for queue in queues] == [6] * len(queues)
    for number, member in cluster.members.items():
        assert {cluster.shard_of(queue) for queue in member.broker.destinations.queues} == {number}


def test_runs_of_acknowledgements_go_to_those_who_gave_the_messages(cluster: SteppedCluster) -> None:
    queues = [cluster.name_at(shard) for shard in range(3)]
    client = cluster.connect(0)
    for id, queue in enumerate(queues):
        client.subscribe(queue, id=str(id))
        client.send(queue, b"m")
        client.send(queue, b"n")
    cluster.run()
    ids = [message.headers["ack"] for message in client.take("MESSAGE")]
    assert len({id.partition("-")[2] for id in ids}) == 3
    client.feed(b"".join([f"ACK\nid:{id}\n\n\0".encode() for id in ids]))
    cluster.run()
    assert [cluster.owner(queue).queue(queue).depth for queue in queues] == [0, 0, 0]


def test_an_unknown_id_of_another_shard_is_its_error(cluster: SteppedCluster) -> None:
    client = cluster.connect(0)
    client.subscribe(cluster.name_at(1))
    client.frame("ACK", {"id": "s1~99", "receipt": "r"})
    cluster.run()
    (error,) = client.take("ERROR")
    assert error.headers["code"] == "unknown-message"
    assert error.headers["receipt-id"] == "r"
    assert client.connection.closed


@pytest.mark.parametrize("id", ["s9~1", "s~1", "sx~1", "s1", "s99999999999~1"])
def test_an_id_of_no_shard_is_unknown(id: str) -> None:
    client = SteppedCluster(3).connect(0)
    client.frame("ACK", {"id": id})
    assert client.errors() == ["unknown-message"]


def test_disconnect_is_answered_when_all_shards_have_done_what_was_said(cluster: SteppedCluster) -> None:
    queues = [cluster.name_at(shard) for shard in range(3)]
    client = cluster.connect(0)
    for queue in queues:
        client.send(queue, b"m")
    client.frame("DISCONNECT", {"receipt": "bye"})
    assert client.receipts() == []
    cluster.run()
    assert client.receipts() == ["bye"]
    assert client.connection.closed
    assert [cluster.owner(queue).queue(queue).depth for queue in queues] == [1, 1, 1]
    assert [list(member.virtual_clients.links) == [] or not next(iter(member.virtual_clients.links)).virtual
            for member in cluster.members.values()] == [True] * 3  # fmt: skip


def test_two_subscriptions_of_one_id_may_be_at_different_shards(cluster: SteppedCluster) -> None:
    here, there = cluster.name_at(0), cluster.name_at(1)
    client = cluster.connect(0)
    client.subscribe(here)
    client.subscribe(there)
    client.send(here, b"here")
    client.send(there, b"there")
    cluster.run()
    assert sorted(client.messages()) == [b"here", b"there"]
    client.frame("UNSUBSCRIBE", {"id": "0", "receipt": "r"})
    client.send(here, b"here")
    client.send(there, b"there")
    cluster.run()
    assert client.receipts() == ["r"]
    assert client.messages() == []
    assert client.errors() == []


def test_no_local_holds_at_every_shard_of_a_wildcard(cluster: SteppedCluster) -> None:
    topics = [next(f"n.{n}" for n in range(100) if cluster.shard_of(f"topic://n.{n}") == at) for at in range(3)]
    client, other = cluster.connect(0), cluster.connect(1)
    for each in (client, other):
        each.frame("SUBSCRIBE", {"destination": "/topic/n.*", "id": "0", "no-local": "true"})
    cluster.run()
    for topic in topics:
        client.frame("SEND", {"destination": f"/topic/{topic}"}, topic.encode())
    cluster.run()
    assert client.messages() == []
    assert sorted(other.messages()) == sorted([topic.encode() for topic in topics])


def test_a_connection_removes_a_durable_subscription_by_its_name_alone_wherever_it_is(cluster: SteppedCluster) -> None:
    topic = next(f"t{n}" for n in range(100) if cluster.shard_of(f"topic://t{n}") == 1)
    first = cluster.connect(0, headers={"client-id": "c"})
    first.frame("SUBSCRIBE", {"destination": f"/topic/{topic}", "id": "0", "activemq.subscriptionName": "s"})
    cluster.run()
    first.frame("DISCONNECT")
    cluster.run()
    second = cluster.connect(2, headers={"client-id": "c"})
    second.frame("UNSUBSCRIBE", {"id": "0", "activemq.subscriptionName": "s", "receipt": "gone"})
    cluster.run()
    assert (second.receipts(), second.errors()) == (["gone"], [])
    assert cluster.members[1].broker.durables.find("c", "s") is None


@pytest.mark.parametrize("entries", [(0, 0), (0, 1), (1, 2)])
def test_a_client_may_come_back_before_its_entry_has_seen_that_it_has_gone(
    cluster: SteppedCluster, entries: tuple[int, int]
) -> None:  # fmt: skip
    for id in ("a", "b", "c", "d"):  # their homes are different shards
        first = cluster.connect(entries[0], headers={"client-id": id})
        first.connection.has_ended = True
        second = cluster.connect(entries[1], headers={"client-id": id})
        assert (second.take("CONNECTED"), second.errors()) == ([], [])
        first.vanish()
        cluster.advance(0.1, 0.01)
        assert len(second.take("CONNECTED")) == 1
        second.vanish()
        cluster.run()


def test_an_answer_finds_its_way_to_a_temporary_queue(cluster: SteppedCluster) -> None:
    service, asker = cluster.connect(0), cluster.connect(2)
    queue = cluster.name_at(1)
    service.subscribe(queue)
    asker.frame("SUBSCRIBE", {"destination": "/temp-queue/answers", "id": "a"})
    for number in range(3):
        asker.send(queue, b"?", {"reply-to": "/temp-queue/answers", "correlation-id": str(number)})
    cluster.run()
    for message in service.take("MESSAGE"):
        service.frame("SEND", {"destination": message.headers["reply-to"],
                               "correlation-id": message.headers["correlation-id"]}, b"!")  # fmt: skip
    cluster.run()
    answers = asker.take("MESSAGE")
    assert [answer.headers["correlation-id"] for answer in answers] == ["0", "1", "2"]
    assert {answer.headers["destination"] for answer in answers} == {"/temp-queue/answers"}


# Transactions.


# Spread destinations.


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
@pytest.mark.parametrize("ack", ["client-individual", "client"])
def test_a_consumer_of_a_wildcard_is_at_every_shard(version: str, ack: str) -> None:
    cluster = SteppedCluster(3)
    queues = [cluster.name_at(shard, "a.") for shard in range(3)]
    producer, consumer = cluster.connect(1), cluster.connect(0, version)
    for queue in queues:
        producer.send(queue, b"m")
    cluster.run()
    consumer.subscribe("a.*", ack=ack, headers={"receipt": "r"})
    cluster.run()
    assert consumer.receipts() == ["r"]
    messages = consumer.take("MESSAGE")
    assert {message.headers["destination"] for message in messages} == {f"/queue/{queue}" for queue in queues}
    acknowledged(consumer, messages if ack == "client-individual" else messages[-1:])
    cluster.run()
    assert consumer.errors() == []
    assert [cluster.owner(queue).queue(queue).depth for queue in queues] == [0, 0, 0]
    consumer.frame("UNSUBSCRIBE", {"id": "0", "receipt": "u"})
    producer.send(queues[0], b"m")
    cluster.run()
    assert consumer.receipts() == ["u"]
    assert consumer.messages() == []


def test_a_temporary_queue_is_browsed_by_its_own_connection_wherever_it_is() -> None:
    cluster = SteppedCluster(2, fronts=1)
    for client in (cluster.connect(0), cluster.connect_to_front()):
        replies = {"destination": "/temp-queue/replies"}
        client.subscribe("", id="a", headers=replies)
        client.send("", b"1", replies)
        cluster.run()
        client.subscribe("", "auto", "b", {"browser": "true", **replies})
        cluster.run()
        shown = [(frame.headers["subscription"], frame.body) for frame in client.take("MESSAGE")]
        assert shown == [("a", b"1"), ("b", b"1"), ("b", b"")]
        assert client.errors() == []


def test_a_process_that_is_about_to_stop_takes_no_more_clients_of_others(cluster: SteppedCluster) -> None:
    queue = cluster.name_at(1)
    known = cluster.connect(0)
    known.send(queue, b"one", {"receipt": "1"})
    cluster.run()
    cluster.members[1].virtual_clients.close_doors()
    late = cluster.connect(0)
    late.subscribe(queue)
    known.send(queue, b"two", {"receipt": "2"})
    cluster.run()
    assert late.errors() == ["shard-moved"]
    assert late.messages() == []
    assert known.receipts() == ["1", "2"]


def test_a_held_producer_of_another_process_goes_on_once() -> None:
    cluster = SteppedCluster(2, settings(store={"limit": 2000}, producer={"hold_limit": 5.0}))
    queue = cluster.name_at(1)
    producer, consumer = cluster.connect(0), cluster.connect(1)
    for number in range(5):  # the fourth one is held, and the fifth one waits unread
        producer.send(queue, b"x" * 900, {"receipt": str(number)})
        cluster.run()
    consumer.subscribe(queue)
    cluster.run()
    flow = cluster.members[1].broker.core.flow
    assert flow.held_total == 1
    consumer.ack(consumer.take("MESSAGE")[0])
    cluster.run()
    assert producer.receipts() == ["0", "1", "2", "3"]
    assert flow.held_total == 2
    cluster.advance(6.0)
    assert producer.errors() == ["producer-held"]
    assert not flow.holds


def test_a_cumulative_acknowledgement_that_waits_for_a_shard_covers_all_shards(cluster: SteppedCluster) -> None:
    queues = [cluster.name_at(shard, "w.q") for shard in range(3)]
    consumer = cluster.connect(0)
    consumer.subscribe("w.>", ack="client", headers={"activemq.prefetchSize": "30"})
    for queue in queues:
        consumer.send(queue, b"1")
    cluster.run()
    messages = consumer.take("MESSAGE")
    consumer.feed(  # in one piece: the shard of the first frame takes no more input when the second one is read
        b"SEND\ndestination:/queue/%b\n\n%b\0" % (cluster.name_at(1, "other").encode(), b"x" * (FULL + 1))
        + b"ACK\nid:%b\nreceipt:r\n\n\0" % messages[-1].headers["ack"].encode()
    )
    cluster.run()
    assert consumer.receipts() == ["r"]
    assert [cluster.owner(queue).queue(queue).depth for queue in queues] == [0, 0, 0]


def test_an_owner_that_has_lost_its_store_sends_the_clients_of_others_away(cluster: SteppedCluster) -> None:
    client = cluster.connect(0)
    client.subscribe(cluster.name_at(1))
    cluster.run()
    for virtual in list(cluster.members[1].sessions):
        assert isinstance(virtual, ClientTransport)
        virtual.disconnect_for_failover()
    cluster.run()
    assert client.errors() == ["broker-stopping"]


def test_an_empty_transaction_is_committed_and_forgotten(cluster: SteppedCluster) -> None:
    client = cluster.connect(0)
    for _ in range(2):
        client.frame("BEGIN", {"transaction": "t"})
        client.frame("COMMIT", {"transaction": "t", "receipt": "r"})
    cluster.run()
    assert client.receipts() == ["r", "r"]
    client.frame("COMMIT", {"transaction": "t"})
    assert client.errors() == ["unknown-transaction"]
