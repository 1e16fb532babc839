"""An operator moves a group: to where, and what that means for every message; another one begins where it is."""

import pytest

from quire.broker.streams.groups.groups import PartitionChange, PartitionClone, reset, shift, skip
from quire.broker.streams.partition import Start
from quire.errors import DestinationExists, InvalidArgument, InvalidHeader, StoreFull
from tests.unit.broker.streams.member_rig import StreamRig, numbers
from tests.unit.broker.streams.moved_group import EARLIEST, LATEST, drain, half_done, offsets, used, waiting

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


def test_acknowledgements_from_before_count_as_fenced_and_change_nothing() -> None:
    rig, member, messages = half_done()
    reset(rig.group(), EARLIEST)
    rig.run()
    member.ack(*messages.values())
    assert (rig.group().fenced, rig.lag, member.errors()) == (5, 10, [])
    assert drain(member) == [f"{n}.0" for n in range(1, 11)]  # none is flagged: it begins anew
    assert (rig.lag, used(rig), rig.group().fenced, rig.group().partitions[0].timed_out) == (0, 0, 5, 0)


# Another group begins where one is.


def test_a_clone_gets_just_what_the_other_has_not_finished() -> None:
    rig, member, messages = half_done()
    member.nack(messages[4])
    expected = [PartitionClone(0, offset=6, lag=4, holes=1, retries_left=1)]
    assert rig.broker.groups.clone(rig.group(), "green", dry_run=True) == expected
    assert list(rig.stream.groups) == ["g"]
    assert rig.broker.groups.clone(rig.group(), "green") == expected
    rig.run()
    rig = rig.crashed()
    green = rig.member(group="green")
    assert drain(green) == ["6.0", "7.0", "9.0", "10.0"]
    assert (rig.group("green").definition.start, rig.group("green").lag, rig.lag) == ("clone of g", 0, 4)


def test_a_clone_is_of_the_same_kind() -> None:
    rig = StreamRig()
    rig.member(order="key-ordered", selector="colour = 'red'")
    rig.broker.groups.clone(rig.group(), "green")
    one, other = rig.group().definition, rig.group("green").definition
    assert (one.order, one.mode, one.selector) == (other.order, other.mode, other.selector)


def test_a_clone_gets_what_is_acknowledged_and_not_stored() -> None:
    rig, member, messages = half_done()
    member.client.ack(messages[4])
    rig.stepped.turn()
    member.client.ack(messages[6])
    rig.broker.groups.clone(rig.group(), "green")
    rig.stepped.commit(StoreFull("full"))
    rig.pass_time(1.5)
    assert (rig.lag, rig.group("green").lag) == (3, 5)
    assert rig.group("green").partitions[0].depth == 5


def test_a_clone_needs_a_name_of_its_own() -> None:
    rig, _, _ = half_done()
    with pytest.raises(DestinationExists, match="has a consumer group 'g' already"):
        rig.broker.groups.clone(rig.group(), "g")
    for wrong in ("", "x" * 201, "a\nb"):
        with pytest.raises(InvalidHeader):
            rig.broker.groups.clone(rig.group(), wrong, dry_run=True)


def test_a_dry_run_asks_for_no_commit() -> None:
    rig, _, _ = half_done()
    rig.run()
    reset(rig.group(), Start.parse("earliest"), dry_run=True)
    assert not rig.broker.core.open.parts
