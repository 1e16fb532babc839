"""The loads of a measurement: those that the costs are derived from, and others that check what the model says."""

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any, NamedTuple

from benchmarks.scaling.bench import Bench, Job, Run
from benchmarks.scaling.capacity import Demand
from benchmarks.scaling.forecast import Setup
from quire.cli.perf.load import Load

KIB = 1024


class Runs(NamedTuple):
    """What was measured to derive costs from.

    Attributes:
        own: loads whose clients are connected to the shard of the queue.
        relayed: loads whose clients are connected to another one.
        single: messages that are taken with an ACK for each.
        cumulative: messages that are taken with an ACK for many.
    """

    own: list[Run]
    relayed: list[Run]
    single: list[Run]
    cumulative: list[Run]

    def without(self, rest: Run) -> "Runs":
        """The same without what the cluster takes anyway, as it did at rest."""
        return Runs(*[[run.without(rest) for run in part] for part in self])


def run_loads(bench: Bench, rounds: int) -> Runs:
    """Run each load so many times."""
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
    """Run loads that differ from those above: what each is, and what it took."""
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
    """A load of a new queue."""
    return Job(shard, entry, Load(messages, size, queue=bench.queue_at(shard), random=True, **changes))


def _setup(name: str, jobs: list[Job], cores: int) -> Setup:
    loads = [job.load for job in jobs]
    producers, consumers = sum([load.producers for load in loads]), sum([load.consumers for load in loads])
    rate = sum([load.rate for load in loads])
    demand = Demand(rate, loads[0].size, len(jobs), 1, producers, consumers, producers + consumers)
    relayed = sum([job.entry != job.shard for job in jobs]) / len(jobs)
    return Setup(name, demand, loads[0].window, len({job.shard for job in jobs}), relayed, cores)
