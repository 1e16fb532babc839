"""The pipeline ``dead-letters``: why messages became dead letters, where they come from, how old they are.

Dead letters are in the destinations that policies send them to, and in those of consumer groups.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from rich.console import Console

from quire.clock import SystemClock
from quire.destination import DestinationKind, split_prefix, written
from quire.settings import Policy
from quire.spark.options import Headers
from quire.spark.pipelines import command
from quire.spark.pipelines.files import Table, plain_rows, print_table, time_text
from quire.spark.pipelines.replay_plan import headers_of, origin
from quire.spark.reading import CAUSE, ORIGIN, read_schema
from quire.units import format_size

AGES: Final = (
    (60, "less than a minute"), (300, "less than 5 minutes"), (900, "less than 15 minutes"),
    (3600, "less than an hour"), (4 * 3600, "less than 4 hours"), (12 * 3600, "less than 12 hours"),
    (86_400, "less than a day"), (3 * 86_400, "less than 3 days"), (7 * 86_400, "less than a week"),
    (14 * 86_400, "less than 2 weeks"),
    (30 * 86_400, "less than 30 days"), (90 * 86_400, "less than 90 days"),
)  # fmt: skip
"""Where ages are cut, in seconds, and what is below."""

OLDER: Final = "90 days or more"

SAMPLE: Final = 200  # how many characters of a body a sample shows


def letters(messages: DataFrame, now: int) -> DataFrame:
    """Dead letters from messages with headers: ages in seconds, sizes in bytes; numbers in ``cause`` are ``#``.

    ``headers`` has the headers but for those of cause and origin.
    """
    headers = headers_of(messages)
    text = F.coalesce(F.try_element_at(headers, F.lit(CAUSE)), F.lit("unknown"))
    return messages.select(
        "destination",
        "offset",
        "message_id",
        F.col("timestamp").alias("sent"),
        ((F.lit(now) - F.unix_millis("timestamp")) / 1000).alias("age"),
        F.coalesce(origin(headers), F.lit("unknown")).alias("origin"),
        text.alias("text"),
        F.regexp_replace(text, r"\d+(\.\d+)?", "#").alias("cause"),
        F.octet_length("value").alias("size"),
        F.substring(F.try_validate_utf8(F.col("value").cast("string")), 1, SAMPLE).alias("sample"),
        F.map_filter(headers, lambda name, _: ~name.isin(CAUSE, ORIGIN)).alias("headers"),
    )


def by(rows: DataFrame, *names: str) -> DataFrame:
    counts = [
        F.count("*").alias("count"),
        F.sum("size").alias("bytes"),
        F.unix_millis(F.min("sent")).alias("first"),
        F.unix_millis(F.max("sent")).alias("last"),
    ]
    return rows.groupBy(*names).agg(*counts).orderBy(F.col("count").desc(), *names)


def ages(rows: DataFrame) -> DataFrame:
    """How many dead letters are how old: ``age`` in words, ``count``; the youngest first."""
    words = F.coalesce(*[F.when(F.col("age") < below, text) for below, text in AGES], F.lit(OLDER))
    grouped = rows.groupBy(words.alias("words")).agg(F.count("*").alias("count"), F.min("age").alias("youngest"))
    return grouped.orderBy("youngest").select(F.col("words").alias("age"), "count")


def over_time(rows: DataFrame, step: int) -> DataFrame:
    """How many of the dead letters were sent in each step, in seconds; ``start`` is in milliseconds since the epoch."""
    start = F.floor(F.unix_millis("sent") / (step * 1000)) * step * 1000
    return rows.groupBy(start.alias("start")).agg(F.count("*").alias("count")).orderBy("start")


def samples(rows: DataFrame, each: int) -> DataFrame:
    latest = Window.partitionBy("cause").orderBy(F.col("sent").desc(), "destination", "offset")
    numbered = rows.withColumn("number", F.row_number().over(latest))
    return numbered.where(F.col("number") <= each).orderBy("cause", "number").drop("number")


Row = dict[str, Any]

ROWS = 50  # how many causes and origins a report names at the most
_STEPS = (60, 300, 900, 3600, 4 * 3600, 86_400, 7 * 86_400, 30 * 86_400)
_POINTS = 200


@dataclass(frozen=True, slots=True)
class LettersReport:
    """What was found: how many dead letters there are, and rows as the functions of ``letters`` give them."""

    count: int
    causes: list[Row]
    origins: list[Row]
    queues: list[Row]
    ages: list[Row]
    times: list[Row]
    samples: list[Row]

    @property
    def groups(self) -> dict[str, list[Row]]:
        return {"cause": self.causes, "origin": self.origins, "destination": self.queues}


def report(rows: DataFrame, each: int) -> LettersReport:
    rows = rows.persist(StorageLevel.DISK_ONLY)
    try:
        causes = plain_rows(by(rows, "cause").limit(ROWS))
        extent = rows.agg(F.count("*"), F.min("age"), F.max("age")).first()
        assert extent is not None
        count, youngest, oldest = extent
        # The shortest step that gives a chart few enough points.
        span = oldest - youngest if count else 0
        step = next((step for step in _STEPS if span <= step * _POINTS), _STEPS[-1])
        shown = samples(rows, each).where(F.col("cause").isin([row["cause"] for row in causes]))
        return LettersReport(
            count,
            causes,
            plain_rows(by(rows, "origin").limit(ROWS)),
            plain_rows(by(rows, "destination").limit(ROWS)),
            plain_rows(ages(rows)),
            _without_gaps(plain_rows(over_time(rows, step)), step * 1000),
            plain_rows(shown.withColumn("sent", F.unix_millis("sent"))),
        )
    finally:
        rows.unpersist()


def _without_gaps(rows: Sequence[Row], step: int) -> list[Row]:
    counts = {row["start"]: row["count"] for row in rows}
    starts = range(min(counts), max(counts) + 1, step) if counts else ()
    return [{"start": start, "count": counts.get(start, 0)} for start in starts]


def print_report(report: LettersReport, console: Console) -> None:
    """Print a report, without samples: they are for the page."""
    for name, rows in report.groups.items():
        print_table(console, f"By {name}", groups(rows, name))
    ages = [[row["age"], row["count"]] for row in report.ages]
    print_table(console, "By age", Table(["age", "messages"], ages))
    console.print(f"{report.count} dead letters")


def groups(rows: Sequence[Row], name: str) -> Table:
    cells = [
        [row[name], row["count"], format_size(row["bytes"]), time_text(row["first"]), time_text(row["last"])]
        for row in rows
    ]
    return Table([name, "messages", "size", "first sent", "last sent"], cells)


def sample_table(report: LettersReport) -> Table:
    names = ("text", "origin", "destination", "message_id")
    cells = [
        [*[row[name] for name in names], time_text(row["sent"]), row["size"], _headers(row), _beginning(row)]
        for row in report.samples
    ]
    return Table(["cause", "origin", "queue", "message id", "sent", "bytes", "headers", "body begins"], cells)


def _headers(row: Row) -> str:
    return "\n".join([f"{name}: {value}" for name, value in sorted(row["headers"].items())])


def _beginning(row: Row) -> str:
    return "(not text)" if row["sample"] is None else str(row["sample"])


GROUP_PREFIX = "%DLQ%"  # how the dead letter queue of a consumer group begins; the group's name follows


def letter_destinations(place: command.Place) -> list[str]:
    """The destinations with dead letters, by the policies of the broker.

    A store does not have the policies; then these are the destinations with the names that the defaults give.
    """
    policies = place.policies() if place.url else [{}]
    is_one = named_by(policies)
    return [name for name in place.destinations() if is_one(name)]


def named_by(policies: Iterable[Mapping[str, Any]]) -> Callable[[str], bool]:
    """Whether dead letters go to a destination, by the values that policies set; all else is the default."""
    shared, affixes = set[str](), {(GROUP_PREFIX, "")}
    default = Policy()
    for values in policies:

        def value(key: str, values: Mapping[str, Any] = values) -> str:
            return str(values.get(key, getattr(default, key)))

        shared.add(value("dead_letter_queue"))
        affixes |= {(value(f"{kind}_prefix"), value(f"{kind}_suffix")) for kind in ("queue", "topic")}
    affixes.discard(("", ""))

    def is_one(address: str) -> bool:
        kind, name = split_prefix(address)
        return kind is not DestinationKind.STREAM and (
            name in shared or any([name.startswith(prefix) and name.endswith(suffix) for prefix, suffix in affixes])
        )

    return is_one


ANY_STEP = 1e9  # for values that have no gaps


def letters_page(report: LettersReport, subtitle: str) -> str:
    from quire.spark.pipelines.pages import over_time as drawn
    from quire.spark.pipelines.pages import rendered

    return rendered(
        "dead_letters.html",
        subtitle=subtitle,
        report=report,
        groups=[
            (name, {row[name]: row["count"] for row in rows[:10]}, groups(rows, name))
            for name, rows in report.groups.items()
        ],
        times=drawn({"dead letters": {row["start"]: row["count"] for row in report.times}}, ANY_STEP),
        ages={row["age"]: row["count"] for row in report.ages},
        samples=sample_table(report),
    )


@click.command("dead-letters", cls=command.PipelineCommand)
@command.place_options
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
@command.report_option
@command.spark_options
@command.output_option
def dead_letters(
    place: command.Place, names: tuple[str, ...], samples: int, page: Path | None, cores: int, memory: str, output: str
) -> None:
    """Analyse dead letters: causes, origins, ages, samples.

    By default those of all dead letter queues: the queues and topics that the broker's policies name, shared and
    individual, and those of consumer groups. A store does not have the policies; there the names are the defaults.
    """
    if names and place.parquet:
        raise click.UsageError("--parquet is read as a whole: leave out --destination")
    spark = command.start_session("dead-letters", cores, memory)
    now = SystemClock().now_ms()
    messages = _messages(spark, place, [str(written(name)) for name in names])
    with command.live(spark, "analysing dead letters"):
        found = report(letters(messages, now), samples)
    command.show(found, output, print_report, place, page, letters_page)


def _messages(spark: SparkSession, place: command.Place, names: list[str]) -> DataFrame:
    if not place.parquet and not names and not (names := letter_destinations(place)):
        return spark.createDataFrame([], read_schema(Headers.MAP))
    return place.read(spark, ",".join(names), includeHeaders="true")


if __name__ == "__main__":
    command.run_alone(dead_letters)
