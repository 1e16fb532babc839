"""Messages as the data source reads them."""

from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession

SCHEMA = (
    "destination string, partition int, offset bigint, message_id string, timestamp timestamp, priority int, "
    "persistent boolean, expiration timestamp, deliveries int, key string, value binary, headers map<string,string>"
)
FIRST = datetime(2026, 1, 31, 23, 59, tzinfo=UTC)
"""When the message of offset 1 came; each offset is ten seconds later."""


def message(offset: int, destination: str = "stream://events", partition: int = 0, **changes: Any) -> tuple[Any, ...]:
    row = {
        "destination": destination,
        "partition": partition,
        "offset": offset,
        "message_id": f"ID:{destination}-{partition}-{offset}",
        "timestamp": FIRST + timedelta(seconds=10 * (offset - 1)),
        "priority": 4,
        "persistent": True,
        "expiration": None,
        "deliveries": 0,
        "key": None,
        "value": b"body %d" % offset,
        "headers": {},
    }
    return tuple((row | changes).values())


def frame(spark: SparkSession, rows: list[tuple[Any, ...]]) -> DataFrame:
    return spark.createDataFrame(rows, SCHEMA)
