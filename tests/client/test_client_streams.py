"""Streams and consumer groups with the client, against Quire: no other broker has them."""

import asyncio
import itertools
import os
from collections.abc import Callable, Coroutine, Iterator
from functools import wraps
from typing import Any

import pytest

from quire.client import (
    AckMode,
    Connection,
    Consumer,
    Queue,
    ReceivedMessage,
    RedeliveryPolicy,
    Session,
    Stream,
    Topic,
    connect,
    sync,
)
from quire.errors import (
    DestinationInUse,
    GroupMismatch,
    InvalidArgument,
    InvalidDestination,
    UnknownConsumerGroup,
)
from quire.testing.embedded_broker import EmbeddedBroker
from tests.client.proxy import Proxy

pytestmark = pytest.mark.slow

_NUMBERS = itertools.count(1)
AT_ONCE = RedeliveryPolicy(maximum_redeliveries=0, initial_redelivery_delay=0)


def in_loop(scenario: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test that runs in an event loop."""

    @wraps(scenario)
    def test(*arguments: Any, **named: Any) -> None:
        asyncio.run(scenario(*arguments, **named))

    return test


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A broker whose groups try again at once."""
    settings: dict[str, object] = {
        "policy.retry_delays": "100ms", "policy.retry_maximum": 2, "policy.rebalance_initial_delay": "0s",
        "policy.rebalance_debounce": "50ms",
    }  # fmt: skip
    with EmbeddedBroker(settings) as broker:
        yield broker.url


@pytest.fixture
def stream() -> Stream:
    """A stream that no other test uses."""
    return Stream(f"test.{os.getpid()}.{next(_NUMBERS)}")


async def fill(connection: Connection, stream: Stream, *bodies: str, **options: Any) -> None:
    async with connection.session() as session, session.producer(stream) as producer:
        for body in bodies:
            await producer.submit(body, **options)


async def take(consumer: Consumer, count: int) -> list[ReceivedMessage]:
    found: list[ReceivedMessage] = []
    for _ in range(count):
        message = await consumer.receive(timeout=60)
        assert message is not None, f"only {bodies(found)} came"
        found.append(message)
    return found


async def rest(consumer: Consumer) -> list[str]:
    found: list[ReceivedMessage] = []
    while (message := await consumer.receive(timeout=0.3)) is not None:
        found.append(message)
    return bodies(found)


def bodies(messages: list[ReceivedMessage]) -> list[str]:
    return sorted([message.body for message in messages])


async def billing(session: Session, stream: Stream, **options: Any) -> Consumer:
    return await session.consumer(stream, group="billing", start="earliest", **options)


@in_loop
async def test_each_group_gets_each_message_once(url: str, stream: Stream) -> None:
    async with connect(url) as connection, connection.session() as session:
        await fill(connection, stream, "a", "b", "c", properties={"partition": 0})
        first = await take(await billing(session, stream), 3)
        assert [message.body for message in first] == ["a", "b", "c"]
        assert [(message.partition, message.offset) for message in first] == [(0, 1), (0, 2), (0, 3)]
        assert {message.destination for message in first} == {stream}
        assert await rest(await billing(session, stream)) == []
        other = await session.consumer(stream, group="shipping", start="offset=3")
        assert await rest(other) == ["c"]


@in_loop
async def test_two_connections_share_a_group(url: str, stream: Stream) -> None:
    async with connect(url) as one, connect(url) as other, one.session() as first, other.session() as second:
        consumers = [await billing(first, stream), await billing(second, stream)]
        await asyncio.sleep(0.5)
        await fill(one, stream, *map(str, range(20)))
        shares = [await rest(consumer) for consumer in consumers]
        assert [len(share) for share in shares] == [10, 10]
        assert sorted(shares[0] + shares[1]) == sorted(map(str, range(20)))


@in_loop
async def test_a_reader_reads_everything_and_begins_at_the_end_unless_it_says_otherwise(
    url: str, stream: Stream
) -> None:
    async with connect(url) as connection, connection.session() as session:
        await fill(connection, stream, "old")
        new, whole = await session.consumer(stream), await session.consumer(stream, start="earliest")
        retroactive = await session.consumer(Stream(f"{stream.name}?consumer.retroactive=true"))
        await fill(connection, stream, "new")
        assert [await rest(consumer) for consumer in (new, whole, retroactive)] == [["new"], *[["new", "old"]] * 2]


@pytest.mark.parametrize("mode", [AckMode.CLIENT, AckMode.INDIVIDUAL])
@in_loop
async def test_what_was_not_acknowledged_comes_again_to_the_group(url: str, stream: Stream, mode: AckMode) -> None:
    async with connect(url) as connection:
        await fill(connection, stream, "a", "b", "c", properties={"partition": 0})
        async with connection.session(mode) as session:
            one, two = await take(await billing(session, stream), 2)
            await one.acknowledge()
        async with connection.session(mode) as session:
            left = ["b", "c"] if mode is AckMode.INDIVIDUAL else ["c"]
            again = await take(await billing(session, stream), len(left))
            assert bodies(again) == left
            assert [message.id for message in again if message.redelivered] == [two.id][: len(left) - 1]


@in_loop
async def test_more_messages_than_the_prefetch_can_wait_for_their_acknowledgement(url: str, stream: Stream) -> None:
    async with connect(url) as connection, connection.session(AckMode.CLIENT) as session:
        await fill(connection, stream, *map(str, range(50)))
        consumer = await billing(session, stream, prefetch=4)
        messages = await take(consumer, 50)
        await messages[-1].acknowledge()
        await consumer.close()
        assert await rest(await billing(session, stream)) == []


@in_loop
async def test_a_transaction_is_all_or_nothing(url: str, stream: Stream) -> None:
    policy = RedeliveryPolicy(initial_redelivery_delay=0, redelivery_delay=0)
    bills = Stream(f"{stream.name}.bills")
    async with connect(url) as connection, connection.session(AckMode.SESSION_TRANSACTED) as session:
        await fill(connection, stream, "a", "b")
        consumer = await billing(session, stream, policy=policy)
        producer = session.producer(bills)
        await take(consumer, 2)
        await producer.send("no")
        await session.rollback()
        async with session.transaction():
            again = await take(consumer, 2)
            assert [message.delivery_count for message in again] == [2, 2]
            await producer.send("yes")
        await consumer.close()
        async with connection.session() as reading:
            assert await rest(await billing(reading, stream)) == []
            assert await rest(await billing(reading, bills)) == ["yes"]


@in_loop
async def test_a_message_that_fails_is_tried_again_by_the_group_and_becomes_a_dead_letter(
    url: str, stream: Stream
) -> None:
    seen = []

    async def fail(message: ReceivedMessage) -> None:
        seen.append((message.delivery_count, message.id))
        raise ValueError("no")

    letters = Queue("%DLQ%failing")
    async with connect(url, on_error=lambda error: None) as connection, connection.session() as session:
        await fill(connection, stream, "a")
        await session.consumer(stream, group="failing", start="earliest", listener=fail, policy=AT_ONCE)
        async with connection.session() as reading, await reading.consumer(letters) as consumer:
            (letter,) = await take(consumer, 1)
            assert letter.body == "a"
    assert [count for count, _ in seen] == [1, 2, 3]
    assert len({id for _, id in seen}) == 1


@in_loop
async def test_what_comes_again_in_a_transacted_session_is_for_the_group_to_count(url: str, stream: Stream) -> None:
    async with connect(url) as connection:
        await fill(connection, stream, "a")
        for count in (1, 2):
            async with connection.session(AckMode.SESSION_TRANSACTED) as session:
                (message,) = await take(await billing(session, stream, policy=AT_ONCE), 1)
                assert message.delivery_count == count


@in_loop
async def test_without_prefetch_each_message_is_asked_for(url: str, stream: Stream) -> None:
    async with connect(url) as connection, connection.session() as session:
        consumer = await billing(session, stream, prefetch=0)
        assert await consumer.receive(timeout=0) is None
        assert await consumer.receive(timeout=0.2) is None
        await fill(connection, stream, "a", "b")
        assert bodies(await take(consumer, 2)) == ["a", "b"]


@in_loop
async def test_a_browser_shows_everything_and_ends(url: str, stream: Stream) -> None:
    async with connect(url) as connection, connection.session() as session:
        assert [message.body async for message in session.browser(stream)] == []
        await fill(connection, stream, *map(str, range(1200)), properties={"partition": 1})
        assert [message.body async for message in session.browser(stream)] == [str(number) for number in range(1200)]
        assert await rest(await session.consumer(stream, group="g", start="offset=1198")) == ["1197", "1198", "1199"]


@in_loop
async def test_a_member_goes_on_after_a_lost_connection(url: str, stream: Stream) -> None:
    async with Proxy(url) as proxy:
        options = "?initialReconnectDelay=10&maxReconnectDelay=50&jms.sendAcksAsync=false"
        async with connect(f"failover:({proxy.url}){options}") as connection, connection.session() as session:
            consumer = await billing(session, stream)
            await fill(connection, stream, "a")
            await take(consumer, 1)
            proxy.drop()
            await fill(connection, stream, "b", "c")
            assert bodies(await take(consumer, 2)) == ["b", "c"]


@in_loop
async def test_a_group_is_removed_when_it_has_no_member(url: str, stream: Stream) -> None:
    async with connect(url) as connection, connection.session() as session:
        consumer = await billing(session, stream)
        with pytest.raises(DestinationInUse):
            await session.unsubscribe("billing", stream)
        await consumer.close()
        await session.unsubscribe("billing", stream)
        with pytest.raises(UnknownConsumerGroup):
            await session.unsubscribe("billing", stream)


@in_loop
async def test_what_makes_no_sense_is_refused(url: str, stream: Stream) -> None:
    async with connect(url) as connection, connection.session() as session:
        with pytest.raises(InvalidArgument, match="give a group"):
            await session.consumer(stream, name="billing")
        for destination in (Queue("q"), Topic("t")):
            with pytest.raises(InvalidArgument, match="only streams"):
                await session.consumer(destination, group="g")
            with pytest.raises(InvalidArgument, match="only streams"):
                await session.consumer(destination, start="earliest")
        with pytest.raises(InvalidArgument, match="no start position"):
            await session.consumer(stream, start="yesterday")
        await billing(session, stream, selector="x > 1")
        with pytest.raises(GroupMismatch):
            await billing(session, stream)


def test_threads_have_the_same(url: str, stream: Stream) -> None:
    with sync.connect(url) as connection, connection.session(AckMode.INDIVIDUAL) as session:
        session.producer(stream).send("a", properties={"partition": 2})
        with session.consumer(stream, group="billing", start="earliest") as consumer:
            message = consumer.receive(timeout=60)
            assert message is not None
            assert (message.body, message.partition, message.offset) == ("a", 2, 1)
            message.acknowledge()
        assert [message.body for message in session.browser(stream)] == ["a"]
        session.unsubscribe("billing", stream)


@in_loop
async def test_activemq_has_no_streams(activemq_url: str, stream: Stream) -> None:
    async with connect(activemq_url) as connection, connection.session() as session:
        with pytest.raises(InvalidDestination, match="is a stream of Quire, and the broker is ActiveMQ"):
            await session.consumer(stream)
        with pytest.raises(InvalidDestination, match="is a stream of Quire"):
            session.producer(stream)
        with pytest.raises(InvalidDestination, match="is a stream of Quire"):
            await session.producer().send("x", destination=stream)
        with pytest.raises(InvalidDestination, match="is a stream of Quire"):
            await session.unsubscribe("g", stream)
