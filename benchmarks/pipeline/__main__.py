"""How fast Spark works with a running broker: ``python -m benchmarks.pipeline speed``, ``confirm``, ``audit``."""

import os
from datetime import UTC, date, datetime

import click

from benchmarks.pipeline import report
from benchmarks.pipeline.speed import Plan, measure_audit, measure_confirm, measure_nothing, measure_reads
from benchmarks.rig import machine, temporary_directory, unwind_on_sigterm, versions
from quire.clock import SystemClock

TABLES = {1_000_000: "spark reads", 10_000_000: "spark reads of 10,000,000"}
"""The tables on the page, by the number of messages."""


@click.group()
def main() -> None:
    """How fast Spark works with a running broker."""
    unwind_on_sigterm()


@main.command()
@click.option("--messages", type=click.IntRange(1000), default=1_000_000, show_default=True, help="Of 1 KiB each.")
@click.option(
    "--readers", type=click.IntRange(1), multiple=True, default=(1, 2, 4), show_default=True,
    help="How many processes the bulk server has; give it several times.",
)  # fmt: skip
@click.option(
    "--sink", "sinks", type=click.Choice(["noop", "parquet"]), multiple=True, default=("noop", "parquet"),
    show_default=True, help="Where the messages go.",
)  # fmt: skip
@click.option("--runs", type=click.IntRange(2), default=4, show_default=True, help="The first, and warm ones.")
@click.option("--kafka/--no-kafka", default=True, show_default=True, help="Compare with Kafka: needs a JDK and Maven.")
@click.option(
    "--write", is_flag=True, help=f"Put the table into docs/performance.md: {' or '.join(map(str, TABLES))} messages."
)
def speed(messages: int, readers: tuple[int, ...], sinks: tuple[str, ...], runs: int, kafka: bool, write: bool) -> None:
    """Read a stream to nothing and to Parquet, and Kafka's topic with the same messages.

    The disk needs room for twice the messages: in Quire or Kafka, and in the other or in files.
    """
    if write and messages not in TABLES:
        raise click.UsageError(f"the page has no table of {messages:,} messages")
    cores = len(os.sched_getaffinity(0))
    plan = Plan(messages, 1024, readers, sinks, kafka, runs, max(2, cores))
    with temporary_directory() as directory:
        found = []
        for one in measure_reads(directory, plan, _say):
            found.append(one)
            _say(report.table([one], cores).splitlines()[-1])
    text = f"{_conditions(messages, runs)}\n\n{report.table(found, cores)}"
    click.echo(text)
    if write:
        report.write(TABLES[messages], text)


@main.command()
@click.option(
    "--messages", type=click.IntRange(1000), multiple=True, default=(20_000, 1_000_000, 10_000_000), show_default=True,
    help="Of the ledger; give it several times.",
)  # fmt: skip
@click.option("--write", is_flag=True, help="Put the table into docs/performance.md.")
def audit(messages: tuple[int, ...], write: bool) -> None:
    """Send and receive messages, and audit the ledger as a user does: the start of Java is part of the time."""
    found = [measure_nothing()]
    for count in messages:
        with temporary_directory() as directory:
            found.append(measure_audit(directory, count, _say))
            _say(f"{found[-1].seconds:.1f} s")
    text = f"Measured {_today()} on {machine()}; {versions()}.\n\n{report.audits(found)}"
    click.echo(text)
    if write:
        report.write("audit times", text)


@main.command()
@click.option("--messages", type=click.IntRange(1000), default=200_000, show_default=True, help="Of `confirm`.")
@click.option("--stored", type=click.IntRange(1000), default=1_000_000, show_default=True, help="That are read.")
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True, help="Alone and beside, in turn.")
@click.option("--write", is_flag=True, help="Put the result into docs/performance.md.")
def confirm(messages: int, stored: int, rounds: int, write: bool) -> None:
    """Measure `confirm` alone, and beside a reader that has the cores which the broker has not."""
    with temporary_directory() as directory:
        found = measure_confirm(directory, messages, stored, rounds, _say)
    text = report.beside(found)
    click.echo(text)
    if write:
        report.write("confirm beside reads", text)


def _today() -> date:
    return datetime.fromtimestamp(SystemClock().now_ms() / 1000, UTC).date()


def _conditions(messages: int, runs: int) -> str:
    return (
        f"Measured {_today()} on {machine()}; {versions()}: {messages:,} messages of 1 KiB, random bodies, "
        f"4 partitions; warm is the median of {runs - 1} runs after the first."
    )


def _say(text: str) -> None:
    click.echo(text, err=True)


if __name__ == "__main__":
    main()
