"""Which destinations lie together on one shard: what one commit joins must be in one store."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from hashlib import blake2b
from itertools import product

from quire.broker.dead_letter import dead_letter_destination, is_dead_letter_queue
from quire.broker.routing.addresses import VirtualNames
from quire.destination import ADVISORIES, Destination, DestinationKind, checked, written
from quire.errors import InvalidDestination
from quire.settings import Policies, Settings

INTERNAL = "$quire."
"""How the names begin of what the broker itself writes: each shard has its own."""

DEPTH = 4
"""How many dead letter queues may be nested: one of one of one. Deeper ones are spread."""

_LETTER_KEYS = (
    "dead_letter_strategy", "dead_letter_queue", "queue_prefix", "queue_suffix", "topic_prefix", "topic_suffix",
    "use_queue_for_queue_messages", "use_queue_for_topic_messages", "destination_per_durable_subscriber",
)  # fmt: skip

SPREAD = ""
"""The placement key of destinations of which each shard has its own part."""


class Placement:
    """Gives each destination its placement key, by the settings alone: all brokers of a cluster come to the same.

    Destinations with the same key lie on the same shard:

    - a virtual topic, and the queues that it feeds;
    - a destination, and its dead letter queue of its own (strategy ``individual``);
    - a composite destination of the settings, and the destinations that it forwards to;
    - a topic and a stream of one name: their dead letter queues of their own would have one name too.

    Shared dead letter queues, advisories and what the broker itself writes are spread: each shard has its own part.
    """

    def __init__(self, settings: Settings) -> None:
        self._policies = settings.policies
        self._virtual = VirtualNames(settings.virtual)
        self._letters = _LetterNames(settings.policies)
        self._digest = _digest(settings)
        self._joined: dict[str, str] = {}  # a key, and the key that its composites share
        for composite in settings.composites:
            targets = [written(forward.destination) for forward in composite.forward_to]
            self._join([self.key_of(destination) for destination in (composite.destination, *targets)])

    def key_of(self, destination: Destination) -> str:
        """The placement key of a destination; ``SPREAD`` if each shard has its own part of it."""
        return self._key_of(destination, DEPTH)

    @property
    def digest(self) -> str:
        """Tells whether two brokers place destinations alike: it is the same for the same settings."""
        return self._digest

    def _key_of(self, destination: Destination, depth: int) -> str:
        key = self._own_key(destination)
        if key is None:
            key = self._dead_letter_key(destination, depth)
        return self._joined.get(key, key)

    def _own_key(self, destination: Destination) -> str | None:
        """The key of a destination by its name; None if it may be the dead letter queue of another one."""
        kind, name = destination.kind, destination.name
        if name.startswith((INTERNAL, ADVISORIES)) or not {"*", ">"}.isdisjoint(name.split(".")):
            return SPREAD
        if kind is DestinationKind.STREAM:
            return _plain_key(destination)
        if kind is DestinationKind.QUEUE:
            if name in self._letters.shared:
                return SPREAD
            if (topic := self._virtual.topic_of(name)) is not None:
                return _plain_key(Destination(DestinationKind.TOPIC, topic))
        return None if any(self._letters.inner(name)) else _plain_key(destination)

    def _dead_letter_key(self, letters: Destination, depth: int) -> str:
        """The key of the destination whose dead letters these are; spread if there are several, or it is uncertain."""
        if not depth or not self._letters.is_certain:
            return SPREAD
        origins = {
            self._key_of(origin, depth - 1)
            for name in self._letters.inner(letters.name)
            for origin in self._origins(name, letters)
        }
        if not origins:
            return _plain_key(letters)
        return origins.pop() if len(origins) == 1 else SPREAD

    def _origins(self, name: str, letters: Destination) -> Iterator[Destination]:
        """The destinations of a name whose own dead letters go to ``letters``."""
        for kind in DestinationKind:
            try:
                origin = checked(kind, name)
            except InvalidDestination:
                continue
            policy = self._policies.of(origin)
            # What fails in a dead letter queue stays there: it has none of its own.
            has_own = policy.dead_letter_strategy == "individual" and not is_dead_letter_queue(origin, policy)
            if has_own and dead_letter_destination(origin, policy) == letters:
                yield origin

    def _join(self, keys: list[str]) -> None:
        """Have these keys be one, with those that were joined to one of them before."""
        gone = {key for key in keys if key != SPREAD}
        first = min(gone, default=SPREAD)
        for key, known in self._joined.items():
            if known in gone:
                self._joined[key] = first
        self._joined |= dict.fromkeys(gone, first)


def _plain_key(destination: Destination) -> str:
    kind = DestinationKind.QUEUE if destination.kind is DestinationKind.QUEUE else DestinationKind.TOPIC
    return f"{kind}://{destination.name}"


def _digest(settings: Settings) -> str:
    policies = settings.policies
    entries = [(str(entry.kind), entry.pattern.text, _of_letters(entry.values)) for entry in policies.entries]
    base = _of_letters({key: getattr(policies.base, key) for key in policies.base.__slots__})
    return blake2b(repr((settings.virtual, settings.composites, base, entries)).encode(), digest_size=8).hexdigest()


def _of_letters(values: Mapping[str, object]) -> list[tuple[str, object]]:
    """What a policy says about the places of dead letters."""
    return [(key, value) for key, value in sorted(values.items()) if key in _LETTER_KEYS]


class _LetterNames:
    """The names of dead letter queues, by all policies.

    Attributes:
        shared: the queues that several destinations share.
        is_certain: whether a name says whose dead letters they are. With a queue for each durable subscription it has
            the name of the subscription in it too.
    """

    def __init__(self, policies: Policies) -> None:
        given = [replace(policies.base, **values) for values in ({}, *[entry.values for entry in policies.entries])]
        self.shared = {policy.dead_letter_queue for policy in given}
        self.is_certain = not any([policy.destination_per_durable_subscriber for policy in given])
        self._affixes = set[tuple[str, str]]()
        if any([policy.dead_letter_strategy == "individual" for policy in given]):  # entries add up, key by key
            queues = product({policy.queue_prefix for policy in given}, {policy.queue_suffix for policy in given})
            topics = product({policy.topic_prefix for policy in given}, {policy.topic_suffix for policy in given})
            self._affixes = {*queues, *topics}
            if not self.is_certain:
                self._affixes.discard(("", ""))

    def inner(self, name: str) -> Iterator[str]:
        """What is left of a name without the prefix and the suffix of a dead letter queue."""
        for prefix, suffix in self._affixes:
            if name.startswith(prefix) and name.endswith(suffix) and len(name) > len(prefix) + len(suffix):
                yield name[len(prefix) : len(name) - len(suffix)]
