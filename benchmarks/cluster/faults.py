"""What goes wrong in a soak: brokers are killed, suspended, join and leave; shards move; links break."""

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from random import Random

from benchmarks.cluster.load import SoakLoad
from quire.cluster.directory import LEASE, Directory
from quire.cluster.view import ShardRow, View
from tests.acceptance.cluster.cluster_broker import ClusterBroker
from tests.acceptance.cluster.running_cluster import RunningCluster
from tests.acceptance.crash.broker_process import quire

PATIENCE = 120.0
"""How long the cluster may take to be as wanted, on a busy machine, in seconds."""

FEWEST = 3
"""How many brokers there are at the end of each round, at the least."""

CUTTING = 2.0
"""For how long links are cut again and again, in seconds."""


@dataclass(frozen=True)
class Outage:
    """How long a shard confirmed nothing.

    Attributes:
        event: what happened to it.
        shard: which.
        seconds: the longest time between two confirmations since then, of messages sent one after the other.
    """

    event: str
    shard: int
    seconds: float


class Faults:
    """Makes one thing go wrong at a time.

    Args:
        cluster: the brokers; the names of all that may run are added.
        directory: the database of the cluster.
        load: the clients.
        random: what happens to which broker and shard.

    Attributes:
        kinds: by name.
        outages: what was measured.
    """

    def __init__(self, cluster: RunningCluster, directory: Directory, load: SoakLoad, random: Random) -> None:
        self.outages: list[Outage] = []
        self.kinds: dict[str, Callable[[], Awaitable[None]]] = {
            "kill-broker": self._kill_broker, "kill-shard": self._kill_shard, "suspend-broker": self._suspend_broker,
            "suspend-shard": self._suspend_shard, "add-or-remove": self._add_or_remove, "move-shard": self._move_shard,
        }  # fmt: skip
        if can_cut():
            self.kinds["cut-links"] = self._cut_links
        self._cluster = cluster
        self._directory = directory
        self._load = load
        self._random = random

    async def run(self, kind: str) -> None:
        """Make a thing go wrong, and wait until the cluster is whole and serves every shard."""
        await asyncio.sleep(self._random.uniform(0.2, 2.0))
        await self.kinds[kind]()
        await self.wait_until_even()

    async def wait_until_even(self) -> None:
        """Wait until each living broker has its part of the shards."""
        names = {broker.name for broker in self._cluster.living}

        def is_even(view: View) -> bool:
            counts = [[row.broker for row in view.shards.values()].count(name) for name in names]
            return self._all_run(view) and names == set(view.brokers) and max(counts) - min(counts) <= 1

        await self._until(is_even, "each broker has its part")

    # The things.

    async def _kill_broker(self) -> None:
        """All processes of a broker are killed; later it is started again."""
        victim = self._any_broker()
        async with self._measured("broker killed"):
            victim.kill()
            await self._until(self._all_run, f"all shards run without {victim.name}")
        await self._start(victim)

    async def _kill_shard(self) -> None:
        """The process of one shard is killed; its broker starts another one."""
        row = await self._any_shard()
        async with self._measured("process of the shard killed"):
            os.kill(row.pid, signal.SIGKILL)
            await self._until(lambda view: view.shards[row.shard].epoch > row.epoch and self._all_run(view), "it runs")

    async def _suspend_broker(self) -> None:
        """All processes of a broker stand still for longer than its lease, and go on."""
        victim = self._any_broker()
        async with self._measured("broker suspended"):
            victim.suspend()
            await self._until(self._all_run, f"all shards run without {victim.name}")
        await asyncio.sleep(self._random.uniform(0.0, 2.0))
        async with self._measured("broker joined"):
            victim.resume()
            await self.wait_until_even()

    async def _suspend_shard(self) -> None:
        """The process of one shard stands still for longer than the lease of its store, and goes on."""
        row = await self._any_shard()
        os.kill(row.pid, signal.SIGSTOP)
        await asyncio.sleep(LEASE + self._random.uniform(0.5, 2.0))
        async with self._measured("process of the shard goes on", row.shard):
            os.kill(row.pid, signal.SIGCONT)
            await asyncio.sleep(1.0)  # it notices what it has missed
            await self._until(self._all_run, "it runs")

    async def _add_or_remove(self) -> None:
        """A broker joins that did not run, or one leaves by command; it is started again if too few are left."""
        idle = [broker for broker in self._cluster.brokers.values() if not broker.is_running]
        if idle:
            await self._start(self._random.choice(idle))
            return
        leaving = self._any_broker()
        async with self._measured("broker left"):
            await self._command(leaving.name, "leave", leaving.name)
            code = await asyncio.to_thread(leaving.wait)
            assert code == 0, f"{leaving.name} left with {code}:\n{leaving.log[-5000:]}"
            await self._until(self._all_run, f"all shards run without {leaving.name}")
        if len(self._cluster.living) < FEWEST:
            await self._start(leaving)

    async def _move_shard(self) -> None:
        """A shard moves to another broker by command."""
        row = await self._any_shard()
        target = self._random.choice([broker.name for broker in self._cluster.living if broker.name != row.broker])
        async with self._measured("shard moved"):
            await self._command(None, "move", str(row.shard), target)
            await self._until(lambda view: view.shards[row.shard].broker == target and self._all_run(view), "it moved")
        await self._command(None, "move", str(row.shard))

    async def _cut_links(self) -> None:
        """All links to some shards are cut, again and again for a while."""
        began = time.monotonic()
        row = await self._any_shard()
        async with self._measured("links cut", row.shard):
            while time.monotonic() - began < CUTTING:
                await asyncio.to_thread(cut_connections, int(row.address.rpartition(":")[2]))
                await asyncio.sleep(self._random.uniform(0.02, 0.4))

    # What they are made of.

    def _any_broker(self) -> ClusterBroker:
        return self._random.choice(self._cluster.living)

    async def _any_shard(self) -> ShardRow:
        view = await asyncio.to_thread(self._directory.read)
        return self._random.choice([view.shards[shard] for shard in sorted(view.shards)])

    async def _start(self, broker: ClusterBroker) -> None:
        async with self._measured("broker joined"):
            await asyncio.to_thread(self._cluster.start, broker.name)
            await self.wait_until_even()

    async def _command(self, broker: str | None, *arguments: str) -> None:
        """Have a broker do what ``quire cluster`` offers; any if none is named."""
        asked = self._cluster.brokers[broker] if broker else self._any_broker()
        command = ["cluster", *arguments, "--data", str(asked.data)]
        done = await asyncio.to_thread(quire, *command)
        assert done.returncode == 0, f"{command} ends with {done.returncode}: {done.stdout} {done.stderr}"

    def _all_run(self, view: View) -> bool:
        """Whether each shard runs at a living broker."""
        names = {broker.name for broker in self._cluster.living}
        return all([row.address and row.broker in names for row in view.shards.values()])

    async def _until(self, is_there: Callable[[View], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not is_there(view := await asyncio.to_thread(self._directory.read)):
            assert time.monotonic() < deadline, f"after {PATIENCE:g} s it is not so that {what}: {view}"
            await asyncio.sleep(0.05)

    @asynccontextmanager
    async def _measured(self, event: str, shard: int | None = None) -> AsyncIterator[None]:
        """Note for how long shards were not served: this one, or those that got another owner."""
        before = await asyncio.to_thread(self._directory.read)
        began = time.monotonic()
        yield
        await self._load.wait_until_served(time.monotonic())
        after = await asyncio.to_thread(self._directory.read)
        moved = [each for each, row in after.shards.items() if row.epoch != before.shards[each].epoch]
        for each in sorted({*moved, shard} - {None} if shard is not None else moved):
            self.outages.append(Outage(event, each, self._load.probes[each].longest_gap(began)))


def can_cut() -> bool:
    """Whether ss(8) may end connections here: that takes root and Linux."""
    with suppress(OSError):
        return os.geteuid() == 0 and subprocess.run(["ss", "-V"], capture_output=True, check=False).returncode == 0
    return False


def cut_connections(port: int) -> None:
    """End all connections to a port of this machine; both sides get an error."""
    done = subprocess.run(
        ["ss", "-K", "-tnH", "state", "established", f"( sport = :{port} or dport = :{port} )"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"ss(8) cannot end connections: {done.stderr}"
