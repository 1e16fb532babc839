"""What has to be there after the kills, and what is."""

import json
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pyspark.sql import SparkSession

from tests.spark.pipeline_kills import queries
from tests.spark.target_broker import TargetBroker

T = TypeVar("T")


class Window(NamedTuple):
    """A row of the aggregates: a window and a key, how many numbers they have, and their sum."""

    start: int
    key: int
    numbers: int
    total: int


class Findings(NamedTuple):
    """How many rows there are, and which of them are not there exactly once."""

    numbers: int
    windows: int
    replayed: int
    wrong: dict[str, list[Any]]

    def __str__(self) -> str:
        return f"{self.numbers} numbers, {self.windows} windows, {self.replayed} messages replayed"


def findings(spark: SparkSession, broker: TargetBroker, work: Path, far: int) -> Findings:
    stored: dict[str, list[bytes]] = {queries.NUMBERS: [], queries.SUMS: [], queries.REPLAYED: []}
    for destination, body in broker.stored():
        stored.setdefault(destination, []).append(body)
    numbers = [number for body in stored[queries.NUMBERS] if (number := int(body)) < far]
    expected = Counter(windows_of(numbers))
    sums = Counter([Window(**json.loads(body)) for body in stored[queries.SUMS]])
    rows = spark.read.parquet(str(work / queries.PARQUET / "files")).collect()
    files = Counter([Window(**row.asDict()) for row in rows])
    replayed = [int(body) for body in stored[queries.REPLAYED]]
    wrong: dict[str, list[Any]] = {
        "files": _differing(_before(files, far), expected),
        "stream": _differing(_before(sums, far), expected),
        "replay": _differing(Counter(replayed), Counter(range(len(replayed)))),
        "order of the replay": [] if replayed == sorted(replayed) else [replayed],
        "chunks of the replay": [len(replayed)] if len(replayed) % queries.CHUNK else [],
    }
    return Findings(len(numbers), len(expected), len(replayed), wrong)


def windows_of(numbers: list[int]) -> list[Window]:
    """The windows of numbers, as Spark should find them."""
    counts, sums = Counter[tuple[int, int]](), Counter[tuple[int, int]]()
    for number in numbers:
        place = (number // queries.WINDOW * queries.WINDOW, number % queries.KEYS)
        counts[place] += 1
        sums[place] += number
    return [Window(*place, counts[place], sums[place]) for place in counts]


def _before(windows: Counter[Window], far: int) -> Counter[Window]:
    return Counter({window: times for window, times in windows.items() if window.start < far})


def _differing(found: Counter[T], expected: Counter[T]) -> list[tuple[T, int, int]]:
    return [(row, found[row], expected[row]) for row in found | expected if found[row] != expected[row]]
