"""Staged writes: nobody sees them until a commit decides over all of them, once, over crashes and failing stores."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from quire.broker.bulk.staged_writes import DECIDED, INDEX, LIFE, STEP_BYTES, SWEEP_INTERVAL
from quire.errors import LimitExceeded, ProducerHeld, StoreFull, UnknownStage
from quire.store.base import Store, WriteBatch
from quire.store.lmdb import LmdbStore
from quire.store.memory import MemoryStore
from quire.testing.faults import FaultyStore
from quire.testing.stepped import SteppedBroker
from tests.unit.broker.bulk.writer_rig import BulkWriter
from tests.unit.broker.harness import settings
from tests.unit.management.managed import browsed

FULL = StoreFull("no space")


@pytest.fixture(params=["memory", "lmdb"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    store: Store = MemoryStore() if request.param == "memory" else LmdbStore(tmp_path / "store")
    store.open()
    yield store
    store.close()


def staged(store: Store | None = None) -> tuple[BulkWriter, str, str]:
    """A writer with two durable stages, of the rows 1 and 2, and of 3."""
    writer = BulkWriter(SteppedBroker(settings(), store))
    first, second = writer.stage(b"1", b"2"), writer.stage(b"3")
    writer.stepped.run()
    return writer, first, second


def content(stepped: SteppedBroker) -> list[bytes]:
    return browsed(stepped) if "q" in stepped.broker.queues else []


def marks(store: Store) -> list[str]:
    return [key for key, _ in store.marks("staged/")]


def test_what_is_staged_is_seen_when_it_is_committed_in_the_order_of_the_commit() -> None:
    writer, first, second = staged()
    assert content(writer.stepped) == []
    assert writer.commit(1, second, first) == 3
    assert content(writer.stepped) == []
    writer.stepped.run()
    assert content(writer.stepped) == [b"3", b"1", b"2"]
    assert (writer.is_written(), marks(writer.stepped.store), writer.stepped.broker.staged.bytes) == (True, [], 0)


def test_there_is_a_limited_number_of_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quire.broker.bulk.staged_writes.MAX_STAGES", 2)
    writer, first, second = staged()
    with pytest.raises(LimitExceeded):
        writer.stage(b"4")
    writer.commit(1, first, second)
    writer.stepped.run()
    assert writer.stage(b"4")


def test_a_commit_counts_once_whatever_was_staged_for_it() -> None:
    writer, first, second = staged()
    writer.commit(1, first, second)
    assert writer.commit(1, first, second) is None  # it is not durable yet
    writer.stepped.run()
    assert writer.commit(1, first, second) is None
    again = writer.stage(b"1", b"2", b"3")
    writer.stepped.run()
    assert writer.commit(1, again) is None
    writer.stepped.run()
    assert (content(writer.stepped), marks(writer.stepped.store)) == ([b"1", b"2", b"3"], [])


def test_a_commit_throws_away_what_else_its_producer_has_staged() -> None:
    writer, first, second = staged()
    other = BulkWriter(writer.stepped, "other")
    kept = other.stage(b"other")
    writer.stepped.run()
    writer.commit(1, second)
    writer.stepped.run()
    with pytest.raises(UnknownStage, match=first):
        writer.commit(2, first)
    other.commit(1, kept)
    writer.stepped.run()
    assert (content(writer.stepped), marks(writer.stepped.store)) == ([b"3", b"other"], [])


def test_a_commit_of_something_unknown_does_nothing() -> None:
    writer, first, second = staged()
    for unknown in ("nothing", BulkWriter(writer.stepped, "other").stage(b"x")):
        with pytest.raises(UnknownStage):
            writer.commit(1, first, unknown)
    writer.stepped.run()
    assert content(writer.stepped) == []
    assert writer.commit(1, first, second) == 3


def test_a_commit_of_nothing_takes_its_number() -> None:
    writer, first, _ = staged()
    assert writer.commit(1) == 0
    writer.stepped.run()
    assert writer.is_written()
    assert (writer.commit(1, first), content(writer.stepped), marks(writer.stepped.store)) == (None, [], [])


def test_what_is_discarded_is_gone_and_what_is_decided_is_not() -> None:
    writer, first, second = staged()
    writer.commit(1, first, second)
    third = writer.stage(b"4")
    assert writer.stepped.broker.staged.discard("other", [third]) == 0
    assert writer.stepped.broker.staged.discard("p", [first, third, third]) == 1
    assert writer.stepped.broker.staged.discard("p") == 0
    writer.stepped.run()
    assert (content(writer.stepped), marks(writer.stepped.store)) == ([b"1", b"2", b"3"], [])


def test_what_nobody_commits_is_gone_after_a_day() -> None:
    writer, *_ = staged()
    writer.stepped.advance(LIFE - 1)
    writer.stepped.run()
    assert len(writer.stepped.broker.staged.stages) == 2
    writer.stepped.advance(SWEEP_INTERVAL)
    writer.stepped.run()
    assert (writer.stepped.broker.staged.bytes, marks(writer.stepped.store)) == (0, [])


def test_large_stages_enter_their_destinations_one_commit_at_a_time() -> None:
    writer = BulkWriter(SteppedBroker(settings()))
    body = b"x" * (STEP_BYTES // 2 + 1)
    stages = [writer.stage(body) for _ in range(3)]
    writer.stepped.run()
    writer.commit(1, *stages)
    depths = []
    for _ in range(4):
        writer.stepped.run_turns()
        writer.stepped.commit()
        depths.append(writer.stepped.queue("q").depth)
    assert (depths, writer.is_written()) == ([0, 1, 2, 3], True)


def test_what_is_staged_counts_against_the_limit_of_the_store() -> None:
    writer = BulkWriter(SteppedBroker(settings(store={"limit": 1000})))
    stage = writer.stage(b"x" * 1000)
    writer.stepped.run()
    with pytest.raises(ProducerHeld):
        writer.stage(b"y")
    writer.stepped.broker.staged.discard("p", [stage])
    writer.stepped.run()
    assert writer.stage(b"y")


# Stores that fail.


def test_what_could_not_be_staged_is_not_there(store: Store) -> None:
    writer = BulkWriter(SteppedBroker(settings(), store))
    stage, told = writer.stage(b"1"), writer.outcome()
    writer.stepped.turn()
    writer.stepped.commit(FULL)
    assert told() is FULL
    with pytest.raises(StoreFull):
        writer.stage(b"2")
    recover(writer.stepped)
    with pytest.raises(UnknownStage):
        writer.commit(1, stage)
    assert (marks(store), writer.stepped.broker.staged.bytes) == ([], 0)


def test_a_commit_that_was_not_stored_decides_nothing_and_may_be_made_again(store: Store) -> None:
    writer, first, second = staged(store)
    assert writer.commit(1, first, second) == 3
    told = writer.outcome()
    writer.stepped.turn()
    assert writer.commit(1, first, second) is None  # somebody asks again before it is known that it fails
    again = writer.outcome()
    writer.stepped.commit(FULL)
    assert (told(), again()) == (FULL, FULL)
    recover(writer.stepped)
    assert content(writer.stepped) == []
    assert writer.stepped.reopen().broker.producers.sequence("p") == 0
    assert writer.commit(1, first, second) == 3
    writer.stepped.run()
    assert (content(writer.stepped), marks(store)) == ([b"1", b"2", b"3"], [])


def test_rows_that_could_not_be_stored_are_sent_in_the_next_commit(store: Store) -> None:
    writer, first, second = staged(store)
    writer.commit(1, first, second)
    writer.stepped.turn()
    writer.stepped.commit()
    writer.stepped.run_turns()
    writer.stepped.commit(FULL)
    assert (content(writer.stepped), writer.is_written()) == ([], False)
    recover(writer.stepped)
    assert (content(writer.stepped), marks(store), writer.is_written()) == ([b"1", b"2", b"3"], [], True)


def recover(stepped: SteppedBroker) -> None:
    """The broker tries the store again, which has space now."""
    for _ in range(3):
        stepped.advance(1)
        stepped.run()


# Crashes.


@pytest.mark.parametrize("commits", range(4))
@pytest.mark.parametrize("is_announced", [False, True])
def test_a_crash_leaves_all_or_nothing_of_a_commit(store: Store, commits: int, is_announced: bool) -> None:
    writer, first, second = staged(store)
    writer.commit(1, first, second)
    for left in reversed(range(commits)):
        writer.stepped.run_turns()
        if writer.stepped.writer.batch is not None:
            writer.stepped.commit() if left or is_announced else writer.stepped.writer.apply()
    stepped = writer.stepped.reopen()
    assert not stepped.is_turn_wanted  # a broker that is being made cannot have turns
    writer = BulkWriter(stepped)
    if commits:
        assert writer.commit(1, first, second) is None
    else:
        assert writer.commit(1, first, second) == 3
    stepped.advance(0)
    stepped.run()
    assert (content(stepped), marks(store), writer.is_written()) == ([b"1", b"2", b"3"], [], True)


def test_a_decision_of_which_nothing_is_left_is_forgotten(store: Store) -> None:
    writer, first, second = staged(store)
    writer.commit(1, first, second)
    writer.stepped.turn()
    writer.stepped.commit()
    store.apply(WriteBatch(marks={INDEX + first: None, INDEX + second: None}))
    writer = BulkWriter(writer.stepped.reopen())
    writer.stepped.advance(0)
    writer.stepped.run()
    assert writer.is_written()
    assert not [key for key in marks(store) if key.startswith(DECIDED)]


def test_damage_is_told_and_does_no_harm_to_others(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    writer, first, second = staged(store)
    store.apply(WriteBatch(marks={INDEX + first: b"\xff", "staged/decided/7": b"\xff"}))
    writer = BulkWriter(writer.stepped.reopen())
    assert [record.event for record in caplog.records] == ["write.damaged"] * 2  # type: ignore[attr-defined]
    writer.commit(1, second)
    writer.stepped.run()
    assert content(writer.stepped) == [b"3"]


def test_rows_that_cannot_be_read_are_tried_again_and_told(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    writer, first, second = staged(store)
    rows = store.mark(f"staged/rows/{first}")
    store.apply(WriteBatch(marks={f"staged/rows/{first}": b"\xff"}))
    writer.commit(1, first, second)
    writer.stepped.run()
    assert (content(writer.stepped), writer.is_written()) == ([], False)
    assert {record.event for record in caplog.records} == {"write.waits"}  # type: ignore[attr-defined]
    store.apply(WriteBatch(marks={f"staged/rows/{first}": rows}))
    recover(writer.stepped)
    assert (content(writer.stepped), writer.is_written()) == ([b"1", b"2", b"3"], True)


def test_rows_that_cannot_be_read_keep_up_no_other_producer(store: Store) -> None:
    writer, first, _ = staged(store)
    other = BulkWriter(writer.stepped, "other")
    kept = other.stage(b"other")
    writer.stepped.run()
    rows = store.mark(f"staged/rows/{first}")
    store.apply(WriteBatch(marks={f"staged/rows/{first}": b"torn"}))
    writer.commit(1, first)
    other.commit(1, kept)
    writer.stepped.run()
    assert (content(writer.stepped), writer.is_written(), other.is_written()) == ([b"other"], False, True)
    store.apply(WriteBatch(marks={f"staged/rows/{first}": rows}))
    recover(writer.stepped)
    assert (content(writer.stepped), writer.is_written()) == ([b"other", b"1", b"2"], True)


def test_a_read_that_fails_is_tried_again_and_no_row_is_sent_twice() -> None:
    store = FaultyStore(MemoryStore())
    store.open()
    for nth in (1, 2):
        writer, first, second = staged(store)
        writer.commit(nth, first, second)
        store.at_read(nth)
        writer.stepped.run()
        assert not writer.is_written()
        recover(writer.stepped)
        assert writer.is_written()
    assert content(writer.stepped) == [b"1", b"2", b"3"] * 2


# Histories.


class History:
    """Micro-batches that are tried until they are written, whatever becomes of the broker and of the one who tries.

    Args:
        seed: of everything that is random.
        batches: how many.
    """

    def __init__(self, seed: int, batches: int) -> None:
        self.random = Random(seed)
        self.writer = BulkWriter(SteppedBroker(settings()))
        for number in range(1, batches + 1):
            while not self.attempt(number):
                pass
        while self.writer.stepped.broker.core.store_error is not None:
            recover(self.writer.stepped)
        self.writer.stepped.advance(0)
        self.writer.stepped.run()

    def attempt(self, number: int) -> bool:
        """Stage the rows of a batch, spread anew, and commit them; whether it is known to be written."""
        rows = [b"%d-%d" % (number, index) for index in range(number % 5 + 1)]
        self.random.shuffle(rows)
        stages = []
        while rows:
            count = self.random.randint(1, len(rows))
            chunk, rows = rows[:count], rows[count:]
            try:
                stages.append(self.writer.stage(*chunk))
            except StoreFull:
                recover(self.writer.stepped)
                return False
            if not self.is_durable():
                return False
        for _ in range(self.random.randint(1, 3)):  # whoever hears nothing asks again
            try:
                self.writer.commit(number, *stages)
            except UnknownStage:
                return False
            if self.is_durable():
                return self.random.random() < 0.7
        return False

    def is_durable(self) -> bool:
        """Let something happen; whether the open commit is known to be durable."""
        told, stepped = self.writer.outcome(), self.writer.stepped
        while told() == "waiting":
            stepped.turn()
            if stepped.writer.batch is None:
                continue
            fate = self.random.random()
            if fate < 0.05:
                return self.restart()
            if fate < 0.1:
                stepped.writer.apply()
                return self.restart()
            if fate < 0.2:
                stepped.commit(FULL)
                recover(stepped)
            else:
                stepped.commit()
        return told() is None

    def restart(self) -> bool:
        self.writer = BulkWriter(self.writer.stepped.reopen())
        return False


@pytest.mark.parametrize("seed", range(40))
def test_every_batch_is_written_once_and_as_a_whole_in_every_history(seed: int) -> None:
    history = History(seed, batches=12)
    found = content(history.writer.stepped)
    numbers = [int(value.split(b"-")[0]) for value in found]
    assert numbers == sorted(numbers)
    assert sorted(found) == sorted([b"%d-%d" % (number, i) for number in range(1, 13) for i in range(number % 5 + 1)])
    assert history.writer.is_written()
