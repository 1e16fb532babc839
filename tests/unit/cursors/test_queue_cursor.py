"""The queue cursor's rules 5 to 7 and 10: one order, no audit, removal by others, waits; damage and reopening."""

from collections.abc import Callable
from unittest.mock import patch

import pytest

from quire.cursors import lane as cursors_lane
from quire.errors import StoreCorrupt
from tests.unit.cursors.lane import Host, Lane, make_message, sequences
from tests.unit.cursors.watched_store import ONE, WatchedStore, backlog, pages_of

MakeLane = Callable[[int], Lane]


def blocked_since(lane: Lane) -> float | None:
    """Since when a lane's cursor is refused."""
    return lane.cursor.blocked_since


# Rule 5: memory is a cache over committed order. A miss is slower, never different.


@pytest.mark.parametrize("persistent", [[True] * 9, [True, False, True, True, False, False, True, False, True]])
@pytest.mark.parametrize("room", [1, 3, 100])
def test_rule_5_admitted_at_the_commit_or_read_later_the_order_is_the_same(
    make_lane: MakeLane, room: int, persistent: list[bool]
) -> None:
    resident, read = (Lane(Host(), room * ONE) for _ in range(2))
    resident.connect()
    for kind in persistent:
        for lane in (resident, read):
            lane.send(persistent=kind)
            lane.commit()
    read.connect()
    for lane in (resident, read):
        lane.credit = 9
        lane.dispatch()
        while lane.in_flight:
            lane.acknowledge(list(lane.in_flight)[:1])
            lane.memory.wake()
            lane.dispatch()
    assert resident.received == read.received
    assert [receipt.sequence for receipt in read.received] == [1, 2, 3, 4, 5, 6, 7, 8, 9]


def test_rule_5_what_is_resident_from_its_commit_is_never_read(make_lane: MakeLane, store: WatchedStore) -> None:
    lane = make_lane(10)
    lane.connect()
    for _ in range(3):
        lane.send()
        lane.commit()
    assert lane.take(3) == [1, 2, 3]
    assert store.read == []


def test_rule_5_behind_the_tail_a_commit_is_read_later(make_lane: MakeLane, store: WatchedStore) -> None:
    lane = backlog(make_lane(10), 100, 100)
    lane.send()
    lane.commit()
    assert lane.take(3) == [1, 2, 3]
    assert store.read == [1, 2, 3]


@pytest.mark.parametrize("kinds", [[True], [True, False], [False, True, True]])
def test_rule_5_a_slow_consumer_has_a_bounded_window_resident_and_gets_everything(
    make_lane: MakeLane, store: WatchedStore, kinds: list[bool]
) -> None:
    lane = make_lane(1000)
    lane.connect()
    with patch.object(cursors_lane, "WINDOW_LIMIT", 10):
        for number in range(60):
            lane.send(persistent=kinds[number % len(kinds)])
            lane.commit()
    assert sequences(lane.cursor.window) == list(range(1, 11))
    assert store.read == []
    waiting = [kinds[number % len(kinds)] for number in range(10, 60)]
    assert lane.memory.used == (10 + waiting.count(False)) * ONE  # those not persistent are nowhere else
    assert lane.take(100) == list(range(1, 61))
    assert len(store.read) == waiting.count(True)


def test_rule_5_a_consumer_that_caught_up_gets_commits_from_memory_again(
    make_lane: MakeLane, store: WatchedStore
) -> None:
    lane = make_lane(1000)
    lane.connect()
    with patch.object(cursors_lane, "WINDOW_LIMIT", 2):
        for _ in range(5):
            lane.send()
            lane.commit()
        assert lane.take(5) == [1, 2, 3, 4, 5]
        lane.send()
        lane.commit()
    assert lane.take(1) == [6]
    assert store.read == [3, 4, 5]


def test_rule_5_persistent_kept_and_spooled_messages_have_one_order(make_lane: MakeLane) -> None:
    lane = make_lane(2)
    sent = [lane.send(persistent=persistent) for persistent in (True, False, True, False, False, True, False)]
    lane.commit()
    assert [message.stored for message in sent] == [True, False, True, False, True, True, True]
    lane.connect()
    lane.credit = 7
    lane.dispatch()
    while lane.in_flight:
        lane.acknowledge(list(lane.in_flight)[:1])
        lane.memory.wake()
    lane.commit()
    assert [receipt.sequence for receipt in lane.received] == [1, 2, 3, 4, 5, 6, 7]
    assert lane.host.spool.is_empty(lane.number)
    assert lane.memory.used == 0


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_rule_5_three_sources_are_joined_over_pages(make_lane: MakeLane, limit: int) -> None:
    lane = make_lane(4)
    for persistent in (True, False, False, False, False, True, True, False, False, True, True, False):
        lane.send(persistent=persistent)
    lane.commit()
    lane.connect()
    lane.credit = 12
    with pages_of(limit):
        lane.dispatch()
        while lane.in_flight:
            lane.acknowledge(list(lane.in_flight))
            lane.memory.wake()
    assert [receipt.sequence for receipt in lane.received] == list(range(1, 13))


def test_rule_5_a_page_ends_at_its_bytes(make_lane: MakeLane) -> None:
    lane = backlog(make_lane(100), *[100] * 4)
    with patch.object(cursors_lane, "PAGE_BYTES", 2 * ONE):
        assert lane.cursor.page_in()
    assert sequences(lane.cursor.window) == [1, 2]


# Rule 6: what is given out is known by sequence. There is no audit by message ids.


def test_rule_6_two_messages_of_one_id_are_two_messages(host: Host) -> None:
    lane = Lane(host, 10 * ONE)
    for _ in range(2):
        lane.send().content = make_message(1).content
    lane.commit()
    lane.connect()
    assert lane.take(2) == [1, 2]


def test_rule_6_reset_gives_the_same_messages_again_however_often(make_lane: MakeLane) -> None:
    lane = backlog(make_lane(10), *[100] * 5)
    for _ in range(50):
        assert lane.take(5) == [1, 2, 3, 4, 5]
        lane.disconnect()
        assert lane.memory.used == 0
        lane.commit()
        lane.connect()


def test_rule_6_what_came_back_is_flagged_and_comes_before_later_ones(make_lane: MakeLane) -> None:
    lane = backlog(make_lane(10), *[100] * 4)
    lane.take(3)
    lane.acknowledge([2])
    lane.disconnect()
    lane.commit()
    lane.connect()
    lane.received.clear()
    assert lane.take(5) == [1, 3, 4]
    assert [receipt.redelivered for receipt in lane.received] == [True, True, False]


@pytest.mark.parametrize("room", [1, 10])
def test_rule_6_non_persistent_ones_come_back_flagged_kept_or_spooled(make_lane: MakeLane, room: int) -> None:
    lane = make_lane(room)
    sent = [lane.send(persistent=False) for _ in range(2)]
    lane.commit()
    lane.connect()
    lane.take(1)
    lane.acknowledge([1])
    lane.memory.wake()
    assert lane.take(1) == [2]
    assert sent[1].stored == (room == 1)
    lane.disconnect()
    lane.commit()
    lane.connect()
    assert lane.take(1) == [2]
    assert lane.received[-1].redelivered
    assert lane.in_flight[2].deliveries == 1


def test_rule_6_after_a_crash_what_may_have_been_delivered_is_flagged(make_lane: MakeLane) -> None:
    backlog(make_lane(10), 100, 100, 100).send(persistent=False)
    reopened = make_lane(10)
    assert isinstance(reopened.cursor, cursors_lane.QueueCursor)
    assert reopened.cursor.last == 3
    reopened.cursor.redelivered_to = 2
    reopened.connect()
    assert reopened.take(5) == [1, 2, 3]
    assert [receipt.redelivered for receipt in reopened.received] == [True, True, False]


# Rule 7: browsing, expiry, purge and move do not touch the live cursor.


def test_rule_7_browsing_moves_nothing(make_lane: MakeLane, store: WatchedStore) -> None:
    lane = backlog(make_lane(10), 100, 100, 100)
    assert lane.take(1) == [1]
    before = (list(lane.cursor.window), lane.memory.used)
    with store.snapshot() as reader:
        assert sequences(reader.page(lane.number, 1, 1 << 40, 10).messages) == [1, 2, 3]
    assert (list(lane.cursor.window), lane.memory.used) == before
    assert lane.take(2) == [2, 3]


def test_rule_7_what_is_being_removed_is_neither_kept_resident_nor_read_again(make_lane: MakeLane) -> None:
    lane = backlog(make_lane(2), *[100] * 4)
    assert lane.take(1) == [1]
    assert isinstance(lane.cursor, cursors_lane.QueueCursor)
    position = lane.cursor.position
    lane.purge([make_message(2), make_message(3)])
    assert lane.cursor.position == position
    assert lane.memory.used == ONE
    assert lane.cursor.excluded == {2, 3}
    assert lane.take(3) == [4]
    assert lane.memory.used == 2 * ONE
    lane.commit()
    assert not lane.cursor.excluded


def test_rule_7_discarding_tells_what_was_resident_and_gives_its_memory_back(make_lane: MakeLane) -> None:
    lane = make_lane(10)
    lane.connect()
    lane.send()
    lane.send(persistent=False)
    lane.commit()
    lane.send()
    lane.commit()
    assert sequences(lane.cursor.discard({2, 3, 77})) == [2, 3]
    assert lane.memory.used == ONE
    assert lane.take(3) == [1]


def test_rule_7_kept_messages_are_discarded_too(make_lane: MakeLane) -> None:
    lane = make_lane(10)
    sent = [lane.send(persistent=False) for _ in range(3)]
    lane.commit()
    lane.purge(sent[:2])
    assert lane.memory.used == ONE
    lane.connect()
    assert lane.take(3) == [3]


# Rule 10: every wait has a cause and an age.


def test_rule_10_a_refused_cursor_tells_since_when(host: Host) -> None:
    lane = backlog(Lane(host, ONE), 100, 100, 100)
    host.clock.advance(5)
    assert lane.take(1) == [1]
    assert blocked_since(lane) is None
    lane.take(1)
    host.clock.advance(60)
    lane.dispatch()
    assert blocked_since(lane) == 5
    lane.acknowledge([1])
    host.memory.wake()
    assert blocked_since(lane) is None
    lane.take(1)
    assert blocked_since(lane) == 65


def test_rule_10_a_lane_at_rest_is_not_blocked(make_lane: MakeLane) -> None:
    lane = backlog(make_lane(1), 100, 100)
    lane.take(2)
    assert blocked_since(lane) is not None
    lane.disconnect()
    assert blocked_since(lane) is None
    assert not lane.cursor.page_in()


# A record that cannot be read.


def test_a_damaged_record_stops_the_read_before_it(host: Host, store: WatchedStore) -> None:
    lane = backlog(Lane(host, 10 * ONE), *[100] * 5)
    store.damaged.add(4)
    lane.credit = 5
    with pytest.raises(StoreCorrupt) as damage:
        lane.dispatch()
    assert damage.value.data["sequence"] == 4
    assert [receipt.sequence for receipt in lane.received] == [1, 2, 3]
    assert isinstance(lane.cursor, cursors_lane.QueueCursor)
    assert lane.cursor.position == 3
    store.damaged.clear()
    lane.dispatch()
    assert list(lane.in_flight) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("room", [0, 1], ids=["kept", "spooled"])
def test_a_non_persistent_message_before_a_damaged_record_is_given_out(
    host: Host, store: WatchedStore, room: int
) -> None:
    lane = Lane(host, room)
    assert lane.send(persistent=False).stored == bool(room)
    backlog(lane, 100)
    store.damaged.add(2)
    assert lane.take(1) == [1]
    lane.acknowledge([1])
    with pytest.raises(StoreCorrupt):
        lane.take(1)


def test_a_damaged_record_is_no_reason_to_admit_more_than_fits(host: Host, store: WatchedStore) -> None:
    lane = backlog(Lane(host, 2 * ONE), *[100] * 5)
    store.damaged.add(4)
    with patch.object(cursors_lane, "PAGE_BYTES", 10 * ONE):
        assert lane.take(5) == [1, 2]
    assert blocked_since(lane) is not None


def test_a_damaged_record_that_is_not_announced_yet_damages_nothing(host: Host, store: WatchedStore) -> None:
    lane = Lane(host, 10 * ONE)
    lane.purge([lane.send()])
    lane.commit()
    lane.send()
    lane.write()
    store.damaged.add(2)
    lane.connect()
    assert lane.take(1) == []
    lane.announce()
    assert lane.take(0) == [2]


# Reopening.


def test_a_new_cursor_over_the_same_store_begins_at_the_head_with_nothing_resident(make_lane: MakeLane) -> None:
    lane = backlog(make_lane(10), 100, 100, 100)
    lane.take(3)
    lane.acknowledge([1])
    lane.commit()
    reopened = make_lane(10)
    reopened.connect()
    assert reopened.memory.used == 0
    assert reopened.take(3) == [2, 3]
    assert reopened.send().sequence == 4


def test_an_empty_lane_has_nothing_to_page_in(make_lane: MakeLane) -> None:
    lane = make_lane(10)
    lane.connect()
    assert lane.take(1) == []
    assert blocked_since(lane) is None
