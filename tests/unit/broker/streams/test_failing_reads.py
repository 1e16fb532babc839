"""Whichever read of the store fails: every client is answered, nothing is skipped, and it goes on when reads do."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from quire.broker.streams.groups.group import Group
from quire.broker.streams.groups.groups import reset, shift
from quire.broker.streams.partition import Start
from quire.errors import StoreError
from quire.sessions.settling import Outcome
from quire.store.base import Store
from quire.store.lmdb import LmdbStore
from quire.store.memory import MemoryStore
from quire.store.sqlite import SqliteStore
from quire.testing.faults import FaultyStore
from tests.conformance.sessions.rig import guard
from tests.unit.broker.streams.failing_rig import FailingRig, History, failing, reads_of
from tests.unit.broker.streams.member_rig import StreamRig
from tests.unit.broker.streams.pull_rig import script


def members(rig: FailingRig) -> None:
    """Members come and go, and come back with what they have."""
    rig.send("1", "2", "3", partition="0")
    rig.send("4", "5", "6", partition="1")
    rig.join("a", member="a")
    rig.ack("a")
    rig.nack("a")
    rig.join("b", member="b")
    rig.wait(1.0)
    rig.nack("a", 1, redelivery_delay="0")
    rig.send("7", "8", "9")
    rig.ack_in_transaction("b")
    rig.join_again("a")
    rig.ack("a")
    rig.wait(2.0)
    rig.nack("a", 1, delay_level="-1")
    rig.vanish("b")
    rig.wait(6.0)
    rig.ack_late("a", 2)
    rig.join("b", member="b")
    rig.wait(1.0)
    rig.ack("a", 2)


def late(rig: FailingRig) -> None:
    """Leases end, and members acknowledge what they had too long, or had long ago."""
    rig.join("a", member="a")
    rig.send(*"123456")
    rig.wait(5.5)
    rig.ack_late("a", 2)
    rig.ack_run("a", 3)
    rig.wait(3.0)
    rig.nack("a", 3)
    rig.ack_late("a", 3)
    rig.wait(2.0)
    rig.ack_run("a", 6)
    rig.vanish("a")
    rig.join("a", member="a")
    rig.ack_late("a", 6)


def polling(rig: FailingRig) -> None:
    """Members that poll."""
    rig.send(*"123456")
    rig.poll("a", 4)
    rig.poll_ack("a", 2)
    rig.poll_reject("a", 3)
    rig.poll("b", 4)
    rig.wait(1.5)
    rig.poll("a", 4)
    rig.poll_extend("a")
    rig.poll_extend("b")
    rig.wait(6.0)
    rig.poll_ack("a", 4)
    rig.poll_ack("b", 4)
    rig.poll_reject("b", 4, dead_letter=True)
    rig.unclear.update("123456")
    rig.poll("b", 4, held=[])
    rig.poll_ack("b", 1)
    rig.insist(lambda: rig.pull.leave("s", "g", "b", guard(rig.stepped)))
    rig.send("7", "8")
    rig.poll("b")
    rig.poll_ack("b", 20)


def group(rig: FailingRig, name: str = "g") -> Group:
    return rig.stepped.broker.groups.existing("s", name)


def delete(rig: FailingRig, name: str) -> None:
    if name in rig.stepped.broker.stream("s").groups:
        rig.groups.delete(group(rig, name), force=True)


def moved(rig: FailingRig) -> None:
    """An operator looks at a group and moves it while members are at work."""
    rig.send(*"123456")
    rig.join("a", member="a")
    rig.nack("a", 2)
    rig.ack("a", 2)
    rig.insist(lambda: reset(group(rig), Start.parse("offset=2"), dry_run=True))
    rig.moved()
    rig.insist(lambda: shift(group(rig), 1))
    rig.nack("a", 2)
    rig.moved()
    rig.insist(lambda: reset(group(rig), Start.parse("earliest")))
    rig.unclear.clear()
    rig.wait(1.0)
    rig.ack("a", 1)
    rig.insist(
        lambda: (
            rig.stepped.broker.groups.clone(group(rig), "h")
            if "h" not in rig.stepped.broker.stream("s").groups
            else None
        )
    )
    rig.insist(lambda: rig.groups.lag(group(rig)))
    rig.insist(lambda: rig.groups.details(group(rig, "h")))
    rig.insist(lambda: rig.streams.stream("s"))
    rig.ack("a", 1)


def removed(rig: FailingRig) -> None:
    """A group is removed with its retries, and made anew."""
    rig.send(*"123456")
    rig.join("a", "h", member="a")
    rig.nack("a", 3)
    rig.ack("a", 1)
    rig.insist(
        lambda: rig.groups.delete(group(rig, "h"), force=True) if "h" in rig.stepped.broker.stream("s").groups else 0
    )
    rig.wait(3.0)
    rig.insist(lambda: rig.groups.progress("s", "h", {0: 2}))
    rig.insist(
        lambda: rig.groups.delete(group(rig, "h"), force=True) if "h" in rig.stepped.broker.stream("s").groups else 0
    )
    rig.done.clear()
    rig.wait(3.0)
    assert all(group.name != "h" for group in rig.stepped.broker.groups.all())
    rig.insist(lambda: rig.streams.add_partitions("s", 3))
    rig.join("b", member="b")
    rig.send("7", "8", "9")


def retention(rig: FailingRig) -> None:
    """Records go when they are done or old, and not what is pinned or needed; a stream is deleted."""
    rig.send(*"123456")
    rig.insist(lambda: rig.streams.pin("s", "p", 5.0, start=Start.parse("earliest")))
    rig.join("a", member="a")
    rig.nack("a", 1)
    rig.ack("a", 3)
    rig.wait(2.0)
    rig.insist(lambda: rig.streams.read("s", 0))
    rig.wait(5.0)
    rig.ack("a", 1)
    rig.send("7", "8", destination="/stream/t")
    rig.sent -= {"7", "8"}
    rig.insist(lambda: rig.streams.pin("t", "p", 5.0))
    rig.join("c", "g", member="c")

    def delete() -> None:
        if "t" in rig.stepped.broker.destinations.streams:
            list(rig.streams.delete("t", force=True))

    rig.insist(delete)
    assert "t" not in rig.stepped.broker.destinations.streams
    rig.wait(2.0)


def staged(rig: FailingRig) -> None:
    """A bulk writer commits what it has staged, for a stream, a topic and a queue."""
    rig.stage("1", "2")
    rig.stage("3")
    rig.write()
    rig.join("a", member="a")
    rig.stage("4", "5", "6")
    rig.write()
    rig.wait(1.5)
    rig.ack("a", 2)


CONCURRENT: dict[str, Any] = {}
IN_PLACE: dict[str, Any] = {"retry": "in-place"}
SMALL: dict[str, Any] = {"max_in_flight_bytes": 1, "memory_limit": 1}
DONE_GOES: dict[str, Any] = {"retention_groups_done": True}

HISTORIES = [
    pytest.param(members, CONCURRENT, {}, id="members"),
    pytest.param(members, IN_PLACE, {}, id="members, retries in place"),
    pytest.param(members, SMALL, {}, id="members, little memory"),
    pytest.param(members, CONCURRENT, {"order": "orderly"}, id="members, in order"),
    pytest.param(members, CONCURRENT, {"order": "key-ordered"}, id="members, in the order of keys"),
    pytest.param(late, CONCURRENT, {}, id="late"),
    pytest.param(late, IN_PLACE, {}, id="late, retries in place"),
    pytest.param(polling, CONCURRENT, {}, id="polling"),
    pytest.param(polling, IN_PLACE, {}, id="polling, retries in place"),
    pytest.param(moved, CONCURRENT, {}, id="moved"),
    pytest.param(moved, IN_PLACE, {}, id="moved, retries in place"),
    pytest.param(removed, CONCURRENT, {}, id="removed"),
    pytest.param(retention, DONE_GOES, {}, id="retention"),
    pytest.param(staged, CONCURRENT, {}, id="staged"),
]


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, 4])
@pytest.mark.parametrize(("history", "policy", "headers"), HISTORIES)
def test_any_read_may_fail(history: History, policy: dict[str, Any], headers: dict[str, str], times: int) -> None:
    check(MemoryStore, history, policy, headers, times)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lmdb", "sqlite"])
@pytest.mark.parametrize("history", [late, moved])
def test_any_read_may_fail_on_a_disk(history: History, kind: str, tmp_path: Path) -> None:
    numbers = iter(range(10_000))

    def store() -> Store:
        place = tmp_path / f"store-{next(numbers)}"
        place.mkdir()
        return LmdbStore(place) if kind == "lmdb" else SqliteStore(place / "store.db")

    check(store, history, CONCURRENT, {}, 1, every=5)


@pytest.mark.parametrize("what", ["ack", "reject", "extend"])
def test_a_settlement_whose_read_fails_changes_nothing(what: str) -> None:
    store = FaultyStore(MemoryStore())
    one = script(StreamRig(store, consume_timeout=5.0, retry_delays="60s"))
    one.rig.send("1", "2", "3")
    handles = one.ask().handles
    one.extend(handles[1], seconds=60.0)
    one.rig.pass_time(6.0)  # the leases of the others end, their retries wait
    group = one.rig.group()
    calls: dict[str, Callable[..., Any]] = {
        "ack": one.ack,
        "reject": one.reject,
        "extend": partial(one.extend, seconds=9.0),
    }

    def standing() -> tuple[Any, ...]:
        (child,) = group.partitions[0].subscriptions
        return list(child.in_flight), group.lag, one.rig.retries.depth, group.late, group.stale, group.fenced

    before = standing()
    for nth in (1, 2):
        store.at_read(nth)
        with pytest.raises(StoreError):
            calls[what](*handles, "1.0.99")
        assert standing() == before
    outcomes = calls[what](*handles, "1.0.99")
    assert [outcomes[handle] for handle in handles] == {
        "ack": [Outcome.LATE, Outcome.DONE, Outcome.LATE],
        "reject": [Outcome.LATE, Outcome.DONE, Outcome.LATE],
        "extend": [Outcome.STALE, Outcome.DONE, Outcome.STALE],
    }[what]
    assert group.fenced == 1


def test_a_late_acknowledgement_whose_read_fails_leaves_those_in_time_done() -> None:
    store = FaultyStore(MemoryStore())
    rig = StreamRig(store, retry_delays="60s", partitions=2)
    member = rig.member("a")
    rig.send("1", partition="0")
    rig.send("2", partition="1")
    one, two = member.take()
    member.nack(one)
    store.at_read(1)
    member.client.feed(b"".join([b"ACK\nid:%s\n\n\0" % frame.headers["ack"].encode() for frame in (one, two)]))
    rig.run()
    assert [error[:12] for error in member.errors()] == ["a read faile"]
    assert (rig.lag, rig.retries.depth) == (0, 1)


def check(
    store: Callable[[], Store], history: History, policy: dict[str, Any], headers: dict[str, str], times: int,
    every: int = 1,
) -> None:  # fmt: skip
    """Play a history with each of its reads failing in turn."""

    def make() -> FailingRig:
        rig = FailingRig(store(), **policy)
        rig.headers = headers
        return rig

    count = reads_of(make, history)
    assert count > 20
    failures = []
    for nth in range(1, count + 1, every):
        with failing(make, nth, times) as rig:
            try:
                history(rig)
                rig.settle()
            except Exception as failure:  # all of them, to see what they have in common
                failures.append((nth, failure))
    if failures:
        texts = [f"read {nth}: {failure!r}" for nth, failure in failures]
        raise AssertionError(f"{len(failures)} of {count} reads: " + "\n".join(texts)) from failures[0][1]
