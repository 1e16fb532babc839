"""Retention of what all groups are done with, and what stays for now: in flight, to be retried, pinned."""

from itertools import pairwise
from typing import Any

import pytest

from quire.broker.streams.partition import Start, StartKind
from quire.broker.streams.stream import CHECK_PERIOD, PAUSE, STEP
from quire.errors import StoreFull
from tests.unit.broker.streams.retention_rig import EARLIEST, CountingStore, left, made, member, send, settle, stream_of

# What groups are done with.


def test_without_groups_nothing_is_done() -> None:
    stepped = made(retention_groups_done=True)
    send(stepped, 5)
    settle(stepped)
    assert left(stepped) == [1, 2, 3, 4, 5]


def test_what_all_groups_have_acknowledged_goes_at_once() -> None:
    stepped = made(retention_groups_done=True)
    send(stepped, 5)
    first, second = member(stepped, "g"), member(stepped, "h")
    ours, theirs = first.take("MESSAGE"), second.take("MESSAGE")
    for message in ours:
        first.ack(message)
    settle(stepped, 0.1)
    assert left(stepped) == [1, 2, 3, 4, 5]
    for message in (theirs[0], theirs[1], theirs[3]):
        second.ack(message)
    settle(stepped, 0.1)
    assert left(stepped) == [3, 5]
    second.ack(theirs[2])
    second.ack(theirs[4])
    settle(stepped, 0.1)
    assert left(stepped) == []


def test_a_group_that_begins_at_the_end_needs_nothing_before_it() -> None:
    stepped = made(retention_groups_done=True)
    send(stepped, 5)
    stepped.broker.groups.open(stream_of(stepped), "g")
    send(stepped, 2)
    settle(stepped)
    assert left(stepped) == [6, 7]


def test_readers_do_not_count() -> None:
    stepped = made(retention_groups_done=True)
    send(stepped, 2)
    stepped.broker.groups.reader(stream_of(stepped), Start(StartKind.LATEST), None)
    settle(stepped)
    assert left(stepped) == [1, 2]


def test_a_group_that_is_removed_needs_nothing_any_more() -> None:
    stepped = made(retention_groups_done=True)
    send(stepped, 3)
    stepped.broker.groups.open(stream_of(stepped), "late")
    group = stepped.broker.groups.open(stream_of(stepped), "g", start=EARLIEST)
    settle(stepped)
    assert left(stepped) == [1, 2, 3]
    stepped.broker.groups.delete(group)
    settle(stepped)
    assert left(stepped) == []


def test_what_is_done_and_gone_is_not_read_again() -> None:
    store = CountingStore()
    stepped = made(store=store, retention_groups_done=True)
    send(stepped, 10)
    client = member(stepped)
    for message in client.take("MESSAGE")[:5]:
        client.ack(message)
    settle(stepped)
    assert left(stepped) == [6, 7, 8, 9, 10]
    before = store.reads
    settle(stepped, 10)
    assert store.reads == before


def test_thousands_that_are_done_go_in_steps_around_those_that_are_not() -> None:
    stepped = made(retention_groups_done=True)
    send(stepped, 2500)
    group = stepped.broker.groups.open(stream_of(stepped), "g", start=EARLIEST)
    group.partitions[0].skip(1, 699)
    group.partitions[0].skip(701, 2399)
    settle(stepped)
    assert left(stepped) == [700, *range(2400, 2501)]


# What stays for now.


def test_what_a_member_has_stays_until_it_is_settled() -> None:
    stepped = made(retention_time=60.0)
    send(stepped, 5)
    client = member(stepped)
    messages = client.take("MESSAGE")
    for message in (messages[0], messages[3]):
        client.ack(message)
    stepped.advance(61)
    settle(stepped)
    assert left(stepped) == [2, 3, 5]
    client.ack(messages[2])
    settle(stepped)
    assert left(stepped) == [2, 5]


def test_what_a_member_has_does_not_hold_up_what_is_behind_it() -> None:
    stepped = made(retention_bytes=100_000)
    send(stepped, 10)
    client = member(stepped, **{"prefetch-count": "10"})
    stuck = client.take("MESSAGE")[:3]
    send(stepped, 3000)
    settle(stepped)
    offsets = left(stepped)
    assert len(offsets) == 1000
    assert offsets[-1] == 3010
    assert {int(message.headers["offset"]) for message in stuck} < set(offsets)
    for message in stuck:
        client.ack(message)
    settle(stepped)
    assert not {int(message.headers["offset"]) for message in stuck} & set(left(stepped))


def test_a_group_does_not_wait_for_what_is_gone() -> None:
    stepped = made(retention_time=60.0)
    send(stepped, 5)
    group = stepped.broker.groups.open(stream_of(stepped), "g", start=EARLIEST)
    stepped.run()
    assert group.lag == 5
    stepped.advance(61)
    settle(stepped)
    assert (group.lag, group.partitions[0].depth, group.partitions[0].lost) == (0, 0, 5)
    send(stepped, 1)
    assert member(stepped).messages()


def test_what_a_waiting_retry_needs_stays_until_the_retry_is_done() -> None:
    stepped = made(retention_bytes=100)
    send(stepped, 1)
    client = member(stepped)
    client.nack(client.take("MESSAGE")[0], {"redelivery-delay": "30000"})
    send(stepped, 5)
    settle(stepped)
    assert 1 in left(stepped)
    stepped.advance(30)
    stepped.run()
    retry = client.take("MESSAGE")[-1]
    assert retry.headers["offset"] == "1"
    settle(stepped)
    assert 1 in left(stepped)
    client.ack(retry)
    settle(stepped)
    assert 1 not in left(stepped)


def test_what_a_retry_needs_stays_though_its_group_is_done_with_it() -> None:
    stepped = made(retention_groups_done=True)
    send(stepped, 3)
    client = member(stepped)
    first, second, third = client.take("MESSAGE")
    client.nack(first, {"redelivery-delay": "30000"})
    client.ack(second)
    client.ack(third)
    settle(stepped)
    assert left(stepped) == [1]
    again = stepped.reopen()
    settle(again)
    assert left(again) == [1]


def test_many_that_were_passed_over_go_later_in_bounded_steps() -> None:
    stepped = made(retention_time=60.0, max_in_flight=5000)
    send(stepped, 2500)
    client = member(stepped, ack="client", **{"prefetch-count": "5000"})
    last = client.take("MESSAGE")[-1]
    assert last.headers["offset"] == "2500"
    stepped.advance(61)
    settle(stepped)
    assert len(left(stepped)) == 2500
    client.ack(last)
    stepped.run()
    counts = []
    for _ in range(5):
        settle(stepped, CHECK_PERIOD)
        counts.append(len(left(stepped)))
    assert counts[-1] == 0
    assert all(before - after <= 2 * STEP for before, after in pairwise([2500, *counts]))


def test_what_was_passed_over_goes_later_though_there_is_always_more_to_do() -> None:
    stepped = made(retention_bytes=1000)
    send(stepped, 1)
    client = member(stepped)
    first = client.take("MESSAGE")[0]
    send(stepped, 30)
    settle(stepped, 0.1)
    assert left(stepped)[0] == 1
    client.ack(first)
    for _ in range(round(3 * CHECK_PERIOD / PAUSE)):
        send(stepped, 3)
        stepped.advance(PAUSE)
    assert left(stepped)[0] != 1


def test_what_is_being_acknowledged_stays_until_that_is_stored() -> None:
    stepped = made(retention_time=60.0)
    send(stepped, 2)
    client = member(stepped)
    client.frame("BEGIN", {"transaction": "t"})
    for message in client.take("MESSAGE"):
        client.ack(message, {"transaction": "t"})
    stepped.advance(61)
    client.frame("COMMIT", {"transaction": "t"})
    stepped.run_turns()
    for _ in range(200):
        stepped.advance(PAUSE)
        stepped.run_turns()
    stepped.commit(StoreFull("full"))
    assert left(stepped) == [1, 2]
    stepped.advance(1.1)
    stepped.run()
    assert {int(frame.headers["offset"]) for frame in member(stepped).take("MESSAGE")} == {1, 2}


# Pins.


@pytest.mark.parametrize("policy", [{"retention_time": 60.0}, {"retention_bytes": 100}])
def test_what_is_pinned_stays_until_the_pin_ends(policy: dict[str, Any]) -> None:
    stepped = made(**policy)
    send(stepped, 4)
    stream_of(stepped).pins.set("job", {0: 3}, 100_000)
    settle(stepped, 70)
    assert left(stepped) == [3, 4]
    send(stepped, 2)
    settle(stepped, 20)
    assert left(stepped) == [3, 4, 5, 6]
    settle(stepped, 80)
    assert left(stepped) == ([] if "retention_time" in policy else [6])


def test_what_is_pinned_stays_though_all_groups_are_done() -> None:
    stepped = made(retention_groups_done=True)
    send(stepped, 4)
    stream_of(stepped).pins.set("job", {0: 3}, 100_000)
    stepped.broker.groups.open(stream_of(stepped), "g")
    settle(stepped)
    assert left(stepped) == [3, 4]
    stream_of(stepped).pins.release("job")
    settle(stepped)
    assert left(stepped) == []


def test_a_pinned_partition_does_not_empty_the_others() -> None:
    stepped = made(partitions=2, retention_bytes=1000)
    stream_of(stepped).pins.set("job", {0: 1}, 3_600_000)
    send(stepped, 50, 0)
    send(stepped, 20, 1)
    settle(stepped)
    assert len(left(stepped, 0)) == 50
    assert left(stepped, 1) == list(range(11, 21))


def test_pins_keep_their_range_over_a_restart() -> None:
    stepped = made(retention_time=60.0)
    send(stepped, 4)
    stream_of(stepped).pins.set("job", {0: 2}, 100_000)
    stepped.run()
    stepped.advance(61)
    again = stepped.reopen()
    settle(again)
    assert left(again) == [2, 3, 4]
