"""A subscription to lanes that it does not own: those of a durable subscription's topic, a consumer group's partition.

There is one lane, or one for each priority of a topic; sequences are those of all lanes together, and so is what is
finished. It is dispatched as a queue is. It sees its lanes without what it has finished or does not want, and with
delivery states of its own. What it has finished stands in an ack set instead of being removed; the record goes when
nothing needs it any more. Ack set, dispatch marks and delivery states are marks of the store, written in the same
commits as everything else.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import msgspec

from quire.broker.core.core import Core
from quire.broker.core.destination_ledger import DestinationLedger
from quire.broker.queues.queue import LaneDispatch, QueuePart
from quire.cursors.ack_set import AckSet
from quire.cursors.lane import END, NEVER_STORED, DispatchMark, MemoryUsage, QueueLane, by_lane
from quire.destination import Destination
from quire.errors import StoreCorrupt
from quire.message import Message
from quire.selectors import Selector, at_most
from quire.settings import Policy
from quire.store.base import Delivery, LaneReader, LaneState, Link, Page, StoreReader, WriteBatch, walk_marks

_encode = msgspec.msgpack.encode

LINKS = 1000
"""How many links are read at once where many records are finished."""


class LaneKeys(NamedTuple):
    progress: str
    pages: str
    states: str

    def page(self, page: int) -> str:
        return f"{self.pages}{page}"

    def of_priority(self, priority: int) -> "LaneKeys":
        """Those of one of ten lanes: only its delivery states are its own."""
        return self._replace(states=f"{self.states}{priority}/")

    def state(self, sequence: int) -> str:
        """The delivery state of a message; in the order of their keys they are in the order of the lane."""
        return f"{self.states}{sequence:016x}"


def read_finished(reader: StoreReader, keys: LaneKeys) -> AckSet:
    pages = {int(key.removeprefix(keys.pages)): page for key, page in walk_marks(reader, keys.pages)}
    return AckSet.from_pages(pages)


def encode_state(state: Delivery) -> bytes:
    return _encode(tuple(state))


class LaneRecords(LaneReader):
    """Reads a topic's lane or a stream's partition for a subscription.

    Attributes:
        unstored: the delivery states of a subscription that stores none; None of the others.
        passed: the sequences of finished records that ``page`` gave in place of those that it has passed over.
    """

    def __init__(
        self, store: StoreReader, lane: int, finished: AckSet, keys: LaneKeys, state: LaneState, *,
        is_stored: bool = True,
    ) -> None:  # fmt: skip
        self.lane = lane
        self.keys = keys
        self.passed: set[int] = set()
        self._store = store
        self._finished = finished
        self._state = state
        self._nothing = (0, 0)
        self.unstored: dict[int, Delivery] | None = None if is_stored else {}

    def lane_state(self, lane: int) -> LaneState:
        """What was there at the start: how much was not finished, how far it may have been delivered."""
        return self._state

    def page(self, lane: int, start: int, byte_budget: int, limit: int) -> Page:
        """Read what is not finished, in order.

        Of ten lanes one may have many finished records between two that are not, though the subscription as a whole has
        not. Of a page of these the last one is given, and the cursor passes over it and goes on from there.
        """
        start = self._next(start)
        page = self._page(lane, start, byte_budget, limit)
        messages = [message for message in page.messages if message.sequence not in self._finished]
        if messages or page.end:
            self.set_states(messages)
            return Page(messages, page.end)
        last = page.messages[-1]
        self._note_nothing(start, last.sequence)
        self.passed.add(last.sequence)
        return Page([last], False)

    def first(self) -> Link | None:
        """The first record that is not finished, if a short look finds it; the next look goes on from there."""
        links = self.links(self.lane, 1, 1)
        return links[0] if links and links[0].sequence not in self._finished else None

    def _next(self, start: int) -> int:
        """From which sequence on there may be something that is not finished."""
        start = self._finished.next_unfinished(start - 1)
        first, last = self._nothing
        return self._finished.next_unfinished(last) if first <= start <= last else start

    def _note_nothing(self, first: int, last: int) -> None:
        """Remember that all records of a part of the lane are finished, so that the broker does not read them again."""
        before, end = self._nothing
        joins = before <= first <= self._finished.next_unfinished(end)
        self._nothing = (before, last) if joins else (first, last)

    def forget_nothing(self) -> None:
        self._nothing = (0, 0)

    def _page(self, lane: int, start: int, byte_budget: int, limit: int) -> Page:
        """A page of the lane. A damaged record that is finished is of no concern here: it is left out."""
        try:
            return self._store.page(lane, start, byte_budget, limit)
        except StoreCorrupt as damage:
            damaged = damage.data["sequence"]
            if damaged not in self._finished:
                raise
            sound = [link for link in self._store.links(lane, start, limit) if link.sequence < damaged]
            if sound:
                return self._store.page(lane, start, byte_budget, len(sound))._replace(end=False)
            return self._page(lane, self._finished.next_unfinished(damaged), byte_budget, limit)

    def load(self, lane: int, sequences: list[int]) -> list[Message]:
        messages = self._store.load(lane, [sequence for sequence in sequences if sequence not in self._finished])
        self.set_states(messages)
        return messages

    def links(self, lane: int, start: int, limit: int) -> list[Link]:
        """Read links of what is not finished; what they link to may be. Where much is finished, as ``page``."""
        found: list[Link] = []
        at_once = limit
        while len(found) < limit:
            start = self._next(start)
            links = self._store.links(lane, start, at_once)
            unfinished = [link for link in links if link.sequence not in self._finished]
            found += unfinished
            if links and not unfinished:
                self._note_nothing(start, links[-1].sequence)
            if len(links) < at_once:
                break
            if not unfinished and at_once >= LINKS:
                return found or links[-1:]
            start = links[-1].sequence + 1
            at_once = max(limit, LINKS)
        return found[:limit]

    def every_link(self, start: int, limit: int) -> list[Link]:
        found: list[Link] = []
        while len(found) < limit and (links := self.links(self.lane, start, limit - len(found))):
            found += [link for link in links if link.sequence not in self._finished]
            start = links[-1].sequence + 1
        return found

    def deliveries(self, lane: int, start: int, limit: int) -> list[tuple[int, Delivery]]:
        if self.unstored is not None:
            return sorted([known for known in self.unstored.items() if known[0] >= start])[:limit]
        prefix = self.keys.states
        marks = self._store.marks(prefix, self.keys.state(start), limit)
        return [(int(key.removeprefix(prefix), 16), Delivery(*msgspec.msgpack.decode(value))) for key, value in marks]

    def set_states(self, messages: list[Message]) -> None:
        wanted = {message.sequence: message for message in messages}
        start, last = min(wanted, default=1), max(wanted, default=0)
        while start <= last:
            states = self.deliveries(self.lane, start, len(wanted))
            for sequence, state in states:
                if message := wanted.get(sequence):
                    message.deliveries, message.failures, message.not_before = state[:3]
                    message.redelivered = state.deliveries > 0
            start = states[-1][0] + 1 if len(states) == len(wanted) else last + 1


SCAN_LIMIT = 1000
"""How many messages that the selector does not match are passed over before others have their turn."""


class SubscriptionLane(QueueLane):
    reader: LaneRecords

    def __init__(
        self, core: Core, taker: "LaneSubscription", records: LaneRecords, memory: MemoryUsage,
        priority: int, mark: DispatchMark,
    ) -> None:  # fmt: skip
        state = records.lane_state(records.lane)
        super().__init__(records, core.spool, core.clock, records.lane, memory, state, priority, mark)
        self._taker = taker

    def head(self) -> int | None:
        link = self.reader.first()
        return None if link is None else link.sequence

    def links(self, start: int, limit: int) -> list[Link]:
        return self.reader.every_link(start, limit)

    def without_contents(self, sequences: list[int]) -> list[Message]:
        finished = self._taker.finished
        found = super().without_contents([sequence for sequence in sequences if sequence not in finished])
        self.reader.set_states(found)
        return found

    def admit(self, stored: list[Message]) -> None:
        is_at_tail = self._taker.subscriptions and not self.cursor.has_more
        self.cursor.committed([shell(message) for message in (stored if is_at_tail else stored[-1:])])

    def first_waiting(self) -> int:
        """The first sequence that waits to be given out, paged in when there is none; ``END`` if nothing waits."""
        first = self.first_of_window()
        return min(first, self.returned[0].sequence) if self.returned else first

    def take_from_window(self, limit: int) -> list[Message]:
        """The next messages of the window that the subscription wants.

        Nothing new is taken while the ack set has as many holes as it may have: only what was left out.
        """
        taker, looked_at = self._taker, 0
        self.is_scanning = False
        scan = at_most(SCAN_LIMIT, [taker.selector])
        limit = min(limit, scan)
        while looked_at < scan:
            last = taker.goes_up_to(self)
            run = super().take_from_window(limit)
            if run:
                taker.note_limit(last)
            if run and run[-1].sequence > last:
                run = self.cut(run, last + 1)
            if not run:
                return []
            if self.reader.passed and not (run := self._without_passed(run)):
                break
            if wanted := taker.sift(run):
                return wanted
            looked_at += len(run)
        self.is_scanning = True
        taker.wake()
        return []

    def _without_passed(self, run: list[Message]) -> list[Message]:
        """A run without what only says that the records before it are finished."""
        passed = [m for m in run if m.sequence in self.reader.passed and m.sequence in self._taker.finished]
        sequences = {message.sequence for message in passed}
        self.reader.passed -= sequences
        self.cursor.release(passed)
        return [message for message in run if message.sequence not in sequences]


def shell(message: Message) -> Message:
    """A stored message of its own for one subscription, with the same content."""
    return Message(message.sequence, message.content, message.expiration, message.priority)


class ProgressRecord(Protocol):
    def write(self, part: QueuePart, dispatch_marks: list[int], batch: WriteBatch) -> None:
        """Put it into a batch, as it is when the commit is done.

        Args:
            dispatch_marks: in the order of the lanes of its topic or partition.
        """

    def committed(self, part: QueuePart) -> None: ...


EARLY_HOLES = 1000
"""With fewer holes in its ack set, a subscription looks at each message when it comes."""

HOLES_LIMIT = 10_000
"""With so many holes in its ack set, a subscription is given nothing new: about 100 bytes of memory each."""


class LaneOwner(Protocol):
    """Whose lanes they are: a topic, a stream's partition.

    Attributes:
        announced: the highest sequence of those commits that are done.
    """

    announced: int
    destination: Destination

    @property
    def lanes(self) -> tuple[int, ...]: ...

    @property
    def memory(self) -> MemoryUsage: ...

    def done_by_all(self, sequences: list[int]) -> list[int]:
        """Those of some sequences that neither their owner nor a subscription needs: their records are removed."""


class LaneSubscription(LaneDispatch):
    """One subscription to lanes. Messages that are settled join its ack set.

    Args:
        is_stored: whether it is there after a restart; if not, the store knows nothing of what it has settled.

    Attributes:
        full_of_holes_since: since when it is given nothing new because of its ack set, on the monotonic clock.
    """

    lanes: Sequence[SubscriptionLane]
    owns_records = False

    def __init__(
        self, core: Core, owner: LaneOwner, keys: LaneKeys, finished: AckSet, found: LaneState,
        progress: ProgressRecord, dispatch_marks: Sequence[int], selector: Selector | None, policy: Policy,
        ledger: DestinationLedger | None, *, is_stored: bool = True,
    ) -> None:  # fmt: skip
        self.keys = keys
        self.finished = finished
        self.selector = selector
        self.full_of_holes_since: float | None = None
        self._lane_owner = owner
        self._progress = progress
        memory = MemoryUsage(0, owner.memory)
        lanes = self._made_lanes(core, memory, dispatch_marks, is_stored=is_stored)
        super().__init__(core, owner.destination, policy, ledger, lanes, memory)
        self.depth, self.bytes = found.count, found.bytes

    def _made_lanes(
        self, core: Core, memory: MemoryUsage, dispatch_marks: Sequence[int], *, is_stored: bool
    ) -> list[SubscriptionLane]:
        """What is left of the owner's lanes; of ten each has a node of the memory tree so that each may flow."""
        ids, first = self._lane_owner.lanes, self._lane_owner.announced + 1
        lanes = []
        for index in reversed(range(len(ids))):
            keys, node, priority = self.keys, memory, 4
            if len(ids) > 1:
                keys, node, priority = keys.of_priority(index), MemoryUsage(0, memory), index
            state = LaneState(next_sequence=first, dispatch_mark=dispatch_marks[index])
            records = LaneRecords(core.store, ids[index], self.finished, keys, state, is_stored=is_stored)
            mark = DispatchMark(state.dispatch_mark if is_stored else NEVER_STORED)
            lanes.append(SubscriptionLane(core, self, records, node, priority, mark))
        return lanes

    # Settling, and the store.

    def _write(self, part: QueuePart, batch: WriteBatch) -> None:
        sequences = sorted([message.sequence for message in part.removals])
        self.finished.add_all(sequences)
        if (states := self.lanes[0].reader.unstored) is not None:
            states.update([(sequence, state) for sequence, (_, state) in part.deliveries.items()])
            for sequence in sequences:
                states.pop(sequence, None)
            return
        marks = batch.marks
        for page, value in self.finished.changed_pages().items():
            marks[self.keys.page(page)] = value
        for message, state in part.deliveries.values():
            marks[self._state_key(message)] = encode_state(state)
        for message in part.removals:
            if message.deliveries or message.sequence in part.deliveries:
                marks[self._state_key(message)] = None
        if done := self._lane_owner.done_by_all(sequences):
            self._remove_records(part, done, batch)
        self._progress.write(part, self._dispatch_marks_after(part), batch)

    def _dispatch_marks_after(self, part: QueuePart) -> list[int]:
        """The dispatch marks when a commit is done, in the order of the lanes of the topic or the partition."""
        return [part.marks.get(lane.id, lane.mark.stored) for lane in reversed(self.lanes)]

    def _records_of(self, message: Message) -> LaneRecords:
        return (self.lanes[0] if len(self.lanes) == 1 else self.lanes[9 - message.priority]).reader

    def _state_key(self, message: Message) -> str:
        return self._records_of(message).keys.state(message.sequence)

    def _set_states(self, messages: list[Message]) -> None:
        if messages:
            self._records_of(messages[0]).set_states(messages)

    def _remove_records(self, part: QueuePart, done: list[int], batch: WriteBatch) -> None:
        if len(self.lanes) == 1:
            lane = batch.lane(self.lanes[0].id)
            lane.removals += done
            part.owned = {self.lanes[0].id: lane}
            return
        part.owned, gone = {}, set(done)
        for own in self.lanes:
            if sequences := [message.sequence for message in own.own(part.removals) if message.sequence in gone]:
                part.owned[own.id] = batch.lane(own.id)
                part.owned[own.id].removals += sequences

    def _written(self, part: QueuePart) -> None:
        self._progress.committed(part)

    def _may_have(self, lane: QueueLane, sequence: int) -> bool:
        return self.finished.next_unfinished(0) <= sequence

    def _undo(self, messages: list[Message]) -> None:
        for message in messages:
            self._unfinish(message.sequence, message.sequence)

    def _unfinish(self, first: int, last: int) -> None:
        self.finished.discard_range(first, last)
        for lane in self.lanes:
            lane.reader.forget_nothing()

    def done_of(self, sequences: list[int]) -> list[int]:
        """Those of some sequences, in ascending order, that it needs no more; of a run that is done it asks once."""
        if sequences and self.finished.next_unfinished(sequences[0] - 1) > sequences[-1]:
            return sequences
        return [sequence for sequence in sequences if sequence in self.finished]

    def goes_up_to(self, lane: SubscriptionLane) -> int:
        """Up to which sequence a lane may be given now: with too many holes only what was left out.

        Of several lanes each gives what comes before that of all others then, so that holes are closed and not split.
        """
        if self.finished.holes < HOLES_LIMIT:
            return END
        others = [other for other in self.lanes if other is not lane and not self.is_held(other)]
        return min([self.finished.highest, *[other.first_waiting() - 1 for other in others]])

    def note_limit(self, limit: int) -> None:
        if limit != self.finished.highest:
            self.full_of_holes_since = None
        elif self.full_of_holes_since is None:
            self.full_of_holes_since = self.core.clock.monotonic()

    # Messages come.

    @property
    def looks_early(self) -> bool:
        """Whether messages that the selector does not match are finished when they come, not when they are due."""
        return self.selector is not None and self.finished.holes < EARLY_HOLES

    def _come(self, stored: list[Message], wanted: list[Message]) -> None:
        """Messages were committed. Those it wants, as far as can be told now, are in memory if there is room."""
        self.depth += len(stored)
        self.enqueued += len(stored)
        if wanted is not stored:
            self._pass_over(stored, wanted)
        for lane, own in by_lane(self.lanes, wanted) if wanted else ():
            lane.admit(own)
        self.wake()

    def _pass_over(self, stored: list[Message], wanted: list[Message]) -> None:
        """Finish what was committed and is not wanted. The cursor may come to it before that is stored."""
        kept = {message.sequence for message in wanted}
        unwanted = [message for message in stored if message.sequence not in kept]
        sequences = {message.sequence for message in unwanted}
        for lane in self.lanes:
            lane.cursor.exclude(sequences)
        self._exclude(sequences)
        self._settle(unwanted)

    def _wants(self, message: Message) -> bool:
        return self.selector is None or self.selector.matches(message)

    def sift(self, run: list[Message]) -> list[Message]:
        """Of messages whose turn has come, those it wants, and those delivered before; the others are finished."""
        if self.selector is None:
            return run
        wanted = [message for message in run if message.deliveries or self._wants(message)]
        if len(wanted) < len(run):
            passed = {message.sequence for message in wanted}
            unwanted = [message for message in run if message.sequence not in passed]
            self.remove_resident(unwanted)
        return wanted
