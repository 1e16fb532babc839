"""What all stores have in common about marks: which keys they may have, and how any number of them is read."""

from collections.abc import Iterator

from quire.errors import StoreError
from quire.store.base import MAX_MARK_KEY, StoreReader


def mark_key(key: str) -> bytes:
    """The bytes of a mark's key.

    Raises:
        StoreError: no mark can have such a key: it is empty, too long, or has a NUL character, which PostgreSQL does
            not take.
    """
    encoded = key.encode()
    if not 0 < len(encoded) <= MAX_MARK_KEY or "\0" in key:
        text = f"a mark's key has 1 to {MAX_MARK_KEY} bytes and no NUL character: choose another name than {key!r}"
        raise StoreError(text, key=key)
    return encoded


def walk_marks(reader: StoreReader, prefix: str = "", step: int = 100) -> Iterator[tuple[str, bytes]]:
    """All marks whose keys begin with a prefix, by key.

    Args:
        reader: a snapshot.
        prefix: what their keys begin with; empty for all marks.
        step: how many values are in memory at once.
    """
    start = ""
    while True:
        found = reader.marks(prefix, start, step + 1)
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
