"""``quire queue purge``, ``move``, ``copy``, ``redrive``: what is done with all messages of a queue, or chosen ones."""

import re
from typing import Any

import click

from quire.cli.api import ANSWER_LIMIT, Api, broker_verb, queue_path
from quire.cli.choice import choice_options
from quire.cli.output import Output, confirm, messages

_RATE = re.compile(r"(\d+(?:\.\d+)?)(?:/([smh]))?")
_SECONDS = {None: 1, "s": 1, "m": 60, "h": 3600}


def _per_second(_context: click.Context, _option: click.Parameter, value: str | None) -> float | None:
    if value is None:
        return None
    found = _RATE.fullmatch(value)
    if found is None or float(found[1]) == 0:
        raise click.BadParameter(f"{value!r} is no rate: write 50/s, 100/m or 10/h")
    return float(found[1]) / _SECONDS[found[2]]


@click.command()
@click.argument("name")
@choice_options
@click.option("--yes", is_flag=True, help="Do not ask.")
@broker_verb
def purge(api: Api, output: Output, name: str, choice: dict[str, Any], yes: bool) -> None:
    """Remove messages of a queue: all that are not in flight, or some."""
    confirm(f"Remove {'these' if choice else 'all'} messages of {name}?", yes)
    result = api.call("POST", queue_path(name, "purge"), choice)
    output.done(f"removed {messages(result['removed'])} from {name}", result)


@click.command()
@click.argument("source")
@click.argument("target")
@choice_options
@broker_verb
def move(api: Api, output: Output, source: str, target: str, choice: dict[str, Any]) -> None:
    """Move messages of a queue to another queue: all that are not in flight, or some.

    TARGET may be a topic: topic://NAME.
    """
    result = api.call("POST", queue_path(source, "move"), {"to": target, **choice})
    output.done(f"moved {messages(result['moved'])} from {source} to {target}", result)


@click.command()
@click.argument("source")
@click.argument("target")
@choice_options
@broker_verb
def copy(api: Api, output: Output, source: str, target: str, choice: dict[str, Any]) -> None:
    """Copy messages of a queue to another queue: all of them or some.

    TARGET may be a topic: topic://NAME.
    """
    result = api.call("POST", queue_path(source, "copy"), {"to": target, **choice})
    output.done(f"copied {messages(result['copied'])} from {source} to {target}", result)


@click.command()
@click.argument("name")
@choice_options
@click.option("--to", metavar="DESTINATION", help="Send them there, and not where they came from.")
@click.option("--rate", callback=_per_second, metavar="N/s", help="How fast: 50/s, 100/m, 10/h. Ctrl-C ends it.")
@broker_verb
def redrive(api: Api, output: Output, name: str, choice: dict[str, Any], to: str | None, rate: float | None) -> None:
    """Send dead letters of a queue back where they came from: all of them or some."""
    options = {"to": to, "rate": rate}
    body = {**choice, **{option: value for option, value in options.items() if value}}
    result = api.call("POST", queue_path(name, "redrive"), body, patience=None if rate else ANSWER_LIMIT)
    output.done(f"sent {messages(result['moved'])} of {name} {f'to {to}' if to else 'back'}", result)
