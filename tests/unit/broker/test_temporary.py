"""Temporary queues and topics: one connection's own, and open to everybody's answers."""

import pytest

from quire.errors import InvalidDestination
from quire.sessions import session
from quire.testing.stepped import SteppedBroker
from tests.unit.broker.answering import KINDS, answer, request, send_to, subscribe, subscribed, temporaries
from tests.unit.broker.harness import bodies, consumer, numbers

# Request and reply.


@KINDS
def test_an_answer_comes_back_to_the_one_who_asked(kind: str) -> None:
    stepped = SteppedBroker()
    service, client, other = consumer(stepped, "work", "auto"), subscribed(stepped, kind), subscribed(stepped, kind)
    request(stepped, client, kind=kind)
    asked = answer(stepped, service, b"!")
    assert asked.headers["reply-to"].startswith(f"/remote-temp-{kind}/")
    (reply,) = client.take("MESSAGE")
    assert (reply.body, reply.headers["destination"]) == (b"!", f"/temp-{kind}/replies")
    assert other.messages() == []


def test_the_service_may_answer_before_the_one_who_asked_subscribes() -> None:
    stepped = SteppedBroker()
    service, client = consumer(stepped, "work", "auto"), stepped.connect()
    request(stepped, client)
    answer(stepped, service, b"!")
    subscribe(client, "/temp-queue/replies")
    stepped.run()
    assert client.messages() == [b"!"]


def test_an_answer_may_be_part_of_the_transaction_that_acknowledges_the_request() -> None:
    stepped = SteppedBroker()
    service, client = consumer(stepped, "work"), subscribed(stepped)
    request(stepped, client)
    (message,) = service.take("MESSAGE")
    service.frame("BEGIN", {"transaction": "t"})
    service.ack(message, {"transaction": "t"})
    send_to(service, message.headers["reply-to"], b"!", transaction="t")
    stepped.run()
    assert client.messages() == []
    service.frame("COMMIT", {"transaction": "t"})
    stepped.run()
    assert (client.messages(), stepped.queue("work").depth) == ([b"!"], 0)


def test_the_connection_itself_sees_the_names_it_gave() -> None:
    stepped = SteppedBroker()
    client = subscribed(stepped)
    client.subscribe("work", "auto", id="work")
    request(stepped, client)
    (message,) = client.take("MESSAGE")
    assert message.headers["reply-to"] == "/temp-queue/replies"
    send_to(client, message.headers["reply-to"], b"!")
    stepped.run()
    assert client.messages() == [b"!"]


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_names_may_have_colons_in_every_version(version: str) -> None:
    stepped = SteppedBroker()
    service, client = consumer(stepped, "work", "auto"), stepped.connect(version)
    subscribe(client, "/temp-queue/a:1:b", id="0")
    subscribe(client, "/queue/work", id="1")
    service.frame("UNSUBSCRIBE", {"id": "0"})
    client.send("work", b"\n\nreply-to:/remote-temp-queue/in-the-body\n", {"reply-to": "/temp-queue/a:1:b"})
    stepped.run()
    (message,) = client.take("MESSAGE")
    assert message.headers["reply-to"] == "/temp-queue/a:1:b"
    assert message.body == b"\n\nreply-to:/remote-temp-queue/in-the-body\n"
    send_to(client, "/temp-queue/a:1:b", b"!")
    stepped.run()
    (reply,) = client.take("MESSAGE")
    assert reply.headers["destination"] == "/temp-queue/a:1:b"


def test_the_body_is_left_alone() -> None:
    stepped = SteppedBroker()
    service, client = consumer(stepped, "work", "auto"), subscribed(stepped)
    request(stepped, client)
    remote = answer(stepped, service, b"!").headers["reply-to"]
    text = f"\nreply-to:{remote}\n".encode()
    send_to(service, remote, text)
    stepped.run()
    assert client.messages() == [b"!", text]


def test_a_reply_to_that_names_nothing_temporary_stays_as_it_is() -> None:
    stepped = SteppedBroker()
    service = consumer(stepped, "work", "auto")
    for reply_to in ("/queue/answers", "anything", "/remote-temp-queue/elsewhere"):
        stepped.connect().send("work", b"", {"reply-to": reply_to})
    stepped.run()
    assert [frame.headers["reply-to"] for frame in service.take("MESSAGE")] == [
        "/queue/answers", "anything", "/remote-temp-queue/elsewhere",
    ]  # fmt: skip


def test_the_broker_s_name_survives_the_queue_it_waits_in_and_is_never_used_again() -> None:
    stepped = SteppedBroker()
    client = subscribed(stepped)
    request(stepped, client)
    again = stepped.reopen()
    clients = [subscribed(again) for _ in range(3)]
    service = consumer(again, "work", "auto")
    answer(again, service, b"!")
    assert [other.messages() for other in clients] == [[], [], []]
    assert again.broker.routing.temporaries.dropped == 1


# Whose it is.


@KINDS
def test_only_its_own_connection_may_consume_it(kind: str) -> None:
    stepped = SteppedBroker()
    service, client = consumer(stepped, "work", "auto"), subscribed(stepped, kind)
    request(stepped, client, kind=kind)
    (message,) = service.take("MESSAGE")
    subscribe(service, message.headers["reply-to"], id="mine")
    assert service.errors() == ["invalid-destination"]
    assert client.errors() == []


def test_its_own_connection_may_use_the_broker_s_name() -> None:
    stepped = SteppedBroker()
    service, client = consumer(stepped, "work", "auto"), stepped.connect()
    request(stepped, client)
    (message,) = service.take("MESSAGE")
    subscribe(client, message.headers["reply-to"])
    send_to(service, message.headers["reply-to"], b"!")
    stepped.run()
    assert client.messages() == [b"!"]


def test_the_same_name_means_another_queue_on_another_connection() -> None:
    stepped = SteppedBroker()
    first, second = subscribed(stepped), subscribed(stepped)
    send_to(first, "/temp-queue/replies", b"to the first")
    stepped.run()
    assert (first.messages(), second.messages()) == ([b"to the first"], [])


def test_consumers_of_its_connection_share_it() -> None:
    stepped = SteppedBroker()
    client = subscribed(stepped)
    subscribe(client, "/temp-queue/replies", id="1")
    for number in range(4):
        send_to(client, "/temp-queue/replies", b"%d" % number)
    stepped.run()
    frames = client.take("MESSAGE")
    assert sorted(bodies(frames)) == numbers(0, 1, 2, 3)
    assert {frame.headers["subscription"] for frame in frames} == {"0", "1"}


def test_wildcards_do_not_see_it() -> None:
    stepped = SteppedBroker()
    everything = consumer(stepped, ">", "auto")
    client = subscribed(stepped)
    send_to(client, "/temp-queue/replies", b"private")
    stepped.run()
    assert (everything.messages(), client.messages()) == ([], [b"private"])
    assert stepped.broker.queues == {}


# What is refused.


@pytest.mark.parametrize("destination", ["/temp-queue/", "/temp-topic/"])
def test_a_temporary_destination_needs_a_name(destination: str) -> None:
    client = SteppedBroker().connect()
    send_to(client, destination, b"")
    assert client.errors() == ["invalid-destination"]


def test_a_connection_has_a_limited_number_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "MAX_TEMPORARIES", 2)
    stepped = SteppedBroker()
    client = stepped.connect()
    for name in ("a", "b", "a", "c"):
        send_to(client, f"/temp-queue/{name}", b"")
    assert client.errors() == ["limit-exceeded"]
    assert temporaries(stepped) == 0


def test_an_operator_s_name_for_it_means_nothing() -> None:
    stepped = SteppedBroker()
    with pytest.raises(InvalidDestination, match="is valid in its own connection only"):
        stepped.broker.target("/temp-queue/replies")
