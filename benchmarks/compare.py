"""Compares Quire with other brokers: ``python -m benchmarks.compare --peer rabbitmq``.

All brokers run at the same time and are measured in turn, so a drift of the machine's speed hits all of them alike.
What counts is the median of the rounds. The table goes into ``docs/performance.md`` with ``--write``.
"""

import statistics
import sys
from collections import defaultdict
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import click

from benchmarks.fortress import Fortress, trusting
from benchmarks.load import no_tick
from benchmarks.peers import PEERS
from benchmarks.rig import OwnBroker, machine, temporary_directory, unwind_on_sigterm, versions
from quire.cli.perf.load import SCENARIOS, Load, Target
from quire.cli.perf.measure import measure
from tests.postgresql_server import run_server

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
COMPARED = ("confirm", "fire", "fanin", "cumulative", "backlog", "sync")
FEWER = {"sync": 4}
"""Scenarios that wait for the disk with every message run with a part of the messages."""


class Row(NamedTuple):
    """A line of the table: a scenario, and which of its figures."""

    scenario: str
    figure: str


TARGETS = {
    "lmdb": {
        Row("confirm", "messages_per_s"): 3.0,
        Row("fire", "messages_per_s"): 3.0,
        Row("fanin", "messages_per_s"): 3.0,
        Row("cumulative", "messages_per_s"): 3.0,
        Row("backlog", "sent_per_s"): 3.0,
        Row("backlog", "received_per_s"): 3.0,
        Row("sync", "messages_per_s"): 1.5,
    },
    "sqlite": {Row("confirm", "messages_per_s"): 0.7},
    "postgresql": {
        Row("confirm", "messages_per_s"): 3.0,
        Row("fire", "messages_per_s"): 3.0,
        Row("fanin", "messages_per_s"): 3.0,
        Row("backlog", "sent_per_s"): 3.0,
        Row("backlog", "received_per_s"): 3.0,
        Row("sync", "messages_per_s"): 1.5,
    },
}
"""How many times as fast as RabbitMQ a store must be."""

Medians = Mapping[Row, Mapping[str, float]]


@click.command()
@click.option("--peer", "peers", multiple=True, type=click.Choice(list(PEERS)), help="May be repeated.")
@click.option("--scenario", "scenarios", multiple=True, type=click.Choice(COMPARED), help="Only this one; repeatable.")
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True)
@click.option("--messages", type=click.IntRange(100), default=40_000, show_default=True, help="In each run.")
@click.option("--store", type=click.Choice(list(TARGETS)), default="lmdb", show_default=True)
@click.option("--tls", is_flag=True, help="With TLS, and users and rules in Quire; of peers only RabbitMQ.")
@click.option("--random", is_flag=True, help="Bodies of random bytes, which no store makes smaller.")
@click.option("--write", is_flag=True, help=f"Put the table into docs/{PAGE.name}.")
def main(
    peers: tuple[str, ...],
    scenarios: tuple[str, ...],
    rounds: int,
    messages: int,
    store: str,
    tls: bool,
    random: bool,
    write: bool,
) -> None:
    """Compare Quire, with every commit synced to disk, with other brokers."""
    for peer in peers:
        if not PEERS[peer].is_installed():
            packages = PEERS[peer].packages
            raise click.UsageError(f"{peer} is not installed: apt-get install --no-install-recommends {packages}")
        if tls and not PEERS[peer].has_tls:
            raise click.UsageError(f"{peer} is measured without TLS only")
    unwind_on_sigterm()
    with ExitStack() as stack:
        targets = _start(stack, peers, store, tls)
        medians = _measure(targets, scenarios or COMPARED, rounds, messages, random)
    text = "\n".join([_conditions(peers, store, rounds, messages, random, tls), "", *table(medians, store)])
    click.echo(text)
    if write:
        name = f"{store}-random" if random else store
        PAGE.write_text(replace_table(PAGE.read_text("utf-8"), name, text), "utf-8")


def replace_table(page: str, name: str, text: str) -> str:
    """Put a text between the markers of a table on a page."""
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->\n"
    before, _, rest = page.partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise ValueError(f"the page has no markers for {name}")
    return f"{before}{begin}\n{text}\n\n{end}{after}"


def _start(stack: ExitStack, peers: tuple[str, ...], store: str, tls: bool) -> dict[str, Target]:
    directory = stack.enter_context(temporary_directory())
    certificates = None
    if store == "postgresql":
        store = stack.enter_context(run_server(durable=True)).url_for(directory)
    if tls:
        fortress = Fortress(directory, store)
        stack.enter_context(fortress.broker)
        stack.enter_context(trusting(fortress.ca))
        targets, certificates = {"Quire": fortress.target}, directory
    else:
        targets = {"Quire": stack.enter_context(OwnBroker(directory, {"store": store, "sync": "always"})).target}
    for name in peers:
        peer = stack.enter_context(PEERS[name](stack.enter_context(temporary_directory()), certificates))
        targets[peer.name] = peer.target
    return targets


def _measure(
    targets: dict[str, Target], scenarios: tuple[str, ...], rounds: int, messages: int, random: bool
) -> Medians:
    for target in targets.values():
        # Java compiles what it finds to be hot: a cold broker says little.
        measure(target, Load(messages, random=random), no_tick)
    seen: dict[Row, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for scenario in scenarios:
        for number in range(1, rounds + 1):
            for name, target in targets.items():
                load = Load(messages // FEWER.get(scenario, 1), random=random, **SCENARIOS[scenario].changes)
                figures = measure(target, load, no_tick)
                for figure in _figures(scenario):
                    value = getattr(figures, figure)
                    seen[Row(scenario, figure)][name].append(value)
                    print(f"{scenario} {figure} {name}, {number} of {rounds}: {value:.0f}", file=sys.stderr)
    return {row: {name: statistics.median(values) for name, values in by.items()} for row, by in seen.items()}


def _figures(scenario: str) -> tuple[str, ...]:
    return ("sent_per_s", "received_per_s") if scenario == "backlog" else ("messages_per_s",)


def _conditions(peers: tuple[str, ...], store: str, rounds: int, messages: int, random: bool, tls: bool) -> str:
    others = "".join(f", {PEERS[peer].version()}" for peer in peers)
    return (
        f"Measured {datetime.now(UTC):%Y-%m-%d} on {machine()}; {versions()}{others}; store {store}, `store.sync` "
        f"`always`; medians of {rounds} rounds of {messages} messages of 1 KiB{', random bytes' if random else ''}"
        f"{', with TLS' if tls else ''}."
    )


def table(medians: Medians, store: str) -> list[str]:
    """The table in Markdown. A ratio is Quire's figure divided by the other's."""
    names = list(next(iter(medians.values())))
    columns = ["scenario", "figure", *names, *(f"Quire : {name}" for name in names[1:]), "target"]
    lines = [_line(columns), _line(["---"] * len(columns))]
    for row, values in medians.items():
        ratios = [f"{values['Quire'] / values[name]:.2f}" for name in names[1:]]
        target = TARGETS[store].get(row)
        rates = [f"{values[name]:,.0f}/s" for name in names]
        text = f"{target} x RabbitMQ" if target else ""
        lines.append(_line([row.scenario, row.figure.removesuffix("_per_s"), *rates, *ratios, text]))
    return lines


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
