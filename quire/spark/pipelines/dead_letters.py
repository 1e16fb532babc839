"""The pipeline ``dead-letters``: why messages became dead letters, where they come from, how old they are."""

from dataclasses import asdict
from pathlib import Path

import click

from quire.clock import SystemClock
from quire.destination import written
from quire.spark.pipelines.command import (
    PipelineCommand,
    console,
    output_option,
    place_of,
    place_options,
    print_json,
    run_alone,
    spark_options,
    start_session,
)

QUEUE = "queue://ActiveMQ.DLQ"
"""Where dead letters go unless a policy says otherwise."""


@click.command("dead-letters", cls=PipelineCommand)
@place_options
@click.option("--destination", "names", metavar="NAME", multiple=True, help=f"Where they are.  [default: {QUEUE}]")
@click.option("--samples", type=click.IntRange(0), default=3, show_default=True, help="How many of each cause.")
@click.option("--report", "page", type=click.Path(path_type=Path), help="Write an HTML page there too.")
@spark_options
@output_option
def dead_letters(
    url: str | None, store: str | None, parquet: str | None, options: tuple[str, ...], names: tuple[str, ...],
    samples: int, page: Path | None, cores: int, memory: str, output: str,
) -> None:  # fmt: skip
    """Look into dead letters: causes, origins, ages, samples."""
    place = place_of(url, store, parquet, options)
    if names and parquet:
        raise click.UsageError("Parquet files are read whole: leave --destination out")
    spark = start_session("dead-letters", cores, memory)
    from quire.spark.pipelines.html_report import time_text
    from quire.spark.pipelines.letters import letters
    from quire.spark.pipelines.letters_report import html_page, print_report, report
    from quire.spark.pipelines.live import Live

    now = SystemClock().now_ms()
    subscribe = ",".join([str(written(name)) for name in (names or (QUEUE,))])
    messages = place.read(spark, subscribe) if parquet else place.read(spark, subscribe, includeHeaders="true")
    with Live(spark, "looking into dead letters"):
        found = report(letters(messages, now), samples)
    if page:
        page.write_text(html_page(found, f"{place}, {time_text(now)} UTC"), encoding="utf-8")
    if output == "json":
        print_json(asdict(found))
    else:
        print_report(found, console())


def main() -> None:
    """Run it alone, under ``spark-submit`` say."""
    run_alone(dead_letters)


if __name__ == "__main__":
    main()
