"""The policy of a destination: every key of ``[policy]`` and ``[[policies]]``, and which of them hold.

``[policy]`` holds for all destinations; over it the matching entries of ``[[policies]]`` hold, the most specific first,
key by key. A composite destination (``[[composites]]``) passes on what is sent to it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from quire.destination import Destination, DestinationKind, checked, split_prefix
from quire.destination_pattern import Pattern
from quire.errors import InvalidDestination, InvalidSettings
from quire.settings.key import (
    AFFIX,
    DURATIONS,
    QUEUE_NAME,
    SWITCH,
    TEXT,
    Refused,
    Setting,
    choice,
    count,
    duration,
    entries_of,
    factor,
    fraction,
    keys_of,
    shown,
    size,
    throw,
    unknown,
    unless_none,
)
from quire.settings.key import declare as _key


@dataclass(frozen=True, slots=True)
class Policy:
    """How the broker treats the messages and consumers of a destination; section ``policy`` of the settings.

    Names are those of ActiveMQ's ``policyEntry``, ``redeliveryPolicy`` and dead letter strategies, in snake case.
    Durations are in seconds, sizes in bytes.
    """

    queue_prefetch: int = _key(1000, count(1), "The prefetch of consumers of a queue that request none.")
    topic_prefetch: int = _key(32767, count(1), "The prefetch of consumers of a topic that request none.")
    durable_topic_prefetch: int = _key(
        100, count(1), "The prefetch of consumers of a durable subscription that request none."
    )
    queue_browser_prefetch: int = _key(500, count(1), "The prefetch of browsers of a queue that request none.")
    use_prefetch_extension: bool = _key(
        True, SWITCH, "Whether messages acknowledged in an open transaction extend the prefetch."
    )
    memory_limit: int = _key(
        0, size(0), "How many bytes of messages one destination may keep in memory. 0: up to `memory.limit`."
    )

    prioritized_messages: bool = _key(
        False, SWITCH, "Whether a queue or a topic delivers messages of higher priority first."
    )
    strict_order_dispatch: bool = _key(
        False,
        SWITCH,
        "Whether the broker fills the prefetch of one consumer before it serves the next one, instead of round robin.",
    )
    use_consumer_priority: bool = _key(True, SWITCH, "Whether consumers of higher priority are served first.")
    all_consumers_exclusive_by_default: bool = _key(
        False, SWITCH, "Whether one consumer of a queue gets all messages while the others stand by."
    )
    consumers_before_dispatch_starts: int = _key(
        0, count(0), "How many consumers a queue waits for before it delivers the first message."
    )
    time_before_dispatch_starts: float = _key(
        0.0,
        duration(0),
        "How long a queue waits at most for these consumers after its first one. If their number is 0: always so long.",
    )
    rebalance_message_groups: bool = _key(
        False, SWITCH, "Whether the message groups of a queue are rebalanced when a consumer joins."
    )

    maximum_redeliveries: int = _key(6, count(-1), "How often a failed message is redelivered. -1: no limit.")
    initial_redelivery_delay: float = _key(1.0, duration(0), "How long a message waits before its first redelivery.")
    redelivery_delay: float = _key(
        1.0, duration(0), "How long a message waits before each later redelivery, without back-off."
    )
    maximum_redelivery_delay: float = _key(-1.0, unless_none(duration(0)), "The longest delay of exponential back-off.")
    use_exponential_back_off: bool = _key(
        False, SWITCH, "Whether each delay is the previous one times `back_off_multiplier`."
    )
    back_off_multiplier: float = _key(5.0, factor(1), "The factor of exponential back-off.")
    use_collision_avoidance: bool = _key(
        False,
        SWITCH,
        "Whether delays vary at random, which spreads messages that failed together.",
    )
    collision_avoidance_factor: float = _key(0.15, fraction(), "The fraction by which a delay varies, up or down.")
    redelivery_at: Literal["in-place", "tail"] = _key(
        "in-place",
        choice("in-place", "tail"),
        "Whether a failed message keeps its place or goes to the end.",
    )
    blocking_redelivery: bool = _key(
        False, SWITCH, "Whether a message that waits for its redelivery holds back all later ones."
    )

    dead_letter_strategy: Literal["shared", "individual", "discarding"] = _key(
        "shared",
        choice("shared", "individual", "discarding"),
        "Where dead letters go: all to `dead_letter_queue`, to the dead letter queue of each destination, or nowhere.",
    )
    dead_letter_queue: str = _key("ActiveMQ.DLQ", QUEUE_NAME, "The queue of all dead letters; strategy shared.")
    queue_prefix: str = _key(
        "ActiveMQ.DLQ.Queue.", AFFIX, "The prefix of the dead letter destination of a queue; strategy individual."
    )
    topic_prefix: str = _key(
        "ActiveMQ.DLQ.Topic.", AFFIX, "The prefix of the dead letter destination of a topic; strategy individual."
    )
    queue_suffix: str = _key("", AFFIX, "The suffix of the dead letter destination of a queue; strategy individual.")
    topic_suffix: str = _key("", AFFIX, "The suffix of the dead letter destination of a topic; strategy individual.")
    use_queue_for_queue_messages: bool = _key(
        True, SWITCH, "Whether a queue's dead letters go to a queue, or else to a topic; strategy individual."
    )
    use_queue_for_topic_messages: bool = _key(
        True, SWITCH, "Whether a topic's dead letters go to a queue, or else to a topic; strategy individual."
    )
    destination_per_durable_subscriber: bool = _key(
        False, SWITCH, "Whether each durable subscription has its own dead letter destination; strategy individual."
    )
    process_expired: bool = _key(
        True, SWITCH, "Whether expired messages become dead letters; otherwise the broker removes them."
    )
    process_non_persistent: bool = _key(
        True, SWITCH, "Whether failed non-persistent messages become dead letters; otherwise the broker removes them."
    )
    dead_letter_expiration: float = _key(0.0, duration(0), "The time to live of dead letters. 0: they do not expire.")

    maximum_pending_messages: int = _key(
        1000, count(-1), "How many messages may wait for a non-durable subscription beyond its prefetch. -1: no limit."
    )
    message_eviction_strategy: Literal["oldest", "oldest-with-lowest-priority", "unique-property"] = _key(
        "oldest",
        choice("oldest", "oldest-with-lowest-priority", "unique-property"),
        "Which message is discarded when more messages wait than the limit allows.",
    )
    eviction_property: str = _key(
        "",
        TEXT,
        "Of two messages with the same value of this property the older is discarded; unique-property.",
    )
    subscription_recovery_policy: Literal["none", "last-image", "fixed-count", "fixed-size", "timed"] = _key(
        "none",
        choice("none", "last-image", "fixed-count", "fixed-size", "timed"),
        "Which messages a topic keeps for retroactive consumers.",
    )
    recovery_count: int = _key(100, count(1), "How many messages the recovery policy fixed-count keeps.")
    recovery_size: int = _key(64 * 1024, size(1), "How many bytes of messages the recovery policy fixed-size keeps.")
    recovery_duration: float = _key(60.0, duration(0.001), "How long the recovery policy timed keeps messages.")
    always_retroactive: bool = _key(False, SWITCH, "Whether every consumer of a topic is retroactive.")
    offline_durable_subscriber_timeout: float = _key(
        -1.0, unless_none(duration(0.001)), "How long a durable subscription may be offline before it is removed."
    )

    partitions: int = _key(4, count(1), "How many partitions a new stream gets.")
    partition_key_header: str = _key(
        "partition-key", TEXT, "The header whose value determines the partition of a message sent to a stream."
    )
    retention_time: float = _key(
        259_200.0, unless_none(duration(0.001)), "How long a stream keeps a message. -1: until another rule removes it."
    )
    retention_bytes: int = _key(0, size(0), "How many bytes of messages a stream keeps. 0: no limit.")
    retention_groups_done: bool = _key(
        False, SWITCH, "Whether a stream removes a message when all its consumer groups have finished it."
    )

    stream_prefetch: int = _key(1000, count(1), "The prefetch of members of a consumer group that request none.")
    max_in_flight: int = _key(
        2000, count(1), "How many messages of a partition the members of a group may have in flight together."
    )
    max_in_flight_bytes: int = _key(
        100 * 1024 * 1024,
        size(1),
        "How many bytes of messages of a partition a group may have in memory, in flight or next.",
    )
    consume_timeout: float = _key(
        900.0, duration(1), "How long a member of a group may keep a message before it is retried."
    )
    retry: Literal["relocated", "in-place"] = _key(
        "relocated",
        choice("relocated", "in-place"),
        "Where a failed message of a group waits: in the group's retry lane, or at its place in the partition.",
    )
    retry_maximum: int = _key(
        16, count(-1), "How often a failed message of a group is retried before it becomes a dead letter. -1: no limit."
    )
    retry_delays: str = _key(
        "10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
        DURATIONS,
        "The delays of the retries in a group; the last one repeats. Empty: the redelivery delays of queues.",
    )
    suspend_time: float = _key(
        1.0, duration(0), "How long a partition of an orderly group is suspended after a failed message."
    )
    rebalance_strategy: Literal[
        "averagely", "averagely-by-circle", "consistent-hash", "machine-room-nearby", "by-configuration", "sticky",
        "shared",
    ] = _key(
        "averagely",
        choice(
            "averagely",
            "averagely-by-circle",
            "consistent-hash",
            "machine-room-nearby",
            "by-configuration",
            "sticky",
            "shared",
        ),
        "How a group's partitions are assigned to its members.",
    )  # fmt: skip
    partition_rooms: str = _key(
        "", TEXT, "The machine rooms of a stream's partitions, separated by spaces; strategy machine-room-nearby."
    )
    rebalance_debounce: float = _key(
        0.5, duration(0), "How long changes of a group's members are gathered before a rebalance."
    )
    rebalance_initial_delay: float = _key(
        3.0, duration(0), "How long a group waits for its members after the broker's start."
    )
    revoke_timeout: float = _key(30.0, duration(0), "How long a member may drain a partition that is revoked.")
    member_grace: float = _key(
        10.0, duration(0), "How long a static member may be disconnected before its partitions go to others."
    )

    ledger: bool = _key(False, SWITCH, "Whether the delivery ledger records the events of a destination's messages.")

    slow_consumer_strategy: Literal["none", "abort", "abort-slow-ack"] = _key(
        "none",
        choice("none", "abort", "abort-slow-ack"),
        "Whether slow consumers are disconnected: those without credit, or those that do not acknowledge.",
    )
    max_slow_duration: float = _key(
        30.0, unless_none(duration(0.001)), "How long a consumer may be slow without a break; strategy abort."
    )
    max_slow_count: int = _key(
        -1, count(-1), "How often a consumer may become slow; strategy abort. 0 or -1: no limit."
    )
    max_time_since_last_ack: float = _key(
        30.0, duration(0.001), "How long a consumer may go without an acknowledgement; strategy abort-slow-ack."
    )
    ignore_idle_consumers: bool = _key(
        True, SWITCH, "Whether consumers without messages in flight are exempt; strategy abort-slow-ack."
    )

    gc_inactive_destinations: bool = _key(False, SWITCH, "Whether destinations that are empty and unused are deleted.")
    inactive_timeout_before_gc: float = _key(
        60.0, duration(0), "How long a destination must be empty and unused before it is deleted."
    )

    zero_expiration_override: float = _key(
        0.0, duration(0), "The time to live of messages that are sent without one. 0: they do not expire."
    )
    ttl_ceiling: float = _key(0.0, duration(0), "The longest time to live of a message. 0: no limit.")
    future_only: bool = _key(False, SWITCH, "Whether the two settings above may only make an expiration later.")

    advisory_for_slow_consumers: bool = _key(False, SWITCH, "Whether the broker sends advisories about slow consumers.")
    advisory_when_full: bool = _key(False, SWITCH, "Whether the broker sends advisories about limits that are reached.")
    advisory_for_discarding_messages: bool = _key(
        False, SWITCH, "Whether the broker sends advisories about messages discarded for slow subscriptions."
    )
    advisory_for_dead_letters: bool = _key(False, SWITCH, "Whether the broker sends advisories about dead letters.")
    advisory_for_expired: bool = _key(False, SWITCH, "Whether the broker sends advisories about expired messages.")
    send_advisory_if_no_consumers: bool = _key(
        False, SWITCH, "Whether the broker sends advisories about messages that arrive while there is no consumer."
    )

    def contradictions(self) -> dict[str, str]:
        """What makes no sense together: by key, what is wrong with its value."""
        individual = self.dead_letter_strategy == "individual"
        backing_off = self.use_exponential_back_off
        wrong = {
            "message_eviction_strategy": (
                self.message_eviction_strategy == "unique-property" and not self.eviction_property,
                "needs an eviction_property",
            ),
            "blocking_redelivery": (
                self.blocking_redelivery and self.redelivery_at == "tail",
                "contradicts redelivery_at = tail: a message at the end of the queue holds back no other",
            ),
            "use_exponential_back_off": (
                backing_off and self.back_off_multiplier == 1,
                "needs a back_off_multiplier above 1",
            ),
            "maximum_redelivery_delay": (
                backing_off and 0 <= self.maximum_redelivery_delay < self.redelivery_delay,
                f"is less than redelivery_delay, {self.redelivery_delay:g} s",
            ),
            "queue_prefix": (
                individual and self.use_queue_for_queue_messages and not self.queue_prefix + self.queue_suffix,
                "makes a queue its own dead letter queue: set this prefix or the suffix",
            ),
            "topic_prefix": (
                individual and not self.use_queue_for_topic_messages and not self.topic_prefix + self.topic_suffix,
                "makes a topic its own dead letter topic: set it or topic_suffix",
            ),
            "slow_consumer_strategy": (
                self.slow_consumer_strategy == "abort" and self.max_slow_duration < 0 and self.max_slow_count <= 0,
                "has no effect: set max_slow_duration or max_slow_count",
            ),
            "zero_expiration_override": (
                0 < self.ttl_ceiling < self.zero_expiration_override,
                f"is more than ttl_ceiling, {self.ttl_ceiling:g} s",
            ),
        }
        return {key: text for key, (is_wrong, text) in wrong.items() if is_wrong}


CACHED = 10_000
"""Of how many destinations the policy is remembered; with more the memory begins anew."""

_ENTRY_KEYS = {key.name: key for key in keys_of(Policy)}


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """One entry of ``[[policies]]``."""

    kind: DestinationKind | None  # the kind of destination it is for; None for every kind
    pattern: Pattern  # the names it is for
    values: Mapping[str, Any]  # the keys of ``Policy`` that it sets
    origin: str  # ``policy PATTERN (file NAME, entry N)``

    def matches(self, destination: Destination) -> bool:
        """Whether it is for a destination."""
        return self.kind in (None, destination.kind) and self.pattern.matches(destination.name)


@dataclass(frozen=True, slots=True)
class Policies:
    """The policies of all destinations.

    Attributes:
        base: ``[policy]``: what holds where no entry says anything else.
        entries: ``[[policies]]``, in the order of the file.
        origins: where values of ``base`` come from that are no defaults, by key.

    Raises:
        InvalidSettings: keys contradict each other, in ``base`` or where an entry holds.
    """

    base: Policy = field(default_factory=Policy)
    entries: tuple[PolicyEntry, ...] = ()
    origins: Mapping[str, str] = field(default_factory=dict, compare=False)
    _ranked: list[PolicyEntry] = field(init=False, compare=False, repr=False)
    _cache: dict[Destination, Policy] = field(default_factory=dict, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        ranked = sorted(enumerate(self.entries), key=_rank, reverse=True)
        object.__setattr__(self, "_ranked", [entry for _, entry in ranked])
        for sample in self._samples():
            for key, wrong in self.of(sample).contradictions().items():
                setting = next(setting for setting in self.explain(sample) if setting.key == f"policy.{key}")
                raise InvalidSettings(
                    f"{key} = {setting.value!r} ({setting.origin}) {wrong}",
                    key=setting.key, value=setting.value, origin=setting.origin,
                )  # fmt: skip

    def of(self, destination: Destination) -> Policy:
        """The policy of a destination: the matching entries, the most specific one last, each key for itself.

        A literal part is more specific than ``*``, and ``*`` than ``>`` (``Pattern.specificity``). Of two entries with
        the same pattern the one with a prefix is more specific, then the later one.
        """
        policy = self._cache.get(destination)
        if policy is None:
            values = {key: value for entry in self._matching(destination) for key, value in entry.values.items()}
            policy = replace(self.base, **values) if values else self.base
            if len(self._cache) >= CACHED:
                self._cache.clear()
            self._cache[destination] = policy
        return policy

    def explain(self, destination: Destination) -> list[Setting]:
        """Every key of the policy of a destination with its value and origin, in the order of ``Policy``."""
        found = {
            name: Setting(f"policy.{name}", getattr(self.base, name), self.origins.get(name, "default"))
            for name in _ENTRY_KEYS
        }
        for entry in self._matching(destination):
            for name, value in entry.values.items():
                found[name] = Setting(f"policy.{name}", value, entry.origin)
        return list(found.values())

    def ranked(self, destination: Destination | None = None) -> list[PolicyEntry]:
        """The entries, the most specific one first: all, or those that match a destination."""
        return [entry for entry in reversed(self._ranked) if destination is None or entry.matches(destination)]

    def _matching(self, destination: Destination) -> Iterator[PolicyEntry]:
        return (entry for entry in self._ranked if entry.matches(destination))

    def _samples(self) -> Iterator[Destination]:
        """A destination for each entry, and one for none. No pattern has a ``?``, so only wildcards match that part."""
        for kind in (DestinationKind.QUEUE, DestinationKind.TOPIC):
            yield Destination(kind, "?")
            for entry in self.entries:
                if entry.kind in (None, kind):
                    parts = entry.pattern.text.split(".")
                    yield Destination(kind, ".".join("?" if part in ("*", ">") else part for part in parts))


def _rank(numbered: tuple[int, PolicyEntry]) -> tuple[Any, ...]:
    number, entry = numbered
    return entry.pattern.specificity, entry.kind is None, -number


def read_policies(tables: object, origin: str, refused: Refused = throw) -> tuple[PolicyEntry, ...]:
    """Read the entries of ``[[policies]]``; ``origin`` is ``file NAME``, and ``refused`` is told the faults."""

    def read(table: Mapping[str, Any], number: int) -> PolicyEntry:
        return _entry(table, f"{origin}, entry {number}", refused)

    return tuple(entries_of(tables, "policies", origin, read, refused))


def _entry(table: Mapping[str, Any], origin: str, refused: Refused) -> PolicyEntry:
    written = table.get("destination")
    try:
        if not isinstance(written, str):
            raise InvalidDestination('an entry of [[policies]] needs destination = "PATTERN"')
        kind, text = split_prefix(written)
        pattern = Pattern(text)
    except InvalidDestination as error:
        raise InvalidSettings(
            f"destination = {written!r} ({origin}) is not allowed: {error}",
            key="policies.destination", value=written, origin=origin,
        ) from error  # fmt: skip
    origin = f"policy {written} ({origin})"
    values = {}
    for name, value in table.items():
        try:
            if name in _ENTRY_KEYS:
                values[name] = _ENTRY_KEYS[name].read(value, origin).value
            elif name != "destination":
                raise unknown(name, origin, _ENTRY_KEYS)
        except InvalidSettings as error:
            refused(error)
    return PolicyEntry(kind, pattern, values, origin)


_COMPOSITE_KEYS = ("queue", "topic", "forward_to", "forward_only")


@dataclass(frozen=True, slots=True)
class Forward:
    """One place to which a composite forwards."""

    destination: str  # with its prefix: ``queue://orders``
    selector: str = ""  # only messages that this selector matches go there; empty for all


@dataclass(frozen=True, slots=True)
class Composite:
    """An entry of ``[[composites]]`` (ActiveMQ's ``compositeQueue`` and ``compositeTopic``)."""

    destination: Destination  # where producers send
    forward_to: tuple[Forward, ...]  # where copies of their messages go
    forward_only: bool = True  # whether nothing stays in the destination itself


def read_composites(tables: object, origin: str, refused: Refused = throw) -> tuple[Composite, ...]:
    """Read the entries of ``[[composites]]``; ``origin`` is ``file NAME``, and ``refused`` is told the faults."""
    taken = set[Destination]()

    def read(table: Mapping[str, Any], number: int) -> Composite:
        place = f"{origin}, composite {number}"
        composite = _composite(table, place)
        if composite.destination in taken:
            raise _wrong("composites", str(composite.destination), place, "another composite destination has this name")
        taken.add(composite.destination)
        return composite

    return tuple(entries_of(tables, "composites", origin, read, refused))


def _composite(table: Mapping[str, Any], origin: str) -> Composite:
    for key in table:
        if key not in _COMPOSITE_KEYS:
            raise unknown(key, origin, _COMPOSITE_KEYS)
    kinds = [kind for kind in (DestinationKind.QUEUE, DestinationKind.TOPIC) if kind in table]
    if len(kinds) != 1:
        raise _wrong("composites", dict(table), origin, 'write either queue = "NAME" or topic = "NAME"')
    try:
        destination = checked(kinds[0], _text(table[kinds[0]]))
    except (InvalidDestination, ValueError) as error:
        raise _wrong(kinds[0], table[kinds[0]], origin, str(error)) from error
    only = table.get("forward_only", True)
    if not isinstance(only, bool):
        raise _wrong("forward_only", only, origin, SWITCH.allowed)
    return Composite(destination, _forwards(table.get("forward_to"), destination, origin), only)


def _forwards(items: object, composite: Destination, origin: str) -> tuple[Forward, ...]:
    found: dict[str, Forward] = {}
    for item in items if isinstance(items, list) else ():
        forward = _forward(item, origin)
        if forward.destination in (*found, str(composite)):
            raise _wrong(
                "forward_to", item, origin, "a composite destination forwards to other destinations, to each one once"
            )
        found[forward.destination] = forward
    if not found:
        raise _wrong("forward_to", items, origin, 'a list such as ["queue://A", {destination = "topic://B"}]')
    return tuple(found.values())


def _forward(item: object, origin: str) -> Forward:
    written = item if isinstance(item, dict) else {"destination": item}
    try:
        if not {"destination"} <= written.keys() <= {"destination", "selector"}:
            raise ValueError("write destination, and selector to forward only some messages")
        kind, name = split_prefix(_text(written["destination"]))
        destination = checked(kind or DestinationKind.QUEUE, name)
        return Forward(str(destination), _text(written.get("selector", "")))
    except (InvalidDestination, ValueError) as error:
        raise _wrong("forward_to", item, origin, str(error)) from error


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("write a text")
    return value


def _wrong(key: str, value: object, origin: str, text: str) -> InvalidSettings:
    written, data = shown(value)
    return InvalidSettings(f"{key} = {written} ({origin}) is not allowed: {text}", key=key, value=data, origin=origin)
