"""``quire broker``: start a broker, look at it, stop it."""

import os
from pathlib import Path

import click

from quire.cli.api import Api, broker_verb, path
from quire.cli.config import setting_flags
from quire.cli.output import Output, output_option
from quire.cli.resource import HELD_COLUMNS
from quire.settings import Settings, load


@click.group()
@output_option
def broker() -> None:
    """Start, inspect and stop a broker."""


@broker.command()
@click.option("--config", "file", type=click.Path(path_type=Path), metavar="FILE", help="A settings file (TOML).")
@setting_flags
@click.option("--standby", is_flag=True, help="Wait while another broker has the lock of the store, then take over.")
@output_option
@click.pass_context
def start(context: click.Context, file: Path | None, standby: bool, flags: dict[str, object]) -> None:
    """Start a broker in the foreground. SIGINT or SIGTERM stops it; SIGHUP makes it reload its policies."""

    def read() -> Settings:
        return load(file, os.environ, flags)

    settings = read()
    # The broker's own modules are needed by this verb alone.
    from quire.http.http_api import HttpApi
    from quire.server.process import run

    context.exit(run(settings, standby=standby, http=HttpApi(), reload=read))


@broker.command()
@broker_verb
def status(api: Api, output: Output) -> None:
    """Show a running broker's state, memory, store and connections."""
    output.details(api.call("GET", path("broker")), {"producers_held": ("Producers held", HELD_COLUMNS)})


@broker.command()
@broker_verb
def stop(api: Api, output: Output) -> None:
    """Stop a running broker. All messages that it confirmed are on disk."""
    output.done("the broker is stopping", api.call("POST", "/broker/stop"))
