"""The conformance suite: what every store does, in tests. A store made by others shows with it that it does the same.

Failed assertions show their values only if pytest rewrites them: call ``pytest.register_assert_rewrite`` with
``"quire.testing"`` in a ``conftest.py``, before this module is imported.
"""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from quire.destination import MAX_NAME
from quire.errors import QuireError, StoreCorrupt, StoreError
from quire.message import MESSAGE_OVERHEAD, Message
from quire.store.base import (
    FIRST_EXPIRATION,
    MAX_MARK_KEY,
    Delivery,
    Expiration,
    LaneState,
    Page,
    Store,
    StoredDestination,
    WriteBatch,
    walk,
    walk_marks,
)
from quire.testing.store_model import ModelLane, StoreMachine, StoreModel, make_message

PLENTY = 1 << 40
"""A budget that everything fits into."""


def append(store: Store, lane: int, *messages: Message) -> None:
    """Append messages in a batch of their own."""
    batch = WriteBatch()
    batch.lane(lane).appends = list(messages)
    store.apply(batch)


def remove(store: Store, lane: int, *sequences: int) -> None:
    """Remove records in a batch of their own."""
    batch = WriteBatch()
    batch.lane(lane).removals = list(sequences)
    store.apply(batch)


def fill(store: Store, lane: int, count: int, size: int = 40) -> None:
    """Append records 1 to ``count``."""
    append(store, lane, *[make_message(sequence, size) for sequence in range(1, count + 1)])


def set_states(store: Store, lane: int, states: dict[int, Delivery | None]) -> None:
    """Set delivery states in a batch of their own."""
    batch = WriteBatch()
    batch.lane(lane).deliveries = states
    store.apply(batch)


def sequences(page: Page) -> list[int]:
    """The sequences a page has."""
    return [message.sequence for message in page.messages]


def charge(*sizes: int) -> int:
    """The budget that records of these sizes take."""
    return sum(sizes) + MESSAGE_OVERHEAD * len(sizes)


class StoreCase:
    """Makes stores for tests and closes them. Override ``make``; ``again`` and ``damage`` if needed."""

    _place: Path
    _stores: list[Store]

    def make(self, place: Path) -> Store:
        """Make a store, not opened, at a path where nothing is yet; the same path again means the same data."""
        raise NotImplementedError("override make")

    def again(self, store: Store) -> Store:
        """Close a store and give an open one on the same data, as after a restart."""
        store.close()
        return self._open(self._place)

    def damage(self, store: Store, lane: int, sequence: int) -> None:
        """Change a byte of a record's content behind the store's back."""
        pytest.skip("this store gives no way to damage a record: override damage")

    def break_down(self, store: Store) -> None:
        """Break what an open store stands on: its file, its environment, its tables."""
        pytest.skip("this store stands on nothing that could break: override break_down")

    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[Store]:
        """An open, empty store, closed after the test."""
        self._stores = []
        self._place = tmp_path / "store"
        yield self._open(self._place)
        for store in self._stores:
            store.close()

    def _open(self, place: Path) -> Store:
        store = self.make(place)
        store.open()
        self._stores.append(store)
        return store


MIB = 1 << 20


class LaneTests(StoreCase):
    """Order, links in both directions, exact counts, paging within a budget, delivery states."""

    # Appending and the links

    def test_unknown_lane_is_empty_and_new(self, store: Store) -> None:
        """Reading what is not there is no error."""
        assert store.lane_state(9) == LaneState()
        assert store.page(9, 1, PLENTY, 10) == Page([], end=True)
        assert store.load(9, [1]) == []
        assert store.links(9, 0, 10) == []
        assert store.deliveries(9, 0, 10) == []

    def test_appends_are_linked_in_order(self, store: Store) -> None:
        """A run is joined to the tail, and sequences may leave gaps."""
        fill(store, 1, 2)
        append(store, 1, make_message(5), make_message(9))
        assert [link[:3] for link in store.links(1, 0, 10)] == [(1, 0, 2), (2, 1, 5), (5, 2, 9), (9, 5, 0)]
        assert store.lane_state(1) == LaneState(head=1, tail=9, count=4, bytes=160, next_sequence=10)

    def test_record_comes_back_as_it_was(self, store: Store) -> None:
        """Content, expiration and priority are kept to the byte."""
        content = b"message-id:x\ntimestamp:0\n\n" + bytes(range(256))
        append(store, 1, Message(3, content, expiration=1_700_000_000_123, priority=9))
        for message in (store.page(1, 1, PLENTY, 1).messages[0], store.load(1, [3])[0]):
            assert (message.sequence, message.content, message.size) == (3, content, len(content))
            assert (message.expiration, message.priority) == (1_700_000_000_123, 9)
            assert (message.deliveries, message.failures, message.redelivered) == (0, 0, False)
            assert message.not_before == 0

    @pytest.mark.parametrize(
        "removed",
        [
            [1], [10], [5], [1, 2, 3], [8, 9, 10], [4, 5, 6], [2, 4, 6, 8], [1, 3, 5, 7, 9], [1, 10], [6, 5, 2, 3, 9],
            [5, 5, 77], [77], list(range(2, 10)), list(range(1, 11)), [10, 9, 1, 2, 5],
        ],
        ids=str,
    )  # fmt: skip
    def test_removal_relinks(self, store: Store, removed: list[int]) -> None:
        """After any removal the links agree in both directions, and head, tail, count and bytes are exact."""
        lane = ModelLane()
        batch = WriteBatch()
        batch.lane(1).appends = [make_message(sequence, 40 + sequence) for sequence in range(1, 11)]
        store.apply(batch)
        lane.apply(batch.lane(1))
        for part in (removed, removed, [7], [11, 12]):
            batch = WriteBatch()
            batch.lane(1).removals = part
            store.apply(batch)
            lane.apply(batch.lane(1))
            lane.check(store, 1)
        append(store, 1, make_message(11))
        assert store.lane_state(1).tail == 11

    def test_appends_come_before_removals(self, store: Store) -> None:
        """A batch may remove what it appends."""
        fill(store, 1, 3)
        batch = WriteBatch()
        batch.lane(1).appends = [make_message(4), make_message(5), make_message(6)]
        batch.lane(1).removals = [3, 4, 6]
        store.apply(batch)
        assert [link[:3] for link in walk(store, 1)] == [
            (1, 0, 2),
            (2, 1, 5),
            (5, 2, 0),
        ]
        assert store.lane_state(1) == LaneState(head=1, tail=5, count=3, bytes=120, next_sequence=7)

    def test_sequences_are_never_used_again(self, store: Store) -> None:
        """An emptied lane remembers its next sequence, also over a restart."""
        fill(store, 1, 3)
        remove(store, 1, 1, 2, 3)
        store = self.again(store)
        assert store.lane_state(1) == LaneState(next_sequence=4)
        append(store, 1, make_message(4))
        assert store.links(1, 0, 9)[0][:3] == (4, 0, 0)

    def test_dispatch_mark(self, store: Store) -> None:
        """The mark is set by itself or with records, and stays until it is set again."""
        batch = WriteBatch()
        batch.lane(1).dispatch_mark = 500
        store.apply(batch)
        fill(store, 1, 1)
        assert store.lane_state(1) == LaneState(1, 1, 1, 40, 2, 500)

    def test_batch_says_what_its_lanes_are_after_it(self, store: Store) -> None:
        """No read is needed for it, whatever was there before and whatever was removed."""
        fill(store, 1, 5)
        batch = WriteBatch()
        batch.lane(1).appends = [make_message(8, 70)]
        batch.lane(1).removals = [1, 3, 3, 77]
        batch.lane(2).appends = [make_message(1, 50)]
        batch.lane(2).removals = [1]
        batch.lane(3).dispatch_mark = 9
        store.apply(batch)
        assert batch.lane(1).state == LaneState(head=2, tail=8, count=4, bytes=190, next_sequence=9)
        assert batch.lane(2).state == LaneState(next_sequence=2)
        assert batch.lane(3).state == LaneState(dispatch_mark=9)
        assert [batch.lane(lane).state for lane in (1, 2, 3)] == [store.lane_state(lane) for lane in (1, 2, 3)]

    def test_empty_batch_changes_nothing(self, store: Store) -> None:
        """Neither does a batch with an empty part."""
        batch = WriteBatch()
        batch.lane(1)
        store.apply(WriteBatch())
        store.apply(batch)
        assert store.lane_state(1) == LaneState()

    @pytest.mark.slow
    def test_big_content(self, store: Store) -> None:
        """Five mebibytes are a record like any other."""
        append(store, 1, make_message(1), make_message(2, 5 * MIB), make_message(3))
        assert store.load(1, [2])[0].content == make_message(2, 5 * MIB).content
        assert store.lane_state(1).bytes == 5 * MIB + 80
        remove(store, 1, 2)
        assert store.lane_state(1) == LaneState(head=1, tail=3, count=2, bytes=80, next_sequence=4)

    @pytest.mark.slow
    def test_thousand_lanes(self, store: Store) -> None:
        """A batch may concern any number of lanes; they do not touch each other."""
        batch, removal = WriteBatch(), WriteBatch()
        for lane in range(1, 1001):
            batch.lane(lane).appends = [make_message(lane), make_message(lane + 1), make_message(lane + 2)]
            removal.lane(lane).removals = [lane + lane % 3]
        store.apply(batch)
        store.apply(removal)
        for lane in range(1, 1001):
            left = [sequence for sequence in (lane, lane + 1, lane + 2) if sequence != lane + lane % 3]
            assert store.lane_state(lane) == LaneState(left[0], left[1], 2, 80, lane + 3)
            assert [link.sequence for link in store.links(lane, 0, 9)] == left

    @pytest.mark.slow
    def test_many_scattered_removals(self, store: Store) -> None:
        """Removing every other of 25,000 records in one batch is exact."""
        fill(store, 1, 25_000)
        remove(store, 1, *range(1, 25_001, 2))
        assert store.lane_state(1) == LaneState(2, 25_000, 12_500, 500_000, 25_001)
        links = list(walk(store, 1))
        assert [link.sequence for link in links] == list(range(2, 25_001, 2))
        assert [link.previous for link in links] == [0, *range(2, 25_000, 2)]
        assert len(store.load(1, list(range(1, 25_001)))) == 12_500

    # Paging

    def test_pages_follow_one_another(self, store: Store) -> None:
        """Reading on from the last record's sequence brings every record once, in order."""
        fill(store, 1, 10)
        remove(store, 1, 3, 4, 8)
        found: list[int] = []
        while not (page := store.page(1, found[-1] + 1 if found else 0, charge(40, 40), 10)).end:
            found += sequences(page)
        assert found + sequences(page) == [1, 2, 5, 6, 7, 9, 10]

    @pytest.mark.parametrize("budget", [0, 1, charge(1000), charge(1000, 40) - 1])
    def test_first_record_whatever_its_size(self, store: Store, budget: int) -> None:
        """A lone giant still flows, and takes nothing with it that does not fit."""
        append(store, 1, make_message(1, 1000), make_message(2), make_message(3))
        page = store.page(1, 1, budget, 10)
        assert (sequences(page), page.end) == ([1], False)

    def test_first_refusal_ends_the_read(self, store: Store) -> None:
        """A smaller record behind a refused one is not let in."""
        append(store, 1, make_message(1), make_message(2, 1000), make_message(3))
        page = store.page(1, 1, charge(40, 40), 10)
        assert (sequences(page), page.end) == ([1], False)

    def test_budget_is_exact(self, store: Store) -> None:
        """What fills the budget to the byte fits; a record is charged its size and the overhead."""
        append(store, 1, make_message(1, 50), make_message(2, 60), make_message(3, 70))
        assert sequences(store.page(1, 1, charge(50, 60, 70), 10)) == [1, 2, 3]
        assert sequences(store.page(1, 1, charge(50, 60, 70) - 1, 10)) == [1, 2]

    def test_limit(self, store: Store) -> None:
        """No more records than asked for; the end is told when nothing is left."""
        fill(store, 1, 5)
        assert (sequences(store.page(1, 1, PLENTY, 2)), store.page(1, 1, PLENTY, 2).end) == ([1, 2], False)
        assert (sequences(store.page(1, 4, PLENTY, 2)), store.page(1, 4, PLENTY, 2).end) == ([4, 5], True)
        assert store.page(1, 1, PLENTY, 5).end

    def test_page_starts_in_a_gap(self, store: Store) -> None:
        """The start need not be there, nor anything after it."""
        fill(store, 1, 9)
        remove(store, 1, 1, 2, 5, 6)
        assert sequences(store.page(1, 1, PLENTY, 2)) == [3, 4]
        assert sequences(store.page(1, 5, PLENTY, 2)) == [7, 8]
        assert store.page(1, 10, PLENTY, 2) == Page([], end=True)

    @pytest.mark.parametrize(("start", "budget", "limit"), [(0, PLENTY, 100), (4, charge(40, 40), 100), (6, PLENTY, 3)])
    def test_contents_are_those_of_a_page(self, store: Store, start: int, budget: int, limit: int) -> None:
        """What is read in bulk is what is read otherwise, with the deliveries."""
        fill(store, 1, 6)
        append(store, 1, make_message(7, 60, priority=9, expiration=5000), make_message(8), make_message(9))
        remove(store, 1, 1, 5)
        set_states(store, 1, {3: Delivery(2), 7: Delivery(4, 1)})
        with store.snapshot() as reader:
            messages = reader.page(1, start, budget, limit).messages
            assert reader.contents(1, start, budget, limit) == [
                (one.sequence, one.content, one.expiration, one.priority, one.deliveries) for one in messages
            ]
            assert reader.contents(2, 0, PLENTY, 10) == []

    def test_load_in_the_order_asked_for(self, store: Store) -> None:
        """What is not there is left out."""
        fill(store, 1, 9)
        remove(store, 1, 4)
        assert [message.sequence for message in store.load(1, [8, 4, 2, 77, 9])] == [8, 2, 9]
        assert store.load(1, []) == []

    def test_links_from_a_sequence_on(self, store: Store) -> None:
        """Links are read without bodies, a step at a time."""
        fill(store, 1, 9)
        remove(store, 1, 4, 5)
        assert [link[:4] for link in store.links(1, 4, 2)] == [(6, 3, 7, 40), (7, 6, 8, 40)]
        assert [link.sequence for link in walk(store, 1, step=2)] == [1, 2, 3, 6, 7, 8, 9]

    # Delivery states

    def test_states_are_set_replaced_and_removed(self, store: Store) -> None:
        """They are listed in order and come with their messages."""
        fill(store, 1, 5)
        set_states(store, 1, {4: Delivery(1, 0, 5, "nack"), 2: Delivery(1)})
        set_states(store, 1, {2: Delivery(2, 1, 1_700_000_000_000, "unerwartet: ä"), 4: None})
        set_states(store, 1, {5: Delivery(7, 7)})
        expected = [(2, Delivery(2, 1, 1_700_000_000_000, "unerwartet: ä")), (5, Delivery(7, 7))]
        assert store.deliveries(1, 0, 10) == expected
        assert store.deliveries(1, 3, 10) == expected[1:]
        assert store.deliveries(1, 0, 1) == expected[:1]
        for message in (store.page(1, 2, PLENTY, 1).messages[0], store.load(1, [2])[0]):
            assert (message.deliveries, message.failures, message.redelivered) == (2, 1, True)
            assert message.not_before == 1_700_000_000_000
        assert (store.load(1, [4])[0].redelivered, store.load(1, [4])[0].not_before) == (False, 0)

    def test_delay_is_no_delivery(self, store: Store) -> None:
        """A record that only waits was not seen by any consumer."""
        fill(store, 1, 1)
        set_states(store, 1, {1: Delivery(0, 0, 1_700_000_000_000)})
        message = store.load(1, [1])[0]
        assert (message.redelivered, message.not_before) == (False, 1_700_000_000_000)

    def test_states_go_with_their_records(self, store: Store) -> None:
        """Also when set in the batch that removes them, or when the record went before."""
        fill(store, 1, 3)
        set_states(store, 1, {1: Delivery(1), 2: Delivery(2)})
        batch = WriteBatch()
        batch.lane(1).appends = [make_message(4)]
        batch.lane(1).removals = [1, 3]
        batch.lane(1).deliveries = {3: Delivery(3), 4: Delivery(4)}
        store.apply(batch)
        set_states(store, 1, {1: Delivery(5)})
        assert store.deliveries(1, 0, 10) == [(2, Delivery(2)), (4, Delivery(4))]


KEYS = [
    "Sub/a", "s%b/a", "s_b/a", "sub", "sub/", "sub/ B", "sub/10", "sub/9", "sub/B", "sub/a", "sub/a b", "sub/b",
    "sub/z", "sub/\u00e4", "sub/\ud7ff", "sub/\ud7ff/1", "sub/\ue000", "sub/\uffff", "sub/\U0001d11e", "sub/\U0010ffff",
    "sub/\U0010ffff/1", "sub0", "xa/1",
]  # fmt: skip
"""In the order of their bytes: neither as a language sorts them, nor by units of UTF-16, nor by numbers."""


def set_marks(store: Store, marks: dict[str, bytes | None]) -> None:
    """Set marks in a batch of their own."""
    store.apply(WriteBatch(marks=marks))


def keys(marks: list[tuple[str, bytes]]) -> list[str]:
    """The keys of marks."""
    return [key for key, _ in marks]


class MarkTests(StoreCase):
    """Setting, removing and listing marks."""

    def test_marks_are_set_replaced_and_removed(self, store: Store) -> None:
        """An empty mark is not none."""
        set_marks(store, {"xa/1": b"\x00prepared", "xa/2": b""})
        set_marks(store, {"xa/1": b"committed", "gone": None})
        assert [store.mark(key) for key in ("xa/1", "xa/2", "gone")] == [b"committed", b"", None]
        assert store.marks("") == [("xa/1", b"committed"), ("xa/2", b"")]
        set_marks(store, {"xa/1": None})
        assert store.mark("xa/1") is None
        assert self.again(store).marks("") == [("xa/2", b"")]

    def test_marks_are_listed_in_the_order_of_bytes(self, store: Store) -> None:
        """Whatever characters their keys have, and whatever the order they came in."""
        set_marks(store, {key: key.encode() for key in reversed(KEYS)})
        assert store.marks("") == [(key, key.encode()) for key in KEYS]

    @pytest.mark.parametrize(
        "prefix",
        ["sub/", "sub", "s%", "s_b", "SUB", "sub/a", "sub/\ud7ff", "sub/\U0010ffff", "\U0010ffff", "xa/1", "xa/11"],
    )
    def test_marks_of_a_prefix(self, store: Store, prefix: str) -> None:
        """Those that begin with it to the letter: no character stands for others."""
        set_marks(store, dict.fromkeys(KEYS, b"x"))
        assert keys(store.marks(prefix)) == [key for key in KEYS if key.startswith(prefix)]

    def test_marks_from_a_key_on(self, store: Store) -> None:
        """The start is included; it need not be there, nor begin with the prefix, nor be as short as a key."""
        set_marks(store, dict.fromkeys(KEYS, b"x"))
        assert keys(store.marks("sub/", "sub/B", 3)) == ["sub/B", "sub/a", "sub/a b"]
        assert keys(store.marks("sub/", "sub/a ", 1)) == ["sub/a b"]
        assert keys(store.marks("sub/", "a", 2)) == ["sub/", "sub/ B"]
        assert keys(store.marks("sub/", "sub/b" + "x" * 600, 1)) == ["sub/z"]
        assert store.marks("sub/", "t") == []

    def test_marks_are_walked_a_step_at_a_time(self, store: Store) -> None:
        """Every mark once, whether the last step is full or not."""
        set_marks(store, {key: key.encode() for key in KEYS})
        for step in (5, len(KEYS) - 1, len(KEYS), 1000):
            assert list(walk_marks(store, step=step)) == [(key, key.encode()) for key in KEYS]
        assert keys(list(walk_marks(store, "s", 1))) == [key for key in KEYS if key[0] == "s"]

    def test_key_as_long_as_allowed(self, store: Store) -> None:
        """Two keys that differ in their last byte are two keys."""
        long = ["\u00e4" * (MAX_MARK_KEY // 2 - 1) + ending for ending in ("aa", "ab")]
        set_marks(store, dict.fromkeys(long, b"x"))
        assert keys(store.marks(long[0][:-1], long[1])) == long[1:]
        assert store.mark(long[0]) == b"x"

    @pytest.mark.parametrize("key", ["", "x" * (MAX_MARK_KEY + 1), "\u00e4" * (MAX_MARK_KEY // 2) + "x", "a\0b"])
    def test_impossible_key_is_refused(self, store: Store, key: str) -> None:
        """With the whole batch: in no store it becomes another key."""
        batch = WriteBatch(marks={"a": b"x", key: b"y"})
        batch.lane(1).appends = [make_message(1)]
        with pytest.raises(StoreError, match="key"):
            store.apply(batch)
        with pytest.raises(StoreError, match="key"):
            store.mark(key)
        assert (store.marks(""), store.lane_state(1).count) == ([], 0)

    def test_values_of_megabytes(self, store: Store) -> None:
        """They are marks like any other."""
        value = bytes(range(256)) * (3 << 12)
        set_marks(store, {"xa/1": value, "xa/2": b"small"})
        set_marks(store, {"xa/1": value[::-1], "xa/3": value})
        store = self.again(store)
        assert store.marks("xa/") == [("xa/1", value[::-1]), ("xa/2", b"small"), ("xa/3", value)]
        set_marks(store, {"xa/1": None})
        assert keys(store.marks("")) == ["xa/2", "xa/3"]


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
        store.apply(WriteBatch(producers={"€" * 300: 9}))  # a store may keep a digest of it
        assert (store.producer("€" * 300), len(store.producers())) == (9, 3)
        last = store.producers()[-1][0]
        assert [sequence for _, sequence in store.producers(last)] == [9]

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
