"""Connections: who a client is, what it opens, and how it goes."""

import pytest

from quire.errors import BrokerStopping
from quire.protocols.openwire.commands import (
    BrokerInfo,
    ConnectionErrorCommand,
    ConnectionId,
    ConnectionInfo,
    ConsumerId,
    ConsumerInfo,
    ControlCommand,
    ExceptionResponse,
    FlushCommand,
    MessageDispatch,
    ProducerId,
    ProducerInfo,
    RemoveInfo,
    Response,
    SessionId,
    SessionInfo,
    ShutdownInfo,
)
from quire.server.openwire.openwire_door import GOODBYE_DELAY
from tests.unit.server.openwire.rig import OpenWireClient, Q, Rig, T, thrown

# Who it is.


def test_a_connection_is_announced_once() -> None:
    client = Rig().client()
    assert client.session.client_id == client.id
    assert client.refused(client.connection_info()) == ("java.io.IOException", "protocol-violation")
    assert not client.connection.closed


def test_a_connection_needs_an_id() -> None:
    client = Rig().negotiated()
    assert client.refused(ConnectionInfo(client_id="c"))[1] == "protocol-violation"


def refused(rig: Rig, client_id: str, version: str = "5.19.9") -> tuple[OpenWireClient, ExceptionResponse]:
    """A client whose client id another one has, and its answer; from another process that takes a second."""
    client = rig.negotiated(version=version)
    client.request(client.connection_info(client_id))
    rig.run()
    rig.advance(1)
    rig.run()
    (answer,) = client.take(ExceptionResponse)
    return client, answer


@pytest.mark.parametrize(("version", "package"), [("5.19.9", "javax"), ("6.3.1", "jakarta"), ("", "javax")])
def test_a_duplicate_client_id_is_refused_in_the_classes_of_the_client(version: str, package: str) -> None:
    rig = Rig()
    first = rig.client(client_id="same")
    _, response = refused(rig, "same", version=version)
    assert response.exception is not None
    assert response.exception.class_name == f"{package}.jms.InvalidClientIDException"
    assert not first.connection.closed


@pytest.mark.parametrize("client_id", [None, ""])
def test_a_connection_without_a_client_id_is_refused(client_id: str | None) -> None:
    client = Rig().negotiated()
    info = ConnectionInfo(connection_id=ConnectionId(client.id), client_id=client_id)
    assert client.refused(info)[0] == "InvalidClientIDException"


def test_a_refused_client_has_time_to_read_why() -> None:
    rig = Rig()
    rig.client(client_id="same")
    second, _ = refused(rig, "same")
    rig.advance(GOODBYE_DELAY - 1.1)
    assert not second.connection.closed
    rig.advance(1.1)
    assert second.connection.closed


def test_a_client_id_has_a_limited_length() -> None:
    rig = Rig()
    rig.client(client_id="x" * 200)
    second = rig.negotiated()
    assert second.refused(second.connection_info("x" * 201))[0] == "InvalidClientIDException"


def test_a_refused_client_can_do_nothing_more() -> None:
    rig = Rig()
    rig.client(client_id="same").send("1")
    second, _ = refused(rig, "same")
    for command in (SessionInfo(session_id=second.session_id), second.consumer_info(), second.message("2")):
        assert second.refused(command)[1] == "protocol-violation"
    assert rig.depth() == 1
    assert not rig.queue("q").subscriptions


def test_messages_and_acknowledgements_may_not_come_before_the_connection() -> None:
    rig = Rig()
    client = rig.negotiated()
    assert client.refused(client.message("1"))[1] == "protocol-violation"
    assert rig.depth() == 0


def test_a_refused_client_may_come_again_under_the_same_connection_id() -> None:
    rig = Rig()
    first = rig.client(client_id="same")
    second = rig.negotiated("second")
    second.refused(second.connection_info("same"))
    first.vanish()
    again = rig.client("second", client_id="same")
    assert second.connection.closed
    assert again.is_open()
    rig.advance(GOODBYE_DELAY)
    rig.run()
    assert rig.by_id == {again.id: again.session}


def test_a_client_id_is_free_again_when_its_connection_is_gone() -> None:
    rig = Rig()
    rig.client(client_id="same").vanish()
    rig.client(client_id="same")


@pytest.mark.parametrize("held", [False, True])
def test_a_client_waits_for_its_client_id_while_its_lost_connection_is_read_to_its_end(*, held: bool) -> None:
    rig = Rig()
    lost = rig.client(client_id="c")
    lost.connection.has_ended = True
    client = rig.negotiated()
    client.request(client.connection_info("c"))
    lost.tell(lost.message("before"))
    rig.run()
    assert (client.take(Response), rig.depth()) == ([], 1)
    if not held:
        lost.vanish()
    for _ in range(10):
        rig.advance(0.2 if held else 0.01)
        rig.run()
    assert [type(answer) for answer in client.take(Response)] == [Response]
    assert lost.connection.closed
    third = rig.negotiated()
    assert third.refused(third.connection_info("c"))[0] == "InvalidClientIDException"


def test_the_same_connection_on_a_new_socket_takes_the_place_of_the_old_one() -> None:
    rig = Rig()
    old = rig.client("same")
    old.consumer()
    old.send("1")
    assert old.messages() == ["1"]
    new = rig.client("same", failover_reconnect=True)
    assert old.connection.closed
    assert not new.connection.closed
    new.consumer()
    rig.run()
    dispatches = new.take(MessageDispatch)
    assert [dispatch.redelivery_counter for dispatch in dispatches] == [1]
    assert rig.by_id == {new.id: new.session}


def test_the_end_of_the_old_socket_leaves_the_new_one_alone() -> None:
    rig = Rig()
    old = rig.client("same")
    new = rig.client("same")
    old.vanish()
    assert rig.by_id == {new.id: new.session}
    third = rig.negotiated()
    assert third.refused(third.connection_info(new.id))[0] == "InvalidClientIDException"


# What it opens.


def test_sessions_producers_and_consumers_may_be_announced_again() -> None:
    rig = Rig()
    client = rig.client()
    consumer, producer = client.consumer(), client.producer(Q)
    client.done(SessionInfo(session_id=client.session_id))
    client.done(client.consumer_info(consumer_id=consumer))
    client.done(ProducerInfo(producer_id=producer, destination=Q))
    assert len(rig.queue("q").subscriptions) == 1


@pytest.mark.parametrize("command", [SessionInfo(), ProducerInfo(), ConsumerInfo(destination=Q)])
def test_what_is_opened_needs_an_id(command: SessionInfo | ProducerInfo | ConsumerInfo) -> None:
    assert Rig().client().refused(command)[1] == "protocol-violation"


def test_a_consumer_needs_no_session_that_was_announced() -> None:
    client = Rig().client()
    client.consumer(consumer_id=ConsumerId(client.id, -1, 1))


def test_a_connection_has_a_limited_number_of_sessions_producers_and_consumers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quire.server.openwire.openwire_door.MAX_OBJECTS", 2)
    monkeypatch.setattr("quire.server.openwire.openwire_consumers.MAX_CONSUMERS", 2)
    client = Rig().client()
    client.done(SessionInfo(session_id=SessionId(client.id, 2)))
    limit = ("ResourceAllocationException", "limit-exceeded")
    assert client.refused(SessionInfo(session_id=SessionId(client.id, 3))) == limit
    for _ in range(2):
        client.producer()
        client.consumer()
    assert client.refused(ProducerInfo(producer_id=ProducerId(client.id, 1, 3))) == limit
    assert client.refused(client.consumer_info()) == limit


def test_the_selectors_of_a_connection_have_a_limited_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quire.sessions.consumers.MAX_SELECTORS", 10)
    client = Rig().client()
    first = client.consumer(selector="a = 1")
    client.consumer(selector="b = 1")
    assert client.refused(client.consumer_info(selector="c = 1"))[1] == "limit-exceeded"
    client.remove(first)
    client.consumer(selector="c = 1")


def test_the_destination_of_a_producer_is_there_before_its_first_message() -> None:
    rig = Rig()
    client = rig.client()
    client.producer(Q)
    client.producer(T)
    assert list(rig.broker.destinations.queues) == ["q"]
    assert list(rig.broker.destinations.topics) == ["t"]


# Responses.


def test_only_who_asks_for_a_response_gets_one() -> None:
    rig = Rig()
    client = rig.client()
    client.tell(client.message("1"), client.consumer_info(), ProducerInfo(producer_id=ProducerId(client.id, 1, 9)))
    rig.run()
    client.acks(client.take(MessageDispatch))
    assert client.received() == []


def test_a_send_is_answered_when_it_is_durable_and_not_before() -> None:
    rig = Rig()
    client = rig.client()
    client.producer(Q)
    client.request(client.message("1"))
    rig.turn()  # its commit is under way
    number = client.request(client.message("2"))
    rig.turn()
    assert client.take(Response) == []
    rig.commit()
    rig.run_turns()
    (first,) = client.take(Response)
    assert first.correlation_id == number - 1
    rig.run()
    assert [answer.correlation_id for answer in client.take(Response)] == [number]


def test_what_is_opened_is_answered_at_once() -> None:
    rig = Rig()
    client, other = rig.client(), rig.client()
    other.producer(Q)
    other.request(other.message("1"))
    rig.turn()
    for command in (client.consumer_info(), ProducerInfo(producer_id=ProducerId(client.id, 1, 1))):
        number = client.request(command)
        rig.turn()
        assert [answer.correlation_id for answer in client.take(Response)] == [number]
    assert rig.writer.batch is not None  # all the time


def test_a_command_that_fails_without_a_response_is_a_connection_error_and_the_connection_stays() -> None:
    rig = Rig()
    client = rig.client()
    client.tell(client.consumer_info(selector="color = "))
    rig.run()
    (error,) = client.take(ConnectionErrorCommand)
    assert thrown(error) == ("InvalidSelectorException", "invalid-selector")
    assert error.connection_id == ConnectionId(client.id)
    assert not client.connection.closed
    client.send("1")


def test_a_command_that_the_broker_does_not_take_is_an_error_of_its_own() -> None:
    client = Rig().client()
    assert client.refused(ControlCommand(command="shutdown"))[1] == "protocol-violation"
    assert client.refused(BrokerInfo(broker_name="other"))[1] == "protocol-violation"
    client.done(FlushCommand())


# How it goes.


def test_a_client_that_says_goodbye_is_answered_and_then_closed() -> None:
    rig = Rig()
    client = rig.client()
    client.consumer()
    client.send("1")
    client.done(RemoveInfo(object_id=ConnectionId(client.id)))
    assert client.is_open()
    assert not rig.queue("q").subscriptions
    client.tell(ShutdownInfo())
    rig.run()
    assert client.connection.closed
    assert client.errors() == []
    assert rig.by_id == {}


@pytest.mark.parametrize("waits", [True, False])
def test_a_client_that_has_taken_its_connection_back_may_introduce_itself_anew(*, waits: bool) -> None:
    rig = Rig()
    client = rig.client(client_id="c")
    client.consumer(T, subscription_name="s")
    client.send("1", destination=T)
    temporary = client.temporary()
    removal, info = RemoveInfo(object_id=ConnectionId(client.id)), client.connection_info("c")
    if waits:
        client.done(removal)
        assert rig.by_id == {}
        rig.client(client_id="c").vanish()
        client.done(info)
    else:
        removal.response_required = info.response_required = True
        client.tell(removal, info)
        rig.run()
        assert [type(answer) for answer in client.take(Response)] == [Response, Response]
    assert list(rig.by_id) == [client.id]
    assert client.refused(client.consumer_info(temporary)) == ("InvalidDestinationException", "invalid-destination")
    client.tell(SessionInfo(session_id=client.session_id))
    client.received().clear()
    client.consumer(T, subscription_name="s")
    assert client.messages() == ["1"]
    client.send("2", destination=T)
    assert (client.messages(), client.errors()) == (["2"], [])


def test_a_client_that_has_taken_its_connection_back_can_do_nothing_before_it_introduces_itself() -> None:
    rig = Rig()
    client = rig.client()
    client.done(RemoveInfo(object_id=ConnectionId("another")))
    client.send("1")
    client.done(RemoveInfo(object_id=ConnectionId(client.id)))
    for command in (SessionInfo(session_id=client.session_id), client.consumer_info(), client.message("2")):
        assert client.refused(command)[1] == "protocol-violation"
    assert rig.depth() == 1


def test_what_was_sent_before_the_goodbye_is_durable_and_answered() -> None:
    rig = Rig()
    client = rig.client()
    message = client.message("1")
    message.response_required = True
    client.tell(message, ShutdownInfo())
    rig.turn()
    assert client.is_open()
    rig.run()
    assert client.connection.closed
    assert len(client.take(Response)) == 1
    assert rig.depth() == 1


def test_what_a_lost_connection_had_goes_to_others() -> None:
    rig = Rig()
    lost, other = rig.client(), rig.client()
    lost.consumer()
    lost.send("1", "2")
    other.consumer()
    lost.vanish()
    rig.run()
    dispatches = other.take(MessageDispatch)
    assert [dispatch.redelivery_counter for dispatch in dispatches] == [1, 1]
    assert rig.depth() == 2


def test_a_broker_that_stops_tells_its_clients_and_closes() -> None:
    rig = Rig()
    client = rig.client()
    client.consumer()
    client.send("1")
    client.take(MessageDispatch)
    rig.stop(BrokerStopping("the broker stops"))
    assert client.errors() == ["broker-stopping"]
    assert client.connection.closed
    again = rig.reopen()
    consumer = again.client()
    consumer.consumer()
    again.run()
    assert len(consumer.take(MessageDispatch)) == 1
