"""The disks of store and spool: producers are held while one is low, and its reserve is used when it is full."""

from pathlib import Path
from typing import Any

import pytest

from quire.broker.core.core import HoldCause
from quire.broker.turns import INTERVAL
from quire.errors import ProducerHeld, StoreFull
from quire.management.messages import Draft
from quire.management.queues import Management
from quire.store.disk import Disk
from quire.store.memory import MemoryStore
from quire.testing.stepped import SteppedBroker
from tests.unit.broker.harness import consumer, settings

LIMIT = 1 << 20
RESERVE = LIMIT // 4
FOR_START = RESERVE // 4
PLENTY = 10 * LIMIT
FULL = StoreFull("no space left")


class Place:
    """A directory whose disk has as much free as the test says.

    Attributes:
        free: that; None if it cannot be looked at.
        disk: the disk.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.free: int | None = PLENTY
        store = MemoryStore()
        store.open()
        store.reserve_file = directory / "reserve"
        self.disk = Disk(store, LIMIT, self._probe)

    def _probe(self, directory: Path) -> int:
        if self.free is None:
            raise FileNotFoundError(2, "No such file or directory", str(directory))
        return self.free


class Rig:
    """A broker with two watched disks."""

    def __init__(self, directory: Path, **sections: Any) -> None:
        self.stepped = SteppedBroker(settings(**sections))
        self.store, self.spool = Place(directory / "store"), Place(directory / "spool")
        self.broker = self.stepped.broker
        self.broker.disks.watch({HoldCause.STORE_DISK: self.store.disk, HoldCause.SPOOL_DISK: self.spool.disk})

    def look(self) -> None:
        """Let the next look at the disks come."""
        self.stepped.advance(INTERVAL)
        self.stepped.run()

    def causes(self) -> list[str]:
        """Why producers are held."""
        return [hold.cause for hold in self.broker.core.flow.holds.values()]


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def events(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.event for record in caplog.records]  # type: ignore[attr-defined]


def test_a_producer_is_held_while_the_disk_is_low_and_goes_on_when_there_is_room(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    producer = rig.stepped.connect()
    producer.send("q", b"1", {"receipt": "1"})
    rig.store.free = 0
    rig.look()
    producer.send("q", b"2", {"receipt": "2"})
    rig.look()
    assert (producer.receipts(), rig.causes()) == (["1"], ["store-disk-limit"])
    rig.store.free = PLENTY
    rig.look()
    assert (producer.receipts(), rig.causes()) == (["2"], [])
    assert events(caplog) == ["disk.low", "disk.recovered"]


def test_a_disk_is_looked_at_early_when_much_was_written(rig: Rig) -> None:
    producer = rig.stepped.connect()
    rig.store.free = 0
    producer.send("q", bytes(LIMIT // 16))
    rig.stepped.run()
    assert rig.broker.core.low_disks == set()
    producer.send("q", bytes(LIMIT // 8))
    rig.stepped.run()
    assert rig.broker.core.low_disks == {HoldCause.STORE_DISK}


def test_a_producer_that_is_held_too_long_gets_an_error(rig: Rig) -> None:
    rig.store.free = 0
    rig.look()
    producer = rig.stepped.connect()
    producer.send("q", b"1", {"receipt": "1"})
    rig.stepped.advance(31)
    rig.stepped.run()
    assert producer.errors() == ["producer-held"]


def test_consumers_go_on_while_the_disk_is_low(rig: Rig) -> None:
    producer = rig.stepped.connect()
    producer.send("q", b"1")
    rig.stepped.run()
    rig.store.free = rig.spool.free = 0
    rig.look()
    assert consumer(rig.stepped, ack="auto").messages() == [b"1"]
    assert rig.stepped.queue("q").depth == 0


def test_non_persistent_messages_find_memory_and_are_held_once_the_spool_is_in_use(tmp_path: Path) -> None:
    rig = Rig(tmp_path, memory={"limit": 1000})
    rig.spool.free = 0
    rig.look()
    producer = rig.stepped.connect()
    for _ in range(4):
        producer.send("q", b" " * 400, {"persistent": "false"})
        rig.stepped.run()
    assert rig.causes() == ["spool-disk-limit"]
    stored = rig.stepped.connect()
    stored.send("q", b"persistent", {"receipt": "r"})
    rig.stepped.run()
    assert stored.receipts() == ["r"]
    receiver = consumer(rig.stepped, ack="auto")
    assert len(receiver.messages()) == 5
    assert (rig.causes(), rig.stepped.spool.used) == ([], 0)


def test_a_send_of_an_operator_is_refused(rig: Rig) -> None:
    rig.store.free = 0
    rig.look()
    with pytest.raises(ProducerHeld) as caught:
        list(Management(rig.broker).send("q", Draft(b"1", {})))
    assert caught.value.data["cause"] == "store-disk-limit"


def test_a_commit_that_finds_no_space_gets_the_reserve_and_is_tried_again_at_once(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    producer = rig.stepped.connect()
    producer.send("q", b"1")
    rig.stepped.run()
    receiver = consumer(rig.stepped)
    receiver.ack(receiver.take("MESSAGE")[0])
    rig.stepped.turn()
    rig.store.free = 0
    rig.stepped.commit(FULL)
    assert rig.store.disk.reserved == rig.spool.disk.reserved == FOR_START
    assert rig.causes() == []
    rig.stepped.advance(0)
    rig.stepped.run()
    assert rig.broker.core.store_error is None
    assert rig.stepped.store.lane_state(rig.stepped.queue("q").lanes[0].id).count == 0
    assert events(caplog).count("disk.reserve-used") == 2
    refused = rig.stepped.connect()
    refused.send("q", b"2")
    rig.stepped.run()
    assert rig.causes() == ["store-disk-limit"]  # what was in reserve is not for producers


def test_while_the_store_fails_nothing_is_taken_back_into_the_reserve(rig: Rig) -> None:
    rig.stepped.connect().send("q", b"1")
    rig.stepped.turn()
    for _ in range(3):  # each is tried again at once, as long as there was something to give
        rig.stepped.commit(FULL)
    assert rig.stepped.writer.batch is None
    rig.stepped.advance(INTERVAL)
    rig.stepped.run_turns()
    assert rig.store.disk.reserved == 0
    rig.stepped.advance(1)
    rig.stepped.run()
    rig.look()
    assert (rig.broker.core.store_error, rig.store.disk.reserved) == (None, RESERVE)


def test_when_no_reserve_is_left_the_store_is_tried_once_a_second(rig: Rig) -> None:
    rig.store.free = rig.spool.free = 0
    for _ in range(3):
        rig.broker.disks.release()
    rig.stepped.connect().send("q", b"1")
    rig.stepped.turn()
    rig.stepped.commit(FULL)
    tried = 0
    for _ in range(50):
        if rig.stepped.writer.batch is not None:
            tried += 1
            rig.stepped.commit(FULL)
        rig.stepped.advance(0.1)
        rig.stepped.run_turns()
    assert 4 <= tried <= 6


def test_a_disk_that_cannot_be_looked_at_is_told_once(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.store.free = None
    for _ in range(5):
        rig.look()
    assert events(caplog) == ["disk.failed"]
    assert rig.causes() == []
