"""Scheduled messages when something fails: crashes, refused commits, damaged records. Each is still sent once."""

from pathlib import Path
from unittest.mock import patch

import pytest

from quire.broker.schedule import ScheduledSend
from quire.errors import StoreFull, StoreUnreachable
from quire.message import Message
from quire.store.base import StoredDestination, Sync, WriteBatch
from quire.store.memory import MemoryStore
from quire.store.urls import store_for_url
from quire.testing.faults import tear
from quire.testing.stepped import SteppedBroker
from tests.unit.broker.harness import bodies
from tests.unit.broker.schedule_rig import Rig, events

FULL = StoreFull("no space left")


def test_a_scheduled_message_survives_a_crash() -> None:
    rig = Rig()
    rig.stored(delay=1000)
    rig = rig.crash()
    assert (rig.schedule.depth, rig.stepped.broker.core.stored_bytes) == (1, rig.schedule.bytes)
    rig.passes(1)
    assert bodies(rig.received()) == [b"m"]


def test_a_crash_before_the_commit_of_a_send_leaves_the_message_in_the_schedule() -> None:
    rig = Rig()
    rig.stored(period=500, repeat=1)
    rig.stepped.advance(0.5)
    rig.stepped.turn()
    rig.stepped.writer.drop()
    rig = rig.crash()
    assert rig.depth() == 0
    rig.passes(2)
    assert rig.depth() == 2


def test_a_crash_after_the_commit_of_a_send_does_not_send_it_again() -> None:
    rig = Rig()
    rig.stored(period=500, repeat=1)
    rig.stepped.advance(0.5)
    rig.stepped.turn()
    rig.stepped.writer.apply()
    rig = rig.crash()
    assert (rig.depth(), rig.schedule.depth) == (1, 1)
    rig.passes(5)
    assert (rig.depth(), rig.schedule.depth) == (2, 0)


def test_a_refused_message_is_not_in_the_schedule() -> None:
    rig = Rig()
    rig.later(delay=250)
    rig.stepped.turn()
    rig.stepped.commit(FULL)
    rig.passes(3)
    assert (rig.depth(), rig.schedule.depth, rig.schedule.bytes) == (0, 0, 0)
    rig.stored(delay=250)
    rig.passes(0.25)
    assert rig.depth() == 1


def test_a_send_whose_commit_fails_is_made_once_when_the_store_has_space_again() -> None:
    rig = Rig()
    job = rig.stored(period=500, repeat=1)
    rig.stepped.advance(0.5)
    rig.stepped.turn()
    rig.stepped.commit(FULL)
    assert rig.depth() == 0
    rig.passes(5)
    messages = rig.received()
    assert [message.headers["scheduledJobId"] for message in messages] == [job, job]
    assert (rig.schedule.depth, rig.schedule.bytes) == (0, 0)
    assert rig.stepped.store.marks("schedule/") == []


def test_a_message_that_recurs_keeps_its_id_when_a_commit_fails() -> None:
    rig = Rig()
    job = rig.stored(period=500, repeat=-1)
    rig.stepped.advance(0.5)
    rig.stepped.turn()
    rig.stepped.commit(FULL)
    rig.passes(1.25)
    assert [scheduled.id for scheduled in rig.schedule.browse().messages] == [job]
    rig.schedule.cancel(job)
    rig.stepped.run()
    assert rig.schedule.depth == 0


def test_nothing_is_sent_while_the_store_takes_no_writes() -> None:
    rig = Rig()
    rig.stored(delay=500)
    rig.later(b"refused", delay=0)
    rig.stepped.turn()
    rig.stepped.commit(FULL)
    rig.stepped.advance(0.5)
    assert rig.schedule.sent == 0
    rig.passes(3)
    assert bodies(rig.received()) == [b"m"]


def test_a_message_that_is_given_up_elsewhere_is_in_the_next_commit_when_its_own_fails() -> None:
    rig = Rig()
    content = b"message-id:1\ntimestamp:2\n\nm"
    ScheduledSend(rig.schedule, "/queue/q", delay=2000).transfer(content)
    rig.stepped.turn()
    rig.stepped.commit(FULL)
    rig.passes(1.25)
    assert rig.schedule.depth == 1
    rig.passes(1)
    assert bodies(rig.received()) == [b"m"]


def test_what_the_store_has_and_is_not_announced_yet_is_not_sent_twice() -> None:
    rig = Rig()
    rig.stored(b"first", delay=1000)
    rig.later(b"second", delay=750)
    rig.stepped.turn()
    batch = rig.stepped.writer.apply()
    rig.stepped.advance(1)
    rig.stepped.broker.turns.committed(batch, None)
    rig.passes(2)
    assert sorted(bodies(rig.received())) == [b"first", b"second"]


def test_it_waits_until_the_store_can_be_read_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    rig.stored(delay=5000)
    with patch.object(rig.stepped.store, "snapshot", side_effect=StoreUnreachable("the server is away")):
        rig.passes(7)
    assert [record.event for record in caplog.records] == ["store.unreadable"]  # type: ignore[attr-defined]
    assert rig.depth() == 0
    rig.passes(1)
    assert rig.depth() == 1


def test_a_damaged_record_stops_no_other_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = store_for_url(f"lmdb://{tmp_path}/store", Sync.NEVER)
    store.open()
    rig = Rig(SteppedBroker(store=store))
    for body in (b"damaged", b"sound", b"damaged too"):
        rig.stored(body, delay=5000)
    (lane,) = [stored.lanes[0] for stored in store.destinations() if stored.kind == "schedule"]
    tear(store, lane, 1)
    tear(store, lane, 3)
    rig.passes(6)
    assert bodies(rig.received()) == [b"sound"]
    assert rig.schedule.depth == 2
    assert events(caplog) == ["schedule.damaged"] * 2
    store.close()


def test_a_record_that_says_nothing_about_a_schedule_stays_where_it_is(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()
    store.open()
    batch = WriteBatch(destinations={1: StoredDestination(1, "schedule", "$quire.schedule", {}, (1,))})
    batch.lane(1).appends = [Message(1, b"message-id:1\ntimestamp:1\n\nm", expiration=1)]
    store.apply(batch)
    rig = Rig(SteppedBroker(store=store))
    rig.passes(2)
    assert rig.schedule.depth == 1
    assert events(caplog) == ["schedule.damaged"]
