"""Queues, topics and streams, as the client names them and as OpenWire carries them.

To OpenWire, a stream is a topic whose name begins with ``stream://``.
"""

from dataclasses import dataclass, field
from typing import ClassVar
from urllib.parse import quote

from quire.destination import MAX_NAME, split_options, stream
from quire.errors import InvalidDestination
from quire.protocols.openwire.commands import (
    ActiveMQDestination,
    ActiveMQQueue,
    ActiveMQTempQueue,
    ActiveMQTempTopic,
    ActiveMQTopic,
)


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
        InvalidDestination: the name is no text, empty or too long, is that of another kind, or the options cannot be
            read.
    """

    name: str
    options: dict[str, str] = field(init=False, default_factory=dict, compare=False, repr=False)

    is_topic: ClassVar[bool] = False
    is_temporary: ClassVar[bool] = False
    prefix: ClassVar[str] = ""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise InvalidDestination(f"the name is of type {type(self.name).__name__}: give a text")
        name, options = split_options(self.name.strip().removeprefix(self.prefix))
        if "," not in name and (other := next((kind for kind in KINDS if name.startswith(kind.prefix)), None)):
            text = f"{name[:60]!r} is no name of a {type(self).__name__}"
            raise InvalidDestination(f"{text}: write {other.__name__}({name.removeprefix(other.prefix)[:60]!r})")
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


KINDS: tuple[type[ClientDestination], ...] = (Queue, Topic, Stream, TemporaryQueue, TemporaryTopic)


def client_destination(given: object, argument: str = "destination") -> ClientDestination:
    """The destination that an application gave; a text is the name of a queue, or begins with ``topic://`` or the like.

    Raises:
        InvalidDestination: it is none.
    """
    if type(given) in KINDS:
        return given  # type: ignore[return-value]
    if isinstance(given, str):
        kind = next((kind for kind in KINDS if given.startswith(kind.prefix)), Queue)
        if kind is not Queue or "://" not in given.removeprefix(kind.prefix).partition(",")[0].partition("?")[0]:
            return kind(given)
    text = f"{argument} is {str(given)[:100]!r} ({type(given).__name__}): give a Queue, Topic or Stream"
    raise InvalidDestination(f"{text}, the name of a queue, or a text with topic:// or stream://", argument=argument)


_TO_WIRE: dict[type[ClientDestination], type[ActiveMQDestination]] = {
    Queue: ActiveMQQueue,
    Topic: ActiveMQTopic,
    TemporaryQueue: ActiveMQTempQueue,
    TemporaryTopic: ActiveMQTempTopic,
}
_FROM_WIRE = {wire: own for own, wire in _TO_WIRE.items()}


def to_wire(destination: ClientDestination, **said: str) -> ActiveMQDestination:
    """The wire's form of a destination; options stay with the client.

    Args:
        destination: the destination.
        said: of a stream: what the broker is told behind its name; nothing for what is empty.
    """
    if isinstance(destination, Stream):
        pairs = "&".join([f"{name}={quote(value, safe='=:')}" for name, value in said.items() if value])
        return ActiveMQTopic(f"{destination}?{pairs}" if pairs else str(destination))
    return _TO_WIRE[type(destination)](destination.name)


def from_wire(destination: ActiveMQDestination) -> ClientDestination:
    """The destination that a broker wrote."""
    name = destination.physical_name
    if name.startswith(Stream.prefix):
        return Stream(name.removeprefix(Stream.prefix).partition("?")[0])
    return _FROM_WIRE[type(destination)](name)
