"""How much a micro-batch reads, and how its offsets are kept."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows, ReadMinRows

from quire.spark.options import Options, Use
from quire.spark.reading import Backlog, Limits, Place, Position, by_stream, default_limit

PLACES = st.builds(Place, st.sampled_from(["events", "a.b", "1"]), st.integers(0, 20))
BACKLOGS = st.dictionaries(
    PLACES,
    st.builds(lambda first, count, size: Backlog(first, first + count, size), st.integers(1, 10**9),
              st.integers(1, 10**6), st.floats(1, 10**6)),
    min_size=1,
)  # fmt: skip


def options(**given: str) -> Options:
    return Options.of({"broker.url": "http://127.0.0.1:8161", "subscribe": "events", **given}, Use.STREAM)


def test_shares_are_proportional() -> None:
    backlogs = {Place("events", 0): Backlog(11, 311, 10.0), Place("events", 1): Backlog(1, 101, 10.0)}
    assert Limits(max_offsets=40).ends(backlogs) == {Place("events", 0): 41, Place("events", 1): 11}
    assert Limits(max_bytes=2000).ends(backlogs) == {Place("events", 0): 161, Place("events", 1): 51}
    assert Limits(max_offsets=40, max_bytes=2000).ends(backlogs)[Place("events", 0)] == 41


@given(BACKLOGS, st.integers(1, 10**7))
def test_each_partition_gets_on_and_together_they_stay_below_the_limit(
    backlogs: dict[Place, Backlog], maximum: int
) -> None:
    ends = Limits(max_offsets=maximum).ends(backlogs)
    taken = {place: ends[place] - backlog.first for place, backlog in backlogs.items()}
    assert all(1 <= taken[place] <= backlog.offsets for place, backlog in backlogs.items())
    assert sum(taken.values()) <= max(maximum, 0) + len(backlogs)
    assert sum(taken.values()) >= min(maximum, sum(backlog.offsets for backlog in backlogs.values())) - len(backlogs)


@given(BACKLOGS, st.integers(1, 10**9))
def test_bytes_are_counted_by_the_mean_size_of_a_message(backlogs: dict[Place, Backlog], maximum: int) -> None:
    ends = Limits(max_bytes=maximum).ends(backlogs)
    size = sum((ends[place] - backlog.first) * backlog.mean_size for place, backlog in backlogs.items())
    assert size <= maximum * 1.000001 + sum(backlog.mean_size for backlog in backlogs.values())


@pytest.mark.parametrize(
    ("given_options", "limit"),
    [
        ({}, ReadAllAvailable()),
        ({"maxOffsetsPerTrigger": "7"}, ReadMaxRows(7)),
        ({"maxBytesPerTrigger": "7KB"}, ReadMaxBytes(7000)),
        ({"minOffsetsPerTrigger": "7"}, ReadMinRows(7)),
        ({"minOffsetsPerTrigger": "7", "maxOffsetsPerTrigger": "9"}, ReadMaxRows(9)),
    ],
)
def test_spark_is_told_one_limit(given_options: dict[str, str], limit: ReadLimit) -> None:
    assert default_limit(options(**given_options)) == limit


def test_what_spark_asks_for_counts_and_everything_means_everything() -> None:
    given_options = options(minOffsetsPerTrigger="7", maxOffsetsPerTrigger="9", maxBytesPerTrigger="1KB")
    assert Limits.of(given_options, ReadMaxRows(5)) == Limits(5, 1000, 7)
    assert Limits.of(given_options, ReadMaxBytes(5)) == Limits(9, 5, 7)
    assert Limits.of(given_options, ReadMinRows(5)) == Limits(9, 1000, 5)
    assert Limits.of(given_options, ReadAllAvailable()) == Limits()


@given(st.dictionaries(PLACES, st.integers(1, 10**12)))
def test_a_position_survives_the_checkpoint(offsets: dict[Place, int]) -> None:
    begun = Position(offsets, "g", {"a": "1f"})
    position = begun.moved({place: offset + 1 for place, offset in offsets.items()}, {"a": "2e"})
    for one in (begun, position, position.moved(offsets, {})):
        kept = json.loads(json.dumps(one.encoded()))
        assert Position.of(kept) == one
        assert Position.of(kept).encoded() == kept
    assert position.moved(offsets, {}).start == begun
    assert sum(len(partitions) for partitions in by_stream(offsets).values()) == len(offsets)


def test_the_same_position_is_the_same_text() -> None:
    one, other = Place("a", 2), Place("a", 10)
    texts = {
        json.dumps(Position(offsets, "g", identities).encoded())
        for offsets in ({one: 5, other: 6}, {other: 6, one: 5})
        for identities in ({"a": "1", "b": "2"}, {"b": "2", "a": "1"})
    }
    assert texts == {'{"?group": "g", "?identity": {"a": "1", "b": "2"}, "a": {"2": 5, "10": 6}}'}
