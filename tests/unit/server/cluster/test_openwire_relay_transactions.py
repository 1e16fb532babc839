"""Transactions of OpenWire clients about destinations of other shards, and of several."""

import pytest

from quire.broker.transactions.decisions import FORMAT
from quire.protocols.openwire.commands import (
    AckType,
    ActiveMQQueue,
    ConnectionId,
    MessageDispatch,
    TransactionId,
    TransactionInfo,
    TransactionType,
    XATransactionId,
)
from tests.unit.server.cluster.openwire_cluster import OpenWireCluster
from tests.unit.server.openwire.rig import OpenWireClient

XID = XATransactionId(4660, b"global", b"branch")
BEGIN, END, PREPARE = TransactionType.BEGIN, TransactionType.END, TransactionType.PREPARE
ONE, TWO, ROLLBACK = TransactionType.COMMIT_ONE_PHASE, TransactionType.COMMIT_TWO_PHASE, TransactionType.ROLLBACK
RECOVER = TransactionType.RECOVER


def sent_in(client: OpenWireClient, id: TransactionId, *queues: ActiveMQQueue) -> None:
    client.tell(*[client.message("x", queue, transaction_id=id) for queue in queues])


def depths(cluster: OpenWireCluster, *queues: ActiveMQQueue) -> list[int]:
    return [cluster.depth(cluster.shard_of(queue.physical_name), queue) for queue in queues]


def left_nothing(cluster: OpenWireCluster) -> None:
    """See that no shard has anything left of a transaction."""
    for member in cluster.members.values():
        assert member.broker.core.transaction_bytes == 0
        assert not member.broker.xa.spanning
        assert not member.shared.decisions.open


def test_a_local_transaction_with_work_for_two_shards_is_one() -> None:
    cluster = OpenWireCluster()
    here, there = cluster.queue(0), cluster.queue(1)
    client = cluster.client(0)
    for number, queues in enumerate([(here, there), (there, here)]):
        id = client.begin(number)
        sent_in(client, id, *queues)
        cluster.run()
        assert depths(cluster, here, there) == [number, number]
        client.done(client.step(ONE, id))
        assert depths(cluster, here, there) == [number + 1, number + 1]
    both = ActiveMQQueue(f"{here.physical_name},{there.physical_name}")
    id = client.begin(7)
    client.done(client.message("x", both, transaction_id=id))
    client.done(client.step(ROLLBACK, id))
    assert depths(cluster, here, there) == [2, 2]
    assert client.errors() == []
    left_nothing(cluster)


def test_a_part_that_cannot_be_prepared_ends_the_connection_and_the_transaction() -> None:
    cluster = OpenWireCluster()
    here, there = cluster.queue(0), cluster.queue(1)
    client = cluster.client(0)
    id = client.begin()
    sent_in(client, id, here, there)
    cluster.run()
    for transaction in list(cluster.members[1].broker.transactions.timeouts._deadlines):
        transaction.time_out()
    assert client.refused(client.step(ONE, id))[1] == "transaction-timed-out"
    assert client.connection.closed
    cluster.advance(3)
    assert depths(cluster, here, there) == [0, 0]
    left_nothing(cluster)


def test_steps_of_the_cluster_are_refused_from_clients() -> None:
    cluster = OpenWireCluster()
    client = cluster.client(0)
    id = client.begin()
    sent_in(client, id, cluster.queue(0), cluster.queue(1))
    cluster.run()
    step = TransactionInfo(transaction_id=id, connection_id=ConnectionId("enlist " + "00" * 16), type=100)
    assert client.refused(step)[1] == "protocol-violation"
    xid = XATransactionId(FORMAT, b"global", b"1")
    assert "invalid-argument" in str(getattr(client.ask(client.step(BEGIN, xid)), "exception", None))
    assert "invalid-argument" in str(getattr(client.ask(client.step(TWO, xid)), "exception", None))


@pytest.mark.parametrize(
    ("shard", "pattern"), [(0, ""), (1, ""), (1, "w.>")], ids=["its own shard", "another shard", "all shards"]
)
def test_a_fault_tolerant_client_that_acknowledges_what_it_does_not_have_begins_anew(shard: int, pattern: str) -> None:
    cluster = OpenWireCluster()
    there = cluster.queue(shard, "w.a")
    client = cluster.client(0, fault_tolerant=True)
    client.send("1", destination=there)
    client.consumer(ActiveMQQueue(pattern) if pattern else there)
    (stale,) = client.take(MessageDispatch)
    client.acks([stale])
    id = client.begin()
    client.acks([stale], transaction=id)
    assert client.refused(client.step(ONE, id))[0] == "TransactionRolledBackException"
    cluster.run()
    assert not client.is_open()


# XA.


def test_a_branch_acknowledges_what_came_from_several_shards() -> None:
    cluster = OpenWireCluster()
    here, there = cluster.queue(0, "w.a"), cluster.queue(1, "w.a")
    client = cluster.client(0)
    for queue in (here, there):
        client.send("x", destination=queue)
    client.consumer(ActiveMQQueue("w.>"))
    dispatches = client.take(MessageDispatch)
    client.done(client.step(BEGIN, XID))
    client.acks(dispatches[:1], AckType.INDIVIDUAL, transaction=XID)
    client.acks(dispatches[1:], transaction=XID)
    client.done(client.step(END, XID))
    client.ask(client.step(PREPARE, XID))
    client.vanish()
    cluster.run()
    other = cluster.client(1)
    other.consumer(ActiveMQQueue("w.>"))
    assert other.messages() == []  # they are hidden
    other.done(other.step(TWO, XID))
    assert depths(cluster, here, there) == [0, 0]
