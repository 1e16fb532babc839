"""The state of the broker as a whole, at a glance: rates, limits, history, and what needs attention, in words."""

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from quire.broker.core.core import HoldCause
from quire.clock import told
from quire.errors import InvalidArgument, QuireError
from quire.management.blocked import cause_text, held_producers
from quire.management.sampling import (
    CRITICAL,
    HISTORY_BYTES,
    INFO,
    MOST,
    MOST_HISTORIES,
    SEVERITIES,
    SPANS,
    WARNING,
    Concern,
    existing,
)
from quire.resources import HeldProducer, Status, doc
from quire.units import format_size

if TYPE_CHECKING:
    from quire.broker.broker import Broker
    from quire.management.sampling import Sample, Sampler


NEAR = 0.9  # a limit that is used up to this part is near
HELD_LONG = 10.0  # a producer that is held for so many seconds gets an error soon
VERY_NEAR = 0.97  # one that is used up to this part is reached soon


class Attention(Status, frozen=True):
    """One thing that needs attention."""

    severity: Annotated[Literal["critical", "warning", "info"], doc("How bad it is.")]
    code: Annotated[str, doc("What it is, in one word that stays the same.")]
    text: Annotated[str, doc("What is wrong, in words.")]
    advice: Annotated[str, doc("What to do.")]
    kind: Annotated[str, doc("What it is about: broker, queue, durable or group.")]
    name: Annotated[str, doc("Its name; of a durable subscription CLIENT/NAME, of a group STREAM/GROUP.")]
    since_seconds: Annotated[float | None, doc("For how long; null if unknown.")]


ADVICE = {
    "paused": "Resume it when its consumers may go on.",
    "dead-letters": "Look at their causes, mend the consumer, then redrive or purge them.",
    "no-consumer": "Start a consumer; or purge or delete the queue if its messages are not needed any more.",
    "durable-offline": "Start its client; or delete the durable subscription if it is not needed any more.",
    "consumers-idle": "Look at its consumers: each one says why it is given nothing.",
    "old-message": "Look at the first message and at the consumer that has it; add consumers if they are busy.",
    "slow-consumers": "Add consumers, or let each one do less for a message.",
    "no-member": "Start a member of the group; or delete the group if it is not needed any more.",
    "group-lags": "Add members, as many as there are partitions at the most; look at its retries.",
    "store-failing": "Free space or repair the disk of the store; the broker tries again every second.",
    "producers-held": "Consume or purge messages, free disk space, or raise the limit.",
    "store-near-limit": "Consume or purge messages, or raise store.limit.",
    "spool-near-limit": "Consume or purge non-persistent messages, or raise spool.limit.",
    "memory-near-limit": "Nothing: other messages wait in the store. A higher memory.limit may make deliveries faster.",
    "disk-low": "Free space on the disk.",
    "clock-set": "Synchronise the clock (NTP), and let it be slewed: expirations, schedules and retention go by it.",
    "many-destinations": "Delete destinations that are not used, or raise broker.max_destinations.",
}
"""What to do, by code."""


def attention(broker: "Broker", sampler: "Sampler") -> tuple[list[Attention], int]:
    """The worst concerns, and how many more there are."""
    concerns = sampler.latest.concerns
    found = [_attention(concern, text) for concern, text in _of_broker(broker)]
    total = len(found) + concerns.counts.total()
    found += [_attention(concern, _text(broker, concern)) for concern in concerns.worst()[: MOST - len(found)]]
    found.sort(key=lambda each: SEVERITIES.index(each.severity))
    return found, total - len(found)


def _of_broker(broker: "Broker") -> Iterator[tuple[Concern, str]]:
    core = broker.core
    if (error := broker.failure.error) is not None:
        yield _concern(CRITICAL, "store-failing", broker.failure.age), f"the store accepts no writes: {error}"
    yield from _held(broker)
    uses = (
        ("store", core.stored_bytes, core.settings.store.limit), ("spool", core.spool.used, core.spool.limit),
    )  # fmt: skip
    for what, used, limit in uses:
        if used >= NEAR * limit:
            text = f"the {what} has {format_size(used)} of {format_size(limit)}"
            yield _concern(CRITICAL if used >= VERY_NEAR * limit else WARNING, f"{what}-near-limit"), text
    if core.memory.used >= VERY_NEAR * core.memory.limit:
        text = f"resident messages take {format_size(core.memory.used)} of {format_size(core.memory.limit)}"
        yield _concern(INFO, "memory-near-limit"), text
    for cause, disk in broker.disks.disks.items():
        if disk.room < 2 * disk.limit:
            what = "store" if cause is HoldCause.STORE_DISK else "spool"
            least = format_size(disk.limit)
            text = f"the disk of the {what} has {format_size(disk.room)} left; producers wait below {least}"
            yield _concern(CRITICAL if disk.is_low else WARNING, "disk-low"), text
    yield from _clock(broker)
    limits = core.limits
    if limits.destinations >= NEAR * limits.max_destinations:
        text = f"there are {limits.destinations} of {limits.max_destinations} destinations"
        yield _concern(WARNING, "many-destinations"), text


def _clock(broker: "Broker") -> Iterator[tuple[Concern, str]]:
    clock, step = broker.core.clock, broker.core.wall.latest_step()
    if step is not None:
        yield _concern(WARNING, "clock-set", clock.monotonic() - step.at), told(step)


def _held(broker: "Broker") -> Iterator[tuple[Concern, str]]:
    core = broker.core
    causes = Counter([hold.cause for hold in core.flow.holds.values()])
    for cause, count in causes.items():
        first = next(hold.since for hold in core.flow.holds.values() if hold.cause is cause)
        age = core.clock.monotonic() - first
        text = f"producers wait: {count}, the longest for {age:.0f} s; the cause is {cause}"
        yield _concern(CRITICAL if age >= HELD_LONG else WARNING, "producers-held", age), text


def _text(broker: "Broker", concern: Concern) -> str:
    number, age = f"{concern.number:,}", _age(concern.age)
    texts = {
        "paused": f"deliveries are paused; messages: {number}",
        "dead-letters": f"dead letters: {number}; the oldest is {age} old",
        "no-consumer": f"messages wait, and there is no consumer: {number}; the oldest is {age} old",
        "durable-offline": f"the subscription is offline; messages wait: {number}, the oldest for {age}",
        "consumers-idle": f"consumers have taken nothing for {age}; messages: {number}{_cause(broker, concern)}",
        "old-message": f"the oldest message has waited for {age}; messages: {number}{_cause(broker, concern)}",
        "slow-consumers": f"consumers that do not keep up: {number}, for {age}",
        "no-member": f"messages are not finished, and no member is connected: {number}",
        "group-lags": f"the group lags by {number} messages; the oldest is {age} old",
    }
    return texts[concern.code]


def _cause(broker: "Broker", concern: Concern) -> str:
    try:
        source: Any = existing(broker, concern.kind, concern.name)
    except QuireError:  # it has gone since the sample
        return ""
    text = cause_text(broker, source)
    return f"; {text}" if text else ""


def _concern(rank: int, code: str, age: float | None = None) -> Concern:
    return Concern(rank, 0.0, code, "broker", "", 0, age)


def _attention(concern: Concern, text: str) -> Attention:
    severity: Any = SEVERITIES[concern.rank]
    return Attention(severity, concern.code, text, ADVICE[concern.code], concern.kind, concern.name, concern.age)


def _age(seconds: float | None) -> str:
    if seconds is None:
        return "an unknown time"
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


HELD_SHOWN = 20  # how many held producers are shown, those that wait longest first


class Use(Status, frozen=True):
    """A part of a limit."""

    used: Annotated[int, doc("How many bytes are used.")]
    limit: Annotated[int, doc("The limit in bytes.")]


class DiskSpace(Status, frozen=True):
    """A watched disk."""

    disk: Annotated[Literal["store", "spool"], doc("What is on it.")]
    free: Annotated[int, doc("Available space in bytes.")]
    limit: Annotated[int, doc("With less available space the broker holds producers, in bytes.")]


class OldestMessage(Status, frozen=True):
    """The oldest message that waits."""

    kind: Annotated[str, doc("queue, durable or group.")]
    name: Annotated[str, doc("The name; of a durable subscription CLIENT/NAME, of a group STREAM/GROUP.")]
    age_seconds: Annotated[float, doc("Its age.")]


class ObjectCounts(Status, frozen=True):
    """How many there are."""

    queues: int
    topics: int
    streams: int
    durables: int
    groups: int
    temporaries: int
    scheduled: int
    prepared: int


class HistoryUse(Status, frozen=True):
    """What the history of rates takes."""

    objects: Annotated[int, doc("How many destinations, durable subscriptions and groups have a history.")]
    limit: Annotated[int, doc("How many may have one; those with traffic come first.")]
    bytes: Annotated[int, doc("The memory of all of them in bytes, about.")]


class Overview(Status, frozen=True):
    """The broker as a whole. Rates, depth and ages are those of the last sample, without temporary destinations."""

    name: Annotated[str, doc("The name of the broker.")]
    version: Annotated[str, doc("The version of Quire.")]
    state: Annotated[str, doc("running, stopping, suspended or store-failed.")]
    uptime_seconds: Annotated[float, doc("Seconds since the broker started.")]
    at: Annotated[int, doc("The time of the broker, in milliseconds since the epoch.")]
    sampled_seconds: Annotated[float | None, doc("The age of the last sample; null if there is none yet.")]
    in_rate: Annotated[float, doc("Messages that come to queues, topics and streams, per second.")]
    out_rate: Annotated[float, doc("Messages acknowledged, or delivered by topics, per second.")]
    depth: Annotated[int, doc("Messages in queues, and in the backlog of durable subscriptions.")]
    in_flight: Annotated[int, doc("Those of them that are in flight.")]
    oldest: Annotated[OldestMessage | None, doc("The oldest message, if known.")]
    memory: Annotated[Use, doc("The memory of resident messages.")]
    store: Annotated[Use, doc("The messages in the store.")]
    spool: Annotated[Use, doc("The non-persistent messages in the spool.")]
    disks: Annotated[list[DiskSpace], doc("The watched disks.")]
    held: Annotated[int, doc("How many producers are held.")]
    producers_held: Annotated[list[HeldProducer], doc("The first twenty of them, the longest held first.")]
    connections: Annotated[int, doc("Open connections of clients.")]
    consumers: Annotated[int, doc("Consumers of queues and durable subscriptions.")]
    counts: Annotated[ObjectCounts, doc("The number of destinations and others.")]
    history: Annotated[HistoryUse, doc("What the history takes.")]
    attention: Annotated[list[Attention], doc("What needs attention, the worst first; fifty at the most.")]
    attention_left_out: Annotated[int, doc("How many more there are.")]


def overview(broker: "Broker", sampler: "Sampler", **process: Any) -> Overview:
    """It costs the same however many destinations there are; ``process`` has the fields that only the process knows."""
    sample, core, now = sampler.latest, broker.core, broker.core.clock.now_ms()
    concerns, left_out = attention(broker, sampler)
    return Overview(
        **process, at=now, sampled_seconds=max(now - sample.at_ms, 0) / 1000 if sample.at_ms else None,
        in_rate=round(sample.in_rate, 3), out_rate=round(sample.out_rate, 3), depth=sample.depth,
        in_flight=sample.in_flight, oldest=_oldest(sample, now), memory=Use(core.memory.used, core.memory.limit),
        store=Use(core.stored_bytes, core.settings.store.limit), spool=Use(core.spool.used, core.spool.limit),
        disks=disk_space(broker), held=len(core.flow.holds),
        producers_held=held_producers(broker, most=HELD_SHOWN),
        consumers=sample.consumers, counts=_counts(broker),
        history=HistoryUse(sample.histories, MOST_HISTORIES, (sample.histories + 1) * HISTORY_BYTES),
        attention=concerns, attention_left_out=left_out,
    )  # fmt: skip


def _oldest(sample: "Sample", now: int) -> OldestMessage | None:
    if sample.oldest is None:
        return None
    sent, kind, name = sample.oldest
    return OldestMessage(kind, name, max(now - sent, 0) / 1000)


def _counts(broker: "Broker") -> ObjectCounts:
    found, temporaries = broker.destinations, broker.routing.temporaries
    return ObjectCounts(
        queues=len(found.queues), topics=len(found.topics), streams=len(found.streams),
        durables=len(broker.durables), groups=sum([len(stream.groups) for stream in found.streams.values()]),
        temporaries=len(temporaries.queues) + len(temporaries.topics), scheduled=broker.schedule.depth,
        prepared=len(broker.xa.prepared()),
    )  # fmt: skip


def disk_space(broker: "Broker") -> list[DiskSpace]:
    return [
        DiskSpace("store" if cause is HoldCause.STORE_DISK else "spool", disk.room, disk.limit)
        for cause, disk in broker.disks.disks.items()
    ]


Values = list[float | None]


class HistoryPoints(Status, frozen=True):
    """The last minutes or hours of an object: arrays of the same length. Null stands for what is not known."""

    of: Annotated[str, doc("broker, queue, topic, stream, durable or group.")]
    name: Annotated[str, doc("The name; empty for the broker.")]
    span: Annotated[str, doc("How far back: 5m, 1h or 24h.")]
    step_seconds: Annotated[int, doc("The time between two points, at the least.")]
    at: Annotated[list[int], doc("The times of the points, in milliseconds since the epoch, oldest first.")]
    entered: Annotated[Values, doc("Messages that came, per second, up to each point.")] = msgspec.field(name="in")
    left: Annotated[Values, doc("Messages that left, per second.")] = msgspec.field(name="out")
    depth: Annotated[Values, doc("Messages at that time; of a group its lag.")]
    oldest: Annotated[Values, doc("The age of the first message in seconds.")]


def history(broker: "Broker", sampler: "Sampler", of: str, name: str, span: str) -> HistoryPoints:
    """Without traffic there is no history yet; an unknown object is an error."""
    index = next((index for index, known in enumerate(SPANS) if known.name == span), None)
    if index is None:
        raise InvalidArgument(f"span is {span[:20]!r}: write 5m, 1h or 24h", argument="span")
    found = sampler.history
    if of != "broker":
        known = sampler.of(existing(broker, of, name))
        if known is None or known.history is None:
            return HistoryPoints(of, name, span, SPANS[index].step, [], [], [], [], [])
        found = known.history
    wall = broker.core.wall
    slots = list(sampler.timelines[index].slots(wall.steady_ms()))
    points = [found.point(index, slot) for slot, _ in slots]
    times = [wall.shown_ms(at) for _, at in slots]
    return HistoryPoints(
        of, name, span, SPANS[index].step, times, [point.entered for point in points],
        [point.left for point in points], [point.depth for point in points], [point.oldest for point in points],
    )  # fmt: skip
