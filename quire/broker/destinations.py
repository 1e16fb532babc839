"""The destinations of a broker: found by name, created on first use, deleted.

The records of a deleted one are removed in steps, also after a crash (``LaneRemoval``). Where a policy says so, a
destination that is empty and unused is deleted (``IdleDestinations``).
"""

import secrets
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeVar

from quire.broker.core.core import Core
from quire.broker.queues.queue import Queue
from quire.broker.streams.stream import Stream
from quire.broker.topics.topic import Topic
from quire.broker.topics.topic_records import Counts, counts_key, read_counts
from quire.destination import Destination, DestinationKind
from quire.destination import queue as queue_destination
from quire.destination import stream as stream_destination
from quire.destination import topic as topic_destination
from quire.errors import InvalidArgument, UnknownDestination
from quire.logs import event
from quire.store.base import IDENTITY, StoredDestination

_T = TypeVar("_T")

STEP = 1000
"""How many records one step removes."""

STEP_BYTES = 16 << 20
"""How many bytes of records one step removes, if it is about more than one; none of them is read."""


class LaneRemoval:
    """One removal. It begins after the open commit, so that it sees all that was sent before."""

    def __init__(self, core: Core, lanes: Sequence[int], name: str, done: Callable[[], None]) -> None:
        self._core = core
        self._lanes = list(lanes)
        self._done = done
        core.after_commit(lambda: core.steps.add(self._step, name))

    def _step(self) -> bool:
        """Remove the first records of the first lane that has any; they are looked at again if the commit fails."""
        store, spool = self._core.store, self._core.spool
        while self._lanes:
            lane, size = self._lanes[0], 0
            going: list[int] = []
            for link in store.links(lane, 0, STEP):
                size += link.size
                if going and size > STEP_BYTES:
                    break
                going.append(link.sequence)
            spooled = [link.sequence for link in spool.links(lane, 0, STEP)]
            if spooled:
                spool.remove(lane, spooled)
            if going:
                self._core.remove_records(lane, going)
            if going or spooled:
                return True
            del self._lanes[0]
        self._done()
        return False


REMOVED = "removed"
"""The kind, in the store, of a destination that is being removed: no client can reach it any more."""

AT_ONCE = 1000
"""A destination with more records than this is removed in steps."""

PRIORITIES = 10
"""How many lanes a prioritized queue or topic has."""

MAX_PARTITIONS = 1000
"""How many partitions a stream may have."""


class Destinations:
    """All destinations.

    Attributes:
        version: changes whenever a destination comes or goes: who keeps what it found looks again.
        created: called with each new destination, by who wants to know.
        check_place: called before one is made; raises an error if another shard of the cluster has it.
    """

    def __init__(self, core: Core) -> None:
        self.queues: dict[str, Queue] = {}
        self.topics: dict[str, Topic] = {}
        self.streams: dict[str, Stream] = {}
        self.partitions = 0
        self.version = 0
        self.created: dict[object, Callable[[Destination], None]] = {}
        self.check_place: Callable[[Destination], None] = lambda destination: None
        self._core = core
        self._next_id = 1
        self._names: dict[DestinationKind, list[str]] = {}
        self._names_version = -1
        core.limits.count_destinations(lambda: len(self.queues) + len(self.topics) + self.partitions)

    def queue(self, name: str) -> Queue:
        return self.queues.get(name) or self.create_queue(name)

    def topic(self, name: str) -> Topic:
        return self.topics.get(name) or self.create_topic(name)

    def stream(self, name: str) -> Stream:
        return self.streams.get(name) or self.create_stream(name)

    def load(self) -> None:
        found = self._core.store.destinations()
        self._next_id = 1 + max([number for stored in found for number in (stored.id, *stored.lanes)], default=0)
        for stored in found:
            if stored.kind == DestinationKind.QUEUE:
                self._add_queue(self._with_lanes(stored))
            elif stored.kind == DestinationKind.TOPIC:
                self._load_topic(stored)
            elif stored.kind == DestinationKind.STREAM:
                self._add_stream(self._with_identity(stored))
            elif stored.kind == REMOVED:  # a crash ended its removal
                self._remove_in_steps(stored)

    def _with_identity(self, stored: StoredDestination) -> StoredDestination:
        """A stream of an older version gets an identity."""
        if IDENTITY in stored.settings:
            return stored
        changed = stored._replace(settings={**stored.settings, **_identity()})
        self._core.change_destination(changed.id, changed)
        return changed

    def _with_lanes(self, stored: StoredDestination) -> StoredDestination:
        """A queue or topic becomes prioritized, or plain again, when it has nothing stored at a start."""
        count = self._lanes_for(Destination(DestinationKind(stored.kind), stored.name))
        if len(stored.lanes) == count or any([self._core.store.lane_state(lane).count for lane in stored.lanes]):
            return stored
        changed = stored._replace(id=self._next_id, lanes=self._take_ids(count))
        self._core.change_destination(stored.id, None)
        self._core.change_destination(changed.id, changed)
        return changed

    def _lanes_for(self, destination: Destination) -> int:
        return PRIORITIES if self._core.settings.policies.of(destination).prioritized_messages else 1

    def _load_topic(self, stored: StoredDestination) -> None:
        """A topic that gets other lanes keeps its count: its durable subscriptions count from there."""
        changed = self._with_lanes(stored)
        if changed is stored:
            self._add_topic(stored)
            return
        counts = read_counts(self._core.store, stored)
        counts = Counts(counts.appended, counts.appended_bytes)
        self._core.set_mark(counts_key(stored), None)
        self._add_topic(changed, counts=counts).write_counts()

    def _take_ids(self, count: int) -> tuple[int, ...]:
        first, self._next_id = self._next_id, self._next_id + count
        return tuple(range(first, self._next_id))

    def moved(self) -> None:
        """Destinations may be at other shards of a cluster now: who keeps what it found looks again."""
        self.version += 1

    def policies_changed(self) -> None:
        self.version += 1
        for queue in self.queues.values():
            queue.policy_changed()
        for topic in self.topics.values():
            topic.policy_changed()
        for stream in self.streams.values():
            stream.policy_changed()

    def names(self, kind: DestinationKind, after: str = "") -> Iterator[str]:
        """The names of all destinations of a kind, in order; meanwhile some may go."""
        if self._names_version != self.version:
            self._names_version, self._names = self.version, {}
        if kind not in self._names:
            named: Mapping[str, object] = self.streams
            if kind is not DestinationKind.STREAM:
                named = self.queues if kind is DestinationKind.QUEUE else self.topics
            self._names[kind] = sorted(named)
        names = self._names[kind]
        return islice(names, bisect_right(names, after), None)

    def existing_queue(self, name: str) -> Queue:
        return _existing("queue", self.queues, name)

    def create_queue(self, name: str) -> Queue:
        stored = self._new(queue_destination(name))
        queue = self._add_queue(stored, new=True)
        self._is_made(stored)
        return queue

    def _new(self, destination: Destination) -> StoredDestination:
        """A queue or a topic that may be made here: ``ShardMoved`` if another shard of the cluster has it."""
        self._core.limits.check_destinations()
        self.check_place(destination)
        lanes = self._take_ids(self._lanes_for(destination))
        return StoredDestination(lanes[0], destination.kind, destination.name, {}, lanes)

    def _is_made(self, stored: StoredDestination) -> None:
        """Store a destination with the open commit, and announce it."""
        self._core.change_destination(stored.id, stored)
        destination = Destination(DestinationKind(stored.kind), stored.name)
        self.version += 1
        self._core.advisories.destination_created(destination)
        for call in list(self.created.values()):
            call(destination)

    def create_internal(self, kind: str, name: str) -> StoredDestination:
        """Make a destination of the broker's own, with one lane, that no client sees."""
        lanes = self._take_ids(1)
        stored = StoredDestination(lanes[0], kind, name, {}, lanes)
        self._core.change_destination(stored.id, stored)
        return stored

    def _add_queue(self, stored: StoredDestination, *, new: bool = False) -> Queue:
        queue = self.queues[stored.name] = Queue(self._core, stored, new=new)
        self._core.charge_stored(queue.bytes)
        return queue

    def existing_topic(self, name: str) -> Topic:
        return _existing("topic", self.topics, name)

    def create_topic(self, name: str) -> Topic:
        stored = self._new(topic_destination(name))
        topic = self._add_topic(stored, new=True)
        self._is_made(stored)
        return topic

    def _add_topic(self, stored: StoredDestination, *, new: bool = False, counts: Counts | None = None) -> Topic:
        topic = self.topics[stored.name] = Topic(self._core, stored, new=new, counts=counts)
        self._core.charge_stored(topic.bytes)
        return topic

    def existing_stream(self, name: str) -> Stream:
        return _existing("stream", self.streams, name)

    def create_stream(self, name: str, partitions: int | None = None) -> Stream:
        destination = stream_destination(name)
        policy = self._core.settings.policies.of(destination)
        count = _checked_count(policy.partitions if partitions is None else partitions)
        self._core.limits.check_destinations(count)
        self.check_place(destination)
        lanes = self._take_ids(count)
        stored = StoredDestination(lanes[0], DestinationKind.STREAM, name, _identity(), lanes)
        stream = self._add_stream(stored, new=True)
        self._is_made(stream.stored)
        return stream

    def add_partitions(self, stream: Stream, count: int) -> None:
        known = len(stream.partitions)
        if _checked_count(count) < known:
            raise InvalidArgument(
                f"the stream has {known} partitions: their number can only grow", argument="partitions"
            )
        if count > known:
            self._core.limits.check_destinations(count - known)
            self._core.limits.check_subscriptions((count - known) * len(stream.groups))
            stream.add_partitions(self._take_ids(count - known))
            self.partitions += count - known
            self.version += 1

    def _add_stream(self, stored: StoredDestination, *, new: bool = False) -> Stream:
        stream = self.streams[stored.name] = Stream(self._core, stored, new=new)
        self.partitions += len(stream.partitions)
        self._core.charge_stored(stream.stored_bytes)
        return stream

    def watch(self, owner: object, call: Callable[[Destination], None] | None) -> None:
        if call is None:
            self.created.pop(owner, None)
        else:
            self.created[owner] = call

    def remove_stored(self, stored: StoredDestination, count: int) -> None:
        """With the open commit if it is small; in steps that begin there if not."""
        spooled = [lane for lane in stored.lanes if not self._core.spool.is_empty(lane)]
        if count <= AT_ONCE and not spooled:
            self._core.change_destination(stored.id, None)
            return
        removed = stored._replace(kind=REMOVED)
        self._core.change_destination(stored.id, removed)
        self._remove_in_steps(removed)

    def _remove_in_steps(self, stored: StoredDestination) -> None:
        LaneRemoval(
            self._core, stored.lanes, f"the removal of {stored.name}",
            lambda: self._core.change_destination(stored.id, None),
        )  # fmt: skip

    def delete_queue(self, queue: Queue) -> None:
        """Delete a queue without consumers, with its messages.

        What it keeps in memory goes at once; what is stored or spooled goes with the open commit, or in steps.
        """
        core = self._core
        del self.queues[queue.destination.name]
        queue.is_deleted = True
        self.version += 1
        core.dispatch.forget(queue)
        core.charge_stored(-queue.bytes)
        queue.memory.release(queue.memory.used)
        core.forget(queue)
        self.remove_stored(queue.stored, queue.depth)
        core.advisories.destination_deleted(queue.destination)

    def delete_topic(self, topic: Topic) -> None:
        core = self._core
        del self.topics[topic.destination.name]
        topic.is_deleted = True
        self.version += 1
        for durable in list(topic.durables):
            durable.drop()
        core.charge_stored(-topic.bytes)
        core.forget(topic)
        core.set_mark(topic.key, None)
        self.remove_stored(topic.stored, topic.depth)
        core.advisories.destination_deleted(topic.destination)

    def delete_stream(self, stream: Stream) -> None:
        core = self._core
        del self.streams[stream.destination.name]
        stream.is_deleted = True
        self.partitions -= len(stream.partitions)
        self.version += 1
        for group in list(stream.groups.values()):
            group.drop()
        core.charge_stored(-stream.stored_bytes)
        stream.forget_marks()
        for partition in stream.partitions:
            core.forget(partition)
        self.remove_stored(stream.stored, sum([partition.count for partition in stream.partitions]))
        core.advisories.destination_deleted(stream.destination)


def _existing(kind: str, there: Mapping[str, _T], name: str) -> _T:
    try:
        return there[name]
    except KeyError:
        raise UnknownDestination(f"the {kind} {name[:100]!r} does not exist", name=name[:100]) from None


def _identity() -> dict[str, object]:
    return {IDENTITY: secrets.token_hex(8)}


def _checked_count(partitions: int) -> int:
    if not 1 <= partitions <= MAX_PARTITIONS:
        raise InvalidArgument(
            f"{partitions} partitions are not possible: a stream has 1 to {MAX_PARTITIONS}", argument="partitions"
        )
    return partitions


CHECK_PERIOD = 5.0
"""How often destinations are looked at, in seconds."""


class IdleDestinations:
    """Looks at destinations every five seconds; only while a policy asks for it."""

    def __init__(self, core: Core, destinations: Destinations) -> None:
        self._core = core
        self._destinations = destinations
        self._idle: dict[Queue | Topic, tuple[int, float]] = {}

    def start(self) -> None:
        self._core.scheduler.call_later(CHECK_PERIOD, self._check)

    def _check(self) -> None:
        self.start()
        policies = self._core.settings.policies
        if not (policies.base.gc_inactive_destinations or policies.entries):
            return
        now = self._core.clock.monotonic()
        destinations = self._destinations
        unused: list[Queue | Topic] = [queue for queue in destinations.queues.values() if not queue.subscriptions]
        unused += [topic for topic in destinations.topics.values() if not topic.is_subscribed]
        candidates = [d for d in unused if d.policy.gc_inactive_destinations and not d.depth]
        self._idle = {candidate: self._idle_since(candidate, now) for candidate in candidates}
        for idle, (_, since) in list(self._idle.items()):
            if now - since >= idle.policy.inactive_timeout_before_gc:
                self._collect(idle)

    def _collect(self, idle: "Queue | Topic") -> None:
        destination = str(idle.destination)
        event(
            "destination.collected",
            f"the broker deleted {destination}, which was empty and unused",
            destination=destination,
        )
        kind, name = idle.destination.kind, idle.destination.name
        if kind is DestinationKind.QUEUE:
            self._destinations.delete_queue(self._destinations.queues[name])
        else:
            self._destinations.delete_topic(self._destinations.topics[name])

    def _idle_since(self, candidate: "Queue | Topic", now: float) -> tuple[int, float]:
        known = self._idle.get(candidate)
        return known if known is not None and known[0] == candidate.enqueued else (candidate.enqueued, now)
