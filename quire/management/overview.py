"""The state of the broker as a whole, at a glance: rates, limits, and what needs attention, in words."""

from typing import TYPE_CHECKING, Annotated, Literal

from quire.broker.core.core import HoldCause
from quire.management.attention import Attention, AttentionReader
from quire.management.consumer_status import HeldProducer, held_producers
from quire.management.described import Status, doc
from quire.management.sampling.history import HISTORY_BYTES
from quire.management.sampling.sample_pass import MOST_HISTORIES

if TYPE_CHECKING:
    from quire.broker.broker import Broker
    from quire.management.sampling.sampler import Sampler

HELD_SHOWN = 20
"""How many held producers are shown, those that wait longest first."""


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


class Process(Status, frozen=True):
    """What the overview tells of the process."""

    name: str
    version: str
    state: str
    uptime_seconds: float
    connections: int


class OverviewReader:
    """Tells the overview; it costs the same however many destinations there are."""

    def __init__(self, broker: "Broker", sampler: "Sampler") -> None:
        self._broker = broker
        self._sampler = sampler
        self._attention = AttentionReader(broker, sampler)

    def read(self, process: Process) -> Overview:
        """The overview now."""
        broker, sample = self._broker, self._sampler.latest
        core, now = broker.core, broker.core.clock.now_ms()
        attention, left_out = self._attention.read()
        return Overview(
            name=process.name, version=process.version, state=process.state, uptime_seconds=process.uptime_seconds,
            at=now, sampled_seconds=max(now - sample.at_ms, 0) / 1000 if sample.at_ms else None,
            in_rate=round(sample.in_rate, 3), out_rate=round(sample.out_rate, 3), depth=sample.depth,
            in_flight=sample.in_flight, oldest=self._oldest(now), memory=Use(core.memory.used, core.memory.limit),
            store=Use(core.stored_bytes, core.settings.store.limit), spool=Use(core.spool.used, core.spool.limit),
            disks=disk_space(broker), held=len(core.flow.holds),
            producers_held=held_producers(broker, most=HELD_SHOWN),
            connections=process.connections, consumers=sample.consumers, counts=self._counts(),
            history=HistoryUse(sample.histories, MOST_HISTORIES, (sample.histories + 1) * HISTORY_BYTES),
            attention=attention, attention_left_out=left_out,
        )  # fmt: skip

    def _oldest(self, now: int) -> OldestMessage | None:
        if self._sampler.latest.oldest is None:
            return None
        sent, kind, name = self._sampler.latest.oldest
        return OldestMessage(kind, name, max(now - sent, 0) / 1000)

    def _counts(self) -> ObjectCounts:
        broker = self._broker
        found, temporaries = broker.destinations, broker.routing.temporaries
        return ObjectCounts(
            queues=len(found.queues), topics=len(found.topics), streams=len(found.streams),
            durables=len(broker.durables), groups=sum([len(stream.groups) for stream in found.streams.values()]),
            temporaries=len(temporaries.queues) + len(temporaries.topics), scheduled=broker.schedule.depth,
            prepared=len(broker.xa.prepared()),
        )  # fmt: skip


def disk_space(broker: "Broker") -> list[DiskSpace]:
    """The watched disks."""
    return [
        DiskSpace("store" if cause is HoldCause.STORE_DISK else "spool", disk.room, disk.limit)
        for cause, disk in broker.disks.disks.items()
    ]
