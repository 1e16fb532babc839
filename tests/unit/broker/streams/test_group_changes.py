"""An operator moves a group: to where, what that means for every message, and what becomes of what members have."""

from typing import Any

import pytest

from quire.broker.streams.groups.group_changes import PartitionChange, PartitionClone, clone, reset, shift, skip
from quire.broker.streams.groups.retry_queue import RetryQueue
from quire.broker.streams.offsets import Start, StartKind
from quire.errors import DestinationExists, InvalidArgument, InvalidHeader, StoreError, StoreFull
from quire.testing.stepped import Frame
from tests.unit.broker.streams.coordinator_rig import Rig
from tests.unit.broker.streams.member_rig import Member, StreamRig, by_offset, numbers, places

EARLIEST = Start(StartKind.EARLIEST)
LATEST = Start(StartKind.LATEST)


def half_done(name: str | None = None, **policy: Any) -> tuple[StreamRig, Member, dict[int, Frame]]:
    """Ten messages; 1, 2, 3, 5 and 8 are done, the member has the others."""
    rig = StreamRig(**policy)
    member = rig.member(name)
    rig.send(*numbers(1, 10))
    messages = by_offset(member.take())
    member.ack(*[messages.pop(offset) for offset in (1, 2, 3, 5, 8)])
    return rig, member, messages


def offsets(member: Member) -> list[int]:
    return [int(message.headers["offset"]) for message in member.take()]


def drain(member: Member) -> list[str]:
    """Take and acknowledge everything; where it was in the stream."""
    found = []
    while messages := member.take():
        found += places(messages)
        member.ack(*messages)
    return found


def retries_of(rig: StreamRig, group: str = "g") -> RetryQueue:
    retries = rig.group(group).retries
    assert retries is not None
    return retries


def waiting(rig: StreamRig) -> int:
    """How many retries there are; everybody who counts agrees."""
    retries = retries_of(rig)
    counted = sum([retries.count_of(partition.lane) for partition in rig.stream.partitions])
    assert retries.depth == counted == len(marks(rig, "r/"))
    return counted


def marks(rig: StreamRig, of: str) -> list[str]:
    """What the store remembers of the group ``g``: ``0/d/`` its delivery states of partition 0, ``r/`` its retries."""
    prefix = f"group/{rig.group().number}/{of}"
    return [key.removeprefix(prefix) for key, _ in rig.stepped.store.marks(prefix, limit=100_000)]


def used(rig: StreamRig) -> int:
    return rig.group().partitions[0].memory.used + (rig.group().retries or rig.group().partitions[0]).memory.used


# What a change means, and that it does just this.


@pytest.mark.parametrize(
    ("start", "to", "again", "skipped"),
    [
        ("earliest", 1, 5, 0),
        ("offset=3", 3, 3, 0),
        ("offset=4", 4, 2, 0),
        ("offset=7", 7, 1, 2),
        ("latest", 11, 0, 5),
        ("offset=99", 11, 0, 5),
    ],
)
@pytest.mark.parametrize("crashes", [False, True])
def test_a_reset_says_exactly_what_it_means_and_then_does_it(
    start: str, to: int, again: int, skipped: int, crashes: bool
) -> None:
    rig, member, _ = half_done()
    expected = [PartitionChange(0, 4, to, again, skipped, in_flight=5, retries_dropped=0)]
    assert reset(rig.group(), Start.parse(start), dry_run=True) == expected
    rig.run()
    assert (rig.lag, offsets(member)) == (5, [])
    assert reset(rig.group(), Start.parse(start)) == expected
    rig.run()
    assert rig.lag == 11 - to == 5 + again - skipped
    if crashes:
        rig = rig.crashed()
        assert rig.lag == 11 - to
        member = rig.member()
    assert offsets(member) == list(range(to, 11))


def test_a_reset_goes_to_a_time_or_so_long_ago() -> None:
    rig = StreamRig()
    member = rig.member()
    for number in range(5):
        rig.send(str(number))
        rig.stepped.advance(60)
    assert len(drain(member)) == 5
    now = rig.stepped.clock.now_ms()
    assert reset(rig.group(), Start.parse("ago=2m"), dry_run=True)[0].to_offset == 4
    assert reset(rig.group(), Start.parse(f"timestamp={now - 180_000}"))[0].to_offset == 3
    rig.run()
    assert drain(member) == ["3.0", "4.0", "5.0"]


@pytest.mark.parametrize(("by", "to"), [(-2, 2), (-100, 1), (3, 7), (100, 11), (0, 4)])
def test_a_shift_goes_from_the_first_that_is_not_finished(by: int, to: int) -> None:
    rig, member, _ = half_done()
    (change,) = shift(rig.group(), by, dry_run=True)
    assert (change.from_offset, change.to_offset) == (4, to)
    assert shift(rig.group(), by) == [change]
    rig.run()
    assert (rig.lag, offsets(member)) == (11 - to, list(range(to, 11)))


def test_a_skip_is_done_with_the_backlog_and_with_retries() -> None:
    rig, member, messages = half_done()
    member.nack(messages[4])
    assert (rig.lag, waiting(rig)) == (4, 1)
    expected = [PartitionChange(0, 6, 11, again=0, skipped=4, in_flight=4, retries_dropped=1)]
    assert skip(rig.group(), dry_run=True) == skip(rig.group()) == expected
    rig.run()
    assert (rig.lag, waiting(rig), used(rig)) == (0, 0, 0)
    rig.pass_time(20)
    rig.send("11")
    assert offsets(member) == [11]


def test_offsets_without_a_message_are_not_counted() -> None:
    rig = StreamRig()
    member = rig.member()
    rig.send(*numbers(1, 3))
    rig.post("refused")
    rig.stepped.turn()
    rig.stepped.commit(StoreFull("full"))
    rig.pass_time(1.5)
    rig.producer = rig.stepped.connect()
    rig.send("5", "6")
    assert drain(member) == ["1.0", "2.0", "3.0", "5.0", "6.0"]
    (change,) = reset(rig.group(), Start.parse("offset=4"))
    assert (change.to_offset, change.again, change.skipped) == (5, 2, 0)
    rig.run()
    assert shift(rig.group(), -3, dry_run=True)[0].again == 2
    assert drain(member) == ["5.0", "6.0"]


def test_what_is_acknowledged_and_not_stored_yet_comes_again() -> None:
    rig, member, messages = half_done()
    member.client.ack(messages[4])
    (change,) = reset(rig.group(), EARLIEST)
    assert (change.from_offset, change.again) == (6, 6)
    rig.run()
    assert (rig.lag, drain(member), rig.group().fenced) == (10, [f"{n}.0" for n in range(1, 11)], 0)


def test_one_partition_is_moved_and_the_others_notice_nothing() -> None:
    rig = StreamRig(partitions=2)
    member = rig.member(ack="client-individual")
    for number in range(3):
        rig.send(str(number), partition="0")
        rig.send(str(number), partition="1")
    messages = {(m.headers["partition"], m.headers["offset"]): m for m in member.take()}
    member.nack(messages["0", "1"], messages["1", "1"])
    assert waiting(rig) == 2
    (change,) = skip(rig.group(), 0)
    assert (change.partition, change.skipped, change.retries_dropped) == (0, 2, 1)
    rig.run()
    member.ack(messages["0", "2"], messages["1", "2"], messages["1", "3"])
    assert (rig.lag, rig.group().fenced, waiting(rig)) == (0, 1, 1)
    rig.pass_time(11)
    assert [(m.headers["partition"], m.headers["offset"]) for m in member.take()] == [("1", "1")]


def test_a_partition_that_is_not_there_is_refused() -> None:
    rig, _, _ = half_done()
    for wrong in (-1, 1):
        with pytest.raises(InvalidArgument, match="s has partitions 0 to 0"):
            reset(rig.group(), EARLIEST, wrong)


def test_a_group_that_begins_behind_what_is_being_committed_counts_right() -> None:
    rig = StreamRig()
    rig.post("1")
    rig.stepped.turn()
    rig.post("2")
    rig.broker.groups.open(rig.stream, "g", start=LATEST)
    assert rig.lag == 0
    rig.run()
    assert rig.lag == 0
    rig.post("3")
    (change,) = skip(rig.group())
    assert (change.skipped, change.to_offset, rig.lag) == (0, 4, 0)
    rig.send("4")
    assert rig.lag == 1


# What members have.


def test_acknowledgements_from_before_count_as_fenced_and_change_nothing() -> None:
    rig, member, messages = half_done()
    reset(rig.group(), EARLIEST)
    rig.run()
    member.ack(*messages.values())
    assert (rig.group().fenced, rig.lag, member.errors()) == (5, 10, [])
    assert drain(member) == [f"{n}.0" for n in range(1, 11)]  # none is flagged: it begins anew
    assert (rig.lag, used(rig), rig.group().fenced, rig.group().partitions[0].timed_out) == (0, 0, 5, 0)


def test_rejections_from_before_change_nothing() -> None:
    rig, member, messages = half_done()
    reset(rig.group(), EARLIEST)
    rig.run()
    member.nack(messages[4], messages[10])
    assert (rig.group().fenced, rig.lag, waiting(rig)) == (2, 10, 0)


def test_a_cumulative_acknowledgement_from_before_changes_nothing() -> None:
    rig = StreamRig()
    member = rig.member(ack="client")
    rig.send(*numbers(1, 5))
    messages = by_offset(member.take())
    reset(rig.group(), EARLIEST)
    rig.run()
    member.ack(messages[5])
    assert (rig.group().fenced, rig.lag) == (1, 5)
    again = by_offset(member.take())
    member.ack(again[3])
    assert rig.lag == 2


@pytest.mark.parametrize("outcome", ["COMMIT", "ABORT"])
def test_a_transaction_from_before_settles_nothing(outcome: str) -> None:
    rig = StreamRig()
    member = rig.member(prefetch_count="1")
    rig.send("1", "2", "3")
    member.ack(*member.take())
    (second,) = member.take()
    member.client.frame("BEGIN", {"transaction": "t"})
    member.client.ack(second, {"transaction": "t"})
    rig.run()
    (third,) = member.take()
    member.client.nack(third, {"transaction": "t"})
    reset(rig.group(), EARLIEST)
    rig.run()
    member.client.frame(outcome, {"transaction": "t"})
    rig.run()
    assert (rig.lag, waiting(rig), rig.group().fenced) == (3, 0, outcome == "COMMIT")
    assert drain(member) == ["1.0", "2.0", "3.0"]


def test_a_transaction_that_fails_with_the_store_brings_nothing_back_twice() -> None:
    rig, member, messages = half_done()
    member.client.frame("BEGIN", {"transaction": "t"})
    member.client.ack(messages[4], {"transaction": "t"})
    member.client.frame("COMMIT", {"transaction": "t"})
    rig.stepped.turn()
    reset(rig.group(), Start.parse("offset=3"))
    rig.stepped.commit(StoreFull("full"))
    rig.pass_time(1.5)
    rig.run()
    other = rig.member()
    rig.pass_time(1)
    assert sorted(drain(member) + drain(other)) == sorted([f"{n}.0" for n in range(3, 11)])
    assert (rig.lag, used(rig)) == (0, 0)


def test_members_that_ask_for_it_are_told() -> None:
    rig = StreamRig()
    member = rig.member(events="true")
    rig.send("1", "2")
    member.take()
    member.events()
    reset(rig.group(), EARLIEST)
    rig.run()
    assert offsets(member) == [1, 2]
    assert member.events() == ["lease-lost 0", "lease-lost 0", "assigned 0"]


def test_a_retry_that_a_member_has_is_taken_and_its_acknowledgement_is_fenced() -> None:
    rig, member, messages = half_done()
    member.nack(messages[4])
    rig.pass_time(11)
    (retry,) = member.take()
    (change,) = reset(rig.group(), EARLIEST, dry_run=True)
    assert (change.again, change.retries_dropped) == (6, 1)
    reset(rig.group(), EARLIEST)
    rig.run()
    member.ack(retry)
    assert (rig.lag, waiting(rig), rig.group().fenced) == (10, 0, 1)
    assert len(drain(member)) == 10
    assert used(rig) == 0


def test_a_retry_of_one_partition_that_was_dropped_is_stale() -> None:
    rig = StreamRig(partitions=2)
    member = rig.member()
    rig.send("a", partition="0")
    rig.send("b", partition="1")
    member.nack(*member.take())
    rig.pass_time(11)
    retries = {message.headers["partition"]: message for message in member.take()}
    reset(rig.group(), LATEST, 0)
    rig.run()
    member.ack(retries["0"], retries["1"])
    assert (waiting(rig), rig.group().stale, rig.group().late, rig.group().fenced) == (0, 1, 0, 0)
    assert rig.group().lag == 0


# Members that are away.


def test_a_group_without_members_is_moved() -> None:
    rig, member, _ = half_done()
    member.disconnect()
    reset(rig.group(), EARLIEST)
    rig.run()
    rig = rig.crashed()
    assert (rig.lag, drain(rig.member())) == (10, [f"{n}.0" for n in range(1, 11)])


def test_a_member_that_is_awaited_finds_the_group_elsewhere() -> None:
    rig, member, messages = half_done("a")
    member.vanish()
    reset(rig.group(), Start.parse("offset=3"))
    rig.run()
    again = rig.member("a", held="4.0,6.0,10.0")
    again.ack(messages[4])
    assert (rig.group().fenced, rig.lag) == (1, 8)
    assert drain(again) == [f"{n}.0" for n in range(3, 11)]
    assert (rig.lag, used(rig)) == (0, 0)


def test_a_member_that_does_not_come_back_is_not_waited_for_longer() -> None:
    rig, member, _ = half_done("a")
    member.vanish()
    other = rig.member("b")
    reset(rig.group(), EARLIEST)
    rig.run()
    rig.pass_time(11)
    assert drain(other) == [f"{n}.0" for n in range(1, 11)]


def test_a_partition_that_is_on_its_way_to_another_member_gets_there() -> None:
    rig, _, _ = half_done("b")
    other = rig.member("a")
    rig.pass_time(1)
    assert rig.owners == [("b",)]  # it has messages still
    reset(rig.group(), EARLIEST)
    rig.run()
    assert (rig.owners, drain(other)) == ([("a",)], [f"{n}.0" for n in range(1, 11)])


# Messages that wait.


def test_a_message_that_waits_in_place_begins_anew() -> None:
    rig = StreamRig(retry="in-place")
    member = rig.member()
    rig.send("1", "2", "3")
    messages = by_offset(member.take())
    member.nack(messages[1], messages[2])
    assert (rig.lag, len(marks(rig, "0/d/"))) == (3, 2)
    (change,) = reset(rig.group(), Start.parse("offset=2"))
    assert (change.skipped, change.retries_dropped, change.in_flight) == (1, 2, 1)
    rig.run()
    assert (marks(rig, "0/d/"), drain(member), used(rig)) == ([], ["2.0", "3.0"], 0)


@pytest.mark.parametrize("order", ["orderly", "key-ordered"])
def test_what_a_failed_message_held_back_goes_on(order: str) -> None:
    rig = StreamRig()
    member = rig.member(order=order)
    for number in range(4):
        rig.send(str(number), partition_key="k")
    (message,) = member.take()
    member.nack(message)
    assert member.take() == []
    reset(rig.group(), Start.parse("offset=2"))
    rig.run()
    assert (drain(member), rig.lag, used(rig)) == (["2.0", "3.0", "4.0"], 0, 0)
    reset(rig.group(), EARLIEST)
    rig.run()
    assert (drain(member), rig.lag, used(rig)) == (["1.0", "2.0", "3.0", "4.0"], 0, 0)


def test_a_message_that_was_acknowledged_late_comes_again() -> None:
    rig = StreamRig(retry="in-place", consume_timeout=1.0)
    member = rig.member()
    rig.send("1")
    (message,) = member.take()
    rig.pass_time(1.5)
    member.client.ack(message)
    assert rig.group().late == 1
    reset(rig.group(), EARLIEST)
    rig.run()
    assert (drain(member), rig.lag, used(rig)) == (["1.0"], 0, 0)


def test_a_group_with_a_selector_gets_what_it_wants() -> None:
    rig = StreamRig()
    member = rig.member(selector="colour = 'red'")
    for number in range(6):
        rig.send(str(number), colour="red" if number % 2 else "blue")
    assert drain(member) == ["2.0", "4.0", "6.0"]
    reset(rig.group(), EARLIEST)
    rig.run()
    assert (drain(member), rig.lag, used(rig)) == (["2.0", "4.0", "6.0"], 0, 0)


def test_retries_that_are_too_many_for_one_step_are_all_gone() -> None:
    rig = StreamRig(stream_prefetch=5000, max_in_flight=5000)
    member = rig.member()
    rig.send(*numbers(1, 2500))
    member.nack(*member.take())
    assert waiting(rig) == 2500
    reset(rig.group(), EARLIEST)
    rig.run()
    assert (waiting(rig), rig.lag, marks(rig, "purge")) == (0, 2500, [])


def test_a_crash_on_the_way_brings_no_retry_back() -> None:
    rig = StreamRig(stream_prefetch=5000, max_in_flight=5000)
    member = rig.member()
    rig.send(*numbers(1, 2500))
    member.nack(*member.take())
    skip(rig.group())
    rig.stepped.turn()
    rig.stepped.commit()
    rig.stepped.commit()
    assert 0 < len(marks(rig, "r/")) < 2500
    rig = rig.crashed()
    again = rig.member()
    rig.pass_time(20)
    assert (again.take(), waiting(rig), rig.lag, marks(rig, "purge")) == ([], 0, 0, [])


def test_what_fails_while_old_retries_go_is_tried_again() -> None:
    rig = StreamRig(stream_prefetch=5000, max_in_flight=5000)
    member = rig.member()
    rig.send(*numbers(1, 2500))
    member.nack(*member.take())
    reset(rig.group(), Start.parse("offset=2500"))
    rig.stepped.turn()
    rig.stepped.commit()
    rig.stepped.run_turns()
    while not (messages := member.take()):
        rig.stepped.commit()
        rig.stepped.run_turns()
    assert len(marks(rig, "r/")) > 0
    member.client.nack(messages[0])
    rig.run()
    assert waiting(rig) == 1
    rig.pass_time(11)
    assert places(member.take()) == ["2500.0!"]


# Commits.


def test_all_of_it_is_in_one_commit() -> None:
    rig, member, messages = half_done()
    member.nack(messages[4])
    skip(rig.group())
    rig.stepped.turn()
    before = rig.crashed()
    assert (before.lag, waiting(before)) == (4, 1)


def test_an_acknowledgement_whose_commit_fails_stays_forgotten() -> None:
    rig, member, messages = half_done()
    member.client.ack(messages[4])
    member.client.nack(messages[6])
    rig.stepped.turn()
    member.client.ack(messages[7])
    reset(rig.group(), EARLIEST)
    rig.stepped.commit(StoreFull("full"))
    rig.pass_time(1.5)
    assert (rig.lag, waiting(rig)) == (10, 0)
    assert drain(member) == [f"{n}.0" for n in range(1, 11)]
    assert rig.crashed().lag == 0


def test_one_whose_commit_succeeds_stays_forgotten_too() -> None:
    rig, member, messages = half_done()
    member.client.ack(messages[4])
    member.client.nack(messages[6])
    rig.stepped.turn()
    reset(rig.group(), EARLIEST)
    rig.stepped.commit()
    rig.run()
    assert (rig.lag, waiting(rig)) == (10, 0)
    rig = rig.crashed()
    assert (rig.lag, waiting(rig), offsets(rig.member())) == (10, 0, list(range(1, 11)))


def test_a_state_in_the_commit_under_way_is_forgotten() -> None:
    rig = StreamRig(retry="in-place")
    member = rig.member()
    rig.send("1", "2")
    messages = by_offset(member.take())
    member.client.nack(messages[1])
    rig.stepped.turn()
    member.client.nack(messages[2])
    assert reset(rig.group(), EARLIEST)[0].retries_dropped == 2
    rig.stepped.commit()
    rig.run()
    assert (marks(rig, "0/d/"), drain(member)) == ([], ["1.0", "2.0"])


def test_a_reset_whose_commit_fails_is_in_the_next_one() -> None:
    rig, member, messages = half_done()
    member.nack(messages[4])
    reset(rig.group(), Start.parse("offset=2"))
    rig.stepped.turn()
    rig.stepped.commit(StoreFull("full"))
    assert rig.crashed().lag == 4
    rig.pass_time(1.5)
    assert (rig.lag, waiting(rig)) == (9, 0)
    again = rig.crashed()
    assert (again.lag, waiting(again)) == (9, 0)


def test_a_store_that_cannot_be_read_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, member, messages = half_done(partitions=1)

    def fail(*arguments: object) -> None:
        raise StoreError("not to be read")

    with monkeypatch.context() as patched:
        patched.setattr(rig.stepped.store, "marks", fail)
        with pytest.raises(StoreError):
            skip(rig.group())
    rig.run()
    member.ack(*messages.values())
    assert (rig.lag, rig.group().fenced) == (0, 0)


def test_epochs_go_up_over_a_crash_too() -> None:
    rig, _, messages = half_done("a")
    old = rig.group().coordinator.epochs("a")[0]
    reset(rig.group(), EARLIEST)
    rig.run()
    new = rig.group().coordinator.epochs("a")[0]
    assert new > old
    rig = rig.crashed()
    again = rig.member("a")
    assert rig.group().coordinator.epochs("a") == {0: new}
    again.ack(*messages.values())
    assert (rig.group().fenced, rig.lag) == (5, 10)


# Another group begins where one is.


def test_a_clone_gets_just_what_the_other_has_not_finished() -> None:
    rig, member, messages = half_done()
    member.nack(messages[4])
    expected = [PartitionClone(0, offset=6, lag=4, holes=1, retries_left=1)]
    assert clone(rig.group(), "green", dry_run=True) == expected
    assert list(rig.stream.groups) == ["g"]
    assert clone(rig.group(), "green") == expected
    rig.run()
    rig = rig.crashed()
    green = rig.member(group="green")
    assert drain(green) == ["6.0", "7.0", "9.0", "10.0"]
    assert (rig.group("green").definition.start, rig.group("green").lag, rig.lag) == ("clone of g", 0, 4)


def test_a_clone_is_of_the_same_kind() -> None:
    rig = StreamRig()
    rig.member(order="key-ordered", selector="colour = 'red'")
    clone(rig.group(), "green")
    one, other = rig.group().definition, rig.group("green").definition
    assert (one.order, one.mode, one.selector) == (other.order, other.mode, other.selector)


def test_a_clone_gets_what_is_acknowledged_and_not_stored() -> None:
    rig, member, messages = half_done()
    member.client.ack(messages[4])
    rig.stepped.turn()
    member.client.ack(messages[6])
    clone(rig.group(), "green")
    rig.stepped.commit(StoreFull("full"))
    rig.pass_time(1.5)
    assert (rig.lag, rig.group("green").lag) == (3, 5)
    assert rig.group("green").partitions[0].depth == 5


def test_a_clone_needs_a_name_of_its_own() -> None:
    rig, _, _ = half_done()
    with pytest.raises(DestinationExists, match="has a consumer group 'g' already"):
        clone(rig.group(), "g")
    for wrong in ("", "x" * 201, "a\nb"):
        with pytest.raises(InvalidHeader):
            clone(rig.group(), wrong, dry_run=True)


# The coordinator's part.


def test_fencing_gives_partitions_to_the_same_members_with_a_new_epoch() -> None:
    rig = Rig()
    rig.gather("a", "b")
    assert (rig.coordinator.epochs("a"), rig.coordinator.epochs("b")) == ({0: 1, 1: 1}, {2: 2, 3: 2})
    rig.coordinator.fence([0, 3])
    assert rig.group.take() == ["take away a 0", "assign a 0", "take away b 3", "assign b 3"]
    assert (rig.coordinator.epochs("a"), rig.coordinator.epochs("b")) == ({0: 3, 1: 1}, {2: 2, 3: 3})
    assert rig.coordinator.is_settled


def test_fencing_keeps_partitions_for_those_who_are_awaited() -> None:
    rig = Rig()
    rig.gather("a", "b", static=True)
    rig.coordinator.lost("a")
    rig.coordinator.fence([0, 1, 2, 3])
    assert rig.group.take() == [
        "take away a 0", "take away a 1", "take away b 2", "assign b 2", "take away b 3", "assign b 3",
    ]  # fmt: skip
    assert rig.coordinator.epochs("a") == {0: 3, 1: 3}
    rig.restart()
    assert rig.coordinator.epochs("a") == {0: 3, 1: 3}
    rig.coordinator.join("a", static=True)
    assert rig.coordinator.epochs("a") == {0: 3, 1: 3}


def test_fencing_ends_a_revocation() -> None:
    rig = Rig(partitions=1)
    rig.gather("b")
    rig.group.busy.add(("b", 0))
    rig.join("a")
    rig.advance(1)
    assert (rig.group.take(), rig.coordinator.owners(0)) == (["revoke b 0"], ("b",))
    rig.coordinator.fence([0])
    assert (rig.group.take(), rig.coordinator.owners(0)) == (["take away b 0", "assign a 0"], ("a",))
    rig.advance(60)
    assert rig.group.take() == []
