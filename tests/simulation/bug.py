"""Bugs planted by hand: a wrong method in place of the right one."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple
from unittest.mock import patch

Method = Callable[..., Any]


class Bug(NamedTuple):
    """A wrong method.

    Attributes:
        owner: the class.
        method: the method's name.
        spoil: makes the wrong one out of the right one.
        first: the seed of the first history in which it is looked for: more than 0 where few histories show it.
    """

    owner: type
    method: str
    spoil: Callable[[Method], Any]
    first: int = 0

    def plant(self) -> AbstractContextManager[Any]:
        """Have the wrong method in place of the right one."""
        return patch.object(self.owner, self.method, self.spoil(getattr(self.owner, self.method)))


class Bugs(dict[str, Bug]):
    """Bugs, by what is wrong."""

    def add(self, name: str, owner: type, method: str, first: int = 0) -> Callable[[Callable[[Method], Any]], None]:
        """Enter the bug that the decorated function makes out of a method."""

        def register(spoil: Callable[[Method], Any]) -> None:
            self[name] = Bug(owner, method, spoil, first)

        return register
