"""OpenWire clients whose destinations are at other shards than the one that they have connected to."""

import pytest

from quire.cluster.cluster_map import LivingBroker
from quire.destination import Destination, DestinationKind
from quire.errors import SlowConsumer
from quire.protocols.openwire.commands import (
    AckType,
    ActiveMQQueue,
    ActiveMQTempQueue,
    ActiveMQTopic,
    BrokerInfo,
    ConnectionControl,
    ConnectionId,
    ConsumerControl,
    ConsumerId,
    DestinationInfo,
    MessageDispatch,
    ProducerAck,
    RemoveInfo,
    Response,
)
from tests.unit.server.cluster.openwire_cluster import OpenWireCluster
from tests.unit.server.openwire.rig import OpenWireClient

DEAD = ActiveMQQueue("ActiveMQ.DLQ")


def test_a_client_without_foreign_destinations_needs_no_other_shard() -> None:
    cluster = OpenWireCluster()
    here = cluster.queue(0)
    client = cluster.client(0)
    client.send("one", destination=here)
    client.consumer(here)
    client.acks(client.take(MessageDispatch))
    client.done(RemoveInfo(object_id=ConnectionId(client.id)))
    assert cluster.depth(0, here) == 0
    assert not cluster.members[0].links.all()


def test_unfinished_frames_of_shards_count_until_the_client_is_gone() -> None:
    cluster = OpenWireCluster(piece=100_000)
    there = cluster.queue(1)
    client = cluster.client(0)
    client.consumer(there)
    sender = cluster.client(1)
    sender.request(sender.message("x" * 3_000_000, there))
    core = cluster.members[0].broker.core
    for _ in range(1000):
        if core.partial_bytes or not cluster.step():
            break
    assert core.partial_bytes
    client.vanish()
    assert core.partial_bytes == 0
    cluster.run()
    assert core.partial_bytes == 0


def test_a_client_that_reads_nothing_and_is_lost_leaves_no_consumer_at_the_owner() -> None:
    """Neither side had room for more: the owner must get rid of its output to hear of the end."""
    cluster = OpenWireCluster()
    there, other = cluster.queue(1), cluster.queue(1, "other")
    client, sender = cluster.client(0), cluster.client(1)
    client.connection.is_writable = False
    client.tell(client.consumer_info(there))
    sender.send(*["x" * 20_000] * 200, destination=there)
    for _ in range(100):
        client.tell(client.message("y" * 20_000, other))
    cluster.run()
    owner = cluster.members[1]
    assert len(owner.queue(there.physical_name).subscriptions) == 1
    client.vanish()
    cluster.run()
    assert owner.queue(there.physical_name).subscriptions == []


# Sends.


def test_a_message_to_destinations_of_several_shards_is_answered_when_all_have_it() -> None:
    cluster = OpenWireCluster(3)
    queues = [cluster.queue(shard) for shard in range(3)]
    both = ActiveMQQueue(",".join([queue.physical_name for queue in queues]))
    client = cluster.client(0)
    client.send("x", destination=both)
    assert [cluster.depth(shard, queues[shard]) for shard in range(3)] == [1, 1, 1]
    cluster.kill(2, publishes=False)
    client.request(client.message("y", both))
    cluster.members[0].run_turns()
    assert client.take(Response) == []


def test_a_message_to_several_shards_gives_its_window_back_once() -> None:
    cluster = OpenWireCluster()
    both = ActiveMQQueue(f"{cluster.name_at(0)},{cluster.name_at(1)}")
    client = cluster.client(0)
    id = client.producer(window=100_000)
    client.tell(client.message("x", both, producer=id, persistent=False))
    cluster.run()
    assert len(client.take(ProducerAck)) == 1


def test_what_a_client_sends_right_behind_its_login_goes_where_it_belongs() -> None:
    cluster = OpenWireCluster()
    here, there = cluster.queue(0), cluster.queue(1)
    member = cluster.members[0]
    client = member.socket("eager")  # type: ignore[attr-defined]
    client.negotiate(client.format)
    messages = [client.message("x", queue) for queue in (here, there)]
    client.tell(client.connection_info(), *messages)
    cluster.run()
    assert (cluster.depth(0, here), cluster.depth(0, there), cluster.depth(1, there)) == (1, 0, 1)


def test_repeated_sends_are_found_by_the_shard_whatever_the_entry() -> None:
    cluster = OpenWireCluster(3)
    there = cluster.queue(2)
    first = cluster.client(0, fault_tolerant=True)
    message = first.message("one", there)
    first.done(message)
    first.vanish()
    again = cluster.client(1, name="0-1", fault_tolerant=True)
    again.done(again.message("one", there, sequence=1))
    again.done(again.message("two", there, sequence=2))
    assert cluster.depth(2, there) == 2


# Consumers.


def test_the_end_of_a_session_ends_its_consumers_everywhere() -> None:
    cluster = OpenWireCluster(3)
    client = cluster.client(0)
    for shard in range(3):
        client.consumer(cluster.queue(shard))
    client.consumer(ActiveMQQueue(">"))
    client.done(RemoveInfo(object_id=client.session_id))
    consumers = [
        queue.consumer_count for m in cluster.members.values() for queue in m.broker.destinations.queues.values()
    ]
    assert consumers == [0] * len(consumers)
    for shard in range(3):
        client.send("x", destination=cluster.queue(shard))
    assert client.messages() == []


def test_a_shared_dead_letter_queue_has_a_part_at_each_shard_and_one_consumer_gets_all() -> None:
    cluster = OpenWireCluster(3)
    client = cluster.client(0)
    for shard in range(3):
        queue = cluster.queue(shard)
        client.send("x", "y", destination=queue)
        id = client.consumer(queue)
        client.acks(client.take(MessageDispatch), AckType.POISON)
        client.remove(id)
    assert [cluster.depth(shard, DEAD) for shard in range(3)] == [2, 2, 2]
    client.consumer(DEAD, browser=True)
    shown = client.messages()
    assert (len(shown), shown[-1]) == (7, None)
    client.consumer(DEAD)
    dispatches = client.take(MessageDispatch)
    assert len(dispatches) == 6
    client.acks(dispatches)
    assert [cluster.depth(shard, DEAD) for shard in range(3)] == [0, 0, 0]


def test_a_copy_for_a_list_stays_where_one_shard_takes_it_and_another_does_not() -> None:
    cluster = OpenWireCluster(broker={"max_destinations": 2})
    here = cluster.queue(0)
    both = ActiveMQQueue(f"{here.physical_name},{cluster.name_at(1)}")
    client = cluster.client(0)
    for prefix in ("a", "b"):
        client.send("x", destination=cluster.queue(1, prefix))
    assert client.refused(client.message("x", both))[1] == "too-many-destinations"
    assert cluster.depth(0, here) == 1


def test_a_shard_that_ends_a_consumer_of_several_ends_it_everywhere() -> None:
    cluster = OpenWireCluster()
    client = cluster.client(0)
    consumer = client.consumer(DEAD)
    owner = cluster.members[1]
    (subscription,) = owner.queue("ActiveMQ.DLQ").subscriptions
    subscription.session.end_consumer(subscription, SlowConsumer("too slow"))
    cluster.run()
    (control,) = client.take(ConsumerControl)
    assert (control.consumer_id, control.close) == (consumer, True)
    assert cluster.members[0].queue("ActiveMQ.DLQ").consumer_count == 0


# Temporary destinations, advisories.


def temporary_name(cluster: OpenWireCluster, client: OpenWireClient, shard: int) -> str:
    """The name of a temporary queue that lies at a shard."""
    at = cluster.members[0].cluster_map.shard_of
    names = (f"{client.id}:{number}" for number in range(1000))
    return next(name for name in names if at(Destination(DestinationKind.QUEUE, name)) == shard)


def temporary_at(cluster: OpenWireCluster, client: OpenWireClient, shard: int) -> ActiveMQTempQueue:
    """A temporary queue of a client that lies at a shard."""
    queue = ActiveMQTempQueue(temporary_name(cluster, client, shard))
    client.done(DestinationInfo(destination=queue, operation_type=0))
    return queue


@pytest.mark.parametrize("shard", range(3))
def test_a_request_is_answered_to_a_temporary_queue_whatever_its_shard(shard: int) -> None:
    cluster = OpenWireCluster(3)
    asks, answers = cluster.client(0), cluster.client(1)
    asked = cluster.queue(2)
    replies = temporary_at(cluster, asks, shard)
    asks.consumer(replies)
    asks.send("question", destination=asked, reply_to=replies)
    answers.consumer(asked)
    (dispatch,) = answers.take(MessageDispatch)
    assert dispatch.message is not None
    assert dispatch.message.reply_to == replies
    answers.send("answer", destination=replies, persistent=False)
    assert asks.messages() == ["answer"]
    asks.consumer(replies, browser=True)
    assert asks.messages() == ["answer", None]
    assert answers.refused(answers.consumer_info(replies))[0] == "InvalidDestinationException"
    asks.vanish()
    cluster.run()
    temporaries = cluster.members[shard].broker.routing.temporaries
    assert list(temporaries.all(DestinationKind.QUEUE)) == []


@pytest.mark.parametrize("step", ["creates", "consumes"])
def test_what_follows_a_temporary_destination_waits_until_its_shard_has_it(step: str) -> None:
    """A client that fails over repeats its temporary queues and consumers, and waits for no answer."""
    cluster = OpenWireCluster(3)
    client = cluster.client(0)
    asked, replies = cluster.queue(1), ActiveMQTempQueue(temporary_name(cluster, client, 2))
    client.send("before", destination=asked)
    cluster.kill(2)
    create = DestinationInfo(destination=replies, operation_type=0)
    client.request(create if step == "creates" else client.consumer_info(replies))
    client.request(client.message("question", asked, reply_to=replies))
    client.request(client.message("here", cluster.queue(0)))
    cluster.run()
    assert (cluster.depth(1, asked), cluster.depth(0, cluster.queue(0))) == (1, 0)
    cluster.start(2)
    cluster.run()
    assert (cluster.depth(1, asked), cluster.depth(0, cluster.queue(0))) == (2, 1)


def told(client: OpenWireClient) -> list[tuple[str, int]]:
    """The temporary destinations that a client was told of, with what has become of them."""
    told = []
    for dispatch in client.take(MessageDispatch):
        assert dispatch.message is not None
        info = dispatch.message.data_structure
        assert isinstance(info, DestinationInfo)
        assert info.destination is not None
        told.append((info.destination.physical_name, info.operation_type))
    return sorted(told)


ADVISORIES = ActiveMQTopic("ActiveMQ.Advisory.TempQueue,ActiveMQ.Advisory.TempTopic")


def listening(client: OpenWireClient) -> ConsumerId:
    """A client that listens as Java clients do."""
    return client.consumer(ADVISORIES, consumer_id=ConsumerId(client.id, -1, 1), no_local=True)


def test_every_client_knows_the_temporary_destinations_of_all_shards() -> None:
    cluster = OpenWireCluster(3)
    owner, early = cluster.client(0), cluster.client(1)
    listening(early)
    queues = [temporary_at(cluster, owner, shard) for shard in range(3)]
    names = sorted(queue.physical_name for queue in queues)
    assert told(early) == [(name, 0) for name in names]
    late = cluster.client(2)
    listening(late)
    assert told(late) == [(name, 0) for name in names]
    owner.vanish()
    cluster.run()
    assert told(late) == told(early) == [(name, 1) for name in names]


def test_an_advisory_of_a_shard_that_was_lost_may_be_acknowledged_late() -> None:
    cluster = OpenWireCluster(3)
    client, owner = cluster.client(0), cluster.client(1)
    listening(client)
    temporary_at(cluster, owner, 2)
    dispatches = client.take(MessageDispatch)
    assert len(dispatches) == 1
    cluster.kill(2)
    cluster.run()
    client.done(client.ack(dispatches))
    assert client.errors() == []
    assert client.is_open()


# Durable subscriptions, client ids.


@pytest.mark.parametrize("entry", range(3))
def test_a_durable_subscription_that_changes_to_a_topic_of_another_shard_leaves_nothing_behind(entry: int) -> None:
    cluster = OpenWireCluster(3)
    topics = [cluster.topic(shard) for shard in range(3)]
    client = cluster.client(entry, client_id="me")
    for topic in (topics[0], topics[2], topics[1]):
        id = client.consumer(topic, subscription_name="sub")
        client.remove(id)
        client.send("x", destination=topic)
    client.consumer(topics[1], subscription_name="sub")
    assert client.messages() == ["x"]
    assert [len(member.broker.durables) for member in cluster.members.values()] == [0, 1, 0]


def test_a_durable_subscription_waits_for_no_shard_but_its_own() -> None:
    cluster = OpenWireCluster(3)
    cluster.kill(2)
    client = cluster.client(0)
    client.consumer(cluster.topic(1), subscription_name="sub")
    client.send("x", destination=cluster.topic(1))
    assert client.messages() == ["x"]


# Its life.


def test_a_connection_that_fails_over_takes_the_place_of_its_old_one() -> None:
    cluster = OpenWireCluster(3)
    there = cluster.queue(2)
    old = cluster.client(0, name="same")
    old.send("one", destination=there)
    old.consumer(there)
    assert old.messages() == ["one"]
    new = cluster.client(1, name="same", failover_reconnect=True)
    new.consumer(there)
    cluster.run()
    assert new.messages() == ["one"]
    assert not old.is_open()


def test_each_connection_is_a_resource_manager_of_its_own() -> None:
    cluster = OpenWireCluster()
    ids = set()
    for number in range(2):
        client = cluster.members[0].negotiated(f"n{number}")  # type: ignore[attr-defined]
        (info,) = client.take(BrokerInfo)
        ids.add(info.broker_id)
    assert len(ids) == 2


def test_clients_are_told_of_the_brokers_of_the_cluster_and_stay_where_they_are() -> None:
    cluster = OpenWireCluster()
    known = cluster.members[0].cluster_map
    one, two = (LivingBroker(name, "", f"{name}:61616", "") for name in ("athens", "berlin"))
    peers = {number: peer for number in range(2) if (peer := known.peer(number)) is not None}
    known.update(peers, {}, (one, two))
    client = cluster.members[0].negotiated("java")  # type: ignore[attr-defined]
    client.done(client.connection_info(manageable=True))
    (control,) = client.take(ConnectionControl)
    assert control.connected_brokers == "tcp://athens:61616,tcp://berlin:61616"
    assert not control.rebalance_connection
    known.update(peers, {}, (one,))
    cluster.run()
    (control,) = client.take(ConnectionControl)
    assert control.connected_brokers == "tcp://athens:61616"
    plain = cluster.client(0)
    known.update(peers, {}, (one, two))
    cluster.run()
    assert plain.take(ConnectionControl) == []
