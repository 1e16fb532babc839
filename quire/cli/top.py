"""``quire top``: the state of a broker at a glance, live in a terminal."""

import sys
import time
from collections.abc import Iterator
from typing import Any

import click
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from quire.cli.api import Api, broker_verb
from quire.cli.output import Output, on_terminal, printable, readable
from quire.errors import BrokerUnreachable
from quire.units import format_size

QUEUES = 15  # how many queues are shown, those with the highest rates first
PATIENCE = 10.0  # how many seconds an answer may take


@click.command()
@click.option(
    "--interval", type=click.FloatRange(0.2), default=2.0, show_default=True, help="Seconds between two looks."
)
@click.option("--once", is_flag=True, help="Print the state once, and end.")
@broker_verb
def top(api: Api, output: Output, interval: float, once: bool) -> None:
    """Show a running broker's rates, limits and what needs attention, live. Ctrl-C ends it."""
    if output.format != "table":
        output.record(_look(api))
        return
    # Rich takes a tenth of a second to import: only this command pays.
    from rich.console import Console
    from rich.live import Live

    console = Console()
    if once or not on_terminal(sys.stdout):
        console.print(screen(_look(api), api.url))
        return
    found = _look(api)
    with Live(screen(found, api.url), console=console, screen=True, auto_refresh=False) as live:
        try:
            while True:
                time.sleep(interval)
                trouble = ""
                try:
                    found = _look(api)
                except BrokerUnreachable as error:  # it may come back
                    trouble = str(error)
                live.update(screen(found, api.url, trouble), refresh=True)
        except KeyboardInterrupt:
            pass


def _look(api: Api) -> dict[str, Any]:
    overview = api.call("GET", "/overview", patience=PATIENCE)
    page = api.call("GET", "/queues", patience=PATIENCE, sort="-in_rate", limit=QUEUES)
    return {"overview": overview, "queues": page["queues"], "queues_total": page["total"]}


_STYLES = {"critical": "bold red", "warning": "yellow", "info": "cyan"}
_BAR = 20

MOST_ATTENTION = 8  # how many lines of what needs attention are shown


def screen(found: dict[str, Any], url: str, trouble: str = "") -> RenderableType:
    """The whole screen.

    Args:
        trouble: why it told nothing this time; empty if it did.
    """
    overview = found["overview"]
    parts: list[RenderableType] = [_head(overview, url)]
    if trouble:
        parts.append(Text(f"no answer; this is what it told last: {printable(trouble)}", style="bold red"))
    parts += [_rates(overview), _limits(overview), Text(), *_attention(overview), _queues(found)]
    return Group(*parts)


def _head(overview: dict[str, Any], url: str) -> Text:
    state = overview["state"]
    text = Text.assemble(
        (printable(overview["name"]), "bold"), f"  quire {overview['version']} at {printable(url)}  ",
        (state, "green" if state == "running" else "bold red"),
        f"  up {readable('uptime_seconds', overview['uptime_seconds'])}",
    )  # fmt: skip
    text.no_wrap = True
    return text


def _rates(overview: dict[str, Any]) -> Text:
    counts, oldest = overview["counts"], overview["oldest"]
    lines = [
        f"in {overview['in_rate']:,.1f}/s   out {overview['out_rate']:,.1f}/s   messages {overview['depth']:,}   "
        f"in flight {overview['in_flight']:,}   connections {overview['connections']:,}   "
        f"consumers {overview['consumers']:,}",
        f"queues {counts['queues']:,}   topics {counts['topics']:,}   streams {counts['streams']:,}   "
        f"durables {counts['durables']:,}   groups {counts['groups']:,}   scheduled {counts['scheduled']:,}",
    ]  # fmt: skip
    if oldest is not None:
        age = readable("age_seconds", oldest["age_seconds"])
        lines.append(f"oldest message {age}, in the {oldest['kind']} {printable(oldest['name'])}")
    return Text("\n".join(lines))


def _limits(overview: dict[str, Any]) -> Text:
    text = Text()
    for name in ("memory", "store", "spool"):
        used, limit = overview[name]["used"], overview[name]["limit"]
        share = min(used / limit, 1.0) if limit else 0.0
        style = "red" if share >= 0.9 and name != "memory" else "green"
        text.append(f"{name:7}")
        text.append("█" * round(share * _BAR), style).append("░" * (_BAR - round(share * _BAR)), "dim")
        text.append(f" {format_size(used)} of {format_size(limit)}\n")
    if overview["held"]:
        first = overview["producers_held"][0]
        age = readable("age_seconds", first["age_seconds"])
        text.append(f"producers held: {overview['held']}, the longest for {age} ({first['cause']})\n", "bold red")
    text.rstrip()
    return text


def _attention(overview: dict[str, Any]) -> Iterator[RenderableType]:
    found = overview["attention"]
    if not found:
        yield Text("nothing needs attention", style="green")
    for each in found[:MOST_ATTENTION]:
        subject = f"{each['kind']} {printable(each['name'])}: " if each["name"] else ""
        line = Text.assemble((f"{each['severity']:9}", _STYLES[each["severity"]]), subject, printable(each["text"]))
        line.no_wrap, line.overflow = True, "ellipsis"
        yield line
    more = len(found) + overview["attention_left_out"] - MOST_ATTENTION
    if more > 0:
        yield Text(f"and {more:,} more", style="dim")


def _queues(found: dict[str, Any]) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False, title_justify="left")
    table.add_column("Queue", no_wrap=True, overflow="ellipsis", ratio=1)
    for heading in ("In/s", "Out/s", "Messages", "In flight", "Consumers", "Oldest"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("Blocked", no_wrap=True)
    for queue in found["queues"]:
        age, blocked = queue["oldest_message_age_seconds"], queue["blocked"]
        table.add_row(
            Text(printable(queue["name"])), f"{queue['in_rate']:,.1f}", f"{queue['out_rate']:,.1f}",
            f"{queue['depth']:,}", f"{queue['in_flight']:,}", str(queue["consumers"]),
            readable("age_seconds", age), "" if blocked is None else printable(blocked["cause"]),
        )  # fmt: skip
    return table
