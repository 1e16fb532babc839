"""What a store holds and cannot be read is a ``StoreCorrupt``, whatever error the code that reads it meets."""

import functools
import struct
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from quire.errors import StoreCorrupt
from quire.store.base import StoreReader

_UNREADABLE = (struct.error, ValueError, KeyError, IndexError, TypeError)

P = ParamSpec("P")
R = TypeVar("R")
Reader = TypeVar("Reader", bound=StoreReader)


def tells_of_damage(method: Callable[P, R]) -> Callable[P, R]:
    """A method that reads what is stored, and raises ``StoreCorrupt`` if it makes no sense."""

    @functools.wraps(method)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except _UNREADABLE as error:
            raise StoreCorrupt(f"the store has an invalid entry: {error!r}") from error

    return checked


def reader_tells_of_damage(reader: type[Reader]) -> type[Reader]:
    """As ``tells_of_damage``, for every read of a class."""
    for name in StoreReader.__abstractmethods__:
        setattr(reader, name, tells_of_damage(getattr(reader, name)))
    return reader
