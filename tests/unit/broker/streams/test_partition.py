"""A partition: offsets, gaps that nobody waits for, exact figures, groups that come while something is being stored."""

import pytest

from quire.errors import StoreFull
from quire.testing.stepped import SteppedClient
from tests.unit.broker.streams.member_rig import Member, StreamRig, numbers, places


def fail(rig: StreamRig, *bodies: str) -> None:
    """Messages are sent in a commit that fails; the store takes writes again."""
    producer, rig.producer = rig.producer, rig.stepped.connect()
    for body in bodies:
        producer.frame("SEND", {"destination": "/stream/s"}, body.encode())
    rig.stepped.turn()
    rig.stepped.commit(StoreFull("full"))


def recover(rig: StreamRig) -> None:
    rig.pass_time(2)


def subscribe(rig: StreamRig, **headers: str) -> SteppedClient:
    """A member whose SUBSCRIBE frame has come, and nothing else happened."""
    client = rig.stepped.connect()
    wanted = {"destination": "/stream/s", "id": "0", "group": "g", "ack": "client-individual", **headers}
    client.frame("SUBSCRIBE", wanted)
    return client


def figures(rig: StreamRig) -> tuple[int, int, int]:
    partition = rig.stream.partitions[0]
    return partition.head, partition.count, partition.filled_to


# Gaps.


def test_a_commit_that_fails_leaves_a_gap_that_no_group_waits_for() -> None:
    rig = StreamRig()
    member = rig.member()
    rig.send("1", "2")
    fail(rig, "3", "4", "5")
    recover(rig)
    rig.send("6")
    assert (places(member.take()), rig.lag) == (["1.0", "2.0", "6.0"], 3)
    assert figures(rig) == (1, 3, 6)
    assert list(rig.stream.partitions[0].gone.ranges()) == [(3, 5)]


def test_the_gap_is_one_after_a_restart() -> None:
    rig = StreamRig()
    member = rig.member()
    rig.send("1")
    fail(rig, "2", "3")
    recover(rig)
    rig.send("4")
    member.ack(member.take()[1])
    rig = rig.crashed()
    assert (rig.lag, figures(rig)) == (1, (1, 2, 4))
    late = rig.member(group="late")
    assert (places(late.take()), rig.group("late").lag) == (["1.0", "4.0"], 2)
    assert places(rig.member().take()) == ["1.0!"]


def test_a_gap_at_the_end_counts_for_nobody() -> None:
    rig = StreamRig()
    rig.member().vanish()
    rig.send("1")
    fail(rig, "2", "3")
    assert rig.lag == 1
    recover(rig)
    assert (rig.lag, rig.crashed().lag) == (1, 1)


def test_a_crash_between_the_failed_commit_and_the_next_one() -> None:
    rig = StreamRig()
    member = rig.member()
    rig.send("1")
    member.ack(*member.take())
    fail(rig, "2", "3")
    rig = rig.crashed()
    assert (rig.lag, figures(rig)) == (0, (1, 1, 1))
    member = rig.member()
    rig.send("4", "5")
    assert (places(member.take()), rig.lag) == (["2.0", "3.0"], 2)


def test_a_group_that_begins_in_a_gap_at_the_end_gets_what_comes_next_over_any_crash() -> None:
    rig = StreamRig()
    rig.send("1")
    fail(rig, "2", "3")
    subscribe(rig, start="latest")
    recover(rig)
    rig = rig.crashed()
    rig.send("4")
    assert (rig.lag, places(rig.member().take())) == (1, ["4.0"])


def test_several_commits_may_fail_in_a_row() -> None:
    rig = StreamRig()
    rig.member().vanish()
    for number in range(5):
        rig.send(f"sent {number}")
        fail(rig, f"lost {number}")
        recover(rig)
    assert (rig.lag, rig.stream.partitions[0].count) == (5, 5)
    rig = rig.crashed()
    assert rig.member().bodies() == [f"sent {number}" for number in range(5)]


def test_a_failed_commit_leaves_a_gap_in_the_partitions_that_it_was_about() -> None:
    rig = StreamRig(partitions=2)
    rig.send("1", "2")
    fail(rig, "lost")
    recover(rig)
    assert [[*partition.gone.ranges()] for partition in rig.stream.partitions] == [[], [(2, 2)]]


def test_what_was_sent_while_the_commit_failed_is_refused_too() -> None:
    rig = StreamRig()
    member = rig.member()
    rig.post("1")
    rig.stepped.turn()
    first, rig.producer = rig.producer, rig.stepped.connect()
    rig.post("2")
    rig.stepped.commit(StoreFull("full"))
    assert (first.errors(), rig.producer.errors()) == (["store-full"], ["store-full"])
    rig.producer = rig.stepped.connect()
    recover(rig)
    rig.send("3")
    assert (member.bodies(), rig.lag) == (["3"], 1)


def test_what_another_destination_gives_up_comes_with_the_next_commit() -> None:
    rig = StreamRig()
    member = rig.member()
    partition = rig.stream.partitions[0]
    brought = partition.transfer(b"message-id:1\ntimestamp:1\n\nmoved")
    rig.stepped.turn()
    rig.stepped.commit(StoreFull("full"))
    recover(rig)
    assert (brought.sequence, places(member.take()), rig.lag) == (1, ["3.0"], 1)


# Figures.


def test_figures_of_a_partition() -> None:
    rig = StreamRig()
    partition = rig.stream.partitions[0]
    assert (partition.head, partition.count, partition.filled_to, partition.announced) == (0, 0, 0, 0)
    rig.post("1")
    rig.post("2")
    assert (partition.filled_to, partition.announced, partition.count) == (2, 0, 0)
    rig.run()
    assert (partition.filled_to, partition.announced, partition.count, partition.head) == (2, 2, 2, 1)
    assert partition.bytes == rig.stepped.store.lane_state(partition.lane).bytes


def remove(rig: StreamRig, *offsets: int) -> None:
    """Let records go, as retention does."""
    partition = rig.stream.partitions[0]
    links = [link for link in rig.stepped.store.links(partition.lane, 0, 1000) if link.sequence in offsets]
    partition.remove(links)
    rig.run()


def test_records_that_go_leave_exact_figures() -> None:
    rig = StreamRig()
    rig.send(*numbers(1, 6))
    remove(rig, 1, 2, 4)
    partition = rig.stream.partitions[0]
    assert (figures(rig), list(partition.gone.ranges()), partition.gone.base) == ((3, 3, 6), [(4, 4)], 2)
    assert partition.bytes == rig.broker.core.stored_bytes == rig.stepped.store.lane_state(partition.lane).bytes
    again = rig.crashed()
    assert (figures(again), list(again.stream.partitions[0].gone.ranges())) == ((3, 3, 6), [(4, 4)])
    assert places(again.member().take()) == ["3.0", "5.0", "6.0"]


def test_a_partition_may_lose_everything_and_goes_on_with_the_next_offset() -> None:
    rig = StreamRig()
    member = rig.member()
    rig.send("1", "2")
    member.ack(*member.take())
    remove(rig, 1, 2)
    assert figures(rig) == (0, 0, 2)
    rig = rig.crashed()
    assert figures(rig) == (0, 0, 2)
    member = rig.member()
    rig.send("3")
    assert (places(member.take()), rig.lag, figures(rig)) == (["3.0"], 1, (3, 1, 3))


def test_groups_do_not_wait_for_records_that_are_gone() -> None:
    rig = StreamRig()
    done, away = rig.member(), rig.member(group="away")
    away.vanish()
    rig.send(*numbers(1, 4))
    done.ack(*done.take())
    remove(rig, 1, 2)
    assert (rig.lag, rig.group("away").lag) == (0, 2)
    assert (rig.group().partitions[0].lost, rig.group("away").partitions[0].lost) == (0, 2)
    assert places(rig.member(group="away").take()) == ["3.0", "4.0"]


def test_records_go_in_the_commit_in_which_others_come() -> None:
    rig = StreamRig()
    member = rig.member()
    rig.send("1", "2")
    member.ack(*member.take())
    partition = rig.stream.partitions[0]
    partition.remove(rig.stepped.store.links(partition.lane, 0, 1))
    rig.send("3")
    assert (figures(rig), places(member.take()), rig.lag) == ((2, 2, 3), ["3.0"], 1)
    assert partition.bytes == rig.broker.core.stored_bytes


def test_records_go_though_their_commit_fails_first() -> None:
    rig = StreamRig()
    rig.send("1", "2")
    partition = rig.stream.partitions[0]
    partition.remove(rig.stepped.store.links(partition.lane, 0, 1))
    rig.stepped.turn()
    rig.stepped.commit(StoreFull("full"))
    assert rig.crashed().member(group="other").bodies() == ["1", "2"]
    recover(rig)
    assert (figures(rig), figures(rig.crashed())) == ((2, 1, 2), (2, 1, 2))


# Groups that come while something is being stored.


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_a_group_that_comes_while_a_commit_is_under_way(start: str) -> None:
    rig = StreamRig()
    rig.send("1")
    rig.post("2")
    rig.stepped.turn()
    client = subscribe(rig, start=start)
    rig.post("3")
    rig.run()
    rig.send("4")
    expected = {"earliest": [b"1", b"2", b"3", b"4"], "latest": [b"3", b"4"]}[start]
    assert (client.messages(), rig.lag) == (expected, len(expected))
    assert rig.crashed().lag == len(expected)


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_a_group_that_comes_while_a_commit_fails(start: str) -> None:
    rig = StreamRig()
    rig.send("1")
    producer, rig.producer = rig.producer, rig.stepped.connect()
    producer.frame("SEND", {"destination": "/stream/s"}, b"lost")
    rig.stepped.turn()
    client = subscribe(rig, start=start)
    rig.stepped.commit(StoreFull("full"))
    recover(rig)
    rig.send("2")
    expected = [b"1", b"2"] if start == "earliest" else [b"2"]
    assert (client.messages(), rig.lag) == (expected, len(expected))
    assert rig.crashed().lag == len(expected)


def test_the_lag_of_a_group_is_never_below_nothing() -> None:
    rig = StreamRig()
    rig.post("1")
    rig.post("2")
    rig.stepped.turn()
    subscribe(rig, start="latest")
    rig.stepped.turn()
    assert rig.lag == 0
    rig.run()
    assert rig.lag == 0
    rig.send("3")
    assert rig.lag == 1


def test_several_groups_move_by_themselves() -> None:
    rig = StreamRig()
    rig.send(*numbers(1, 3))
    members: list[Member] = [rig.member(group=name) for name in "abc"]
    for count, member in enumerate(members):
        member.ack(*member.take()[:count])
    rig.send("4")
    assert [rig.group(name).lag for name in "abc"] == [4, 3, 2]
    assert [member.bodies() for member in members] == [["4"]] * 3
    again = rig.crashed()
    assert [again.group(name).lag for name in "abc"] == [4, 3, 2]
