"""The operator's door to the schedule: messages that wait are listed and cancelled."""

from unittest.mock import patch

import pytest

from quire.broker import schedule as schedule_module
from quire.errors import StoreError, StoreFull, UnknownMessage
from tests.unit.broker.harness import bodies
from tests.unit.broker.schedule_rig import Rig

FULL = StoreFull("no space left")


def test_messages_that_wait_are_listed_in_pages() -> None:
    rig = Rig()
    for number in range(5):
        rig.later(b"%d" % number, delay=60_000 + number)
    rig.stepped.run()
    first = rig.schedule.browse(limit=3)
    second = rig.schedule.browse(after=first.next or 0, limit=3)
    assert [scheduled.due - rig.now for scheduled in (*first.messages, *second.messages)] == [
        60_000 + n for n in range(5)
    ]
    assert second.next is None


def test_the_list_says_everything_about_a_message() -> None:
    rig = Rig()
    rig.later(b"m", send={"expiration": rig.now + 700, "priority": 7, "persistent": False}, period=500, repeat=4)
    rig.stepped.run()
    (scheduled,) = rig.schedule.browse().messages
    assert (scheduled.id, scheduled.destination, scheduled.due) == ("1", "/queue/q", rig.now + 500)
    assert (scheduled.left, scheduled.timing.period, scheduled.timing.cron) == (4, 500, "")
    assert (scheduled.priority, scheduled.persistent, scheduled.time_to_live) == (7, False, 700)
    assert scheduled.size == rig.schedule.bytes


def test_an_empty_schedule_has_an_empty_list() -> None:
    page = Rig().schedule.browse()
    assert (page.messages, page.next) == ([], None)


def test_a_cancelled_message_is_not_sent() -> None:
    rig = Rig()
    cancelled = rig.stored(b"cancelled", delay=500)
    rig.stored(b"kept", delay=500)
    rig.schedule.cancel(cancelled)
    assert [scheduled.id for scheduled in rig.schedule.browse().messages] == ["2"]
    rig.passes(1)
    assert bodies(rig.received()) == [b"kept"]
    assert rig.schedule.depth == 0


def test_a_message_that_recurs_is_cancelled_by_the_id_it_had_at_first() -> None:
    rig = Rig()
    job = rig.stored(period=1000, repeat=-1)
    rig.passes(3.5)
    assert rig.schedule.browse().messages[0].id == job
    rig.schedule.cancel(job)
    rig.passes(2)
    assert (rig.depth(), rig.schedule.depth, rig.stepped.store.marks("schedule/")) == (3, 0, [])


@pytest.mark.parametrize("id", ["2", "0", "", "-1", "x", "9" * 18, "9" * 30, "\u0661"])
def test_an_unknown_id_is_an_error(id: str) -> None:
    rig = Rig()
    rig.stored(delay=500)
    with pytest.raises(UnknownMessage):
        rig.schedule.cancel(id)


def test_the_number_of_a_later_record_is_no_id() -> None:
    rig = Rig()
    rig.stored(period=500, repeat=-1)
    rig.passes(0.5)
    with pytest.raises(UnknownMessage):
        rig.schedule.cancel("2")


def test_without_any_message_every_id_is_unknown() -> None:
    with pytest.raises(UnknownMessage):
        Rig().schedule.cancel("1")


def test_a_message_is_cancelled_once() -> None:
    rig = Rig()
    job = rig.stored(delay=500)
    rig.schedule.cancel(job)
    with pytest.raises(UnknownMessage):
        rig.schedule.cancel(job)
    rig.stepped.turn()
    with pytest.raises(UnknownMessage):
        rig.schedule.cancel(job)


def test_a_message_that_is_being_sent_for_the_last_time_cannot_be_cancelled() -> None:
    rig = Rig()
    job = rig.stored(delay=500)
    rig.stepped.advance(0.5)
    rig.stepped.turn()
    with pytest.raises(UnknownMessage):
        rig.schedule.cancel(job)
    rig.stepped.run()
    assert rig.depth() == 1


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("error", [None, FULL])
def test_a_message_can_be_cancelled_while_it_is_sent_and_recurs(begun: bool, error: StoreError | None) -> None:
    rig = Rig()
    job = rig.stored(period=500, repeat=-1)
    if not begun:  # another commit is under way
        rig.stepped.connect().send("other", b"")
        rig.stepped.turn()
    rig.stepped.advance(0.5)
    rig.stepped.turn()
    assert rig.schedule.sent == 1
    rig.schedule.cancel(job)
    rig.stepped.turn()
    rig.stepped.commit(error)
    rig.passes(5)
    assert (rig.depth(), rig.schedule.depth, rig.schedule.bytes) == (1, 0, 0)
    assert rig.stepped.store.marks("schedule/") == []
    assert rig.stepped.store.lane_state(rig.schedule._lane).count == 0


def test_a_cancellation_whose_commit_fails_is_tried_again() -> None:
    rig = Rig()
    job = rig.stored(delay=1500)
    rig.schedule.cancel(job)
    rig.stepped.turn()
    rig.stepped.commit(FULL)
    rig.passes(3)
    assert (rig.depth(), rig.schedule.depth) == (0, 0)


def test_messages_between_two_times_are_cancelled_in_steps() -> None:
    rig = Rig()
    for number in range(6):
        rig.later(b"%d" % number, delay=1000 * number + 10_000)
    rig.stepped.run()
    counts = []
    with patch.object(schedule_module, "STEP", 2):
        for count in rig.schedule.cancel_between(rig.now + 11_000, rig.now + 14_000):
            counts.append(count)
            rig.stepped.run()
    assert counts == [1, 2, 1]
    rig.passes(20)
    assert bodies(rig.received()) == [b"0", b"5"]


def test_messages_that_are_scheduled_while_others_are_cancelled_stay() -> None:
    rig = Rig()
    rig.stored(b"old", delay=10_000)
    for _ in rig.schedule.cancel_between(0, 1 << 50):
        rig.stored(b"new", delay=10_000)
    rig.passes(10)
    assert bodies(rig.received()) == [b"new"]
