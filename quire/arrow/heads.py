"""The header lines of many messages at once, read by Arrow's kernels: no Python object is made for a message."""

import pyarrow as pa
import pyarrow.compute as pc

from quire.arrow.columns import COLUMNS, TIME
from quire.message import Message, escape, unescape

_TO_THE_END = 2**31 - 1
"""Behind the end of every text: without an end, Arrow's slices of binary columns fail."""


class Heads:
    """The heads of some messages, as binary."""

    def __init__(self, heads: pa.Array) -> None:
        self._heads = heads
        self._first_lines: pa.Array | None = None

    def message_ids(self) -> pa.Array:
        return _texts(self._value(0, len("message-id:")))

    def timestamps(self) -> pa.Array:
        """When the broker took the messages."""
        return times(self._value(1, len("timestamp:")).cast(pa.string()).cast(pa.int64()))

    def header(self, name: str) -> pa.Array:
        """One header of each message, or null, but for the first two. Of a repeated one the first counts."""
        behind = _second(pc.split_pattern(self._heads, b"\n" + escape(name.encode()) + b":", max_splits=1))
        if behind.null_count == len(behind):
            return pa.nulls(len(behind), pa.string())
        return _texts(pc.list_element(pc.split_pattern(behind, b"\n", max_splits=1), 0))

    def maps(self) -> pa.Array:
        """All headers of each message. Of a repeated one the first counts (STOMP 1.2, "Repeated Header Entries")."""
        lines = pc.split_pattern(self._heads, b"\n")
        parts = pc.split_pattern(lines.flatten(), b":", max_splits=1)
        names, values = _texts(pc.list_element(parts, 0)), _texts(_second(parts))
        numbers = names.dictionary_encode()
        pairs = pc.add(
            pc.multiply(pc.list_parent_indices(lines), len(numbers.dictionary)), numbers.indices.cast(pa.int64())
        )
        if pc.count_distinct(pairs).as_py() == len(pairs):
            return pa.MapArray.from_arrays(lines.offsets, names, values, COLUMNS["headers"])
        maps = [list(Message(0, head + b"\n\n").headers().items()) for head in self._heads.to_pylist()]
        return pa.array(maps, COLUMNS["headers"])

    def _value(self, line: int, start: int) -> pa.Array:
        """What stands in one of the first two lines, from a place on."""
        if self._first_lines is None:
            self._first_lines = pc.split_pattern(self._heads, b"\n", max_splits=2)
        return pc.binary_slice(pc.list_element(self._first_lines, line), start, _TO_THE_END)


def times(milliseconds: pa.Array) -> pa.Array:
    """Times in milliseconds since the epoch, as Arrow has them here."""
    return pc.multiply(milliseconds, 1000).cast(TIME)


def _second(lists: pa.Array) -> pa.Array:
    """The second element of each list; null where there is none."""
    return pc.list_slice(lists, 1, 2, return_fixed_size_list=True).flatten()


def _texts(escaped: pa.Array) -> pa.Array:
    """Undo the escapes, and read UTF-8; nulls stay."""
    try:
        texts = escaped.cast(pa.string())
    except pa.ArrowInvalid:  # it is not UTF-8 everywhere
        return _texts_one_by_one(escaped)
    if not _any_backslash(texts):
        return texts
    texts = pc.replace_substring(texts, "\\c", ":")  # ids with colons, the usual case
    return _texts_one_by_one(escaped) if _any_backslash(texts) else texts


def _any_backslash(texts: pa.Array) -> bool:
    return bool(pc.any(pc.match_substring(texts, "\\")).as_py())


def _texts_one_by_one(escaped: pa.Array) -> pa.Array:
    plain = [text and unescape(text).decode("utf-8", "replace") for text in escaped.to_pylist()]
    return pa.array(plain, pa.string())
