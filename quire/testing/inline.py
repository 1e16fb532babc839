"""Work of threads, done at once: for tests without threads."""

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class Inline:
    """Does all work at once (``quire.security.background.Background``)."""

    def run(self, work: Callable[[], T], done: Callable[[T | Exception], None]) -> bool:
        """Do it, and call with its result or with the exception that it raised."""
        try:
            result: Any = work()
        except Exception as error:
            result = error
        done(result)
        return True
