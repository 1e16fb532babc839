"""The policy of a destination: every key of ``[policy]`` and ``[[policies]]``."""

from dataclasses import dataclass
from typing import Literal

from quire.settings.key import declare as _key
from quire.settings.kinds import (
    AFFIX,
    DURATIONS,
    QUEUE_NAME,
    SWITCH,
    TEXT,
    choice,
    count,
    duration,
    factor,
    fraction,
    size,
    unless_none,
)


@dataclass(frozen=True, slots=True)
class Policy:
    """How the broker treats the messages and consumers of a destination; section ``policy`` of the settings.

    Names are those of ActiveMQ's ``policyEntry``, ``redeliveryPolicy`` and dead letter strategies, in snake case.
    Durations are in seconds, sizes in bytes.
    """

    queue_prefetch: int = _key(
        1000, count(1), "How many unacknowledged messages a consumer of a queue gets that asks for no number."
    )
    topic_prefetch: int = _key(32767, count(1), "The same for a consumer of a topic.")
    durable_topic_prefetch: int = _key(100, count(1), "The same for a durable subscription.")
    queue_browser_prefetch: int = _key(500, count(1), "The same for a browser of a queue.")
    use_prefetch_extension: bool = _key(
        True, SWITCH, "Whether messages acknowledged in an open transaction make room for more."
    )
    memory_limit: int = _key(
        0, size(0), "How many bytes of messages one destination keeps in memory. 0: it may use all."
    )

    prioritized_messages: bool = _key(
        False, SWITCH, "Whether messages of higher priority are delivered first, of a queue or of a topic."
    )
    strict_order_dispatch: bool = _key(
        False, SWITCH, "Whether one consumer is filled before the next one gets anything, instead of round robin."
    )
    use_consumer_priority: bool = _key(True, SWITCH, "Whether consumers of higher priority are served first.")
    all_consumers_exclusive_by_default: bool = _key(
        False, SWITCH, "Whether one consumer of a queue gets everything and the others stand by."
    )
    consumers_before_dispatch_starts: int = _key(
        0, count(0), "How many consumers a queue waits for before it delivers the first message."
    )
    time_before_dispatch_starts: float = _key(
        0.0,
        duration(0),
        "How long a queue waits for them at most, from the first one on. For no number: how long it waits.",
    )
    rebalance_message_groups: bool = _key(
        False, SWITCH, "Whether a new consumer makes the groups of a queue be dealt out anew."
    )

    maximum_redeliveries: int = _key(
        6, count(-1), "How often a message may fail and be delivered again. -1: without end."
    )
    initial_redelivery_delay: float = _key(1.0, duration(0), "How long a message waits before its first redelivery.")
    redelivery_delay: float = _key(1.0, duration(0), "How long it waits before each later one, without back-off.")
    maximum_redelivery_delay: float = _key(-1.0, unless_none(duration(0)), "Where exponential back-off ends.")
    use_exponential_back_off: bool = _key(
        False, SWITCH, "Whether each delay is the one before it times `back_off_multiplier`."
    )
    back_off_multiplier: float = _key(5.0, factor(1), "By how much delays grow under exponential back-off.")
    use_collision_avoidance: bool = _key(
        False, SWITCH, "Whether delays vary at random, so that what failed together does not come back together."
    )
    collision_avoidance_factor: float = _key(0.15, fraction(), "By how much of itself a delay varies, up or down.")
    redelivery_at: Literal["in-place", "tail"] = _key(
        "in-place", choice("in-place", "tail"), "Whether a failed message keeps its place, or goes behind all others."
    )
    blocking_redelivery: bool = _key(
        False, SWITCH, "Whether a message that waits for its redelivery holds back all later ones."
    )

    dead_letter_strategy: Literal["shared", "individual", "discarding"] = _key(
        "shared",
        choice("shared", "individual", "discarding"),
        "Where dead letters go: all to `dead_letter_queue`, each to its destination's own, or nowhere.",
    )
    dead_letter_queue: str = _key("ActiveMQ.DLQ", QUEUE_NAME, "Where all dead letters go; strategy shared.")
    queue_prefix: str = _key(
        "ActiveMQ.DLQ.Queue.", AFFIX, "What the dead letter destination of a queue begins with; strategy individual."
    )
    topic_prefix: str = _key(
        "ActiveMQ.DLQ.Topic.", AFFIX, "What the dead letter destination of a topic begins with; strategy individual."
    )
    queue_suffix: str = _key("", AFFIX, "What the dead letter destination of a queue ends with; strategy individual.")
    topic_suffix: str = _key("", AFFIX, "What the dead letter destination of a topic ends with; strategy individual.")
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
        True, SWITCH, "Whether expired messages become dead letters; otherwise they are dropped."
    )
    process_non_persistent: bool = _key(
        True, SWITCH, "Whether failed non-persistent messages become dead letters; otherwise they are dropped."
    )
    dead_letter_expiration: float = _key(0.0, duration(0), "How long a dead letter lives. 0: for ever.")

    maximum_pending_messages: int = _key(
        1000, count(-1), "How many messages wait beyond its prefetch for a subscription of a topic. -1: no limit."
    )
    message_eviction_strategy: Literal["oldest", "oldest-with-lowest-priority", "unique-property"] = _key(
        "oldest",
        choice("oldest", "oldest-with-lowest-priority", "unique-property"),
        "Which waiting message goes when there are more.",
    )
    eviction_property: str = _key(
        "", TEXT, "Of two messages with the same value of this property the older one goes; strategy unique-property."
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

    partitions: int = _key(4, count(1), "How many partitions a stream has that is made on first use.")
    partition_key_header: str = _key(
        "partition-key", TEXT, "The header whose value decides on the partition of a message sent to a stream."
    )
    retention_time: float = _key(
        259_200.0, unless_none(duration(0.001)), "How long a stream keeps a message. -1: until another rule lets it go."
    )
    retention_bytes: int = _key(0, size(0), "How many bytes of messages a stream keeps. 0: no limit.")
    retention_groups_done: bool = _key(
        False, SWITCH, "Whether a stream lets a message go when all its consumer groups are done with it."
    )

    stream_prefetch: int = _key(
        1000, count(1), "How many unacknowledged messages a member of a consumer group gets that asks for no number."
    )
    max_in_flight: int = _key(
        2000, count(1), "How many messages of a partition the members of a group have at once, all together."
    )
    max_in_flight_bytes: int = _key(
        100 * 1024 * 1024,
        size(1),
        "How many bytes of messages of a partition a group has in memory, in flight or next.",
    )
    consume_timeout: float = _key(
        900.0, duration(1), "How long a member of a group may have a message before it is retried."
    )
    retry: Literal["relocated", "in-place"] = _key(
        "relocated",
        choice("relocated", "in-place"),
        "Where a failed message of a group waits: in the group's retry lane, or at its place in the partition.",
    )
    retry_maximum: int = _key(
        16, count(-1), "How often a failed message of a group is tried again before it is a dead letter. -1: no limit."
    )
    retry_delays: str = _key(
        "10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
        DURATIONS,
        "How long a failed message of a group waits, try by try; the last one stays. Empty: as a queue's messages do.",
    )
    suspend_time: float = _key(
        1.0, duration(0), "How long a partition with orderly consumption pauses after a failed message."
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
        "How a group's partitions are shared out among its members.",
    )  # fmt: skip
    partition_rooms: str = _key(
        "", TEXT, "The machine rooms of a stream's partitions, with spaces between; strategy machine-room-nearby."
    )
    rebalance_debounce: float = _key(
        0.5, duration(0), "How long a group waits for more members to come or go before partitions are moved."
    )
    rebalance_initial_delay: float = _key(
        3.0, duration(0), "How long a group waits for its members after the broker's start."
    )
    revoke_timeout: float = _key(
        30.0, duration(0), "How long a member may go on with the messages it has of a partition that is taken from it."
    )
    member_grace: float = _key(
        10.0, duration(0), "How long a member with a name may be away before its partitions go to others."
    )

    ledger: bool = _key(
        False, SWITCH, "Whether the delivery ledger says what becomes of the messages of a destination."
    )

    slow_consumer_strategy: Literal["none", "abort", "abort-slow-ack"] = _key(
        "none",
        choice("none", "abort", "abort-slow-ack"),
        "Whether slow consumers are ended: those that cannot keep up, or those that do not acknowledge.",
    )
    max_slow_duration: float = _key(
        30.0, unless_none(duration(0.001)), "How long a consumer may be slow at a stretch; strategy abort."
    )
    max_slow_count: int = _key(
        -1, count(-1), "How often a consumer may become slow; strategy abort. 0 or -1: any number of times."
    )
    max_time_since_last_ack: float = _key(
        30.0, duration(0.001), "How long a consumer may go without an acknowledgement; strategy abort-slow-ack."
    )
    ignore_idle_consumers: bool = _key(
        True, SWITCH, "Whether consumers that have nothing to acknowledge are spared; strategy abort-slow-ack."
    )

    gc_inactive_destinations: bool = _key(
        False, SWITCH, "Whether a destination that is empty and that nobody uses is deleted."
    )
    inactive_timeout_before_gc: float = _key(
        60.0, duration(0), "How long a destination must have been empty and unused before it is deleted."
    )

    zero_expiration_override: float = _key(
        0.0, duration(0), "The time to live of messages that are sent without one. 0: they live for ever."
    )
    ttl_ceiling: float = _key(0.0, duration(0), "The longest time to live a message may ask for. 0: no limit.")
    future_only: bool = _key(False, SWITCH, "Whether these two change a message's expiration only to a later one.")

    advisory_for_slow_consumers: bool = _key(False, SWITCH, "Whether an advisory tells of slow consumers.")
    advisory_when_full: bool = _key(False, SWITCH, "Whether an advisory tells that a limit is reached.")
    advisory_for_discarding_messages: bool = _key(
        False, SWITCH, "Whether an advisory tells of messages discarded for a slow subscription of a topic."
    )
    advisory_for_dead_letters: bool = _key(False, SWITCH, "Whether an advisory tells of dead letters.")
    advisory_for_expired: bool = _key(False, SWITCH, "Whether an advisory tells of expired messages.")
    send_advisory_if_no_consumers: bool = _key(
        False, SWITCH, "Whether an advisory tells of messages that were sent while nobody consumed."
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
                "does not go with redelivery_at = tail: what goes behind all others cannot hold them back",
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
                "makes a queue its own dead letter queue: set it or queue_suffix",
            ),
            "topic_prefix": (
                individual and not self.use_queue_for_topic_messages and not self.topic_prefix + self.topic_suffix,
                "makes a topic its own dead letter topic: set it or topic_suffix",
            ),
            "slow_consumer_strategy": (
                self.slow_consumer_strategy == "abort" and self.max_slow_duration < 0 and self.max_slow_count <= 0,
                "ends nobody: set max_slow_duration or max_slow_count",
            ),
            "zero_expiration_override": (
                0 < self.ttl_ceiling < self.zero_expiration_override,
                f"is more than ttl_ceiling, {self.ttl_ceiling:g} s",
            ),
        }
        return {key: text for key, (is_wrong, text) in wrong.items() if is_wrong}
