"""One soak: a cluster, its clients, what goes wrong, and what has to be true at the end."""

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import psycopg

from benchmarks.cluster.faults import FEWEST, Faults, Outage
from benchmarks.cluster.java_load import JavaLoad
from benchmarks.cluster.load import STREAM_GROUPS, SoakLoad
from benchmarks.cluster.stored_stream import read_stream
from benchmarks.takeover.commits import Commits
from quire.cluster.directory import Directory
from quire.server.cluster.shard_places import shard_url
from tests.acceptance.cluster.running_cluster import AnyBroker, RunningCluster, running_cluster
from tests.acceptance.crash.broker_process import QUIRE, quire
from tests.interop.kills import Outcome
from tests.postgresql_server import run_server

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

PLANTED = [sys.executable, "-m", "benchmarks.cluster.planted"]
"""A broker whose shards have a planted fault, which is named next: a run with it has to find it."""


@dataclass(frozen=True)
class Plan:
    """What to do.

    Attributes:
        seconds: for how long things go wrong; each kind that is named does once at the least.
        seed: of everything random.
        queues: how many.
        streams: how many.
        kinds: of what goes wrong; all if empty.
        java: whether there are Java clients.
        program: what runs the command line of the brokers.
    """

    seconds: float
    seed: int
    queues: int = 100
    streams: int = 8
    kinds: Sequence[str] = ()
    java: bool = True
    program: Sequence[str] = tuple(QUIRE)


@dataclass
class Result:
    """What came of it.

    Attributes:
        rounds: how often something went wrong.
        outages: how long shards were not served.
        load: the STOMP clients.
        java: what the Java clients know, by mode.
        violations: promises that were broken, for people.
        commits: what the database says of the owners of each shard.
        missing: how many messages were confirmed to STOMP clients and did not come.
        left: how many messages are in queues at the end, by name; the next ones apart.
        suppressed: dead letters that Java clients made of messages that they had before: the acknowledgement was lost
            with the connection, and they take no message twice.
    """

    rounds: int
    outages: list[Outage]
    load: SoakLoad
    java: dict[str, Outcome]
    violations: list[str]
    commits: list[Commits]
    missing: int
    left: dict[str, int]
    suppressed: int


async def run(plan: Plan, directory: Path, say: Callable[[str], None] = lambda text: None) -> Result:
    """Do it.

    Args:
        plan: what.
        directory: an empty one, for the brokers.
        say: is told what happens, a line at a time.

    Raises:
        AssertionError: the cluster did not become what it should, or a store is damaged.
        NoServer: no PostgreSQL server can be run here.
        NoJavaTools: there are no Java clients here.
    """
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
    """One run, once the brokers are there."""

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
                is_whole = await self._load.finish()
                java = await self._java.finish() if self._java else {}
                if not is_whole:
                    self._violations.append(f"not everything came; errors that clients got: {self._load.errors}")
                await self._look()
                missing, left = self._load.missing, await self._left()
                suppressed = await asyncio.to_thread(self._suppressed) if DEAD in left else 0
                left = Counter(left) - Counter({DEAD: suppressed})
                await self._compare_streams()
                self._load.check_end()
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
        """Look at the record of commits and the progress of groups: whether a promise is broken."""
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
    """Stop all brokers and verify the stores: what is wrong."""
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
