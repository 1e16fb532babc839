"""From the text of a destination to what takes its messages."""

import pytest

from quire.broker.routing.addresses import Address, Scope, read_destination
from quire.broker.schedule import ScheduledSend, Timing
from quire.destination import DestinationKind
from quire.errors import InvalidDestination, InvalidHeader
from quire.testing.stepped import SteppedBroker
from tests.unit.broker.harness import consumer, filled, settings

QUEUE, TOPIC = DestinationKind.QUEUE, DestinationKind.TOPIC


# What a client may write.


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/queue/a", [Address(QUEUE, "a")]),
        ("/topic/a.b", [Address(TOPIC, "a.b")]),
        ("/queue//a", [Address(QUEUE, "/a")]),
        ("/queue/a b", [Address(QUEUE, "a b")]),
        ("/queue/a.>", [Address(QUEUE, "a.>")]),
        ("/temp-queue/a", [Address(QUEUE, "a", Scope.OWN)]),
        ("/temp-topic/a", [Address(TOPIC, "a", Scope.OWN)]),
        ("/remote-temp-queue/1-2", [Address(QUEUE, "1-2", Scope.REMOTE)]),
        ("/remote-temp-topic/1-2", [Address(TOPIC, "1-2", Scope.REMOTE)]),
        ("/queue/a,b", [Address(QUEUE, "a"), Address(QUEUE, "b")]),
        ("/topic/a,b,queue://c", [Address(TOPIC, "a"), Address(TOPIC, "b"), Address(QUEUE, "c")]),
        ("/queue/a, /topic/b ,topic://c", [Address(QUEUE, "a"), Address(TOPIC, "b"), Address(TOPIC, "c")]),
        ("/queue/a,b,a", [Address(QUEUE, "a"), Address(QUEUE, "b")]),
        ("a", [Address(QUEUE, "a")]),
        ("queue/a", [Address(QUEUE, "queue/a")]),
        ("topic://a,b", [Address(TOPIC, "a"), Address(TOPIC, "b")]),
        ("/queue/a ", [Address(QUEUE, "a")]),
    ],
)
def test_destinations_are_read(text: str, expected: list[Address]) -> None:
    assert read_destination(text) == (expected, {})


@pytest.mark.parametrize(
    "text",
    ["", " ", "/a", "/queue", "/streams/a", "streams://a", "/Queue/a", "/queue/a,", ",/queue/a", "/queue/a,/b",
     "/queue/a,streams://b", "/queue/a,topic://"],
)  # fmt: skip
def test_what_is_no_destination_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(InvalidDestination) as raised:
        read_destination(text)
    assert "write" in str(raised.value)


@pytest.mark.parametrize("text", ["/queue/a", "/topic/b.c", "/temp-queue/x", "/temp-topic/x", "/remote-temp-queue/1-1"])
def test_an_address_is_written_as_it_was_read(text: str) -> None:
    ((address,), _) = read_destination(text)
    assert str(address) == text


def test_options_stand_for_headers_of_subscribe() -> None:
    text = "/queue/a,b?consumer.prefetchSize=10&consumer.exclusive=true&consumer.selector=a%20%3D%20'b,c'"
    addresses, options = read_destination(text)
    assert [address.name for address in addresses] == ["a", "b"]
    assert options == {"activemq.prefetchSize": "10", "activemq.exclusive": "true", "selector": "a = 'b,c'"}


@pytest.mark.parametrize(
    "text",
    ["/queue/a?consumer.prefetch=1", "/queue/a?prefetchSize=1", "/queue/a?", "/queue/a?consumer.exclusive",
     "/queue/a?consumer.exclusive=true&consumer.exclusive=true", "/queue/a?consumer.selector=%ff"],
)  # fmt: skip
def test_unknown_and_broken_options_are_refused(text: str) -> None:
    with pytest.raises(InvalidDestination):
        read_destination(text)


def test_an_unknown_option_is_told_which_there_are() -> None:
    with pytest.raises(InvalidDestination, match=r"consumer\.prefetch.*consumer\.prefetchSize"):
        read_destination("/queue/a?consumer.prefetch=1")


# Where it goes.


def test_a_plain_queue_is_its_own_target() -> None:
    stepped = filled(0)
    assert stepped.broker.target("/queue/q") is stepped.queue("q")
    assert stepped.broker.target("/topic/t") is stepped.broker.topic("t")


def test_options_change_nothing_for_a_sender() -> None:
    stepped = filled(0)
    assert stepped.broker.target("/queue/q?consumer.exclusive=true") is stepped.queue("q")


def test_a_queue_that_was_deleted_is_found_anew() -> None:
    stepped = filled(1)
    before = stepped.broker.target("/queue/q")
    stepped.broker.destinations.delete_queue(stepped.queue("q"))
    after = stepped.broker.target("/queue/q")
    assert after is not before
    assert after is stepped.queue("q")


def test_other_policies_make_other_targets() -> None:
    stepped = filled(0)
    assert stepped.broker.target("/queue/q") is stepped.queue("q")
    stepped.broker.reload(settings(policies=[{"destination": "q", "ttl_ceiling": "1s"}]))
    assert stepped.broker.target("/queue/q") is not stepped.queue("q")


@pytest.mark.parametrize("destination", ["/queue/", "/queue/a.*", "/topic/>", "/queue/a\x07", "/queue/" + "x" * 501])
def test_what_cannot_be_sent_to_makes_no_destination(destination: str) -> None:
    stepped = SteppedBroker()
    for text in (destination, f"/queue/other,{destination}"):
        with pytest.raises(InvalidDestination):
            stepped.broker.target(text)
    assert (stepped.broker.queues, stepped.broker.destinations.topics) == ({}, {})


def test_no_more_targets_are_remembered_than_there_is_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quire.broker.routing.routing.MAX_TARGETS", 3)
    stepped = filled(0)
    for number in range(10):
        assert stepped.broker.target(f"/queue/q?consumer.priority={number}") is stepped.queue("q")
    assert len(stepped.broker.routing._targets) <= 3


def test_the_texts_by_which_targets_are_remembered_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quire.broker.routing.routing.MAX_TEXTS", 100)
    stepped = filled(0)
    for number in range(10):
        assert stepped.broker.target(f"/queue/q?consumer.priority={number}") is stepped.queue("q")
        assert sum([len(text) for text in stepped.broker.routing._targets]) <= 100


# What the headers of the message say.


def test_the_schedule_comes_first() -> None:
    stepped = SteppedBroker()
    target = stepped.broker.routing.scheduled("/queue/q", Timing(delay=1000), grouped=False)
    assert isinstance(target, ScheduledSend)


def test_a_scheduled_send_is_made_when_its_time_has_come() -> None:
    stepped = SteppedBroker()
    receiver = consumer(stepped)
    stepped.connect().send("q", b"later", {"AMQ_SCHEDULED_DELAY": "5000", "receipt": "r"})
    stepped.run()
    assert receiver.messages() == []
    for _ in range(25):
        stepped.advance(0.25)
        stepped.run()
    assert receiver.messages() == [b"later"]


def test_a_scheduled_send_in_a_transaction_is_scheduled_by_its_commit() -> None:
    stepped = SteppedBroker()
    receiver, sender = consumer(stepped), stepped.connect()
    sender.frame("BEGIN", {"transaction": "t"})
    sender.send("q", b"later", {"AMQ_SCHEDULED_DELAY": "5000", "transaction": "t"})
    stepped.broker.queue("another")  # what is known of targets is looked up again
    sender.frame("COMMIT", {"transaction": "t"})
    stepped.run()
    assert receiver.messages() == []
    for _ in range(25):
        stepped.advance(0.25)
        stepped.run()
    assert receiver.messages() == [b"later"]


def test_a_scheduled_send_must_have_somewhere_to_go() -> None:
    stepped = SteppedBroker()
    sender = stepped.connect()
    sender.send("", b"", {"destination": "/nowhere/q", "AMQ_SCHEDULED_DELAY": "5000"})
    assert sender.errors() == ["invalid-destination"]


def test_a_message_that_was_stored_finds_its_way_by_its_own_headers() -> None:
    stepped = SteppedBroker()
    routing = stepped.broker.routing
    head = b"message-id:1\ntimestamp:0\n"
    assert isinstance(routing.target_of("/queue/q", head + b"AMQ_SCHEDULED_DELAY:5\n\nbody"), ScheduledSend)
    assert routing.target_of("/queue/q", head + b"\n\nAMQ_SCHEDULED_DELAY:5\n") is stepped.queue("q")
    assert not stepped.queue("q").grouped
    assert routing.target_of("/queue/q", head + b"JMSXGroupID:g\n\nbody") is stepped.queue("q")
    assert stepped.queue("q").grouped
    with pytest.raises(InvalidHeader):
        routing.target_of("/queue/q", head + b"AMQ_SCHEDULED_DELAY:soon\n\nbody")
