"""What all stores have in common about marks and producers: which keys marks may have, and reading any number."""

from collections.abc import Callable, Iterator
from typing import TypeVar

from quire.errors import StoreError
from quire.store.base import MAX_MARK_KEY, StoreReader

_Value = TypeVar("_Value")


def mark_key(key: str) -> bytes:
    """The bytes of a mark's key; PostgreSQL takes no NUL character."""
    encoded = key.encode()
    if not 0 < len(encoded) <= MAX_MARK_KEY or "\0" in key:
        text = f"a mark's key has 1 to {MAX_MARK_KEY} bytes and no NUL character: choose another name than {key!r}"
        raise StoreError(text, key=key)
    return encoded


def walk_marks(reader: StoreReader, prefix: str = "", step: int = 100) -> Iterator[tuple[str, bytes]]:
    """All marks whose keys begin with a prefix, by key, with at most ``step`` values in memory."""
    return _walk(lambda start: reader.marks(prefix, start, step + 1), step)


def walk_producers(reader: StoreReader, step: int = 1000) -> Iterator[tuple[str, int]]:
    """All producers with their highest send sequences, by id."""
    return _walk(lambda start: reader.producers(start, step + 1), step)


def _walk(read: Callable[[str], list[tuple[str, _Value]]], step: int) -> Iterator[tuple[str, _Value]]:
    start = ""
    while True:
        found = read(start)
        yield from found[:step]
        if len(found) <= step:
            return
        start = found[step][0]


def end_of_prefix(prefix: str) -> str | None:
    """The first text, in the order of bytes of UTF-8, above all texts with a prefix; None if there is none."""
    kept = prefix.rstrip("\U0010ffff")
    if not kept:
        return None
    following = ord(kept[-1]) + 1
    return kept[:-1] + chr(0xE000 if following == 0xD800 else following)  # surrogates are no characters
