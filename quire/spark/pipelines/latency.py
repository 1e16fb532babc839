"""The pipeline ``latency``: how long messages took, by the delivery ledger."""

from dataclasses import asdict
from pathlib import Path

import click

from quire.clock import SystemClock
from quire.spark.pipelines.command import (
    PipelineCommand,
    console,
    duration,
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
from quire.spark.pipelines.histories import histories
from quire.spark.pipelines.latency_measures import print_report, report
from quire.spark.pipelines.ledger import events
from quire.spark.pipelines.place import LEDGER, Place


@click.command(cls=PipelineCommand)
@place_options
@click.option("--window", callback=duration, default="1m", show_default=True, help="The length of a window.")
@click.option("--subscriber", metavar="NAME", help="Also measure topics and streams, for this subscription or group.")
@report_option
@spark_options
@output_option
def latency(
    place: Place, window: float, subscriber: str | None, page: Path | None, cores: int, memory: str, output: str
) -> None:
    """Measure latencies by a delivery ledger.

    Prints the percentiles p50, p95, p99 and the maximum from send to delivery, from delivery to acknowledgement, and of
    both, by destination, by consumer, and over time. A message belongs to the window in which it was sent.
    """
    spark = start_session("latency", cores, memory)
    with live(spark, "measuring"):
        found = report(histories(events(place.read(spark, LEDGER), subscriber)), window=window)
    if page:
        from quire.spark.pipelines.pages import latency_page

        page.write_text(latency_page(found, f"{place}, {time_text(SystemClock().now_ms())} UTC"), encoding="utf-8")
    if output == "json":
        print_json(asdict(found))
    else:
        print_report(found, console())


if __name__ == "__main__":
    run_alone(latency)
