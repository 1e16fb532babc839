"""Measures what work costs, and how far off the model is that extrapolates it."""

import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from msgspec.structs import replace

from benchmarks.machine import machine, versions
from benchmarks.scaling.bench import Run, running_bench
from benchmarks.scaling.costs import Check, Costs, Pace, Work
from benchmarks.scaling.fit import Fit, fit
from benchmarks.scaling.forecast import Setup, forecast
from benchmarks.scaling.idle import REST, measure_disk, measure_idle
from benchmarks.scaling.loads import Runs, run_checks, run_loads

Tell = Callable[[str], None]

STORED = ("sent", "taken", "sent_bytes", "taken_bytes", "commits")
"""What the database has to do with. The larger messages are, the fewer of them a row has that it adds or removes."""

CARRIED = ("sent", "taken", "sent_bytes", "taken_bytes", "trips")
"""What clients, entries and networks have to do with."""


def measure(directory: Path, rounds: int, tell: Tell) -> Costs:
    """Measure everything, on a cluster of its own.

    Args:
        directory: an empty one.
        rounds: how often each load is run.
        tell: is told what is measured.
    """
    disk = measure_disk(directory)
    with running_bench(directory) as bench:
        tell("a cluster at rest")
        rest = bench.rest(REST)
        tell("loads, directly and relayed")
        runs = run_loads(bench, rounds)
        tell("loads that check the model")
        checked = list(run_checks(bench, os.cpu_count() or 1))
        tell("connections and destinations")
        idle = measure_idle(bench, rest)
    fits = _fits(runs.without(rest))
    pace = _pace(runs.own)
    costs = Costs(
        measured=f"{datetime.now(UTC):%Y-%m-%d}", machine=machine(), versions=versions(),
        fit={name: found.error for name, found in fits.items()} | {"pace": pace.error},
        **{name: found.costs for name, found in fits.items()},
        acknowledge=_mean(runs.single) - _mean(runs.cumulative),
        pace=Pace(pace.costs.commits, pace.costs.sent, max([_records(run) / run.work.commits for run in runs.own])),
        idle=idle, disk=disk, checks=[],
    )  # fmt: skip
    return replace(costs, checks=[_check(costs, setup, run.without(rest)) for setup, run in checked])


def _fits(runs: Runs) -> dict[str, Fit]:
    """The costs of each kind of work; what relaying costs is more than the same loads cost directly."""
    own, relayed = [run.work for run in runs.own], [run.work for run in runs.relayed]
    broker = fit(own, [sum(run.brokers) for run in runs.own], Work._fields)
    wire = fit(own, [run.wire for run in runs.own], CARRIED)
    direct, carried = [[found.costs.cost(work) for work in relayed] for found in (broker, wire)]
    return {
        "broker": broker,
        "relay": fit(relayed, [sum(run.brokers) for run in runs.relayed], CARRIED, direct),
        "database": fit(own, [run.database for run in runs.own], STORED),
        "log": fit(own, [run.log for run in runs.own], STORED),
        "client": fit(own, [run.client for run in runs.own], CARRIED),
        "wire": wire,
        "link": fit(relayed, [run.wire for run in runs.relayed], CARRIED, carried),
    }


def _pace(runs: Sequence[Run]) -> Fit:
    """How long commits and their records take: these loads keep a shard committing."""
    amounts = [Work(commits=run.work.commits, sent=_records(run)) for run in runs]
    return fit(amounts, [run.seconds for run in runs], ("commits", "sent"))


def _records(run: Run) -> float:
    return run.work.sent + run.work.taken


def _mean(runs: Sequence[Run]) -> float:
    """Seconds of processor of the broker for a message that is taken."""
    return sum([sum(run.brokers) for run in runs]) / sum([run.work.taken for run in runs])


def _check(costs: Costs, setup: Setup, run: Run) -> Check:
    """What the model says of a load, and what it took."""
    said, messages = forecast(costs, setup), run.work.sent
    return Check(
        setup.name, setup.cores, setup.demand.rate,
        (said.rate, messages / run.seconds),
        (said.broker, sum(run.brokers) / messages),
        (said.database, run.database / messages),
        (said.log, run.log / messages),
    )  # fmt: skip
