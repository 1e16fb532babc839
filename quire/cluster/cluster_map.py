"""The map of a cluster: which destinations lie together on one shard, which shard that is, and where it is.

What one commit joins must be in one store, so destinations have placement keys (``Placement``).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from hashlib import blake2b
from itertools import product
from typing import NamedTuple

from quire.broker.dead_letter import dead_letter_destination, is_dead_letter_queue
from quire.broker.routing.addresses import VirtualNames
from quire.destination import ADVISORIES, Destination, DestinationKind, checked, written
from quire.errors import InvalidDestination, ShardMoved
from quire.settings import Policies, Settings


class ClusterFacts(NamedTuple):
    """What is fixed once the cluster is formed."""

    shards: int
    secret: bytes
    stores: tuple[str, ...]


class BrokerRow(NamedTuple):
    """A broker that lives.

    Attributes:
        standing_by: the shards that it waits for: it takes them as soon as their owner stops.
    """

    name: str
    run: str
    stomp: str
    openwire: str
    http: str
    version: str
    placement: str
    standing_by: frozenset[int] = frozenset()
    leaving: bool = False  # whether it gives up its shards


class ShardRow(NamedTuple):
    """A shard that has had an owner."""

    shard: int
    broker: str
    epoch: int
    address: str  # where it takes links; empty once it has stopped
    http: str
    pid: int
    since: float  # since when, in seconds since the epoch, by the clock of the server
    preferred: str = ""


class PinRow(NamedTuple):
    """A destination that was given from one shard to another, with all that have its placement key."""

    key: str
    destination: str
    shard: int  # the one that has it now
    version: int  # how often it was given


class View(NamedTuple):
    brokers: Mapping[str, BrokerRow] = {}
    shards: Mapping[int, ShardRow] = {}
    pins: Mapping[str, PinRow] = {}


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
        is_certain: whether a name says whose dead letters they are. With a queue for each durable subscription it has
            the name of the subscription in it too.
    """

    def __init__(self, policies: Policies) -> None:
        given = [replace(policies.base, **values) for values in ({}, *[entry.values for entry in policies.entries])]
        self.shared = {policy.dead_letter_queue for policy in given}  # the queues that several destinations share
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


FRONT = -1
"""The shard number of a process that has no shard: it only passes on what clients say."""

CACHED = 10_000
"""Of how many destinations the shard is remembered; with more the memory begins anew."""


class Peer(NamedTuple):
    """Where a shard is."""

    address: str  # where its process takes links, ``host:port``
    epoch: int  # the epoch of its owner. A process that has another one is not the owner, or not any more
    broker: str = ""  # the name of the broker that runs it
    http: str = ""  # where its process takes requests of other processes, ``host:port``


class Pin(NamedTuple):
    """Where a placement key is, because an operator has moved it there."""

    shard: int  # the shard that has it
    version: int  # how often the key was given from one shard to another; the highest one counts


class LivingBroker(NamedTuple):
    """A broker of the cluster, and where clients reach it: ``host:port``."""

    name: str
    stomp: str
    openwire: str
    http: str


class ClusterMap:
    """What one process knows of its cluster. It is updated from outside; asking it never waits."""

    def __init__(self, own: int, shards: int, placement: Placement) -> None:
        self.own = own  # the number of the shard that this process has; ``FRONT`` for none
        self.shards = shards  # how many shards the cluster has
        self.epoch = 0  # the epoch of this process as the owner of its shard; 0 for a front, and before it owns it
        self.brokers: tuple[LivingBroker, ...] = ()  # those that live, by name
        self._placement = placement  # which destinations lie together
        self._peers: dict[int, Peer] = {}
        self._pins: dict[str, Pin] = {}  # what the database says
        self._kept: dict[str, Pin] = {}  # what the store of the own shard says
        self._found: dict[Destination, int] = {}
        self._listeners: list[Callable[[frozenset[int]], None]] = []

    def shard_of(self, destination: Destination) -> int:
        """The shard that has a destination, also if it does not exist yet; ``own`` if it is spread.

        A temporary destination is where its name says, as any other: the process that makes one chooses a name of its
        own shard (``is_own``).
        """
        shard = self._found.get(destination)
        if shard is None:
            if len(self._found) >= CACHED:
                self._found.clear()
            shard = self._found[destination] = self._find(destination)
        return self.own if shard == FRONT else shard

    def is_spread(self, destination: Destination) -> bool:
        """Whether each shard has its own part of a destination: shared dead letter queues, advisories, patterns."""
        self.shard_of(destination)
        return self._found[destination] == FRONT

    def is_own(self, destination: Destination) -> bool:
        return self.shard_of(destination) == self.own

    def shard_of_client(self, client_id: str) -> int:
        """The shard that decides which connection has a client id, and that knows its durable pattern subscriptions."""
        return shard_of_key(f"client://{client_id}", self.shards)

    def peer(self, shard: int) -> Peer | None:
        """Where a shard is; None while no broker owns it."""
        return self._peers.get(shard)

    def key_of(self, destination: Destination) -> str:
        return self._placement.key_of(destination)

    def home_of(self, key: str) -> int:
        """The shard that a placement key has as long as no operator moves it."""
        return shard_of_key(key, self.shards)

    def pinned(self, key: str) -> int | None:
        """The shard that an operator has moved a placement key to; None if it is where its name says."""
        pin = self.newest_pin(key)
        return None if pin is None or pin.shard == self.home_of(key) else pin.shard

    def newest_pin(self, key: str) -> Pin | None:
        """The pin of a placement key that counts; None if it was never pinned."""
        known, kept = self._pins.get(key), self._kept.get(key)
        return kept if known is None or (kept is not None and kept.version >= known.version) else known

    def kept_pin(self, key: str) -> Pin | None:
        return self._kept.get(key)

    def keep(self, pins: Mapping[str, Pin]) -> None:
        """The store of the own shard has these pins: older ones that the database tells count no more."""
        before = [self.newest_pin(key) for key in pins]
        self._kept.update(pins)
        if before != [self.newest_pin(key) for key in pins]:
            self._changed(frozenset())

    @property
    def placement_digest(self) -> str:
        return self._placement.digest

    def listen(self, call: Callable[[frozenset[int]], None]) -> None:
        """Have ``call`` made after each change, with the shards whose owner, address or epoch changed."""
        self._listeners.append(call)

    def update(
        self, peers: Mapping[int, Peer], pins: Mapping[str, Pin], brokers: tuple[LivingBroker, ...] = ()
    ) -> None:
        """Take over what the database says now: the shards that have an owner, pins by key, the brokers that live."""
        changed = frozenset(shard for shard in range(self.shards) if peers.get(shard) != self._peers.get(shard))
        if not changed and pins == self._pins and brokers == self.brokers:
            return
        self._peers, self._pins, self.brokers = dict(peers), dict(pins), brokers
        self._changed(changed)

    def _changed(self, shards: frozenset[int]) -> None:
        self._found.clear()
        for call in self._listeners:
            call(shards)

    def _find(self, destination: Destination) -> int:
        key = self._placement.key_of(destination)
        if key == SPREAD:
            return FRONT
        pin = self.newest_pin(key)
        return self.home_of(key) if pin is None else pin.shard


def lost_to_another(cluster_map: ClusterMap, destination: Destination) -> ShardMoved | None:
    """The error of who uses a destination here that another shard has; None if this process has it."""
    shard = cluster_map.shard_of(destination)
    if shard == cluster_map.own:
        return None
    text = f"{destination} is at shard {shard}, not at shard {cluster_map.own}"
    return ShardMoved(text, destination=str(destination), shard=shard)


def shard_of_key(key: str, shards: int) -> int:
    """The shard of a placement key that is not pinned: the one that scores highest for it (rendezvous hashing)."""
    return max(range(shards), key=lambda shard: blake2b(f"{shard} {key}".encode(), digest_size=8).digest())
