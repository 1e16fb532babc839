"""What endpoints work with beside the request: the operator's door, the cluster, the log, other processes."""

import asyncio
import logging
from collections import deque
from functools import cached_property
from typing import TYPE_CHECKING, Annotated

import msgspec

from quire.broker.broker import Broker
from quire.cluster.cluster_map import SPREAD, View
from quire.destination import Destination
from quire.errors import IllegalState, InvalidArgument, QuireError, ShardMoved, UnknownBroker, UnknownDestination
from quire.http.bulk.launcher import Launcher
from quire.http.console_launcher import ConsoleLauncher
from quire.http.operations import Confirmations, Operations
from quire.http.pull_door import PullMembers
from quire.http.verification import StoreVerification
from quire.management.queues import Management, TopicManagement
from quire.management.streams import ConsumerGroupManagement, StreamManagement
from quire.resources import doc
from quire.server.cluster.kept_pins import ClusterContext
from quire.server.service import Service

if TYPE_CHECKING:
    from quire.cluster.directory import Directory

MOST = 1000  # how many events are kept
MOST_TEXT = 2000  # how many characters of an event's text, and of a value of its data, are kept
MOST_DATA = 20  # how many values of its data are kept


class LoggedEvent(msgspec.Struct, frozen=True):
    """An event of the log."""

    number: Annotated[int, doc("Its number since the broker started.")]
    at: Annotated[int, doc("When, in milliseconds since the epoch.")]
    level: Annotated[str, doc("debug, info, warning or error.")]
    event: Annotated[str, doc("Its name, which stays the same.")]
    text: Annotated[str, doc("What happened, in words; a long text is cut.")]
    data: Annotated[dict[str, str], doc("Its data, as text.")]


class RecentEvents(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self._events: deque[LoggedEvent] = deque(maxlen=MOST)
        self._last = 0

    def emit(self, record: logging.LogRecord) -> None:
        self._last += 1
        data = list(getattr(record, "data", {}).items())[:MOST_DATA]
        self._events.append(
            LoggedEvent(
                self._last, int(record.created * 1000), record.levelname.lower(),
                getattr(record, "event", record.name), record.getMessage()[:MOST_TEXT],
                {name: str(value)[:MOST_TEXT] for name, value in data},
            )
        )  # fmt: skip

    def behind(self, after: int, limit: int) -> tuple[list[LoggedEvent], bool]:
        """The first events behind a number, and whether some behind it are forgotten."""
        found = [event for event in self._events if event.number > after]
        return found[:limit], bool(self._events) and self._events[0].number > after + 1


class ClusterDoor:
    def __init__(self, service: Service, context: ClusterContext) -> None:
        self.context = context
        self._service = service

    async def view(self) -> View:
        return await asyncio.to_thread(self._directory.read)

    async def move(self, shard: int, broker: str) -> None:
        """An empty name: at any broker."""
        if not 0 <= shard < self.context.map.shards:
            raise InvalidArgument(f"the cluster has the shards 0 to {self.context.map.shards - 1}", argument="shard")
        if broker and broker not in (await self.view()).brokers:
            raise UnknownBroker(f"no broker {broker!r} lives in the cluster", broker=broker)
        await asyncio.to_thread(self._directory.prefer, shard, broker)

    async def leave(self, broker: str) -> None:
        await asyncio.to_thread(self._directory.ask_to_leave, broker)

    async def place(self, destination: Destination, shard: int) -> None:
        """Pin a destination that is not there yet to a shard, with all that lie together with it."""
        if not 0 <= shard < self.context.map.shards:
            raise InvalidArgument(f"the cluster has the shards 0 to {self.context.map.shards - 1}", argument="shard")
        self._key_of(destination)
        await self._give(destination, shard)

    async def unplace(self, destination: Destination) -> None:
        """Have a pinned destination that is not there be where its name says, with all that lie together with it."""
        map, key = self.context.map, self._key_of(destination)
        if map.pinned(key) is None:
            raise UnknownDestination(f"{destination} is not pinned", destination=str(destination))
        await self._give(destination, map.home_of(key))

    async def _give(self, destination: Destination, shard: int) -> None:
        """Return when the store of this shard says that another one has it."""
        map = self.context.map
        if (owner := map.shard_of(destination)) != map.own:
            raise ShardMoved(f"{destination} is at shard {owner}", shard=owner)
        if shard == map.own:
            return
        done: asyncio.Future[QuireError | None] = asyncio.get_running_loop().create_future()
        self.context.pins.give(destination, shard, lambda error: None if done.done() else done.set_result(error))
        if error := await done:
            raise error

    def _key_of(self, destination: Destination) -> str:
        if (key := self.context.map.key_of(destination)) == SPREAD:
            raise InvalidArgument(f"{destination} is spread: each shard has its own part of it", argument="destination")
        return key

    @cached_property
    def _directory(self) -> "Directory":
        # SQLAlchemy takes 15 MB of memory, which a broker without a cluster has no use for.
        from quire.cluster.directory import Directory

        return Directory(self.context.store)


class Admin:
    def __init__(self, broker: Broker) -> None:
        self.queues = Management(broker)
        self.topics = TopicManagement(self.queues)
        self.streams = StreamManagement(self.queues)
        self.groups = ConsumerGroupManagement(self.queues)


class Services:
    def __init__(self, service: Service, context: ClusterContext | None = None) -> None:
        self.service = service
        self.context = context
        self.admin = Admin(service.broker)
        self.pull = PullMembers(service.broker)
        self.bulk = Launcher(service.store.url, service.settings)
        service.security.watch(self.bulk.rights_changed)
        self.confirmations = Confirmations(service.clock)
        self.operations = Operations(service.broker)
        self.verification = StoreVerification(service.store.url, service.clock)
        self.events = RecentEvents()
        self.console = ConsoleLauncher(service.settings)

    @cached_property
    def cluster(self) -> ClusterDoor:
        if self.context is None:
            raise IllegalState("this broker is in no cluster: `quire cluster start` starts one that is")
        return ClusterDoor(self.service, self.context)
