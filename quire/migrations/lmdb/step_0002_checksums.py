"""Gives every record a checksum: in the header before its content, and in its link."""

import zlib
from itertools import islice
from struct import Struct

import lmdb

DESCRIPTION = "Every record gets a CRC-32 checksum of its content, in its header and in its link."

OLD_ENTRY = Struct("<QQQqIIBxxx")
"""sequence, previous, next, expiration, offset, size, priority."""

OLD_RECORD = Struct("<QqIBxxx")
"""sequence, expiration, size, priority."""

_NEW_ENTRY = Struct("<QQQqIIIBxxx")
_NEW_RECORD = Struct("<QqIIBxxx")
_NO_CHECKSUM = 1
"""Of a link that leads nowhere. No content at all would have 0."""

_PAGES_AT_ONCE = 500


def upgrade(env: lmdb.Environment) -> None:
    """Take the step, some pages at a time, in a copy of the store that the caller removes after a failure."""
    links, bodies, meta = (env.open_db(name, create=False) for name in (b"links", b"bodies", b"meta"))
    after = b""
    while True:
        with env.begin(write=True) as txn:
            cursor = txn.cursor(bodies)
            keys = list(islice(cursor.iternext(values=False), _PAGES_AT_ONCE)) if cursor.set_range(after) else []
            for key in keys:
                body, offsets = _body(txn.get(key, default=b"", db=bodies))
                txn.put(key, body, db=bodies)
                page = txn.get(key, db=links)
                if page is not None:
                    txn.put(key, _links(page, body, offsets), db=links)
            if not keys:
                txn.put(b"format", b"2", db=meta)
                return
        after = keys[-1] + b"\0"


def _body(old: bytes) -> tuple[bytes, dict[int, int]]:
    """A body page with checksums, and where each content went, by where it was."""
    parts: list[bytes] = []
    offsets: dict[int, int] = {}
    position = written = 0
    while position + OLD_RECORD.size <= len(old):
        sequence, expiration, size, priority = OLD_RECORD.unpack_from(old, position)
        position += OLD_RECORD.size
        content = old[position : position + size]
        offsets[position] = written + _NEW_RECORD.size
        parts += [_NEW_RECORD.pack(sequence, expiration, size, zlib.crc32(content), priority), content]
        written += _NEW_RECORD.size + size
        position += size
    return b"".join(parts), offsets


def _links(old: bytes, body: bytes, offsets: dict[int, int]) -> bytes:
    """A links page with checksums. A link that leads nowhere goes on doing so, for repair to see."""
    new: list[bytes] = []
    for position in range(0, len(old) - OLD_ENTRY.size + 1, OLD_ENTRY.size):
        sequence, previous, following, expiration, offset, size, priority = OLD_ENTRY.unpack_from(old, position)
        offset = offsets.get(offset, len(body))
        content = body[offset : offset + size]
        checksum = zlib.crc32(content) if len(content) == size else _NO_CHECKSUM
        new.append(_NEW_ENTRY.pack(sequence, previous, following, expiration, offset, size, checksum, priority))
    return b"".join(new)
