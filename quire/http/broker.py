"""The API's broker: is it well, what does it use, stop it."""

from typing import Literal

import msgspec

from quire import __version__
from quire.broker.broker import Broker
from quire.broker.core.flow import HoldCause
from quire.http.endpoint import Call, Endpoint
from quire.management.consumer_status import HeldProducer, held_producers
from quire.server.service import Service
from quire.store.urls import shown

State = Literal["running", "stopping", "store-failed"]


class DiskUse(msgspec.Struct, frozen=True):
    """A watched disk. With less than ``limit`` bytes ``free`` producers are held; ``reserved`` are part of ``free``."""

    free: int
    limit: int
    reserved: int


class StoreUse(msgspec.Struct, frozen=True):
    """The store. ``bytes`` are those of all messages; at ``limit`` producers are held."""

    url: str
    bytes: int
    limit: int
    sync: str
    disk: DiskUse | None


class MemoryUse(msgspec.Struct, frozen=True):
    """What messages take in memory: now, at the most so far, and how much they may."""

    used: int
    peak: int
    limit: int


class SpoolUse(msgspec.Struct, frozen=True):
    """What non-persistent messages take on disk, and how much they may."""

    bytes: int
    limit: int
    disk: DiskUse | None


class BrokerStatus(msgspec.Struct, frozen=True):
    """A running broker. ``store_error`` says why the store takes no writes, in the state ``store-failed``.

    ``messages`` are those of all queues but temporary ones, ``temporaries`` temporary queues and topics, ``scheduled``
    messages that are sent later, ``prepared`` XA transactions.
    """

    name: str
    version: str
    state: State
    uptime_seconds: float
    stomp: str
    http: str
    connections: int
    queues: int
    messages: int
    topics: int
    durables: int
    temporaries: int
    scheduled: int
    prepared: int
    memory: MemoryUse
    store: StoreUse
    spool: SpoolUse
    producers_held: list[HeldProducer]
    store_error: str | None


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


async def _health(call: Call) -> Health:
    if (error := call.service.broker.core.store_error) is not None:
        raise error
    return Health(state(call.service))


async def _status(call: Call) -> BrokerStatus:
    return broker_status(call.service)


async def _stop(call: Call) -> Health:
    call.service.ask_stop()
    return Health(state(call.service))


ENDPOINTS = [
    Endpoint("GET", "/health", "Whether all is well; an error when the store takes no writes.", _health, Health),
    Endpoint("GET", "/broker", "State, memory, store, spool and connections.", _status, BrokerStatus),
    Endpoint("POST", "/broker/stop", "Stop the broker. What it confirmed is on disk.", _stop, Health),
]
