"""Staged writes: stored rows that stay invisible until one commit decides over all of a producer's at once.

A bulk writer's tasks stage what they have, each chunk by itself. Their driver knows whether all have succeeded,
and commits their stages under a number (``Broker.take_producer_sequence``). The number and the decision are in one
commit: to commit again adds nothing, whatever was staged for it. From there the broker sends the rows in order, in
steps; each step's rows leave the stage and enter their destinations in one commit, and a broker that was killed goes on
with the next step. So any number of rows is written once, as a whole or not at all.

What is never committed is thrown away: by the producer's next commit, on request, or after a day.

Marks in the store: ``staged/rows/ID``, the rows; ``staged/index/ID``, what is known of them without reading them;
``staged/decided/NUMBER``, a decision until all its rows are sent.
"""

import logging
import secrets
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

import msgspec

from quire.broker.admission import check_room
from quire.broker.bulk.rows import Row, send, target_of
from quire.broker.core.core import Core, MarksOwner, MarksPart
from quire.broker.producer_ids import ProducerIds
from quire.broker.routing.routing import Routing
from quire.errors import LimitExceeded, QuireError, StoreCorrupt, StoreError, UnknownStage
from quire.logs import event
from quire.store.base import walk_marks

STEP_ROWS = 2000
STEP_BYTES = 1 << 20
"""How many rows and bytes of several stages are sent at once; one stage is always sent as a whole."""

LIFE = 24 * 3600
"""How long undecided rows stay, in seconds."""

MAX_STAGES = 100_000
"""How many stages there may be: what is known of each is in memory."""

SWEEP_INTERVAL = 3600
RETRY_INTERVAL = 1.0

ROWS, INDEX, DECIDED = "staged/rows/", "staged/index/", "staged/decided/"


class Stage(msgspec.Struct, array_like=True, frozen=True):
    """What is known of some staged rows; ``staged_at`` is in milliseconds since the epoch."""

    producer: str
    rows: int
    bytes: int
    staged_at: int


class _Decided(msgspec.Struct, array_like=True):
    producer: str
    stages: list[str]


@dataclass(slots=True, eq=False)
class Decision:
    """A producer's commit whose rows are not all sent yet.

    Attributes:
        key: the key of its mark.
        stages: what is to be sent yet, in order.
        waiting: to be called when everything is sent and durable.
    """

    key: str
    producer: str
    stages: deque[str]
    waiting: list[Callable[[], None]] = field(default_factory=list)


@dataclass(slots=True)
class Changes:
    """What a commit has of staged writes.

    Attributes:
        staged: the ids of new stages.
        sent: the ids of stages whose rows are sent in it; None if no step is.
    """

    staged: list[str] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    sent: list[str] | None = None


class StagedWrites(MarksOwner[Changes]):
    def __init__(self, core: Core, routing: Routing, producers: ProducerIds) -> None:
        super().__init__(core, Changes)
        self._routing = routing
        self._producers = producers
        self._decided: set[str] = set()  # ids of stages
        self._decisions: list[Decision] = []  # durable ones, in their order
        self._is_busy = False  # with steps
        self._is_sending = False  # a step whose commit is not done
        self._stuck: set[str] = set()  # producers whose next rows cannot be sent now
        self.stages: dict[str, Stage] = {}
        self.bytes = 0
        self._load()
        core.scheduler.call_later(SWEEP_INTERVAL, self._sweep)

    def _load(self) -> None:
        with self._core.store.snapshot() as reader:
            for key, value in walk_marks(reader, INDEX):
                try:
                    self._add(key.removeprefix(INDEX), msgspec.msgpack.decode(value, type=Stage))
                except msgspec.DecodeError as damage:
                    _tell_damage(key, damage)
            for key, value in walk_marks(reader, DECIDED):
                try:
                    decided = msgspec.msgpack.decode(value, type=_Decided)
                except msgspec.DecodeError as damage:
                    _tell_damage(key, damage)
                    continue
                stages = deque([id for id in decided.stages if id in self.stages])
                self._decided.update(stages)
                self._decisions.append(Decision(key, decided.producer, stages))
        self._next = 1 + max([int(decision.key.removeprefix(DECIDED)) for decision in self._decisions], default=0)
        self._core.scheduler.call_later(0, self._begin)  # not now: the broker is not whole yet

    # Staging.

    def stage(self, producer: str, rows: list[Row]) -> str:
        check_room(self._core, stored=True)
        if len(self.stages) >= MAX_STAGES:
            raise LimitExceeded(
                f"the limit of {MAX_STAGES} stages is reached: commit or discard some", limit=MAX_STAGES
            )
        id, content = secrets.token_hex(12), msgspec.msgpack.encode(rows)
        stage = Stage(producer, len(rows), len(content), self._core.wall.believed_ms())
        self._add(id, stage)
        self._core.charge_open(len(content))
        self._core.set_mark(ROWS + id, content)
        self._core.set_mark(INDEX + id, msgspec.msgpack.encode(stage))
        self.part.changes.staged.append(id)
        self._core.list_part(self.part)
        return id

    def discard(self, producer: str, ids: Iterable[str] | None = None) -> int:
        """Throw staged rows away with the open commit. What is decided stays, and so does what is others'."""
        wanted = [id for id, stage in self.stages.items() if stage.producer == producer] if ids is None else ids
        rows = 0
        for id in dict.fromkeys(wanted):
            if self._is_pending(id, producer):
                rows += self.stages[id].rows
                self._remove(id)
                self._forget(id)
        return rows

    # Committing.

    def commit(self, producer: str, sequence: int, ids: list[str]) -> int | None:
        """Decide that staged rows are written, with the open commit. All else that the producer staged is thrown away.

        If the commit fails, nothing is decided.

        Returns:
            How many rows; None if there was a commit with this number or a higher one: then nothing is written, and
            what ``ids`` name is thrown away.
        """
        if sequence <= self._producers.sequence(producer):
            self.discard(producer, ids)
            return None
        for id in ids:
            if not self._is_pending(id, producer):
                text = f"the producer {producer[:100]!r} has no stage {id[:60]!r}"
                raise UnknownStage(text, stage=id[:60], producer=producer[:100])
        self._producers.take(producer, sequence)
        stages = deque(dict.fromkeys(ids))
        self._decided.update(stages)
        self.discard(producer)
        if stages:
            decision = Decision(f"{DECIDED}{self._next:020d}", producer, stages)
            self._next += 1
            self._core.set_mark(decision.key, msgspec.msgpack.encode(_Decided(producer, list(stages))))
            self.part.changes.decisions.append(decision)
            self._core.list_part(self.part)
        return sum([self.stages[id].rows for id in stages])

    def when_sent(self, producer: str, done: Callable[[], None]) -> None:
        """Be told when everything that is decided for a producer is in its destinations, and durable; now if it is."""
        for decision in reversed(self._decisions):
            if decision.producer == producer:
                decision.waiting.append(done)
                return
        done()

    def is_decided(self, id: str) -> bool:
        return id in self._decided

    def _begin(self) -> None:
        if self._decisions and not self._is_busy:
            self._is_busy = True
            self._core.steps.add(self._step, "the sending of committed rows of bulk writers")

    def _step(self) -> bool:
        """Send the next rows in the open commit; whether there may be more. A stuck producer holds up no other."""
        decision = next((known for known in self._decisions if known.producer not in self._stuck), None)
        if decision is None:
            self._is_busy = False
            return False
        try:
            self._send_step(decision)
        except QuireError as error:
            if isinstance(error, StoreError) and not isinstance(error, StoreCorrupt):
                raise
            text = f"the committed rows of a bulk writer cannot be sent now; the broker tries again: {error}"
            event("write.waits", text, logging.WARNING, code=error.code, producer=decision.producer)
            self._stuck.add(decision.producer)
            self._core.scheduler.call_later(RETRY_INTERVAL, partial(self._try_again, decision.producer))
        return True

    def _try_again(self, producer: str) -> None:
        self._stuck.discard(producer)
        self._begin()

    def _send_step(self, decision: Decision) -> None:
        ids, rows, size = list[str](), list[Row](), 0
        for id in decision.stages:
            stage = self.stages[id]
            size += stage.bytes
            if ids and (len(rows) + stage.rows > STEP_ROWS or size > STEP_BYTES):
                break
            ids.append(id)
            rows += self._read(id)
        with self._core.limits.own_work():
            targets = [target_of(self._routing, row) for row in rows]
        send(self._core, rows, targets, decided=True)
        for id in ids:
            decision.stages.popleft()
            self._forget(id)
        if not decision.stages:
            self._core.set_mark(decision.key, None)
        self._is_sending = True
        self.part.changes.sent = ids
        self._core.list_part(self.part)
        self._core.hurry()

    def _read(self, id: str) -> list[Row]:
        key = ROWS + id
        value = self._core.store.mark(key)
        if value is None:
            raise StoreCorrupt(f"the mark {key} of staged rows is missing", key=key)
        try:
            return msgspec.msgpack.decode(value, type=list[Row])
        except msgspec.DecodeError as error:
            raise StoreCorrupt(f"the mark {key} of staged rows cannot be read: {error}", key=key) from error

    # Commits.

    def committed(self, part: MarksPart[Changes]) -> None:
        self._decisions += part.changes.decisions
        if part.changes.sent is not None:
            self._is_sending = False
            for id in part.changes.sent:
                self._decided.discard(id)
                self._remove(id)
        if not self._is_sending:
            through = [decision for decision in self._decisions if not decision.stages]
            self._decisions = [decision for decision in self._decisions if decision.stages]
            for done in [done for decision in through for done in decision.waiting]:
                done()
        self._begin()

    def commit_failed(self, part: MarksPart[Changes], restored: set[int]) -> None:
        for id in part.changes.staged:
            if id in self.stages:
                self._remove(id)
            self._forget(id)
        for decision in part.changes.decisions:
            self._decided.difference_update(decision.stages)
            self._core.set_mark(decision.key, None)
        if part.changes.sent is not None:
            self.part.changes.sent = part.changes.sent
            self._core.list_part(self.part)

    # What is there.

    def _is_pending(self, id: str, producer: str) -> bool:
        stage = self.stages.get(id)
        return stage is not None and stage.producer == producer and id not in self._decided

    def _add(self, id: str, stage: Stage) -> None:
        self.stages[id] = stage
        self.bytes += stage.bytes
        self._core.charge_staged(stage.bytes)

    def _remove(self, id: str) -> None:
        size = self.stages.pop(id).bytes
        self.bytes -= size
        self._core.charge_staged(-size)

    def _forget(self, id: str) -> None:
        self._core.set_mark(ROWS + id, None)
        self._core.set_mark(INDEX + id, None)

    def _sweep(self) -> None:
        self._core.scheduler.call_later(SWEEP_INTERVAL, self._sweep)
        oldest = self._core.wall.past_ms() - LIFE * 1000
        old = [id for id, stage in self.stages.items() if stage.staged_at < oldest and id not in self._decided]
        for id in old:
            self._remove(id)
            self._forget(id)
        if old:
            event("write.expired", f"{len(old)} stages were never committed and are discarded", stages=len(old))


def _tell_damage(key: str, damage: msgspec.DecodeError) -> None:
    text = f"a stage cannot be read and is ignored: {damage}. The store keeps its mark {key}."
    event("write.damaged", text, logging.ERROR, key=key)
