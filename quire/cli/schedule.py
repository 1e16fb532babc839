"""``quire schedule``: messages that are sent later."""

import click

from quire.cli.api import Api, broker_verb, pages, path
from quire.cli.output import Column, Output, confirm, messages, output_option

SCHEDULE_COLUMNS = [
    Column("id", "Id"),
    Column("due", "Due"),
    Column("destination", "Destination"),
    Column("period", "Period (ms)"),
    Column("left", "Left"),
    Column("cron", "Cron"),
    Column("size", "Size"),
    Column("message_id", "Message id"),
]


@click.group()
@output_option
def schedule() -> None:
    """List and cancel messages that are sent later."""


@schedule.command()
@broker_verb
def ls(api: Api, output: Output) -> None:
    """List the scheduled messages, and when each is sent next."""
    output.rows(pages(api, path("schedule"), "messages"), SCHEDULE_COLUMNS)


@schedule.command()
@click.argument("id", required=False)
@click.option("--all", "everything", is_flag=True, help="Cancel all scheduled messages.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@broker_verb
def cancel(api: Api, output: Output, id: str | None, everything: bool, yes: bool) -> None:
    """Cancel a scheduled message, with all its repeats."""
    if (id is None) is not everything:
        raise click.UsageError("give the ID of a scheduled message, or --all")
    if id is not None:
        output.done(f"cancelled {id}", api.call("DELETE", path("schedule", id)))
        return
    confirm("Cancel all scheduled messages?", yes)
    result = api.call("DELETE", path("schedule"))
    output.done(f"cancelled {messages(result['removed'])}", result)
