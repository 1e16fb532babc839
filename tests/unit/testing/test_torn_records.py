"""A record that cannot be read stops the delivery of its queue, and nothing else."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from quire.errors import StoreCorrupt
from quire.store.base import Store
from quire.store.lmdb import LmdbStore
from quire.testing.faults import tear
from quire.testing.stepped import SteppedBroker

LANE = 1
"""The lane of the queue that is used first."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = LmdbStore(tmp_path / "store")
    store.open()
    yield store
    store.close()


def test_dispatch_stands_before_a_torn_record_and_other_queues_go_on(store: Store) -> None:
    stepped = SteppedBroker(store=store)
    producer = stepped.connect()
    for number in range(1, 5):
        producer.send("torn", b"torn %d" % number)
        producer.send("sound", b"sound %d" % number)
    stepped.run()
    tear(store, LANE, 3)
    consumer = stepped.connect()
    consumer.subscribe("torn", id="1")
    consumer.subscribe("sound", id="2")
    stepped.run()
    producer.send("torn", b"torn 5")
    producer.send("sound", b"sound 5")
    stepped.run()
    assert sorted(consumer.messages()) == [*[b"sound %d" % n for n in range(1, 6)], b"torn 1", b"torn 2"]
    assert isinstance(stepped.queue("torn").fault, StoreCorrupt)
    assert stepped.queue("sound").fault is None
    assert stepped.queue("torn").depth == 5


def test_torn_record_does_not_keep_others_from_expiring(store: Store) -> None:
    stepped = SteppedBroker(store=store)
    producer = stepped.connect()
    for name in ("torn", "torn", "sound"):
        producer.send(name, b"late", {"expires": str(stepped.clock.now_ms() + 1500)})
    producer.send("torn", b"later", {"expires": str(stepped.clock.now_ms() + 5500)})
    stepped.run()
    tear(store, LANE, 1)
    for _ in range(8):
        stepped.advance(1)
        stepped.run()
    assert stepped.queue("torn").depth == 1  # the torn one stays for repair
    assert stepped.queue("sound").depth == 0
    assert stepped.queue("ActiveMQ.DLQ").depth == 3
