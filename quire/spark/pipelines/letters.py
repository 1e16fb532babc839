"""Dead letters as rows, and what they have in common: causes, origins, ages.

They are in the destinations that policies send them to, and in those of consumer groups.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from quire.destination import DestinationKind, split_prefix
from quire.errors import InvalidArgument
from quire.settings import Policy
from quire.spark.batch_reader import CAUSE, ORIGIN
from quire.spark.pipelines.files import Table, plain_rows, print_table, time_text
from quire.spark.pipelines.place import Place
from quire.units import format_size

if TYPE_CHECKING:
    from rich.console import Console

AGES: Final = (
    (60, "less than a minute"), (300, "less than 5 minutes"), (900, "less than 15 minutes"),
    (3600, "less than an hour"), (4 * 3600, "less than 4 hours"), (12 * 3600, "less than 12 hours"),
    (86_400, "less than a day"), (3 * 86_400, "less than 3 days"), (7 * 86_400, "less than a week"),
    (14 * 86_400, "less than 2 weeks"),
    (30 * 86_400, "less than 30 days"), (90 * 86_400, "less than 90 days"),
)  # fmt: skip
"""Where ages are cut, in seconds, and what is below."""

OLDER: Final = "90 days or more"

SAMPLE: Final = 200
"""How many characters of a body a sample shows."""


def headers_of(messages: DataFrame) -> Column:
    """The headers of messages; an empty map where there are none."""
    if "headers" not in messages.columns:
        text = "the messages have no column headers: read or archive them with includeHeaders=true"
        raise InvalidArgument(text, columns=messages.columns)
    return F.coalesce("headers", F.create_map().cast("map<string,string>"))


def origin(headers: Column) -> Column:
    """Where a dead letter was, as ``queue://orders``; null for other messages."""
    return F.regexp_replace(F.try_element_at(headers, F.lit(ORIGIN)), "^/(queue|topic|stream)/", "$1://")


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
    """How many dead letters there are of each value, the most first; how many bytes, and the first and the last one."""
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
    """The latest dead letters of each cause, so many of each."""
    latest = Window.partitionBy("cause").orderBy(F.col("sent").desc(), "destination", "offset")
    numbered = rows.withColumn("number", F.row_number().over(latest))
    return numbered.where(F.col("number") <= each).orderBy("cause", "number").drop("number")


Row = dict[str, Any]

ROWS = 50
"""How many causes and origins a report names at the most."""

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
        """Counts by cause, by origin and by destination."""
        return {"cause": self.causes, "origin": self.origins, "destination": self.queues}


def report(rows: DataFrame, each: int) -> LettersReport:
    """Look into dead letters; so many samples of each cause."""
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
    """The counts of all steps, in milliseconds, from the first one to the last."""
    counts = {row["start"]: row["count"] for row in rows}
    starts = range(min(counts), max(counts) + 1, step) if counts else ()
    return [{"start": start, "count": counts.get(start, 0)} for start in starts]


def print_report(report: LettersReport, console: "Console") -> None:
    """Print a report, without samples: they are for the page."""
    for name, rows in report.groups.items():
        print_table(console, f"By {name}", groups(rows, name))
    ages = [[row["age"], row["count"]] for row in report.ages]
    print_table(console, "By age", Table(["age", "messages"], ages))
    console.print(f"{report.count} dead letters")


def groups(rows: Sequence[Row], name: str) -> Table:
    """Dead letters by cause, origin or destination."""
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


GROUP_PREFIX = "%DLQ%"
"""How the dead letter queue of a consumer group begins; the group's name follows."""


def letter_destinations(place: Place) -> list[str]:
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
