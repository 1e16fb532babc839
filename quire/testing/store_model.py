"""A plain model of a store, and a state machine that drives a store and the model with the same batches."""

import zlib
from typing import NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from quire.message import Message
from quire.store.base import (
    Delivery,
    Expiration,
    LaneBatch,
    LaneState,
    Link,
    Store,
    StoredDestination,
    StoreReader,
    WriteBatch,
    walk,
)

_EVERYTHING = 1 << 40


def make_message(sequence: int, size: int = 40, expiration: int = 0, priority: int = 4) -> Message:
    """A message of at least 40 bytes whose content tells its sequence; it expires at a time in ms since the epoch."""
    head = b"message-id:%d\ntimestamp:0\n\n" % sequence
    return Message(sequence, head.ljust(size, b"."), expiration, priority)


class ModelLane:
    """What a lane must hold."""

    def __init__(self) -> None:
        self.records: dict[int, Message] = {}  # the messages, by sequence, in order
        self.deliveries: dict[int, Delivery] = {}  # the delivery states, by sequence
        self.next_sequence = 1  # as in ``LaneState``
        self.dispatch_mark = 0  # as in ``LaneState``

    def apply(self, part: LaneBatch) -> None:
        """Take the lane's part of a batch, as ``LaneBatch`` describes it."""
        for message in part.appends:
            self.records[message.sequence] = message
            self.next_sequence = message.sequence + 1
        for sequence, state in part.deliveries.items():
            self.deliveries.pop(sequence, None)
            if state is not None and sequence in self.records:
                self.deliveries[sequence] = state
        for sequence in part.removals:
            self.records.pop(sequence, None)
            self.deliveries.pop(sequence, None)
        if part.dispatch_mark is not None:
            self.dispatch_mark = part.dispatch_mark

    def check(self, reader: StoreReader, lane: int) -> None:
        """Assert that a store holds the same, with links that agree in both directions."""
        sequences = list(self.records)
        sizes = [message.size for message in self.records.values()]
        assert list(walk(reader, lane, step=7)) == [
            Link(message.sequence, previous, following, message.size, zlib.crc32(message.content))
            for message, previous, following in zip(
                self.records.values(), [0, *sequences], [*sequences[1:], 0], strict=False
            )
        ]
        head, tail = (sequences[0], sequences[-1]) if sequences else (0, 0)
        state = LaneState(head, tail, len(sequences), sum(sizes), self.next_sequence, self.dispatch_mark)
        assert reader.lane_state(lane) == state
        assert reader.deliveries(lane, 0, 1000) == sorted(self.deliveries.items())
        page = reader.page(lane, 0, _EVERYTHING, len(sequences) + 1)
        assert page.end
        self._check_messages(page.messages, sequences)
        self._check_messages(reader.load(lane, sequences[::-2]), sequences[::-2])

    def _check_messages(self, messages: list[Message], sequences: list[int]) -> None:
        assert [message.sequence for message in messages] == sequences
        for message in messages:
            expected = self.records[message.sequence]
            assert (message.content, message.size) == (expected.content, expected.size)
            assert (message.expiration, message.priority) == (expected.expiration, expected.priority)
            state = self.deliveries.get(message.sequence, Delivery(0))
            assert (message.deliveries, message.failures) == (state.deliveries, state.failures)
            assert (message.redelivered, message.not_before) == (state.deliveries > 0, state.not_before)


class StoreModel:
    """What a store must hold: it takes the same batches, and compares."""

    def __init__(self) -> None:
        self.lanes: dict[int, ModelLane] = {}
        self.destinations: dict[int, StoredDestination] = {}
        self.producers: dict[str, int] = {}
        self.marks: dict[str, bytes] = {}

    def lane(self, lane: int) -> ModelLane:
        """A lane, made on first use."""
        return self.lanes.setdefault(lane, ModelLane())

    def apply(self, batch: WriteBatch) -> None:
        """Take a batch, as ``WriteBatch`` describes it."""
        for number, part in batch.lanes.items():
            self.lane(number).apply(part)
        for identity, destination in batch.destinations.items():
            removed = self.destinations.pop(identity, None)
            if destination is not None:
                self.destinations[identity] = destination
            elif removed is not None:
                for number in removed.lanes:
                    self.lanes.pop(number, None)
        for producer, sequence in batch.producers.items():
            self.producers.pop(producer, None)
            if sequence is not None:
                self.producers[producer] = sequence
        for key, value in batch.marks.items():
            self.marks.pop(key, None)
            if value is not None:
                self.marks[key] = value

    def check(self, reader: StoreReader, lanes: range) -> None:
        """Assert that a store holds the same in some lanes, known or not, and in everything that is in no lane."""
        for number in lanes:
            self.lanes.get(number, ModelLane()).check(reader, number)
        assert reader.destinations() == [self.destinations[number] for number in sorted(self.destinations)]
        assert reader.producers() == sorted(self.producers.items())
        for producer, known in self.producers.items():
            assert reader.producer(producer) == known
        for key in ("a", "b"):
            assert reader.mark(key) == self.marks.get(key)
        assert reader.marks("") == sorted(self.marks.items(), key=lambda mark: mark[0].encode())
        for now_ms in (100, _EVERYTHING):
            expired = sorted(
                Expiration(message.expiration, number, message.sequence)
                for number, lane in self.lanes.items()
                for message in lane.records.values()
                if 0 < message.expiration <= now_ms
            )
            assert reader.expired(now_ms, 1000) == expired
            for after in expired[:: max(1, len(expired) // 3)]:
                assert reader.expired(now_ms, 1000, after) == expired[expired.index(after) + 1 :]


class LaneChange(NamedTuple):
    """A change to a lane whatever it holds: numbers that point at records are taken modulo their count.

    Attributes:
        appends: for each new record how many sequences it leaves out, its size, and when it expires.
        removals: which records to remove; -1 is one that is not there.
        states: which delivery states to set.
        mark: whether to move the dispatch mark.
    """

    appends: list[tuple[int, int, int]]
    removals: list[int]
    states: dict[int, Delivery | None]
    mark: bool


_positions = st.integers(-1, 60)
_states = st.builds(Delivery, st.integers(0, 3), st.integers(0, 3), st.integers(0, 10**13), st.text("aé ", max_size=3))
_changes = st.builds(
    LaneChange,
    st.lists(st.tuples(st.integers(0, 2), st.integers(40, 90), st.sampled_from([0, 0, 50, 100, 200])), max_size=12),
    st.lists(_positions, max_size=12),
    st.dictionaries(_positions, st.none() | _states, max_size=3),
    st.booleans(),
)
_LANES = range(1, 5)
_DESTINATION_LANES = {1: (1, 2), 2: (3,)}


class StoreMachine(RuleBasedStateMachine):
    """Any history of batches and restarts leaves a store as it leaves the model.

    Hypothesis makes the machines itself, so a subclass says what stores to use.
    """

    def __init__(self) -> None:
        super().__init__()
        self._model = StoreModel()

    def make(self) -> Store:
        """Make an open, empty store."""
        raise NotImplementedError("override make")

    def again(self, store: Store) -> Store:
        """Close a store and give an open one on the same data."""
        raise NotImplementedError("override again")

    @initialize()
    def open(self) -> None:
        """Begin with an empty store."""
        self._store = self.make()

    @rule(changes=st.dictionaries(st.sampled_from(_LANES), _changes, min_size=1))
    def change_lanes(self, changes: dict[int, LaneChange]) -> None:
        """Append, remove, and set states in several lanes at once."""
        self._apply(self._batch(changes))

    @rule(changes=_changes)
    def fail(self, changes: LaneChange) -> None:
        """A batch that fails leaves nothing behind."""
        batch = self._batch({1: changes, 2: changes})
        batch.marks["a"] = b"failed"
        broken = make_message(self._model.lane(4).next_sequence)
        broken.content = None  # type: ignore[assignment]
        batch.lane(4).appends.append(broken)
        try:
            self._store.apply(batch)
        except Exception:  # which one is the back end's; what counts is what it leaves behind
            return
        raise AssertionError("a message without bytes was stored")

    @rule(number=st.sampled_from(list(_DESTINATION_LANES)), name=st.none() | st.text("aé/", min_size=1, max_size=5))
    def change_destination(self, number: int, name: str | None) -> None:
        """Create, replace or remove a destination."""
        batch = WriteBatch()
        batch.destinations[number] = (
            None if name is None else StoredDestination(number, "queue", name, {"n": name}, _DESTINATION_LANES[number])
        )
        self._apply(batch)

    @rule(
        key=st.sampled_from("ab"), value=st.none() | st.binary(max_size=3), sequence=st.none() | st.integers(1, 10**12)
    )
    def set_marks(self, key: str, value: bytes | None, sequence: int | None) -> None:
        """Set what belongs to no lane."""
        self._apply(WriteBatch(marks={key: value}, producers={key: sequence}))

    @rule()
    def restart(self) -> None:
        """Close the store and open it again."""
        self._store = self.again(self._store)

    @invariant()
    def same_as_model(self) -> None:
        """Everything that can be read is as the model has it."""
        self._model.check(self._store, _LANES)

    def teardown(self) -> None:
        """Close the store."""
        if hasattr(self, "_store"):
            self._store.close()

    def _apply(self, batch: WriteBatch) -> None:
        self._store.apply(batch)
        self._model.apply(batch)

    def _batch(self, changes: dict[int, LaneChange]) -> WriteBatch:
        batch = WriteBatch()
        for number, change in changes.items():
            lane, part = self._model.lanes.get(number, ModelLane()), batch.lane(number)
            sequence = lane.next_sequence
            for gap, size, expiration in change.appends:
                part.appends.append(make_message(sequence + gap, size, expiration))
                sequence += gap + 1
            present = [*lane.records, *(message.sequence for message in part.appends)]
            absent = sequence + 1000

            def pick(position: int, present: list[int] = present, absent: int = absent) -> int:
                return present[position % len(present)] if present and position >= 0 else absent

            part.removals = [pick(position) for position in change.removals]
            part.deliveries = {pick(position): state for position, state in change.states.items()}
            part.dispatch_mark = sequence if change.mark else None
        return batch
