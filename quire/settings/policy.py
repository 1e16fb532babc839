"""The policy of a destination: every key of ``[policy]`` and ``[[policies]]``, and which of them hold.

``[policy]`` holds for all destinations; over it the matching entries of ``[[policies]]`` hold, the most specific first,
key by key. A composite destination (``[[composites]]``) passes on what is sent to it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from quire.destination import Destination, DestinationKind, checked, split_prefix
from quire.destination_pattern import Pattern
from quire.errors import InvalidDestination, InvalidSettings
from quire.options import (
    Bytes,
    Count,
    CountOrNone,
    Factor,
    Fraction,
    Kind,
    Positive,
    Seconds,
    SecondsOrNone,
    SomeBytes,
    SomeSeconds,
    SomeSecondsOrNone,
    duration,
    option,
    text_of,
)
from quire.settings.key import (
    FLAG,
    Affix,
    Durations,
    QueueName,
    Refused,
    Setting,
    entries_of,
    keys_of,
    not_allowed,
    read_table,
    throw,
    unknown,
)


@dataclass(frozen=True, slots=True)
class Policy:
    """How the broker treats the messages and consumers of a destination; section ``policy`` of the settings.

    Names are those of ActiveMQ's ``policyEntry``, ``redeliveryPolicy`` and dead letter strategies, in snake case.
    Durations are in seconds, sizes in bytes.
    """

    queue_prefetch: Positive = option(1000, "The prefetch of consumers of a queue that request none.")
    topic_prefetch: Positive = option(32767, "The prefetch of consumers of a topic that request none.")
    durable_topic_prefetch: Positive = option(
        100, "The prefetch of consumers of a durable subscription that request none."
    )
    queue_browser_prefetch: Positive = option(500, "The prefetch of browsers of a queue that request none.")
    use_prefetch_extension: bool = option(
        True, "Whether messages acknowledged in an open transaction extend the prefetch."
    )
    memory_limit: Bytes = option(
        0, "How many bytes of messages one destination may keep in memory. 0: up to `memory.limit`."
    )
    max_message_size: Bytes = option(0, "The largest body of a message that clients may send, in bytes. 0: no limit.")

    prioritized_messages: bool = option(False, "Whether a queue or a topic delivers messages of higher priority first.")
    strict_order_dispatch: bool = option(
        False, "Whether the broker fills the prefetch of one consumer before it serves the next one, instead of round "
        "robin.",
    )  # fmt: skip
    use_consumer_priority: bool = option(True, "Whether consumers of higher priority are served first.")
    all_consumers_exclusive_by_default: bool = option(
        False, "Whether one consumer of a queue gets all messages while the others stand by."
    )
    consumers_before_dispatch_starts: Count = option(
        0, "How many consumers a queue waits for before it delivers the first message."
    )
    time_before_dispatch_starts: Seconds = option(
        0.0, "How long a queue waits at most for these consumers after its first one. If their number is 0: always so "
        "long.",
    )  # fmt: skip
    rebalance_message_groups: bool = option(
        False, "Whether the message groups of a queue are rebalanced when a consumer joins."
    )

    maximum_redeliveries: CountOrNone = option(6, "How often a failed message is redelivered. -1: no limit.")
    initial_redelivery_delay: Seconds = option(1.0, "How long a message waits before its first redelivery.")
    redelivery_delay: Seconds = option(1.0, "How long a message waits before each later redelivery, without back-off.")
    maximum_redelivery_delay: SecondsOrNone = option(-1.0, "The longest delay of exponential back-off.")
    use_exponential_back_off: bool = option(
        False, "Whether each delay is the previous one times `back_off_multiplier`."
    )
    back_off_multiplier: Factor = option(5.0, "The factor of exponential back-off.")
    use_collision_avoidance: bool = option(
        False, "Whether delays vary at random, which spreads messages that failed together."
    )
    collision_avoidance_factor: Fraction = option(0.15, "The fraction by which a delay varies, up or down.")
    redelivery_at: Literal["in-place", "tail"] = option(
        "in-place", "Whether a failed message keeps its place or goes to the end."
    )
    blocking_redelivery: bool = option(
        False, "Whether a message that waits for its redelivery holds back all later ones."
    )

    dead_letter_strategy: Literal["shared", "individual", "discarding"] = option(
        "shared", "Where dead letters go: all to `dead_letter_queue`, to the dead letter queue of each destination, "
        "or nowhere.",
    )  # fmt: skip
    dead_letter_queue: QueueName = option("ActiveMQ.DLQ", "The queue of all dead letters; strategy shared.")
    queue_prefix: Affix = option(
        "ActiveMQ.DLQ.Queue.", "The prefix of the dead letter destination of a queue; strategy individual."
    )
    topic_prefix: Affix = option(
        "ActiveMQ.DLQ.Topic.", "The prefix of the dead letter destination of a topic; strategy individual."
    )
    queue_suffix: Affix = option("", "The suffix of the dead letter destination of a queue; strategy individual.")
    topic_suffix: Affix = option("", "The suffix of the dead letter destination of a topic; strategy individual.")
    use_queue_for_queue_messages: bool = option(
        True, "Whether a queue's dead letters go to a queue, or else to a topic; strategy individual."
    )
    use_queue_for_topic_messages: bool = option(
        True, "Whether a topic's dead letters go to a queue, or else to a topic; strategy individual."
    )
    destination_per_durable_subscriber: bool = option(
        False, "Whether each durable subscription has its own dead letter destination; strategy individual."
    )
    process_expired: bool = option(
        True, "Whether expired messages become dead letters; otherwise the broker removes them."
    )
    process_non_persistent: bool = option(
        True, "Whether failed non-persistent messages become dead letters; otherwise the broker removes them."
    )
    dead_letter_expiration: Seconds = option(0.0, "The time to live of dead letters. 0: they do not expire.")

    maximum_pending_messages: CountOrNone = option(
        1000, "How many messages may wait for a non-durable subscription beyond its prefetch. -1: no limit."
    )
    message_eviction_strategy: Literal["oldest", "oldest-with-lowest-priority", "unique-property"] = option(
        "oldest", "Which message is discarded when more messages wait than the limit allows."
    )
    eviction_property: str = option(
        "", "Of two messages with the same value of this property the older is discarded; unique-property."
    )
    subscription_recovery_policy: Literal["none", "last-image", "fixed-count", "fixed-size", "timed"] = option(
        "none", "Which messages a topic keeps for retroactive consumers."
    )
    recovery_count: Positive = option(100, "How many messages the recovery policy fixed-count keeps.")
    recovery_size: SomeBytes = option(64 * 1024, "How many bytes of messages the recovery policy fixed-size keeps.")
    recovery_duration: SomeSeconds = option(60.0, "How long the recovery policy timed keeps messages.")
    always_retroactive: bool = option(False, "Whether every consumer of a topic is retroactive.")
    offline_durable_subscriber_timeout: SomeSecondsOrNone = option(
        -1.0, "How long a durable subscription may be offline before it is removed."
    )

    partitions: Positive = option(4, "How many partitions a new stream gets.")
    partition_key_header: str = option(
        "partition-key", "The header whose value determines the partition of a message sent to a stream."
    )
    retention_time: SomeSecondsOrNone = option(
        259_200.0, "How long a stream keeps a message. -1: until another rule removes it."
    )
    retention_bytes: Bytes = option(0, "How many bytes of messages a stream keeps. 0: no limit.")
    retention_groups_done: bool = option(
        False, "Whether a stream removes a message when all its consumer groups have finished it."
    )

    stream_prefetch: Positive = option(1000, "The prefetch of members of a consumer group that request none.")
    max_in_flight: Positive = option(
        2000, "How many messages of a partition the members of a group may have in flight together."
    )
    max_in_flight_bytes: SomeBytes = option(
        100 * 1024 * 1024, "How many bytes of messages of a partition a group may have in memory, in flight or next."
    )
    consume_timeout: Annotated[float, duration(1)] = option(
        900.0, "How long a member of a group may keep a message before it is retried."
    )
    retry: Literal["relocated", "in-place"] = option(
        "relocated", "Where a failed message of a group waits: in the group's retry lane, or at its place in the "
        "partition.",
    )  # fmt: skip
    retry_maximum: CountOrNone = option(
        16, "How often a failed message of a group is retried before it becomes a dead letter. -1: no limit."
    )
    retry_delays: Durations = option(
        "10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h", "The delays of the retries in a group; the last one "
        "repeats. Empty: the redelivery delays of queues.",
    )  # fmt: skip
    suspend_time: Seconds = option(1.0, "How long a partition of an orderly group is suspended after a failed message.")
    rebalance_strategy: Literal[
        "averagely", "averagely-by-circle", "consistent-hash", "machine-room-nearby", "by-configuration", "sticky",
        "shared",
    ] = option("averagely", "How a group's partitions are assigned to its members.")  # fmt: skip
    partition_rooms: str = option(
        "", "The machine rooms of a stream's partitions, separated by spaces; strategy machine-room-nearby."
    )
    rebalance_debounce: Seconds = option(0.5, "How long changes of a group's members are gathered before a rebalance.")
    rebalance_initial_delay: Seconds = option(3.0, "How long a group waits for its members after the broker's start.")
    revoke_timeout: Seconds = option(30.0, "How long a member may drain a partition that is revoked.")
    member_grace: Seconds = option(
        10.0, "How long a static member may be disconnected before its partitions go to others."
    )

    ledger: bool = option(False, "Whether the delivery ledger records the events of a destination's messages.")

    slow_consumer_strategy: Literal["none", "abort", "abort-slow-ack"] = option(
        "none", "Whether slow consumers are disconnected: those without credit, or those that do not acknowledge."
    )
    max_slow_duration: SomeSecondsOrNone = option(
        30.0, "How long a consumer may be slow without a break; strategy abort."
    )
    max_slow_count: CountOrNone = option(-1, "How often a consumer may become slow; strategy abort. 0 or -1: no limit.")
    max_time_since_last_ack: SomeSeconds = option(
        30.0, "How long a consumer may go without an acknowledgement; strategy abort-slow-ack."
    )
    ignore_idle_consumers: bool = option(
        True, "Whether consumers without messages in flight are exempt; strategy abort-slow-ack."
    )

    gc_inactive_destinations: bool = option(False, "Whether destinations that are empty and unused are deleted.")
    inactive_timeout_before_gc: Seconds = option(
        60.0, "How long a destination must be empty and unused before it is deleted."
    )

    zero_expiration_override: Seconds = option(
        0.0, "The time to live of messages that are sent without one. 0: they do not expire."
    )
    ttl_ceiling: Seconds = option(0.0, "The longest time to live of a message. 0: no limit.")
    future_only: bool = option(False, "Whether the two settings above may only make an expiration later.")

    advisory_for_slow_consumers: bool = option(False, "Whether the broker sends advisories about slow consumers.")
    advisory_when_full: bool = option(False, "Whether the broker sends advisories about limits that are reached.")
    advisory_for_discarding_messages: bool = option(
        False, "Whether the broker sends advisories about messages discarded for slow subscriptions."
    )
    advisory_for_dead_letters: bool = option(False, "Whether the broker sends advisories about dead letters.")
    advisory_for_expired: bool = option(False, "Whether the broker sends advisories about expired messages.")
    send_advisory_if_no_consumers: bool = option(
        False, "Whether the broker sends advisories about messages that arrive while there is no consumer."
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


CACHED = 10_000  # of how many destinations the policy is remembered; with more the memory begins anew

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
    """The policies of all destinations. Keys that contradict each other are ``InvalidSettings``."""

    base: Policy = field(default_factory=Policy)  # ``[policy]``: what holds where no entry says anything else
    entries: tuple[PolicyEntry, ...] = ()  # ``[[policies]]``, in the order of the file
    origins: Mapping[str, str] = field(default_factory=dict, compare=False)  # of values of ``base``, by key
    limit_sizes: bool = field(init=False, compare=False, repr=False)  # whether any limits the size of messages
    _ranked: list[PolicyEntry] = field(init=False, compare=False, repr=False)
    _cache: dict[Destination, Policy] = field(default_factory=dict, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        ranked = sorted(enumerate(self.entries), key=_rank, reverse=True)
        sizes = [self.base.max_message_size, *[entry.values.get("max_message_size") for entry in self.entries]]
        object.__setattr__(self, "limit_sizes", any(sizes))
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
        raise not_allowed("destination", written, origin, str(error), "policies.destination") from error
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
            text = "another composite destination has this name"
            raise not_allowed("composites", str(composite.destination), place, text)
        taken.add(composite.destination)
        return composite

    return tuple(entries_of(tables, "composites", origin, read, refused))


def _queue_or_topic(kind: DestinationKind) -> Kind:
    return Kind("write a text", lambda value: checked(kind, text_of(value)))


def _forwards(value: object) -> tuple[Forward, ...]:
    if not isinstance(value, list) or not value:
        raise ValueError(value)
    return tuple([_forward(item) for item in value])


def _forward(item: object) -> Forward:
    written: dict[str, Any] = item if isinstance(item, dict) else {"destination": item}
    if not {"destination"} <= written.keys() <= {"destination", "selector"}:
        raise InvalidDestination("write destination, and selector to forward only some messages")
    if not all(isinstance(text, str) for text in written.values()):
        raise InvalidDestination("write a text")
    kind, name = split_prefix(written["destination"])
    return Forward(str(checked(kind or DestinationKind.QUEUE, name)), written.get("selector", ""))


_COMPOSITE = {
    "queue": _queue_or_topic(DestinationKind.QUEUE),
    "topic": _queue_or_topic(DestinationKind.TOPIC),
    "forward_to": Kind('a list such as ["queue://A", {destination = "topic://B"}]', _forwards),
    "forward_only": FLAG,
}


def _composite(table: Mapping[str, Any], origin: str) -> Composite:
    found = read_table(_COMPOSITE, table, origin)
    if ("queue" in found) == ("topic" in found):
        raise not_allowed("composites", dict(table), origin, 'write either queue = "NAME" or topic = "NAME"')
    if "forward_to" not in found:
        raise not_allowed("forward_to", None, origin, _COMPOSITE["forward_to"].allowed)
    destination, forwards = found.get("queue") or found["topic"], found["forward_to"]
    if len({str(destination), *[forward.destination for forward in forwards]}) <= len(forwards):
        text = "a composite destination forwards to other destinations, to each one once"
        raise not_allowed("forward_to", table["forward_to"], origin, text)
    return Composite(destination, forwards, found.get("forward_only", True))
