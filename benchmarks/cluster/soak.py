"""A soak: things go wrong in a cluster under load, one after the other, and what has to be true at the end."""

import asyncio
import json
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Self

import psycopg

from benchmarks.cluster.load import STREAM_GROUPS, SoakLoad, read_stream
from benchmarks.takeover.rounds import Commits
from quire.cluster.cluster_map import ShardRow, View
from quire.cluster.directory import LEASE, Directory
from quire.server.cluster.shard_places import shard_url
from tests.acceptance.cluster.running_cluster import AnyBroker, ClusterBroker, RunningCluster, running_cluster
from tests.acceptance.crash.broker_process import QUIRE, START_SECONDS, quire
from tests.interop.brokers import JAVA
from tests.interop.java_build import class_path
from tests.interop.kills import Outcome
from tests.postgresql_server import run_server

PATIENCE = 120.0
"""How long the cluster may take to be as wanted, on a busy machine, in seconds."""

FEWEST = 3
"""How many brokers there are at the end of each round, at the least."""

CUTTING = 2.0
"""For how long links are cut again and again, in seconds."""


@dataclass(frozen=True)
class Outage:
    """How long a shard confirmed nothing."""

    event: str  # what happened to it
    shard: int
    seconds: float  # the longest time between two confirmations since then, of messages sent one after the other


class Faults:
    def __init__(self, cluster: RunningCluster, directory: Directory, load: SoakLoad, random: Random) -> None:
        self.outages: list[Outage] = []  # what was measured
        self.kinds: dict[str, Callable[[], Awaitable[None]]] = {
            "kill-broker": self._kill_broker, "kill-shard": self._kill_shard, "suspend-broker": self._suspend_broker,
            "suspend-shard": self._suspend_shard, "add-or-remove": self._add_or_remove, "move-shard": self._move_shard,
        }  # fmt: skip
        if can_cut():
            self.kinds["cut-links"] = self._cut_links
        self._cluster = cluster  # the brokers; the names of all that may run are added
        self._directory = directory  # the database of the cluster
        self._load = load  # the clients
        self._random = random  # what happens to which broker and shard

    async def run(self, kind: str) -> None:
        await asyncio.sleep(self._random.uniform(0.2, 2.0))
        await self.kinds[kind]()
        await self.wait_until_even()

    async def wait_until_even(self) -> None:
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


LINE = 6
"""The line of ActiveMQ's client."""

PAUSE_MS = 40
"""How long each of the four producers rests after a message or a transaction."""

_FAILOVER = "initialReconnectDelay=20&maxReconnectDelay=200"


class JavaLoad:
    """Two producers and two consumers of each mode: with transactions and without. A context manager."""

    def __init__(self, addresses: Sequence[str]) -> None:
        urls = ",".join([f"tcp://{address}?wireFormat.maxInactivityDuration=3000" for address in addresses])
        arguments = ["Load", f"failover:({urls})?{_FAILOVER}", str(PAUSE_MS)]
        self._command = [*JAVA, "-cp", class_path(f"client{LINE}", "java"), *arguments]

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, *_error: object) -> None:
        self._process.kill()
        self._process.communicate(timeout=START_SECONDS)

    async def finish(self) -> dict[str, Outcome]:
        output, _ = await asyncio.to_thread(self._process.communicate, "stop\n")
        lines = output.splitlines()
        assert lines[1:], "the Java program gave up; its messages above say why"
        return {mode: Outcome(**counts) for mode, counts in json.loads(lines[-1]).items()}


SHARDS = 6
BROKERS = ("athens", "berlin", "cairo", "delhi")
"""All that may run; the first three run at the beginning."""

SILENCE = 2.0
"""After so many seconds without a sign of life, clients look for another broker."""

PAUSE = 1.0
"""How long each producer rests after it has sent, in seconds: brokers, database and clients share this machine."""

LAST_SECONDS = 10.0
"""How long messages that no client has confirmed may take at the end."""

DEAD, CAUSE = "ActiveMQ.DLQ", "dlqDeliveryFailureCause"
"""The dead letter queue, and the header of a dead letter with what the client says."""


@dataclass(frozen=True)
class Plan:
    seconds: float  # for how long things go wrong; each kind that is named does once at the least
    seed: int  # of everything random
    queues: int = 100
    streams: int = 8
    kinds: Sequence[str] = ()  # of what goes wrong; all if empty
    java: bool = True  # whether there are Java clients
    program: Sequence[str] = tuple(QUIRE)  # what runs the command line of the brokers


@dataclass
class Result:
    """What came of it."""

    rounds: int  # how often something went wrong
    outages: list[Outage]  # how long shards were not served
    load: SoakLoad  # the STOMP clients
    java: dict[str, Outcome]  # what the Java clients know, by mode
    violations: list[str]  # promises that were broken, for people
    commits: list[Commits]  # what the database says of the owners of each shard
    missing: int  # how many messages were confirmed to STOMP clients and did not come
    left: dict[str, int]  # how many messages are in queues at the end, by name; the next ones apart
    suppressed: int  # dead letters that Java clients made of messages that they had: they take no message twice


async def run(plan: Plan, directory: Path, say: Callable[[str], None] = lambda text: None) -> Result:
    with ExitStack() as closing:
        server = closing.enter_context(run_server())
        cluster = closing.enter_context(
            running_cluster(server, directory, plan.program, CLUSTER__SHARDS=str(SHARDS), POLICY__PARTITIONS="2")
        )
        cluster.add(*BROKERS)
        await asyncio.to_thread(cluster.start, *BROKERS[:FEWEST])
        await asyncio.to_thread(cluster.wait_until_even)
        view = Directory(cluster.store)
        closing.callback(view.close)
        java = JavaLoad([broker.openwire_address for broker in cluster.brokers.values()]) if plan.java else None
        if java:
            closing.enter_context(java)
        try:
            soak = _Soak(plan, cluster, view, java, say)
            result = await soak.run()
        except BaseException:
            say(cluster.log)
            raise
        result.violations += await _stop(cluster, view)
    return result


class _Soak:
    def __init__(
        self, plan: Plan, cluster: RunningCluster, view: Directory, java: JavaLoad | None, say: Callable[[str], None]
    ) -> None:
        self._plan = plan
        self._cluster = cluster
        self._java = java
        self._say = say
        self._random = Random(plan.seed)
        self._violations: list[str] = []
        self._commits = [Commits(f"quire_shard_{shard}") for shard in range(SHARDS)]
        self._database = psycopg.connect(cluster.store, autocommit=True)
        place = AnyBroker(lambda: [broker.stomp[1] for broker in cluster.living], self._random)
        place.silence, place.pause = SILENCE, PAUSE
        place.ends_first = False  # a process that stands still keeps connections that their clients gave up
        self._load = SoakLoad(place, plan.queues, plan.streams, cluster.shard_of, SHARDS, self._random)
        self._faults = Faults(cluster, view, self._load, self._random)

    async def run(self) -> Result:
        with self._database:
            for commits in self._commits:
                commits.record(self._database)
            async with self._load:
                await self._load.wait_until_served(time.monotonic())
                rounds = await self._go_wrong()
                open_ones = await self._load.drain()
                java = await self._java.finish() if self._java else {}
                if open_ones:
                    found = f"not everything came: {open_ones[:10]}; errors that clients got: {self._load.errors}"
                    self._violations.append(found)
                await self._look()
                missing, left = self._load.missing, await self._left()
                suppressed = await asyncio.to_thread(self._suppressed) if DEAD in left else 0
                left = Counter(left) - Counter({DEAD: suppressed})
                await self._compare_streams()
                violations = [*self._violations, *self._load.violations]
        return Result(
            rounds, self._faults.outages, self._load, java, violations, self._commits, missing, left, suppressed
        )

    async def _go_wrong(self) -> int:
        """One thing after the other, until the time is over and all that are named were, or a promise is broken."""
        ends = time.monotonic() + self._plan.seconds
        rounds, kinds = 0, list[str]()
        while time.monotonic() < ends or rounds < len(self._plan.kinds):
            if not kinds:
                kinds = list(self._plan.kinds or self._faults.kinds)
                self._random.shuffle(kinds)
            kind, seen = kinds.pop(), len(self._faults.outages)
            await self._faults.run(kind)
            rounds += 1
            new = [f"{each.event} {each.shard} {each.seconds:.1f} s" for each in self._faults.outages[seen:]]
            self._say(f"{rounds}. {kind}: {', '.join(new)}; {self._load.confirmed} confirmed")
            if await self._look():
                break
        return rounds

    async def _look(self) -> bool:
        await asyncio.to_thread(self._read_commits)
        for (stream, group), log in self._load.streams.items():
            status, lag = await asyncio.to_thread(self._call, f"/groups/{stream}/{group}/lag")
            if status == 200:
                for partition in lag["partitions"]:
                    log.progress(partition["partition"], partition["base"])
        broken = [*self._violations, *self._load.violations]
        return bool(broken or [violation for commits in self._commits for violation in commits.violations])

    def _read_commits(self) -> None:
        for commits in self._commits:
            commits.read(self._database)

    async def _compare_streams(self) -> None:
        """Each group must have got all that its stream has."""
        for stream in dict.fromkeys([stream for stream, _ in self._load.streams]):
            host, port = self._cluster.living[0].stomp
            stored = await read_stream(host, port, stream)
            for group in STREAM_GROUPS:
                self._load.streams[stream, group].compare(stored)

    async def _left(self) -> dict[str, int]:
        """How many messages are left in which queues. A last one that no client has confirmed may be under way."""
        deadline = time.monotonic() + LAST_SECONDS
        while True:
            status, queues = await asyncio.to_thread(self._call, "/queues?limit=1000")
            left = {queue["name"]: queue["depth"] for queue in queues["queues"] if queue["depth"]}
            if (status == 200 and not left) or time.monotonic() > deadline:
                return left
            await asyncio.sleep(0.2)

    def _suppressed(self) -> int:
        """How many dead letters Java clients made of messages that they had before."""
        pages = [self._call(f"/queues/{DEAD}/messages?limit=1000&shard={shard}") for shard in range(SHARDS)]
        letters = [letter for status, page in pages if status == 200 for letter in page["messages"]]
        others = [letter for letter in letters if "Suppressing duplicate" not in letter["headers"].get(CAUSE, "")]
        for letter in others:
            self._say(f"a dead letter: {letter['headers']}")
        return len(letters) - len(others)

    def _call(self, path: str) -> tuple[int, Any]:
        while True:
            with suppress(ConnectionError):  # a process that stops resets the connections that it has not accepted
                return self._cluster.call(self._cluster.living[0].name, path)


async def _stop(cluster: RunningCluster, view: Directory) -> list[str]:
    stores = (await asyncio.to_thread(view.facts)).stores
    found = []
    for broker in cluster.living:
        broker.process.terminate()
    for broker in cluster.living:
        code = await asyncio.to_thread(broker.wait)
        found += [f"{broker.name} stopped with {code}"] if code else []
    for broker in cluster.brokers.values():
        found += [f"{broker.name} has logged a traceback:\n{broker.log[-5000:]}"] * ("Traceback" in broker.log)
    for shard in range(SHARDS):
        done = await asyncio.to_thread(
            quire, "store", "verify", "--store", shard_url(stores[shard % len(stores)], shard)
        )
        found += [f"the store of shard {shard} is damaged: {done.stdout} {done.stderr}"] * bool(done.returncode)
    return found
