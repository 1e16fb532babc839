"""The destinations of a broker: found by name, created on first use, deleted."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from quire.broker.queue import Queue
from quire.destination import Destination, DestinationKind
from quire.destination import queue as queue_destination
from quire.errors import UnknownDestination
from quire.store.base import StoredDestination

if TYPE_CHECKING:
    from quire.broker.broker import Broker

SPOOL_STEP = 1000
"""How many spooled messages of a deleted queue are removed at once."""

PRIORITIES = 10
"""How many lanes a prioritized queue has."""


class Destinations:
    """All destinations.

    Args:
        broker: the broker.

    Attributes:
        queues: by name.
        version: changes whenever a destination comes or goes: who keeps what it found looks again.
        created: called with each new destination.
    """

    def __init__(self, broker: "Broker") -> None:
        self.queues: dict[str, Queue] = {}
        self.version = 0
        self.created: list[Callable[[Destination], None]] = []
        self._broker = broker
        self._next_id = 1

    def load(self) -> None:
        """Take what the store has."""
        for stored in self._broker.store.destinations():
            self._next_id = max(self._next_id, stored.id + 1, *[lane + 1 for lane in stored.lanes])
            if stored.kind == DestinationKind.QUEUE:
                self._add_queue(self._with_lanes(stored))

    def _with_lanes(self, stored: StoredDestination) -> StoredDestination:
        """A queue becomes prioritized, or plain again, when it is empty at a start and its policy says so."""
        policy = self._broker.settings.policies.of(Destination(DestinationKind.QUEUE, stored.name))
        count = PRIORITIES if policy.prioritized_messages else 1
        states = [self._broker.store.lane_state(lane) for lane in stored.lanes]
        if len(stored.lanes) == count or any([state.count for state in states]):
            return stored
        changed = stored._replace(id=self._next_id, lanes=self._take_ids(count))
        self._broker.change_destination(stored.id, None)
        self._broker.change_destination(changed.id, changed)
        return changed

    def _take_ids(self, count: int) -> tuple[int, ...]:
        first, self._next_id = self._next_id, self._next_id + count
        return tuple(range(first, self._next_id))

    def existing_queue(self, name: str) -> Queue:
        """The queue of a name.

        Raises:
            UnknownDestination: there is none.
        """
        try:
            return self.queues[name]
        except KeyError:
            raise UnknownDestination(f"there is no queue {name[:100]!r}", name=name[:100]) from None

    def create_queue(self, name: str) -> Queue:
        """Make a queue that is not there.

        Raises:
            InvalidDestination: it cannot be a name.
        """
        destination = queue_destination(name)
        policy = self._broker.settings.policies.of(destination)
        lanes = self._take_ids(PRIORITIES if policy.prioritized_messages else 1)
        stored = StoredDestination(lanes[0], DestinationKind.QUEUE, name, {}, lanes)
        queue = self._add_queue(stored)
        self._broker.change_destination(stored.id, stored)
        self._announce(destination)
        return queue

    def _add_queue(self, stored: StoredDestination) -> Queue:
        queue = self.queues[stored.name] = Queue(self._broker, stored)
        self._broker.stored_bytes += queue.bytes
        return queue

    def _announce(self, destination: Destination) -> None:
        self.version += 1
        for call in self.created:
            call(destination)

    def delete_queue(self, queue: Queue) -> None:
        """Delete a queue without consumers, with its messages.

        What it keeps in memory and in the spool goes at once; what is stored goes with the open commit.
        """
        broker = self._broker
        del self.queues[queue.destination.name]
        self.version += 1
        broker.ready.pop(queue, None)
        broker.stored_bytes -= queue.bytes
        queue.memory.release(queue.memory.used)
        for lane in queue.lanes:
            while links := broker.spool.links(lane.id, 0, SPOOL_STEP):
                broker.spool.remove(lane.id, [link.sequence for link in links])
        broker.forget(queue)
        broker.change_destination(queue.stored.id, None)
