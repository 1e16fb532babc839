"""Destinations and their names."""

from dataclasses import dataclass
from enum import StrEnum

from quire.errors import InvalidDestination

MAX_NAME = 500
"""The longest name of a destination, in UTF-8 bytes: it must fit a key of every store."""


class DestinationKind(StrEnum):
    """What a destination is. Topics and streams come with later formats; their names are reserved."""

    QUEUE = "queue"
    TOPIC = "topic"
    STREAM = "stream"


@dataclass(frozen=True, slots=True)
class Destination:
    """An address: a kind and a name.

    Attributes:
        kind: queue, topic or stream.
        name: the name without any prefix; case counts.
    """

    kind: DestinationKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind}://{self.name}"


def queue(name: str) -> Destination:
    """The queue of a name.

    Raises:
        InvalidDestination: the name is empty, too long, or has control characters.
    """
    if not name.isprintable() or not 0 < len(name.encode()) <= MAX_NAME:
        raise InvalidDestination(
            f"{name[:60]!r} is no name for a queue: 1 to {MAX_NAME} bytes, without control characters", name=name[:60]
        )
    return Destination(DestinationKind.QUEUE, name)
