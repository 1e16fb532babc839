"""The part of the conformance suite that is about marks: what the broker remembers besides messages."""

import pytest

from quire.errors import StoreError
from quire.store.base import MAX_MARK_KEY, Store, WriteBatch
from quire.store.marks import walk_marks
from quire.testing.store_case import StoreCase
from quire.testing.store_model import make_message

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
