"""``quire whoami``: who the command line is to the broker."""

import click

from quire.cli.api import Api, broker_verb
from quire.cli.output import Output


@click.command()
@broker_verb
def whoami(api: Api, output: Output) -> None:
    """Show which user you are to the broker, by which proof, and your roles."""
    output.record(api.call("GET", "/whoami"))
