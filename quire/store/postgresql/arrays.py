"""Values as the server reads them in binary: numbers, and arrays of numbers, of byte strings and of texts.

The layout is that of PostgreSQL's ``array_recv``: dimensions, whether there are nulls, the type of the elements, their
number, the first index; then each element with its length in front.
"""

from collections.abc import Sequence
from struct import Struct

INT8 = 20
BYTEA = 17
TEXT = 25
"""The object ids of types (``pg_type``)."""

_HEAD = Struct(">iiiii")
_LENGTH = Struct(">i")
_EMPTY = Struct(">iii")
_ELEMENT = Struct(">iq")


def int8(value: int) -> bytes:
    """A number of 8 bytes."""
    return value.to_bytes(8, "big", signed=True)


def int8_array(values: Sequence[int]) -> bytes:
    """An array of ``bigint``."""
    count = len(values)
    if not count:
        return _EMPTY.pack(0, 0, INT8)
    element = _ELEMENT.pack
    return _HEAD.pack(1, 0, INT8, count, 1) + b"".join([element(8, value) for value in values])


def bytea_array(values: Sequence[bytes]) -> bytes:
    """An array of ``bytea``."""
    return _of_bytes(BYTEA, values)


def text_array(values: Sequence[str]) -> bytes:
    """An array of ``text``."""
    return _of_bytes(TEXT, [value.encode() for value in values])


def _of_bytes(kind: int, values: Sequence[bytes]) -> bytes:
    if not values:
        return _EMPTY.pack(0, 0, kind)
    parts: list[bytes] = [_HEAD.pack(1, 0, kind, len(values), 1)]
    for value in values:
        parts.append(_LENGTH.pack(len(value)))
        parts.append(value)
    return b"".join(parts)
