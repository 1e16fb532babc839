"""``quire schedule``: messages that are sent later."""

import click

from quire.cli.api import Api, broker_verb, path
from quire.cli.output import Output, columns, confirm, messages
from quire.cli.resource import YES, Resource

schedule = Resource("schedule", "List and cancel scheduled messages.", "schedule", "id")
schedule.ls(
    "List the scheduled messages with the time of their next send.",
    columns("id", "due", "destination", "period:Period (ms)", "left", "cron", "size", "message_id"), "messages",
    paged=True,
)  # fmt: skip


@schedule.command()
@click.argument("id", required=False)
@click.option("--all", "everything", is_flag=True, help="Cancel all scheduled messages.")
@YES
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
