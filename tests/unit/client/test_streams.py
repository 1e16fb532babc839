"""Streams in the client: how they are named, asked for and refused."""

import asyncio
from random import Random
from typing import Any

import pytest

from quire.client import AckMode, ClientDestination, Queue, ReceivedMessage, Stream, Topic
from quire.client.channel import Channel, LocalTransaction
from quire.client.connection import ConsumerRequest
from quire.client.destinations import from_wire, to_wire
from quire.client.message import Delivery
from quire.client.message_audit import ConnectionAudit
from quire.client.options import ConnectionOptions, RedeliveryPolicies, RedeliveryPolicy, read_url
from quire.client.session_core import SessionCore
from quire.clock import SystemClock
from quire.errors import InvalidArgument, InvalidDestination, InvalidSelector, QuireError
from quire.protocols.openwire.commands import (
    OFFSET,
    PARTITION,
    ActiveMQQueue,
    ActiveMQTextMessage,
    ActiveMQTopic,
    ConnectionId,
    ConsumerInfo,
    MessageDispatch,
    SessionId,
)
from quire.protocols.openwire.primitives import Tag, Typed, write_map

ORDERS = Stream("orders")


class Owner:
    """Is told nothing."""

    def dispatched(self, command: object) -> None:
        raise AssertionError(command)

    def interrupted(self) -> None:
        raise AssertionError

    resumed = interrupted

    def failed(self, error: QuireError) -> None:
        raise AssertionError(error)


def core(provider: str = "Quire", **options: Any) -> SessionCore:
    """A session on a connection to a broker of that kind."""

    async def made() -> SessionCore:
        channel = Channel(read_url("tcp://a:1"), Owner(), SystemClock(), Random(1), None)
        channel.provider = provider
        transaction = LocalTransaction(channel, ConnectionId("ID:c"), iter(()))
        given, audit = ConnectionOptions(**options), ConnectionAudit(1, 1)
        return SessionCore(SessionId("ID:c", 1), AckMode.AUTO, channel, audit, given, SystemClock(), transaction)

    return asyncio.run(made())


def info(destination: ClientDestination, **arguments: Any) -> ConsumerInfo:
    """What the broker is told of a consumer."""
    request = ConsumerRequest(destination, **arguments)
    request.check()
    return request.info(core(), 7, "mine", optimize=False)


# Names.


@pytest.mark.parametrize("name", ["", "a,b", "a.*", "a.>", "*", "a\nb", "a?x"])
def test_a_stream_is_one_with_a_name(name: str) -> None:
    with pytest.raises(InvalidDestination):
        Stream(name)


def test_a_stream_is_written_with_its_kind_and_may_have_options() -> None:
    assert str(ORDERS) == "stream://orders"
    assert Stream("orders?consumer.prefetchSize=1") == ORDERS
    assert Stream("orders?consumer.prefetchSize=1").options == {"consumer.prefetchSize": "1"}


@pytest.mark.parametrize(
    ("said", "written"),
    [
        ({}, "stream://orders"),
        ({"start": ""}, "stream://orders"),
        ({"start": "offset=5"}, "stream://orders?start=offset=5"),
        (
            {"start": "timestamp=2026-01-31T12:00:00+01:00"},
            "stream://orders?start=timestamp=2026-01-31T12:00:00%2B01:00",
        ),
        ({"group": "a&b/ü"}, "stream://orders?group=a%26b%2F%C3%BC"),
    ],
)
def test_on_the_wire_a_stream_is_a_topic(said: dict[str, str], written: str) -> None:
    assert to_wire(ORDERS, **said) == ActiveMQTopic(written)
    assert from_wire(ActiveMQTopic(written)) == ORDERS


def test_a_queue_with_the_name_of_a_stream_is_that_stream() -> None:
    assert from_wire(ActiveMQQueue("stream://orders")) == ORDERS


def test_a_message_tells_its_place_and_one_of_a_queue_has_none() -> None:
    def received(properties: bytes | None) -> ReceivedMessage:
        message = ActiveMQTextMessage(marshalled_properties=properties)
        return ReceivedMessage(Delivery(MessageDispatch(message=message), message))

    placed = received(write_map({PARTITION: Typed(Tag.INT, 3), OFFSET: Typed(Tag.LONG, 2**40)}))
    assert (placed.partition, placed.offset) == (3, 2**40)
    plain = received(None)
    assert (plain.partition, plain.offset) == (None, None)


def test_a_redelivery_policy_may_be_for_streams() -> None:
    own = RedeliveryPolicy(maximum_redeliveries=1)
    policies = RedeliveryPolicies(RedeliveryPolicy(), {Stream("orders"): own})
    assert policies.policy(ORDERS) is own


# Consumers.


def test_a_member_of_a_group_is_a_durable_subscription() -> None:
    made = info(ORDERS, group="billing", start="earliest", selector="x > 1")
    assert made.destination == ActiveMQTopic("stream://orders?start=earliest")
    assert (made.subscription_name, made.client_id, made.selector) == ("billing", "mine", "x > 1")
    assert (made.prefetch_size, made.browser) == (100, False)


def test_a_reader_has_no_name() -> None:
    made = info(ORDERS, prefetch=5)
    assert (made.subscription_name, made.prefetch_size) == (None, 5)
    assert info(Stream("orders?consumer.prefetchSize=3")).prefetch_size == 3
    assert info(ORDERS, browser=True).prefetch_size == 500


def test_a_durable_subscription_of_a_topic_is_as_before() -> None:
    made = info(Topic("news"), name="mine", no_local=True, exclusive=True)
    assert (made.destination, made.subscription_name) == (ActiveMQTopic("news"), "mine")
    assert (made.no_local, made.exclusive, made.prefetch_size) == (True, True, 100)


@pytest.mark.parametrize(
    ("destination", "arguments", "error"),
    [
        (ORDERS, {"name": "billing"}, InvalidArgument),
        (Queue("q"), {"group": "g"}, InvalidArgument),
        (Topic("t"), {"start": "earliest"}, InvalidArgument),
        (Queue("q"), {"name": "n"}, InvalidDestination),
        (ORDERS, {"selector": "x >"}, InvalidSelector),
        (ORDERS, {"prefetch": -1}, InvalidArgument),
        (Stream("orders?consumer.unknown=1"), {}, InvalidArgument),
    ],
)
def test_arguments_that_do_not_fit_are_refused(
    destination: ClientDestination, arguments: dict[str, Any], error: type[QuireError]
) -> None:
    with pytest.raises(error):
        info(destination, **arguments)


# Other brokers.


@pytest.mark.parametrize("provider", ["ActiveMQ", ""])
def test_a_broker_without_streams_is_not_asked_for_one(provider: str) -> None:
    session = core(provider)
    with pytest.raises(InvalidDestination, match=f"is a stream of Quire, and the broker is {provider or 'unknown'}"):
        session.check_takes(ORDERS)
    session.check_takes(Topic("orders"))
    core().check_takes(ORDERS)
