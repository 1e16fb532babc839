"""The expiry sweep: removes what has expired, through the indexes of expirations. No cursor moves.

A sweep is work in steps. A step has a budget of messages, of bytes and of time; no body is read unless a part needs
it, for a dead letter say.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from quire.broker.core.core import Core
from quire.broker.dead_letter import needs_expired, send_dead_letters
from quire.broker.destinations import Destinations
from quire.broker.queues.queue import LaneDispatch
from quire.broker.routing.temporary import Temporaries
from quire.broker.topics.topic import Topic
from quire.clock import Clock
from quire.cursors.lane import found_links
from quire.cursors.spool import Spool
from quire.errors import StoreCorrupt, StoreError
from quire.message import Message
from quire.store.base import FIRST_EXPIRATION, Expiration, StoreReader

if TYPE_CHECKING:
    from quire.cursors.lane import QueueLane


RUN = 500
"""How many messages of a lane are removed at once."""

RUN_BYTES = 1 << 20
"""How many bytes of messages are read at once, if more than one is."""

UNREAD = 8
"""Removing so many bytes of messages that are not read costs as much as reading one."""

LOOK = 5000
"""How many messages are looked at at once that are in memory only."""

LANE_COST = 10
"""As how many messages a lane or a subscription counts, for what it takes beside its messages."""

CAUSE = "expired before it could be delivered"
"""The cause in the headers of a dead letter."""


class Cost(NamedTuple):
    """What a removal has cost.

    Attributes:
        messages: how many messages it was about; more if it was dearer.
        bytes: how many bytes of messages were read, or written as dead letters.
    """

    messages: int
    bytes: int = 0
    stayed: int = 0


class ExpiredMessages:
    """Removes expired messages. Each removal is whole: between two of them a commit may lie."""

    def __init__(self, core: Core, destinations: Destinations, temporaries: Temporaries) -> None:
        self._core = core
        self._destinations = destinations
        self._temporaries = temporaries
        self._version = -1
        self._queues: dict[int, tuple[LaneDispatch, QueueLane]] = {}
        self._topics: dict[int, tuple[Topic, int]] = {}

    def remove(self, lane: int, sequences: list[int], *, persistent: bool) -> Iterator[Cost]:
        """Remove records of a lane that have expired, but for those in flight.

        Yields:
            After each removal, what it has cost.
        """
        lane = lane if persistent else self._core.spool.lane_of(lane)
        for start in range(0, len(sequences), RUN):
            run = sequences[start : start + RUN]
            self._look_up()
            if found := self._queues.get(lane) or self._temporary(lane):
                yield from self._remove_from_queue(*found, run, persistent)
            elif lane in self._topics:
                yield from self._remove_from_topic(*self._topics[lane], lane, run)
            else:  # the schedule's, or of something that was deleted meanwhile
                yield Cost(0, 0, len(run))

    def _look_up(self) -> None:
        destinations = self._destinations
        if self._version != destinations.version:
            self._version = destinations.version
            self._queues = {lane.id: (queue, lane) for queue in destinations.queues.values() for lane in queue.lanes}
            self._topics = {
                lane: (topic, priority)
                for topic in destinations.topics.values()
                for priority, lane in enumerate(topic.lanes)
            }

    def _temporary(self, lane: int) -> "tuple[LaneDispatch, QueueLane] | None":
        temporary = self._temporaries.queue_of(lane)
        return None if temporary is None else (temporary, temporary.lanes[0])

    # Queues.

    def _remove_from_queue(
        self, queue: LaneDispatch, lane: "QueueLane", run: list[int], persistent: bool
    ) -> Iterator[Cost]:
        source = self._core.store if persistent else self._core.spool
        free = queue.free_of(run)
        entries = [
            _shell(link.sequence, link.size, lane.priority, persistent=persistent)
            for link in found_links(source, lane.id, free)
        ]
        yield Cost(LANE_COST, 0, len(run) - len(free))
        if not needs_expired(self._core, queue, persistent=persistent):
            for portion in _portions(entries, RUN_BYTES * UNREAD):
                self._dead_letter(queue, portion)
                yield Cost(len(portion), _size(portion) // UNREAD)
            return
        for portion in _portions(entries, RUN_BYTES):
            messages = self._load(lane.id, [entry.sequence for entry in portion], persistent=persistent)
            self._dead_letter(queue, messages)
            yield Cost(2 * len(portion), _size(messages), len(portion) - len(messages))

    def _dead_letter(self, queue: LaneDispatch, messages: list[Message]) -> None:
        taken = set(queue.take_out([message.sequence for message in messages]))
        messages = [message for message in messages if message.sequence in taken]
        queue.remove_taken_out(messages)
        send_dead_letters(self._core, queue, messages, "expired", CAUSE)

    def _load(self, lane: int, sequences: list[int], *, persistent: bool) -> list[Message]:
        while sequences:
            try:
                return (self._core.store if persistent else self._core.spool).load(lane, sequences)
            except StoreCorrupt as damage:
                sequences = [sequence for sequence in sequences if sequence != damage.data["sequence"]]
        return []

    def remove_unstored(self, now_ms: int) -> Iterator[Cost]:
        """Remove expired messages that are in memory only, of those queues that may have some."""
        queues = (*self._destinations.queues.values(), *self._temporaries.queues.values())
        for queue in [q for q in queues if 0 < q.first_expiry <= now_ms]:
            resident, queue.first_expiry = [message for lane in queue.lanes for message in lane.resident()], 0
            for start in range(0, len(resident), LOOK):
                expiring = [m for m in resident[start : start + LOOK] if m.expiration and not m.stored]
                for expiration in [m.expiration for m in expiring if m.expiration > now_ms]:
                    queue.note_expiry(expiration)
                expired = [message for message in expiring if message.expiration <= now_ms]
                yield Cost(LOOK // 10)
                for first in range(0, len(expired), RUN):
                    self._dead_letter(queue, expired[first : first + RUN])
                    yield Cost(RUN)

    # Topics.

    def _remove_from_topic(self, topic: Topic, priority: int, lane: int, run: list[int]) -> Iterator[Cost]:
        """Finish records of a lane for each durable subscription; each record is read once for all of them."""
        core = self._core
        needed = needs_expired(core, topic, persistent=True)
        links = found_links(core.store, lane, run)
        entries = [_shell(link.sequence, link.size, priority, persistent=True) for link in links]
        for portion in _portions(entries, RUN_BYTES if needed else RUN_BYTES * UNREAD):
            sequences = [entry.sequence for entry in portion]
            records = self._load(lane, sequences, persistent=True) if needed else portion
            size = _size(records) if needed else _size(records) // UNREAD
            yield Cost(len(records), size)
            stayed = 0
            for durable in list(topic.durables):
                if not durable.is_deleted:
                    done, busy = durable.expire(records)
                    stayed = max(stayed, busy)
                    yield Cost((1 + needed) * done + LANE_COST, size if done and needed else 0)
            topic.expire(records)
            yield Cost(len(records), 0, stayed)


def _shell(sequence: int, size: int, priority: int, *, persistent: bool) -> Message:
    message = Message(sequence, b"", priority=priority, persistent=persistent)
    message.size, message.stored = size, True
    return message


def _size(messages: list[Message]) -> int:
    return sum([message.size for message in messages])


def _portions(entries: list[Message], limit: int) -> Iterator[list[Message]]:
    portion: list[Message] = []
    size = 0
    for entry in entries:
        if portion and size + entry.size > limit:
            yield portion
            portion, size = [], 0
        portion.append(entry)
        size += entry.size
    if portion:
        yield portion


READ = 1000
"""How many entries one read brings."""

STAY = 10_000
"""After a second for so many entries that stayed, the index is read from its head again."""


class ExpiredEntries:
    """The expired entries of one index.

    Some have to stay: their messages are in flight, hidden, damaged, or of the schedule. So that these are not read by
    each sweep, a sweep begins where the last one ended. Now and then one begins at the head: what stayed may be free
    now, and what came late is there.

    Attributes:
        stayed: how many have stayed since the index was read from its head; set by those who remove the others.
    """

    def __init__(self, source: StoreReader | Spool, clock: Clock) -> None:
        self.stayed = 0
        self._source = source
        self._clock = clock
        self._swept = FIRST_EXPIRATION
        self._has_ended = False
        self._head_read_at = 0.0

    def sweep(self, now_ms: int) -> Iterator[list[Expiration]]:
        """Read what has expired and was not read by the last sweep; from the head, if that did not ``end``."""
        now = self._clock.monotonic()
        if not self._has_ended or now >= self._head_read_at + self.stayed / STAY:
            self._swept, self.stayed, self._head_read_at = FIRST_EXPIRATION, 0, now
        self._has_ended = False
        while found := self._source.expired(now_ms, READ, self._swept):
            self._swept = found[-1]
            yield found

    def end(self) -> None:
        """What the sweep read was removed, or has to stay."""
        self._has_ended = True


STEP = 4000
"""What the removals of one step may cost: about as many messages."""

STEP_BYTES = 2 << 20
"""How many bytes of messages one step reads or writes, if it is about more than one message."""

BUDGET = 0.006
"""How long one step takes, in seconds; a removal that has begun ends."""

GATHERED = 20_000
"""How many entries are gathered before they are removed, one lane after the other."""


class Expiry:
    """Sweeps all queues and topics every ``broker.expiry_interval``."""

    def __init__(self, core: Core, messages: ExpiredMessages) -> None:
        self._core = core
        self._messages = messages
        self._stored = ExpiredEntries(core.store, core.clock)
        self._spooled = ExpiredEntries(core.spool, core.clock)
        self._work: Iterator[Cost] | None = None
        self._is_sweeping = False

    def start(self) -> None:
        self._core.scheduler.call_later(self._core.settings.broker.expiry_interval, self._begin)

    def _begin(self) -> None:
        self.start()
        if not self._is_sweeping:
            self._is_sweeping = True
            self._core.steps.add(self._step, "the removal of expired messages")

    def _step(self) -> bool:
        clock = self._core.clock
        end, messages, size = clock.monotonic() + BUDGET, 0, 0
        work = self._work = self._work or self._sweep(self._core.wall.past_ms())
        try:
            for cost in work:
                messages, size = messages + cost.messages, size + cost.bytes
                if messages >= STEP or size >= STEP_BYTES or clock.monotonic() >= end:
                    return True
        except StoreError:
            self._work = None  # the next step begins a sweep anew
            raise
        self._work, self._is_sweeping = None, False
        return False

    def _sweep(self, now_ms: int) -> Iterator[Cost]:
        yield from self._sweep_index(self._stored, now_ms, persistent=True)
        yield from self._sweep_index(self._spooled, now_ms, persistent=False)
        yield from self._messages.remove_unstored(now_ms)

    def _sweep_index(self, entries: ExpiredEntries, now_ms: int, *, persistent: bool) -> Iterator[Cost]:
        gathered: defaultdict[int, list[int]] = defaultdict(list)
        count = 0
        for found in entries.sweep(now_ms):
            for _, lane, sequence in found:
                gathered[lane].append(sequence)
            count += len(found)
            yield Cost(len(found) // 4)
            if count >= GATHERED:
                yield from self._remove(entries, gathered, persistent=persistent)
                gathered.clear()
                count = 0
        yield from self._remove(entries, gathered, persistent=persistent)
        entries.end()

    def _remove(self, entries: ExpiredEntries, gathered: dict[int, list[int]], *, persistent: bool) -> Iterator[Cost]:
        for lane, sequences in gathered.items():
            for cost in self._messages.remove(lane, sorted(sequences), persistent=persistent):
                entries.stayed += cost.stayed
                yield cost
