"""The pipeline ``archive``: messages, or the ledger, to Parquet, by destination and day."""

import click
from pyspark.sql import SparkSession

from quire.destination import written
from quire.errors import InvalidArgument
from quire.spark.pipelines.archive_files import Archive
from quire.spark.pipelines.command import (
    PipelineCommand,
    duration,
    output_option,
    place_options,
    print_json,
    run_alone,
    spark_options,
    start_session,
    wait_for,
)
from quire.spark.pipelines.live import live
from quire.spark.pipelines.place import LEDGER, Place


@click.command(cls=PipelineCommand)
@click.argument("directory", metavar="DIR")
@place_options
@click.option(
    "--destination", "names", metavar="NAME", multiple=True, help="A destination to archive. May be repeated."
)
@click.option("--ledger", is_flag=True, help="Archive the delivery ledger.")
@click.option(
    "--follow",
    metavar="TIME",
    callback=duration,
    help="Archive new messages at this interval, until Ctrl-C. Streams only.",
)
@spark_options
@output_option
def archive(
    directory: str, place: Place, names: tuple[str, ...], ledger: bool, follow: float | None, cores: int, memory: str,
    output: str,
) -> None:  # fmt: skip
    """Copy messages to Parquet files in DIR, by destination and day.

    The next run on the same DIR continues where the last one ended, even if that was killed, without duplicates.

    Streams of a broker are read in streaming mode. Queues, topics and stores are read once, and the next run archives
    the messages sent since.
    """
    subscribe = _destinations(names, ledger, place)
    is_stream = place.can_stream and not any(name.startswith(("queue:", "topic:")) for name in subscribe)
    if follow is not None and not is_stream:
        raise click.UsageError("--follow is for streams of a broker")
    spark = start_session("archive", cores, memory)
    rows = run(spark, place, ",".join(subscribe), directory, follow, is_stream=is_stream)
    if output == "json":
        print_json({"rows": rows, "directory": directory})
    else:
        click.echo(f"archived {rows} rows to {directory}")


def run(
    spark: SparkSession, place: Place, subscribe: str, directory: str, follow: float | None, *, is_stream: bool
) -> int:
    """Archive what is new, and return how many rows that was; ``follow`` says how often to look, in seconds."""
    archive = Archive(spark, directory)
    options = {} if subscribe == LEDGER else {"includeHeaders": "true"}
    with live(spark, "archiving"):
        if is_stream:
            wait_for(archive.start(place.read_stream(spark, subscribe, **options), follow))
        else:
            archive.add(place.read(spark, subscribe, **options))
    return archive.written


def _destinations(names: tuple[str, ...], ledger: bool, place: Place) -> list[str]:
    if place.parquet:
        if names or ledger:
            raise click.UsageError("--parquet is archived as a whole: leave out --destination and --ledger")
        return []
    if ledger == bool(names):
        raise InvalidArgument("give --destination NAME or --ledger", option="--destination")
    return [str(written(name)) for name in (names or (LEDGER,))]


if __name__ == "__main__":
    run_alone(archive)
