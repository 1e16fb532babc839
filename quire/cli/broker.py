"""``quire broker``: start a broker, look at it, stop it."""

import os
from pathlib import Path

import click

from quire.cli.api import Api, broker_verb, path
from quire.cli.config import setting_flags
from quire.cli.output import Output, output_option
from quire.cli.resource import HELD
from quire.settings import KEYS, Settings, load


@click.group()
@output_option
def broker() -> None:
    """Start, inspect and stop a broker."""


@broker.command()
@click.option("--config", "file", type=click.Path(path_type=Path), metavar="FILE", help="A settings file (TOML).")
@setting_flags
@click.option("--standby", is_flag=True, help="Wait while another broker has the lock of the store, then take over.")
@click.option("--shards", metavar="N", help=KEYS["broker.shards"].text)
@output_option
@click.pass_context
def start(
    context: click.Context, file: Path | None, standby: bool, shards: str | None, flags: dict[str, object]
) -> None:  # fmt: skip
    """Start a broker in the foreground. SIGINT or SIGTERM stops it; SIGHUP makes it reload its policies."""
    flags["broker.shards"] = shards

    def read() -> Settings:
        return load(file, os.environ, flags)

    settings = read()
    # The broker's own modules are needed by this verb alone.
    from quire.server.cluster.shard_places import local_flags

    if local := local_flags(settings):
        if standby:
            raise click.UsageError("a broker with shards has no standby: run a cluster on PostgreSQL")
        context.exit(run_with_shards(file, flags | local))
    from quire.http.http_api import HttpApi
    from quire.server.process import run

    context.exit(run(settings, standby=standby, http=HttpApi(), reload=read))


def run_with_shards(file: Path | None, flags: dict[str, object]) -> int:
    from quire.http.console_launcher import ConsoleLauncher
    from quire.server.cluster.broker_process import run

    settings = load(file, os.environ, flags)
    return run(settings, file, flags, "quire.http.shard", ConsoleLauncher(settings))


@broker.command()
@broker_verb
def status(api: Api, output: Output) -> None:
    """Show a running broker's state, memory, store and connections."""
    output.details(api.call("GET", path("broker")), {"producers_held": ("Producers held", HELD)})


@broker.command()
@broker_verb
def stop(api: Api, output: Output) -> None:
    """Stop a running broker. All messages that it confirmed are on disk."""
    output.done("the broker is stopping", api.call("POST", "/broker/stop"))
