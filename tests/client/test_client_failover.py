"""The client over connections that are lost, against real brokers behind a proxy."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from quire.client import AckMode, Connection, Queue, RedeliveryPolicy, Session, Topic, connect
from quire.errors import BrokerUnreachable, QuireError, TransactionRolledBack
from tests.client.proxy import Proxy

pytestmark = pytest.mark.slow

OPTIONS = "maxReconnectDelay=50&updateURIsSupported=false"
"""The client keeps to the proxies, also if the broker names others of its cluster."""

FAST = RedeliveryPolicy(maximum_redeliveries=3, initial_redelivery_delay=20, redelivery_delay=20)


async def bodies(url: str, queue: Queue) -> list[Any]:
    found = []
    async with connect(url) as connection, connection.session() as session:
        consumer = await session.consumer(queue)
        while (message := await consumer.receive(0.5)) is not None:
            found.append(message.body)
    return found


async def until(condition: Any) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


@asynccontextmanager
async def behind_proxy(
    broker_url: str, mode: AckMode, options: str = ""
) -> AsyncIterator[tuple[Proxy, Connection, Session]]:
    """A session over a proxy, with failover."""
    async with (
        Proxy(broker_url) as proxy,
        connect(failover(proxy, options), policies={Queue(">"): FAST}) as connection,
        connection.session(mode) as session,
    ):
        yield proxy, connection, session


async def reconnected(proxy: Proxy, connection: Connection) -> None:
    """Cut the connection, and wait for the next one."""
    before = proxy.connections
    proxy.drop()
    await until(lambda: proxy.connections > before and connection.is_connected)


def failover(proxy: Proxy, options: str = "") -> str:
    return f"failover:({proxy.url})?{OPTIONS}{options}"


def test_sends_survive_lost_connections_without_loss_or_doubles(broker_url: str, name: str) -> None:
    async def scenario() -> None:
        async with behind_proxy(broker_url, AckMode.AUTO) as (proxy, connection, session):
            producer = session.producer(Queue(name), window=20)
            for number in range(300):
                await producer.submit(number.to_bytes(2, "big"))
                if number % 100 == 50:
                    await reconnected(proxy, connection)
            await producer.flush()
            assert proxy.connections == 4
        assert await bodies(broker_url, Queue(name)) == [number.to_bytes(2, "big") for number in range(300)]

    asyncio.run(scenario())


def test_a_send_whose_answer_is_lost_is_sent_again_and_stored_once(broker_url: str, name: str) -> None:
    async def scenario() -> None:
        async with behind_proxy(broker_url, AckMode.AUTO) as (proxy, _connection, session):
            producer = session.producer(Queue(name))
            await producer.send("first")
            proxy.loses_answers = True
            waiting = asyncio.create_task(producer.send("second"))
            await asyncio.sleep(0.3)
            assert not waiting.done()
            proxy.loses_answers = False
            proxy.drop()
            await asyncio.wait_for(waiting, 10)
        assert await bodies(broker_url, Queue(name)) == ["first", "second"]

    asyncio.run(scenario())


@pytest.mark.parametrize("mode", [AckMode.CLIENT, AckMode.INDIVIDUAL])
def test_what_was_not_processed_comes_again_and_is_no_duplicate(broker_url: str, name: str, mode: AckMode) -> None:
    async def scenario() -> None:
        async with behind_proxy(broker_url, mode) as (proxy, connection, session):
            producer = session.producer(Queue(name))
            for number in range(10):
                await producer.send(name + str(number))
            consumer = await session.consumer(Queue(name))
            for _ in range(3):
                assert await consumer.receive(5) is not None
            await reconnected(proxy, connection)
            received = [await consumer.receive(10) for _ in range(10)]
            assert sorted(message.body for message in received if message) == [name + str(n) for n in range(10)]
            for message in received:
                assert message is not None
                await message.acknowledge()
        assert await bodies(broker_url, Queue(name)) == []
        dead = await bodies(broker_url, Queue("ActiveMQ.DLQ"))
        assert [body for body in dead if str(body).startswith(name)] == []

    asyncio.run(scenario())


def test_what_was_processed_and_comes_again_is_acknowledged_again(broker_url: str, name: str) -> None:
    async def scenario() -> None:
        async with behind_proxy(broker_url, AckMode.INDIVIDUAL) as (proxy, connection, session):
            await session.producer(Queue(name)).send(name)
            consumer = await session.consumer(Queue(name))
            message = await consumer.receive(5)
            assert message is not None
            proxy.loses_requests = True
            await message.acknowledge()
            await asyncio.sleep(0.1)
            proxy.loses_requests = False
            await reconnected(proxy, connection)
            assert await consumer.receive(1) is None
            assert connection.suppressed_duplicates == 1
        assert await bodies(broker_url, Queue(name)) == []
        assert name not in await bodies(broker_url, Queue("ActiveMQ.DLQ"))

    asyncio.run(scenario())


def test_an_open_transaction_with_sends_is_replayed(broker_url: str, name: str) -> None:
    async def scenario() -> None:
        async with (
            behind_proxy(broker_url, AckMode.SESSION_TRANSACTED) as (proxy, connection, session),
            session.transaction(),
        ):
            async with session.producer(Queue(name)) as producer:
                await producer.send("one")
                await producer.send("two")
            await reconnected(proxy, connection)
            await session.producer(Queue(name)).send("three")
        assert await bodies(broker_url, Queue(name)) == ["one", "two", "three"]

    asyncio.run(scenario())


def test_a_transaction_with_deliveries_is_rolled_back(broker_url: str, name: str) -> None:
    async def scenario() -> None:
        async with behind_proxy(broker_url, AckMode.SESSION_TRANSACTED) as (proxy, connection, session):
            producer = session.producer(Queue(name + ".target"))
            await session.producer(Queue(name)).send("x")
            await session.commit()
            consumer = await session.consumer(Queue(name))
            assert await consumer.receive(5) is not None
            await producer.send("from the lost transaction")
            await reconnected(proxy, connection)
            with pytest.raises(TransactionRolledBack):
                await session.commit()
            message = await consumer.receive(10)
            assert message is not None
            assert (message.body, message.redelivered) == ("x", True)
            await session.commit()
        assert await bodies(broker_url, Queue(name)) == []
        assert await bodies(broker_url, Queue(name + ".target")) == []

    asyncio.run(scenario())


def test_a_lost_answer_to_a_commit_is_in_doubt(broker_url: str, name: str) -> None:
    async def scenario() -> None:
        async with behind_proxy(broker_url, AckMode.SESSION_TRANSACTED) as (proxy, _connection, session):
            await session.producer(Queue(name)).send("x")
            proxy.loses_answers = True
            committing = asyncio.create_task(session.commit())
            await asyncio.sleep(0.3)
            proxy.loses_answers = False
            proxy.drop()
            with pytest.raises(TransactionRolledBack, match="in doubt"):
                await asyncio.wait_for(committing, 10)
            await session.producer(Queue(name)).send("y")
            await session.commit()
        # The broker had it; ActiveMQ's client says the same of it.
        assert await bodies(broker_url, Queue(name)) == ["x", "y"]

    asyncio.run(scenario())


def test_temporary_queues_topics_and_pulls_go_on(broker_url: str, name: str) -> None:
    async def scenario() -> None:
        async with behind_proxy(broker_url, AckMode.AUTO) as (proxy, connection, session):
            queue = await session.temporary_queue()
            answers = await session.consumer(queue)
            news = await session.consumer(Topic(name))
            pulling = await session.consumer(Queue(name), prefetch=0)
            pulled = asyncio.create_task(pulling.receive(20))
            await asyncio.sleep(0.1)
            await reconnected(proxy, connection)
            for target in (queue, Topic(name), Queue(name)):
                await session.producer(target).send("after")
            received = [await answers.receive(5), await news.receive(5), await asyncio.wait_for(pulled, 5)]
            assert [message and message.body for message in received] == ["after"] * 3

    asyncio.run(scenario())


def test_reconnecting_is_given_up_as_the_options_say(broker_url: str, name: str) -> None:
    errors: list[Exception] = []

    async def scenario() -> None:
        async with Proxy(broker_url) as proxy:
            url = failover(proxy, "&maxReconnectAttempts=2")
            async with connect(url, on_error=errors.append) as connection, connection.session() as session:
                consumer = await session.consumer(Queue(name))
                waiting = asyncio.create_task(consumer.receive())
                await asyncio.sleep(0.05)
                proxy.refuses = True
                proxy.drop()
                with pytest.raises(BrokerUnreachable):
                    await asyncio.wait_for(waiting, 10)
                with pytest.raises(QuireError):
                    await session.producer(Queue(name)).send("x")

    asyncio.run(scenario())
    assert [type(error) for error in errors] == [BrokerUnreachable]


def test_sends_fail_after_the_time_out_without_a_connection(broker_url: str, name: str) -> None:
    async def scenario() -> None:
        async with behind_proxy(broker_url, AckMode.AUTO, "&timeout=200") as (proxy, connection, session):
            producer = session.producer(Queue(name))
            proxy.refuses = True
            proxy.drop()
            await until(lambda: not connection.is_connected)
            with pytest.raises(BrokerUnreachable, match=r"within 0\.2 s"):
                await producer.send("x")
            proxy.refuses = False
            await until(lambda: connection.is_connected)
            await producer.send("y")
        assert await bodies(broker_url, Queue(name)) == ["y"]

    asyncio.run(scenario())


def test_without_failover_a_lost_connection_is_an_error(broker_url: str, name: str) -> None:
    errors: list[Exception] = []

    async def scenario() -> None:
        async with (
            Proxy(broker_url) as proxy,
            connect(proxy.url, on_error=errors.append) as connection,
            connection.session() as session,
        ):
            consumer = await session.consumer(Queue(name))
            waiting = asyncio.create_task(consumer.receive())
            await asyncio.sleep(0.05)
            proxy.drop()
            with pytest.raises(BrokerUnreachable):
                await asyncio.wait_for(waiting, 5)

    asyncio.run(scenario())
    assert len(errors) == 1


def test_brokers_that_are_not_there_are_passed_over(broker_url: str) -> None:
    async def scenario(connection: Connection) -> None:
        async with connection:
            assert connection.address == broker_url

    asyncio.run(scenario(connect(f"failover:(tcp://127.0.0.1:1,{broker_url})?randomize=false")))
    with pytest.raises(BrokerUnreachable):
        asyncio.run(connect("failover:(tcp://127.0.0.1:1)?startupMaxReconnectAttempts=2").open())
    with pytest.raises(BrokerUnreachable):
        asyncio.run(connect("tcp://127.0.0.1:1").open())


def test_a_preferred_broker_is_taken_back(broker_url: str, name: str) -> None:
    async def scenario() -> None:
        async with Proxy(broker_url) as preferred, Proxy(broker_url) as other:
            url = f"failover:({preferred.url},{other.url})?{OPTIONS}&randomize=false&priorityBackup=true"
            async with connect(url) as connection, connection.session() as session:
                producer = session.producer(Queue(name))
                await producer.send("1")
                preferred.refuses = True
                preferred.drop()
                await until(lambda: connection.address == other.url)
                await producer.send("2")
                preferred.refuses = False
                await until(lambda: connection.address == preferred.url)
                await producer.send("3")
        assert await bodies(broker_url, Queue(name)) == ["1", "2", "3"]

    asyncio.run(scenario())


def test_a_backup_is_connected_before_it_is_needed(broker_url: str, name: str) -> None:
    async def scenario() -> None:
        async with Proxy(broker_url) as first, Proxy(broker_url) as second:
            url = f"failover:({first.url},{second.url})?{OPTIONS}&randomize=false&backup=true"
            async with connect(url) as connection, connection.session() as session:
                producer = session.producer(Queue(name))
                await producer.send("1")
                await until(lambda: second.connections == 1)
                await asyncio.sleep(0.1)
                first.refuses = second.refuses = True
                first.drop()
                await producer.send("2")
                assert (connection.address, second.connections) == (second.url, 1)
        assert await bodies(broker_url, Queue(name)) == ["1", "2"]

    asyncio.run(scenario())


def test_heart_beats_keep_an_idle_connection_and_find_a_dead_one(broker_url: str, name: str) -> None:
    options = "wireFormat.maxInactivityDuration=600&wireFormat.maxInactivityDurationInitalDelay=100"

    async def scenario() -> None:
        async with Proxy(broker_url) as proxy:
            url = f"failover:({proxy.url}?{options})?{OPTIONS}"
            async with connect(url) as connection, connection.session() as session:
                await asyncio.sleep(2)
                assert proxy.connections == 1
                proxy.loses_answers = True
                await until(lambda: not connection.is_connected)
                proxy.loses_answers = False
                await session.producer(Queue(name)).send("x")
        assert await bodies(broker_url, Queue(name)) == ["x"]

    asyncio.run(scenario())


def test_a_send_that_is_not_answered_in_time_is_an_error(broker_url: str, name: str) -> None:
    async def scenario() -> None:
        async with (
            Proxy(broker_url) as proxy,
            connect(proxy.url + "?jms.sendTimeout=300&jms.closeTimeout=300") as connection,
            connection.session() as session,
        ):
            producer = session.producer(Queue(name))
            await producer.send("x")
            proxy.loses_answers = True
            with pytest.raises(BrokerUnreachable, match="may be done"):
                await producer.send("y")
            proxy.loses_answers = False

    asyncio.run(scenario())


def test_a_browse_that_is_cut_off_is_an_error(broker_url: str, name: str) -> None:
    async def scenario() -> None:
        async with behind_proxy(broker_url, AckMode.AUTO) as (proxy, connection, session):
            producer = session.producer(Queue(name))
            for number in range(20):
                await producer.send(str(number))
            browser = session.browser(Queue(name))
            assert (await anext(browser)).body == "0"
            await reconnected(proxy, connection)
            with pytest.raises(BrokerUnreachable):
                await anext(browser)

    asyncio.run(scenario())


def test_a_commit_between_two_connections_waits_for_the_next(broker_url: str, name: str) -> None:
    async def scenario() -> None:
        async with behind_proxy(broker_url, AckMode.SESSION_TRANSACTED) as (proxy, connection, session):
            await session.producer(Queue(name)).send("x")
            proxy.refuses = True
            proxy.drop()
            await until(lambda: not connection.is_connected)
            committing = asyncio.create_task(session.commit())
            await asyncio.sleep(0.1)
            proxy.refuses = False
            await asyncio.wait_for(committing, 10)
        assert await bodies(broker_url, Queue(name)) == ["x"]

    asyncio.run(scenario())


def test_a_connection_closes_while_no_broker_answers(broker_url: str, name: str) -> None:
    async def scenario() -> None:
        async with Proxy(broker_url) as proxy:
            connection = await connect(failover(proxy)).open()
            session = connection.session(AckMode.SESSION_TRANSACTED)
            await session.producer(Queue(name)).send("x")
            proxy.refuses = True
            proxy.drop()
            await until(lambda: not connection.is_connected)
            await asyncio.wait_for(connection.close(), 1)
            with pytest.raises(BrokerUnreachable):
                await session.commit()
        assert await bodies(broker_url, Queue(name)) == []

    asyncio.run(scenario())


def test_what_was_submitted_and_not_confirmed_is_told_by_the_close(broker_url: str, name: str) -> None:
    async def scenario() -> None:
        async with Proxy(broker_url) as proxy, connect(proxy.url, on_error=lambda error: None) as connection:
            session = connection.session()
            producer = session.producer(Queue(name))
            await producer.send("first")
            proxy.loses_answers = True
            await producer.submit("second")
            proxy.drop()
            with pytest.raises(BrokerUnreachable):
                await session.close()

    asyncio.run(scenario())
