"""Transactions of OpenWire clients about destinations of other shards, and of several."""

import pytest

from quire.broker.transactions.decisions import FORMAT
from quire.protocols.openwire.commands import (
    AckType,
    ActiveMQQueue,
    ConnectionId,
    DataArrayResponse,
    IntegerResponse,
    MessageDispatch,
    RemoveInfo,
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


def begun(client: OpenWireClient, *queues: ActiveMQQueue) -> None:
    client.done(client.step(BEGIN, XID))
    sent_in(client, XID, *queues)
    client.done(client.step(END, XID))


def depths(cluster: OpenWireCluster, *queues: ActiveMQQueue) -> list[int]:
    return [cluster.depth(cluster.shard_of(queue.physical_name), queue) for queue in queues]


def recovered(client: OpenWireClient) -> list[TransactionId]:
    answer = client.ask(client.step(RECOVER, None))
    assert isinstance(answer, DataArrayResponse)
    return [id for id in answer.data or [] if isinstance(id, TransactionId)]


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


def test_messages_of_all_shards_are_acknowledged_in_one_transaction() -> None:
    cluster = OpenWireCluster()
    here, there = cluster.queue(0, "w.a"), cluster.queue(1, "w.a")
    client = cluster.client(0)
    client.send("1", "2", destination=there)
    client.consumer(ActiveMQQueue("w.>"))
    dispatches = client.take(MessageDispatch)
    assert len(dispatches) == 2
    id = client.begin(1)
    client.acks(dispatches, transaction=id)
    client.done(client.step(ROLLBACK, id))
    assert depths(cluster, there) == [2]
    id = client.begin(2)
    client.acks(dispatches[:1], transaction=id)
    client.acks(dispatches, transaction=id)  # what lies between is acknowledged already
    client.done(client.step(ONE, id))
    assert depths(cluster, here, there) == [0, 0]
    assert client.errors() == []
    client.send("3", destination=here)
    client.send("4", destination=there)
    id = client.begin(3)
    client.acks(client.take(MessageDispatch), transaction=id)
    client.done(client.step(ONE, id))
    assert client.errors() == []
    assert depths(cluster, here, there) == [0, 0]


def test_the_end_of_a_client_ends_its_transactions_everywhere() -> None:
    cluster = OpenWireCluster()
    here, there = cluster.queue(0), cluster.queue(1)
    for number, queue in enumerate((here, there)):
        client = cluster.client(0)
        sent_in(client, client.begin(number), queue)
        cluster.run()
        if number:
            client.vanish()
        else:
            client.done(RemoveInfo(object_id=ConnectionId(client.id)))
        cluster.run()
    assert depths(cluster, here, there) == [0, 0]
    assert [member.broker.core.transaction_bytes for member in cluster.members.values()] == [0, 0]


# XA.


@pytest.mark.parametrize(("outcome", "left"), [(TWO, [1, 1]), (ROLLBACK, [0, 0])])
def test_any_connection_ends_what_a_lost_one_has_prepared(outcome: TransactionType, left: list[int]) -> None:
    cluster = OpenWireCluster(3)
    queues = [cluster.queue(shard) for shard in range(2)]
    client = cluster.client(2)
    begun(client, *queues)
    client.ask(client.step(PREPARE, XID))
    client.vanish()
    cluster.run()
    cluster.kill(1)
    cluster.start(1)
    other = cluster.client(2)
    assert recovered(other) == [XID]
    other.done(other.step(outcome, XID))
    assert recovered(other) == []
    assert depths(cluster, *queues) == left
    answer = other.ask(other.step(outcome, XID))
    assert "xaErrorCode:-4" in str(getattr(answer, "exception", None))


def test_a_branch_that_cannot_be_prepared_at_one_shard_is_at_none() -> None:
    cluster = OpenWireCluster(transaction={"max_size": 1000})
    here, there = cluster.queue(0), cluster.queue(1)
    client = cluster.client(0)
    client.done(client.step(BEGIN, XID))
    sent_in(client, XID, here)
    client.tell(client.message("x" * 2000, there, transaction_id=XID))
    cluster.run()
    assert client.errors() == ["transaction-too-large"]
    answer = client.ask(client.step(PREPARE, XID))
    assert "xaErrorCode:100" in str(getattr(answer, "exception", None))
    cluster.run()
    assert recovered(client) == []
    assert depths(cluster, here, there) == [0, 0]


def test_a_branch_with_work_for_several_shards_is_committed_in_one_phase() -> None:
    cluster = OpenWireCluster()
    here, there = cluster.queue(0), cluster.queue(1)
    client = cluster.client(0)
    begun(client, here, there)
    client.done(client.step(ONE, XID))
    assert depths(cluster, here, there) == [1, 1]
    assert recovered(client) == []
    left_nothing(cluster)
    begun(client, there)
    client.done(client.step(ONE, XID))
    begun(client, here)
    client.done(client.step(ONE, XID))
    assert depths(cluster, here, there) == [2, 2]


def test_a_branch_without_work_is_read_only() -> None:
    cluster = OpenWireCluster()
    client = cluster.client(0)
    begun(client)
    answer = client.ask(client.step(PREPARE, XID))
    assert isinstance(answer, IntegerResponse)
    assert answer.result == 3
    begun(client)
    client.done(client.step(ONE, XID))
    begun(client)
    client.done(client.step(ROLLBACK, XID))
    assert "xaErrorCode:-4" in str(getattr(client.ask(client.step(TWO, XID)), "exception", None))


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


def test_a_list_of_destinations_in_a_branch_is_part_of_it() -> None:
    cluster = OpenWireCluster()
    here, there = cluster.queue(0), cluster.queue(1)
    client = cluster.client(0)
    begun(client, ActiveMQQueue(f"{here.physical_name},{there.physical_name}"))
    client.ask(client.step(PREPARE, XID))
    assert depths(cluster, here, there) == [0, 0]
    client.done(client.step(TWO, XID))
    assert depths(cluster, here, there) == [1, 1]
