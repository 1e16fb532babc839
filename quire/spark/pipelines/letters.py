"""Dead letters as rows, and what they have in common: causes, origins, ages."""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from quire.errors import InvalidArgument
from quire.spark.schema import CAUSE, ORIGIN

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
