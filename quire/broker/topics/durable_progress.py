"""How far a durable subscription has come, and what it is, as the store has it: the marks ``sub/...``."""

from typing import Protocol

import msgspec

from quire.broker.queues.lane_records import LaneKeys
from quire.broker.queues.queue_part import QueuePart
from quire.store.base import LaneBatch, LaneState, WriteBatch

DEFINITIONS = "sub/h/"
"""What the keys of the marks begin with that say which durable subscriptions there are."""


class Definition(msgspec.Struct, array_like=True, frozen=True):
    """What a durable subscription is: the mark ``sub/h/NUMBER``.

    Attributes:
        client_id: whose it is.
        name: what the client calls it.
        topic: the topic's name.
        selector: which messages it wants; None for all.
        no_local: whether it does not want what its own connection sends.
        start: it gets what comes after this sequence.
        appended: how many records the topic had had up to there; -1 while that is not known.
        appended_bytes: their sizes.
        is_removed: whether it is being removed.
        owner: the user who made it; empty if there were no users.
    """

    client_id: str
    name: str
    topic: str
    selector: str | None = None
    no_local: bool = False
    start: int = 0
    appended: int = -1
    appended_bytes: int = 0
    is_removed: bool = False
    owner: str = ""


class Progress(msgspec.Struct, array_like=True, frozen=True):
    """How far a durable subscription has come: the mark ``sub/c/NUMBER``.

    Attributes:
        finished: how many records it has finished.
        finished_bytes: their sizes.
        dispatch_mark: records up to this sequence may have been delivered, if the topic has one lane.
        offline_since: since when it has no consumer, in milliseconds since the epoch; 0 while it has one.
        lane_marks: as the dispatch mark, for each of ten lanes.
    """

    finished: int = 0
    finished_bytes: int = 0
    dispatch_mark: int = 0
    offline_since: int = 0
    lane_marks: tuple[int, ...] = ()


def definition_key(number: int) -> str:
    """The key of the mark that says what a durable subscription is."""
    return f"{DEFINITIONS}{number}"


def durable_keys(number: int) -> LaneKeys:
    """The keys of the other marks of a durable subscription."""
    return LaneKeys(progress=f"sub/c/{number}", pages=f"sub/a/{number}/", states=f"sub/d/{number}/")


class RecordCounts(Protocol):
    """The counts of a topic's records.

    Attributes:
        appended: how many records it ever had.
        appended_bytes: their sizes.
    """

    appended: int
    appended_bytes: int

    @property
    def lanes(self) -> tuple[int, ...]:
        """Its lanes' ids."""

    def recount(self, lanes: dict[int, LaneBatch]) -> None:
        """A commit has changed its records, and says how many there are now in some of its lanes."""


class DurableProgress:
    """How far one durable subscription has come. What it is is stored with it for the first time.

    Args:
        stored: how far it has come; None if it is new.

    Attributes:
        definition: what it is. The first commit fills in how many records the topic has had, if that is not known.
        offline_since: since when it has no consumer, in milliseconds since the epoch; 0 while it has one.
        is_stored: whether a commit has stored it.
    """

    def __init__(
        self, topic: RecordCounts, number: int, definition: Definition, stored: Progress | None, now_ms: int
    ) -> None:
        self.definition = definition
        self._topic = topic
        self._number = number
        self._key = durable_keys(number).progress
        self.is_stored = self._is_written = stored is not None
        self._stored = stored or Progress()
        self._earlier = (0, 0)  # how many records its first commit has that were sent before it came, and their sizes
        self.offline_since = min(self._stored.offline_since or now_ms, now_ms)

    def left(self) -> LaneState:
        """What is left of the topic's records."""
        count = size = 0
        if self.definition.appended >= 0:
            count = self._topic.appended - self.definition.appended - self._stored.finished
            size = self._topic.appended_bytes - self.definition.appended_bytes - self._stored.finished_bytes
        return LaneState(count=count, bytes=size)

    def dispatch_marks(self) -> tuple[int, ...]:
        """The dispatch marks that the store has; none is left where the topic has got other lanes: it was empty."""
        count, stored = len(self._topic.lanes), self._stored
        marks = (stored.dispatch_mark,) if count == 1 else stored.lane_marks
        return marks if len(marks) == count else (0,) * count

    def write(self, part: QueuePart, dispatch_marks: list[int], batch: WriteBatch) -> None:
        """Put it into a batch, as it is when the commit is done."""
        if not self.is_stored:
            self._note_earlier(batch)
        finished, size = self._finished_after(part)
        own, lane_marks = (dispatch_marks[0], ()) if len(dispatch_marks) == 1 else (0, tuple(dispatch_marks))
        progress = Progress(finished, size, own, self.offline_since, lane_marks)
        batch.marks[self._key] = msgspec.msgpack.encode(progress)
        if not self._is_written:
            self._is_written = True
            batch.marks[definition_key(self._number)] = msgspec.msgpack.encode(self._defined())

    def committed(self, part: QueuePart) -> None:
        """A commit is done."""
        self.is_stored = True
        self._stored, self._earlier = Progress(*self._finished_after(part)), (0, 0)
        if part.owned is not None:
            self._topic.recount(part.owned)

    def _finished_after(self, part: QueuePart) -> tuple[int, int]:
        """How many records it has finished when a commit is done, and their sizes."""
        count, size = self._earlier
        size += sum([message.size for message in part.removals])
        return self._stored.finished + count + len(part.removals), self._stored.finished_bytes + size

    def _note_earlier(self, batch: WriteBatch) -> None:
        """Count what others need of what was sent before it came, and is in its first commit: it has finished that."""
        lanes = [batch.lanes[id] for id in self._topic.lanes if id in batch.lanes]
        earlier = [m.size for lane in lanes for m in lane.appends if m.sequence <= self.definition.start]
        self._earlier = len(earlier), sum(earlier)

    def _defined(self) -> Definition:
        """What it is; no commit is under way now, so the records that the topic has had are those up to its start."""
        if self.definition.appended < 0:
            counts = {"appended": self._topic.appended, "appended_bytes": self._topic.appended_bytes}
            self.definition = msgspec.structs.replace(self.definition, **counts)
        return self.definition
