"""A cluster of three brokers with a shard each under measurement: its loads, and the meters of what they take."""

import itertools
import os
import resource
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, LiteralString, NamedTuple

import psycopg

from benchmarks.load import no_tick
from benchmarks.scaling.capacity import Demand, Setup
from benchmarks.scaling.costs import Work, trips
from quire.cli.perf.load import Load, Target
from quire.cli.perf.measure import LOOK_INTERVAL, Crew, span
from quire.errors import BrokerUnreachable
from tests.acceptance.cluster.running_cluster import RunningCluster, running_cluster
from tests.postgresql_server import PostgresqlServer, run_server

_TICKS = os.sysconf("SC_CLK_TCK")


def process_seconds(pid: int) -> float:
    """Seconds of processor of the threads of a process."""
    return sum([int((path / "schedstat").read_text().split()[0]) for path in Path(f"/proc/{pid}/task").iterdir()]) / 1e9


def family_seconds(pid: int) -> float:
    """Seconds of processor of a process and its children, with those that have ended."""
    found = sum(map(int, _fields(pid)[13:15])) / _TICKS
    for member in family(pid):
        with suppress(OSError):  # it ends right now
            found += process_seconds(member)
    return found


def family(pid: int) -> list[int]:
    """A process and its children."""
    found = [pid]
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            if int(_fields(int(path.name))[1]) == pid:
                found.append(int(path.name))
    return found


def client_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum([one.ru_utime + one.ru_stime for one in used])


def loopback_bytes() -> float:
    return float(Path("/sys/class/net/lo/statistics/rx_bytes").read_text())


def own_memory(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (kilobytes,) = [line.split()[1] for line in lines if line.startswith("RssAnon:")]
    return float(kilobytes) * 1024


def pin(pid: int, cores: set[int]) -> None:
    """Have all threads of a process, and those that it will start, run on these cores only."""
    for path in Path(f"/proc/{pid}/task").iterdir():
        with suppress(ProcessLookupError):
            os.sched_setaffinity(int(path.name), cores)


def _fields(pid: int) -> list[str]:
    """What ``/proc`` says of a process after its name, which is in brackets and may have spaces."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


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
    work: Work  # what was done
    seconds: float  # from the first SEND to the last answer
    brokers: tuple[float, ...]  # seconds of processor of each broker
    database: float
    client: float  # of the programs that made the load
    log: float  # bytes of the database's log
    wire: float  # bytes over the loopback interface

    def without(self, rest: "Run") -> "Run":
        """The same without what brokers and database take anyway, as they did while nothing was done."""
        share = self.seconds / rest.seconds
        brokers = [max(0.0, mine - share * idle) for mine, idle in zip(self.brokers, rest.brokers, strict=True)]
        return self._replace(brokers=tuple(brokers), database=self.database - share * rest.database)


class Bench:
    """The running cluster; ``running_bench`` starts it."""

    def __init__(self, server: PostgresqlServer, cluster: RunningCluster, directory: Path) -> None:
        found = cluster.call(BROKERS[0], "/cluster")[1]["shards"]
        brokers = [cluster.brokers[shard["broker"]] for shard in found]
        self.shards = [int(shard["pid"]) for shard in found]  # the process of each shard
        self.entries = [Target("127.0.0.1", broker.port()) for broker in brokers]
        self._supervisors = [broker.process.pid for broker in brokers]
        self._cluster = cluster
        self._postmaster = int((server.directory / "data" / "postmaster.pid").read_text().split()[0])
        self._place = f"host={server.directory} user=quire dbname={server.schema_of(directory)}"
        self._names = (f"scaling.{number}" for number in itertools.count())

    def queue_at(self, shard: int) -> str:
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
        before = self._read()
        time.sleep(seconds)
        return self._since(before, seconds, [], sends=False, takes=False)

    def database_connections(self) -> int:
        return int(self._ask(_CONNECTIONS))

    @contextmanager
    def on_one_core(self) -> Iterator[None]:
        cores = os.sched_getaffinity(0)
        members = [os.getpid(), *family(self._postmaster), *self.shards, *self._supervisors]
        try:
            for pid in members:
                pin(pid, {min(cores)})
            yield
        finally:
            for pid in members:
                pin(pid, cores)

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
        return Run(
            Work(commits=float(self._ask(_COMMITS))),
            0.0,
            tuple([sum(map(process_seconds, pids)) for pids in zip(self.shards, self._supervisors, strict=True)]),
            family_seconds(self._postmaster),
            client_seconds(),
            float(self._ask(_WAL)),
            loopback_bytes(),
        )

    def _ask(self, statement: LiteralString) -> float:
        with psycopg.connect(self._place, autocommit=True) as connection:
            cursor = connection.execute(statement)
            row = cursor.fetchone() if cursor.description else None
            return float(row[0]) if row else 0.0


def _work(jobs: Sequence[Job], commits: float, *, sends: bool, takes: bool) -> Work:
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
    with run_server(durable=True) as server, running_cluster(server, directory, CLUSTER__SHARDS="3") as cluster:
        cluster.start(*BROKERS)
        cluster.wait_until_even()
        yield Bench(server, cluster, directory)


KIB = 1024


class Runs(NamedTuple):
    own: list[Run]  # loads whose clients are connected to the shard of the queue
    relayed: list[Run]  # loads whose clients are connected to another one
    single: list[Run]  # messages that are taken with an ACK for each
    cumulative: list[Run]  # messages that are taken with an ACK for many

    def without(self, rest: Run) -> "Runs":
        return Runs(*[[run.without(rest) for run in part] for part in self])


def run_loads(bench: Bench, rounds: int) -> Runs:
    runs = Runs([], [], [], [])
    for _ in range(rounds):
        sent, taken = bench.apart(_job(bench, 30_000))
        runs.own.extend([sent, taken, *bench.apart(_job(bench, 4_000, size=8 * KIB, window=64))])
        runs.own.append(bench.together([_job(bench, 30_000)]))
        runs.own.append(bench.together([_job(bench, 20_000, producers=4, consumers=2, window=16)]))
        runs.own.append(bench.together([_job(bench, 8_000, producers=8, consumers=8, window=1)]))
        runs.own.append(bench.together([_job(bench, 2_000, window=1)]))
        runs.single.append(taken)
        runs.cumulative.append(bench.apart(_job(bench, 30_000, ack="client", ack_every=0))[1])
        runs.relayed.extend(bench.apart(_job(bench, 30_000, entry=1)))
        runs.relayed.extend(bench.apart(_job(bench, 4_000, entry=1, size=8 * KIB, window=64)))
        runs.relayed.append(bench.together([_job(bench, 8_000, entry=1, producers=8, consumers=8, window=1)]))
    return runs


def run_checks(bench: Bench, cores: int) -> Iterator[tuple[Setup, Run]]:
    large = [_job(bench, 10_000, size=4 * KIB, window=128)]
    yield _setup("1 queue, messages of 4 KiB", large, cores), bench.together(large)
    for used in (cores, 1):
        many = [_job(bench, 30_000, producers=8, consumers=4)]
        with bench.on_one_core() if used == 1 else nullcontext():
            yield _setup("1 queue, 8 producers, 4 consumers", many, used), bench.together(many)
    for messages, rate in ((4_000, 0.0), (2_000, 3_000.0)):
        everywhere = [(shard, entry) for shard in range(3) for entry in range(3)]
        nine = [_job(bench, messages, shard, entry, window=64, rate=rate / 9) for shard, entry in everywhere]
        yield _setup("9 queues of 3 shards, 2/3 relayed", nine, cores), bench.together(nine)


def _job(bench: Bench, messages: int, shard: int = 0, entry: int = 0, size: int = KIB, **changes: Any) -> Job:
    return Job(shard, entry, Load(messages, size, queue=bench.queue_at(shard), random=True, **changes))


def _setup(name: str, jobs: list[Job], cores: int) -> Setup:
    loads = [job.load for job in jobs]
    producers, consumers = sum([load.producers for load in loads]), sum([load.consumers for load in loads])
    rate = sum([load.rate for load in loads])
    demand = Demand(rate, loads[0].size, len(jobs), 1, producers, consumers, producers + consumers)
    relayed = sum([job.entry != job.shard for job in jobs]) / len(jobs)
    return Setup(name, demand, loads[0].window, len({job.shard for job in jobs}), relayed, cores)
