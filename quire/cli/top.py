"""``quire top``: the state of a broker at a glance, live in a terminal."""

import sys
import time
from typing import Any

import click

from quire.cli.api import Api, broker_verb
from quire.cli.output import Output, on_terminal
from quire.errors import BrokerUnreachable

QUEUES = 15
"""How many queues are shown, those with the highest rates first."""

PATIENCE = 10.0
"""How many seconds an answer may take."""


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

    from quire.cli.top_screen import screen

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
    """What is shown: the overview, and the busiest queues."""
    overview = api.call("GET", "/overview", patience=PATIENCE)
    page = api.call("GET", "/queues", patience=PATIENCE, sort="-in_rate", limit=QUEUES)
    return {"overview": overview, "queues": page["queues"], "queues_total": page["total"]}
