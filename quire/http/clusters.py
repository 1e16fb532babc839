"""The API's cluster: its brokers and shards; where destinations are; move, pin, leave."""

from typing import Annotated

import msgspec

from quire.cluster.cluster_map import FRONT, View
from quire.cluster.plan import desired_owners
from quire.destination import Destination, DestinationKind, checked
from quire.errors import InvalidDestination
from quire.http.broker import Health, state
from quire.http.endpoint import ADMINISTER, MONITOR, Call, Endpoint, Fields, Number
from quire.resources import ClusterBroker, PinnedDestination, Shard, doc


class ClusterStatus(msgspec.Struct, frozen=True):
    """A cluster, as its database knows it."""

    asked: Annotated[str, doc("The broker that was asked.")]
    shard: Annotated[int | None, doc("The shard of the process that was asked; null if it has none.")]
    brokers: Annotated[list[ClusterBroker], doc("The brokers that live.")]
    shards: Annotated[list[Shard], doc("The shards.")]
    pins: Annotated[list[PinnedDestination], doc("The pinned destinations.")]


class PlaceOfDestination(msgspec.Struct, frozen=True):
    """Where a destination is, or would be."""

    destination: Annotated[str, doc("The destination.")]
    shard: Annotated[int | None, doc("Its shard; null if each shard has its own part of it.")]
    broker: Annotated[str | None, doc("The broker that runs the shard; null if none does.")]
    key: Annotated[str, doc("Its placement key: all destinations with this key lie together.")]
    pinned: Annotated[bool, doc("Whether an operator has pinned it.")]


class NewPlace(Fields, frozen=True):
    """The shard to pin a destination to."""

    shard: Number


class Moving(Fields, frozen=True):
    """The broker that a shard should run at; null for any."""

    broker: str | None = None


class Leaving(Fields, frozen=True):
    """The broker that should leave; null for the one that is asked."""

    broker: str | None = None


class Asked(msgspec.Struct, frozen=True):
    """What the cluster does from now on."""

    asked: str


async def _status(call: Call) -> ClusterStatus:
    context, view = call.services.cluster.context, await call.services.cluster.view()
    wanted = desired_owners(view, context.map.shards)
    running = _running(view)
    brokers = [
        ClusterBroker(
            row.name, row.stomp, row.openwire, row.http,
            sorted(shard for shard, broker in running.items() if broker == row.name), sorted(row.standing_by),
            row.leaving, row.version,
        )
        for _, row in sorted(view.brokers.items())
    ]  # fmt: skip
    shards = []
    for number in range(context.map.shards):
        row = view.shards.get(number)
        known = (row.epoch, row.address, row.pid, int(row.since * 1000)) if row else (0, "", 0, 0)
        preferred = row.preferred or None if row else None
        shards.append(Shard(number, running.get(number), wanted.get(number), preferred, *known))
    pins = [
        PinnedDestination(pin.destination, pin.key, pin.shard)
        for _, pin in sorted(view.pins.items())
        if pin.shard != context.map.home_of(pin.key)
    ]
    return ClusterStatus(context.name, None if context.map.own == FRONT else context.map.own, brokers, shards, pins)


def _destination(call: Call) -> Destination:
    kind = call.path["kind"]
    if kind not in list(DestinationKind):
        raise InvalidDestination(f"{kind[:60]!r} is no kind of destination: write queue, topic or stream")
    return checked(DestinationKind(kind), call.name)


async def _place_of(call: Call) -> PlaceOfDestination:
    """Where a destination is. An owner that is new may be known to the database only."""
    destination, map = _destination(call), call.services.cluster.context.map
    shard, broker = None if map.is_spread(destination) else map.shard_of(destination), None
    if shard is not None:
        peer = map.peer(shard)
        broker = peer.broker if peer else _running(await call.services.cluster.view()).get(shard)
    key = map.key_of(destination)
    return PlaceOfDestination(str(destination), shard, broker, key, map.pinned(key) is not None)


def _running(view: View) -> dict[int, str]:
    return {row.shard: row.broker for row in view.shards.values() if row.address and row.broker in view.brokers}


async def _place(call: Call) -> Asked:
    destination, shard = _destination(call), call.body.shard
    await call.services.cluster.place(destination, shard)
    call.audit("cluster.placed", "{destination} was pinned to shard {shard}", destination=str(destination), shard=shard)
    return Asked(f"{destination} is at shard {shard} within a second")


async def _unplace(call: Call) -> Asked:
    destination = _destination(call)
    await call.services.cluster.unplace(destination)
    call.audit("cluster.unplaced", "the pin of {destination} was removed", destination=str(destination))
    return Asked(f"{destination} is where its name says within a second")


async def _move(call: Call) -> Asked:
    shard, broker = int(call.path["shard"]) if call.path["shard"].isdecimal() else -1, call.body.broker or ""
    await call.services.cluster.move(shard, broker)
    call.audit("cluster.moved", "shard {shard} should run at {broker}", shard=shard, broker=broker)
    return Asked(f"shard {shard} moves to broker {broker}" if broker else f"shard {shard} may run at any broker")


async def _leave(call: Call) -> Asked:
    broker = call.body.broker or call.services.cluster.context.name
    await call.services.cluster.leave(broker)
    call.audit("cluster.left", "broker {broker} should leave", broker=broker)
    return Asked(f"broker {broker} leaves: others take its shards, then it stops")


async def _stop(call: Call) -> Health:
    if call.services.context is not None:
        await call.services.cluster.leave(call.services.cluster.context.name)
    else:
        call.service.ask_stop()
    return Health(state(call.service))


ENDPOINTS = [
    Endpoint("GET", "/cluster", MONITOR, "Get the brokers and shards of the cluster.", _status, ClusterStatus),
    Endpoint(
        "GET", "/cluster/places/{kind}/{name}", MONITOR, "Get the shard of a destination.", _place_of,
        PlaceOfDestination,
    ),
    Endpoint(
        "PUT", "/cluster/places/{kind}/{name}", ADMINISTER,
        "Pin a destination that does not exist yet to a shard, with those that lie together with it.", _place, Asked,
        body=NewPlace,
    ),
    Endpoint(
        "DELETE", "/cluster/places/{kind}/{name}", ADMINISTER, "Remove the pin of a destination that does not exist.",
        _unplace, Asked,
    ),
    Endpoint(
        "POST", "/cluster/shards/{shard}/move", ADMINISTER, "Move a shard to a broker, for good.", _move, Asked,
        body=Moving,
    ),
    Endpoint(
        "POST", "/cluster/leave", ADMINISTER, "Have a broker leave: others take its shards, then it stops.", _leave,
        Asked, body=Leaving,
    ),
    Endpoint(
        "POST", "/broker/stop", ADMINISTER, "Stop the broker. All messages that it confirmed are on disk.", _stop,
        Health,
    ),
]  # fmt: skip
