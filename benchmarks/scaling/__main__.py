"""How far brokers and clusters scale: ``python -m benchmarks.scaling plan --rate 50000``."""

import tempfile
from pathlib import Path

import click

from benchmarks.rig import unwind_on_sigterm
from benchmarks.scaling import costs as costs_module
from benchmarks.scaling.capacity import Demand, Machines, TooMuch
from benchmarks.scaling.measure import measure
from benchmarks.scaling.page import PAGE, plan_lines, tables, write_page
from quire.units import parse_duration, parse_size

_SMALLEST = Machines()

SHORTEST_WAIT = 0.001


@click.group()
def main() -> None:
    """How far brokers and clusters scale."""


@main.command("measure")
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True, help="How often each load is run.")
@click.option("--write", is_flag=True, help=f"Have `plan` and docs/{PAGE.name} use what was measured.")
def measure_command(rounds: int, write: bool) -> None:
    """Measure what work costs, and check the model. It takes minutes, and needs PostgreSQL and an idle machine."""
    unwind_on_sigterm()
    with tempfile.TemporaryDirectory(prefix="quire-scaling-") as directory:
        costs = measure(Path(directory), rounds, lambda text: click.echo(f"{text} ...", err=True))
    for name, table in tables(costs).items():
        click.echo(f"\n{name}\n\n{table}")
    if write:
        costs_module.write(costs)
        write_page(costs)


@main.command("plan")
@click.option("--rate", type=click.FloatRange(0, min_open=True), required=True, help="Messages sent a second.")
@click.option("--size", type=parse_size, metavar="SIZE", default="1KiB", show_default=True, help="Of a body.")
@click.option("--queues", type=click.IntRange(1), default=100, show_default=True, help="Over how many they spread.")
@click.option("--fanout", type=click.IntRange(1), default=1, show_default=True, help="Consumers of each message.")
@click.option("--producers", type=click.IntRange(1), help="That send at once. Default: one for each queue.")
@click.option("--consumers", type=click.IntRange(1), help="Default: as many as the fanout for each queue.")
@click.option("--connections", type=click.IntRange(1), help="Default: one for each producer and consumer.")
@click.option("--pinned", is_flag=True, help="The queues are pinned, so that each shard has as many of them.")
@click.option(
    "--wait",
    type=parse_duration,
    metavar="DURATION",
    default="20ms",
    show_default=True,
    help="How long a message may wait for the commit before its own.",
)
@click.option("--cores", type=click.IntRange(1), default=_SMALLEST.cores, show_default=True, help="Of a broker.")
@click.option("--memory", type=parse_size, metavar="SIZE", default="16GB", show_default=True, help="Of a broker.")
@click.option(
    "--network", type=parse_size, metavar="SIZE", default="1.25GB", show_default=True, help="A second, each direction."
)
@click.option("--database-cores", type=click.IntRange(1), default=_SMALLEST.database_cores, show_default=True)
@click.option(
    "--log", type=parse_size, metavar="SIZE", default="200MB", show_default=True, help="That a database syncs a second."
)
@click.option(
    "--database-connections", type=click.IntRange(1), default=_SMALLEST.database_connections, show_default=True
)
def plan_command(
    rate: float, size: int, queues: int, fanout: int, producers: int | None, consumers: int | None,
    connections: int | None, pinned: bool, wait: float, **machines: int,
) -> None:  # fmt: skip
    """Print what a load needs, which limit it meets first, and what that assumes."""
    if wait < SHORTEST_WAIT:
        raise click.BadParameter(f"a commit takes at least {SHORTEST_WAIT * 1000:g} ms", param_hint="--wait")
    senders, receivers = producers or queues, consumers or queues * fanout
    demand = Demand(rate, size, queues, fanout, senders, receivers, connections or senders + receivers, pinned, wait)
    if not costs_module.FILE.exists():
        raise click.ClickException("nothing was measured yet: run python -m benchmarks.scaling measure --write")
    try:
        for line in plan_lines(costs_module.read(), demand, Machines(**machines)):
            click.echo(line)
    except TooMuch as error:
        raise click.ClickException(str(error)) from None


if __name__ == "__main__":
    main()
