"""The queue cursor's rules 1 to 4: what is admitted, where the position stays, who is woken (docs/the-5.1-bug.md)."""

from collections.abc import Callable

from quire.cursors import lane as cursors_lane
from quire.cursors.lane import MemoryUsage
from tests.unit.cursors.lane import Host, Lane, make_message, sequences
from tests.unit.cursors.watched_store import GIANT, ONE, WatchedStore, backlog, pages_of

MakeLane = Callable[[int], Lane]


# Rule 1: admitted if it fits, or if nothing of its lane is resident; told from the index, before the body is read.


def test_rule_1_what_fits_is_admitted_and_its_memory_reserved(make_lane: MakeLane) -> None:
    lane = backlog(make_lane(3), 100, 100, 100, 100)
    assert lane.take(10) == [1, 2, 3]
    assert lane.memory.used == 3 * ONE


def test_rule_1_a_refused_message_is_refused_before_its_body_is_read(make_lane: MakeLane, store: WatchedStore) -> None:
    lane = backlog(make_lane(3), 100, 100, 100, 100)
    lane.take(10)
    assert lane.cursor.blocked_since is not None
    assert store.read == [1, 2, 3]
    lane.take(10)
    lane.take(10)
    assert store.read == [1, 2, 3]


def test_rule_1_the_brokers_limit_counts_as_the_destinations_does(store: WatchedStore) -> None:
    host = Host(MemoryUsage(2 * ONE), store)
    lane = backlog(Lane(host, 10 * ONE), 100, 100, 100)
    assert lane.take(10) == [1, 2]
    assert host.memory.used == 2 * ONE


def test_rule_1_a_lone_giant_is_admitted_and_nothing_beside_it(make_lane: MakeLane) -> None:
    lane = backlog(make_lane(2), GIANT, 100, GIANT, 100)
    for expected in ([1], [2], [3], [4]):
        assert lane.take(1) == expected
        assert lane.take(1) == []
        lane.credit = 0
        lane.acknowledge(expected)
    assert lane.memory.peak == GIANT - 100 + ONE


def test_rule_1_a_lone_giant_is_admitted_when_it_is_committed(make_lane: MakeLane) -> None:
    lane = make_lane(2)
    lane.connect()
    lane.send(GIANT)
    lane.send()
    lane.commit()
    assert sequences(lane.cursor.window) == [1]


def test_rule_1_an_idle_broker_full_of_others_messages_still_gives_each_lane_one(store: WatchedStore) -> None:
    host = Host(MemoryUsage(2 * ONE), store)
    host.memory.force(2 * ONE)
    lane = backlog(Lane(host, 10 * ONE), 100, 100)
    assert lane.take(2) == [1]


def test_rule_1_kept_messages_do_not_shut_out_the_ones_before_them(make_lane: MakeLane) -> None:
    lane = make_lane(2)
    lane.send()
    kept = [lane.send(persistent=False) for _ in range(2)]
    lane.commit()
    lane.connect()
    assert [message.stored for message in kept] == [False, False]
    assert lane.take(3) == [1, 2, 3]
    assert lane.memory.peak == 3 * ONE


def test_rule_1_kept_messages_do_not_shut_out_a_giant_before_them(make_lane: MakeLane) -> None:
    lane = make_lane(2)
    lane.connect()
    lane.send(GIANT)
    lane.send(persistent=False)
    lane.commit()
    assert lane.take(2) == [1, 2]


def test_rule_1_only_one_message_is_admitted_beyond_the_limit(make_lane: MakeLane) -> None:
    lane = make_lane(2)
    for persistent in (True, True, False, False):
        lane.send(persistent=persistent)
    lane.commit()
    lane.connect()
    assert lane.take(4) == [1]
    lane.acknowledge([1])
    lane.memory.wake()
    assert sequences(lane.in_flight.values()) == [2, 3, 4]


def test_rule_1_messages_kept_in_vain_are_no_excuse_to_admit_too_much(make_lane: MakeLane) -> None:
    lane = make_lane(2)
    lane.send(persistent=False)
    lane.fail()
    backlog(lane, 100, 100, 100)
    assert lane.take(3) == [2, 3]
    lane.acknowledge([2])
    lane.send(persistent=False)
    assert lane.take(0) == []
    assert lane.memory.used == 2 * ONE


# Rules 2 and 3: the first refusal ends the read; the position moves over admitted messages only.


def test_rule_2_the_first_refusal_ends_the_read_and_the_position_stays(host: Host) -> None:
    lane = backlog(Lane(host, 3 * ONE), 100, 2000, 100, 100)
    assert lane.take(10) == [1]
    assert isinstance(lane.cursor, cursors_lane.QueueCursor)
    assert lane.cursor.position == 1
    assert lane.memory.available() == 2 * ONE, "there is room for the third one, and it is not let in"
    lane.acknowledge([1])
    lane.memory.wake()
    assert lane.in_flight.keys() == {2}
    assert lane.cursor.position == 2


def test_rule_2_a_refusal_at_the_commit_ends_the_admissions_of_the_commit(make_lane: MakeLane) -> None:
    lane = make_lane(3)
    lane.connect()
    for size in (100, 2000, 100):
        lane.send(size)
    lane.commit()
    assert sequences(lane.cursor.window) == [1]
    assert lane.take(3) == [1]


def test_rule_3_the_position_moves_over_removed_records(host: Host) -> None:
    lane = backlog(Lane(host, 10 * ONE), *[100] * 5)
    lane.purge([make_message(sequence) for sequence in (1, 2, 4)])
    lane.commit()
    assert lane.take(10) == [3, 5]
    assert isinstance(lane.cursor, cursors_lane.QueueCursor)
    assert lane.cursor.position == 5
    assert not lane.cursor.has_more


def test_rule_3_a_lane_is_read_in_pages(make_lane: MakeLane) -> None:
    lane = backlog(make_lane(100), *[100] * 8)
    with pages_of(3):
        assert lane.take(10) == [1, 2, 3, 4, 5, 6, 7, 8]


def test_rule_3_nothing_beyond_the_last_announced_commit_is_admitted(host: Host) -> None:
    lane = backlog(Lane(host, 10 * ONE), 100)
    lane.send(persistent=False)
    lane.send()
    lane.write()
    assert lane.take(10) == [1]
    lane.announce()
    assert lane.take(0) == [2, 3]


# Rule 4: a release anywhere in the tree wakes refused cursors, in the order of their refusal.


def test_rule_4_a_release_elsewhere_wakes_cursors_in_the_order_of_refusal(store: WatchedStore) -> None:
    host = Host(MemoryUsage(4 * ONE), store)
    lanes = [backlog(Lane(host, 0, number), 100, 100) for number in (1, 2)]
    elsewhere = MemoryUsage(parent=host.memory)
    elsewhere.force(4 * ONE)
    second, first = lanes
    for lane in (first, second):
        assert lane.take(2) == [1]
    elsewhere.release(3 * ONE)
    host.memory.wake()
    assert len(first.in_flight) == 2
    assert len(second.in_flight) == 1
    elsewhere.release(ONE)
    host.memory.wake()
    assert len(second.in_flight) == 2


def test_rule_4_a_lane_that_rests_waits_no_more(store: WatchedStore) -> None:
    host = Host(MemoryUsage(2 * ONE), store)
    lane = backlog(Lane(host, ONE), 100, 100)
    lane.take(2)
    lane.disconnect()
    lane.commit()
    received = len(lane.received)
    host.memory.wake()
    assert len(lane.received) == received
    assert host.memory.used == 0
