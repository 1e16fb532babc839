"""Temporary queues and topics end with their connection, and nothing of them is ever in the store."""

import pytest

from quire.errors import BrokerStopping, StoreFull
from quire.message import MESSAGE_OVERHEAD
from quire.testing.stepped import SteppedBroker
from tests.unit.broker.answering import KINDS, request, send_to, subscribe, subscribed, temporaries
from tests.unit.broker.harness import bodies, consumer, is_flagged, numbers, settings

# Its end.


@KINDS
@pytest.mark.parametrize("leaving", ["disconnect", "vanish"])
def test_it_ends_with_its_connection_and_leaves_nothing(leaving: str, kind: str) -> None:
    stepped = SteppedBroker(settings(memory={"limit": 2 * (200 + MESSAGE_OVERHEAD)}))
    client = subscribed(stepped, kind, prefetchSize="1")
    subscribe(client, f"/temp-{kind}/unread", id="1", ack="client", prefetchSize="1")
    for number in range(6):
        send_to(client, f"/temp-{kind}/unread", b"%d" % number)
    stepped.run()
    assert stepped.broker.core.memory.used > 0
    assert (stepped.spool.used > 0) == (kind == "queue")
    if leaving == "disconnect":
        client.frame("DISCONNECT")
    else:
        client.vanish()
    stepped.run()
    assert temporaries(stepped) == 0
    assert (stepped.broker.core.memory.used, stepped.broker.core.stored_bytes, stepped.spool.used) == (0, 0, 0)
    assert not stepped.broker.core.dispatch.ready


def test_its_consumer_may_leave_and_come_back() -> None:
    stepped = SteppedBroker()
    client = stepped.connect()
    subscribe(client, "/temp-queue/replies", ack="client")
    send_to(client, "/temp-queue/replies", b"kept")
    stepped.run()
    client.frame("UNSUBSCRIBE", {"id": "0"})
    stepped.run()
    assert client.messages() == [b"kept"]
    subscribe(client, "/temp-queue/replies")
    stepped.run()
    (message,) = client.take("MESSAGE")
    assert (message.body, is_flagged(message)) == (b"kept", True)


@pytest.mark.parametrize("known", [True, False])
def test_an_answer_to_one_who_is_gone_is_dropped_and_harms_nobody(known: bool) -> None:
    stepped = SteppedBroker()
    service, client = consumer(stepped, "work", "auto"), subscribed(stepped)
    request(stepped, client)
    (message,) = service.take("MESSAGE")
    if known:
        send_to(service, message.headers["reply-to"], b"early")
    client.vanish()
    send_to(service, message.headers["reply-to"], b"late", receipt="r")
    stepped.run()
    assert (service.receipts(), service.errors()) == (["r"], [])
    assert stepped.broker.routing.temporaries.dropped == 1
    assert (stepped.broker.core.memory.used, stepped.spool.used) == (0, 0)


def test_an_answer_that_is_committed_too_late_is_dropped() -> None:
    stepped = SteppedBroker()
    service, client = consumer(stepped, "work", "auto"), subscribed(stepped)
    request(stepped, client)
    (message,) = service.take("MESSAGE")
    service.frame("BEGIN", {"transaction": "t"})
    send_to(service, message.headers["reply-to"], b"late", transaction="t")
    client.vanish()
    service.frame("COMMIT", {"transaction": "t", "receipt": "r"})
    stepped.run()
    assert (service.receipts(), stepped.broker.routing.temporaries.dropped) == (["r"], 1)


def test_a_commit_under_way_when_it_ends_is_done() -> None:
    stepped = SteppedBroker()
    client = subscribed(stepped)
    sender = stepped.connect()
    client.send("work", b"stored")
    send_to(client, "/temp-queue/replies", b"lost")
    send_to(client, "/temp-queue/unread", b"lost too")
    stepped.turn()
    client.vanish()
    stepped.commit()
    stepped.run()
    assert (stepped.queue("work").depth, stepped.broker.core.memory.used) == (1, stepped.queue("work").memory.used)
    sender.send("work", b"more")
    stepped.run()
    assert consumer(stepped, "work").messages() == [b"stored", b"more"]


@pytest.mark.parametrize("under_way", [True, False])
def test_a_commit_that_fails_when_it_is_gone_concerns_nobody(under_way: bool) -> None:
    stepped = SteppedBroker()
    client = subscribed(stepped)
    sender = stepped.connect()
    sender.send("work", b"")
    if under_way:
        send_to(client, "/temp-queue/replies", b"lost")
    stepped.turn()
    if not under_way:
        send_to(client, "/temp-queue/replies", b"lost")
    client.vanish()
    stepped.commit(StoreFull("full"))
    stepped.advance(2)
    stepped.run()
    assert sender.errors() == ["store-full"]
    assert stepped.broker.core.memory.used == 0


# Nothing of it is in the store.


def test_nothing_of_it_is_ever_in_the_store() -> None:
    stepped = SteppedBroker(settings(memory={"limit": 2 * (200 + MESSAGE_OVERHEAD)}))
    client = stepped.connect()
    subscribe(client, "/temp-queue/replies", ack="client-individual")
    for number in range(6):
        send_to(client, "/temp-queue/replies", b"%d" % number, persistent="true", JMSXGroupID="g")
        while stepped.is_turn_wanted:
            stepped.turn()
            assert stepped.writer.batch is None
    assert stepped.spool.used > 0
    got = []
    while messages := client.take("MESSAGE"):
        got += bodies(messages)
        for message in messages:
            if message.body == b"2" and not is_flagged(message):
                got.remove(b"2")
                client.nack(message)
            else:
                client.ack(message)
        while stepped.is_turn_wanted:
            stepped.turn()
            assert stepped.writer.batch is None
    assert sorted(got) == numbers(0, 1, 2, 3, 4, 5)
    client.vanish()
    stepped.run()
    assert (stepped.store.destinations(), stepped.spool.used, stepped.broker.core.memory.used) == ([], 0, 0)


def test_what_came_back_of_it_is_in_no_commit_that_others_are_in() -> None:
    stepped = SteppedBroker(settings(memory={"limit": 1}))
    client = stepped.connect()
    subscribe(client, "/temp-queue/replies", ack="client-individual")
    for _ in range(2):
        send_to(client, "/temp-queue/replies", b"spooled")
    stepped.run()
    (message,) = client.take("MESSAGE")
    client.nack(message)
    client.send("work", b"stored")
    stepped.turn()
    assert stepped.writer.batch is not None
    assert stepped.writer.batch.lanes.keys() == {stepped.queue("work").lanes[0].id}


def test_a_topic_that_is_temporary_keeps_nothing_for_retroactive_consumers() -> None:
    policies = [{"destination": ">", "subscription_recovery_policy": "fixed-count", "always_retroactive": True}]
    stepped = SteppedBroker(settings(policies=policies))
    client = stepped.connect()
    send_to(client, "/temp-topic/replies", b"early")
    stepped.turn()
    assert stepped.writer.batch is None
    subscribe(client, "/temp-topic/replies")
    stepped.run()
    assert client.messages() == []


def test_an_answer_is_delivered_while_a_commit_of_others_is_under_way() -> None:
    stepped = SteppedBroker()
    client = subscribed(stepped)
    send_to(client, "/temp-queue/replies", b"!")
    stepped.turn()
    stepped.connect().send("work", b"")
    stepped.turn()
    assert stepped.writer.batch is not None
    assert client.messages() == [b"!"]


def test_a_store_that_takes_no_writes_refuses_no_answer_beforehand() -> None:
    stepped = SteppedBroker()
    client, sender = subscribed(stepped), stepped.connect()
    sender.send("work", b"")
    stepped.turn()
    stepped.commit(StoreFull("full"))
    send_to(client, "/temp-queue/replies", b"!")
    other = stepped.connect()
    other.send("work", b"")
    assert (client.errors(), other.errors()) == ([], ["store-full"])


def test_what_fails_too_often_is_dropped() -> None:
    stepped = SteppedBroker(settings(policy={"maximum_redeliveries": 1}))
    client = stepped.connect()
    subscribe(client, "/temp-queue/replies", ack="client-individual")
    send_to(client, "/temp-queue/replies", b"poison")
    stepped.run()
    for _ in range(2):
        (message,) = client.take("MESSAGE")
        client.nack(message)
        stepped.run()
    assert client.take("MESSAGE") == []
    assert (stepped.broker.queues, stepped.broker.core.memory.used) == ({}, 0)


def test_a_part_of_a_list_may_be_temporary() -> None:
    stepped = SteppedBroker()
    client = subscribed(stepped)
    send_to(client, "/temp-queue/replies,/queue/kept", b"both")
    stepped.run()
    assert client.messages() == [b"both"]
    (kept,) = stepped.store.page(stepped.queue("kept").lanes[0].id, 0, 10_000, 9).messages
    assert (kept.body, kept.persistent) == (b"both", True)


def test_a_temporary_part_of_a_list_is_not_persistent_and_loses_nothing() -> None:
    stepped = SteppedBroker(settings(memory={"limit": 1}))
    client = stepped.connect()
    for number in range(4):
        send_to(client, "/temp-queue/replies,/queue/kept", b"%d" % number)
    stepped.run()
    subscribe(client, "/temp-queue/replies")
    stepped.run()
    assert client.messages() == numbers(0, 1, 2, 3)


def test_a_clean_stop_takes_them_along() -> None:
    stepped = SteppedBroker()
    client = subscribed(stepped, ack="client")
    send_to(client, "/temp-queue/replies", b"lost")
    stepped.stop(BrokerStopping("going down"))
    assert temporaries(stepped) == 0
    assert client.errors() == ["broker-stopping"]
