"""``quire cluster``: start a broker of a cluster, look at the cluster, move shards."""

import os
from pathlib import Path

import click

from quire.cli.config import setting_flags
from quire.cli.output import output_option
from quire.settings import load


@click.group()
@output_option
def cluster() -> None:
    """Run many brokers as one."""


@cluster.command()
@click.option("--config", "file", type=click.Path(path_type=Path), metavar="FILE", help="A settings file (TOML).")
@setting_flags
@output_option
@click.pass_context
def start(context: click.Context, file: Path | None, flags: dict[str, object]) -> None:
    """Start a broker of the cluster whose database `cluster.store` names, in the foreground.

    SIGINT or SIGTERM makes it leave: others take its shards first. A second one stops it at once.
    """
    settings = load(file, os.environ, flags)
    # The broker's own modules are needed by this verb alone.
    from quire.http.console_launcher import ConsoleLauncher
    from quire.server.cluster.broker_process import run

    context.exit(run(settings, file, flags, "quire.http.shard", ConsoleLauncher(settings)))
