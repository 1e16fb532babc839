"""A client with a login and TLS, alone and while others without a login attack the broker: who must not notice whom."""

import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

import click

from benchmarks.fortress import Fortress, trusting
from benchmarks.intruders.intrusions import Marks, intrude
from benchmarks.rig import MemoryWatch, temporary_directory
from benchmarks.scenarios.hostile import SILENT_CONNECTIONS, Tally
from benchmarks.scenarios.scenario import Finding, at_least, at_most, report
from quire.cli.output import Output, output_option
from quire.cli.perf.load import Load, Target
from quire.cli.perf.measure import measure
from quire.clock import SystemClock
from quire.settings import split_address

MIN_SHARE = 0.8
"""How fast the client must be under attack, as a share of its rate alone."""

MAX_RSS_ANON = 150_000_000
"""How much memory the broker's process may take, in bytes."""

_PAUSE = 0.5
_HALF_OPEN = 300
"""With so many half-open handshakes the measurement begins; their number goes on to grow."""


@contextmanager
def attacked(marks: Marks, tally: Tally) -> Iterator[None]:
    context = multiprocessing.get_context("fork")
    stop = context.Event()
    process = context.Process(target=intrude, args=(marks, tally, stop))
    process.start()
    try:
        deadline = SystemClock().monotonic() + 30
        while tally.silent < min(_HALF_OPEN, SILENT_CONNECTIONS) and SystemClock().monotonic() < deadline:
            time.sleep(_PAUSE)
        yield
    finally:
        stop.set()
        process.join(10)
        process.kill()
        process.join()
        tally.silent = 0
    time.sleep(_PAUSE)


def _marks(fortress: Fortress) -> Marks:
    broker = fortress.broker
    return Marks(broker.target, Target(*split_address(broker.api.url.rpartition("/")[2])), fortress.foreign)


@click.command()
@click.option("--messages", type=click.IntRange(100), default=60_000, show_default=True, help="For each measurement.")
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True, help="Alone and attacked, in turn.")
@output_option
@click.pass_context
def main(context: click.Context, messages: int, rounds: int) -> None:
    """Attack a broker with users and TLS: guesses, half-open handshakes, broken certificates, oversized requests."""
    tally: Tally = multiprocessing.get_context("fork").RawValue(Tally)
    rates: dict[str, list[float]] = {"alone": [], "attacked": []}
    with temporary_directory() as directory:
        fortress = Fortress(directory)
        with fortress.broker as broker, MemoryWatch(broker) as watch, trusting(fortress.ca):
            for number in range(rounds):
                rates["alone"].append(_measure(fortress.target, messages, 2 * number))
                with attacked(_marks(fortress), tally):
                    rates["attacked"].append(_measure(fortress.target, messages, 2 * number + 1))
            findings = _findings(median(rates["alone"]), median(rates["attacked"]), tally, watch.peak)
    context.exit(report(context.ensure_object(Output), findings))


def _measure(target: Target, messages: int, number: int) -> float:
    return measure(target, Load(messages, queue=f"perf.victim.{number}"), lambda counts: None).messages_per_s


def _findings(alone: float, under_attack: float, tally: Tally, peak: int) -> list[Finding]:
    return [
        Finding("alone_per_s", round(alone)),
        Finding("attacked_per_s", round(under_attack)),
        at_least("attacked_to_alone", round(under_attack / alone, 3), MIN_SHARE),
        at_most("peak_rss_anon_bytes", peak, MAX_RSS_ANON),
        Finding("hostile_connections", tally.connections),
        at_least("guesses", tally.guesses, 1),
        at_least("errors", tally.errors, 1),
        at_least("closes", tally.closes, 1),
    ]


if __name__ == "__main__":
    main()
