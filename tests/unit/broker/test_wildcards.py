"""Subscriptions to several destinations: one id, one prefetch, one order of acknowledgement."""

import pytest

from quire.sessions import consumers
from quire.testing.stepped import Frame, SteppedBroker, SteppedClient
from tests.unit.broker.harness import bodies, drain, is_flagged, numbers, settings


def sent(*queues: str, each: int = 1) -> SteppedBroker:
    """A broker with messages ``QUEUE-0``, ``QUEUE-1``, ... in some queues."""
    stepped = SteppedBroker(settings())
    send(stepped, *queues, each=each)
    return stepped


def send(stepped: SteppedBroker, *queues: str, each: int = 1) -> None:
    producer = stepped.connect()
    for number in range(each):
        for queue in queues:
            producer.send(queue, f"{queue}-{number}".encode())
    stepped.run()


def subscribed(
    stepped: SteppedBroker, pattern: str, ack: str = "client-individual", version: str = "1.2", **headers: str
) -> SteppedClient:
    """A client with one subscription."""
    client = stepped.connect(version)
    client.subscribe(pattern, ack, headers={f"activemq.{name}": value for name, value in headers.items()})
    stepped.run()
    return client


def by_body(frames: list[Frame]) -> dict[bytes, Frame]:
    return {frame.body: frame for frame in frames}


def test_a_wildcard_consumes_every_queue_that_matches_and_no_other() -> None:
    stepped = sent("orders.new", "orders.old", "orders.new.eu", "invoices.new")
    star, rest = subscribed(stepped, "orders.*"), subscribed(stepped, "orders.>")
    assert sorted(star.messages()) == [b"orders.new-0", b"orders.old-0"]
    assert rest.messages() == [b"orders.new.eu-0"]


def test_a_queue_that_comes_later_belongs_to_it_too() -> None:
    stepped = SteppedBroker()
    receiver = subscribed(stepped, "orders.>")
    send(stepped, "orders.new", "invoices.new", "orders.old")
    assert sorted(receiver.messages()) == [b"orders.new-0", b"orders.old-0"]


def test_a_message_names_the_queue_it_is_from_and_the_one_subscription() -> None:
    stepped = sent("a.1", "a.2")
    receiver = subscribed(stepped, "a.*")
    frames = receiver.take("MESSAGE")
    assert {frame.headers["destination"] for frame in frames} == {"/queue/a.1", "/queue/a.2"}
    assert {frame.headers["subscription"] for frame in frames} == {"0"}
    assert len({frame.headers["ack"] for frame in frames}) == 2


def test_what_is_acknowledged_leaves_the_queue_it_is_from() -> None:
    stepped = sent("a.1", "a.2", each=2)
    receiver = subscribed(stepped, "a.*")
    frames = by_body(receiver.take("MESSAGE"))
    receiver.ack(frames[b"a.2-0"], {"receipt": "r"})
    stepped.run()
    assert receiver.receipts() == ["r"]
    assert [stepped.queue(name).depth for name in ("a.1", "a.2")] == [2, 1]


def test_the_prefetch_is_that_of_all_queues_together() -> None:
    stepped = sent("a.1", "a.2", "a.3", each=5)
    receiver = subscribed(stepped, "a.*", prefetchSize="4")
    frames = receiver.take("MESSAGE")
    assert len(frames) == 4
    receiver.ack(frames[0])
    receiver.ack(frames[1])
    stepped.run()
    assert len(receiver.take("MESSAGE")) == 2


@pytest.mark.parametrize("prefetch", ["1", "2", "3", "7"])
def test_no_message_is_left_whatever_the_prefetch(prefetch: str) -> None:
    stepped = sent("a.1", "a.2", "a.3", each=7)
    receiver = subscribed(stepped, "a.>", prefetchSize=prefetch)
    got = drain(stepped, receiver)
    assert sorted(got) == sorted(f"a.{queue}-{number}".encode() for queue in (1, 2, 3) for number in range(7))
    for queue in (b"a.1", b"a.2", b"a.3"):
        assert [body for body in got if body.startswith(queue)] == [queue + b"-%d" % number for number in range(7)]


def test_queues_take_turns_when_there_is_credit_for_one_message_only() -> None:
    stepped = sent("a.1", "a.2", "a.3", each=10)
    receiver = subscribed(stepped, "a.*", prefetchSize="1")
    got = drain(stepped, receiver)
    for start in range(3, 27, 3):
        assert len({body[:3] for body in got[start : start + 3]}) == 3


def test_a_queue_that_others_empty_keeps_no_credit_from_the_rest() -> None:
    stepped = sent("a.1", "a.2", each=1)
    receiver = subscribed(stepped, "a.*", prefetchSize="1")
    (first,) = receiver.take("MESSAGE")
    other = subscribed(stepped, "a.2")
    assert other.messages() == [b"a.2-0"]
    receiver.ack(first)
    send(stepped, "a.1")
    assert receiver.messages() == [b"a.1-0"]


def test_a_cumulative_acknowledgement_covers_what_was_given_out_before_from_any_queue() -> None:
    stepped = sent("a.1", "a.2", each=3)
    receiver = subscribed(stepped, "a.*", "client")
    frames = receiver.take("MESSAGE")
    receiver.ack(frames[3])
    stepped.run()
    assert stepped.queue("a.1").depth + stepped.queue("a.2").depth == 2
    receiver.frame("UNSUBSCRIBE", {"id": "0"})
    stepped.run()
    assert sorted(subscribed(stepped, "a.*").messages()) == sorted(bodies(frames[4:]))


def test_a_cumulative_acknowledgement_does_not_cover_what_was_given_out_later() -> None:
    stepped = sent("a.1")
    receiver = subscribed(stepped, "a.*", "client")
    (first,) = receiver.take("MESSAGE")
    send(stepped, "a.2")
    send(stepped, "a.1")
    second, third = receiver.take("MESSAGE")
    receiver.ack(second)
    stepped.run()
    assert (stepped.queue("a.1").depth, stepped.queue("a.2").depth) == (1, 0)
    receiver.ack(third)
    stepped.run()
    assert receiver.errors() == []
    receiver.ack(first)
    assert receiver.errors() == ["unknown-message"]


@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize(("ack", "left"), [("client", 1), ("client-individual", 3)])
def test_older_versions_acknowledge_by_message_id(version: str, ack: str, left: int) -> None:
    stepped = sent("a.1", "a.2", each=2)
    receiver = subscribed(stepped, "a.*", ack, version)
    receiver.ack(receiver.take("MESSAGE")[2])
    stepped.run()
    assert receiver.errors() == []
    assert stepped.queue("a.1").depth + stepped.queue("a.2").depth == left


def test_auto_acknowledged_messages_need_no_credit() -> None:
    stepped = sent("a.1", "a.2", each=20)
    receiver = subscribed(stepped, "a.*", "auto", prefetchSize="1")
    assert len(receiver.messages()) == 40
    assert stepped.queue("a.1").depth == stepped.queue("a.2").depth == 0


def test_a_slow_receiver_is_given_nothing_until_it_has_read() -> None:
    stepped = sent("a.1", "a.2")
    receiver = stepped.connect()
    receiver.connection.is_writable = receiver.session.writable = False
    receiver.subscribe("a.*")
    stepped.run()
    assert receiver.messages() == []
    receiver.connection.is_writable = True
    receiver.session.output_drained()
    stepped.run()
    assert sorted(receiver.messages()) == [b"a.1-0", b"a.2-0"]


def test_rejected_messages_come_back_to_their_own_queues() -> None:
    stepped = sent("a.1", "a.2")
    receiver = subscribed(stepped, "a.*", prefetchSize="2")
    frames = by_body(receiver.take("MESSAGE"))
    receiver.nack(frames[b"a.2-0"])
    stepped.run()
    (again,) = receiver.take("MESSAGE")
    assert (again.body, again.headers["destination"], is_flagged(again)) == (b"a.2-0", "/queue/a.2", True)
    receiver.ack(again)
    receiver.ack(frames[b"a.1-0"])
    stepped.run()
    assert receiver.errors() == []


@pytest.mark.parametrize("leaving", ["unsubscribe", "disconnect", "vanish"])
def test_when_it_ends_every_queue_has_its_messages_back(leaving: str) -> None:
    stepped = sent("a.1", "a.2", each=2)
    receiver = subscribed(stepped, "a.*")
    assert len(receiver.messages()) == 4
    if leaving == "unsubscribe":
        receiver.frame("UNSUBSCRIBE", {"id": "0"})
    elif leaving == "disconnect":
        receiver.frame("DISCONNECT")
    else:
        receiver.vanish()
    stepped.run()
    send(stepped, "a.3")
    assert receiver.messages() == []
    assert all(not queue.subscriptions for queue in stepped.broker.queues.values())
    assert receiver.session.subscriptions == {}
    assert len(stepped.broker.destinations.created) == 0
    frames = subscribed(stepped, "a.*").take("MESSAGE")
    assert {frame.body: is_flagged(frame) for frame in frames} == {
        b"a.1-0": True, b"a.1-1": True, b"a.2-0": True, b"a.2-1": True, b"a.3-0": False,
    }  # fmt: skip


def test_an_acknowledgement_in_a_transaction_makes_room_for_every_queue() -> None:
    stepped = sent("a.1", "a.2", "a.3")
    receiver = subscribed(stepped, "a.*", prefetchSize="1")
    receiver.frame("BEGIN", {"transaction": "t"})
    got = []
    for _ in range(3):
        (message,) = receiver.take("MESSAGE")
        got.append(message.body)
        receiver.ack(message, {"transaction": "t"})
        stepped.run()
    assert sorted(got) == [b"a.1-0", b"a.2-0", b"a.3-0"]
    receiver.frame("COMMIT", {"transaction": "t"})
    stepped.run()
    assert [stepped.queue(name).depth for name in ("a.1", "a.2", "a.3")] == [0, 0, 0]
    send(stepped, "a.1", each=3)
    assert receiver.messages() == [b"a.1-0"]


def test_a_selector_holds_in_every_queue() -> None:
    stepped = SteppedBroker()
    receiver = stepped.connect()
    receiver.subscribe("a.*", headers={"selector": "color = 'red'"})
    producer = stepped.connect()
    for number, color in enumerate(("red", "blue", "red", "blue")):
        producer.send(f"a.{number % 2}", b"%d" % number, {"color": color})
        producer.send(f"a.{1 - number % 2}", b"%d" % (number + 4), {"color": color})
    stepped.run()
    assert sorted(receiver.messages()) == numbers(0, 2, 4, 6)


def test_a_list_makes_its_queues_and_consumes_them() -> None:
    stepped = SteppedBroker()
    receiver = subscribed(stepped, "a,/queue/b,c.*", prefetchSize="2")
    assert sorted(stepped.broker.queues) == ["a", "b"]
    send(stepped, "a", "b", "c.1", "d")
    frames = receiver.take("MESSAGE")
    assert len(frames) == 2
    for frame in frames:
        receiver.ack(frame)
    stepped.run()
    assert sorted([*bodies(frames), *receiver.messages()]) == [b"a-0", b"b-0", b"c.1-0"]


def test_the_same_queue_twice_is_consumed_once() -> None:
    stepped = sent("a.1")
    assert subscribed(stepped, "a.1,a.*,/queue/a.>").messages() == [b"a.1-0"]
    assert len(stepped.queue("a.1").subscriptions) == 1


def test_other_subscriptions_of_the_connection_are_told_apart() -> None:
    stepped = sent("a.1", "a.2", "b")
    client = stepped.connect()
    client.subscribe("a.*", "client", id="wild")
    client.subscribe("b", "client", id="plain")
    stepped.run()
    frames = by_body(client.take("MESSAGE"))
    assert frames[b"b-0"].headers["subscription"] == "plain"
    client.feed(b"".join(b"ACK\nid:%s\n\n\0" % frame.headers["ack"].encode() for frame in frames.values()))
    stepped.run()
    assert client.errors() == []
    assert [stepped.queue(name).depth for name in ("a.1", "a.2", "b")] == [0, 0, 0]


def test_exclusive_and_priority_hold_in_every_queue() -> None:
    stepped = SteppedBroker()
    plain = subscribed(stepped, "a.*")
    exclusive = subscribed(stepped, "a.*", exclusive="true")
    send(stepped, "a.1", "a.2")
    assert sorted(exclusive.messages()) == [b"a.1-0", b"a.2-0"]
    assert plain.messages() == []


def test_the_policy_for_the_pattern_says_the_prefetch() -> None:
    stepped = SteppedBroker(settings(policies=[{"destination": "a.>", "queue_prefetch": 3}]))
    send(stepped, "a.1", "a.2", each=5)
    assert len(subscribed(stepped, "a.>").messages()) == 3


@pytest.mark.parametrize(
    ("destination", "headers", "code"),
    [
        ("/queue/a.>.b", {}, "invalid-destination"),
        ("/queue/a.*", {"activemq.prefetchSize": "0"}, "invalid-header"),
        ("/queue/a,/queue/", {}, "invalid-destination"),
        ("/queue/a,/temp-queue/b", {}, "invalid-destination"),
        ("/queue/a.*", {"browser": "true"}, "invalid-header"),
    ],
)
def test_what_cannot_be_subscribed_to_is_refused_and_leaves_no_consumer(
    destination: str, headers: dict[str, str], code: str
) -> None:
    stepped = sent("a")
    client = stepped.connect()
    client.subscribe("", headers={"destination": destination, **headers})
    stepped.run()
    assert client.errors() == [code]
    assert stepped.queue("a").subscriptions == []
    assert stepped.broker.destinations.created == {}


def test_more_queues_than_a_connection_may_consume_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumers, "MAX_PARTS", 2)
    stepped = sent("a.1", "a.2", "a.3", "b.1", "b.2")
    first, second = subscribed(stepped, "a.*"), subscribed(stepped, "b.*")
    assert first.errors() == ["limit-exceeded"]
    assert first.session.subscriptions == {}
    assert all(not stepped.queue(name).subscriptions for name in ("a.1", "a.2", "a.3"))
    assert len(second.messages()) == 2
    producer = stepped.connect()
    producer.send("b.3", b"", {"receipt": "r"})
    stepped.run()
    assert producer.receipts() == ["r"]
    assert second.errors() == ["limit-exceeded"]
