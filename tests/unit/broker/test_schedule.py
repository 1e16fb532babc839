"""Scheduled messages: when they are sent, and what is sent."""

from typing import Any
from unittest.mock import patch

import pytest

from quire.broker import expiry
from quire.broker import schedule as schedule_module
from quire.broker.schedule import ScheduledSend
from quire.errors import InvalidHeader
from tests.unit.broker.harness import bodies, consumer
from tests.unit.broker.schedule_rig import Rig
from tests.unit.broker.step_rig import advance_counted, counting

DLQ = "ActiveMQ.DLQ"
HOURLY = "0 * * * *"


# When it is due.


def test_a_message_is_sent_when_its_delay_is_over() -> None:
    rig = Rig()
    rig.stored(delay=1500)
    rig.passes(1.25)
    assert (rig.depth(), rig.schedule.depth) == (0, 1)
    rig.passes(0.25)
    assert bodies(rig.received()) == [b"m"]
    rig.passes(5)
    assert (rig.depth(), rig.schedule.depth, rig.schedule.bytes, rig.schedule.sent) == (0, 0, 0, 1)


def test_messages_are_sent_in_the_order_they_are_due() -> None:
    rig = Rig()
    for delay in (900, 300, 60_000, 600, 300):
        rig.later(b"%d" % delay, delay=delay)
    rig.passes(61)
    assert bodies(rig.received()) == [b"300", b"300", b"600", b"900", b"60000"]


def test_a_message_due_at_once_is_sent_with_the_next_commit() -> None:
    rig = Rig()
    rig.later(delay=0)
    rig.stepped.run()
    assert rig.depth() == 1


def test_repeats_come_each_after_a_period_and_end() -> None:
    rig = Rig()
    rig.stored(delay=1000, period=500, repeat=2)
    depths = []
    for _ in range(6):
        rig.passes(0.5)
        depths.append(rig.depth())
    assert depths == [0, 1, 2, 3, 3, 3]
    assert rig.schedule.depth == 0


def test_repeats_without_end_go_on() -> None:
    rig = Rig()
    rig.stored(period=1500, repeat=-1)
    rig.passes(30)
    assert (rig.depth(), rig.schedule.depth) == (20, 1)


def test_a_cron_entry_sends_at_its_times() -> None:
    rig = Rig()
    rig.stored(cron=HOURLY)
    (scheduled,) = rig.schedule.browse().messages
    rig.stepped.advance((scheduled.due - rig.now) / 1000 - 1)
    rig.passes(0.75)
    assert rig.depth() == 0
    rig.passes(0.5)
    assert rig.depth() == 1
    (following,) = rig.schedule.browse().messages
    assert (following.due - scheduled.due, following.id) == (3_600_000, scheduled.id)


def test_what_was_missed_while_the_broker_was_down_is_sent_once_and_the_repeats_stay_as_many() -> None:
    rig = Rig()
    rig.stored(period=1000, repeat=3)
    rig.stepped.clock.advance(60.5)
    rig = rig.crash()
    rig.passes(0.25)
    assert rig.depth() == 1
    rig.passes(0.25)
    assert rig.depth() == 2
    rig.passes(60)
    assert (rig.depth(), rig.schedule.depth) == (4, 0)


def test_a_message_far_away_is_in_no_memory_until_shortly_before_it_is_due() -> None:
    rig = Rig()
    rig.stored(delay=60_000)
    rig.passes(57.75)
    assert len(rig.schedule.soon) == 0
    rig.passes(1.25)
    assert len(rig.schedule.soon) == 1
    rig.passes(1)
    assert (len(rig.schedule.soon), rig.depth()) == (0, 1)


def test_many_messages_due_at_once_are_sent_a_bounded_number_in_a_commit() -> None:
    rig = Rig()
    with patch.object(schedule_module, "MOST", 10):
        for number in range(35):
            rig.later(b"%d" % number, delay=1000)
        rig.stepped.run()
        rig.stepped.advance(1)
        sizes = []
        while rig.stepped.is_turn_wanted:
            rig.stepped.turn()
            if rig.stepped.writer.batch is not None:
                sizes.append(sum([len(part.removals) for part in rig.stepped.writer.batch.lanes.values()]))
                rig.stepped.commit()
    assert max(sizes) == 10
    assert bodies(rig.received()) == [b"%d" % number for number in range(35)]


def test_more_messages_than_memory_takes_are_sent_in_time() -> None:
    rig = Rig()
    for number in range(30):
        rig.later(b"%02d" % number + b"x" * 200_000, delay=1500 - 10 * number)
    rig.stepped.run()
    assert 0 < len(rig.schedule.soon) < 10
    rig.passes(1.5)
    assert [body[:2] for body in bodies(rig.received())] == [b"%02d" % number for number in reversed(range(30))]


@pytest.mark.slow
def test_many_messages_due_at_once_are_read_and_sent_a_bounded_number_in_a_turn() -> None:
    rig = Rig(counting())
    for number in range(3500):
        rig.later(b"%d" % number, delay=1000)
    rig.stepped.run()
    most = advance_counted(rig.stepped, 1)
    assert most.removals == schedule_module.MOST
    assert most.entries <= schedule_module.MOST_EXPIRATIONS + schedule_module.MOST
    assert most.bytes <= schedule_module.MOST_BYTES
    assert bodies(rig.received()) == [b"%d" % number for number in range(3500)]


def test_messages_are_sent_in_time_behind_many_that_have_expired_and_stay() -> None:
    rig = Rig(counting())
    expires = rig.now + 100
    for number in range(2000):
        rig.stepped.queue("held").send(b"message-id:%d\ntimestamp:1\n\n" % number, expires)
    rig.stepped.run()
    consumer(rig.stepped, "held", prefetchSize="2000")
    assert rig.stepped.queue("held").in_flight == 2000
    rig.later(delay=3000)
    with patch.object(schedule_module, "MOST_EXPIRATIONS", 100), patch.object(expiry, "STAY", 10):
        advance_counted(rig.stepped, 3)
        assert rig.depth() == 1
        rig.later(delay=1000)
        most = advance_counted(rig.stepped, 1)
    assert rig.depth() == 2
    assert most.entries < 10


def test_an_idle_schedule_does_nothing() -> None:
    rig = Rig()
    with patch.object(rig.stepped.store, "snapshot", side_effect=AssertionError("the store was read")):
        rig.passes(2)
    assert not rig.stepped.is_turn_wanted


# What is sent.


def test_a_message_is_sent_as_it_was_with_its_id_in_the_schedule() -> None:
    rig = Rig()
    job = rig.stored(b"a: b\n\nc", delay=250)
    message_id, stamp = rig.schedule.browse().messages[0].message_id, str(rig.now)
    rig.passes(0.25)
    (sent,) = rig.stepped.store.page(rig.stepped.queue("q").lanes[0].id, 1, 0, 1).messages
    assert sent.headers() == {"message-id": message_id, "timestamp": stamp, "colour": "red", "scheduledJobId": job}
    assert sent.body == b"a: b\n\nc"


def test_each_repeat_has_an_id_of_its_own_and_the_same_id_of_the_schedule() -> None:
    rig = Rig()
    job = rig.stored(period=250, repeat=2)
    rig.passes(1)
    messages = rig.received()
    assert len({message.headers["message-id"] for message in messages}) == 3
    assert [message.headers["scheduledJobId"] for message in messages] == [job] * 3


def test_the_time_to_live_begins_when_the_message_is_sent() -> None:
    rig = Rig()
    rig.later(b"m", send={"expiration": rig.now + 1000}, delay=5000)
    rig.passes(5)
    (message,) = rig.received()
    assert message.headers["expires"] == str(rig.now + 1000)
    assert message.headers["timestamp"] == str(rig.now)


def test_a_message_that_has_expired_before_it_was_scheduled_is_never_delivered() -> None:
    rig = Rig()
    rig.later(b"m", send={"expiration": 1}, delay=250)
    rig.passes(3)
    assert rig.received() == []
    assert rig.depth(DLQ) == 1


def test_priority_and_persistence_are_those_of_the_send() -> None:
    rig = Rig()
    rig.later(b"plain", delay=250)
    rig.later(b"hasty", send={"priority": 9, "persistent": False}, delay=250)
    rig.stepped.run()
    sent: list[tuple[int, bool]] = []
    queue = rig.stepped.queue("q")
    with patch.object(queue, "transfer", lambda content, expiration, *rest: sent.append(rest)):
        rig.passes(0.25)
    assert sent == [(4, True), (9, False)]


def test_a_client_cannot_write_the_headers_of_the_schedule() -> None:
    rig = Rig()
    added = b"quire-scheduled-cron:* * * * *\nquire-scheduled-id:9\nscheduledJobId:8\nAMQ_SCHEDULED_REPEAT:7\n"
    ScheduledSend(rig.schedule, "/queue/q", delay=250).send(b"message-id:1\ntimestamp:2\n" + added + b"\nm")
    rig.passes(1)
    (message,) = rig.received()
    assert message.headers["scheduledJobId"] == "1"
    assert [name for name in message.headers if name.startswith(("quire-", "AMQ_"))] == []
    assert rig.schedule.depth == 0


def test_a_header_that_needs_escapes_survives() -> None:
    rig = Rig()
    rig.later(b"m", destination="/queue/a:b", delay=250)
    rig.passes(0.25)
    assert bodies(rig.received("a:b")) == [b"m"]


@pytest.mark.parametrize("timing", [{"delay": -1}, {"delay": 1, "repeat": 1}, {"cron": "0 0 31 2 *"}])
def test_what_makes_no_sense_is_refused_at_once(timing: dict[str, Any]) -> None:
    with pytest.raises(InvalidHeader):
        ScheduledSend(Rig().schedule, "/queue/q", **timing)


def test_a_message_whose_destination_is_none_any_more_becomes_a_dead_letter() -> None:
    rig = Rig()
    rig.later(b"m", destination="/nowhere/q", send={"expiration": rig.now + 1}, delay=250)
    rig.later(b"next", delay=250)
    rig.passes(3)
    (letter,) = rig.received(DLQ)
    assert (letter.body, letter.headers["original-destination"]) == (b"m", "/nowhere/q")
    assert "/nowhere/q" in letter.headers["dlqDeliveryFailureCause"]
    assert bodies(rig.received()) == [b"next"]


def test_a_stopped_schedule_sends_nothing() -> None:
    rig = Rig()
    rig.stored(delay=500)
    rig.schedule.stop()
    rig.passes(2)
    assert (rig.depth(), rig.schedule.depth) == (0, 1)
