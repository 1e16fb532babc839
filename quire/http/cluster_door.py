"""What operators see and change of the cluster of a broker."""

import asyncio
from functools import cached_property
from typing import TYPE_CHECKING

from quire.cluster.placement import SPREAD
from quire.cluster.view import View
from quire.destination import Destination
from quire.errors import InvalidArgument, QuireError, ShardMoved, UnknownBroker, UnknownDestination
from quire.server.cluster.seat import Seat
from quire.server.service import Service

if TYPE_CHECKING:
    from quire.cluster.directory import Directory


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
        """Pin a destination that is not there yet to a shard, with all that lie together with it."""
        if not 0 <= shard < self.seat.map.shards:
            raise InvalidArgument(f"the cluster has the shards 0 to {self.seat.map.shards - 1}", argument="shard")
        self._key_of(destination)
        await self._give(destination, shard)

    async def unplace(self, destination: Destination) -> None:
        """Have a pinned destination that is not there be where its name says, with all that lie together with it."""
        map, key = self.seat.map, self._key_of(destination)
        if map.pinned(key) is None:
            raise UnknownDestination(f"{destination} is not pinned", destination=str(destination))
        await self._give(destination, map.home_of(key))

    async def _give(self, destination: Destination, shard: int) -> None:
        """Return when the store of this shard says that another one has it."""
        map = self.seat.map
        if (owner := map.shard_of(destination)) != map.own:
            raise ShardMoved(f"{destination} is at shard {owner}", shard=owner)
        if shard == map.own:
            return
        done: asyncio.Future[QuireError | None] = asyncio.get_running_loop().create_future()
        self.seat.pins.give(destination, shard, lambda error: None if done.done() else done.set_result(error))
        if error := await done:
            raise error

    def _key_of(self, destination: Destination) -> str:
        if (key := self.seat.map.key_of(destination)) == SPREAD:
            raise InvalidArgument(f"{destination} is spread: each shard has its own part of it", argument="destination")
        return key

    @cached_property
    def _directory(self) -> "Directory":
        # SQLAlchemy takes 15 MB of memory, which a broker without a cluster has no use for.
        from quire.cluster.directory import Directory

        return Directory(self.seat.store)
