"""Virtual topics: ``VirtualTopic.Orders`` feeds the queues ``Consumer.NAME.VirtualTopic.Orders``."""

import pytest

from quire.errors import StoreFull
from quire.testing.stepped import SteppedBroker, SteppedClient
from tests.unit.broker.harness import consumer, numbers, settings

TOPIC = "VirtualTopic.Orders"


def publish(client: SteppedClient, body: bytes, topic: str = TOPIC, **headers: str) -> None:
    client.send("", body, {"destination": f"/topic/{topic}", **headers})


def subscriber(stepped: SteppedBroker, topic: str = TOPIC) -> SteppedClient:
    client = stepped.connect()
    client.subscribe("", "auto", headers={"destination": f"/topic/{topic}"})
    stepped.run()
    return client


def test_every_queue_has_a_copy_and_its_consumers_share_it() -> None:
    stepped = SteppedBroker()
    first, second = (consumer(stepped, f"Consumer.A.{TOPIC}", "auto") for _ in range(2))
    other = consumer(stepped, f"Consumer.B.{TOPIC}", "auto")
    sender = stepped.connect()
    for number in range(4):
        publish(sender, b"%d" % number)
    stepped.run()
    assert sorted(first.messages() + second.messages()) == numbers(0, 1, 2, 3)
    assert other.messages() == numbers(0, 1, 2, 3)


def test_subscribers_of_the_topic_itself_get_it_too() -> None:
    stepped = SteppedBroker()
    plain, queue = subscriber(stepped), consumer(stepped, f"Consumer.A.{TOPIC}", "auto")
    publish(stepped.connect(), b"1")
    stepped.run()
    assert (plain.messages(), queue.messages()) == ([b"1"], [b"1"])


def test_a_queue_gets_what_is_sent_while_nobody_consumes_it() -> None:
    stepped = SteppedBroker()
    consumer(stepped, f"Consumer.A.{TOPIC}").vanish()
    publish(stepped.connect(), b"1")
    stepped.run()
    again = stepped.reopen()
    assert consumer(again, f"Consumer.A.{TOPIC}").messages() == [b"1"]


def test_a_queue_gets_nothing_from_before_it_was_there() -> None:
    stepped = SteppedBroker()
    publish(stepped.connect(), b"early")
    stepped.run()
    assert consumer(stepped, f"Consumer.A.{TOPIC}").messages() == []


def test_a_queue_made_by_the_sender_itself_is_fed_at_once() -> None:
    stepped = SteppedBroker()
    client = stepped.connect()
    publish(client, b"1")
    frames = (
        b"SEND\ndestination:/topic/VirtualTopic.Orders\n\n2\0"
        b"SUBSCRIBE\nid:0\ndestination:/queue/Consumer.A.VirtualTopic.Orders\n\n\0"
        b"SEND\ndestination:/topic/VirtualTopic.Orders\n\n3\0"
    )
    client.feed(frames)
    stepped.run()
    assert client.messages() == [b"3"]


def test_a_copy_says_where_it_was_sent() -> None:
    stepped = SteppedBroker()
    plain, queue = subscriber(stepped), consumer(stepped, f"Consumer.A.{TOPIC}", "auto")
    publish(stepped.connect(), b"", color="red")
    stepped.run()
    (own,), (copy,) = plain.take("MESSAGE"), queue.take("MESSAGE")
    assert copy.headers["original-destination"] == f"/topic/{TOPIC}"
    assert (copy.headers["destination"], copy.headers["color"]) == (f"/queue/Consumer.A.{TOPIC}", "red")
    assert "original-destination" not in own.headers
    assert copy.headers["message-id"] == own.headers["message-id"]


def test_all_copies_are_in_one_commit() -> None:
    stepped = SteppedBroker()
    queues = [f"Consumer.{name}.{TOPIC}" for name in ("A", "B")]
    for name in queues:
        consumer(stepped, name).vanish()
    stepped.run()
    sender = stepped.connect()
    publish(sender, b"1", receipt="r")
    stepped.turn()
    stepped.commit(StoreFull("full"))
    stepped.advance(2)
    stepped.run()
    assert sender.errors() == ["store-full"]
    assert [stepped.queue(name).depth for name in queues] == [0, 0]


def test_queues_that_were_there_at_the_start_are_fed() -> None:
    stepped = SteppedBroker()
    consumer(stepped, f"Consumer.A.{TOPIC}").vanish()
    stepped.run()
    again = stepped.reopen()
    publish(again.connect(), b"1")
    again.run()
    assert again.queue(f"Consumer.A.{TOPIC}").depth == 1


def test_a_queue_that_is_deleted_is_fed_no_more_until_it_is_there_again() -> None:
    stepped = SteppedBroker()
    name = f"Consumer.A.{TOPIC}"
    consumer(stepped, name).vanish()
    sender = stepped.connect()
    publish(sender, b"1")
    stepped.run()
    stepped.broker.destinations.delete_queue(stepped.queue(name))
    publish(sender, b"2")
    stepped.run()
    assert name not in stepped.broker.queues
    receiver = consumer(stepped, name)
    publish(sender, b"3")
    stepped.run()
    assert receiver.messages() == [b"3"]


def test_groups_reach_a_queue_that_comes_later() -> None:
    stepped = SteppedBroker()
    sender = stepped.connect()
    publish(sender, b"", JMSXGroupID="g")
    stepped.run()
    receivers = [consumer(stepped, f"Consumer.A.{TOPIC}", "auto") for _ in range(2)]
    for number in range(6):
        publish(sender, b"%d" % number, JMSXGroupID="g")
    stepped.run()
    assert sorted(len(receiver.messages()) for receiver in receivers) == [0, 6]


def test_groups_reach_a_queue_that_the_sender_itself_has_just_made() -> None:
    stepped = SteppedBroker()
    client = stepped.connect()
    send = b"SEND\ndestination:/topic/VirtualTopic.Orders\nJMSXGroupID:g\n\n\0"
    subscribe = b"SUBSCRIBE\nid:%d\ndestination:/queue/Consumer.A.VirtualTopic.Orders\n\n\0"
    client.feed(send + subscribe % 0 + subscribe % 1 + send * 6)
    stepped.run()
    assert len({frame.headers["subscription"] for frame in client.take("MESSAGE")}) == 1


@pytest.mark.parametrize(
    ("queue", "fed"),
    [
        ("Consumer.A.VirtualTopic.Orders", True),
        ("Consumer.A.B.VirtualTopic.Orders", False),
        ("Consumer.VirtualTopic.Orders", False),
        ("Other.A.VirtualTopic.Orders", False),
        ("Consumer.A.VirtualTopic.Orders.EU", False),
        ("Consumer.A.Orders", False),
        ("VirtualTopic.Orders", False),
    ],
)
def test_only_queues_that_are_named_so_are_fed(queue: str, fed: bool) -> None:
    stepped = SteppedBroker()
    consumer(stepped, queue).vanish()
    publish(stepped.connect(), b"1")
    stepped.run()
    assert stepped.queue(queue).depth == fed


@pytest.mark.parametrize(
    ("virtual", "topic", "queue", "fed"),
    [
        ({"virtual_topics": False}, "VirtualTopic.A", "Consumer.X.VirtualTopic.A", False),
        ({"virtual_topic_pattern": "news.>"}, "VirtualTopic.A", "Consumer.X.VirtualTopic.A", False),
        ({"virtual_topic_pattern": "news.>"}, "news.eu", "Consumer.X.news.eu", True),
        ({"virtual_topic_pattern": ">", "virtual_topic_prefix": "VQ."}, "news", "VQ.news", True),
        ({"virtual_topic_pattern": ">", "virtual_topic_prefix": "a.*.b.*."}, "news", "a.1.b.2.news", True),
        ({"virtual_topic_pattern": ">", "virtual_topic_prefix": "a.*.b.*."}, "news", "a.1.c.2.news", False),
        ({"virtual_topic_pattern": ">"}, "ActiveMQ.Advisory.X", "Consumer.A.ActiveMQ.Advisory.X", False),
    ],
)
def test_the_settings_say_which_topics_and_queues(
    virtual: dict[str, object], topic: str, queue: str, fed: bool
) -> None:
    stepped = SteppedBroker(settings(virtual=virtual))
    consumer(stepped, queue).vanish()
    publish(stepped.connect(), b"1", topic)
    stepped.run()
    assert stepped.queue(queue).depth == fed


def test_a_list_may_have_a_virtual_topic() -> None:
    stepped = SteppedBroker()
    receiver = consumer(stepped, f"Consumer.A.{TOPIC}", "auto")
    stepped.connect().send("", b"1", {"destination": f"/queue/other,/topic/{TOPIC}"})
    stepped.run()
    assert (receiver.messages(), stepped.queue("other").depth) == ([b"1"], 1)


def test_a_queue_that_forwards_to_its_own_topic_makes_no_endless_loop() -> None:
    composite = {"queue": f"Consumer.A.{TOPIC}", "forward_to": [f"topic://{TOPIC}"], "forward_only": False}
    stepped = SteppedBroker(settings(composites=[composite]))
    plain = subscriber(stepped)
    stepped.broker.queue(f"Consumer.A.{TOPIC}")
    publish(stepped.connect(), b"1")
    stepped.run()
    assert stepped.queue(f"Consumer.A.{TOPIC}").depth == 1
    assert plain.messages() == [b"1", b"1"]
