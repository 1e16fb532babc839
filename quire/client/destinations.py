"""Queues, topics and streams, as the client names them."""

from dataclasses import dataclass, field
from typing import ClassVar

from quire.destination import MAX_NAME, split_options, stream
from quire.errors import InvalidDestination


@dataclass(frozen=True, slots=True)
class ClientDestination:
    """The base of ``Queue``, ``Topic``, their temporary kinds, and ``Stream``.

    Args:
        name: parts joined by dots; with wildcards (``orders.*``, ``orders.>``) for consumers, several names joined by
            commas (``a,topic://b``), and options as ActiveMQ writes them (``orders?consumer.prefetchSize=1``).

    Attributes:
        name: without the options.
        options: the options by name.

    Raises:
        InvalidDestination: the name is empty or too long, or the options cannot be read.
    """

    name: str
    options: dict[str, str] = field(init=False, default_factory=dict, compare=False, repr=False)

    is_topic: ClassVar[bool] = False
    is_temporary: ClassVar[bool] = False
    prefix: ClassVar[str] = ""

    def __post_init__(self) -> None:
        name, options = split_options(self.name.strip())
        if not name.isprintable() or not all(0 < len(part.encode()) <= MAX_NAME for part in name.split(",")):
            raise InvalidDestination(
                f"{name[:60]!r} is not a name: 1 to {MAX_NAME} bytes without control characters", name=name[:60]
            )
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "options", options)

    def __str__(self) -> str:
        return self.prefix + self.name


@dataclass(frozen=True, slots=True)
class Queue(ClientDestination):
    """A queue."""

    prefix: ClassVar[str] = "queue://"


@dataclass(frozen=True, slots=True)
class Topic(ClientDestination):
    """A topic."""

    is_topic: ClassVar[bool] = True
    prefix: ClassVar[str] = "topic://"


@dataclass(frozen=True, slots=True)
class TemporaryQueue(ClientDestination):
    """A queue that ends with the connection that made it; ``session.temporary_queue()`` makes one."""

    is_temporary: ClassVar[bool] = True
    prefix: ClassVar[str] = "temp-queue://"


@dataclass(frozen=True, slots=True)
class TemporaryTopic(ClientDestination):
    """A topic that ends with the connection that made it; ``session.temporary_topic()`` makes one."""

    is_topic: ClassVar[bool] = True
    is_temporary: ClassVar[bool] = True
    prefix: ClassVar[str] = "temp-topic://"


@dataclass(frozen=True, slots=True)
class Stream(ClientDestination):
    """A stream of Quire: messages stay, and consumer groups share them. No other broker has streams.

    Raises:
        InvalidDestination: as above, or the name has a wildcard or is a list: a stream is consumed alone.
    """

    is_topic: ClassVar[bool] = True
    prefix: ClassVar[str] = "stream://"

    def __post_init__(self) -> None:
        ClientDestination.__post_init__(self)
        stream(self.name)
