"""``quire producer``: producers that number their sends."""

import click

from quire.cli.api import Api, broker_verb, pages, path
from quire.cli.output import Column, Output, output_option

PRODUCER_COLUMNS = [Column("id", "Id"), Column("sequence", "Sequence"), Column("last_sent", "Last sent")]


@click.group()
@output_option
def producer() -> None:
    """List and forget producers that number their sends."""


@producer.command()
@broker_verb
def ls(api: Api, output: Output) -> None:
    """List the producers, the highest number taken of each, and when it sent last."""
    output.rows(pages(api, path("producers"), "producers"), PRODUCER_COLUMNS)


@producer.command()
@click.argument("id")
@broker_verb
def forget(api: Api, output: Output, id: str) -> None:
    """Forget a producer: what it repeats from now on is new."""
    output.done(f"forgot {id}", api.call("DELETE", path("producers", id)))
