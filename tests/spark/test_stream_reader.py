"""The stream reader as Spark calls it, on a real broker: offsets, limits, losses, progress."""

import itertools
import json
import logging
import pickle
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from quire.clock import ManualClock, SystemClock
from quire.errors import BrokerUnreachable, DataLost, InvalidArgument, StreamReplaced, UnknownDestination
from quire.spark.options import Options, Use
from quire.spark.reading import GROUP, IDENTITIES, StreamReader
from tests.postgresql_server import PostgresqlServer
from tests.spark.running_broker import RunningBroker, running_broker

pytestmark = pytest.mark.slow

PATIENCE = 60.0
CLOCK = SystemClock()
NUMBERS = itertools.count()
Kept = dict[str, Any]


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = CLOCK.monotonic() + PATIENCE
    while not condition():
        assert CLOCK.monotonic() < deadline, "it does not come to pass"
        time.sleep(0.05)


def reader(broker: RunningBroker, stream: str, **given: str) -> StreamReader:
    options = {"broker.url": broker.url, "subscribe": stream, "startingOffsets": "earliest", "groupId": "job"}
    named = {"assign", "subscribePattern"} & given.keys()
    timed = {"startingTimestamp", "startingOffsetsByTimestamp"} & given.keys()
    for name in ["subscribe"] * bool(named) + ["startingOffsets"] * bool(timed):
        del options[name]
    return StreamReader(Options.of(options | given, Use.STREAM), ["partition", "offset", "value"])


def latest(source: StreamReader, start: Kept) -> Kept:
    """What Spark asks before each micro-batch."""
    return source.latestOffset(start, source.getDefaultReadLimit())


def read(source: StreamReader, start: Kept, end: Kept) -> list[tuple[int, int]]:
    """Partition and offset of the messages of a range, as tasks in other processes read them."""
    far_away = pickle.loads(pickle.dumps(source))
    return sorted(
        (row["partition"], row["offset"])
        for task in source.partitions(start, end)
        for batch in far_away.read(pickle.loads(pickle.dumps(task)))
        for row in batch.to_pylist()
    )


def offsets(kept: Kept) -> Kept:
    return {stream: found for stream, found in kept.items() if not stream.startswith("?")}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with running_broker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.fixture
def stream(broker: RunningBroker) -> str:
    """A stream of the test's own with 30 messages in partition 0 and 10 in partition 1."""
    name = f"events{next(NUMBERS)}"
    broker.create(name, 2)
    broker.send(name, 30)
    broker.send(name, 10, partition=1)
    return name


# Where it begins.


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"0": 1, "1": 1}),
        ({"startingOffsets": "latest"}, {"0": 31, "1": 11}),
        ({"startingOffsets": '{"NAME": {"0": 12, "1": -2}}'}, {"0": 12, "1": 1}),
        ({"startingOffsets": '{"NAME": {"0": 12}}'}, {"0": 12, "1": 11}),
        ({"startingTimestamp": "0"}, {"0": 1, "1": 1}),
        ({"startingTimestamp": "2100-01-01T00:00:00Z"}, {"0": 31, "1": 11}),
        ({"startingOffsetsByTimestamp": '{"NAME": {"0": 0}}'}, {"0": 1, "1": 11}),
        ({"startingOffsetsByTimestamp": '{"NAME": {"1": "2100-01-01T00:00:00Z"}}'}, {"0": 31, "1": 11}),
        ({"assign": '{"NAME": [1]}'}, {"1": 1}),
    ],
)
def test_a_new_query_begins_where_it_is_told(
    broker: RunningBroker, stream: str, given: dict[str, str], expected: Kept
) -> None:
    source = reader(broker, stream, **{option: text.replace("NAME", stream) for option, text in given.items()})
    assert offsets(source.initialOffset()) == {stream: expected}


def test_a_pattern_finds_new_streams_and_all_of_them(broker: RunningBroker) -> None:
    broker.create("found.a")
    broker.send("found.a", 3)
    source = reader(broker, "", subscribePattern="found.*")
    start = source.initialOffset()
    end = latest(source, start)
    assert offsets(end) == {"found.a": {"0": 4}}
    broker.create("found.b")
    broker.send("found.b", 2)
    assert read(source, end, latest(source, end)) == [(0, 1), (0, 2)]


def test_a_pattern_that_matches_nothing_is_warned_of_and_streams_that_come_are_read(
    broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        source = reader(broker, "", subscribePattern="late.*")
        start = source.initialOffset()
        assert latest(source, start) is start
    assert caplog.text.count("no stream matches subscribePattern late.* (a pattern is no regular expression") == 1
    broker.create("late.a")
    broker.send("late.a", 3)
    assert read(source, start, latest(source, start)) == [(0, 1), (0, 2), (0, 3)]


def test_partitions_that_are_added_are_read_from_their_beginning(broker: RunningBroker, stream: str) -> None:
    source = reader(broker, stream, startingOffsets="latest")
    start = source.initialOffset()
    broker.api.call("POST", f"/streams/{stream}/partitions", {"count": 3})
    broker.send(stream, 2, partition=2)
    end = latest(source, start)
    assert offsets(end) == {stream: {"0": 31, "1": 11, "2": 3}}
    assert read(source, start, end) == [(2, 1), (2, 2)]


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_messages_come_from_the_store_if_it_is_named(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    url = f"sqlite://{tmp_path}/store.db"
    if kind == "postgresql":
        server: PostgresqlServer = request.getfixturevalue("postgresql_server")
        url = server.url_for(tmp_path)
    with running_broker(tmp_path, STORE__URL=url) as broker:
        broker.create("s", 2)
        broker.send("s", 30)
        source = reader(broker, "s", **{"store.url": url})
        start = source.initialOffset()
        end = latest(source, start)
        assert read(source, start, end) == [(0, offset) for offset in range(1, 31)]
        source.commit(end)
        assert broker.lag("s", "job") == 0
        broker.restart()  # the store is there all the time
        broker.send("s", 2, partition=1)
        assert read(source, end, latest(source, end)) == [(1, 1), (1, 2)]
        assert "bulk.started" not in broker.log


# How far it goes.


def test_the_same_range_brings_the_same_messages_each_time(broker: RunningBroker, stream: str) -> None:
    source = reader(broker, stream)
    start = source.initialOffset()
    end = latest(source, start)
    broker.send(stream, 5)
    expected = [*[(0, n) for n in range(1, 31)], *[(1, n) for n in range(1, 11)]]
    assert read(source, start, end) == expected
    assert read(reader(broker, stream), start, json.loads(json.dumps(end))) == expected
    assert latest(source, latest(source, end)) == latest(source, end) != end
    assert source.reportLatestOffset() == {stream: {"0": 36, "1": 11}}


def test_a_limit_is_shared_out_by_what_there_is(broker: RunningBroker, stream: str) -> None:
    source = reader(broker, stream, maxOffsetsPerTrigger="20")
    start = source.initialOffset()
    first = latest(source, start)
    second = latest(source, first)
    assert offsets(first) == {stream: {"0": 16, "1": 6}}
    assert offsets(second) == {stream: {"0": 31, "1": 11}}
    assert offsets(source.latestOffset(start, ReadAllAvailable())) == offsets(second)


def test_a_limit_of_bytes(broker: RunningBroker, stream: str) -> None:
    half = broker.api.call("GET", f"/streams/{stream}")["bytes"] // 2
    source = reader(broker, stream, maxBytesPerTrigger=str(half))
    end = offsets(latest(source, source.initialOffset()))
    assert 14 <= end[stream]["0"] <= 17
    assert 5 <= end[stream]["1"] <= 7


def test_few_messages_wait_until_there_are_more_or_the_delay_is_over(broker: RunningBroker, stream: str) -> None:
    clock = ManualClock()
    given = {"minOffsetsPerTrigger": "50", "maxTriggerDelay": "10s", "subscribe": stream, "groupId": "job"}
    options = Options.of({"broker.url": broker.url, "startingOffsets": "earliest", **given}, Use.STREAM)
    source = StreamReader(options, ["offset"], clock)
    start = source.initialOffset()
    assert latest(source, start) is start
    clock.advance(10.1)
    end = latest(source, start)
    assert offsets(end) == {stream: {"0": 31, "1": 11}}
    broker.send(stream, 49)
    clock.advance(1)
    assert latest(source, end) is end
    broker.send(stream, 1)
    clock.advance(1)
    assert offsets(latest(source, end)) == {stream: {"0": 81, "1": 11}}


def test_what_is_available_now_is_settled_once(broker: RunningBroker, stream: str) -> None:
    source = reader(broker, stream, maxOffsetsPerTrigger="30", minOffsetsPerTrigger="1000")
    source.prepareForTriggerAvailableNow()
    broker.send(stream, 100)
    broker.api.call("POST", f"/streams/{stream}/partitions", {"count": 3})
    broker.send(stream, 1, partition=2)
    start = source.initialOffset()
    first = latest(source, start)
    second = latest(source, first)
    assert latest(source, second) is second
    assert offsets(second) == {stream: {"0": 31, "1": 11, "2": 1}}


def test_large_ranges_are_split(broker: RunningBroker, stream: str) -> None:
    source = reader(broker, stream, minPartitions="8")
    start = source.initialOffset()
    end = latest(source, start)
    assert len(source.partitions(start, end)) == 8
    assert len(reader(broker, stream).partitions(start, end)) == 2
    assert len(read(source, start, end)) == 40
    assert list(source.partitions(end, end)) == []


@pytest.mark.parametrize("again", ["the same driver", "another driver"])
def test_the_first_micro_batch_begins_where_it_was_planned_to_begin(
    broker: RunningBroker, stream: str, again: str
) -> None:
    source = reader(broker, stream, startingOffsets="latest")
    start = source.initialOffset()
    broker.send(stream, 5)
    end = latest(source, start)
    broker.send(stream, 7)
    if again == "another driver":
        source = reader(broker, stream, startingOffsets="latest")
    assert read(source, source.initialOffset(), end) == [(0, n) for n in range(31, 36)]
    assert read(source, end, latest(source, end)) == [(0, n) for n in range(36, 43)]


# What is gone.


@pytest.fixture(scope="module")
def forgetful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A broker whose streams keep few bytes."""
    with running_broker(tmp_path_factory.mktemp("forgetful"), POLICY__RETENTION_BYTES="20KB") as broker:
        yield broker


def overtaken(broker: RunningBroker, name: str, **given: str) -> tuple[StreamReader, Kept]:
    """A query that has stopped, so long ago that retention has passed it."""
    broker.create(name)
    broker.send(name, 10, body="x" * 1000)
    source = reader(broker, name, pinTtl="1s", **given)
    start = source.initialOffset()
    latest(source, start)
    broker.send(name, 40, body="x" * 1000)
    wait_until(lambda: earliest(broker, name) > 11)
    return reader(broker, name, **given), start


def earliest(broker: RunningBroker, name: str) -> int:
    found: int = broker.api.call("GET", f"/streams/{name}/offsets")["partitions"][0]["earliest"]
    return found


def test_that_retention_has_passed_a_checkpoint_is_an_error_that_says_what_to_do(forgetful: RunningBroker) -> None:
    source, start = overtaken(forgetful, "passed")
    with pytest.raises(
        DataLost, match=r"offsets 1 to \d+ of partition 0 of the stream passed were removed.*failOnDataLoss"
    ):
        latest(source, start)
    end = {**start, "passed": {"0": 11}}
    with pytest.raises(DataLost, match="offsets 1 to"):
        source.partitions(start, end)


def test_a_query_may_go_on_without_what_is_gone(forgetful: RunningBroker, caplog: pytest.LogCaptureFixture) -> None:
    source, start = overtaken(forgetful, "skipped", failOnDataLoss="false")
    with caplog.at_level(logging.WARNING):
        end = latest(source, start)
        latest(source, start)
    assert [record.message for record in caplog.records if "were removed" in record.message].count(
        caplog.records[0].message
    ) == 1
    first = earliest(forgetful, "skipped")
    assert read(source, start, end) == [(0, n) for n in range(first, 51)]


def test_a_pin_keeps_what_is_not_read_yet(forgetful: RunningBroker) -> None:
    forgetful.create("pinned")
    forgetful.send("pinned", 10, body="x" * 1000)
    source = reader(forgetful, "pinned", pinTtl="1h")
    start = source.initialOffset()
    end = latest(source, start)
    (pin,) = forgetful.api.call("GET", "/streams/pinned/pins")["pins"]
    assert (pin["name"], pin["offsets"]) == ("job", {"0": 1})
    forgetful.send("pinned", 40, body="x" * 1000)
    time.sleep(2)
    assert len(read(source, start, end)) == 10
    source.commit(end)
    wait_until(lambda: earliest(forgetful, "pinned") == 11)


@pytest.mark.parametrize("count", [5, 40])
def test_a_stream_that_was_made_anew_is_another_one(
    broker: RunningBroker, stream: str, count: int, caplog: pytest.LogCaptureFixture
) -> None:
    source = reader(broker, stream)
    end = latest(source, source.initialOffset())
    broker.api.call("DELETE", f"/streams/{stream}")
    with pytest.raises(UnknownDestination, match=stream):
        latest(source, end)
    broker.create(stream, 2)
    broker.send(stream, count)
    with pytest.raises(StreamReplaced, match=f"{stream} was deleted and created again.* new checkpoint"):
        latest(source, end)
    tolerant = reader(broker, stream, failOnDataLoss="false")
    with caplog.at_level(logging.WARNING):
        further = latest(tolerant, end)
    assert caplog.text.count("continues at the beginning of the present stream") == 1
    assert offsets(further) == {stream: {"0": count + 1, "1": 1}}
    assert read(tolerant, end, further) == [(0, n) for n in range(1, count + 1)]
    assert latest(source, further) is further


def test_a_range_of_a_stream_that_was_made_anew_since_it_was_planned_is_not_read(
    broker: RunningBroker, stream: str
) -> None:
    source = reader(broker, stream)
    start = source.initialOffset()
    end = latest(source, start)
    broker.api.call("DELETE", f"/streams/{stream}")
    broker.create(stream, 2)
    broker.send(stream, 50)
    with pytest.raises(StreamReplaced, match="created again"):
        source.partitions(start, end)
    tolerant = reader(broker, stream, failOnDataLoss="false")
    assert read(tolerant, start, end) == []
    assert read(tolerant, end, latest(tolerant, end)) == [(0, n) for n in range(1, 51)]


def test_a_stream_that_came_with_a_micro_batch_and_is_gone_before_it_is_run_again_is_missed(
    broker: RunningBroker,
) -> None:
    source = reader(broker, "", subscribePattern="brief.*")
    broker.create("brief.a")
    start = latest(source, source.initialOffset())
    broker.create("brief.b")
    broker.send("brief.b", 3)
    end = latest(source, start)
    broker.api.call("DELETE", "/streams/brief.b")
    with pytest.raises(DataLost, match=r"partition 0 of the stream brief\.b does not exist any more"):
        source.partitions(start, end)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"subscribe": "{a},{b}"}, {"subscribe": "{b}"}),
        ({"subscribePattern": "{root}.>"}, {"subscribePattern": "{root}.b.*"}),
        ({"assign": '{{"{a}": [0], "{b}": [0, 1]}}'}, {"assign": '{{"{b}": [0]}}'}),
    ],
)
def test_what_a_query_is_no_longer_to_read_is_no_loss(
    broker: RunningBroker, before: dict[str, str], after: dict[str, str]
) -> None:
    root = f"left{next(NUMBERS)}"
    names = {"root": root, "a": f"{root}.a", "b": f"{root}.b.b"}
    for name in (names["a"], names["b"]):
        broker.create(name, 2)
        broker.send(name, 3)
    first, second = [
        reader(broker, "", **{option: text.format(**names) for option, text in given.items()})
        for given in (before, after)
    ]
    kept = latest(first, first.initialOffset())
    broker.send(names["b"], 2)
    end = latest(second, kept)
    assert [*offsets(end)] == [names["b"]]
    assert read(second, kept, end) == [(0, 4), (0, 5)]


def test_a_stream_that_was_made_anew_while_nothing_was_in_it_is_read_from_its_beginning(
    broker: RunningBroker, stream: str
) -> None:
    tolerant = reader(broker, stream, failOnDataLoss="false")
    end = latest(tolerant, tolerant.initialOffset())
    broker.api.call("DELETE", f"/streams/{stream}")
    broker.create(stream, 2)
    further = latest(tolerant, end)
    assert offsets(further) == {stream: {"0": 1, "1": 1}}
    broker.send(stream, 60)
    assert read(tolerant, further, latest(tolerant, further)) == [(0, n) for n in range(1, 61)]


def test_a_checkpoint_of_an_older_version_is_read_on_and_learns_which_stream_it_is_of(
    broker: RunningBroker, stream: str
) -> None:
    source = reader(broker, stream)
    old = {GROUP: "job", stream: {"0": 11, "1": 11}}
    end = latest(source, old)
    assert read(source, old, end) == [(0, n) for n in range(11, 31)]
    done = {GROUP: "job", stream: {"0": 31, "1": 11}}
    learned = latest(source, done)
    assert offsets(learned) == offsets(done)
    assert learned[IDENTITIES].keys() == {stream}
    assert latest(source, learned) is learned


def test_a_stream_that_ends_before_the_checkpoint_is_an_older_copy(broker: RunningBroker, stream: str) -> None:
    source, tolerant = reader(broker, stream), reader(broker, stream, failOnDataLoss="false")
    start = source.initialOffset()
    ahead = {**start, stream: {"0": 99, "1": 11}}
    with pytest.raises(StreamReplaced, match=r"ends at 31, and the next offset of the query is 99.*an older copy"):
        latest(source, ahead)
    with pytest.raises(StreamReplaced, match=r"ends at 31, and the query read it up to 99.*an older copy"):
        source.partitions(start, ahead)
    assert len(read(tolerant, start, ahead)) == 40
    assert read(tolerant, ahead, latest(tolerant, ahead)) == [(0, n) for n in range(1, 31)]


# What others see of it.


def groups(broker: RunningBroker, stream: str) -> list[str]:
    found = broker.api.call("GET", "/groups")["groups"]
    return [group["name"] for group in found if group["stream"] == stream]


def test_the_group_shows_how_far_it_is(broker: RunningBroker, stream: str) -> None:
    source = reader(broker, stream, maxOffsetsPerTrigger="20")
    start = source.initialOffset()
    first = latest(source, start)
    source.commit(first)
    assert broker.lag(stream, "job") == 20
    second = latest(source, first)
    assert latest(source, second) is second  # Spark commits the last one only with the next
    assert broker.lag(stream, "job") == 0
    broker.send(stream, 7)
    assert broker.lag(stream, "job") == 7


def test_a_query_that_ends_before_its_first_micro_batch_is_done_leaves_a_pin_with_an_end_only(
    broker: RunningBroker, stream: str
) -> None:
    source = reader(broker, stream, pinTtl="2s")
    start = source.initialOffset()
    read(source, start, latest(source, start))
    assert groups(broker, stream) == []
    (pin,) = broker.api.call("GET", f"/streams/{stream}/pins")["pins"]
    assert (pin["name"], pin["offsets"]) == ("job", {"0": 1, "1": 1})
    wait_until(lambda: broker.api.call("GET", f"/streams/{stream}/pins")["pins"] == [])


def test_a_query_without_a_group_gets_one_that_its_checkpoint_keeps(broker: RunningBroker, stream: str) -> None:
    given = {"broker.url": broker.url, "subscribe": stream, "startingOffsets": "earliest"}
    options = Options.of(given, Use.STREAM)
    source = StreamReader(options, ["offset"])
    start = source.initialOffset()
    assert source.initialOffset() == start
    end = latest(StreamReader(options, ["offset"]), start)
    assert end[GROUP] == start[GROUP]
    assert end[GROUP] != StreamReader(options, ["offset"]).initialOffset()[GROUP]
    source.commit(end)
    assert broker.lag(stream, str(end[GROUP])) == 0
    assert groups(broker, stream) == [end[GROUP]]


# What cannot be done.


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ({"subscribe": "nowhere"}, UnknownDestination, "nowhere"),
        ({"subscribe": "queue://orders"}, InvalidArgument, "use spark.read"),
        ({"startingOffsets": '{"NAME": {"0": 99}}'}, InvalidArgument, "ends at 31"),
        ({"startingOffsets": '{"NAME": {"7": 1}}'}, InvalidArgument, "partition 7"),
        ({"assign": '{"NAME": [7]}'}, InvalidArgument, "partitions 0 to 1"),
    ],
)
def test_what_makes_no_sense_is_told(
    broker: RunningBroker, stream: str, given: dict[str, str], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        reader(broker, stream, **{key: text.replace("NAME", stream) for key, text in given.items()}).initialOffset()


def test_a_broker_that_is_not_there_is_told_of(tmp_path: Path) -> None:
    broker = RunningBroker(tmp_path)
    with pytest.raises(BrokerUnreachable, match=f"no broker answers at {broker.url}.*after 2 tries in 0.15 s"):
        reader(broker, "events", readTimeout="150ms").initialOffset()


def test_what_the_broker_does_not_hear_stops_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with running_broker(tmp_path) as broker:
        broker.create("s")
        broker.send("s", 3)
        source = reader(broker, "s")
        start = source.initialOffset()
        broker.kill()
        with caplog.at_level(logging.WARNING):
            source.commit({**start, "s": {"0": 4}})
    assert "retention may remove messages of s" in caplog.text
