"""How destinations are written: ``/queue/orders``, ``/topic/a,b``, ``/queue/c?consumer.exclusive=true``."""

from enum import Enum
from typing import NamedTuple

from quire.destination import ADVISORIES, DestinationKind, split_options, split_prefix
from quire.destination_pattern import Pattern
from quire.errors import InvalidDestination
from quire.settings.keys import VirtualSettings


class Scope(Enum):
    """Which connections know a destination by a name."""

    COMMON = "common"
    """Every connection: it is not a temporary one."""
    OWN = "own"
    """The connection that has the temporary destination: it chose the name."""
    REMOTE = "remote"
    """Every connection: the name that the broker gave a temporary destination."""


class Address(NamedTuple):
    """One part of a destination as it is written; ``name`` may be a pattern, and ``scope`` says whose name it is."""

    kind: DestinationKind
    name: str
    scope: Scope = Scope.COMMON

    def __str__(self) -> str:
        return f"{_PREFIX_OF[self.kind, self.scope]}{self.name}"


_PREFIXES = {
    "/queue/": (DestinationKind.QUEUE, Scope.COMMON),
    "/topic/": (DestinationKind.TOPIC, Scope.COMMON),
    "/stream/": (DestinationKind.STREAM, Scope.COMMON),
    "/temp-queue/": (DestinationKind.QUEUE, Scope.OWN),
    "/temp-topic/": (DestinationKind.TOPIC, Scope.OWN),
    "/remote-temp-queue/": (DestinationKind.QUEUE, Scope.REMOTE),
    "/remote-temp-topic/": (DestinationKind.TOPIC, Scope.REMOTE),
}
_PREFIX_OF = {meaning: prefix for prefix, meaning in _PREFIXES.items()}

CONSUMER_OPTIONS = {
    "consumer.prefetchSize": "activemq.prefetchSize",
    "consumer.exclusive": "activemq.exclusive",
    "consumer.priority": "activemq.priority",
    "consumer.selector": "selector",
    "consumer.noLocal": "activemq.noLocal",
    "consumer.retroactive": "activemq.retroactive",
    "consumer.maximumPendingMessageLimit": "activemq.maximumPendingMessageLimit",
    "consumer.dispatchAsync": "activemq.dispatchAsync",
}
"""The options that a written destination may have (ActiveMQ's destination options), and the header each stands for."""


MAX_PARTS = 100
"""How many destinations a list may name: each of them gets a copy of what is sent to it."""


def read_destination(text: str) -> tuple[list[Address], dict[str, str]]:
    """Read a destination header.

    Commas join the parts of a composite destination. A name without a prefix is a queue, as in ActiveMQ; a later part
    without one is of the kind of the first part. Blanks around a part do not count, and a part that comes twice counts
    once.
    """
    names, options = split_options(text)
    for option in options:
        if option not in CONSUMER_OPTIONS:
            raise InvalidDestination(
                f"{option[:60]!r} is not an option of a destination; the options are {', '.join(CONSUMER_OPTIONS)}",
                destination=text[:100], option=option[:60],
            )  # fmt: skip
    first, *others = [part.strip() for part in names.split(",")]
    if len(others) >= MAX_PARTS:
        error = f"a list names {len(others) + 1} destinations, the limit is {MAX_PARTS}"
        raise InvalidDestination(error, destination=text[:100], limit=MAX_PARTS)
    addresses = [_address(first, text, None)]
    addresses += [_address(part, text, addresses[0]) for part in others]
    return list(dict.fromkeys(addresses)), {CONSUMER_OPTIONS[option]: value for option, value in options.items()}


def _address(part: str, text: str, first: Address | None) -> Address:
    if part.startswith("/"):
        prefix = part[: part.find("/", 1) + 1]
        if prefix in _PREFIXES:
            return Address(_PREFIXES[prefix][0], part.removeprefix(prefix), _PREFIXES[prefix][1])
    elif part:
        kind, name = split_prefix(part)
        if name:
            return Address(kind or DestinationKind.QUEUE, name) if kind or first is None else first._replace(name=name)
    raise InvalidDestination(
        f"{text[:100]!r} is not a destination here: write NAME, /queue/NAME, /topic/NAME, "
        "/stream/NAME, /temp-queue/NAME or /temp-topic/NAME",
        destination=text[:100],
    )


class VirtualNames:
    """Which topics are virtual, and which queues are named after one (section ``virtual`` of the settings)."""

    def __init__(self, settings: VirtualSettings) -> None:
        self._enabled = settings.virtual_topics
        self._topics = Pattern(settings.virtual_topic_pattern)
        self._prefix = Pattern(settings.virtual_topic_prefix + "x")
        self._prefix_parts = settings.virtual_topic_prefix.count(".")

    def is_virtual(self, topic: str) -> bool:
        return self._enabled and self._topics.matches(topic) and not topic.startswith(ADVISORIES)

    def topic_of(self, queue: str) -> str | None:
        *parts, topic = queue.split(".", self._prefix_parts)
        named = len(parts) == self._prefix_parts and self._prefix.matches(".".join([*parts, "x"]))
        return topic if named and self.is_virtual(topic) else None
