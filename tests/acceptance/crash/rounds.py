"""Rounds of a crash test: a broker under load is killed, its store is verified, and it is started again."""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random

from quire.cluster.cluster_map import ShardRow
from quire.cluster.directory import Directory
from quire.errors import StoreUnreachable
from quire.store.maintenance.open_store import open_for_reading
from quire.store.maintenance.verify import verify
from quire.testing.faults import Point
from tests.acceptance.crash.broker_process import BrokerProcess
from tests.acceptance.crash.load import Load

RESTART_SECONDS = 60.0
"""How long a restart may take: a second's work, on a machine that is busy with others, before it counts as hung."""

MEMORY_LIMIT = "300000"
"""The broker's memory limit: little enough that most messages are paged out and in."""

STARTING = "starting"
"""A kill from outside, somewhere in the start; in the first round the store is just being made."""

MOMENT = "moment"
"""A kill from outside, under load, at no point of the code in particular."""

FAILING = "failing"
"""A kill from outside, after the disk was full for two commits, or while it is."""

ONE = "one"
"""A kill of the process of one shard, under load; the broker starts another one."""

KILLS = [STARTING, *Point, MOMENT, FAILING]

KILLS_OF_SHARDS = [STARTING, ONE, ONE, MOMENT]


@dataclass(frozen=True)
class Plan:
    store: str  # ``lmdb`` or ``sqlite``
    rounds: int  # how often the broker is killed; each of ``KILLS``, or ``KILLS_OF_SHARDS``, has its turn
    seed: int  # of everything random
    sync: str = "always"  # the setting ``store.sync``
    shards: int = 1  # how many processes the broker has

    @property
    def kills(self) -> list[str]:
        return KILLS if self.shards == 1 else KILLS_OF_SHARDS

    @property
    def flags(self) -> list[str]:
        return [] if self.shards == 1 else ["--shards", str(self.shards)]

    def stores(self, directory: Path) -> list[str]:
        url = self.url(directory)
        return [url] if self.shards == 1 else [f"{url}-shard-{shard}" for shard in range(self.shards)]

    def url(self, directory: Path) -> str:
        return f"lmdb://{directory}/store" if self.store == "lmdb" else f"sqlite://{directory}/store.db"


async def run_rounds(plan: Plan, directory: Path, say: Callable[[str], None] = lambda text: None) -> Load:
    random = Random(plan.seed)
    broker = BrokerProcess(directory, plan.url(directory), {"STORE__SYNC": plan.sync, "MEMORY__LIMIT": MEMORY_LIMIT})
    try:
        async with Load(random) as load:
            for number in range(plan.rounds):
                kill = plan.kills[number % len(plan.kills)]
                await _kill(plan, broker, load, kill, random)
                if kill != ONE:
                    load.place.port = 0
                if load.confirmed and kill != ONE:  # before, there may not even be a store
                    check_stores(plan, directory)
                await asyncio.sleep(0.02)  # the clients read what the broker had written before it died
                load.check()
                say(f"round {number + 1}: {kill}, {load.confirmed} confirmed")
            _start(plan, broker)
            await _listen(broker, load)
            await load.finish()
        broker.stop()
        left = check_stores(plan, directory)
        assert left == 0, f"{left} messages are left that nobody was given"
        say(f"{load.confirmed} confirmed, {load.redelivered} redelivered, nothing lost")
        return load
    finally:
        broker.kill()


async def _kill(plan: Plan, broker: BrokerProcess, load: Load, kill: str, random: Random) -> None:
    if kill == STARTING:
        broker.start(*plan.flags)
        await asyncio.sleep(random.uniform(0.05, 0.6 * plan.shards))
        _kill_all(plan, broker)
    elif kill in (MOMENT, FAILING):
        if kill == MOMENT:
            _start(plan, broker)
        else:
            broker.start_with_fault("no-space", Point.INSIDE, random.randrange(4, 50), times=2)
        await _listen(broker, load)
        await asyncio.sleep(random.uniform(0.05, 0.8 if kill == MOMENT else 3.0))
        _kill_all(plan, broker)
    elif kill == ONE:
        _start(plan, broker)
        await _listen(broker, load)
        await asyncio.sleep(random.uniform(0.5, 1.5))
        await asyncio.to_thread(_kill_one, broker, random.randrange(plan.shards))
    else:
        broker.start_with_fault("kill", kill, random.randrange(4, 50))
        await _listen(broker, load)
        await asyncio.to_thread(broker.wait_until_it_killed_itself)


def _start(plan: Plan, broker: BrokerProcess) -> None:
    if not broker.is_running:
        broker.start(*plan.flags)


def _kill_all(plan: Plan, broker: BrokerProcess) -> None:
    pids = [] if plan.shards == 1 else [row.pid for row in _owners(broker).values() if row.pid]
    broker.kill()
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    while pids and any([Path(f"/proc/{pid}").exists() for pid in pids]):
        time.sleep(0.01)


def _kill_one(broker: BrokerProcess, shard: int) -> None:
    """Kill the process of a shard, and wait until the broker has started another one."""
    while not (before := _owners(broker).get(shard)) or not before.pid:
        time.sleep(0.05)
    os.kill(before.pid, signal.SIGKILL)
    began = time.monotonic()
    while not (now := _owners(broker)[shard]).address or now.epoch == before.epoch:
        assert time.monotonic() - began < RESTART_SECONDS, "the process was not started again"
        time.sleep(0.05)


def _owners(broker: BrokerProcess) -> dict[int, ShardRow]:
    database = broker.data / "shards.db"
    if not database.exists():
        return {}
    with closing(Directory(f"sqlite:///{database}")) as directory, suppress(StoreUnreachable):  # it is just made
        return dict(directory.read().shards)
    return {}


async def _listen(broker: BrokerProcess, load: Load) -> None:
    """Wait until a broker listens, and send the clients there."""
    began = time.monotonic()
    load.place.port = await asyncio.to_thread(broker.port)
    seconds = time.monotonic() - began
    assert seconds < RESTART_SECONDS, f"the restart took {seconds:.1f} s"


def check_stores(plan: Plan, directory: Path) -> int:
    """Fail if a store is damaged; how many messages there are in all."""
    return sum([check_store(url) for url in plan.stores(directory)])


def check_store(url: str) -> int:
    with open_for_reading(url) as opened:
        findings = list(islice(verify(opened.store, opened.maintenance), 20))
        assert not findings, f"the store is damaged: {findings}"
        lanes = [lane for owner in opened.store.destinations() for lane in owner.lanes]
        return sum([opened.store.lane_state(lane).count for lane in lanes])
