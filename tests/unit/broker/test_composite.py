"""Sends to several destinations: lists that a client writes, and composites of the settings."""

import pytest

from quire.errors import InvalidSelector, StoreFull
from quire.testing.stepped import SteppedBroker, SteppedClient
from tests.unit.broker.harness import bodies, consumer, settings


def to(client: SteppedClient, destination: str, body: bytes = b"body", **headers: str) -> None:
    client.send("", body, {"destination": destination, **headers})


def subscriber(stepped: SteppedBroker, topic: str) -> SteppedClient:
    client = stepped.connect()
    client.subscribe("", "auto", headers={"destination": f"/topic/{topic}"})
    stepped.run()
    return client


def contents(stepped: SteppedBroker, queue: str) -> list[bytes]:
    """The bodies of what is stored in a queue."""
    page = stepped.store.page(stepped.queue(queue).lanes[0].id, 0, 1_000_000, 1000)
    return [message.body for message in page.messages]


# Lists.


@pytest.mark.parametrize(
    "destination",
    ["/queue/a,b", "/queue/a,/queue/b", "/queue/a,queue://b", "/queue/a , b", "/queue/a,b,a,/queue/b"],
)
def test_a_list_of_queues_gets_one_copy_each(destination: str) -> None:
    stepped = SteppedBroker()
    to(stepped.connect(), destination)
    stepped.run()
    assert contents(stepped, "a") == contents(stepped, "b") == [b"body"]
    assert sorted(stepped.broker.queues) == ["a", "b"]


@pytest.mark.parametrize("destination", ["/queue/a,/topic/b", "/queue/a,topic://b", "/topic/b,queue://a"])
def test_a_list_may_mix_queues_and_topics(destination: str) -> None:
    stepped = SteppedBroker()
    receiver = subscriber(stepped, "b")
    to(stepped.connect(), destination)
    stepped.run()
    assert (contents(stepped, "a"), receiver.messages()) == ([b"body"], [b"body"])


def test_a_part_without_a_prefix_is_what_the_first_part_is() -> None:
    stepped = SteppedBroker()
    receivers = [subscriber(stepped, name) for name in ("a", "b")]
    to(stepped.connect(), "/topic/a,b")
    stepped.run()
    assert [receiver.messages() for receiver in receivers] == [[b"body"], [b"body"]]
    assert stepped.broker.queues == {}


def test_a_copy_of_a_list_says_where_it_was_sent() -> None:
    stepped = SteppedBroker()
    stepped.connect().send("", b"body", {"destination": "/queue/a,/queue/b", "original-destination": "made up"})
    to(stepped.connect(), "/queue/a")
    stepped.run()
    copy, single = consumer(stepped, "a").take("MESSAGE")
    assert copy.headers["original-destination"] == "/queue/a,/queue/b"
    assert "original-destination" not in single.headers


@pytest.mark.parametrize("command", ["SEND", "SUBSCRIBE"])
def test_a_list_names_no_more_than_a_hundred(command: str) -> None:
    stepped = SteppedBroker()
    for count, errors in ((100, []), (101, ["invalid-destination"])):
        client = stepped.connect()
        client.frame(command, {"id": "1", "destination": ",".join(f"{command}{n}" for n in range(count))})
        stepped.run()
        assert client.errors() == errors
        assert len(stepped.broker.queues) == 100


def test_all_copies_are_in_one_commit() -> None:
    stepped = SteppedBroker()
    sender = stepped.connect()
    to(sender, "/queue/a,b,c", receipt="r")
    stepped.turn()
    assert stepped.writer.batch is not None
    lanes = {stepped.queue(name).lanes[0].id for name in ("a", "b", "c")}
    assert {lane for lane, part in stepped.writer.batch.lanes.items() if part.appends} == lanes
    stepped.commit(StoreFull("full"))
    assert sender.errors() == ["store-full"]
    stepped.advance(2)
    stepped.run()
    assert [stepped.queue(name).depth for name in ("a", "b", "c")] == [0, 0, 0]


def test_a_list_in_a_transaction_waits_for_its_commit() -> None:
    stepped = SteppedBroker()
    sender = stepped.connect()
    sender.frame("BEGIN", {"transaction": "t"})
    to(sender, "/queue/a,b", transaction="t")
    stepped.run()
    assert (stepped.queue("a").depth, stepped.queue("b").depth) == (0, 0)
    sender.frame("COMMIT", {"transaction": "t"})
    stepped.run()
    assert (stepped.queue("a").depth, stepped.queue("b").depth) == (1, 1)


def test_each_message_names_the_destination_it_came_from() -> None:
    stepped = SteppedBroker()
    receivers = [consumer(stepped, name) for name in ("a", "b")]
    to(stepped.connect(), "/queue/a,b")
    stepped.run()
    frames = [receiver.take("MESSAGE")[0] for receiver in receivers]
    assert [frame.headers["destination"] for frame in frames] == ["/queue/a", "/queue/b"]
    assert len({frame.headers["message-id"] for frame in frames}) == 1


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_copies_with_one_message_id_are_acknowledged_one_by_one(version: str) -> None:
    stepped = SteppedBroker()
    receiver = stepped.connect(version)
    receiver.subscribe("a", "client", id="a")
    receiver.subscribe("b", "client", id="b")
    to(stepped.connect(), "/queue/a,b")
    stepped.run()
    frames = receiver.take("MESSAGE")
    for frame, left in zip(frames, (1, 0), strict=True):
        receiver.ack(frame)
        stepped.run()
        assert stepped.queue("a").depth + stepped.queue("b").depth == left
    assert receiver.errors() == []


def test_groups_are_kept_together_in_every_part() -> None:
    stepped = SteppedBroker()
    receivers = [consumer(stepped, "a") for _ in range(2)]
    sender = stepped.connect()
    for number in range(6):
        to(sender, "/queue/a,b", b"%d" % number, JMSXGroupID="g")
    stepped.run()
    assert sorted(len(receiver.messages()) for receiver in receivers) == [0, 6]


@pytest.mark.parametrize(
    "destination",
    ["/queue/a,", "/queue/a,,b", ",", "/queue/a,/no/b", "/queue/a,streams://b", "/queue/a,/topic/>", "/queue/a,b.*"],
)
def test_a_list_with_a_wrong_part_is_refused_whole(destination: str) -> None:
    stepped = SteppedBroker()
    sender = stepped.connect()
    to(sender, destination)
    stepped.run()
    assert sender.errors() == ["invalid-destination"]
    assert stepped.broker.queues == {}


# Composites of the settings.


def test_a_composite_forwards_and_keeps_nothing() -> None:
    stepped = SteppedBroker(settings(composites=[{"queue": "orders", "forward_to": ["queue://a", "topic://b"]}]))
    receiver = subscriber(stepped, "b")
    to(stepped.connect(), "/queue/orders")
    stepped.run()
    assert (contents(stepped, "a"), receiver.messages()) == ([b"body"], [b"body"])
    assert "orders" not in stepped.broker.queues


def test_a_composite_may_keep_what_it_forwards() -> None:
    composite = {"queue": "orders", "forward_to": ["queue://a"], "forward_only": False}
    stepped = SteppedBroker(settings(composites=[composite]))
    to(stepped.connect(), "/queue/orders")
    stepped.run()
    assert contents(stepped, "orders") == contents(stepped, "a") == [b"body"]


def test_a_topic_may_be_a_composite() -> None:
    stepped = SteppedBroker(settings(composites=[{"topic": "news", "forward_to": ["a"], "forward_only": False}]))
    receiver = subscriber(stepped, "news")
    to(stepped.connect(), "/topic/news")
    stepped.run()
    assert (contents(stepped, "a"), receiver.messages()) == ([b"body"], [b"body"])


def test_a_forwarded_message_says_where_it_was_sent() -> None:
    stepped = SteppedBroker(settings(composites=[{"queue": "orders", "forward_to": ["a"]}]))
    to(stepped.connect(), "/queue/orders", color="red")
    stepped.run()
    (frame,) = consumer(stepped, "a").take("MESSAGE")
    assert frame.headers["original-destination"] == "/queue/orders"
    assert (frame.headers["color"], frame.headers["destination"]) == ("red", "/queue/a")


def test_a_selector_chooses_what_goes_where() -> None:
    forwards = [
        {"destination": "queue://red", "selector": "color = 'red'"},
        {"destination": "queue://urgent", "selector": "JMSPriority > 7"},
        "queue://all",
    ]
    stepped = SteppedBroker(settings(composites=[{"queue": "orders", "forward_to": forwards}]))
    sender = stepped.connect()
    to(sender, "/queue/orders", b"1", color="red")
    to(sender, "/queue/orders", b"2", color="blue", priority="9")
    to(sender, "/queue/orders", b"3")
    stepped.run()
    assert contents(stepped, "red") == [b"1"]
    assert contents(stepped, "urgent") == [b"2"]
    assert contents(stepped, "all") == [b"1", b"2", b"3"]


def test_a_selector_that_cannot_be_read_keeps_the_broker_from_starting() -> None:
    forwards = [{"destination": "queue://red", "selector": "color = "}]
    with pytest.raises(InvalidSelector):
        SteppedBroker(settings(composites=[{"queue": "orders", "forward_to": forwards}]))


def test_composites_may_forward_to_composites() -> None:
    composites = [{"queue": "a", "forward_to": ["b", "c"]}, {"queue": "b", "forward_to": ["d"]}]
    stepped = SteppedBroker(settings(composites=composites))
    to(stepped.connect(), "/queue/a")
    stepped.run()
    assert sorted(stepped.broker.queues) == ["c", "d"]
    (frame,) = consumer(stepped, "d").take("MESSAGE")
    assert frame.headers["original-destination"] == "/queue/b"


def test_composites_in_a_circle_end_where_they_began() -> None:
    composites = [{"queue": "a", "forward_to": ["b"]}, {"queue": "b", "forward_to": ["a"]}]
    stepped = SteppedBroker(settings(composites=composites))
    to(stepped.connect(), "/queue/a")
    stepped.run()
    assert contents(stepped, "a") == [b"body"]
    assert stepped.broker.queues.keys() == {"a"}


def test_a_composite_may_be_part_of_a_list() -> None:
    stepped = SteppedBroker(settings(composites=[{"queue": "orders", "forward_to": ["a"]}]))
    to(stepped.connect(), "/queue/orders,b")
    stepped.run()
    assert contents(stepped, "a") == contents(stepped, "b") == [b"body"]


def test_a_place_that_was_deleted_is_made_again() -> None:
    stepped = SteppedBroker(settings(composites=[{"queue": "orders", "forward_to": ["a"]}]))
    sender = stepped.connect()
    to(sender, "/queue/orders", b"1")
    stepped.run()
    stepped.broker.destinations.delete_queue(stepped.queue("a"))
    to(sender, "/queue/orders", b"2")
    stepped.run()
    assert bodies(consumer(stepped, "a").take("MESSAGE")) == [b"2"]


def test_what_is_brought_is_forwarded_too() -> None:
    stepped = SteppedBroker(settings(composites=[{"queue": "orders", "forward_to": ["a", "b"]}]))
    stepped.broker.target("/queue/orders").transfer(b"message-id:1\ntimestamp:0\n\nbody")
    stepped.turn()
    stepped.commit(StoreFull("full"))
    stepped.advance(2)
    stepped.run()
    assert contents(stepped, "a") == contents(stepped, "b") == [b"body"]
