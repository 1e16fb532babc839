"""Measures everything that the model needs, at rest and under loads."""

import os
import socket
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from pathlib import Path

from msgspec.structs import replace

from benchmarks.rig import machine, versions
from benchmarks.scaling.bench import BROKERS, Bench, Run, Runs, own_memory, run_checks, run_loads, running_bench
from benchmarks.scaling.capacity import Setup, forecast
from benchmarks.scaling.costs import Check, Costs, Disk, Fit, Idle, Pace, Work, fit
from benchmarks.stomp_client import Consumer, send_all, send_frame

REST = 6.0
"""How long the cluster is watched, in seconds."""

CONNECTIONS = 1000
DESTINATIONS = 3000
SUBSCRIPTIONS = 1000
"""Of each connection: that is the limit."""
HEART_BEAT = b"CONNECT\naccept-version:1.2\nhost:/\nheart-beat:0,1000\n\n\0"
"""The broker sends to this client each second."""

WRITTEN = 0.7
"""How long the disk is written to each time, in seconds."""


def measure_idle(bench: Bench, rest: Run) -> Idle:
    shards = len(BROKERS)
    empty = _memory(bench)
    with ExitStack() as stack:
        for _ in range(CONNECTIONS):
            connection = stack.enter_context(closing(socket.create_connection(bench.entries[0][:2])))
            connection.sendall(HEART_BEAT)
            connection.recv(4096)
        connected = _memory(bench)
        beating = bench.rest(REST)
    names = [f"many.{number}" for number in range(DESTINATIONS)]
    before = _memory(bench)
    send_all(bench.entries[0], [send_frame(name, b"x") for name in names])
    created = _memory(bench)
    with ExitStack() as stack:
        for first in range(0, DESTINATIONS, SUBSCRIPTIONS):
            wanted = [f"/queue/{name}" for name in names[first : first + SUBSCRIPTIONS]]
            consumer = stack.enter_context(closing(Consumer(bench.entries[0], wanted[0])))
            consumer.subscribe(wanted[1:])
            consumer.confirm()
        subscribed = _memory(bench)
    beats = sum(beating.brokers) - sum(rest.brokers)
    return Idle(
        sum(rest.brokers) / shards / rest.seconds, rest.database / shards / rest.seconds,
        max(0.0, beats / CONNECTIONS / beating.seconds), bench.database_connections() / shards,
        empty / shards, (connected - empty) / CONNECTIONS,
        (created - before) / DESTINATIONS, (subscribed - created) / DESTINATIONS,
    )  # fmt: skip


def measure_disk(directory: Path) -> Disk:
    """Measure synced writes of a mebibyte, as a log has them under load, and of a page."""
    rates = []
    for block in (os.urandom(1 << 20), os.urandom(8192)):
        with tempfile.TemporaryFile(dir=directory) as file:
            began, count = time.monotonic(), 0
            while time.monotonic() - began < WRITTEN:
                file.write(block)
                file.flush()
                os.fdatasync(file.fileno())
                count += 1
            rates.append(count / (time.monotonic() - began))
    return Disk(rates[0] * (1 << 20), rates[1])


def _memory(bench: Bench) -> float:
    return sum([own_memory(pid) for pid in bench.shards])


Tell = Callable[[str], None]

STORED = ("sent", "taken", "sent_bytes", "taken_bytes", "commits")
"""What the database has to do with. The larger messages are, the fewer of them a row has that it adds or removes."""

CARRIED = ("sent", "taken", "sent_bytes", "taken_bytes", "trips")
"""What clients, entries and networks have to do with."""


def measure(directory: Path, rounds: int, tell: Tell) -> Costs:
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
    return sum([sum(run.brokers) for run in runs]) / sum([run.work.taken for run in runs])


def _check(costs: Costs, setup: Setup, run: Run) -> Check:
    said, messages = forecast(costs, setup), run.work.sent
    return Check(
        setup.name, setup.cores, setup.demand.rate,
        (said.rate, messages / run.seconds),
        (said.broker, sum(run.brokers) / messages),
        (said.database, run.database / messages),
        (said.log, run.log / messages),
    )  # fmt: skip
