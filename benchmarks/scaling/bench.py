"""A cluster of three brokers with a shard each, on a PostgreSQL server of its own, under measurement."""

import itertools
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import LiteralString, NamedTuple

import psycopg

from benchmarks.load import no_tick
from benchmarks.scaling import meters
from benchmarks.scaling.costs import Work, trips
from quire.cli.perf.load import Load, Target
from quire.cli.perf.measure import LOOK_INTERVAL, Crew, span
from quire.errors import BrokerUnreachable
from tests.acceptance.cluster.running_cluster import RunningCluster, running_cluster
from tests.postgresql_server import PostgresqlServer, run_server

BROKERS = ("athens", "berlin", "cairo")
PATIENCE = 30.0
"""How long the brokers may take until they know each other, in seconds."""

_WAL: LiteralString = "SELECT (pg_current_wal_insert_lsn() - '0/0')::float8"
_COMMITS: LiteralString = (
    "SELECT (SELECT commit FROM quire_shard_0.owner) + (SELECT commit FROM quire_shard_1.owner)"
    " + (SELECT commit FROM quire_shard_2.owner)"
)
_CONNECTIONS: LiteralString = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
)
_VACUUM: LiteralString = (
    "VACUUM quire_shard_0.pages, quire_shard_0.lanes, quire_shard_0.owner, quire_shard_1.pages, quire_shard_1.lanes,"
    " quire_shard_1.owner, quire_shard_2.pages, quire_shard_2.lanes, quire_shard_2.owner"
)


class Job(NamedTuple):
    """A load of a destination of one shard, whose clients connect to the broker of another shard or of the same."""

    shard: int
    entry: int
    load: Load


class Run(NamedTuple):
    """What jobs took together.

    Attributes:
        work: what was done.
        seconds: from the first SEND to the last answer.
        brokers: seconds of processor of each broker.
        database: of the database.
        client: of the programs that made the load.
        log: bytes of the database's log.
        wire: bytes over the loopback interface.
    """

    work: Work
    seconds: float
    brokers: tuple[float, ...]
    database: float
    client: float
    log: float
    wire: float

    def without(self, rest: "Run") -> "Run":
        """The same without what brokers and database take anyway, as they did while nothing was done."""
        share = self.seconds / rest.seconds
        brokers = [max(0.0, mine - share * idle) for mine, idle in zip(self.brokers, rest.brokers, strict=True)]
        return self._replace(brokers=tuple(brokers), database=self.database - share * rest.database)


class Bench:
    """The running cluster; ``running_bench`` starts it.

    Attributes:
        entries: where clients connect, by the shard that the broker has.
        shards: the process of each shard.
    """

    def __init__(self, server: PostgresqlServer, cluster: RunningCluster, directory: Path) -> None:
        found = cluster.call(BROKERS[0], "/cluster")[1]["shards"]
        brokers = [cluster.brokers[shard["broker"]] for shard in found]
        self.shards = [int(shard["pid"]) for shard in found]
        self.entries = [Target("127.0.0.1", broker.port()) for broker in brokers]
        self._supervisors = [broker.process.pid for broker in brokers]
        self._cluster = cluster
        self._postmaster = int((server.directory / "data" / "postmaster.pid").read_text().split()[0])
        self._place = f"host={server.directory} user=quire dbname={server.schema_of(directory)}"
        self._names = (f"scaling.{number}" for number in itertools.count())

    def queue_at(self, shard: int) -> str:
        """The name of a new queue of a shard."""
        return next(name for name in self._names if self._shard_of(name) == shard)

    def _shard_of(self, name: str) -> int:
        deadline = time.monotonic() + PATIENCE
        while True:
            status, answer = self._cluster.call(BROKERS[0], f"/cluster/places/queue/{name}")
            if status == 200:
                return int(answer["shard"])
            if time.monotonic() > deadline:  # a broker that has just started may not know all shards yet
                raise BrokerUnreachable(f"no place of {name}: {answer}")
            time.sleep(LOOK_INTERVAL)

    def together(self, jobs: Sequence[Job]) -> Run:
        """Send and take at once."""
        with ExitStack() as stack:
            crews = [stack.enter_context(self._crew(job)) for job in jobs]
            for crew in crews:
                crew.start_consumers()
            before = self._read()
            for crew in crews:
                crew.start_producers()
            for crew in crews:
                crew.finish()
            producers = [slot for crew in crews for slot in crew.producers]
            everyone = [slot for crew in crews for slot in (*crew.producers, *crew.consumers)]
            return self._since(before, span(producers, everyone), jobs, sends=True, takes=True)

    def apart(self, job: Job) -> tuple[Run, Run]:
        """Send everything, then take it."""
        with self._crew(job) as crew:
            before = self._read()
            crew.start_producers()
            crew.finish()
            sent = self._since(before, span(crew.producers, crew.producers), [job], sends=True, takes=False)
            before = self._read()
            crew.start_consumers()
            crew.finish()
            taken = self._since(before, span(crew.consumers, crew.consumers), [job], sends=False, takes=True)
        return sent, taken

    def rest(self, seconds: float) -> Run:
        """Do nothing for so long."""
        before = self._read()
        time.sleep(seconds)
        return self._since(before, seconds, [], sends=False, takes=False)

    def database_connections(self) -> int:
        """How many connections the brokers have to the database."""
        return int(self._ask(_CONNECTIONS))

    @contextmanager
    def on_one_core(self) -> Iterator[None]:
        """Have brokers, database and clients share one core."""
        cores = os.sched_getaffinity(0)
        members = [os.getpid(), *meters.family(self._postmaster), *self.shards, *self._supervisors]
        try:
            for pid in members:
                meters.pin(pid, {min(cores)})
            yield
        finally:
            for pid in members:
                meters.pin(pid, cores)

    def _crew(self, job: Job) -> Crew:
        return Crew(self.entries[job.entry], job.load, no_tick)

    def _since(self, before: Run, seconds: float, jobs: Sequence[Job], *, sends: bool, takes: bool) -> Run:
        """What was taken since a reading; also by the removal of dead rows, which the store does from time to time."""
        self._ask(_VACUUM)
        now = self._read()
        work = _work(jobs, now.work.commits - before.work.commits, sends=sends, takes=takes)
        brokers = tuple([after - earlier for after, earlier in zip(now.brokers, before.brokers, strict=True)])
        rest = [after - earlier for after, earlier in zip(now[3:], before[3:], strict=True)]
        return Run(work, seconds, brokers, *rest)

    def _read(self) -> Run:
        """What was taken so far."""
        return Run(
            Work(commits=float(self._ask(_COMMITS))),
            0.0,
            tuple(
                [sum(map(meters.process_seconds, pids)) for pids in zip(self.shards, self._supervisors, strict=True)]
            ),
            meters.family_seconds(self._postmaster),
            meters.client_seconds(),
            float(self._ask(_WAL)),
            meters.loopback_bytes(),
        )

    def _ask(self, statement: LiteralString) -> float:
        with psycopg.connect(self._place, autocommit=True) as connection:
            cursor = connection.execute(statement)
            row = cursor.fetchone() if cursor.description else None
            return float(row[0]) if row else 0.0


def _work(jobs: Sequence[Job], commits: float, *, sends: bool, takes: bool) -> Work:
    """What jobs have done, all shards alike."""
    messages = sum([job.load.messages for job in jobs])
    size = sum([job.load.messages * job.load.size for job in jobs])
    sent, sent_bytes = (messages, size) if sends else (0, 0)
    taken, taken_bytes = (messages, size) if takes else (0, 0)
    shards = len({job.shard for job in jobs}) or 1
    producers, consumers = [sum([getattr(job.load, who) for job in jobs]) for who in ("producers", "consumers")]
    both = trips(sent, producers, commits / shards) + trips(taken, consumers, commits / shards)
    return Work(sent, taken, sent_bytes, taken_bytes, commits, both)


@contextmanager
def running_bench(directory: Path) -> Iterator[Bench]:
    """Run a cluster in a directory."""
    with run_server(durable=True) as server, running_cluster(server, directory, CLUSTER__SHARDS="3") as cluster:
        cluster.start(*BROKERS)
        cluster.wait_until_even()
        yield Bench(server, cluster, directory)
