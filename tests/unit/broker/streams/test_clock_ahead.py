"""A clock that is ahead for some records of a stream: the later ones have their own times, and age by them."""

import pytest

from quire.broker.streams.partition import MOST_SET_BACK, Start
from quire.message import timestamp_of
from quire.store.positions import offset_at
from quire.testing.stepped import SteppedBroker
from tests.unit.broker.streams.retention_rig import left, made, send, settle, stream_of

HOUR = 3600.0
YEAR = 365 * 24 * HOUR


def ages(stepped: SteppedBroker) -> list[float]:
    """How many seconds old the records are by their timestamps."""
    lane = stream_of(stepped).partitions[0].lane
    now = stepped.clock.now_ms()
    return [(now - timestamp_of(message)) / 1000 for message in stepped.store.load(lane, left(stepped))]


def at(stepped: SteppedBroker, start: str) -> int:
    """The offset of a start."""
    lane = stream_of(stepped).partitions[0].lane
    (offset,) = Start.parse(start).offsets(stepped.store, [lane], stepped.clock.now_ms())
    return offset


def sent(stepped: SteppedBroker, *, ahead: float = YEAR, count: int = 1) -> None:
    """Records, each a second after the one before; the clock is ahead for the second part of three."""
    for seconds in (0.0, ahead, -ahead):
        stepped.clock.jump(seconds)
        for _ in range(count):
            send(stepped)
            stepped.advance(1)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_records_after_one_whose_time_was_a_year_ahead_have_their_own(is_restarted: bool) -> None:
    stepped = made()
    send(stepped)
    stepped.clock.jump(YEAR)
    send(stepped)
    stepped.clock.jump(-YEAR)
    if is_restarted:
        stepped = stepped.reopen()
    for _ in range(2):
        stepped.advance(10)
        send(stepped)
    assert ages(stepped) == [20, 20 - YEAR, 10, 0]


def test_a_clock_that_was_ahead_for_hours_leaves_no_trace_either() -> None:
    stepped = made()
    stepped.clock.jump(YEAR)
    settle(stepped, 2)
    for _ in range(4):
        stepped.advance(HOUR)
        send(stepped)
    stepped.clock.jump(-YEAR)
    send(stepped)  # the clock is not believed yet
    assert ages(stepped)[-1] == -YEAR
    settle(stepped, 2)
    stepped.advance(61)
    settle(stepped, 2)
    send(stepped)
    assert ages(stepped)[-1] == 0


def test_a_clock_that_is_set_back_for_a_moment_makes_no_record_older() -> None:
    stepped = made(retention_time=HOUR)
    send(stepped)
    stepped.clock.jump(-YEAR)
    send(stepped)
    settle(stepped, 2)
    stepped.clock.jump(YEAR)
    settle(stepped, 2)
    assert left(stepped) == [1, 2]
    assert ages(stepped) == pytest.approx([4, 4], abs=0.002)


def test_the_first_record_too_has_the_time_that_is_believed_when_the_clock_is_set_back_for_a_moment() -> None:
    stepped = made(retention_time=HOUR)
    client = stepped.connect()
    client.frame("BEGIN", {"transaction": "t"})
    client.frame("SEND", {"destination": "/stream/s", "transaction": "t"}, b"before it was set back")
    stepped.clock.jump(-YEAR)
    send(stepped)
    client.frame("COMMIT", {"transaction": "t"})
    stepped.run()
    settle(stepped, 2)
    stepped.clock.jump(YEAR)
    settle(stepped, 2)
    assert left(stepped) == [1, 2]
    assert ages(stepped) == pytest.approx([4, 4], abs=0.002)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_retention_goes_by_the_own_times_of_later_records(is_restarted: bool) -> None:
    stepped = made(retention_time=HOUR)
    sent(stepped, count=3)
    assert left(stepped) == list(range(1, 10))
    stepped.advance(HOUR - 7.5)
    settle(stepped, 2)  # 1 and 2 are an hour old
    assert left(stepped)[0] in (3, 4)
    settle(stepped, 1.5)
    assert left(stepped) == list(range(4, 10))  # those of the year ahead are as old as the next one
    if is_restarted:
        stepped = stepped.reopen()
    settle(stepped, 6)
    assert left(stepped) == []


def test_a_record_of_the_time_ahead_stays_as_long_as_the_next_one() -> None:
    stepped = made(retention_time=HOUR)
    stepped.clock.jump(YEAR)
    send(stepped)
    stepped.clock.jump(-YEAR)
    settle(stepped, 2)
    assert left(stepped) == [1]
    send(stepped)
    stepped.advance(HOUR - 4)
    settle(stepped, 2)
    assert left(stepped) == [1, 2]
    settle(stepped, 4)
    assert left(stepped) == []


def test_a_time_is_looked_up_by_the_own_times_of_records() -> None:
    stepped = made()
    sent(stepped, count=50)
    assert at(stepped, "ago=150s") == 1
    assert at(stepped, "ago=125s") == 26
    assert at(stepped, "ago=100s") == 51
    assert at(stepped, "ago=50s") == 51  # a record whose time lies ahead is as old as the next one
    assert at(stepped, "ago=49s") == 102
    assert at(stepped, "ago=25s") == 126
    assert at(stepped, "ago=0s") == 151
    stepped = stepped.reopen()
    assert at(stepped, "ago=25s") == 126


def test_a_lookup_needs_no_records_at_the_place_where_times_begin_anew() -> None:
    stepped = made()
    sent(stepped, count=2)
    partition = stream_of(stepped).partitions[0]
    partition.remove(stepped.store.links(partition.lane, 5, 1))
    stepped.run()
    assert left(stepped) == [1, 2, 3, 4, 6]
    assert at(stepped, "ago=1s") == 3
    assert offset_at(stepped.store, partition.lane, 0) == 1


def test_a_clock_that_goes_to_and_fro_is_remembered_a_limited_number_of_times() -> None:
    stepped = made()
    for _ in range(3 * MOST_SET_BACK):
        sent(stepped)
    (mark,) = stepped.store.marks(f"stream/{stream_of(stepped).partitions[0].lane}/set-back")
    assert len(mark[1]) < 1000
    assert left(stepped) == list(range(1, 9 * MOST_SET_BACK + 1))
    assert at(stepped, "earliest") == 1
    offsets = [at(stepped, f"ago={seconds}s") for seconds in range(200, -1, -1)]
    assert offsets == sorted(offsets)


def test_what_is_remembered_goes_with_the_records_and_with_the_stream() -> None:
    stepped = made(retention_time=HOUR)
    for _ in range(2 * MOST_SET_BACK):
        sent(stepped)
        stepped.advance(HOUR + 1)
        settle(stepped, 2)
        send(stepped)
    assert ages(stepped) == [0]
    stepped.broker.destinations.delete_stream(stream_of(stepped))
    stepped.run()
    assert stepped.store.marks("stream/") == []


def test_retention_goes_on_when_a_clock_that_was_believed_is_set_back() -> None:
    stepped = made(retention_time=HOUR)
    stepped.clock.jump(YEAR)
    settle(stepped, 1)
    stepped.advance(61)
    send(stepped)
    settle(stepped, 2)
    stepped.clock.jump(-YEAR)
    settle(stepped, 1)
    stepped.advance(61)
    settle(stepped, 1)
    send(stepped)
    assert left(stepped) == [1, 2]
    stepped.advance(HOUR)
    settle(stepped, 2)
    assert left(stepped) == []
