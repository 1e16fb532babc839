"""A clock that is set back: times in a stream do not follow it, and nothing goes before its time."""

from collections.abc import Sequence

import pytest

from quire.broker.streams.partition import Partition, Start
from quire.broker.streams.stream import ORDERED_FROM, PAUSE
from quire.clock import ManualClock
from quire.message import timestamp_of
from quire.store.base import WriteBatch
from quire.store.lmdb import LmdbStore
from quire.store.positions import offset_at
from quire.testing.faults import tear
from quire.testing.stepped import SteppedBroker
from tests.unit.broker.harness import settings
from tests.unit.broker.streams.retention_rig import KEPT, left, send, settle, stream_of

NOW = ManualClock().now_ms()


class SetClock(ManualClock):
    """A clock whose time of day can be set; the other one goes on."""

    offset = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.offset

    def set(self, seconds: float) -> None:
        """So many seconds from ``NOW``."""
        self.offset += NOW + round(seconds * 1000) - self.now_ms()


def made(clock: SetClock, store: LmdbStore | None = None, **policy: object) -> SteppedBroker:
    stepped = SteppedBroker(settings(policy={**KEPT, **policy}), store, clock)
    stepped.broker.stream("s")
    stepped.run()
    return stepped


def sent_at(stepped: SteppedBroker, seconds: Sequence[float]) -> None:
    """A message at each of some times."""
    for time in seconds:
        stepped.clock.set(time)  # type: ignore[attr-defined]
        send(stepped)


def times(stepped: SteppedBroker) -> list[float]:
    lane = stream_of(stepped).partitions[0].lane
    return [(timestamp_of(message) - NOW) / 1000 for message in stepped.store.load(lane, left(stepped))]


def test_times_of_a_partition_do_not_go_back() -> None:
    stepped = made(SetClock())
    sent_at(stepped, [10, 20, 5, 19.999, 20, 21, 3])
    assert times(stepped) == [10, 20, 20, 20, 20, 21, 21]


def test_what_is_sent_in_a_transaction_or_moved_here_is_no_older_than_what_stands_before_it() -> None:
    stepped = made(SetClock())
    client = stepped.connect()
    client.frame("BEGIN", {"transaction": "t"})
    client.frame("SEND", {"destination": "/stream/s", "transaction": "t"}, b"early")
    stepped.advance(5)
    send(stepped)
    client.frame("COMMIT", {"transaction": "t"})
    stepped.run()
    assert times(stepped) == [5, 5]


def test_times_go_on_where_they_were_after_a_restart() -> None:
    clock = SetClock()
    stepped = made(clock)
    sent_at(stepped, [10, 20])
    stepped = stepped.reopen()
    sent_at(stepped, [5, 30])
    assert times(stepped) == [10, 20, 20, 30]


def test_a_time_is_found_whatever_the_clock_did() -> None:
    stepped = made(SetClock())
    sent_at(stepped, [*range(100), *range(40), 200])
    stream = stream_of(stepped)
    lane = stream.partitions[0].lane
    for second in (0, 30, 77, 99):
        assert offset_at(stepped.store, lane, NOW + second * 1000) == second + 1
    assert offset_at(stepped.store, lane, NOW + 99_001) == 141
    assert Start.parse(f"timestamp={NOW + 50_000}").offsets(stepped.store, [lane], 0) == [51]


def test_a_record_goes_no_earlier_than_the_youngest_before_it() -> None:
    stepped = made(SetClock(), retention_time=60.0)
    sent_at(stepped, [0, 50, 0, 10])
    for now, there in ((59.9, 4), (61, 3), (109.9, 3), (112, 0)):
        stepped.advance(max(now - 2 - (stepped.clock.now_ms() - NOW) / 1000, 0))
        settle(stepped, 2.0)
        assert len(left(stepped)) == there


# Streams of older versions, whose times are in no order.


def old(
    seconds: Sequence[float], monkeypatch: pytest.MonkeyPatch, store: LmdbStore | None = None
) -> SteppedBroker:  # fmt: skip
    """A stream as an older version has stored it."""
    stepped = made(SetClock(), store)
    with monkeypatch.context() as patched:
        patched.setattr(Partition, "_stamped", lambda self, content: content)
        sent_at(stepped, seconds)
    stored = stream_of(stepped).stored
    stepped.store.apply(WriteBatch(destinations={stored.id: stored._replace(settings={})}))
    assert times(stepped) == list(seconds)
    return stepped


def aged(stepped: SteppedBroker, now: float) -> SteppedBroker:
    """The same with a policy of a minute, some time later, when retention has done its work."""
    stepped.clock.set(now)  # type: ignore[attr-defined]
    again = stepped.reopen(settings(policy={**KEPT, "retention_time": 60.0}))
    again.run()
    for _ in range(int(3 / PAUSE)):
        again.advance(PAUSE)
        again.clock.set(now)  # type: ignore[attr-defined]
        again.run()
    return again


def test_a_young_record_among_many_old_ones_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    stepped = aged(old([*range(5), 90, *range(5, 60)], monkeypatch), 121)
    assert left(stepped) == list(range(6, 62))
    assert left(aged(stepped, 151)) == []


def test_old_records_go_in_steps_up_to_the_first_young_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quire.broker.streams.stream.STEP", 7)
    stepped = aged(old([*[1, 0] * 20, 90, 2, 3], monkeypatch), 121)
    assert left(stepped) == [41, 42, 43]


def test_a_record_whose_time_lies_ahead_is_as_old_as_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    stepped = aged(old([0, 10_000, 1, 2, 9_999, 9_999, 90, 9_999], monkeypatch), 121)
    assert left(stepped) == [5, 6, 7, 8]
    assert left(aged(stepped, 151)) == [8]


def test_what_a_newer_version_appends_is_in_order_and_goes_by_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    stepped = old([3, 2, 1], monkeypatch).reopen()
    assert stream_of(stepped).partitions[0].ordered_from == 4
    sent_at(stepped, [0, 50, 40])
    assert times(stepped) == [3, 2, 1, 1, 50, 50]
    again = stepped.reopen()
    assert again.store.destinations()[0].settings[ORDERED_FROM] == [4]
    assert left(aged(again, 90)) == [5, 6]


def test_damaged_records_of_no_known_age_hold_up_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:  # fmt: skip
    store = LmdbStore(tmp_path)  # type: ignore[arg-type]
    store.open()
    stepped = old([3, 2, 1, 90, 0], monkeypatch, store)
    tear(store, stream_of(stepped).partitions[0].lane, 2)
    assert left(aged(stepped, 121)) == [4, 5]
    store.close()


def test_partitions_that_are_added_are_in_order_from_their_first_record(monkeypatch: pytest.MonkeyPatch) -> None:
    stepped = old([3, 2], monkeypatch).reopen()
    stepped.broker.destinations.add_partitions(stream_of(stepped), 2)
    stepped.run()
    assert stepped.store.destinations()[0].settings[ORDERED_FROM] == [3, 1]
    assert [partition.ordered_from for partition in stream_of(stepped.reopen()).partitions] == [3, 1]
