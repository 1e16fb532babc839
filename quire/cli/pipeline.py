"""``quire pipeline``: pipelines over messages in bulk, run by Spark."""

from pathlib import Path

import click

from quire.cli.main import LazyGroup, Noun
from quire.cli.output import Output, output_option
from quire.errors import InvalidArgument

PIPELINES = {
    "archive": Noun("quire.spark.pipelines.archive", "Copy messages to Parquet files."),
    "audit": Noun("quire.spark.pipelines.audit", "Audit a delivery ledger."),
    "dead-letters": Noun("quire.spark.pipelines.dead_letters", "Analyse dead letters."),
    "latency": Noun("quire.spark.pipelines.latency", "Measure latencies by a delivery ledger."),
    "replay": Noun("quire.spark.pipelines.replay", "Replay messages, each exactly once."),
}


class Pipelines(LazyGroup):
    nouns = PIPELINES

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        try:
            return super().get_command(ctx, cmd_name)
        except ModuleNotFoundError as error:
            raise _missing(error) from error


def _missing(error: ModuleNotFoundError) -> InvalidArgument:
    text = f"{error.name} is not installed, and pipelines need it: pip install 'quire[spark]'"
    return InvalidArgument(text, module=error.name)


@click.group()
@output_option
def pipeline() -> None:
    """Run pipelines over messages in bulk, on Spark."""


@pipeline.command()
@click.argument("file", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path), default="quire-spark.zip")
@output_option
@click.pass_obj
def package(output: Output, file: Path) -> None:
    """Make an archive for a cluster, whose executors need not have Quire.

    FILE gets Quire and the packages that its data source needs, for the version of Python that runs this command. The
    default is quire-spark.zip. The lines that are printed start a pipeline on a cluster with it.
    """
    try:
        from quire.spark.cluster_package import make_package, submit_lines, wanted_python
    except ModuleNotFoundError as error:
        raise _missing(error) from error
    make_package(file)
    lines = submit_lines(file)
    facts = {"file": str(file), "bytes": file.stat().st_size, "python": wanted_python(), "submit": lines}
    output.done(f"wrote {file}, for {facts['python']}; a pipeline runs on a cluster with it so:", facts)
    if output.format == "table":
        click.echo(lines)


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
