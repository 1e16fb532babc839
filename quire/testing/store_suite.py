"""The conformance suite: what every store does, in tests. A store made by others shows with it that it does the same.

Failed assertions show their values only if pytest rewrites them: call ``pytest.register_assert_rewrite`` with
``"quire.testing"`` in a ``conftest.py``, before this module is imported.
"""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from quire.destination import MAX_NAME
from quire.errors import QuireError, StoreCorrupt, StoreError
from quire.store.base import (
    FIRST_EXPIRATION,
    Delivery,
    Expiration,
    LaneState,
    Store,
    StoredDestination,
    WriteBatch,
    walk,
)
from quire.testing.store_case import PLENTY, append, charge, fill, remove, sequences
from quire.testing.store_lane_tests import LaneTests
from quire.testing.store_mark_tests import MarkTests
from quire.testing.store_model import StoreMachine, StoreModel, make_message


class StoreSuite(LaneTests, MarkTests):
    """All tests of a store. Subclass it under a name that begins with ``Test`` and override what ``StoreCase`` says.

    Attributes:
        examples: how many random histories are tried.
    """

    examples = 20

    # Opening and closing

    def test_has_a_url(self, store: Store) -> None:
        """A user can be told which store it is."""
        assert store.url

    def test_closed_store_refuses(self, store: Store) -> None:
        """A store closed twice is closed, and says so."""
        store.close()
        store.close()
        with pytest.raises(StoreError):
            fill(store, 1, 1)
        with pytest.raises(StoreError):
            store.lane_state(1)

    def test_restart_keeps_everything(self, store: Store) -> None:
        """What was committed is there after a restart."""
        model = StoreModel()
        batch = WriteBatch(producers={"p": 7}, marks={"a": b"\x00\xff"})
        batch.destinations[1] = StoredDestination(1, "queue", "orders", {"paused": True}, (1,))
        batch.lane(1).appends = [make_message(sequence, expiration=sequence * 60) for sequence in range(1, 5)]
        batch.lane(1).deliveries = {2: Delivery(3, 1, 1_700_000_000_000, "consumer gone: café")}
        batch.lane(1).dispatch_mark = 3
        store.apply(batch)
        model.apply(batch)
        store.sync()
        model.check(self.again(store), range(1, 3))

    # Expiration

    def test_expired_earliest_first(self, store: Store) -> None:
        """Records of all lanes that expire at or before the time, by that time; one without expiration never."""
        append(store, 2, make_message(1, expiration=300), make_message(2), make_message(3, expiration=100))
        append(store, 1, make_message(1, expiration=200), make_message(2, expiration=400))
        assert store.expired(99, 10) == []
        assert store.expired(100, 10) == [(100, 2, 3)]
        assert store.expired(399, 10) == [(100, 2, 3), (200, 1, 1), (300, 2, 1)]
        assert store.expired(1000, 2) == [(100, 2, 3), (200, 1, 1)]

    def test_expired_goes_on_behind_an_entry(self, store: Store) -> None:
        """In the order of time, lane and sequence, whether the entry is there or not, and to the end."""
        append(store, 1, *[make_message(sequence, expiration=100) for sequence in (1, 2, 3)])
        append(
            store, 2, *[make_message(sequence, expiration=100) for sequence in (1, 2)], make_message(3, expiration=7)
        )
        every = [(7, 2, 3), (100, 1, 1), (100, 1, 2), (100, 1, 3), (100, 2, 1), (100, 2, 2)]
        found, after = [], FIRST_EXPIRATION
        while entries := store.expired(100, 2, after):
            found += entries
            after = entries[-1]
        assert found == every
        remove(store, 1, 2)
        assert store.expired(100, 1, Expiration(100, 1, 2)) == [(100, 1, 3)]
        assert store.expired(100, 10, Expiration(100, 1, 1 << 40)) == every[4:]
        assert store.expired(99, 10, Expiration(8, 0, 0)) == []
        assert store.expired(1000, 10, Expiration(101, 0, 0)) == []

    def test_removed_records_do_not_expire(self, store: Store) -> None:
        """They are not found any more, whether removed one by one or with their destination."""
        batch = WriteBatch()
        batch.destinations[1] = StoredDestination(1, "queue", "orders", {}, (2,))
        batch.lane(1).appends = [make_message(sequence, expiration=sequence) for sequence in range(1, 6)]
        batch.lane(2).appends = [make_message(1, expiration=1)]
        store.apply(batch)
        remove(store, 1, 1, 3, 4)
        store.apply(WriteBatch(destinations={1: None}))
        assert store.expired(10, 10) == [(2, 1, 2), (5, 1, 5)]

    # What belongs to no lane

    def test_producers(self, store: Store) -> None:
        """The last sequence set is kept; an unknown producer has none."""
        store.apply(WriteBatch(producers={"ID:host-1": 5, "ü" * 100: 1}))
        store.apply(WriteBatch(producers={"ID:host-1": 1 << 40}))
        assert (store.producer("ID:host-1"), store.producer("ü" * 100), store.producer("other")) == (1 << 40, 1, 0)

    def test_producers_are_listed_by_id_and_removed(self, store: Store) -> None:
        """A page begins where it is asked to; what is removed is unknown."""
        store.apply(WriteBatch(producers={"b": 2, "ü": 4, "a": 1, "c": 3}))
        assert store.producers() == [("a", 1), ("b", 2), ("c", 3), ("ü", 4)]
        assert store.producers("b", 2) == [("b", 2), ("c", 3)]
        assert store.producers("bb") == [("c", 3), ("ü", 4)]
        store.apply(WriteBatch(producers={"b": None, "nothing": None, "d": 5}))
        assert store.producers() == [("a", 1), ("c", 3), ("d", 5), ("ü", 4)]
        assert (store.producer("b"), store.producer("d")) == (0, 5)

    def test_destinations_are_listed_by_id(self, store: Store) -> None:
        """Names of any length allowed and settings of any JSON value come back."""
        long = StoredDestination(12, "queue", "ä" * (MAX_NAME // 2), {}, tuple(range(20, 30)))
        first = StoredDestination(3, "topic", "a/b c", {"paused": True, "limit": 1.5, "to": None, "list": ["x"]}, (4,))
        store.apply(WriteBatch(destinations={12: long, 3: first}))
        assert store.destinations() == [first, long]
        replaced = first._replace(settings={"paused": False})
        store.apply(WriteBatch(destinations={3: replaced}))
        assert self.again(store).destinations() == [replaced, long]

    def test_destination_goes_with_its_lanes(self, store: Store) -> None:
        """Their records, states and counts go too, and nothing of other lanes."""
        batch = WriteBatch()
        batch.destinations = {
            1: StoredDestination(1, "queue", "going", {}, (1, 2)),
            2: StoredDestination(2, "queue", "staying", {}, (3,)),
        }
        model = StoreModel()
        for lane in (1, 2, 3):
            batch.lane(lane).appends = [make_message(sequence, expiration=50) for sequence in range(1, 4)]
            batch.lane(lane).deliveries = {2: Delivery(1)}
            batch.lane(lane).dispatch_mark = 2
        removal = WriteBatch(destinations={1: None, 9: None})
        for step in (batch, removal):
            store.apply(step)
            model.apply(step)
        assert store.lane_state(1) == store.lane_state(2) == LaneState()
        model.check(store, range(1, 4))

    # Commits

    def test_failed_batch_leaves_nothing(self, store: Store) -> None:
        """A batch is atomic: whatever came before the part that fails is not there, and the store goes on."""
        fill(store, 1, 3)
        batch = WriteBatch(producers={"p": 1}, marks={"m": b"1"})
        batch.destinations[1] = StoredDestination(1, "queue", "orders", {}, (1,))
        batch.lane(1).appends = [make_message(4)]
        batch.lane(1).removals = [1]
        batch.lane(1).deliveries = {2: Delivery(1)}
        broken = make_message(1)
        broken.content = "no bytes"  # type: ignore[assignment]
        batch.lane(2).appends = [make_message(1), broken]
        with pytest.raises((StoreError, TypeError, AttributeError)):
            store.apply(batch)
        assert store.lane_state(1) == LaneState(1, 3, 3, 120, 4)
        assert store.lane_state(2) == LaneState()
        assert (store.destinations(), store.deliveries(1, 0, 9)) == ([], [])
        assert (store.producer("p"), store.mark("m")) == (0, None)
        append(store, 1, make_message(4))
        assert sequences(store.page(1, 1, PLENTY, 9)) == [1, 2, 3, 4]

    def test_size_follows_the_content(self, store: Store) -> None:
        """What removed records left free does not count."""
        fill(store, 1, 2)
        empty = store.size()
        append(store, 1, *[make_message(sequence, 10_000) for sequence in range(3, 103)])
        full = store.size()
        remove(store, 1, *range(3, 103))
        assert full - empty >= 1_000_000
        assert store.size() - empty < 100_000

    # Snapshots and other threads

    def test_snapshot_stands_still(self, store: Store) -> None:
        """Later commits change nothing that is read through it, whatever was read before; the store itself moves on."""
        model, change = StoreModel(), WriteBatch(producers={"p": 2}, marks={"a": None, "b": b"2"})
        batch = WriteBatch(producers={"p": 1}, marks={"a": b"1"})
        batch.destinations[1] = StoredDestination(1, "queue", "orders", {}, (1,))
        batch.lane(1).appends = [make_message(sequence, expiration=50) for sequence in range(1, 6)]
        batch.lane(1).deliveries = {1: Delivery(1), 4: Delivery(1)}
        store.apply(batch)
        model.apply(batch)
        change.destinations[2] = StoredDestination(2, "queue", "invoices", {}, (2,))
        change.lane(1).appends = [make_message(6)]
        change.lane(1).removals = [2, 4]
        change.lane(1).deliveries = {1: Delivery(2), 3: Delivery(1)}
        change.lane(1).dispatch_mark = 6
        with store.snapshot() as before:
            store.apply(change)
            with store.snapshot() as after:
                store.apply(WriteBatch(destinations={1: None}))
                model.check(before, range(1, 3))
                model.apply(change)
                model.check(after, range(1, 3))
        assert store.lane_state(1) == LaneState()

    @pytest.mark.slow
    def test_reads_while_another_thread_commits(self, store: Store) -> None:
        """A read sees whole commits: here each appends three records and removes the three oldest."""
        fill(store, 1, 30)
        failures: list[BaseException] = []
        was_seen = threading.Event()

        def commit() -> None:
            try:
                for first in range(31, 631, 3):
                    if first == 331 and not was_seen.wait(30):
                        raise TimeoutError("the reader sees no commit")
                    batch = WriteBatch()
                    batch.lane(1).appends = [make_message(first + offset) for offset in range(3)]
                    batch.lane(1).removals = [first + offset - 30 for offset in range(3)]
                    store.apply(batch)
            except BaseException as failure:
                failures.append(failure)

        thread = threading.Thread(target=commit)
        thread.start()
        seen = set()
        while thread.is_alive():
            state, found = store.lane_state(1), sequences(store.page(1, 0, PLENTY, 100))
            assert (state.count, state.tail - state.head, state.head % 3) == (30, 29, 1)
            assert (found, found[0] % 3) == (list(range(found[0], found[0] + 30)), 1)
            seen.add(found[0])
            if found[0] > 1:
                was_seen.set()
        thread.join()
        assert not failures
        assert seen - {1, 601}
        assert store.lane_state(1).head == 601

    # Damage

    def test_damaged_record_is_told(self, store: Store) -> None:
        """Reading its body fails and says which record it is; everything else can still be read."""
        fill(store, 1, 5)
        self.damage(store, 1, 3)
        with pytest.raises(StoreCorrupt) as caught:
            store.page(1, 1, PLENTY, 10)
        assert (caught.value.data["lane"], caught.value.data["sequence"]) == (1, 3)
        with pytest.raises(StoreCorrupt):
            store.load(1, [3])
        with store.snapshot() as reader:
            with pytest.raises(StoreCorrupt) as caught:
                reader.contents(1, 1, PLENTY, 10)
            assert (caught.value.data["lane"], caught.value.data["sequence"]) == (1, 3)
            assert [content[0] for content in reader.contents(1, 1, PLENTY, 2)] == [1, 2]
        assert sequences(store.page(1, 1, PLENTY, 2)) == [1, 2]
        assert sequences(store.page(1, 4, PLENTY, 2)) == [4, 5]
        assert [link.sequence for link in walk(store, 1)] == [1, 2, 3, 4, 5]
        remove(store, 1, 3)
        assert sequences(store.page(1, 1, PLENTY, 10)) == [1, 2, 4, 5]

    def test_refused_record_is_not_read(self, store: Store) -> None:
        """What does not fit is decided from the index: a damaged body behind it does no harm."""
        append(store, 1, make_message(1), make_message(2, 1000), make_message(3))
        self.damage(store, 1, 2)
        assert sequences(store.page(1, 1, charge(40, 40), 10)) == [1]

    def test_broken_store_raises_typed_errors_only(self, store: Store) -> None:
        """Whatever is asked of a store whose ground has gone, its caller need not know what it stands on."""
        fill(store, 1, 5)
        self.break_down(store)
        calls: list[Callable[[], object]] = [
            store.destinations, lambda: store.lane_state(1), lambda: store.page(1, 0, PLENTY, 9),
            lambda: store.load(1, [1]), lambda: store.links(1, 0, 9), lambda: store.deliveries(1, 0, 9),
            lambda: store.expired(9, 9), lambda: store.producer("p"), lambda: store.mark("m"), lambda: store.marks(""),
            store.size, store.free, store.sync, lambda: append(store, 1, make_message(6)), lambda: remove(store, 1, 1),
            lambda: store.try_lock("me"), store.lock_owner, store.check_lock, store.unlock, store.close,
        ]  # fmt: skip
        failed = 0
        for call in calls:
            try:
                call()
            except QuireError:
                failed += 1
        assert failed >= 10

    # The lock

    def test_lock(self, store: Store) -> None:
        """The lock is ours from taking it until giving it back."""
        assert (store.check_lock(), store.lock_owner()) == (False, "")
        assert store.try_lock("host-1:77")
        assert (store.check_lock(), store.lock_owner()) == (True, "host-1:77")
        assert store.try_lock("host-1:77")
        store.unlock()
        store.unlock()
        assert (store.check_lock(), store.lock_owner()) == (False, "")

    def test_close_gives_the_lock_back(self, store: Store) -> None:
        """The next one can take it at once."""
        assert store.try_lock("first")
        store = self.again(store)
        assert not store.check_lock()
        assert store.try_lock("second")

    # Everything together

    @pytest.mark.slow
    def test_any_history(self, tmp_path: Path) -> None:
        """Whatever is committed in whatever order, a store holds what the model holds, over restarts too."""
        suite = self
        suite._stores = []

        class History(StoreMachine):
            def make(self) -> Store:
                suite._place = tmp_path / f"history-{len(suite._stores)}"
                return suite._open(suite._place)

            def again(self, store: Store) -> Store:
                return suite.again(store)

        # A history that fails is not shrunk: on a disk that takes longer than a test may.
        limits = settings(max_examples=self.examples, stateful_step_count=20, deadline=None, phases=[Phase.generate])
        run_state_machine_as_test(History, settings=limits)


class SharedStoreSuite(StoreSuite):
    """The suite for a store on disk or on a server. Another broker may wait for it: it takes the lock, then opens."""

    def test_one_lock_for_all(self, store: Store) -> None:
        """A second store on the same data finds it locked, sees by whom, and gets it when the first one lets go."""
        other = self.make(self._place)
        self._stores.append(other)
        assert store.try_lock("first")
        assert not other.try_lock("second")
        assert (other.lock_owner(), other.check_lock()) == ("first", False)
        other.unlock()
        assert store.check_lock()
        store.unlock()
        assert other.try_lock("second")
        assert (store.lock_owner(), store.check_lock()) == ("second", False)

    def test_lock_ends_with_close(self, store: Store) -> None:
        """A closed store has no lock."""
        other = self.make(self._place)
        self._stores.append(other)
        assert store.try_lock("first")
        store.close()
        assert other.lock_owner() == ""
        assert other.try_lock("second")
