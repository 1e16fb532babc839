"""Quire's client library with a cluster of three brokers, over OpenWire."""

import asyncio
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from quire.client import AckMode, Connection, Message, Queue, Topic, connect
from tests.acceptance.cluster.running_cluster import RunningCluster, running_cluster
from tests.postgresql_server import PostgresqlServer

pytestmark = pytest.mark.slow

QUEUES = [Queue(f"ow.{number}") for number in range(12)]
NAMES = ("athens", "berlin", "cairo")
PATIENCE = 60.0
"""How long a message may take on a busy machine, in seconds."""


def test_clients_of_all_brokers_reach_everything(postgresql_server: PostgresqlServer, tmp_path: Path) -> None:
    with running_cluster(postgresql_server, tmp_path) as cluster:
        cluster.start(*NAMES)
        cluster.wait_until_even()
        urls = [broker.openwire() for broker in cluster.living]
        asyncio.run(queues_from_everywhere(urls))
        asyncio.run(topics_and_requests(urls))
        asyncio.run(transactions(urls))


async def queues_from_everywhere(urls: list[str]) -> None:
    async with connect(urls[0]) as one, connect(urls[1]) as two, connect(urls[2]) as three:
        for number, queue in enumerate(QUEUES):
            async with (one, two, three)[number % 3].session() as session, session.producer(queue) as producer:
                for place in range(20):
                    await producer.send(f"{queue.name} {place}")
        async with three.session() as session, session.browser(QUEUES[0]) as browser:
            assert [message.body async for message in browser] == [f"ow.0 {place}" for place in range(20)]
        async with one.session() as session:
            for queue in QUEUES[:6]:
                async with await session.consumer(queue) as consumer:
                    assert [await body(consumer) for _ in range(20)] == [f"{queue.name} {place}" for place in range(20)]
        async with two.session() as session, await session.consumer(Queue("ow.*")) as consumer:
            found = [await body(consumer) for _ in range(120)]
        assert sorted(found) == sorted(f"{queue.name} {place}" for queue in QUEUES[6:] for place in range(20))
        for queue in QUEUES:
            assert await left(three, queue) == []


async def topics_and_requests(urls: list[str]) -> None:
    async with connect(urls[0], client_id="me") as one, connect(urls[1]) as two:
        async with one.session() as session:
            await (await session.consumer(Topic("ow.news"), name="sub")).close()
        async with two.session() as session, session.producer(Topic("ow.news")) as producer:
            await producer.send("while nobody listened")
        async with one.session() as session:
            async with await session.consumer(Topic("ow.news"), name="sub") as consumer:
                assert await body(consumer) == "while nobody listened"
            await session.unsubscribe("sub")
        for place in range(5):
            answering = asyncio.create_task(answer_one(two, Queue(f"ow.ask.{place}")))
            async with one.session() as session:
                reply = await session.request(Queue(f"ow.ask.{place}"), "question", timeout=PATIENCE)
                assert reply.body == "answer to question"
            await answering


async def answer_one(connection: Connection, queue: Queue) -> None:
    async with connection.session() as session, await session.consumer(queue) as consumer:
        request = await consumer.receive(PATIENCE)
        assert request is not None
        assert request.reply_to is not None
        async with session.producer(request.reply_to) as producer:
            await producer.send(Message(f"answer to {request.body}", correlation_id=request.correlation_id))


async def transactions(urls: list[str]) -> None:
    async with connect(urls[2]) as connection:
        for queue in QUEUES:
            async with connection.session(AckMode.SESSION_TRANSACTED) as session, session.producer(queue) as producer:
                async with session.transaction():
                    for place in range(3):
                        await producer.send(str(place))
                await producer.send("never")
                await session.rollback()
                async with await session.consumer(queue) as consumer:
                    assert [await body(consumer) for _ in range(3)] == ["0", "1", "2"]
                    await session.commit()
            assert await left(connection, queue) == []


async def body(consumer: Any) -> Any:
    message = await consumer.receive(PATIENCE)
    assert message is not None
    return message.body


async def left(connection: Connection, queue: Queue) -> list[Any]:
    """The bodies of what is in a queue."""
    async with connection.session() as session, session.browser(queue) as browser:
        return [message.body async for message in browser]


def test_a_failover_client_loses_nothing_when_a_broker_is_killed(
    postgresql_server: PostgresqlServer, tmp_path: Path
) -> None:
    with running_cluster(postgresql_server, tmp_path) as cluster:
        cluster.start(*NAMES)
        cluster.wait_until_even()
        asyncio.run(kill_under_load(cluster))


async def kill_under_load(cluster: RunningCluster) -> None:
    random = Random(3)
    urls = {broker.name: broker.openwire() for broker in cluster.living}
    confirmed, received = Counter[str](), Counter[str]()
    ending = asyncio.Event()

    def failover() -> str:
        return f"failover:({','.join(random.sample(sorted(urls.values()), 3))})?maxReconnectDelay=200"

    async def produce(queue: Queue) -> None:
        async with connect(failover()) as connection, connection.session() as session:
            producer, number = session.producer(queue), 0
            while not ending.is_set():
                await producer.send(f"{queue.name} {number}")
                confirmed[f"{queue.name} {number}"] += 1
                number += 1
                await asyncio.sleep(0.01)

    async def consume(queue: Queue) -> None:
        async with connect(failover()) as connection, connection.session() as session:
            consumer = await session.consumer(queue)
            async for message in consumer:
                received[str(message.body)] += 1

    async with asyncio.TaskGroup() as tasks:
        consumers = [tasks.create_task(consume(queue)) for queue in QUEUES[:8]]
        producers = [tasks.create_task(produce(queue)) for queue in QUEUES[:8]]
        await asyncio.sleep(3)
        await asyncio.to_thread(cluster.brokers["berlin"].kill)
        before = Counter(message.partition(" ")[0] for message in confirmed)
        async with asyncio.timeout(60):  # each producer goes on
            while any([more(confirmed, before, queue) < 20 for queue in QUEUES[:8]]):
                await asyncio.sleep(0.1)
        ending.set()
        async with asyncio.timeout(60):
            await asyncio.gather(*producers)
            while confirmed.keys() - received.keys():
                await asyncio.sleep(0.1)
        for consumer in consumers:
            consumer.cancel()
    assert not confirmed.keys() - received.keys()
    print(f"{len(confirmed)} messages confirmed, none lost, {sum(received.values()) - len(received)} delivered again")


def more(confirmed: Counter[str], before: Counter[str], queue: Queue) -> int:
    """How many messages of a queue were confirmed since."""
    return sum([message.partition(" ")[0] == queue.name for message in confirmed]) - before[queue.name]
