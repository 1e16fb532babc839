"""The API's broker: is it well, what does it use, stop it."""

from typing import Annotated, Literal

import msgspec

from quire import __version__
from quire.broker.broker import Broker
from quire.broker.core.flow import HoldCause
from quire.http.endpoint import Call, Endpoint
from quire.management.consumer_status import HeldProducer, held_producers
from quire.management.described import Status, doc, gauge
from quire.server.service import Service
from quire.store.urls import shown

State = Literal["running", "stopping", "store-failed"]


class DiskUse(Status, frozen=True):
    """A watched disk."""

    free: Annotated[int, doc("What is free on it, in bytes, with what is in reserve.")]
    limit: Annotated[int, doc("With less free, producers are held.")]
    reserved: Annotated[int, doc("What is kept in reserve.")]


class StoreUse(Status, frozen=True):
    """The store."""

    url: Annotated[str, doc("Where it is.")]
    bytes: Annotated[int, gauge("quire_store_bytes", "Size of all messages.")]
    limit: Annotated[int, gauge("quire_store_limit_bytes", "Where producers are held.")]
    sync: Annotated[str, doc("When it writes through to the disk.")]
    disk: Annotated[DiskUse | None, doc("Its disk; null if that is not watched.")]


class MemoryUse(Status, frozen=True):
    """What messages take in memory."""

    used: Annotated[int, gauge("quire_memory_used_bytes", "What messages take in memory.")]
    peak: Annotated[int, gauge("quire_memory_peak_bytes", "The most they took so far.")]
    limit: Annotated[int, gauge("quire_memory_limit_bytes", "How much they may take.")]


class SpoolUse(Status, frozen=True):
    """What non-persistent messages take on disk."""

    bytes: Annotated[int, gauge("quire_spool_bytes", "Non-persistent messages on disk.")]
    limit: Annotated[int, gauge("quire_spool_limit_bytes", "Where their producers are held.")]
    disk: Annotated[DiskUse | None, doc("Its disk; null if that is not watched.")]


class BrokerStatus(Status, frozen=True):
    """A running broker."""

    name: Annotated[str, doc("Its name.")]
    version: Annotated[str, doc("That of Quire.")]
    state: Annotated[State, doc("In a word.")]
    uptime_seconds: Annotated[float, gauge("quire_uptime_seconds", "Since the broker started.")]
    stomp: Annotated[str, doc("Where it listens for STOMP.")]
    http: Annotated[str, doc("Where it listens for HTTP.")]
    connections: Annotated[int, gauge("quire_connections", "Open connections.")]
    queues: Annotated[int, doc("How many queues it has, without temporary ones.")]
    messages: Annotated[int, doc("How many messages these have.")]
    topics: Annotated[int, doc("How many topics it has, without temporary ones.")]
    durables: Annotated[int, doc("How many durable subscriptions.")]
    temporaries: Annotated[int, gauge("quire_temporary_destinations", "Temporary queues and topics.")]
    scheduled: Annotated[int, doc("How many messages are sent later.")]
    prepared: Annotated[int, doc("How many XA transactions are prepared.")]
    memory: Annotated[MemoryUse, doc("What messages take in memory.")]
    store: Annotated[StoreUse, doc("The store.")]
    spool: Annotated[SpoolUse, doc("What non-persistent messages take on disk.")]
    producers_held: Annotated[list[HeldProducer], doc("Producers that wait because a limit is reached.")]
    store_error: Annotated[str | None, doc("Why the store takes no writes; null if it does.")]


class Health(msgspec.Struct, frozen=True):
    """Whether the broker takes and gives messages."""

    state: State


def state(service: Service) -> State:
    """The broker's state in a word."""
    if service.is_stopping:
        return "stopping"
    return "running" if service.broker.core.store_error is None else "store-failed"


def _disk(broker: Broker, cause: HoldCause) -> DiskUse | None:
    disk = broker.disks.disks.get(cause)
    return None if disk is None else DiskUse(disk.room, disk.limit, disk.reserved)


def broker_status(service: Service) -> BrokerStatus:
    """What is known of the broker as a whole."""
    broker, settings = service.broker, service.settings
    memory, temporaries = broker.core.memory, broker.routing.temporaries
    error = broker.core.store_error
    return BrokerStatus(
        name=settings.broker.name, version=__version__, state=state(service),
        uptime_seconds=max(service.clock.now_ms() - service.started_at, 0) / 1000,
        stomp=service.stomp_address, http=service.http_address, connections=len(service.connections),
        queues=len(broker.queues), messages=sum(queue.depth for queue in broker.queues.values()),
        topics=len(broker.destinations.topics), durables=len(broker.durables),
        temporaries=len(temporaries.queues) + len(temporaries.topics), scheduled=broker.schedule.depth,
        prepared=len(broker.xa.recover()),
        memory=MemoryUse(memory.used, memory.peak, memory.limit),
        store=StoreUse(shown(service.store.url), broker.core.stored_bytes, settings.store.limit, settings.store.sync,
            _disk(broker, HoldCause.STORE_DISK)),
        spool=SpoolUse(broker.core.spool.used, broker.core.spool.limit, _disk(broker, HoldCause.SPOOL_DISK)),
        producers_held=held_producers(broker), store_error=None if error is None else str(error),
    )  # fmt: skip


def _health(call: Call) -> Health:
    if (error := call.service.broker.core.store_error) is not None:
        raise error
    return Health(state(call.service))


def _stop(call: Call) -> Health:
    call.service.ask_stop()
    return Health(state(call.service))


ENDPOINTS = [
    Endpoint("GET", "/health", "Whether all is well; an error when the store takes no writes.", _health, Health),
    Endpoint(
        "GET", "/broker", "State, memory, store, spool and connections.",
        lambda call: broker_status(call.service), BrokerStatus,
    ),
    Endpoint("POST", "/broker/stop", "Stop the broker. What it confirmed is on disk.", _stop, Health),
]  # fmt: skip
