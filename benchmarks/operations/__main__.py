"""Measures large operations: ``python -m benchmarks.operations``.

Each starts a broker of its own on LMDB with a memory limit of 64 MiB. What counts is for how long the event loop was
busy at a stretch: all other connections wait for so long.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import click

from benchmarks.compare import replace_table
from benchmarks.operations.bench import (
    Bench,
    Row,
    browse,
    coming_and_going,
    expiry,
    large_messages,
    metrics_and_lists,
    offline_durables,
    other_rate,
    purge_delete_move,
    rates,
    restart,
    scheduled,
    selectors,
    sorted_lists,
    transactions,
    wildcard_consumers,
)
from benchmarks.rig import machine, unwind_on_sigterm, versions

PAGE = Path(__file__).parents[2] / "docs" / "performance.md"

OPERATIONS: dict[str, Callable[[Bench], None]] = {
    "queue": purge_delete_move,
    "browse": browse,
    "selectors": selectors,
    "expiry": expiry,
    "durables": offline_durables,
    "scheduled": scheduled,
    "transactions": transactions,
    "large": large_messages,
    "restart": restart,
    "destinations": coming_and_going,
    "wildcards": wildcard_consumers,
    "rates": rates,
    "beside": other_rate,
    "metrics": metrics_and_lists,
    "lists": sorted_lists,
}


@click.command()
@click.option("--only", "chosen", multiple=True, type=click.Choice(list(OPERATIONS)), help="Only this one; repeatable.")
@click.option("--scale", type=click.FloatRange(0.0001, 10), default=1.0, show_default=True, help="Of all sizes.")
@click.option("--write", is_flag=True, help=f"Put the table into docs/{PAGE.name}.")
def main(chosen: tuple[str, ...], scale: float, write: bool) -> None:
    """Measure operations on a million messages or ten thousand destinations."""
    unwind_on_sigterm()
    rows: dict[str, list[Row]] = {}
    for name in chosen or OPERATIONS:
        click.echo(f"{name}:", err=True)
        with Bench(scale, _tell) as bench:
            OPERATIONS[name](bench)
            rows[name] = bench.rows
    text = "\n".join([_conditions(scale), "", *table(rows)])
    click.echo(text)
    if write:
        PAGE.write_text(replace_table(PAGE.read_text("utf-8"), "operations", text), "utf-8")


def _tell(row: Row, long_turns: list[str]) -> None:
    click.echo("  " + " | ".join(_cells(row)), err=True)
    for text in long_turns:
        click.echo(f"    {text}", err=True)


def _conditions(scale: float) -> str:
    sizes = "" if scale == 1 else f"; sizes times {scale:g}"
    return f"Measured {datetime.now(UTC):%Y-%m-%d} on {machine()}; {versions()}; LMDB, memory limit 64 MiB{sizes}."


def table(rows: dict[str, list[Row]]) -> list[str]:
    lines = ["| operation | part | count | seconds | rate | longest turn | memory |", "|---|---|---|---|---|---|---|"]
    for name, parts in rows.items():
        lines += [f"| {' | '.join([name if row is parts[0] else '', *_cells(row)])} |" for row in parts]
    return lines


def _cells(row: Row) -> list[str]:
    return [
        row.what, f"{row.number:,}", f"{row.seconds:.2f}", f"{row.number / row.seconds:,.0f}/s",
        f"{row.longest_turn * 1000:.0f} ms", f"{row.rss_anon / 1e6:.0f} MB",
    ]  # fmt: skip


if __name__ == "__main__":
    main()
