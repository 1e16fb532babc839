"""Which numbers were taken of producers that number their sends, and for how long that is known.

A producer is known while it is among the ``producer.id_cache_size`` that sent last, and has sent within
``producer.id_max_age``. Only then a send that it repeats is seen to be one. The store has the number of each producer
(``WriteBatch.producers``), and in the mark ``producer/ID`` when it sent last, to ten minutes.
"""

import hashlib
from collections import OrderedDict

import msgspec

from quire.broker.core.core import Core
from quire.errors import UnknownProducer
from quire.resources import ProducerStatus
from quire.store.base import MAX_MARK_KEY, WriteBatch, walk_marks

MARKS = "producer/"

PERIOD_MS = 600_000
"""How exactly it is stored when a producer sent last, in milliseconds."""

STEP = 1000
"""How many producers are looked at or forgotten in one step."""

CHECK_PERIOD = 60.0
"""How often producers are looked for that were silent for too long, in seconds."""


class _Known:
    __slots__ = ("last_sent", "period", "sequence")

    def __init__(self, last_sent: int) -> None:
        self.last_sent = last_sent
        self.period = last_sent // PERIOD_MS
        self.sequence: int | None = None


class ProducerIds:
    def __init__(self, core: Core) -> None:
        self.limit = core.settings.producer.id_cache_size
        self.forgotten = 0
        self._core = core
        self._known: OrderedDict[str, _Known] = OrderedDict()  # the one that has been silent for longest first
        self._next = ""
        self._is_adopted = False
        self._absent: set[str] = set()  # ids that the store has not, as long as not all that it has are adopted

    def __len__(self) -> int:
        return len(self._known)

    def load(self) -> None:
        """Take what the store has. What has no mark, from before there were any, counts as sent now."""
        with self._core.store.snapshot() as reader:
            found = [msgspec.msgpack.decode(value, type=tuple[str, int]) for _, value in walk_marks(reader, MARKS)]
        for id, period in sorted(found, key=lambda entry: entry[1]):
            self._known[id] = _Known(period * PERIOD_MS)
        if self._adopt():
            self._core.steps.add(self._adopt, "the check of producers that number their sends")
        self._check()

    # Sends.

    def take(self, id: str, sequence: int) -> bool:
        """Whether a numbered send is new; sends up to the highest number taken are duplicates."""
        is_new = sequence > self.sequence(id)
        known = self._known.get(id)
        if known is None:
            if not is_new:
                return False
            known = self._known[id] = _Known(0)
        self._sent_now(id, known)
        if is_new:
            known.sequence = sequence
            self._core.number_send(id, sequence)
        while len(self._known) > self.limit:
            self._forget_oldest()
        return is_new

    def sequence(self, id: str) -> int:
        known = self._known.get(id)
        if known is None:
            if self._is_adopted or id in self._absent:
                return 0
            sequence = self._core.store.producer(id)
            if not sequence:
                self._absent.add(id)
                return 0
            known = self._known[id] = _Known(0)
            known.sequence = sequence
        if known.sequence is None:
            known.sequence = self._core.store.producer(id)
        return known.sequence

    def failed(self, batch: WriteBatch, following: WriteBatch) -> None:
        """A commit failed: the store is asked again which numbers it has; who is forgotten stays so."""
        for known in self._known.values():
            known.sequence = None
        for id, sequence in batch.producers.items():
            if sequence is None:
                following.producers.setdefault(id, None)
        for id, sequence in following.producers.items():
            if sequence is not None and id in self._known:
                self._known[id].sequence = sequence

    def _sent_now(self, id: str, known: _Known) -> None:
        known.last_sent = self._core.clock.now_ms()
        self._known.move_to_end(id)
        period = known.last_sent // PERIOD_MS
        if period != known.period:
            known.period = period
            self._core.set_mark(_mark(id), msgspec.msgpack.encode((id, period)))

    # Look, and forget.

    def ids(self) -> list[str]:
        return sorted(self._known)

    def last_sent(self, id: str) -> int:
        known = self._known.get(id)
        return 0 if known is None else known.last_sent

    def status(self, id: str) -> ProducerStatus:
        return ProducerStatus(id, self.sequence(id), self.last_sent(id))

    def forget(self, id: str) -> None:
        if id not in self._known:
            raise UnknownProducer(f"the producer {id[:60]!r} has not sent numbered messages", producer=id[:60])
        self._drop(id)

    def _drop(self, id: str) -> None:
        self._known.pop(id, None)
        self._core.number_send(id, None)
        self._core.set_mark(_mark(id), None)

    def _forget_oldest(self) -> None:
        self.forgotten += 1
        self._drop(next(iter(self._known)))

    def _check(self) -> None:
        """Look for those that were silent for too long, and for too many: the limit may be lower than it was."""
        self._core.scheduler.call_later(CHECK_PERIOD, self._check)
        if self._has_to_forget:
            self._core.steps.add(self._forget_step, "the removal of silent producers")

    def _forget_step(self) -> bool:
        for _ in range(STEP):
            if not self._has_to_forget:
                return False
            self._forget_oldest()
        return self._has_to_forget

    @property
    def _has_to_forget(self) -> bool:
        if len(self._known) > self.limit:
            return True
        age = self._core.settings.producer.id_max_age
        if age <= 0 or not self._known:
            return False
        oldest = next(iter(self._known.values()))
        return oldest.last_sent + PERIOD_MS <= self._core.wall.past_ms() - age * 1000

    def _adopt(self) -> bool:
        """Look at the next producers of the store that may have no mark; whether there are more."""
        core = self._core
        page = core.store.producers(self._next, STEP + 1)
        for id, _ in page[:STEP]:
            if id in self._known or len(id.encode(errors="surrogateescape")) > MAX_MARK_KEY:
                continue  # of an id that is so long the store has a digest
            if len(self._known) < self.limit:
                known = self._known[id] = _Known(0)
                self._sent_now(id, known)
                self._known.move_to_end(id, last=False)
            else:
                self._drop(id)
        self._next = page[-1][0] if page else ""
        self._is_adopted = len(page) <= STEP
        if self._is_adopted:
            self._absent.clear()
        return not self._is_adopted


def _mark(id: str) -> str:
    key = MARKS + id
    return key if len(key.encode()) <= MAX_MARK_KEY else MARKS + hashlib.sha256(id.encode()).hexdigest()
