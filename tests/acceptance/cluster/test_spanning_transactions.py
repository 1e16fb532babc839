"""Transactions over several shards while a broker is killed: what is moved between queues is never lost or doubled."""

import asyncio
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from quire.client import AckMode, Queue, connect
from quire.errors import QuireError
from tests.acceptance.cluster.running_cluster import RunningCluster, running_cluster
from tests.acceptance.cluster.test_openwire_cluster import left
from tests.postgresql_server import PostgresqlServer

pytestmark = pytest.mark.slow

NAMES = ("athens", "berlin", "cairo")
QUEUES = [Queue(f"moved.{number}") for number in range(9)]
TOKENS = [f"token {number}" for number in range(40)]
MOVERS = 4
PATIENCE = 60.0
"""How long it may take until everything is at rest on a busy machine, in seconds."""


def test_tokens_that_are_moved_in_transactions_stay_what_they_are(
    postgresql_server: PostgresqlServer, tmp_path: Path
) -> None:
    with running_cluster(postgresql_server, tmp_path) as cluster:
        cluster.start(*NAMES)
        cluster.wait_until_even()
        asyncio.run(kill_while_moving(cluster))


class Movers:
    """Clients that take a token from a queue, and put it into another one and a shadow of it into a third one."""

    def __init__(self, cluster: RunningCluster) -> None:
        self.moved = 0  # how many moves were confirmed
        self._cluster = cluster
        self._random = Random(5)
        self._ending = asyncio.Event()

    def url(self) -> str:
        """One of the living brokers."""
        return self._random.choice(self._cluster.living).openwire()

    async def run(self) -> None:
        """Move tokens until the end, with a new connection after each error."""
        while not self._ending.is_set():
            with suppress(QuireError, OSError):
                await self._move_some()
            await asyncio.sleep(0.1)

    async def _move_some(self) -> None:
        async with connect(self.url()) as connection:
            while not self._ending.is_set():
                source, *targets = self._random.sample(QUEUES, 3)
                async with (
                    connection.session(AckMode.SESSION_TRANSACTED) as session,
                    await session.consumer(source, prefetch=1) as consumer,
                ):
                    message = await consumer.receive(0.2)
                    if message is None or not str(message.body).startswith("token"):
                        await session.commit()  # shadows are consumed
                        continue
                    for target, body in zip(targets, (message.body, f"shadow of {message.body}"), strict=True):
                        async with session.producer(target) as producer:
                            await producer.send(body)
                    await session.commit()
                    self.moved += 1

    async def wait_for(self, count: int) -> None:
        """Wait until so many more moves were confirmed."""
        wanted = self.moved + count
        async with asyncio.timeout(PATIENCE):
            while self.moved < wanted:
                await asyncio.sleep(0.05)

    def end(self) -> None:
        """Let all movers end."""
        self._ending.set()


async def kill_while_moving(cluster: RunningCluster) -> None:
    movers = Movers(cluster)
    async with connect(movers.url()) as connection, connection.session() as session:
        for number, token in enumerate(TOKENS):
            async with session.producer(QUEUES[number % len(QUEUES)]) as producer:
                await producer.send(token)
    async with asyncio.TaskGroup() as tasks:
        for _ in range(MOVERS):
            tasks.create_task(movers.run())
        try:
            await movers.wait_for(20)
            cluster.brokers["berlin"].kill()
            await asyncio.to_thread(cluster.wait_for_owners, lambda owners: None not in owners, PATIENCE)
            await movers.wait_for(20)
        finally:
            movers.end()
    found = await everything(movers.url())
    print(f"{movers.moved} moves over several shards were confirmed")
    tokens = Counter(body for body in found.elements() if body.startswith("token"))
    assert tokens == Counter(TOKENS)


async def everything(url: str) -> Counter[str]:
    """What there is in all queues, once no transaction is in doubt any more."""
    await asyncio.sleep(3)
    async with connect(url) as connection:
        return Counter([str(body) for queue in QUEUES for body in await left(connection, queue)])
