"""What a second broker costs, and shards of one machine: times of confirmations, rates, time of processors."""

import os
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks.load import no_tick
from benchmarks.rig import OwnBroker
from quire.cli.output import Column
from quire.cli.perf.load import Link, Load, Target
from quire.cli.perf.measure import Crew, percentiles, span
from quire.cluster.cluster_map import shard_of_key
from tests.acceptance.cluster.running_cluster import RunningCluster, cluster_store, running_cluster
from tests.postgresql_server import run_server

BROKERS = ("athens", "berlin", "cairo")
CLIENTS = 6
"""How many queues there are, each with a producer and a consumer."""

WARM_UP = 200
"""Messages that go before those that are measured."""


LATENCY_COLUMNS = [
    Column("path", "Queue"), Column("messages", "Messages"), Column("p50", "p50 ms"), Column("p99", "p99 ms"),
]  # fmt: skip
RATE_COLUMNS = [
    Column("brokers", "Brokers"), Column("clients", "Clients"), Column("per_s", "Messages/s"),
    Column("processor_ms", "Processor ms per message"),
]  # fmt: skip


SHARD_COLUMNS = [
    Column("shards", "Shards"), Column("per_s", "Messages/s"), Column("processor_us", "Processor us per message"),
]  # fmt: skip
MODEL_COLUMNS = [
    Column("cores", "Cores, shards"), Column("processor_us", "Processor us per message"),
    Column("per_s", "Messages/s if clients are elsewhere"),
]  # fmt: skip


class ShardRate(NamedTuple):
    """How fast a broker of one machine went, on LMDB, and what a message took of all its processes."""

    shards: int
    per_s: int
    processor_us: float


class Model(NamedTuple):
    """What so many cores should do: each message is sent and taken at a random process, as connections come in."""

    cores: int
    processor_us: float
    per_s: int


class Latency(NamedTuple):
    path: str
    messages: int
    p50: float
    p99: float


class Rate(NamedTuple):
    """How fast messages went, all clients together."""

    brokers: int  # how many brokers, each with one shard and a database server
    clients: str  # where clients connect
    per_s: int  # messages per second, sent, confirmed, taken and acknowledged
    processor_ms: float  # milliseconds of processor that a message took on the cores of brokers and database servers


def latencies(directory: Path, messages: int, rounds: int) -> list[Latency]:
    with ExitStack() as stack:
        cluster = _start(stack, directory, BROKERS)
        shards = _shards(cluster)
        entry = cluster.brokers["athens"]
        queues = {"at the client's broker": _queue_at(cluster, shards["athens"], "near")}
        queues["at another broker"] = _queue_at(cluster, shards["berlin"], "far")
        times: dict[str, list[float]] = {path: [] for path in queues}
        with closing(Link(Target(*entry.stomp))) as link:
            for queue in queues.values():
                _confirm(link, queue, WARM_UP)
            for _ in range(rounds):
                for path, queue in queues.items():
                    times[path] += _confirm(link, queue, messages)
    found = {path: percentiles(each) for path, each in times.items()}
    return [Latency(path, len(times[path]), shares["p50"], shares["p99"]) for path, shares in found.items()]


def rates(directory: Path, messages: int, server_cores: set[int], client_cores: set[int]) -> list[Rate]:
    found = []
    for brokers in (BROKERS[:1], BROKERS):
        with ExitStack() as stack:
            ours = os.sched_getaffinity(0)
            stack.callback(os.sched_setaffinity, 0, ours)
            os.sched_setaffinity(0, server_cores)  # what is started now stays there
            place = directory / f"brokers-{len(brokers)}"
            place.mkdir()
            cluster = _start(stack, place, brokers)
            os.sched_setaffinity(0, client_cores)
            shards = _shards(cluster)
            owners = [brokers[number % len(brokers)] for number in range(CLIENTS)]
            queues = [_queue_at(cluster, shards[owner], f"q{number}") for number, owner in enumerate(owners)]
            ways = {"at the broker of their queue": owners}
            if len(brokers) > 1:
                ways["at the next broker"] = [brokers[(brokers.index(owner) + 1) % len(brokers)] for owner in owners]
            for way, entries in ways.items():
                targets = [Target(*cluster.brokers[entry].stomp) for entry in entries]
                _run(targets, queues, CLIENTS * WARM_UP)
                before = _busy_seconds(server_cores)
                elapsed = _run(targets, queues, messages)
                used = _busy_seconds(server_cores) - before
                found.append(Rate(len(brokers), way, round(messages / elapsed), round(used / messages * 1000, 3)))
    return found


def shard_rates(directory: Path, messages: int, rounds: int) -> tuple[list[ShardRate], list[Model]]:
    """The same clients with a broker of one process and with one of two, in turn: medians, and what follows for more.

    Clients connect to the one port of both, so half of them are at the process that has not their queue.

    Args:
        directory: an empty one.
        messages: how many in each measurement, of all clients together.
        rounds: how many measurements of each.
    """
    queues = {shards: [_queue_of(number, shards) for number in range(CLIENTS)] for shards in (1, 2)}
    found: dict[int, list[tuple[float, float]]] = {1: [], 2: []}
    for turn in range(rounds):
        for shards in (1, 2) if turn % 2 == 0 else (2, 1):
            place = directory / f"{turn}-{shards}"
            place.mkdir()
            with OwnBroker(place, {"shards": str(shards)}) as broker:
                while shards > 1 and len(broker.events("cluster.shard-running")) < shards:
                    time.sleep(0.05)
                targets = [broker.target] * CLIENTS
                _run(targets, queues[shards], CLIENTS * WARM_UP)
                before = _processor_seconds(broker.pid)
                elapsed = _run(targets, queues[shards], messages)
                used = _processor_seconds(broker.pid) - before
                found[shards].append((messages / elapsed, used / messages * 1e6))
    rates = [
        ShardRate(shards, round(median([rate for rate, _ in each])), round(median([used for _, used in each]), 1))
        for shards, each in found.items()
    ]
    alone, both = rates[0].processor_us, rates[1].processor_us
    models = []
    for cores in (4, 8, 16):
        used = alone + 2 * (both - alone) * (cores - 1) / cores
        models.append(Model(cores, round(used, 1), round(cores / used * 1e6)))
    return rates, models


def _queue_of(number: int, shards: int) -> str:
    """A name of which each shard has as many."""
    names = (f"q{number}.{again}" for again in range(1000))
    return next(name for name in names if shard_of_key(f"queue://{name}", shards) == number % shards)


def _processor_seconds(process: int) -> float:
    """What a process and those that it started have taken."""
    children: dict[int, list[int]] = {}
    times: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            fields = path.read_text().rpartition(")")[2].split()
            number = int(path.parent.name)
            children.setdefault(int(fields[1]), []).append(number)
            times[number] = int(fields[11]) + int(fields[12])
    total, family = 0, [process]
    while family:
        number = family.pop()
        total += times.get(number, 0)
        family += children.get(number, [])
    return total / os.sysconf("SC_CLK_TCK")


def _start(stack: ExitStack, directory: Path, brokers: Sequence[str]) -> RunningCluster:
    """A cluster in which each broker has one shard, on a database server of its own that syncs to disk."""
    servers = [stack.enter_context(run_server(durable=True)) for _ in brokers]
    stores = [cluster_store(server, directory / str(number)) for number, server in enumerate(servers)]
    settings = {"CLUSTER__SHARDS": str(len(brokers)), "CLUSTER__STORES": " ".join(stores)}
    cluster = stack.enter_context(running_cluster(servers[0], directory, **settings))
    cluster.start(*brokers)
    cluster.wait_until_even()
    return cluster


def _shards(cluster: RunningCluster) -> dict[str, int]:
    return {str(broker): shard for shard, broker in cluster.owners().items()}


def _queue_at(cluster: RunningCluster, shard: int, name: str) -> str:
    for number in range(1000):
        status, place = cluster.call(cluster.living[0].name, f"/cluster/places/queue/{name}.{number}")
        if status == 200 and place["shard"] == shard:
            return f"{name}.{number}"
    raise AssertionError(f"no queue is at shard {shard}")


def _confirm(link: Link, queue: str, messages: int) -> list[float]:
    load = Load(messages, queue=queue)
    times = []
    for frame in load.frames(0, messages, messages - 1, 0.0):
        began = time.monotonic()
        link.send(frame)
        link.receive_until(b"RECEIPT\n")
        times.append(time.monotonic() - began)
    return times


def _run(targets: Sequence[Target], queues: Sequence[str], messages: int) -> float:
    loads = [Load(messages // len(queues), queue=queue) for queue in queues]
    with ExitStack() as stack:
        crews = [stack.enter_context(Crew(target, load, no_tick)) for target, load in zip(targets, loads, strict=True)]
        for crew in crews:
            crew.start_consumers()
        for crew in crews:
            crew.start_producers()
        for crew in crews:
            crew.finish()
        producers = [slot for crew in crews for slot in crew.producers]
        return span(producers, [*producers, *[slot for crew in crews for slot in crew.consumers]])


def _busy_seconds(cores: set[int]) -> float:
    """For how long processors have worked."""
    busy = 0
    for line in Path("/proc/stat").read_text().splitlines():
        name, *ticks = line.split()
        if name.startswith("cpu") and name[3:].isdigit() and int(name[3:]) in cores:
            user, nice, system, _idle, _waiting, interrupts, soft_interrupts = map(int, ticks[:7])
            busy += user + nice + system + interrupts + soft_interrupts
    return busy / os.sysconf("SC_CLK_TCK")
