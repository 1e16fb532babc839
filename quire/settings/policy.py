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
