"""``quire pipeline``: pipelines over messages in bulk, run by Spark."""

import importlib
from typing import NamedTuple

import click

from quire.cli.output import Output, output_option
from quire.errors import InvalidArgument


class Pipeline(NamedTuple):
    """A pipeline's module, which has its command under the same name, and its line in the list."""

    module: str
    help: str


PIPELINES = {
    "archive": Pipeline("archive", "Copy messages to Parquet files."),
    "audit": Pipeline("audit", "Audit a delivery ledger."),
    "dead-letters": Pipeline("dead_letters", "Analyse dead letters."),
    "latency": Pipeline("latency", "Measure latencies by a delivery ledger."),
    "replay": Pipeline("replay", "Replay messages, each exactly once."),
}


class Pipelines(click.Group):
    """The pipelines, each imported only when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(PIPELINES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """A pipeline's command by its name."""
        if cmd_name not in PIPELINES:
            return None
        name = PIPELINES[cmd_name].module
        try:
            command: click.Command = getattr(importlib.import_module(f"quire.spark.pipelines.{name}"), name)
        except ModuleNotFoundError as error:
            text = f"{error.name} is not installed, and pipelines need it: pip install 'quire[spark]'"
            raise InvalidArgument(text, module=error.name) from error
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the pipelines without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, pipeline.help) for name, pipeline in PIPELINES.items()])


@click.group()
@output_option
def pipeline() -> None:
    """Run pipelines over messages in bulk, on Spark."""


@pipeline.command(cls=Pipelines)
@output_option
@click.pass_context
def run(context: click.Context) -> None:
    """Run a pipeline, with Spark on this machine.

    Each also runs under spark-submit; its module is quire.spark.pipelines.NAME.
    """
    # Before a pipeline's name --output means what it means everywhere.
    if context.ensure_object(Output).format != "table":
        context.default_map = {name: {"output": "json"} for name in PIPELINES}
