"""Clients of OpenWire and of STOMP read each other's messages."""

from typing import Any

import pytest
from msgspec import json

from quire.management.queues import Management
from quire.protocols.openwire.commands import (
    ActiveMQBytesMessage,
    ActiveMQDestination,
    ActiveMQMapMessage,
    ActiveMQMessage,
    ActiveMQQueue,
    ActiveMQTempQueue,
    ActiveMQTextMessage,
    ActiveMQTopic,
    Message,
    MessageDispatch,
    read_text,
    write_text,
)
from quire.protocols.openwire.primitives import Tag, Typed, read_map, write_map
from quire.testing.stepped import Frame, SteppedClient
from tests.unit.broker.harness import consumer
from tests.unit.broker.subscribing import subscribe
from tests.unit.management.managed import browse, only, total
from tests.unit.server.openwire.rig import OpenWireClient, Q, Rig, id_of


def to_stomp(message: Message) -> Frame:
    """What a STOMP client is given of a message that an OpenWire client sends."""
    rig = Rig()
    client, receiver = rig.client(), consumer(rig, ack="auto")
    client.done(client.message(kind=type(message), **fields_of(message)))
    (frame,) = receiver.take("MESSAGE")
    return frame


def to_openwire(body: bytes, headers: dict[str, str] | None = None, destination: str = "/queue/q") -> MessageDispatch:
    """What an OpenWire client is given of a message that a STOMP client sends."""
    rig = Rig()
    client = rig.client()
    client.consumer()
    rig.connect().send("", body, {"destination": destination, **(headers or {})})
    rig.run()
    (dispatch,) = client.take(MessageDispatch)
    return dispatch


def message_in(dispatch: MessageDispatch) -> Message:
    assert dispatch.message is not None
    return dispatch.message


def fields_of(message: Message) -> dict[str, Any]:
    names = ("content", "type", "correlation_id", "reply_to", "persistent", "priority", "marshalled_properties")
    return {name: getattr(message, name) for name in names}


def text(content: str, **fields: Any) -> Message:
    return ActiveMQTextMessage(content=write_text(content), **fields)


# Bodies.


@pytest.mark.parametrize("content", ["", "plain", "\u20ac and \U0001f600", "a\nb\r\n:\\"])
def test_text_is_text_for_both(content: str) -> None:
    frame = to_stomp(text(content))
    assert frame.body == content.encode()
    assert "content-length" not in frame.headers
    rig = Rig()
    sender, client = rig.connect(), rig.client()
    client.consumer()
    sender.feed(b"SEND\ndestination:/queue/q\n\n" + content.encode() + b"\0")
    rig.run()
    message = message_in(client.take(MessageDispatch)[0])
    assert isinstance(message, ActiveMQTextMessage)
    assert read_text(message.content) == content


def test_text_with_a_nul_arrives_whole() -> None:
    frame = to_stomp(text("a\0b"))
    assert (frame.body, frame.headers["content-length"], frame.headers["amq-msg-type"]) == (b"a\0b", "3", "text")


def test_half_of_a_surrogate_pair_comes_back_and_stomp_reads_a_mark_in_its_place() -> None:
    half, mark = "a\ud83d", "a\ufffd"
    fields: dict[str, Any] = {"type": half, "correlation_id": half, "group_id": half}
    fields["marshalled_properties"] = write_map({"p": half})
    rig = Rig()
    client, receiver = rig.client(), rig.connect()
    subscribe(receiver, "/topic/t")
    client.consumer(ActiveMQTopic("t"))
    client.consumer(ActiveMQTopic("stream://s"))
    for destination in (ActiveMQTopic("t"), ActiveMQTopic("stream://s"), ActiveMQQueue("q")):
        client.done(client.message(half, destination, **fields))
    rig.run()
    (frame,) = receiver.take("MESSAGE")
    assert frame.body == mark.encode()
    assert {frame.headers[name] for name in ("type", "correlation-id", "JMSXGroupID", "p")} == {mark}
    arrived = [message_in(dispatch) for dispatch in client.take(MessageDispatch)]
    assert len(arrived) == 2
    for message in arrived:
        assert message.content == write_text(half)
        assert (message.type, message.correlation_id, message.group_id) == (half, half, half)
        assert message.marshalled_properties is not None
        assert read_map(message.marshalled_properties, typed=True)["p"] == Typed(Tag.STRING, half)
    page = browse(rig.broker, "q", wanted=f"JMSType = '{mark}' AND p = '{mark}'")
    assert page.messages[0].headers["p"] == page.messages[0].body == mark
    assert json.encode(page)


def test_bytes_are_what_has_a_length() -> None:
    frame = to_stomp(ActiveMQBytesMessage(content=b"\0\xff\n"))
    assert (frame.body, frame.headers["content-length"]) == (b"\0\xff\n", "3")
    assert "amq-msg-type" not in frame.headers
    message = message_in(to_openwire(b"\0\xff\n"))
    assert isinstance(message, ActiveMQBytesMessage)
    assert (message.content, message.compressed) == (b"\0\xff\n", False)


def test_other_bodies_stay_what_they_are_and_say_their_type() -> None:
    body = write_map({"a": 1})
    frame = to_stomp(ActiveMQMapMessage(content=body))
    assert (frame.body, frame.headers["amq-msg-type"]) == (body, "map")
    message = message_in(to_openwire(body, {"amq-msg-type": "map"}))
    assert isinstance(message, ActiveMQMapMessage)
    assert message.content == body
    assert to_stomp(ActiveMQMessage()).headers["amq-msg-type"] == "message"


def test_a_length_with_the_type_text_is_text() -> None:
    message = message_in(to_openwire(b"a\0b", {"amq-msg-type": "text"}))
    assert isinstance(message, ActiveMQTextMessage)
    assert read_text(message.content) == "a\0b"


def test_text_that_is_not_utf_8_arrives_with_marks_in_its_place() -> None:
    rig = Rig()
    sender, client = rig.connect(), rig.client()
    client.consumer()
    sender.feed(b"SEND\ndestination:/queue/q\n\na\xffb\0")
    rig.run()
    assert client.messages() == ["a\ufffdb"]


# Headers.


def test_the_headers_of_jms_have_their_names_in_stomp() -> None:
    message = text("x", type="order", correlation_id="c:1\n", reply_to=ActiveMQTopic("answers"), priority=7)
    message.persistent = True
    frame = to_stomp(message)
    named = {name: frame.headers[name] for name in ("type", "correlation-id", "reply-to", "priority", "persistent")}
    assert named == {
        "type": "order", "correlation-id": "c:1\n", "reply-to": "/topic/answers", "priority": "7", "persistent": "true",
    }  # fmt: skip
    assert frame.headers["destination"] == "/queue/q"
    assert frame.headers["timestamp"] == "1"
    assert frame.headers["message-id"].endswith(":1:1:1")


def test_the_headers_of_stomp_are_those_of_jms() -> None:
    headers = {
        "type": "order", "correlation-id": "c:1", "reply-to": "/queue/answers", "priority": "7", "persistent": "true",
        "expires": "99999999999999", "JMSXGroupID": "g", "JMSXGroupSeq": "3", "JMSXUserID": "u",
    }  # fmt: skip
    dispatch = to_openwire(b"x", headers)
    message = message_in(dispatch)
    assert (message.type, message.correlation_id, message.reply_to) == ("order", "c:1", ActiveMQQueue("answers"))
    assert (message.priority, message.persistent, message.expiration) == (7, True, 99999999999999)
    assert (message.group_id, message.group_sequence, message.user_id) == ("g", 3, "u")
    assert message.marshalled_properties is None
    assert message.timestamp > 0
    assert (dispatch.destination, message.destination) == (Q, Q)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/queue/a,/queue/b", ActiveMQQueue("a,b")),
        ("/topic/a,/queue/b", ActiveMQTopic("a,queue://b")),
        ("/nowhere/a", None),
        ("", None),
    ],
)
def test_a_reply_may_go_to_several_or_nowhere(text: str, shown: ActiveMQDestination | None) -> None:
    assert message_in(to_openwire(b"x", {"reply-to": text})).reply_to == shown


def test_a_message_that_is_not_persistent_says_so() -> None:
    assert message_in(to_openwire(b"x", {"persistent": "false"})).persistent is False
    assert "persistent" not in to_stomp(text("x")).headers


def test_the_id_of_a_stomp_message_is_the_same_for_all_who_get_it() -> None:
    rig = Rig()
    client, receiver = rig.client(), rig.connect()
    client.consumer(ActiveMQTopic("t"))
    subscribe(receiver, "/topic/t")
    rig.connect().send("", b"x", {"destination": "/topic/t"})
    rig.run()
    (frame,) = receiver.take("MESSAGE")
    assert str(id_of(client.take(MessageDispatch)[0])) == frame.headers["message-id"]


def test_properties_keep_their_types_among_openwire_clients_and_are_text_for_stomp() -> None:
    properties = {
        "text": Typed(Tag.STRING, "a:b"), "int": Typed(Tag.INT, -1), "long": Typed(Tag.LONG, 2**40),
        "yes": Typed(Tag.BOOLEAN, True), "double": Typed(Tag.DOUBLE, 0.1), "byte": Typed(Tag.BYTE, 7),
        "short": Typed(Tag.SHORT, 9), "float": Typed(Tag.FLOAT, 0.5), "char": Typed(Tag.CHAR, "x"),
    }  # fmt: skip
    frame = to_stomp(text("x", marshalled_properties=write_map(properties)))
    shown = {name: frame.headers[name] for name in properties}
    assert shown == {
        "text": "a:b", "int": "-1", "long": "1099511627776", "yes": "true", "double": "0.1", "byte": "7", "short": "9",
        "float": "0.5", "char": "x",
    }  # fmt: skip


def test_headers_of_the_application_are_properties() -> None:
    message = message_in(to_openwire(b"x", {"color": "r\u00e9d", "count": "5"}))
    assert message.marshalled_properties is not None
    assert read_map(message.marshalled_properties) == {"color": "r\u00e9d", "count": "5"}


def test_a_selector_of_either_sees_the_properties_of_the_other() -> None:
    rig = Rig()
    client, receiver = rig.client(), rig.connect()
    client.consumer(selector="color = 'red'")
    subscribe(receiver, "/queue/q", selector="size > 5 AND big")
    rig.connect().send("q", b"1", {"color": "red"})
    properties = write_map({"size": 6, "big": True})
    client.done(client.message("2", marshalled_properties=properties))
    rig.run()
    assert len(client.take(MessageDispatch)) == 1
    assert receiver.messages() == [b"2"]


@pytest.mark.parametrize(("selector", "count"), [("size > 1 OR big", 0), ("size = '2' AND big = 'true'", 1)])
def test_a_text_of_openwire_is_a_text_for_the_selectors_of_all_who_ask(selector: str, count: int) -> None:
    rig = Rig()
    client, receiver = rig.client(client_id="durable"), rig.connect()
    subscribe(receiver, "/queue/a", selector=selector)
    subscribe(receiver, "/topic/t", "1", selector=selector)
    subscribe(receiver, "/stream/s", "2", "client-individual", group="g", selector=selector)
    rig.run()
    client.consumer(ActiveMQQueue("b"), selector=selector)
    client.consumer(ActiveMQTopic("t"), selector=selector)
    client.consumer(ActiveMQTopic("t"), selector=selector, subscription_name="s")
    client.consumer(ActiveMQTopic("stream://s"), selector=selector, subscription_name="h")
    properties = write_map({"size": "2", "big": "true"})
    for destination in (ActiveMQQueue("a,b,c"), ActiveMQTopic("t"), ActiveMQTopic("stream://s")):
        client.done(client.message("x", destination, marshalled_properties=properties))
    rig.run()
    assert receiver.messages() == 3 * count * [b"x"]
    assert client.messages() == 4 * count * ["x"]
    management = Management(rig.broker)
    assert len(browse(management.broker, "c", wanted=selector).messages) == count
    assert total(rig, management.purge("c", only(selector=selector))) == count


# Requests and replies.


def answered(client: OpenWireClient) -> ActiveMQTempQueue:
    """The temporary queue that the next message wants its reply in."""
    (dispatch,) = client.take(MessageDispatch)
    reply_to = message_in(dispatch).reply_to
    assert isinstance(reply_to, ActiveMQTempQueue)
    return reply_to


def test_a_request_of_stomp_is_answered_by_openwire() -> None:
    rig = Rig()
    client, requester = rig.client(), rig.connect()
    client.consumer()
    subscribe(requester, "/temp-queue/answers")
    requester.send("q", b"?", {"reply-to": "/temp-queue/answers"})
    rig.run()
    client.done(client.message("!", answered(client), persistent=False))
    assert requester.messages() == [b"!"]


def test_a_request_of_openwire_is_answered_by_stomp() -> None:
    rig = Rig()
    client = rig.client()
    service: SteppedClient = consumer(rig, ack="auto")
    temporary = client.temporary()
    client.consumer(temporary)
    client.done(client.message("?", reply_to=temporary, correlation_id="7"))
    (request,) = service.take("MESSAGE")
    service.send("", b"!", {"destination": request.headers["reply-to"], "correlation-id": "7"})
    rig.run()
    (dispatch,) = client.take(MessageDispatch)
    assert message_in(dispatch).content == b"!"
    assert message_in(dispatch).correlation_id == "7"
    assert dispatch.destination == temporary


# Dead letters, and what comes back.


def test_what_one_gives_back_the_other_is_told_was_delivered_before() -> None:
    rig = Rig()
    first = consumer(rig)
    client = rig.client()
    client.send("1")
    assert len(first.take("MESSAGE")) == 1
    first.vanish()
    client.consumer()
    (dispatch,) = client.take(MessageDispatch)
    assert dispatch.redelivery_counter == 1
    client.vanish()
    (frame,) = consumer(rig).take("MESSAGE")
    assert frame.headers["redelivered"] == "true"


# What a STOMP client writes into the headers that hold an OpenWire client's properties.


@pytest.mark.parametrize(
    "headers",
    [
        {"property-types": "a=int", "a": "no number"},
        {"property-types": "a=float", "a": "1e300"},
        {"property-types": "a=char", "a": "two"},
        {"property-types": "%ff=int,,=,a"},
        {"marshalled-properties": "x"},
        {"marshalled-properties": "AAAAAQ=="},
        {"JMSXGroupSeq": "99999999999"},
        {"reply-to": "nowhere/?"},
        {"amq-msg-type": "unknown"},
        {"amq-msg-type": "blob"},
        {"content-encoding": "gzip"},
    ],
)
def test_odd_headers_of_a_stomp_client_do_no_harm(headers: dict[str, str]) -> None:
    message_in(to_openwire(b"x", headers))
