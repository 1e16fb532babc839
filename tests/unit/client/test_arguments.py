"""Wrong arguments of public calls: they are refused where they are given, with what to give instead."""

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest

from quire.client import (
    AckMode,
    Blob,
    ClientDestination,
    JavaObject,
    Message,
    Queue,
    ReceivedMessage,
    RedeliveryPolicy,
    Session,
    Stream,
    TemporaryQueue,
    Topic,
    connect,
    sync,
)
from quire.errors import IllegalState, InvalidArgument, InvalidDestination, LimitExceeded, QuireError
from quire.protocols.openwire.commands import ActiveMQQueue, ActiveMQTopic, ConsumerInfo, ProducerInfo
from quire.protocols.openwire.commands import Message as WireMessage
from tests.unit.client.scripted_broker import ScriptedBroker, settled

ANY: Any = "no argument of that type"


def with_session(
    monkeypatch: pytest.MonkeyPatch, scenario: Callable[[ScriptedBroker, Session], Coroutine[Any, Any, None]]
) -> None:
    async def run() -> None:
        broker = ScriptedBroker(monkeypatch)
        async with broker.connection() as connection, connection.session() as session:
            await scenario(broker, session)

    asyncio.run(run())


def sent(broker: ScriptedBroker, kind: type[Any]) -> Any:
    """The last command of a kind."""
    return next(command for command in reversed(broker.links[-1].written) if isinstance(command, kind))


@pytest.mark.parametrize("mode", ["client", "CLIENT", True, None, 7, 2.0])
def test_a_mode_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, mode: Any) -> None:
    async def scenario() -> None:
        async with ScriptedBroker(monkeypatch).connection() as connection:
            with pytest.raises(InvalidArgument, match=r"AckMode\.CLIENT"):
                connection.session(mode)

    asyncio.run(scenario())


def test_a_number_of_jms_is_a_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        number: Any = 2
        async with ScriptedBroker(monkeypatch).connection() as connection:
            assert connection.session(number).ack is AckMode.CLIENT

    asyncio.run(scenario())


@pytest.mark.parametrize(("text", "wire"), [
    ("orders", ActiveMQQueue("orders")), ("queue://orders", ActiveMQQueue("orders")),
    ("topic://news", ActiveMQTopic("news")), ("stream://log", ActiveMQTopic("stream://log")),
])  # fmt: skip
def test_a_text_is_a_destination(monkeypatch: pytest.MonkeyPatch, text: str, wire: object) -> None:
    async def scenario(broker: ScriptedBroker, session: Session) -> None:
        session.producer(text)
        assert sent(broker, ProducerInfo).destination == wire
        await session.consumer(text)
        assert sent(broker, ConsumerInfo).destination == wire
        await session.producer().send("x", destination=text, reply_to=text)
        message = sent(broker, WireMessage)
        assert (message.destination, message.reply_to) == (wire, wire)
        await session.producer(text).send(Message("x", reply_to=text), destination=text)
        assert sent(broker, WireMessage).reply_to == wire

    with_session(monkeypatch, scenario)


@pytest.mark.parametrize("wrong", [5, ClientDestination("x"), Queue, ["a"], b"a", "http://a", "", "a\nb"])
def test_what_is_no_destination_is_refused_in_every_call(monkeypatch: pytest.MonkeyPatch, wrong: Any) -> None:
    async def scenario(broker: ScriptedBroker, session: Session) -> None:
        given: Any = wrong or 5
        calls: list[Callable[[], Any]] = [
            lambda: session.consumer(wrong), lambda: anext(session.browser(wrong)), lambda: session.request(wrong, "x"),
            lambda: session.delete_temporary(wrong),
            lambda: session.producer(Queue("q")).send("x", reply_to=given),
            lambda: session.producer().send("x", destination=given),
            lambda: session.producer(Queue("q")).send(Message("x", reply_to=given)),
            lambda: session.unsubscribe("g", wrong),
        ]  # fmt: skip
        with pytest.raises(InvalidDestination):
            session.producer(wrong)
        for call in calls:
            with pytest.raises(InvalidDestination):
                await call()

    with_session(monkeypatch, scenario)


@pytest.mark.parametrize("wrong", [5, None, b"a"])
@pytest.mark.parametrize("kind", [Queue, Topic, Stream, TemporaryQueue])
def test_a_name_that_is_no_text_is_refused(kind: type[ClientDestination], wrong: Any) -> None:
    with pytest.raises(InvalidDestination, match="text"):
        kind(wrong)


def test_a_name_may_have_its_own_prefix_and_no_other() -> None:
    assert Queue("queue://a?consumer.priority=1") == Queue("a")
    assert Stream("stream://a") == Stream("a")
    assert Queue("a,topic://b").name == "a,topic://b"
    with pytest.raises(InvalidDestination, match=r"Topic\('a'\)"):
        Queue("topic://a")


@pytest.mark.parametrize(("options", "argument"), [
    ({"url": None}, "url"), ({"url": b"tcp://a"}, "url"), ({"user": 5}, "user"), ({"password": b"x"}, "password"),
    ({"client_id": 5}, "client_id"), ({"policies": [RedeliveryPolicy()]}, "policies"),
    ({"policies": {Queue("a"): 3}}, "policies"), ({"policies": {5: RedeliveryPolicy()}}, "policies"),
    ({"on_error": "x"}, "on_error"), ({"tls": True}, "tls"),
])  # fmt: skip
@pytest.mark.parametrize("face", [connect, sync.connect])
def test_wrong_arguments_of_connect(face: Callable[..., Any], options: dict[str, Any], argument: str) -> None:
    with pytest.raises(QuireError, match=argument):
        face(**options)


def test_a_coroutine_function_is_not_told_of_errors() -> None:
    async def on_error(error: Exception) -> None:
        """It would never run."""

    with pytest.raises(InvalidArgument, match="plain function"):
        connect(on_error=on_error)


def test_policies_may_have_texts_for_destinations() -> None:
    policy = RedeliveryPolicy(maximum_redeliveries=1)
    found = connect(policies={"orders.>": policy, "topic://news": policy}, tls=ssl.create_default_context()).policies
    matches = [found.policy(to) is policy for to in (Queue("orders.a"), Topic("news"), Queue("news"))]
    assert matches == [True, True, False]


@pytest.mark.parametrize("options", [
    {"priority": "5"}, {"priority": 4.5}, {"priority": True}, {"priority": 10}, {"time_to_live": "60"},
    {"time_to_live": float("nan")}, {"time_to_live": float("inf")}, {"time_to_live": 1e18}, {"persistent": "false"},
    {"correlation_id": 5}, {"type": 5}, {"properties": ["a"]}, {"properties": {5: 1}}, {"properties": {"a": object()}},
])  # fmt: skip
def test_wrong_arguments_of_send_leave_nothing_behind(monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]) -> None:
    (name,) = options

    async def scenario() -> None:
        broker = ScriptedBroker(monkeypatch)
        async with broker.connection() as connection, connection.session() as session:
            producer = session.producer(Queue("q"))
            for send in (producer.send, producer.submit):
                with pytest.raises(InvalidArgument) as caught:
                    await send("x", **options)
                assert caught.value.data.get("argument") in (name, None)
            if name in ("priority", "time_to_live", "persistent"):
                with pytest.raises(InvalidArgument, match=name):
                    session.producer(Queue("q"), **options)
            assert connection.unanswered == 0

    asyncio.run(scenario())


@pytest.mark.parametrize("make", [
    lambda: JavaObject(ANY), lambda: Blob(5), lambda: Message("x", group_id=5),  # type: ignore[arg-type]
    lambda: Message("x", group_id="g", group_sequence=ANY), lambda: Message("x", group_sequence=2**31),
    lambda: Message("x", properties=[]), lambda: Message(5), lambda: Message("x", type=5),  # type: ignore[arg-type]
])  # fmt: skip
def test_wrong_parts_of_a_message_are_refused(monkeypatch: pytest.MonkeyPatch, make: Callable[[], Any]) -> None:
    async def scenario(broker: ScriptedBroker, session: Session) -> None:
        with pytest.raises(InvalidArgument):
            await session.producer(Queue("q")).send(make())

    with_session(monkeypatch, scenario)


def test_a_time_to_live_may_be_a_timedelta(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(broker: ScriptedBroker, session: Session) -> None:
        await session.producer(Queue("q")).send("x", time_to_live=timedelta(minutes=1))
        message = sent(broker, WireMessage)
        assert message.expiration - message.timestamp == 60_000

    with_session(monkeypatch, scenario)


def test_a_message_that_is_too_large_is_not_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        broker = ScriptedBroker(monkeypatch)
        async with broker.connection() as connection, connection.session(AckMode.SESSION_TRANSACTED) as session:
            producer = session.producer(Queue("q"))
            broker.largest = 1000
            for send in (producer.send, producer.submit):
                with pytest.raises(LimitExceeded):
                    await send(b"x" * 1001)
            assert connection.unanswered == 0
            await broker.lose_link(connection)
            assert not [command for command in broker.links[-1].written if isinstance(command, WireMessage)]

    asyncio.run(scenario())


@pytest.mark.parametrize("options", [{"window": "5"}, {"window": 0}, {"window": 2.5}, {"window": True}])
def test_wrong_arguments_of_producer(monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]) -> None:
    async def scenario(broker: ScriptedBroker, session: Session) -> None:
        with pytest.raises(InvalidArgument, match="window"):
            session.producer(Queue("q"), **options)

    with_session(monkeypatch, scenario)


@pytest.mark.parametrize("options", [
    {"selector": 5}, {"name": 5}, {"group": 5}, {"start": 5}, {"prefetch": "5"}, {"prefetch": 2.5}, {"prefetch": True},
    {"prefetch": -1}, {"exclusive": "x"}, {"no_local": 1}, {"listener": 5}, {"policy": 5},
])  # fmt: skip
@pytest.mark.parametrize("kind", [Topic, Stream])
def test_wrong_arguments_of_consumer(
    monkeypatch: pytest.MonkeyPatch, kind: type[Topic], options: dict[str, Any]
) -> None:
    (name,) = options

    async def scenario(broker: ScriptedBroker, session: Session) -> None:
        with pytest.raises(InvalidArgument) as caught:
            await session.consumer(kind("t"), **options)
        assert caught.value.data["argument"] == name

    with_session(monkeypatch, scenario)


def test_a_listener_may_be_a_plain_function(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(broker: ScriptedBroker, session: Session) -> None:
        seen = list[str]()

        def listener(message: ReceivedMessage) -> str:
            seen.append(message.id)
            return "done"

        consumer = await session.consumer(Queue("q"), listener=listener)
        broker.dispatch(consumer.info.consumer_id, 1)
        await settled()
        assert (seen, broker.acks()) == (["ID:p:1:1:1"], [("STANDARD", [1, 1], 1)])

    with_session(monkeypatch, scenario)


@pytest.mark.parametrize("timeout", ["5", float("nan"), b"1", [1], True])
def test_wrong_timeouts(monkeypatch: pytest.MonkeyPatch, timeout: Any) -> None:
    async def scenario(broker: ScriptedBroker, session: Session) -> None:
        consumer = await session.consumer(Queue("q"))
        with pytest.raises(InvalidArgument, match="timeout"):
            await consumer.receive(timeout)
        with pytest.raises(InvalidArgument, match="timeout"):
            await session.request(Queue("q"), "x", timeout=timeout)

    with_session(monkeypatch, scenario)


@pytest.mark.parametrize("timeout", [timedelta(seconds=1), 1, float("inf"), None])
def test_times_of_receive(monkeypatch: pytest.MonkeyPatch, timeout: Any) -> None:
    async def scenario(broker: ScriptedBroker, session: Session) -> None:
        consumer = await session.consumer(Queue("q"))
        receiving = asyncio.ensure_future(consumer.receive(timeout))
        await settled()
        broker.dispatch(consumer.info.consumer_id, 1)
        assert await receiving is not None
        assert await consumer.receive(timedelta(0)) is None
        assert await consumer.receive(-1) is None

    with_session(monkeypatch, scenario)


@pytest.mark.parametrize("name", [5, None, ""])
def test_a_subscription_without_a_name_is_refused(monkeypatch: pytest.MonkeyPatch, name: Any) -> None:
    async def scenario(broker: ScriptedBroker, session: Session) -> None:
        with pytest.raises(InvalidArgument, match="name"):
            await session.unsubscribe(name)

    with_session(monkeypatch, scenario)


@pytest.mark.parametrize("options", [
    {"maximum_redeliveries": None}, {"maximum_redeliveries": "3"}, {"maximum_redeliveries": -2},
    {"redelivery_delay": -1}, {"initial_redelivery_delay": "x"}, {"initial_redelivery_delay": 0.5},
    {"maximum_redelivery_delay": -2}, {"back_off_multiplier": "x"}, {"collision_avoidance_factor": 2},
    {"use_exponential_back_off": "true"},
])  # fmt: skip
def test_wrong_parts_of_a_redelivery_policy(options: dict[str, Any]) -> None:
    (name,) = options
    with pytest.raises(InvalidArgument, match=name):
        RedeliveryPolicy(**options)


def test_what_is_not_open_says_how_to_open_it() -> None:
    with pytest.raises(IllegalState, match="async with connect"):
        connect("tcp://127.0.0.1:1").session()
    with pytest.raises(IllegalState, match=r"`with sync\.connect\(\.\.\.\)`"):
        sync.connect("tcp://127.0.0.1:1").session()
