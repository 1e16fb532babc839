"""What operators see and change of the cluster of a broker."""

import asyncio
from functools import cached_property

from quire.cluster.cluster_tables import PinRow, View
from quire.cluster.directory import Directory
from quire.cluster.placement import SPREAD
from quire.destination import Destination, DestinationKind
from quire.errors import DestinationExists, InvalidArgument, ShardMoved, UnknownBroker, UnknownDestination
from quire.server.cluster.seat import Seat
from quire.server.service import Service

STEP = 200
"""So many destinations are looked at in one turn."""


class ClusterDoor:
    """The cluster, from one of its processes."""

    def __init__(self, service: Service, seat: Seat) -> None:
        self.seat = seat
        self._service = service

    async def view(self) -> View:
        """What the database says now."""
        return await asyncio.to_thread(self._directory.read)

    async def move(self, shard: int, broker: str) -> None:
        """Have a shard run at a broker from now on; an empty name: at any."""
        if not 0 <= shard < self.seat.map.shards:
            raise InvalidArgument(f"the cluster has the shards 0 to {self.seat.map.shards - 1}", argument="shard")
        if broker and broker not in (await self.view()).brokers:
            raise UnknownBroker(f"no broker {broker!r} lives in the cluster", broker=broker)
        await asyncio.to_thread(self._directory.prefer, shard, broker)

    async def leave(self, broker: str) -> None:
        """Have a broker give up its shards and stop."""
        await asyncio.to_thread(self._directory.ask_to_leave, broker)

    async def place(self, destination: Destination, shard: int) -> None:
        """Pin a destination that is not there yet to a shard, with all that lie together with it.

        From the first moment this process refuses what comes for it, so none of it can be made while it looks.
        """
        map, key = self.seat.map, self._key_of(destination)
        if not 0 <= shard < map.shards:
            raise InvalidArgument(f"the cluster has the shards 0 to {map.shards - 1}", argument="shard")
        if map.shard_of(destination) != map.own:
            raise ShardMoved(f"{destination} is at shard {map.shard_of(destination)}", shard=map.shard_of(destination))
        if shard == map.own and map.pinned(key) is None:
            await asyncio.to_thread(self._directory.pin, PinRow(key, str(destination), shard))
            return
        map.pin(key, shard)
        try:
            await self._check_absent(key)
            await asyncio.to_thread(self._directory.pin, PinRow(key, str(destination), shard))
        except BaseException:
            map.forget_pin(key)
            raise

    async def unplace(self, destination: Destination) -> None:
        """Remove the pin of a destination that is not there."""
        map, key = self.seat.map, self._key_of(destination)
        if map.pinned(key) is None:
            raise UnknownDestination(f"{destination} is not pinned", destination=str(destination))
        await self._check_absent(key)
        await asyncio.to_thread(self._directory.unpin, key)

    def _key_of(self, destination: Destination) -> str:
        if (key := self.seat.map.key_of(destination)) == SPREAD:
            raise InvalidArgument(f"{destination} is spread: each shard has its own part of it", argument="destination")
        return key

    async def _check_absent(self, key: str) -> None:
        """Refuse if a destination with a placement key is here."""
        for kind in DestinationKind:
            for number, name in enumerate(list(self._service.broker.destinations.names(kind))):
                destination = Destination(kind, name)
                if self.seat.map.key_of(destination) == key:
                    text = f"{destination} is there, and lies together with it: delete it first"
                    raise DestinationExists(text, destination=str(destination))
                if number % STEP == STEP - 1:
                    await asyncio.sleep(0)

    @cached_property
    def _directory(self) -> Directory:
        return Directory(self.seat.store)
