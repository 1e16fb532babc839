"""Rounds of a crash test: a broker under load is killed, its store is verified, and it is started again."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random

from quire.store.maintenance.open_store import open_for_reading
from quire.store.maintenance.verify import verify
from quire.testing.faults import Point
from tests.acceptance.crash.broker_process import BrokerProcess
from tests.acceptance.crash.load import Load

RESTART_SECONDS = 10.0
"""How long a restart may take: a second's work, on a machine that is busy with other things."""

MEMORY_LIMIT = "300000"
"""The broker's memory limit: little enough that most messages are paged out and in."""

STARTING = "starting"
"""A kill from outside, somewhere in the start; in the first round the store is just being made."""

MOMENT = "moment"
"""A kill from outside, under load, at no point of the code in particular."""

FAILING = "failing"
"""A kill from outside, after the disk was full for two commits, or while it is."""

KILLS = [STARTING, *Point, MOMENT, FAILING]


@dataclass(frozen=True)
class Plan:
    """What to do.

    Attributes:
        store: ``lmdb`` or ``sqlite``.
        rounds: how often the broker is killed; each of ``KILLS`` has its turn.
        seed: of everything random.
        sync: the setting ``store.sync``.
    """

    store: str
    rounds: int
    seed: int
    sync: str = "always"

    def url(self, directory: Path) -> str:
        """The store's URL."""
        return f"lmdb://{directory}/store" if self.store == "lmdb" else f"sqlite://{directory}/store.db"


async def run_rounds(plan: Plan, directory: Path, say: Callable[[str], None] = lambda text: None) -> Load:
    """Kill a broker again and again.

    Args:
        plan: what to do.
        directory: an empty one, for the store and the log.
        say: is told what happens, a line at a time.

    Returns:
        The load, when everything has arrived.

    Raises:
        AssertionError: a promise was broken.
    """
    random = Random(plan.seed)
    broker = BrokerProcess(directory, plan.url(directory), {"STORE__SYNC": plan.sync, "MEMORY__LIMIT": MEMORY_LIMIT})
    try:
        async with Load(random) as load:
            for number in range(plan.rounds):
                kill = KILLS[number % len(KILLS)]
                await _kill(broker, load, kill, random)
                load.place.port = 0
                if load.confirmed:  # before, there may not even be a store
                    check_store(broker.url)
                await asyncio.sleep(0.02)  # the clients read what the broker had written before it died
                load.check()
                say(f"round {number + 1}: {kill}, {load.confirmed} confirmed")
            broker.start()
            await _listen(broker, load)
            await load.finish()
        broker.stop()
        left = check_store(broker.url)
        assert left == 0, f"{left} messages are left that nobody was given"
        say(f"{load.confirmed} confirmed, {load.redelivered} redelivered, nothing lost")
        return load
    finally:
        broker.kill()


async def _kill(broker: BrokerProcess, load: Load, kill: str, random: Random) -> None:
    """Start a broker and kill it in one of the ways."""
    if kill == STARTING:
        broker.start()
        await asyncio.sleep(random.uniform(0.05, 0.6))
        broker.kill()
    elif kill in (MOMENT, FAILING):
        if kill == MOMENT:
            broker.start()
        else:
            broker.start_with_fault("no-space", Point.INSIDE, random.randrange(4, 50), times=2)
        await _listen(broker, load)
        await asyncio.sleep(random.uniform(0.05, 0.8 if kill == MOMENT else 3.0))
        broker.kill()
    else:
        broker.start_with_fault("kill", kill, random.randrange(4, 50))
        await _listen(broker, load)
        await asyncio.to_thread(broker.wait_until_it_killed_itself)


async def _listen(broker: BrokerProcess, load: Load) -> None:
    """Wait until a broker listens, and send the clients there."""
    began = time.monotonic()
    load.place.port = await asyncio.to_thread(broker.port)
    seconds = time.monotonic() - began
    assert seconds < RESTART_SECONDS, f"the restart took {seconds:.1f} s"


def check_store(url: str) -> int:
    """Fail if a store is damaged.

    Returns:
        How many messages it has.
    """
    with open_for_reading(url) as opened:
        findings = list(islice(verify(opened.store, opened.maintenance), 20))
        assert not findings, f"the store is damaged: {findings}"
        lanes = [lane for owner in opened.store.destinations() for lane in owner.lanes]
        return sum([opened.store.lane_state(lane).count for lane in lanes])
