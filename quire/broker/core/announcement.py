"""Telling everybody what has become of a commit, though one of them fails."""

from collections.abc import Callable
from typing import Any


class Announcement:
    """Calls that are made one after the other, whatever any of them raises."""

    def __init__(self) -> None:
        self._failures: list[Exception] = []

    def tell(self, call: Callable[..., None], *arguments: Any) -> None:
        """Make a call."""
        try:
            call(*arguments)
        except Exception as failure:
            self._failures.append(failure)

    def end(self) -> None:
        """Everybody is told."""
        if self._failures:
            raise ExceptionGroup("not everybody took what has become of a commit", self._failures)
