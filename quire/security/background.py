"""Work that takes long or waits: it is done on a thread, and its result comes back to the event loop."""

from collections.abc import Callable
from typing import Protocol, TypeVar

T = TypeVar("T")


class Background(Protocol):
    """Where such work is done; the process hands it in, and tests one that does it at once."""

    def run(self, work: Callable[[], T], done: Callable[[T | Exception], None]) -> bool:
        """Do some work, and call with its result or with the exception that it raised.

        Returns:
            False if too much work waits: nothing is done, and nothing called.
        """
        ...
