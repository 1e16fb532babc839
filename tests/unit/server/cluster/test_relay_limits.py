"""What a client of a cluster can make its entry and the owners hold, and what others notice of it."""

import pytest

from quire.cluster.link import FULL, WINDOW
from quire.testing.stepped import SteppedClient
from quire.testing.stepped_cluster import SteppedCluster
from tests.unit.broker.harness import settings


def virtual_bytes(cluster: SteppedCluster) -> int:
    """How many bytes wait in the virtual connections of all processes."""
    links = [
        link for member in cluster.members.values() for link in [*member.links.all(), *member.virtual_clients.links]
    ]
    return sum([virtual.waiting + virtual.unread for link in links for virtual in link.virtual.values()])


def feed_all(cluster: SteppedCluster, client: SteppedClient, name: str, count: int, size: int = 1024) -> None:
    """Send many messages, as fast as the broker reads them."""
    for number in range(count):
        client.send(name, b"x" * size, {"receipt": str(number)})
        cluster.step()
    cluster.run()


def test_a_message_larger_than_the_window_comes_through() -> None:
    cluster = SteppedCluster(2)
    name = cluster.name_at(1)
    client = cluster.connect(0)
    body = bytes(range(256)) * (3 * WINDOW // 256)
    client.send(name, body, {"receipt": "r"})
    client.subscribe(name)
    cluster.run()
    assert client.receipts() == ["r"]
    (message,) = client.take("MESSAGE")
    assert message.body == body
    client.ack(message)
    cluster.run()
    assert virtual_bytes(cluster) == 0
    assert cluster.members[0].broker.core.partial_bytes == 0


def test_a_producer_that_the_owner_holds_waits_at_its_entry() -> None:
    cluster = SteppedCluster(2, settings(store={"limit": 50_000}))
    name = cluster.name_at(1)
    producer, consumer = cluster.connect(0), cluster.connect(0)
    feed_all(cluster, producer, name, 200, 10_000)
    confirmed = len(producer.receipts())
    assert 0 < confirmed < 10
    assert producer.connection.paused
    assert virtual_bytes(cluster) < 3 * FULL
    assert FULL // 4 < cluster.members[0].broker.core.partial_bytes <= FULL + 2 * 10_100
    consumer.subscribe(name, ack="auto")
    cluster.run()
    for _ in range(50):
        cluster.advance(0.1)
    assert len(producer.receipts()) == 200 - confirmed
    assert len(consumer.messages()) == 200
    assert not producer.connection.paused
    assert cluster.members[0].broker.core.partial_bytes == 0
    assert producer.errors() == []


def test_a_held_producer_is_refused_by_the_owner_in_the_end() -> None:
    cluster = SteppedCluster(2, settings(store={"limit": 5_000}))
    name = cluster.name_at(1)
    producer = cluster.connect(0)
    feed_all(cluster, producer, name, 20)
    cluster.advance(60)
    assert producer.errors() == ["producer-held"]


def test_a_client_that_does_not_read_holds_up_no_other() -> None:
    cluster = SteppedCluster(2)
    name, other = cluster.name_at(1), cluster.name_at(1, "other")
    slow, fast, producer = cluster.connect(0), cluster.connect(0), cluster.connect(1)
    slow.subscribe(name, ack="auto")
    fast.subscribe(other, ack="auto")
    cluster.run()
    slow.connection.is_writable = False
    slow.session.writable = False
    for _ in range(200):
        producer.send(name, b"x" * 10_000)
        producer.send(other, b"x")
        cluster.step()
    cluster.run()
    assert len(fast.messages()) == 200
    assert virtual_bytes(cluster) < 2 * WINDOW + FULL + 100_000
    given = len(slow.messages())
    assert given < 50
    slow.connection.is_writable = True
    slow.session.output_drained()
    cluster.run()
    assert given + len(slow.messages()) == 200
    assert virtual_bytes(cluster) == 0


def test_a_client_that_vanishes_while_it_reads_nothing_leaves_nothing() -> None:
    cluster = SteppedCluster(2)
    name = cluster.name_at(1)
    slow, producer = cluster.connect(0), cluster.connect(1)
    slow.subscribe(name)
    cluster.run()
    slow.connection.is_writable = False
    for _ in range(200):
        producer.send(name, b"x" * 10_000)
    cluster.run()
    slow.send(name, b"x", {"receipt": "r"})  # the owner reads nothing of it
    cluster.run()
    slow.vanish()
    cluster.run()
    assert cluster.members[1].queue(name).subscriptions == []
    assert virtual_bytes(cluster) == 0


def test_what_waits_for_shards_counts_as_unfinished_input() -> None:
    cluster = SteppedCluster(
        2, settings(memory={"limit": 500_000}, stomp={"max_body": 500_000}, openwire={"max_frame_size": 500_000})
    )
    limit = cluster.members[0].broker.core.partial_limit
    name = cluster.name_at(1)
    cluster.kill(1)
    clients = [cluster.connect(0) for _ in range(2 + limit // FULL)]
    for client in clients:
        for _ in range(FULL // 8192 + 2):
            client.send(name, b"x" * 8192)
    errors = [code for client in clients for code in client.errors()]
    assert set(errors) == {"limit-exceeded"}
    assert cluster.members[0].broker.core.partial_bytes <= limit
    for client in clients:
        client.vanish()
    assert cluster.members[0].broker.core.partial_bytes == 0


@pytest.mark.parametrize("limit", ["subscriptions", "transactions"])
def test_a_connection_has_no_more_at_other_shards_than_at_its_own(limit: str) -> None:
    cluster = SteppedCluster(2)
    client = cluster.connect(0)
    for number in range(1001):
        if limit == "subscriptions":
            client.subscribe("q.*" if number == 0 else cluster.name_at(1), id=str(number))
        else:
            client.frame("BEGIN", {"transaction": str(number)})
    assert client.errors() == ["limit-exceeded"]
