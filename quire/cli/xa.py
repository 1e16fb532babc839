"""``quire xa``: prepared XA transactions."""

import click

from quire.cli.api import Api, broker_verb, path
from quire.cli.output import Column, Output, confirm, output_option

PREPARED_COLUMNS = [
    Column("xid", "Xid"),
    Column("state", "State"),
    Column("outcome", "Outcome"),
    Column("age_seconds", "Age"),
    Column("messages", "Messages"),
    Column("acknowledgements", "Acknowledgements"),
    Column("bytes", "Bytes"),
]


@click.group()
@output_option
def xa() -> None:
    """Look at prepared XA transactions, and decide over them.

    Deciding is for the transaction's coordinator. Do it only if that will never come back: it is told of the decision
    when it does, and may have decided otherwise elsewhere.
    """


@xa.command()
@broker_verb
def ls(api: Api, output: Output) -> None:
    """List the prepared transactions, the oldest first."""
    output.rows(api.call("GET", path("xa"))["transactions"], PREPARED_COLUMNS)


@xa.command()
@click.argument("xid")
@click.option("--yes", is_flag=True, help="Do not ask.")
@broker_verb
def commit(api: Api, output: Output, xid: str, yes: bool) -> None:
    """Commit a prepared transaction in place of its coordinator."""
    confirm(f"Commit {xid} in place of its coordinator?", yes)
    output.done(f"committed {xid}", api.call("POST", path("xa", xid, "commit")))


@xa.command()
@click.argument("xid")
@click.option("--yes", is_flag=True, help="Do not ask.")
@broker_verb
def rollback(api: Api, output: Output, xid: str, yes: bool) -> None:
    """Roll a prepared transaction back in place of its coordinator."""
    confirm(f"Roll {xid} back in place of its coordinator?", yes)
    output.done(f"rolled {xid} back", api.call("POST", path("xa", xid, "rollback")))


@xa.command()
@click.argument("xid")
@broker_verb
def forget(api: Api, output: Output, xid: str) -> None:
    """Forget what was decided over a transaction: its coordinator needs to be told no more."""
    output.done(f"forgot {xid}", api.call("DELETE", path("xa", xid)))
