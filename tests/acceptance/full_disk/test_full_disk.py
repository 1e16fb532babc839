"""A full disk: producers are held or refused, consumers drain it, the broker stops, starts and is killed on it."""

import json

import pytest

from quire.client.sync import connect
from tests.acceptance.crash.broker_process import quire
from tests.acceptance.full_disk.conftest import MakeFullDisk
from tests.acceptance.full_disk.scenario import LIMIT, QUEUE, run, run_spool

pytestmark = pytest.mark.slow

KINDS = pytest.mark.parametrize("kind", ["lmdb", "sqlite"])


@KINDS
def test_full_disk_is_drained_over_restarts(kind: str, make_full_disk: MakeFullDisk) -> None:
    run(make_full_disk(kind))


def test_full_spool_is_drained(make_full_disk: MakeFullDisk) -> None:
    full = make_full_disk("lmdb")
    full.persistent = False
    run_spool(full)


def test_producers_are_held_before_the_disk_is_full(make_full_disk: MakeFullDisk) -> None:
    full = make_full_disk("lmdb", PRODUCER__HOLD_LIMIT="60s")
    full.broker.start()
    full.broker.port()
    full.disk.fill(leave=LIMIT // 4)
    full.wait_until(lambda: full.room("store") < LIMIT, "the disk is low")
    with connect(full.broker.openwire()) as connection:
        producer = connection.session().producer(QUEUE)
        producer.submit(b"0", persistent=False).result(5)  # finds memory
        held = producer.submit(b"1")
        full.wait_until(lambda: full.held("store-disk-limit") == 1, "a producer is held")
        status = quire("broker", "status", "--url", full.broker.http, "--output", "json")
        seen = json.loads(status.stdout)
        assert [each["cause"] for each in seen["producers_held"]] == ["store-disk-limit"]
        assert seen["store"]["disk"]["free"] < seen["store"]["disk"]["limit"] == LIMIT
        refused = quire("send", "q", "--body", "b", "--url", full.broker.http)
        assert (refused.returncode, "producer-held" in refused.stderr) == (4, True)
        full.disk.empty()
        producer.send(b"2")
        held.result(5)
    with connect(full.broker.openwire()) as connection:
        consumer = connection.session().consumer(QUEUE)
        taken = [consumer.receive(5) for _ in range(3)]
    assert [message and message.body for message in taken] == [b"0", b"1", b"2"]
    assert full.broker.events("store.failed") == []
    full.broker.stop()


@KINDS
def test_start_without_any_space_says_what_is_missing(kind: str, make_full_disk: MakeFullDisk) -> None:
    """A store that has no reserve yet: the error names the file, and the advice is to free space."""
    full = make_full_disk(kind)
    full.disk.fill()
    full.broker.start()
    assert full.broker.wait() == 4
    assert "No space left on device" in full.broker.log
    assert "lock" in full.broker.log
    assert "Free disk space" in full.broker.log
    full.disk.empty()
    full.broker.start()
    assert full.produce(100) is None
    full.broker.stop()


@KINDS
def test_without_reserve_the_error_of_a_start_names_the_store(kind: str, make_full_disk: MakeFullDisk) -> None:
    full = make_full_disk(kind, STORE__DISK_FREE_LIMIT="0")
    full.broker.start()
    assert full.produce(100) is None
    full.broker.stop()
    full.disk.fill()
    full.broker.start()
    if kind == "lmdb":  # it needs no space
        full.broker.wait_for_event("broker.unannounced")
        full.broker.stop()
    else:
        assert full.broker.wait() == 4
        assert "store.db" in full.broker.log
        assert "Free disk space" in full.broker.log
    full.verify_after_space()
