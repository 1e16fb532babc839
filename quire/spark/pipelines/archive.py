"""The pipeline ``archive``: messages, or the ledger, to Parquet, by destination and day."""

import click
from pyspark.sql import SparkSession

from quire.destination import written
from quire.errors import InvalidArgument
from quire.spark.pipelines import command
from quire.spark.pipelines.archive_files import Archive, Layout


@click.command(cls=command.PipelineCommand)
@click.argument("directory", metavar="DIR")
@command.place_options
@click.option(
    "--destination", "names", metavar="NAME", multiple=True, help="A destination to archive. May be repeated."
)
@click.option("--ledger", is_flag=True, help="Archive the delivery ledger.")
@click.option(
    "--follow",
    metavar="TIME",
    callback=command.duration,
    help="Archive new messages at this interval, until Ctrl-C. Streams only.",
)
@click.option(
    "--partition-by",
    metavar="COLUMNS",
    default="destination,day",
    show_default=True,
    help="The columns of the directories: destination, day, hour, partition, ..., or headers.NAME.",
)
@click.option(
    "--file-size",
    metavar="SIZE",
    callback=command.size,
    default="128m",
    show_default=True,
    help="The target size of a file.",
)
@click.option("--compact", is_flag=True, help="Merge the small files of days that are over.")
@command.spark_options
@command.output_option
def archive(
    directory: str, place: command.Place, names: tuple[str, ...], ledger: bool, follow: float | None, partition_by: str,
    file_size: int, compact: bool, cores: int, memory: str, output: str,
) -> None:  # fmt: skip
    """Copy messages to Parquet files in DIR, by destination and day or by other columns.

    The next run on the same DIR continues where the last one ended, even if that was killed, without duplicates.

    Streams of a broker are read in streaming mode. Queues, topics and stores are read once, and the next run archives
    the messages sent since.

    --compact merges the small files of the days that are over, after the run, or with --follow once a day. Without
    --destination and --ledger it only compacts.
    """
    layout = Layout(tuple(partition_by.split(",")), file_size)
    if compact and "day" not in layout.columns:
        raise click.UsageError("--compact needs day among the columns of --partition-by")
    is_reading = bool(names or ledger or place.parquet or not compact)
    subscribe = _destinations(names, ledger, place) if is_reading else []
    is_stream = place.can_stream and not any(name.startswith(("queue:", "topic:")) for name in subscribe)
    if follow is not None and not (is_stream and is_reading):
        raise click.UsageError("--follow is for streams of a broker")
    spark = command.start_session("archive", cores, memory)
    archive = Archive(spark, directory, layout, is_daily=compact and follow is not None)
    if is_reading:
        run(spark, archive, place, ",".join(subscribe), follow, is_stream=is_stream)
    if compact:
        with command.live(spark, "compacting"):
            archive.compact()
    if output == "json":
        command.print_json({"rows": archive.written, "compacted_files": archive.merged, "directory": directory})
    else:
        click.echo(f"archived {archive.written} messages to {directory}")
        if compact:
            click.echo(f"merged {archive.merged} small files")


def run(
    spark: SparkSession,
    archive: Archive,
    place: command.Place,
    subscribe: str,
    follow: float | None,
    *,
    is_stream: bool,
) -> None:
    options = {} if subscribe == command.LEDGER else {"includeHeaders": "true"}
    with command.live(spark, "archiving"):
        if is_stream:
            command.wait_for(archive.start(place.read_stream(spark, subscribe, **options), follow))
        else:
            archive.add(place.read(spark, subscribe, **options))


def _destinations(names: tuple[str, ...], ledger: bool, place: command.Place) -> list[str]:
    if place.parquet:
        if names or ledger:
            raise click.UsageError("--parquet is archived as a whole: leave out --destination and --ledger")
        return []
    if ledger == bool(names):
        raise InvalidArgument("give --destination NAME or --ledger", option="--destination")
    return [str(written(name)) for name in (names or (command.LEDGER,))]


if __name__ == "__main__":
    command.run_alone(archive)
