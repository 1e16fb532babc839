"""An operator moves a group: what becomes of messages that wait, and of commits that succeed or fail meanwhile."""

import pytest

from quire.broker.streams.groups.groups import reset, skip
from quire.broker.streams.partition import Start
from quire.errors import StoreError, StoreFull
from tests.unit.broker.streams.member_rig import StreamRig, by_offset, numbers, places
from tests.unit.broker.streams.moved_group import EARLIEST, drain, half_done, marks, offsets, used, waiting

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


@pytest.mark.slow
def test_retries_that_are_too_many_for_one_step_are_all_gone() -> None:
    rig = StreamRig(stream_prefetch=5000, max_in_flight=5000)
    member = rig.member()
    rig.send(*numbers(1, 2500))
    member.nack(*member.take())
    assert waiting(rig) == 2500
    reset(rig.group(), EARLIEST)
    rig.run()
    assert (waiting(rig), rig.lag, marks(rig, "purge")) == (0, 2500, [])


@pytest.mark.slow
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


@pytest.mark.slow
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
    rig.pass_time(2.5)
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
