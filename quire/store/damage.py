"""What a store holds and cannot be read is a ``StoreCorrupt``, whatever the code that reads it trips over."""

import functools
import struct
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from quire.errors import StoreCorrupt

_UNREADABLE = (struct.error, ValueError, KeyError, IndexError, TypeError)

P = ParamSpec("P")
R = TypeVar("R")


def tells_of_damage(method: Callable[P, R]) -> Callable[P, R]:
    """A method that reads what is stored, and raises ``StoreCorrupt`` if it makes no sense.

    Args:
        method: reads; its errors other than Quire's come from what it reads.
    """

    @functools.wraps(method)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except _UNREADABLE as error:
            raise StoreCorrupt(f"the store has something that makes no sense: {error!r}") from error

    return checked
