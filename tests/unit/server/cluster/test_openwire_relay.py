"""OpenWire clients whose destinations are at other shards than the one that they have connected to."""

import pytest

from quire.cluster.cluster_map import LivingBroker, Pin
from quire.destination import Destination, DestinationKind
from quire.errors import ShardMoved, SlowConsumer
from quire.protocols.openwire.commands import (
    AckType,
    BrokerInfo,
    ConnectionControl,
    ConsumerControl,
    DestinationInfo,
    ExceptionResponse,
    KeepAliveInfo,
    MessageAck,
    MessageDispatch,
    ProducerAck,
    RemoveInfo,
    RemoveSubscriptionInfo,
    Response,
    ShutdownInfo,
)
from quire.protocols.openwire.negotiation import WireFormat
from quire.protocols.openwire.structures import (
    ActiveMQQueue,
    ActiveMQTempQueue,
    ActiveMQTopic,
    ConnectionId,
    ConsumerId,
    MessageId,
    ProducerId,
)
from tests.unit.server.cluster.openwire_cluster import OpenWireCluster
from tests.unit.server.openwire.rig import OpenWireClient, pull, sequence_of, texts, thrown

DEAD = ActiveMQQueue("ActiveMQ.DLQ")


def test_a_message_goes_to_the_shard_that_has_its_queue() -> None:
    cluster = OpenWireCluster()
    there = cluster.queue(1)
    producer, consumer = cluster.client(0), cluster.client(0)
    producer.send("one", "two", destination=there)
    assert (cluster.depth(0, there), cluster.depth(1, there)) == (0, 2)
    consumer.consumer(there)
    dispatches = consumer.take(MessageDispatch)
    assert texts(dispatches) == ["one", "two"]
    consumer.acks(dispatches)
    assert cluster.depth(1, there) == 0
    assert not consumer.errors()


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


@pytest.mark.parametrize("piece", [1, 7, 1 << 20])
def test_frames_may_be_cut_anywhere_in_a_link(piece: int) -> None:
    cluster = OpenWireCluster(piece=piece)
    there = cluster.queue(1)
    client = cluster.client(0)
    client.consumer(there)
    client.send("one", "two", "x" * 2000, destination=there)
    dispatches = client.take(MessageDispatch)
    assert texts(dispatches) == ["one", "two", "x" * 2000]
    client.acks(dispatches)
    assert cluster.depth(1, there) == 0


def test_a_message_that_is_larger_than_all_windows_goes_through() -> None:
    cluster = OpenWireCluster()
    there = cluster.queue(1)
    client = cluster.client(0)
    client.consumer(there)
    client.send("x" * 3_000_000, destination=there)
    (dispatch,) = client.take(MessageDispatch)
    assert texts([dispatch]) == ["x" * 3_000_000]
    assert cluster.members[0].broker.core.partial_bytes == 0


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


def test_a_client_that_does_not_read_holds_up_its_own_messages_alone() -> None:
    cluster = OpenWireCluster()
    there = cluster.queue(1)
    slow, quick, sender = cluster.client(0), cluster.client(0), cluster.client(1)
    slow.connection.is_writable = slow.session.writable = False
    slow.tell(slow.consumer_info(there))
    cluster.run()
    sender.send(*["x" * 20_000] * 200, destination=there)
    came = len(slow.take(MessageDispatch))
    assert 0 < came < 100
    quick.consumer(there)
    assert quick.is_open()
    slow.connection.is_writable = True
    slow.session.output_drained()
    cluster.run()
    assert slow.take(MessageDispatch)


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


def test_a_shard_that_takes_no_more_holds_the_input_of_the_client() -> None:
    cluster = OpenWireCluster(memory={"limit": 100_000})
    there = cluster.queue(1)
    client = cluster.client(0)
    cluster.cut(1)
    for _ in range(40):
        client.tell(client.message("x" * 20_000, there))
    cluster.members[0].run_turns()
    assert "held" in client.connection.paused


# Sends.


def test_a_producer_without_a_destination_sends_to_all_shards_and_is_given_its_window_back() -> None:
    cluster = OpenWireCluster(3)
    client = cluster.client(0)
    id = client.producer(window=100_000)
    for shard in range(3):
        client.tell(client.message("x", cluster.queue(shard), producer=id, persistent=False))
    cluster.run()
    acks = client.take(ProducerAck)
    assert [ack.producer_id for ack in acks] == [id] * 3
    assert [cluster.depth(shard, cluster.queue(shard)) for shard in range(3)] == [1, 1, 1]
    client.done(RemoveInfo(object_id=id))


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


def test_an_error_of_another_shard_is_the_clients() -> None:
    cluster = OpenWireCluster()
    there = cluster.queue(1)
    client = cluster.client(0)
    assert client.refused(client.consumer_info(there, selector="a =")) == (
        "InvalidSelectorException", "invalid-selector",
    )  # fmt: skip
    both = ActiveMQQueue(f"{cluster.name_at(0)},{cluster.name_at(1)}")
    assert client.refused(client.consumer_info(both, selector="a ="))[1] == "invalid-selector"
    client.tell(client.consumer_info(there, selector="a ="))
    cluster.run()
    assert client.errors() == ["invalid-selector"]
    client.consumer(there)  # the connection goes on


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


def test_messages_before_the_login_are_refused() -> None:
    cluster = OpenWireCluster()
    client = cluster.members[0].socket("eager")  # type: ignore[attr-defined]
    client.negotiate(client.format)
    client.tell(client.message("x", cluster.queue(1)))
    cluster.run()
    assert client.errors() == ["protocol-violation"]
    assert cluster.depth(1, cluster.queue(1)) == 0


def test_an_old_version_of_openwire_is_relayed_too() -> None:
    cluster = OpenWireCluster()
    there = cluster.queue(1)
    client = cluster.client(0, format=WireFormat(version=9))
    client.send("one", destination=there)
    client.consumer(there)
    dispatches = client.take(MessageDispatch)
    assert texts(dispatches) == ["one"]
    client.acks(dispatches)
    assert cluster.depth(1, there) == 0


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


def test_a_pull_is_answered_by_the_shard() -> None:
    cluster = OpenWireCluster()
    there = cluster.queue(1)
    client = cluster.client(0)
    consumer = client.consumer(there, prefetch=0)
    pull(client, consumer, -1)
    cluster.run()
    assert client.messages() == [None]
    client.send("one", destination=there)
    pull(client, consumer, -1)
    cluster.run()
    assert client.messages() == ["one"]


def test_a_failover_consumer_begins_when_it_gets_its_prefetch() -> None:
    cluster = OpenWireCluster()
    there = cluster.queue(1)
    client = cluster.client(0)
    client.send("one", destination=there)
    consumer = client.consumer(there, prefetch=0)
    again = client.consumer_info(there, prefetch=0, consumer_id=consumer)
    client.done(again)  # it repeats it
    assert client.messages() == []
    client.tell(ConsumerControl(consumer_id=consumer, prefetch=10))
    cluster.run()
    assert client.messages() == ["one"]


def test_messages_of_a_closed_consumer_come_back() -> None:
    cluster = OpenWireCluster()
    there = cluster.queue(1)
    client = cluster.client(0)
    client.send("one", destination=there)
    consumer = client.consumer(there)
    client.take(MessageDispatch)
    client.remove(consumer)
    client.consumer(there)
    (dispatch,) = client.take(MessageDispatch)
    assert dispatch.redelivery_counter == 1
    client.vanish()
    cluster.run()
    other = cluster.client(1)
    other.consumer(there)
    assert other.messages() == ["one"]


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


def test_a_wildcard_consumer_has_the_queues_of_all_shards() -> None:
    cluster = OpenWireCluster(3)
    client = cluster.client(0)
    queues = [cluster.queue(shard, "w.a") for shard in range(3)]
    client.consumer(ActiveMQQueue("w.>"), prefetch=30)
    for queue in queues:
        client.send("1", "2", "3", destination=queue)
    dispatches = client.take(MessageDispatch)
    assert sorted(str(d.destination) for d in dispatches) == sorted([str(queue) for queue in queues] * 3)
    client.acks(dispatches[:5])
    client.acks(dispatches[5:6], AckType.INDIVIDUAL)
    client.acks(dispatches[6:])
    assert [cluster.depth(shard, queues[shard]) for shard in range(3)] == [0, 0, 0]
    assert client.errors() == []


@pytest.mark.parametrize("shard", range(2))
@pytest.mark.parametrize("name", [">", ""], ids=["wildcard", "list"])
def test_a_consumer_of_several_shards_gets_its_whole_prefetch_from_one_of_them(shard: int, name: str) -> None:
    cluster = OpenWireCluster(2)
    queues = [cluster.queue(shard) for shard in range(2)]
    client = cluster.client(0)
    client.consumer(ActiveMQQueue(name or ",".join([queue.physical_name for queue in queues])), prefetch=8)
    client.send(*map(str, range(30)), destination=queues[shard])
    all, came = [], client.take(MessageDispatch)
    assert len(came) == 8
    while came:
        all += came
        client.acks(came[:5], AckType.DELIVERED)  # as Java clients do, once they have half of their prefetch
        came = client.take(MessageDispatch)
    assert texts(all) == list(map(str, range(len(all))))
    assert len(all) == 30
    client.acks(all)
    assert cluster.depth(shard, queues[shard]) == 0
    assert client.errors() == []


@pytest.mark.parametrize("fields", [{}, {"subscription_name": "sub"}], ids=["plain", "durable"])
def test_a_subscriber_of_a_wildcard_gets_its_whole_prefetch_from_one_topic(fields: dict[str, str]) -> None:
    cluster = OpenWireCluster(2)
    client = cluster.client(0)
    client.consumer(ActiveMQTopic("w.>"), prefetch=8, **fields)
    cluster.client(1).send(*map(str, range(12)), destination=cluster.topic(1, "w."))
    came = client.take(MessageDispatch)
    assert texts(came) == list(map(str, range(8)))
    client.acks(came[:5], AckType.DELIVERED)
    assert client.messages() == ["8", "9", "10", "11"]


def test_a_range_covers_what_a_consumer_had_from_all_shards_in_between() -> None:
    cluster = OpenWireCluster(2)
    client = cluster.client(0)
    here, there = cluster.queue(0), cluster.queue(1)
    client.consumer(ActiveMQQueue(f"{here.physical_name},{there.physical_name}"))
    for text in ("a", "b"):
        for queue in (here, there):
            client.send(text, destination=queue)
    dispatches = client.take(MessageDispatch)
    assert len(dispatches) == 4
    client.acks(dispatches[:3])
    left = [cluster.depth(0, here), cluster.depth(1, there)]
    assert sorted(left) == [0, 1]
    client.done(client.ack(dispatches[3:]))
    assert [cluster.depth(0, here), cluster.depth(1, there)] == [0, 0]


@pytest.mark.parametrize("entry", range(2))
def test_a_consumer_of_several_shards_acknowledges_its_messages_one_by_one(entry: int) -> None:
    cluster = OpenWireCluster(2)
    queues = [cluster.queue(shard) for shard in range(2)]
    client = cluster.client(entry)
    for queue in queues:  # so that no number of a shard is one of the relay
        client.send("old", "old", "old", destination=queue)
        consumer = client.consumer(queue)
        client.acks(client.take(MessageDispatch))
        client.remove(consumer)
        client.send("new", destination=queue)
    client.consumer(ActiveMQQueue(",".join([queue.physical_name for queue in queues])))
    for dispatch in client.take(MessageDispatch):
        client.acks([dispatch])
    assert client.errors() == []
    assert [cluster.depth(shard, queues[shard]) for shard in range(2)] == [0, 0]


@pytest.mark.parametrize("new", [0, 2])
def test_what_a_failed_over_client_had_before_comes_first_in_its_ranges(new: int) -> None:
    cluster = OpenWireCluster(2)
    queues = [cluster.queue(shard) for shard in range(2)]
    client = cluster.client(0, fault_tolerant=True)
    for queue in queues:
        client.send(*["x"] * (1 + new), destination=queue)
    consumer = client.consumer(ActiveMQQueue(",".join([str(queue) for queue in queues])), prefetch=0)
    client.tell(ConsumerControl(consumer_id=consumer, prefetch=100))
    cluster.run()
    dispatches = client.take(MessageDispatch)
    assert len(dispatches) == 2 + 2 * new
    one, two = (next(d for d in dispatches if d.destination == queue) for queue in queues)
    late, early = sorted((one, two), key=sequence_of, reverse=True)
    for dispatch in (late, early):  # as it had them over its old connection
        client.acks([dispatch], AckType.DELIVERED, first_message_id=None)
    last = dispatches[-1] if new else early
    client.acks([late, last], count=len(dispatches))
    assert client.errors() == []
    assert [cluster.depth(shard, queues[shard]) for shard in range(2)] == [0, 0]


def test_a_range_whose_ends_are_the_wrong_way_round_is_an_error() -> None:
    cluster = OpenWireCluster(2)
    there = cluster.queue(1)
    client = cluster.client(0)
    client.consumer(ActiveMQQueue(">"))
    client.send("a", "b", destination=there)
    one, two = client.take(MessageDispatch)
    client.acks([two, one])
    assert client.errors() == ["invalid-argument"]
    assert cluster.depth(1, there) == 2


def test_an_acknowledgement_of_what_a_consumer_does_not_have_is_an_error() -> None:
    cluster = OpenWireCluster()
    client = cluster.client(0)
    consumer = client.consumer(ActiveMQQueue(">"))
    id = MessageId(ProducerId("x", 1, 1), 1, 77)
    client.tell(MessageAck(destination=cluster.queue(1), consumer_id=consumer, ack_type=2, last_message_id=id))
    cluster.run()
    assert client.errors() == ["unknown-message"]


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


def test_a_consumer_of_several_shards_pulls_from_all_of_them() -> None:
    cluster = OpenWireCluster()
    client = cluster.client(0)
    consumer = client.consumer(DEAD, prefetch=0)
    for shard in range(2):
        cluster.client(shard).send(str(shard), destination=DEAD)
    came: list[str | None] = []
    for _ in range(3):
        pull(client, consumer, -1)
        cluster.run()
        came += client.messages()
    assert (set(came[:2]), came[2]) == ({"0", "1"}, None)
    assert client.errors() == []


def test_a_copy_for_a_list_stays_where_one_shard_takes_it_and_another_does_not() -> None:
    cluster = OpenWireCluster(broker={"max_destinations": 2})
    here = cluster.queue(0)
    both = ActiveMQQueue(f"{here.physical_name},{cluster.name_at(1)}")
    client = cluster.client(0)
    for prefix in ("a", "b"):
        client.send("x", destination=cluster.queue(1, prefix))
    assert client.refused(client.message("x", both))[1] == "too-many-destinations"
    assert cluster.depth(0, here) == 1


def test_a_consumer_of_several_shards_is_closed_at_all_of_them() -> None:
    cluster = OpenWireCluster(3)
    client = cluster.client(0)
    id = client.consumer(DEAD)
    for member in cluster.members.values():
        assert member.queue("ActiveMQ.DLQ").consumer_count == 1
    client.remove(id)
    for member in cluster.members.values():
        assert member.queue("ActiveMQ.DLQ").consumer_count == 0


def test_a_consumer_of_several_shards_that_one_refuses_is_at_none() -> None:
    cluster = OpenWireCluster()
    client, other = cluster.client(0), cluster.client(1)
    here, there = cluster.queue(0), cluster.queue(1)
    member = cluster.members[1]
    member.broker.queue(there.physical_name)
    client.consumer(there)
    info = client.consumer_info(ActiveMQQueue(f"{here.physical_name},{there.physical_name}"), selector="a =")
    assert client.refused(info)[1] == "invalid-selector"
    client.done(RemoveInfo(object_id=info.consumer_id))
    assert other.errors() == []


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


def test_advisories_are_acknowledged_in_lots() -> None:
    cluster = OpenWireCluster(3)
    owner, client = cluster.client(0), cluster.client(1)
    listening(client)
    for number in range(30):
        owner.done(DestinationInfo(destination=ActiveMQTempQueue(f"{owner.id}:{number}"), operation_type=0))
    dispatches = client.take(MessageDispatch)
    assert len(dispatches) == 30
    client.acks(dispatches)
    assert client.errors() == []
    sessions = [session for member in cluster.members.values() for session in member.sessions.values()]
    given = [subscription for session in sessions for subscription in session.subscriptions.values()]
    assert len(given) == 6
    assert not any([subscription.in_flight for subscription in given])


def test_a_client_with_advisories_alone_does_not_notice_that_a_shard_is_lost_and_hears_of_it_again() -> None:
    cluster = OpenWireCluster(3)
    client = cluster.client(0)
    listening(client)
    cluster.kill(2)
    cluster.run()
    assert client.is_open()
    client.send("x", destination=cluster.queue(1))
    late = cluster.client(0)
    listening(late)  # it does not wait for the shard
    cluster.start(2)
    cluster.run()
    owner = cluster.client(1)
    queue = temporary_at(cluster, owner, 2)
    assert told(client) == told(late) == [(queue.physical_name, 0)]
    assert client.errors() == []


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


def test_a_client_with_advisories_alone_joins_a_shard_again_whose_link_was_lost() -> None:
    cluster = OpenWireCluster(3)
    client = cluster.client(0)
    listening(client)
    for link in cluster.members[0].links.all():
        link.fail(ShardMoved("the network fails"))
    cluster.run()
    cluster.advance(2)
    owner = cluster.client(1)
    queue = temporary_at(cluster, owner, 2)
    assert told(client) == [(queue.physical_name, 0)]


# Durable subscriptions, client ids.


def test_a_durable_subscription_is_the_clients_whatever_its_entry() -> None:
    cluster = OpenWireCluster(3)
    topic = cluster.topic(2)
    client = cluster.client(0, client_id="me")
    client.consumer(topic, subscription_name="sub")
    client.done(RemoveInfo(object_id=ConnectionId(client.id)))
    client.tell(ShutdownInfo())
    cluster.run()
    assert not client.is_open()
    sender = cluster.client(1)
    sender.send("one", destination=topic)
    again = cluster.client(1, client_id="me")
    id = again.consumer(topic, subscription_name="sub")
    assert again.messages() == ["one"]
    assert again.refused(RemoveSubscriptionInfo(client_id="me", subscription_name="sub"))[1] == "destination-in-use"
    again.remove(id)
    again.done(RemoveSubscriptionInfo(client_id="me", subscription_name="sub"))
    assert again.refused(RemoveSubscriptionInfo(client_id="me", subscription_name="sub")) == (
        "InvalidDestinationException", "unknown-subscription",
    )  # fmt: skip


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


@pytest.mark.parametrize("entry", range(3))
def test_the_name_of_a_durable_subscription_in_use_cannot_be_had_for_a_topic_of_another_shard(entry: int) -> None:
    cluster = OpenWireCluster(3)
    client = cluster.client(entry, client_id="me")
    client.consumer(cluster.topic(0), subscription_name="sub")
    assert client.refused(client.consumer_info(cluster.topic(1), subscription_name="sub"))[1] == "destination-in-use"
    client.send("x", destination=cluster.topic(0))
    client.send("x", destination=cluster.topic(1))
    assert client.messages() == ["x"]
    assert [len(member.broker.durables) for member in cluster.members.values()] == [1, 0, 0]


def test_a_durable_subscription_waits_for_no_shard_but_its_own() -> None:
    cluster = OpenWireCluster(3)
    cluster.kill(2)
    client = cluster.client(0)
    client.consumer(cluster.topic(1), subscription_name="sub")
    client.send("x", destination=cluster.topic(1))
    assert client.messages() == ["x"]


def test_a_client_id_has_one_connection_in_the_cluster() -> None:
    cluster = OpenWireCluster(3)
    home = cluster.members[0].cluster_map.shard_of_client("me")
    others = [shard for shard in range(3) if shard != home]
    first = cluster.client(others[0], client_id="me")
    for shard in range(3):
        second = cluster.members[shard].negotiated(f"second-{shard}")  # type: ignore[attr-defined]
        second.request(second.connection_info("me"))
        cluster.advance(2, 0.1)
        (answer,) = second.take(ExceptionResponse)
        assert thrown(answer)[0] == "InvalidClientIDException"
        cluster.advance(3)
        assert not second.is_open()
    last = cluster.members[others[1]].negotiated("last")  # type: ignore[attr-defined]
    last.request(last.connection_info("me"))
    cluster.run()
    first.vanish()
    cluster.advance(0.1, 0.01)
    assert [type(answer) for answer in last.take(Response)] == [Response]


# Its life.


def test_a_lost_shard_ends_the_clients_that_use_it_and_no_others() -> None:
    cluster = OpenWireCluster(3)
    user, other = cluster.client(0), cluster.client(0)
    user.consumer(cluster.queue(2))
    other.consumer(cluster.queue(1))
    cluster.kill(2)
    cluster.run()
    assert user.errors() == ["shard-moved"]
    assert not user.is_open()
    assert other.is_open()
    cluster.start(2)
    again = cluster.client(0)
    again.send("x", destination=cluster.queue(2))
    assert cluster.depth(2, cluster.queue(2)) == 1


@pytest.mark.parametrize("event", ["kill", "stop", "cut", "pin", "client"])
def test_what_a_client_has_of_other_shards_does_not_fail_when_one_is_lost(event: str) -> None:
    """Not at its entry, nor at a third shard. Streams, since Java clients count failures of queues themselves."""
    cluster = OpenWireCluster(3, policy={"rebalance_initial_delay": 0.0, "retry_delays": "60s"})
    streams = [
        ActiveMQTopic(next(f"stream://s{n}" for n in range(1000) if cluster.shard_of(f"stream://s{n}") == shard))
        for shard in (0, 2)
    ]
    client, lost = cluster.client(0), cluster.queue(1)
    client.consumer(lost)
    for stream in streams:
        client.consumer(stream, 100, subscription_name="g", retroactive=True)
        cluster.advance(3)
        client.send("m", destination=stream)
    cluster.advance(3)
    assert client.messages() == ["m", "m"]
    match event:
        case "client":
            client.vanish()
        case "kill":
            cluster.kill(1)
        case "stop":
            cluster.stop(1)
        case "cut":
            cluster.cut(1)
            cluster.advance(7)
        case "pin":
            cluster.pin(Destination(DestinationKind.QUEUE, lost.physical_name), 2)
    cluster.run()
    assert not client.is_open()
    again = cluster.client(0)
    for stream in streams:
        again.consumer(stream, 100, subscription_name="g", retroactive=True)
    cluster.advance(3)
    assert [
        message.failures
        for member in cluster.members.values()
        for session in member.sessions.values()
        for subscription in session.subscriptions.values()
        for message in subscription.in_flight.values()
    ] == [int(event == "client")] * 2


def test_a_shard_without_an_owner_is_waited_for_and_then_given_up() -> None:
    cluster = OpenWireCluster()
    there = cluster.queue(1)
    cluster.kill(1)
    client, late = cluster.client(0), cluster.client(0)
    number = client.request(client.message("x", there))
    cluster.run()
    cluster.advance(5)
    cluster.start(1)
    cluster.run()
    assert [answer.correlation_id for answer in client.take(Response)] == [number]
    cluster.kill(1)
    late.request(late.message("x", there))
    cluster.advance(11)
    assert late.errors() == ["shard-unavailable"]
    assert not late.is_open()


def test_the_entry_alone_answers_signs_of_life() -> None:
    cluster = OpenWireCluster()
    client = cluster.client(0)
    client.consumer(cluster.queue(1))
    for _ in range(10):
        cluster.advance(9)
        client.tell(KeepAliveInfo())
        cluster.run()
    assert client.is_open()
    client.tell(KeepAliveInfo(response_required=True))
    cluster.run()
    assert client.take(KeepAliveInfo)


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


def test_a_front_relays_everything() -> None:
    cluster = OpenWireCluster(2, fronts=1)
    client = cluster.client_of_front()
    listening(client)
    for shard in range(2):
        queue = cluster.queue(shard)
        client.send("x", destination=queue)
        client.consumer(queue)
    assert client.messages() == ["x", "x"]
    client.send("x", destination=DEAD)
    client.consumer(DEAD)
    assert client.messages() == ["x"]
    assert not cluster.fronts[0].broker.destinations.queues
    client.done(RemoveInfo(object_id=ConnectionId(client.id)))
    client.tell(ShutdownInfo())
    cluster.run()
    assert not client.is_open()


def test_each_connection_is_a_resource_manager_of_its_own() -> None:
    cluster = OpenWireCluster()
    ids = set()
    for number in range(2):
        client = cluster.members[0].negotiated(f"n{number}")  # type: ignore[attr-defined]
        (info,) = client.take(BrokerInfo)
        ids.add(info.broker_id)
    assert len(ids) == 2


def test_an_entry_that_does_not_know_yet_that_a_queue_has_moved_is_refused() -> None:
    cluster = OpenWireCluster()
    there = cluster.queue(1)
    clients = [cluster.client(0) for _ in range(3)]
    for client in clients:
        client.send("x", destination=there)
    clients[2].consumer(there)
    clients[2].acks(clients[2].take(MessageDispatch))
    owner = cluster.members[1].cluster_map
    peers = {number: peer for number in range(2) if (peer := owner.peer(number)) is not None}
    owner.update(peers, {owner.key_of(Destination(DestinationKind.QUEUE, there.physical_name)): Pin(0, 1)})
    clients[0].tell(clients[0].message("y", there))
    clients[1].tell(clients[1].consumer_info(there))
    cluster.run()
    for client in clients[:2]:
        assert client.errors() == ["shard-moved"]
        assert not client.is_open()
    cluster.members[1].gate.look_again()
    cluster.run()
    assert clients[2].errors() == ["shard-moved"]  # its consumer would wait here for ever
    assert cluster.depth(1, there) == 0


def test_a_pinned_queue_is_found_where_it_is_pinned() -> None:
    cluster = OpenWireCluster()
    there = cluster.queue(1)
    client = cluster.client(0)
    client.producer(there)
    cluster.pin(Destination(DestinationKind.QUEUE, there.physical_name), 0)
    cluster.run()
    client.send("x", destination=there)
    assert (cluster.depth(0, there), cluster.depth(1, there)) == (1, 0)


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
