"""Shows a cluster: three brokers under load, one of which is killed; who took over, when, and what was lost."""

import asyncio
import tempfile
import time
from pathlib import Path
from random import Random

from benchmarks.cluster.load import SoakLoad
from tests.acceptance.cluster.running_cluster import AnyBroker, RunningCluster, running_cluster
from tests.postgresql_server import run_server

BROKERS = ("athens", "berlin", "cairo")

LOAD_SECONDS = 5.0
"""How long the load lasts before the kill, and after the takeover."""


def show(cluster: RunningCluster) -> None:
    """Print which broker has which shards."""
    owners = cluster.owners()
    for broker in BROKERS:
        shards = [str(shard) for shard, owner in owners.items() if owner == broker]
        print(f"  {broker:8} {'shards ' + ', '.join(shards) if shards else 'no shard'}")


async def demonstrate(cluster: RunningCluster, queues: int, victim: str) -> bool:
    """Kill a broker under load: whether all was as promised."""
    random = Random(1)
    place = AnyBroker(lambda: [broker.port() for broker in cluster.living], random)
    shards = len(await asyncio.to_thread(cluster.owners))
    async with SoakLoad(place, queues, 0, cluster.shard_of, shards, random) as load:
        print(f"{queues} queues, each with producers and consumers at brokers of their own choice")
        await load.wait_until_served(time.monotonic())
        await asyncio.sleep(LOAD_SECONDS)
        before = await asyncio.to_thread(cluster.owners)
        print(f"{load.confirmed} messages confirmed; now {victim} is killed: kill -9 of all its processes")
        await asyncio.to_thread(cluster.brokers[victim].kill)
        await follow(cluster, [shard for shard, owner in before.items() if owner == victim])
        began = time.monotonic()
        await load.wait_until_served(began)
        print(f"each shard has confirmed new messages {time.monotonic() - began:.1f} s later")
        await asyncio.sleep(LOAD_SECONDS)
        print(f"{victim} is started again, and gets its part")
        await asyncio.to_thread(cluster.start, victim)
        await asyncio.to_thread(cluster.wait_until_even)
        await asyncio.to_thread(show, cluster)
        await load.wait_until_served(time.monotonic())
        left = await load.drain()
        broken = load.violations
        print(
            f"{load.confirmed} messages confirmed, {load.received} received: {load.missing} lost, "
            f"{len(broken)} came back after their acknowledgement, twice or out of order"
        )
        return not (left or broken)


async def follow(cluster: RunningCluster, orphans: list[int]) -> None:
    """Print when each shard of the killed broker has a new owner."""
    began, left = time.monotonic(), set(orphans)
    while left:
        owners = await asyncio.to_thread(cluster.owners)
        for shard in sorted(left):
            broker = owners[shard]
            if broker is not None and broker in [living.name for living in cluster.living]:
                print(f"  {time.monotonic() - began:4.1f} s  {broker} took shard {shard}")
                left.discard(shard)
        await asyncio.sleep(0.05)


def demo(queues: int, victim: str) -> bool:
    """Start three brokers, kill one under load: whether all was as promised."""
    with (
        run_server() as server,
        tempfile.TemporaryDirectory(prefix="quire-cluster-") as directory,
        running_cluster(server, Path(directory)) as cluster,
    ):
        print("PostgreSQL runs; three brokers start")
        cluster.start(*BROKERS)
        cluster.wait_until_even()
        show(cluster)
        return asyncio.run(demonstrate(cluster, queues, victim))
