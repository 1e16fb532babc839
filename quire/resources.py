"""What operators see of a broker, said once: each resource, and what each of its fields is.

A field says what it means, how tables call it, where it is shown, by which word the broker sorts lists by it, and which
metric it is; its name and type say its unit, and the unit how shards' answers are joined. From that follow the JSON and
its schema, the metrics, the order of lists, the tables of the command line, what the console shows, and the reference.

Nothing here knows the broker: ``management`` reads the values, and command line and console get them over HTTP.
"""

from collections.abc import Iterator
from enum import Flag, auto
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

import msgspec

Unit = Literal["number", "rate", "size", "span", "time", "flag", "text", "words", "other"]
"""What a value is: a count, messages a second, bytes, seconds, milliseconds since the epoch, text, a code of words."""

Join = Literal["sum", "max", "min"]

_SIZES = {"bytes", "limit", "peak", "size", "used"}
_TIMES = {
    "at", "created", "due", "expiration", "last_sent", "newest_timestamp", "next_due", "oldest_timestamp", "since",
    "timestamp", "until",
}  # fmt: skip


class At(Flag):
    LIST = auto()  # a column of the console's list
    MORE = auto()  # a column that a user of the console may add
    LINE = auto()  # a column of the command line
    TILE = auto()  # one of the large numbers of the console's page about one
    FACT = auto()  # one of the others there


LIST, MORE, LINE, TILE, FACT, NOWHERE = At.LIST, At.MORE, At.LINE, At.TILE, At.FACT, At(0)
TABLES, ON_CHOICE, MAIN = LIST | LINE, MORE | FACT, LIST | LINE | TILE


class Status(msgspec.Struct, frozen=True):
    """What is known of something, as the HTTP API tells it."""


class Metric(NamedTuple):
    name: str  # its name
    kind: Literal["counter", "gauge"]  # what Prometheus calls it
    labels: dict[str, str]  # labels beside those that say what it is about
    absent: float | None  # its value where the field is None; None: then there is none


class Shown(NamedTuple):
    label: str = ""  # what tables call it; empty for its name in words
    at: At = FACT
    sort: str | bool = False  # whether the broker sorts lists by it; the word for it, if that is not its name
    unit: Unit | None = None  # None for the one that name and type say
    join: Join | None = None  # how the values of several shards, or of those without own metrics, become one
    width: int = 0  # how many characters the command line shows; 0 for all
    is_bad: bool = False  # whether any value but 0 and none needs a look
    metric: Metric | None = None


class Field(NamedTuple):
    name: str
    text: str  # what it means
    label: str
    unit: Unit
    join: Join
    sort: str  # the word that sorts a list by it; empty for none
    shown: Shown
    inside: type[Status] | None  # what it is, if it has fields of its own


def doc(text: str, **shown: Any) -> msgspec.Meta:
    """A field; ``shown`` is what ``Shown`` has."""
    return msgspec.Meta(description=text, extra={"shown": Shown(**shown)})


def gauge(name: str, text: str, absent: float | None = None, cause: str = "", **shown: Any) -> msgspec.Meta:
    """A field that is a metric too, which goes up and down."""
    return doc(text, metric=Metric(name, "gauge", {"cause": cause} if cause else {}, absent), **shown)


def counter(name: str, text: str, cause: str = "", **shown: Any) -> msgspec.Meta:
    """A field that is a metric too, which only goes up while the broker runs."""
    return doc(text, metric=Metric(f"{name}_total", "counter", {"cause": cause} if cause else {}, None), **shown)


def unit_of(name: str) -> Unit:
    """What a number is, which its name says."""
    name = name.rpartition(".")[2]
    if name in _SIZES or name.endswith("_bytes"):
        return "size"
    if name.endswith("_seconds"):
        return "span"
    if name in _TIMES or name.endswith("_at"):
        return "time"
    return "rate" if name.endswith("_rate") else "number"


def join_of(name: str) -> Join:
    """How numbers of several shards become one: times and durations do not add up."""
    return _joins().get(name) or _of_unit(unit_of(name))


@cache
def fields(kind: type[Status]) -> dict[str, Field]:
    found = {}
    for field in msgspec.structs.fields(kind):
        notes = [note for note in getattr(field.type, "__metadata__", ()) if isinstance(note, msgspec.Meta)]
        shown: Shown = (notes[0].extra or {}).get("shown", Shown()) if notes else Shown()
        types = _types(field.type)
        unit = shown.unit or _unit(field.name, types)
        inside = [each for each in types if isinstance(each, type) and issubclass(each, Status)]
        found[field.name] = Field(
            field.name, (notes[0].description or "") if notes else "",
            shown.label or field.name.replace("_", " ").capitalize(), unit, shown.join or _of_unit(unit),
            field.name if shown.sort is True else shown.sort or "", shown,
            inside[0] if inside else None,
        )  # fmt: skip
    return found


def shown_at(kind: type[Status], place: At) -> list[Field]:
    return [field for field in fields(kind).values() if place in field.shown.at]


def _types(annotated: Any) -> list[Any]:
    if get_origin(annotated) is Annotated:
        annotated = get_args(annotated)[0]
    return list(get_args(annotated)) if isinstance(annotated, UnionType) else [annotated]


def _unit(name: str, types: list[Any]) -> Unit:
    if bool in types:
        return "flag"
    if int in types or float in types:
        return unit_of(name)
    return "text" if str in types else "other"


def _of_unit(unit: Unit) -> Join:
    return "max" if unit in ("span", "time") else "sum"


@cache
def _joins() -> dict[str, Join]:
    """The fields that say themselves how they are joined."""
    return {
        field.name: field.shown.join
        for kind in _kinds(Status) for field in fields(kind).values() if field.shown.join is not None
    }  # fmt: skip


def _kinds(kind: type[Status]) -> Iterator[type[Status]]:
    for each in kind.__subclasses__():
        yield each
        yield from _kinds(each)


# fmt: off


class Blocked(Status, frozen=True):
    """Why messages cannot be dispatched.

    Of the first message: ``no-matching-consumer``, no selector matches it; ``group-owner-busy``, the consumer that owns
    its group has no credit; ``consumer-busy``, no consumer that matches has credit. Of all of them: ``paused``;
    ``damaged-record``, the next message cannot be read; ``store-failed``, the store cannot be read, or cannot store the
    dispatch mark; ``memory-limit``, the next message finds no memory; ``waiting-for-consumers``, the queue waits
    for more consumers; ``redelivery-delay``, one that waits for its redelivery holds back all others; ``parked-limit``,
    too many messages are parked; ``ack-set-full``, the ack set has too many holes.
    """

    cause: Annotated[str, doc("One of the causes above.")]
    age_seconds: Annotated[float, doc("For how long, in seconds.")]


class Wait(Status, frozen=True):
    """Why a consumer is given nothing now.

    Of the consumer: ``connection-full``, its connection takes no more output; ``prefetch-full``, it has as many
    messages as its prefetch allows; ``no-pull``, its prefetch is 0 and it has asked for no message; ``stand-by``,
    other consumers are served first. Of the source: ``nothing-waits``, and the causes of a blocked queue.
    """

    cause: Annotated[str, doc("One of the causes above.")]
    text: Annotated[str, doc("The cause in words.")]


class Consumer(Status, frozen=True):
    """A consumer."""

    connection: Annotated[str, doc("The address of the connection.", at=TABLES, sort=True)]
    id: Annotated[str, doc("The id of the subscription.", label="Consumer", at=TABLES)]
    ack: Annotated[str, doc("The ack mode.", label="Acknowledges", at=TABLES)]
    selector: Annotated[str | None, doc("The selector; null for none.", at=TABLES, width=40)]
    prefetch: Annotated[int, doc("The prefetch; with 0 the consumer pulls.", at=TABLES, sort=True)]
    in_flight: Annotated[int, doc("The number of messages in flight.", at=TABLES, sort=True)]
    extension: Annotated[int, doc("The prefetch extension: how many of these take no credit.")]
    credit: Annotated[int, doc("How many more messages the consumer may be given now.", at=LINE)]
    pulled: Annotated[int, doc("How many pulled messages the consumer has not received yet, if its prefetch is 0.")]
    priority: Annotated[int, doc("The priority of the consumer: higher ones are served first.", at=MORE | LINE)]
    exclusive: Annotated[bool, doc("Whether it is an exclusive consumer.", at=MORE | LINE)]
    slow_seconds: Annotated[float | None, doc("For how long it has been slow, checked once a second; or null.",
        label="Slow for", at=MORE | LINE, sort="slow")]
    waits: Annotated[Wait | None, doc("Why it is given nothing now; null if nothing keeps messages from it.")]


class HeldProducer(Status, frozen=True):
    """A producer whose messages wait because a limit is reached."""

    connection: Annotated[str, doc("The address of the connection.", at=TABLES)]
    destination: Annotated[str, doc("The destination as the producer wrote it.", at=TABLES)]
    cause: Annotated[str, doc("The limit that is reached: of the store, of the spool, or of one of their disks.",
        at=TABLES, unit="words")]
    age_seconds: Annotated[float, doc("For how long the producer has been held.", label="Held for", at=TABLES)]
    limit_seconds: Annotated[float, doc("How long the producer may be held before it gets an error.", label="At most",
        at=TABLES)]


class QueueStatus(Status, frozen=True):
    """A queue. Counters begin at zero when the broker starts; the others are exact at any time.

    What is parked or delayed, and the groups, are known while the queue has consumers.
    """

    name: Annotated[str, doc("The name of the queue.", label="Queue", at=TABLES)]
    depth: Annotated[int, gauge("quire_queue_messages", "Messages in the queue, including those in flight.",
        label="Messages", at=MAIN, sort=True)]
    in_flight: Annotated[int, gauge("quire_queue_in_flight_messages", "Messages in flight.", at=MAIN, sort=True)]
    bytes: Annotated[int, gauge("quire_queue_bytes", "Size of the messages in bytes.", label="Size",
        at=ON_CHOICE | LINE, sort=True)]
    resident_bytes: Annotated[int, gauge("quire_queue_resident_bytes", "Memory of resident messages in bytes.",
        label="In memory")]
    lanes: Annotated[int, doc("The number of lanes.")]
    prioritized: Annotated[bool, doc("Whether messages of higher priority are delivered first.", at=NOWHERE)]
    grouped: Annotated[bool, doc("Whether messages of message groups were ever sent to the queue.", at=NOWHERE)]
    consumers: Annotated[int, gauge("quire_queue_consumers", "Consumers.", at=MAIN, sort=True)]
    slow_consumers: Annotated[int, gauge("quire_queue_slow_consumers", "Slow consumers.", is_bad=True)]
    groups: Annotated[int, gauge("quire_queue_message_groups", "Message groups that have an owner.",
        label="Message groups")]
    parked_for_consumers: Annotated[int, gauge("quire_queue_parked_messages", "Parked messages, by cause.",
        cause="consumer-busy")]
    parked_for_groups: Annotated[int, gauge("quire_queue_parked_messages", "Messages whose group's owner is busy.",
        cause="group-owner-busy")]
    delayed: Annotated[int, gauge("quire_queue_delayed_messages", "Messages that wait for their redelivery.",
        label="Waiting for redelivery")]
    next_due: Annotated[int | None, doc("When the next redelivery is due, in milliseconds since the epoch; or null.",
        label="Next redelivery, UTC", join="min")]
    enqueued: Annotated[int, counter("quire_queue_enqueued_messages", "Messages that were sent to the queue.",
        at=ON_CHOICE | LINE, sort=True)]
    dequeued: Annotated[int, counter("quire_queue_dequeued_messages", "Messages that were acknowledged.",
        at=ON_CHOICE | LINE, sort=True)]
    dispatched: Annotated[int, counter("quire_queue_dispatched_messages", "Deliveries to consumers.", sort=True)]
    redelivered: Annotated[int, counter("quire_queue_redelivered_messages", "Messages returned for redelivery.",
        at=ON_CHOICE, sort=True)]
    expired: Annotated[int, counter("quire_queue_expired_messages", "Messages that expired.", at=ON_CHOICE, sort=True)]
    dead_lettered: Annotated[int, counter("quire_queue_dead_lettered_messages",
        "Messages that became dead letters, without duplicates.", label="Dead-lettered", at=ON_CHOICE | LINE, sort=True,
        is_bad=True)]
    removed: Annotated[int, counter("quire_queue_removed_messages",
        "Messages that operators removed, or moved elsewhere.", at=ON_CHOICE | LINE, sort=True)]
    suppressed: Annotated[int, counter("quire_queue_suppressed_messages",
        "Dead letters that clients suppressed as duplicates.", label="Duplicates suppressed", at=ON_CHOICE, sort=True)]
    in_rate: Annotated[float, doc("Messages that come, per second, in the last seconds.", label="Rate in",
        at=LIST | TILE, sort=True)]
    out_rate: Annotated[float, doc("Messages that are acknowledged, per second, in the last seconds.", label="Rate out",
        at=LIST | TILE, sort=True)]
    oldest_message_age_seconds: Annotated[float | None, gauge("quire_queue_oldest_message_age_seconds",
        "Age of the first message; null, and 0 as a metric, if there is none or it cannot be read.", absent=0.0,
        label="Oldest", at=MAIN, sort="oldest")]
    paused: Annotated[bool, gauge("quire_queue_paused", "1 while the queue is paused.", at=LINE)]
    blocked: Annotated[Blocked | None, gauge("quire_queue_blocked_seconds",
        "For how long the queue has been blocked, by cause.", at=LINE, join="max")]
    subscriptions: Annotated[list[Consumer], doc("The consumers, in the order of their subscriptions.")]
    producers_held: Annotated[list[HeldProducer], doc("The held producers of the queue.")]


class GroupStatus(Status, frozen=True):
    """A message group."""

    name: Annotated[str, doc("The JMSXGroupID of the group.", label="Group", at=LINE)]
    connection: Annotated[str | None, doc("The address of the connection of its owner; null if it has none.", at=LINE)]
    subscription: Annotated[str | None, doc("The subscription id of its owner.", at=LINE)]
    in_flight: Annotated[int, doc("How many of its messages are in flight.", at=LINE)]
    parked: Annotated[int, doc("How many of its messages are parked because the owner has no credit.", at=LINE)]
    moving: Annotated[bool, doc("Whether it changes its owner when none of its messages is in flight any more.",
        at=LINE)]


class GroupPage(Status, frozen=True):
    """A part of a queue's groups, by name."""

    groups: list[GroupStatus]
    next: Annotated[str | None, doc("The after of the next page; null at the end.")]


class TopicSubscriptionStatus(Status, frozen=True):
    """One subscription of a topic."""

    client_id: Annotated[str | None, doc("The client id of a durable subscription; null otherwise.", at=TABLES)]
    name: Annotated[str | None, doc("The name of a durable subscription; null otherwise.", label="Durable", at=TABLES)]
    connection: Annotated[str | None, doc("The address of the consumer's connection; null while it is offline.",
        at=TABLES)]
    id: Annotated[str | None, doc("The subscription id of the consumer; null while it is offline.", at=LINE)]
    selector: Annotated[str | None, doc("The selector; null for none.", at=TABLES, width=40)]
    prefetch: Annotated[int, doc("The prefetch of the consumer.", at=TABLES)]
    in_flight: Annotated[int, doc("The number of messages in flight.", at=TABLES)]
    pending: Annotated[int, doc("The number of messages that wait for the consumer.", at=TABLES)]
    discarded: Annotated[int, doc("How many messages a non-durable subscription lost because it was slow.", at=TABLES)]
    slow_seconds: Annotated[float | None, doc("For how long its consumer has been slow; null while it is not.",
        label="Slow for", at=TABLES, is_bad=True)]


class TopicStatus(Status, frozen=True):
    """A topic. Counters begin at zero when the broker starts; the others are exact at any time.

    The counters from dispatched to dead-lettered are of non-durable subscriptions: durable ones have their own.
    """

    name: Annotated[str, doc("Its name.", label="Topic", at=TABLES)]
    prioritized: Annotated[bool, doc("Whether messages of higher priority are delivered first.", at=NOWHERE)]
    consumers: Annotated[int, gauge("quire_topic_consumers", "Consumers, including those of durable subscriptions.",
        at=MAIN, sort=True)]
    slow_consumers: Annotated[int, gauge("quire_topic_slow_consumers", "Slow consumers.", is_bad=True)]
    durables: Annotated[int, gauge("quire_topic_durable_subscriptions", "Durable subscriptions.", label="Durable",
        at=MAIN, sort=True)]
    offline_durables: Annotated[int, gauge("quire_topic_offline_durable_subscriptions",
        "Offline durable subscriptions.", label="Offline", at=LINE | FACT)]
    backlog: Annotated[int, gauge("quire_topic_backlog_messages", "Unfinished messages of all durable subscriptions.",
        at=MAIN, sort=True)]
    pending: Annotated[int, gauge("quire_topic_pending_messages", "Messages that wait for non-durable subscriptions.",
        at=MAIN, sort=True)]
    depth: Annotated[int, gauge("quire_topic_messages", "Stored messages.", label="Stored", at=TABLES | FACT,
        sort=True)]
    bytes: Annotated[int, gauge("quire_topic_bytes", "Size of the stored messages in bytes.", label="Size",
        at=ON_CHOICE | LINE, sort=True)]
    resident_bytes: Annotated[int, gauge("quire_topic_resident_bytes", "Memory of resident messages in bytes.",
        label="In memory")]
    enqueued: Annotated[int, counter("quire_topic_enqueued_messages", "Messages that were sent to the topic.",
        at=ON_CHOICE | LINE, sort=True)]
    dispatched: Annotated[int, counter("quire_topic_dispatched_messages", "Deliveries to non-durable subscriptions.",
        at=ON_CHOICE | LINE, sort=True)]
    dequeued: Annotated[int, counter("quire_topic_dequeued_messages",
        "Messages that non-durable subscriptions acknowledged.")]
    redelivered: Annotated[int, counter("quire_topic_redelivered_messages",
        "Messages that non-durable subscriptions returned for redelivery.")]
    expired: Annotated[int, counter("quire_topic_expired_messages",
        "Messages that expired while they waited for non-durable subscriptions.")]
    discarded_for_pending_limit: Annotated[int, counter("quire_topic_discarded_messages",
        "Messages discarded for slow non-durable subscriptions, by cause.", cause="pending-limit",
        label="Discarded, pending limit")]
    discarded_for_memory_limit: Annotated[int, counter("quire_topic_discarded_messages",
        "Messages discarded because they found no memory.", cause="memory-limit", label="Discarded, no memory")]
    dead_lettered: Annotated[int, counter("quire_topic_dead_lettered_messages",
        "Messages of non-durable subscriptions that became dead letters.", label="Dead-lettered")]
    suppressed: Annotated[int, counter("quire_topic_suppressed_messages",
        "Dead letters of these that clients suppressed as duplicates.", label="Duplicates suppressed")]
    in_rate: Annotated[float, doc("Messages that come, per second, in the last seconds.", label="Rate in",
        at=LIST | TILE, sort=True)]
    out_rate: Annotated[float, doc("Deliveries to all subscriptions, per second, in the last seconds.",
        label="Rate out", at=LIST | TILE, sort=True)]
    subscriptions: Annotated[list[TopicSubscriptionStatus],
        doc("The subscriptions: first non-durable, then durable ones.")]
    producers_held: Annotated[list[HeldProducer], doc("The held producers of the topic.")]


class DurableStatus(Status, frozen=True):
    """A durable subscription. Counters begin at zero when the broker starts; the others are exact at any time."""

    client_id: Annotated[str, doc("The client id.", at=TABLES | FACT, sort=True)]
    name: Annotated[str, doc("The name of the subscription.", label="Name", at=TABLES)]
    topic: Annotated[str, doc("The topic.", at=TABLES | FACT, sort=True)]
    selector: Annotated[str | None, doc("The selector; null for none.", at=LINE | FACT, width=40)]
    no_local: Annotated[bool, doc("Whether it ignores messages that its own connection sends.",
        label="Ignores its own messages")]
    depth: Annotated[int, doc("The number of unfinished messages, including those in flight.", label="Backlog", at=MAIN,
        sort=True)]
    in_flight: Annotated[int, doc("How many of them are in flight.", at=MAIN, sort=True)]
    bytes: Annotated[int, doc("The size of the unfinished messages in bytes.", label="Size", at=ON_CHOICE | LINE,
        sort=True)]
    resident_bytes: Annotated[int, doc("The memory of its resident messages in bytes.", label="In memory")]
    holes: Annotated[int, doc("The number of holes in its ack set.", label="Holes in its ack set")]
    delayed: Annotated[int, doc("How many messages wait for the time of their redelivery.",
        label="Waiting for redelivery")]
    enqueued: Annotated[int, doc("The number of messages that the topic received for it.", at=ON_CHOICE, sort=True)]
    dequeued: Annotated[int, doc("The number of acknowledged messages.", at=ON_CHOICE, sort=True)]
    dispatched: Annotated[int, doc("The number of deliveries to its consumer.")]
    redelivered: Annotated[int, doc("The number of messages returned for redelivery.")]
    expired: Annotated[int, doc("The number of expired messages.")]
    dead_lettered: Annotated[int, doc("The number of messages that became dead letters, without duplicates.",
        label="Dead-lettered", is_bad=True)]
    suppressed: Annotated[int, doc("The number of dead letters that clients suppressed as duplicates.",
        label="Duplicates suppressed")]
    in_rate: Annotated[float, doc("Messages that come, per second, in the last seconds.", label="Rate in",
        at=LIST | TILE, sort=True)]
    out_rate: Annotated[float, doc("Messages that are acknowledged, per second, in the last seconds.", label="Rate out",
        at=LIST | TILE, sort=True)]
    oldest_message_age_seconds: Annotated[float | None, doc("The age of the first message; null if unknown.",
        label="Oldest", at=MAIN, sort="oldest")]
    offline_seconds: Annotated[float | None, doc("For how long it has been offline; null while it has a consumer.",
        label="Offline for", at=LINE | TILE)]
    blocked: Annotated[Blocked | None, doc("Why the subscription is blocked; null if it is not.", at=LINE)]
    consumers: Annotated[list[Consumer], doc("The consumer; empty while it is offline.")]


class StreamStatus(Status, frozen=True):
    """A stream. ``appended`` begins at zero when the broker starts; the others are exact at any time."""

    name: Annotated[str, doc("The name.", label="Stream", at=TABLES)]
    partitions: Annotated[int, gauge("quire_stream_partitions", "Partitions.", at=TABLES, sort=True)]
    records: Annotated[int, gauge("quire_stream_messages", "Messages in the stream.", label="Messages", at=TABLES,
        sort=True)]
    bytes: Annotated[int, gauge("quire_stream_bytes", "Size of the messages in bytes.", label="Size", at=TABLES,
        sort=True)]
    resident_bytes: Annotated[int, gauge("quire_stream_resident_bytes", "Memory of resident messages in bytes.")]
    appended: Annotated[int, counter("quire_stream_appended_messages", "Messages that were sent to the stream.",
        at=TABLES, sort=True)]
    groups: Annotated[int, gauge("quire_stream_consumer_groups", "Consumer groups.", at=TABLES, sort=True)]
    members: Annotated[int, gauge("quire_stream_members", "Members of groups, connected or awaited.", at=TABLES,
        sort=True)]
    readers: Annotated[int, gauge("quire_stream_readers", "Readers.", at=MORE | LINE)]
    pins: Annotated[int, gauge("quire_stream_pins", "Pins.", at=MORE | LINE)]
    in_rate: Annotated[float, doc("Messages that come, per second, in the last seconds.", label="Rate in",
        at=LIST | TILE, sort=True)]
    out_rate: Annotated[float, doc("Messages that all groups acknowledge, per second, in the last seconds.",
        label="Rate out", at=LIST | TILE, sort=True)]


class PartitionExtent(Status, frozen=True):
    """The offsets of a partition that can be read."""

    partition: Annotated[int, doc("The number of the partition.", at=TABLES)]
    earliest: Annotated[int, doc("The offset of the first message; the end if there is none.", at=TABLES)]
    end: Annotated[int, doc("The end: no message has this offset or a higher one.", at=TABLES)]
    records: Annotated[int, doc("The number of messages.", label="Messages", at=TABLES)]
    bytes: Annotated[int, doc("The size of the messages in bytes.", label="Size", at=TABLES)]


class PartitionOffsets(PartitionExtent, frozen=True):
    """The offsets of a partition that can be read, and of a start position."""

    offset: Annotated[int | None, doc("The offset of the requested start position; null if none was requested.",
        at=LINE)] = None


class PartitionStatus(PartitionExtent, frozen=True):
    """A partition."""

    lane: Annotated[int, doc("The number of the lane in the store.", at=LINE)]
    gaps: Annotated[int, doc("How many offsets have no message: it was removed, or its commit failed.", at=TABLES)]
    oldest_timestamp: Annotated[int | None, doc("When the first message was sent, in ms since the epoch; or null.",
        label="Oldest, UTC", at=TABLES, join="min")]
    newest_timestamp: Annotated[int | None, doc("When the last message was sent, in ms since the epoch; or null.",
        label="Newest, UTC", at=TABLES)]


class StreamGroup(Status, frozen=True):
    """A consumer group of a stream."""

    name: Annotated[str, doc("The name.", label="Group", at=TABLES)]
    order: Annotated[str, doc("The order: concurrent, key-ordered or orderly.", at=TABLES)]
    members: Annotated[int, doc("The number of members, including those that the group waits for.", at=TABLES)]
    lag: Annotated[int, doc("The number of messages that the group has not finished, without retries; exact.",
        at=TABLES)]
    in_flight: Annotated[int, doc("The number of messages in flight to members, including retries.", at=TABLES)]
    retries: Annotated[int | None, doc("The number of messages in the retry lane; null if retries wait in place.",
        at=TABLES)]


class StreamPin(Status, frozen=True):
    """A pin."""

    name: Annotated[str, doc("The name.", label="Pin", at=TABLES)]
    offsets: Annotated[dict[int, int], doc("The first offset that the pin keeps, by partition.")]
    until: Annotated[int, doc("When the pin ends, in milliseconds since the epoch.", label="Until, UTC", at=TABLES)]


class StreamPolicy(Status, frozen=True):
    """The settings of a stream's policy for retention and consumer groups, by the names of the settings."""

    partition_key_header: Annotated[str, doc("The header whose value determines the partition.")]
    retention_time: Annotated[float, doc("How long the stream keeps a message, in seconds; -1 for no limit.")]
    retention_bytes: Annotated[int, doc("How many bytes of messages the stream keeps; 0 for no limit.")]
    retention_groups_done: Annotated[bool, doc("Whether a message is removed when all groups have finished it.")]
    consume_timeout: Annotated[float, doc("How long a member may keep a message before it is retried, in seconds.")]
    retry: Annotated[str, doc("Where failed messages wait.")]
    retry_maximum: Annotated[int, doc("How often a failed message is retried; -1 for no limit.")]
    rebalance_strategy: Annotated[str, doc("The strategy that assigns partitions to members.")]
    member_grace: Annotated[float, doc("How long a static member may be disconnected, in seconds.")]


class StreamDetails(Status, frozen=True):
    """The details of a stream."""

    name: Annotated[str, doc("The name.", at=NOWHERE)]
    records: Annotated[int, doc("The number of messages.", label="Messages", at=TILE)]
    bytes: Annotated[int, doc("The size of the messages in bytes.", label="Size", at=TILE)]
    resident_bytes: Annotated[int, doc("The memory of resident messages in bytes.", label="In memory")]
    appended: Annotated[int, doc("The number of messages sent to the stream since the broker started.", at=TILE)]
    in_rate: Annotated[float, doc("Messages that come, per second, in the last seconds.", label="Rate in", at=TILE)]
    out_rate: Annotated[float, doc("Messages that all groups acknowledge, per second, in the last seconds.",
        label="Rate out", at=TILE)]
    readers: Annotated[int, doc("The number of readers.", at=TILE)]
    policy: Annotated[StreamPolicy, doc("The policy of the stream.")]
    partitions: Annotated[list[PartitionStatus], doc("The partitions.")]
    groups: Annotated[list[StreamGroup], doc("The consumer groups, by name.")]
    pins: Annotated[list[StreamPin], doc("The pins, by name.")]


class StreamMessage(Status, frozen=True):
    """A message of a stream."""

    partition: Annotated[int, doc("The number of the partition.", at=LINE)]
    offset: Annotated[int, doc("The offset in the partition.", at=LINE)]
    id: Annotated[str, doc("The message id.", at=LINE)]
    timestamp: Annotated[int, doc("When the message was sent, in milliseconds since the epoch.", label="Sent", at=LINE)]
    size: Annotated[int, doc("The size of headers and body, in bytes.", at=LINE)]
    headers: Annotated[dict[str, str], doc("The headers.")]
    body: Annotated[str, doc("The body as text, or as base64 if it is not UTF-8.", at=LINE, width=60)]
    body_encoding: Annotated[Literal["text", "base64"], doc("The encoding of the body.")]


class GroupCounters(Status, frozen=True):
    """The counters of a group since the broker started, including retries."""

    delivered: Annotated[int, counter("quire_group_delivered_messages", "Deliveries to members.")]
    acknowledged: Annotated[int, counter("quire_group_acknowledged_messages",
        "Messages acknowledged during their lease.")]
    redelivered: Annotated[int, counter("quire_group_redelivered_messages", "Messages returned for a retry.")]
    timed_out: Annotated[int, counter("quire_group_timed_out_messages", "Messages returned because their lease ended.")]
    late: Annotated[int, counter("quire_group_late_acknowledgements", "Late acknowledgements, which counted.")]
    stale: Annotated[int, counter("quire_group_stale_acknowledgements", "Stale acknowledgements, without effect.")]
    fenced: Annotated[int, counter("quire_group_fenced_acknowledgements", "Fenced acknowledgements, without effect.")]
    dead_lettered: Annotated[int, counter("quire_group_dead_lettered_messages", "Messages that became dead letters.")]
    lost: Annotated[int, counter("quire_group_lost_messages", "Unfinished messages that retention removed.")]


class ConsumerGroupStatus(Status, frozen=True):
    """The status of a group or a reader. Lag, messages in flight and retries are exact."""

    stream: Annotated[str, doc("The name of the stream.", at=TABLES, sort=True)]
    name: Annotated[str, doc("The name of the group.", label="Group", at=TABLES)]
    mode: Annotated[str, doc("The mode: clustering or broadcasting.")]
    order: Annotated[str, doc("The order: concurrent, key-ordered or orderly.", at=ON_CHOICE | LINE)]
    strategy: Annotated[str, doc("The strategy that assigns partitions.", at=ON_CHOICE)]
    partitions: Annotated[int, doc("The number of partitions of the stream.", at=NOWHERE)]
    members: Annotated[int, gauge("quire_group_members", "Members, including those that the group waits for.",
        at=TABLES, sort=True)]
    connected: Annotated[int, gauge("quire_group_connected_members", "Connected members.", label="Connected members",
        at=TILE)]
    lag: Annotated[int, gauge("quire_group_lag_messages", "Messages that the group has not finished, without retries.",
        at=MAIN, sort=True)]
    in_flight: Annotated[int, gauge("quire_group_in_flight_messages", "Messages in flight, including retries.", at=MAIN,
        sort=True)]
    retries: Annotated[int | None, gauge("quire_group_retry_messages", "Messages in the retry lane; null if none.",
        at=MAIN, sort=True)]
    in_rate: Annotated[float, doc("Messages that come, per second, in the last seconds.", label="Rate in", at=LIST,
        sort=True)]
    out_rate: Annotated[float, doc("Messages that are acknowledged, per second, in the last seconds.", label="Rate out",
        at=LIST, sort=True)]
    oldest_message_age_seconds: Annotated[float | None, gauge("quire_group_oldest_message_age_seconds",
        "Age of the oldest unfinished message, including retries; null or absent if unknown.", label="Oldest", at=MAIN,
        sort="oldest")]
    epoch: Annotated[int, gauge("quire_group_epoch", "Epoch of the newest assignment; rebalances and resets raise it.",
        at=LINE | FACT, join="max")]
    blocked: Annotated[Blocked | None, gauge("quire_group_blocked_seconds",
        "How long a partition or the retries have been blocked.", at=LINE, join="max")]
    counters: GroupCounters


class PartitionLag(Status, frozen=True):
    """The lag of a group in one partition."""

    partition: Annotated[int, doc("The number of the partition.", at=TABLES)]
    base: Annotated[int, doc("The group has finished everything up to this offset.", label="Finished to", at=TABLES)]
    end: Annotated[int, doc("The end of the partition: the offset after its last message.", at=TABLES)]
    lag: Annotated[int, doc("The number of unfinished messages.", at=TABLES)]
    in_flight: Annotated[int, doc("How many of them are in flight.", at=TABLES)]
    owners: Annotated[list[str], doc("The members that own it, including those that drain it.", at=TABLES)]


class GroupPartitionStatus(PartitionLag, frozen=True):
    """The details of one partition of a group."""

    holes: Annotated[int, doc("The number of holes in the ack set.", at=TABLES)]
    ack_set_bytes: Annotated[int, doc("The size of the ack set in the store, in bytes.", label="Ack set", at=LINE)]
    waiting_retries: Annotated[int, doc("How many failed messages wait in place, not in the retry lane.", at=TABLES)]
    lost: Annotated[int, doc("How many unfinished messages retention removed since the broker started.", at=TABLES)]
    oldest_message_age_seconds: Annotated[float | None, doc("The age of the first unfinished message, or null.",
        label="Oldest", at=TABLES)]
    blocked: Annotated[Blocked | None, doc("Why the partition is blocked; null if it is not.", at=TABLES)]


class GroupRetries(Status, frozen=True):
    """The retry lane of a group."""

    depth: Annotated[int, doc("The number of messages, including those in flight.", label="Messages", at=LIST)]
    in_flight: Annotated[int, doc("How many of them are in flight.", at=LIST)]
    delayed: Annotated[int | None, doc("How many wait for their retry; null without members.",
        label="Waiting for their time", at=LIST)]
    next_due: Annotated[int | None, doc("When the next retry is due, in milliseconds since the epoch; or null.",
        label="Next due, UTC", at=LIST, join="min")]
    oldest_message_age_seconds: Annotated[float | None, doc("The age of the first message; null if unknown.",
        label="Oldest", at=LIST)]
    blocked: Annotated[Blocked | None, doc("Why the retries are blocked; null if they are not.", at=LIST)]


class GroupMemberInfo(Status, frozen=True):
    """A member of a group. Prefetch and timeout are null if it has not connected since the broker started."""

    id: Annotated[str, doc("The id of the member.", label="Member", at=TABLES)]
    static: Annotated[bool, doc("Whether it is a static member, which the group waits for.", at=LINE)]
    room: Annotated[str, doc("The machine room that the member names; empty if it names none.", at=LINE)]
    connected: Annotated[bool, doc("Whether the member is connected.")]
    connection: Annotated[str | None, doc("The address of its connection; null while the group waits for it.",
        at=TABLES)]
    since: Annotated[int, doc("Since when the member is connected or awaited, in milliseconds since the epoch.",
        label="Since, UTC", at=TABLES)]
    partitions: Annotated[list[int], doc("The numbers of the partitions that the member owns.", at=TABLES)]
    revoking: Annotated[list[int], doc("The numbers of the partitions that the member drains.", at=TABLES)]
    in_flight: Annotated[int | None, doc("How many messages the member has in flight.", at=TABLES)]
    prefetch: Annotated[int | None, doc("The prefetch of the member.", at=TABLES)]
    consume_timeout_seconds: Annotated[float | None, doc("The consume timeout of the member.", label="Consume timeout",
        at=LIST)]
    lease_ends_seconds: Annotated[float | None, doc("In how many seconds its first lease ends; or null.",
        label="Lease ends in", at=TABLES)]


class ConsumerGroupDetails(ConsumerGroupStatus, frozen=True):
    """The details of a group."""

    selector: Annotated[str | None, doc("The selector of the group; null for none.")]
    start: Annotated[str, doc("The start position of the group, as requested.", label="Started at")]
    created: Annotated[int, doc("When the group was created, in milliseconds since the epoch.", label="Created, UTC")]
    partition_states: Annotated[list[GroupPartitionStatus], doc("The partitions.")]
    retry_lane: Annotated[GroupRetries | None, doc("The retry lane; null if retries wait in place.")]
    group_members: Annotated[list[GroupMemberInfo], doc("The members.")]


class GroupLag(Status, frozen=True):
    """How far a group is behind."""

    lag: Annotated[int, doc("The number of messages that the group has not finished, without retries.")]
    in_flight: Annotated[int, doc("The number of messages in flight to members, including retries.")]
    retries: Annotated[int | None, doc("The number of messages in the retry lane; null if retries wait in place.")]
    partitions: Annotated[list[PartitionLag], doc("The lag of each partition.")]


class PartitionAssignment(Status, frozen=True):
    """The owners of a partition in the preview."""

    partition: Annotated[int, doc("The number of the partition.", at=LINE)]
    members: Annotated[list[str], doc("The members that would own it.", label="New owners", at=LINE)]
    owners: Annotated[list[str], doc("The members that own it now.", at=LINE)]


class Assignment(Status, frozen=True):
    """The assignment of partitions in the preview."""

    strategy: Annotated[str, doc("The strategy.")]
    moved: Annotated[int, doc("How many partitions would change their owner.")]
    partitions: Annotated[list[PartitionAssignment], doc("The partitions.")]


class DiskUse(Status, frozen=True):
    """A watched disk."""

    free: Annotated[int, doc("Available space, in bytes: free space and the reserve.")]
    limit: Annotated[int, doc("With less available space, the broker holds producers, in bytes.")]
    reserved: Annotated[int, doc("The reserve, in bytes.")]


class StoreUse(Status, frozen=True):
    """The store."""

    url: Annotated[str, doc("The URL of the store.")]
    bytes: Annotated[int, gauge("quire_store_bytes", "Size of all stored messages in bytes.")]
    limit: Annotated[int, gauge("quire_store_limit_bytes", "Size at which producers are held.")]
    sync: Annotated[str, doc("When a commit is on disk: the setting store.sync.")]
    disk: Annotated[DiskUse | None, doc("The disk; null if the broker does not watch it.")]


class MemoryUse(Status, frozen=True):
    """The memory of resident messages."""

    used: Annotated[int, gauge("quire_memory_used_bytes", "Memory of resident messages in bytes.")]
    peak: Annotated[int, gauge("quire_memory_peak_bytes", "Highest memory since the start, in bytes.")]
    limit: Annotated[int, gauge("quire_memory_limit_bytes", "Limit of the memory of resident messages in bytes.")]


class SpoolUse(Status, frozen=True):
    """The spool of non-persistent messages."""

    bytes: Annotated[int, gauge("quire_spool_bytes", "Size of non-persistent messages in the spool in bytes.")]
    limit: Annotated[int, gauge("quire_spool_limit_bytes", "Size at which producers are held.")]
    disk: Annotated[DiskUse | None, doc("The disk; null if the broker does not watch it.")]


State = Literal["running", "stopping", "store-failed", "suspended", "standby"]


class BrokerStatus(Status, frozen=True):
    """A running broker."""

    name: Annotated[str, doc("The name of the broker.")]
    version: Annotated[str, doc("The version of Quire.")]
    state: Annotated[State,
        doc("Whether the broker runs, stops, waits for the lease of its store, or cannot write to its store.")]
    uptime_seconds: Annotated[float, gauge("quire_uptime_seconds", "Seconds since the broker started.")]
    stomp: Annotated[str, doc("The address for STOMP clients.")]
    openwire: Annotated[str, doc("The address for OpenWire clients.")]
    http: Annotated[str, doc("The address of the HTTP API.")]
    connections: Annotated[int, gauge("quire_connections", "Open connections.")]
    queues: Annotated[int, doc("The number of queues, without temporary ones.")]
    messages: Annotated[int, doc("The number of messages in these queues.")]
    topics: Annotated[int, doc("The number of topics, without temporary ones.")]
    durables: Annotated[int, doc("The number of durable subscriptions.")]
    temporaries: Annotated[int, gauge("quire_temporary_destinations", "Temporary queues and topics.")]
    scheduled: Annotated[int, doc("The number of scheduled messages.")]
    prepared: Annotated[int, doc("The number of prepared XA transactions.")]
    memory: Annotated[MemoryUse, doc("The memory of resident messages.")]
    store: Annotated[StoreUse, doc("The store.")]
    spool: Annotated[SpoolUse, doc("The spool of non-persistent messages.")]
    producers_held: Annotated[list[HeldProducer], doc("The held producers.")]
    store_error: Annotated[str | None, doc("Why the store accepts no writes; null if it does.")]
    store_error_age_seconds: Annotated[float | None,
        doc("For how long it has accepted none, in seconds; null if it does.")]
    clock_set: Annotated[str | None, doc("How the clock was set within the last hour, by over a minute, or null.")]


class Connection(Status, frozen=True):
    """A client's connection."""

    address: Annotated[str, doc("The address of the client.", label="Address", at=LIST, sort=True)]
    client_id: Annotated[str | None, doc("The client id; null for none.", at=LIST, sort=True)]
    protocol: Annotated[str, doc("The protocol, with its version.", at=LIST, sort=True)]
    connected_seconds: Annotated[float, doc("For how long it has been connected.", label="Connected for", at=LIST,
        sort="connected")]
    consumers: Annotated[int, doc("How many subscriptions it has; a wildcard has one for each destination.", at=LIST,
        sort=True)]
    destinations: Annotated[list[str], doc("What it consumes: the first hundred destinations, by name.",
        label="Consumes", at=LIST)]
    in_flight: Annotated[int, doc("How many messages it has that are not acknowledged.", at=LIST, sort=True)]
    held: Annotated[bool, doc("Whether its input waits because a limit is reached.")]
    writable: Annotated[bool, doc("Whether it reads what the broker sends.")]


class ConnectedConsumer(Status, frozen=True):
    """A consumer, and whose it is."""

    client_id: Annotated[str | None, doc("The client id of its connection; null for none.", at=LIST, sort=True)]
    protocol: Annotated[str, doc("The protocol of its connection.")]
    destination: Annotated[str, doc("What it consumes, with its kind: ``queue://orders``.", at=LIST, sort=True)]
    consumer: Annotated[Consumer, doc("The consumer.")]


class Prepared(Status, frozen=True):
    """A prepared transaction.

    ``state`` is ``prepared``, ``committing``, ``rolling back`` or ``decided``: by an operator, with this ``outcome``,
    which the broker keeps for the transaction manager until it is forgotten. The messages that the transaction
    acknowledged are hidden from consumers until then.
    """

    xid: Annotated[str, doc("The name of the transaction.", label="Transaction", at=TABLES)]
    state: Annotated[str, doc("Its state.", at=TABLES, sort=True)]
    outcome: Annotated[str, doc("What an operator has decided; empty if none has.", at=TABLES)]
    age_seconds: Annotated[float, doc("How long it has been prepared.", label="Prepared for", at=TABLES, sort="age")]
    messages: Annotated[int, doc("How many messages it sends.", at=TABLES, sort=True)]
    acknowledgements: Annotated[int, doc("How many messages it has acknowledged.", at=TABLES)]
    bytes: Annotated[int, doc("The size of the messages it sends, in bytes.", label="Size", at=TABLES)]


class Scheduled(Status, frozen=True):
    """A scheduled message."""

    id: Annotated[str, doc("The id of the scheduled message.", label="Id", at=TABLES)]
    message_id: Annotated[str, doc("The message id.", at=LINE)]
    destination: Annotated[str, doc("Where it is sent.", at=TABLES)]
    due: Annotated[int, doc("When it is sent next.", label="Due, UTC", at=TABLES)]
    delay: Annotated[int, doc("The delay that was asked for, in milliseconds.")]
    period: Annotated[int, doc("The time between two sends, in milliseconds; 0 without repeats.", label="Period (ms)",
        at=TABLES)]
    repeat: Annotated[int, doc("How often it was to be repeated; -1 for no end.")]
    left: Annotated[int, doc("How many repeats are left after the next send; -1 for no end.", label="Repeats left",
        at=TABLES)]
    cron: Annotated[str, doc("The cron entry; empty for none.", at=TABLES)]
    priority: Annotated[int, doc("The priority.", at=LIST)]
    persistent: Annotated[bool, doc("Whether it is persistent.")]
    time_to_live: Annotated[int | None, doc("How long each send lives, in milliseconds; null for no limit.")]
    size: Annotated[int, doc("The size of headers and body, in bytes.", at=TABLES)]


class UserStatus(Status, frozen=True):
    """A user."""

    name: Annotated[str, doc("The name.", label="User", at=TABLES)]
    roles: Annotated[list[str], doc("The roles.", at=TABLES)]
    certificates: Annotated[list[str], doc("The subjects of client certificates that prove who it is.", at=LINE)]
    has_password: Annotated[bool, doc("Whether it can log in with a password.", label="Password", at=LINE)]
    disabled: Annotated[bool, doc("Whether the broker refuses it.", at=LINE)]
    in_file: Annotated[bool, doc("Whether it is in the settings file, and is changed there only.", label="In settings",
        at=LINE)]


class RuleStatus(Status, frozen=True):
    """An access rule."""

    id: Annotated[str, doc("The id of the rule.", label="Rule", at=TABLES)]
    effect: Annotated[str, doc("allow or deny.", at=TABLES)]
    subject: Annotated[str, doc("Whom it is about: user:NAME, role:NAME or *.", at=TABLES)]
    actions: Annotated[list[str], doc("What it allows or denies.", at=TABLES)]
    destination: Annotated[str, doc("The pattern of the destinations.", at=TABLES)]
    origin: Annotated[str, doc("settings, runtime or built-in.", at=TABLES)]


class TokenStatus(Status, frozen=True):
    """A token."""

    id: Annotated[str, doc("The id of the token.", label="Token", at=TABLES)]
    owner: Annotated[str, doc("Whose it is.", at=TABLES)]
    roles: Annotated[list[str] | None, doc("Its only roles; null for all of the user's.", at=TABLES)]
    created: Annotated[int, doc("When it was made.", label="Created, UTC", at=TABLES)]
    until: Annotated[int, doc("Until when it is valid.", label="Until, UTC", at=TABLES)]
    text: Annotated[str, doc("What it is for.", at=TABLES)]


class OperationStatus(Status, frozen=True):
    """A long operation."""

    id: Annotated[str, doc("Its id.")]
    action: Annotated[str, doc("What it does: the name of the event in the log, messages.purged say.",
        label="Operation", at=LIST)]
    target: Annotated[str, doc("To what.", label="Of", at=LIST)]
    by: Annotated[str, doc("Who asked for it.", at=LIST)]
    state: Annotated[Literal["running", "done", "failed", "cancelled"], doc("Its state.", at=LIST, unit="text")]
    done: Annotated[int, doc("How many messages are done.", at=LIST)]
    of: Annotated[int | None, doc("How many there are, if that is known.", label="Of", at=LIST)]
    background: Annotated[bool, doc("Whether nothing waits for it.")]
    started_at: Annotated[int, doc("When it began, in milliseconds since the epoch.", label="Began, UTC", at=LIST)]
    ended_at: Annotated[int | None, doc("When it ended; null while it runs.", label="Ended, UTC", at=LIST)]
    error: Annotated[str | None, doc("Why it failed; null if it did not.", at=LIST)]


class ClusterBroker(Status, frozen=True):
    """A broker of a cluster that lives."""

    name: Annotated[str, doc("Its name in the cluster.", label="Broker", at=LINE)]
    stomp: Annotated[str, doc("The address for STOMP clients.", label="STOMP", at=LINE)]
    openwire: Annotated[str, doc("The address for OpenWire clients.", label="OpenWire", at=LINE)]
    http: Annotated[str, doc("The address of the HTTP API.", label="HTTP", at=LINE)]
    shards: Annotated[list[int], doc("The shards that it runs.", at=LINE)]
    standing_by: Annotated[list[int], doc("The shards that it waits for.", at=LINE)]
    leaving: Annotated[bool, doc("Whether it gives up its shards.", at=LINE)]
    version: Annotated[str, doc("The version of Quire.", at=LINE)]


class Shard(Status, frozen=True):
    """A shard."""

    shard: Annotated[int, doc("Its number.", at=LINE)]
    broker: Annotated[str | None, doc("The broker that runs it; null if none does.", at=LINE)]
    wanted: Annotated[str | None, doc("The broker that should run it.", at=LINE)]
    preferred: Annotated[str | None, doc("The broker where an operator wants it; null for any.", at=LINE)]
    epoch: Annotated[int, doc("The epoch of its owner: it counts the owners.", at=LINE, join="max")]
    address: Annotated[str, doc("Where it takes links of other shards.", at=LINE)]
    pid: Annotated[int, doc("The process id of its owner.", label="Process", at=LINE)]
    since: Annotated[int, doc("Since when, in milliseconds since the epoch.", label="Since, UTC", at=LINE)]


class PinnedDestination(Status, frozen=True):
    """A pinned destination of a cluster."""

    destination: Annotated[str, doc("The destination that was pinned.", at=LINE)]
    key: Annotated[str, doc("Its placement key: all destinations with this key lie together.")]
    shard: Annotated[int, doc("Where it is.", at=LINE)]


class ProducerStatus(Status, frozen=True):
    """A producer that numbers its sends."""

    id: Annotated[str, doc("The id of the producer.", at=LINE)]
    sequence: Annotated[int, doc("The highest number that the broker has accepted.", at=LINE)]
    last_sent: Annotated[int, doc("When it sent last; over a restart known to ten minutes.", at=LINE, sort=True)]
