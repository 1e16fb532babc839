"""Exceptions as they are carried: names and texts. Nothing is ever made from a class's name."""

from dataclasses import dataclass
from typing import NamedTuple


class StackElement(NamedTuple):
    """A line of a stack trace."""

    class_name: str | None
    method: str | None
    file: str | None
    line: int


@dataclass(frozen=True, slots=True)
class Throwable:
    """An exception of the peer, or one that the peer shall make.

    Attributes:
        class_name: such as ``jakarta.jms.JMSException``.
        stack: sent only where stack traces are agreed, like ``cause``.
    """

    class_name: str | None
    message: str | None
    stack: tuple[StackElement, ...] = ()
    cause: "Throwable | None" = None
