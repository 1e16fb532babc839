"""The API's broker: is it well, what does it use, stop it."""

from typing import Annotated, Literal

import msgspec

from quire import __version__
from quire.broker.broker import Broker
from quire.broker.core.core import HoldCause
from quire.clock import told
from quire.http.endpoint import Call, Endpoint
from quire.http.rights import FREE, MONITOR
from quire.management.consumer_status import HeldProducer, held_producers
from quire.management.described import Status, doc, gauge
from quire.server.service import Service
from quire.store.urls import shown

State = Literal["running", "stopping", "store-failed", "suspended", "standby"]


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


class BrokerStatus(Status, frozen=True):
    """A running broker."""

    name: Annotated[str, doc("The name of the broker.")]
    version: Annotated[str, doc("The version of Quire.")]
    state: Annotated[
        State, doc("Whether the broker runs, stops, waits for the lease of its store, or cannot write to its store.")
    ]
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
    store_error_age_seconds: Annotated[
        float | None, doc("For how long it has accepted none, in seconds; null if it does.")
    ]
    clock_set: Annotated[str | None, doc("How the clock was set within the last hour, by over a minute, or null.")]


class Health(msgspec.Struct, frozen=True):
    """Whether the broker accepts and delivers messages."""

    state: State


def state(service: Service) -> State:
    """The broker's state in a word."""
    if service.is_stopping:
        return "stopping"
    if service.lease is not None and service.lease.is_suspended:
        return "suspended"
    return "running" if service.broker.failure.error is None else "store-failed"


def _disk(broker: Broker, cause: HoldCause) -> DiskUse | None:
    disk = broker.disks.disks.get(cause)
    return None if disk is None else DiskUse(disk.room, disk.limit, disk.reserved)


def broker_status(service: Service) -> BrokerStatus:
    """What is known of the broker as a whole."""
    broker, settings = service.broker, service.settings
    memory, temporaries = broker.core.memory, broker.routing.temporaries
    error, step = broker.failure.error, broker.core.wall.latest_step()
    return BrokerStatus(
        name=settings.broker.name, version=__version__, state=state(service),
        uptime_seconds=service.uptime,
        stomp=service.stomp_address, openwire=service.openwire_address, http=service.http_address,
        connections=len(service.connections),
        queues=len(broker.queues), messages=sum(queue.depth for queue in broker.queues.values()),
        topics=len(broker.destinations.topics), durables=len(broker.durables),
        temporaries=len(temporaries.queues) + len(temporaries.topics), scheduled=broker.schedule.depth,
        prepared=len(broker.xa.recover()),
        memory=MemoryUse(memory.used, memory.peak, memory.limit),
        store=StoreUse(shown(service.store.url), broker.core.stored_bytes, settings.store.limit, settings.store.sync,
            _disk(broker, HoldCause.STORE_DISK)),
        spool=SpoolUse(broker.core.spool.used, broker.core.spool.limit, _disk(broker, HoldCause.SPOOL_DISK)),
        producers_held=held_producers(broker), store_error=None if error is None else str(error),
        store_error_age_seconds=broker.failure.age,
        clock_set=None if step is None else told(step),
    )  # fmt: skip


def _health(call: Call) -> Health:
    if (error := call.service.broker.failure.error) is not None:
        raise error
    return Health(state(call.service))


ENDPOINTS = [
    Endpoint("GET", "/health", FREE, "Get the health; an error if the store accepts no writes.", _health, Health),
    Endpoint(
        "GET", "/broker", MONITOR, "Get the state, memory, store, spool and connections of the broker.",
        lambda call: broker_status(call.service), BrokerStatus,
    ),
]  # fmt: skip
