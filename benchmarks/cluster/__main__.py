"""Clusters of three brokers on PostgreSQL, with what goes wrong with them and what they cost."""

import asyncio
import os
import secrets
import sys
from pathlib import Path

import click

from benchmarks.cluster.cost import (
    LATENCY_COLUMNS,
    MODEL_COLUMNS,
    RATE_COLUMNS,
    SHARD_COLUMNS,
    latencies,
    rates,
    shard_rates,
)  # fmt: skip
from benchmarks.cluster.demo import BROKERS, demo
from benchmarks.cluster.report import OUTAGE_COLUMNS, findings, rows
from benchmarks.cluster.soak import Plan, can_cut, run
from benchmarks.rig import machine, temporary_directory, unwind_on_sigterm, versions
from benchmarks.scenarios.scenario import report
from benchmarks.takeover.planted import FAULTS, PLANTED
from quire.cli.output import Output, output_option
from tests.acceptance.crash.broker_process import QUIRE
from tests.interop.java_build import NoJavaTools, class_path
from tests.postgresql_server import NoServer


@click.group()
@output_option
def main() -> None:
    """Run a cluster of brokers on a PostgreSQL server of its own. The exit code is 1 if a promise was broken."""
    unwind_on_sigterm()


@main.command("demo")
@click.option("--queues", type=click.IntRange(1), default=12, show_default=True, help="How many, each with clients.")
@click.option("--victim", type=click.Choice(BROKERS), default="berlin", show_default=True, help="Who is killed.")
@click.pass_context
def demo_command(context: click.Context, queues: int, victim: str) -> None:
    """Three brokers under load, one of which is killed: who took over, when, and what was lost."""
    context.exit(0 if demo(queues, victim) else 1)


@main.command()
@click.option(
    "--minutes", type=click.FloatRange(0), default=10, show_default=True, help="For how long things go wrong."
)
@click.option("--seed", type=int, help="Of everything random; a random one otherwise.")
@click.option("--queues", type=click.IntRange(10), default=100, show_default=True, help="How many.")
@click.option("--streams", type=click.IntRange(0), default=8, show_default=True, help="How many.")
@click.option("--kind", "kinds", multiple=True, help="Only things of this kind go wrong: kill-broker, say; repeatable.")
@click.option("--java/--no-java", default=True, show_default=True, help="Whether there are Java clients.")
@click.option("--fault", type=click.Choice(list(FAULTS)), help="Brokers with this planted fault: the run must fail.")
@click.option("--keep", is_flag=True, help="Leave the data of the brokers and their logs behind.")
@click.pass_context
def soak(
    context: click.Context, minutes: float, seed: int | None, queues: int, streams: int, kinds: tuple[str, ...],
    java: bool, fault: str | None, keep: bool,
) -> None:  # fmt: skip
    """Kill, suspend, add, remove and cut off brokers under load, and look whether they keep all promises."""
    output: Output = context.obj
    if java:
        try:
            class_path("client6", "java")
        except NoJavaTools as error:
            output.note(f"there are no Java clients here: {error}")
            java = False
    if not can_cut():
        output.note("no links are cut here: that takes root and ss(8)")
    seed = secrets.randbelow(1_000_000) if seed is None else seed
    plan = Plan(minutes * 60, seed, queues, streams, kinds, java, [*PLANTED, fault] if fault else QUIRE)
    with temporary_directory(keep) as directory:
        output.note(f"seed {seed}, in {directory}")
        result = asyncio.run(run(plan, Path(directory), output.note))
    for violation in [*result.violations, *[each for commits in result.commits for each in commits.violations]][:50]:
        output.note(f"broken: {violation}")
    for queue, depth in result.left.items():
        output.note(f"left in {queue}: {depth}")
    for mode, outcome in result.java.items():
        output.note(f"Java, {mode}: {outcome}")
    output.rows(rows(result.outages), OUTAGE_COLUMNS)
    context.exit(report(output, findings(result)))


@main.command()
@click.option(
    "--messages", type=click.IntRange(100), default=30_000, show_default=True, help="Of all clients together."
)
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True, help="Of 1000 confirmations each.")
@click.pass_context
def cost(context: click.Context, messages: int, rounds: int) -> None:
    """What a second broker costs: the time of a confirmation, and the rate of three brokers beside that of one.

    Brokers and database servers have half of the cores, whether there is one of them or three, and clients the others:
    so the rates tell what the work of three costs, not what three machines can do.
    """
    output: Output = context.obj
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise click.UsageError("this needs two cores: one for brokers and database servers, one for clients")
    servers, clients = set(cores[: len(cores) // 2]), set(cores[len(cores) // 2 :])
    output.note(f"{machine()}; {versions()}; cores {servers} and {clients}")
    with temporary_directory() as directory:
        (directory / "latencies").mkdir()
        found = [each._asdict() for each in latencies(directory / "latencies", 1000, rounds)]
        output.rows(found, LATENCY_COLUMNS)
        output.rows([each._asdict() for each in rates(directory, messages, servers, clients)], RATE_COLUMNS)


@main.command()
@click.option(
    "--messages", type=click.IntRange(100), default=60_000, show_default=True, help="Of all clients together."
)
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True, help="Of each of the two.")
@click.pass_context
def shards(context: click.Context, messages: int, rounds: int) -> None:
    """What shards of one machine cost: a broker of two processes on LMDB beside one of one, with the same clients.

    Brokers and clients share the machine. What 4, 8 and 16 cores should do follows from what a message costs alone
    and passed on.
    """
    output: Output = context.obj
    output.note(f"{machine()}; {versions()}")
    with temporary_directory() as directory:
        found, models = shard_rates(directory, messages, rounds)
    output.rows([each._asdict() for each in found], SHARD_COLUMNS)
    output.rows([each._asdict() for each in models], MODEL_COLUMNS)


if __name__ == "__main__":
    try:
        main()
    except NoServer as error:
        print(f"no PostgreSQL server can be run here: {error}", file=sys.stderr)
        sys.exit(1)
