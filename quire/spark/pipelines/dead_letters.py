"""The pipeline ``dead-letters``: why messages became dead letters, where they come from, how old they are."""

from dataclasses import asdict
from pathlib import Path

import click
from pyspark.sql import DataFrame, SparkSession

from quire.clock import SystemClock
from quire.destination import written
from quire.spark.batch_reader import read_schema
from quire.spark.options import Headers
from quire.spark.pipelines.command import (
    PipelineCommand,
    console,
    live,
    output_option,
    place_options,
    print_json,
    report_option,
    run_alone,
    spark_options,
    start_session,
)
from quire.spark.pipelines.files import time_text
from quire.spark.pipelines.letters import letter_destinations, letters, print_report, report
from quire.spark.pipelines.place import Place


@click.command("dead-letters", cls=PipelineCommand)
@place_options
@click.option(
    "--destination",
    "names",
    metavar="NAME",
    multiple=True,
    help="A destination with dead letters. May be repeated. By default all dead letter queues.",
)
@click.option(
    "--samples", type=click.IntRange(0), default=3, show_default=True, help="The number of samples of each cause."
)
@report_option
@spark_options
@output_option
def dead_letters(
    place: Place, names: tuple[str, ...], samples: int, page: Path | None, cores: int, memory: str, output: str
) -> None:
    """Analyse dead letters: causes, origins, ages, samples.

    By default those of all dead letter queues: the queues and topics that the broker's policies name, shared and
    individual, and those of consumer groups. A store does not have the policies; there the names are the defaults.
    """
    if names and place.parquet:
        raise click.UsageError("--parquet is read as a whole: leave out --destination")
    spark = start_session("dead-letters", cores, memory)
    now = SystemClock().now_ms()
    messages = _messages(spark, place, [str(written(name)) for name in names])
    with live(spark, "analysing dead letters"):
        found = report(letters(messages, now), samples)
    if page:
        from quire.spark.pipelines.pages import letters_page

        page.write_text(letters_page(found, f"{place}, {time_text(now)} UTC"), encoding="utf-8")
    if output == "json":
        print_json(asdict(found))
    else:
        print_report(found, console())


def _messages(spark: SparkSession, place: Place, names: list[str]) -> DataFrame:
    if not place.parquet and not names and not (names := letter_destinations(place)):
        return spark.createDataFrame([], read_schema(Headers.MAP))
    return place.read(spark, ",".join(names), includeHeaders="true")


if __name__ == "__main__":
    run_alone(dead_letters)
