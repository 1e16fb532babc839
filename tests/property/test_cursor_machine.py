"""Any history of two lanes that share a broker's memory: nothing is lost, nothing comes twice, the order is kept.

The machine drives cursors, the spool and the memory tree as the broker's queues do. Beside each lane stands a plain
model: the messages it must hold, by sequence. Pages are short and memory is tiny, so that every limit is met all the
time.
"""

from typing import NamedTuple
from unittest.mock import patch

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from quire.cursors import lane as cursors_lane
from quire.cursors.lane import MemoryUsage, QueueCursor
from quire.cursors.spool import Spool
from quire.message import Message
from quire.store.base import walk
from quire.store.memory import MemoryStore
from tests.unit.cursors.lane import EVERYTHING, Host, Lane, Part, charge, opened, sequences

BROKER_LIMIT = 4000
LANE_LIMIT = 2500
NUMBERS = (1, 2)
SIZES = st.sampled_from([40, 300, 1000, 3000])
"""Content sizes; the last is more than a lane's memory."""

LANES = st.sampled_from(NUMBERS)
COUNTS = st.integers(1, 4)


class Model:
    """What a lane must hold.

    Attributes:
        announced: the messages that can be given out or are in flight, by sequence.
        stored: the sequences that the store must have.
        seen: the sequences that were given out once.
        checked: how many receipts of the lane were looked at.
    """

    def __init__(self) -> None:
        self.announced: dict[int, Message] = {}
        self.stored: set[int] = set()
        self.seen: set[int] = set()
        self.checked = 0


class Pair(NamedTuple):
    """A lane and its model."""

    lane: Lane
    model: Model


class CursorMachine(RuleBasedStateMachine):
    """Two lanes, and a third party that takes memory of the same tree."""

    def __init__(self) -> None:
        super().__init__()
        self.store = opened()
        self.models = {number: Model() for number in NUMBERS}
        self.patch = patch.object(cursors_lane, "PAGE_LIMIT", 3)
        self.patch.start()
        self.start()

    def start(self) -> None:
        """Start the broker, so to speak: what is not in the store is gone."""
        self.host = Host(MemoryUsage(BROKER_LIMIT), self.store, Spool(opened(MemoryStore()), EVERYTHING))
        self.elsewhere = MemoryUsage(parent=self.host.memory)
        self.pairs = {number: Pair(Lane(self.host, LANE_LIMIT, number), self.models[number]) for number in NUMBERS}

    # The producer and the store.

    @rule(number=LANES, size=SIZES, persistent=st.booleans(), count=COUNTS)
    def send(self, number: int, size: int, persistent: bool, count: int) -> None:
        lane = self.pairs[number].lane
        for _ in range(count):
            lane.send(size, persistent=persistent)

    @rule(number=LANES)
    def write(self, number: int) -> None:
        """The store has a commit, and the cursor does not know."""
        lane, model = self.pairs[number]
        if lane.written is None:
            part = lane.write()
            model.stored |= {message.sequence for message in part.appends if message.persistent}
            model.stored -= set(sequences(part.removals))

    @rule(number=LANES)
    def announce(self, number: int) -> None:
        lane, model = self.pairs[number]
        if lane.written is not None:
            model.announced.update((message.sequence, message) for message in lane.written.appends)
            lane.announce()
            lane.dispatch()

    @rule(number=LANES, size=SIZES, persistent=st.booleans(), count=st.integers(1, 8))
    def send_and_commit(self, number: int, size: int, persistent: bool, count: int) -> None:
        self.send(number, size, persistent, count)
        self.announce(number)
        self.write(number)
        self.announce(number)

    @rule(number=LANES)
    def fail(self, number: int) -> None:
        """The store refuses a commit."""
        lane = self.pairs[number].lane
        if lane.written is None:
            lane.fail()

    @precondition(lambda self: sum(len(model.announced) for model in self.models.values()) > 12)
    @rule()
    def crash(self) -> None:
        self.start()
        for lane, model in self.pairs.values():
            records = self.store.page(lane.number, 1, EVERYTHING, EVERYTHING).messages
            model.announced = {message.sequence: message for message in records}
            model.seen &= model.stored
            model.checked = 0
            assert isinstance(lane.cursor, QueueCursor)
            lane.cursor.redelivered_to = max(model.seen, default=0)
            model.seen |= {sequence for sequence in model.stored if sequence <= lane.cursor.redelivered_to}

    # The consumer.

    @rule(number=LANES)
    def connect(self, number: int) -> None:
        lane = self.pairs[number].lane
        if not lane.connected:
            lane.connect()

    @precondition(lambda self: any(len(pair.lane.in_flight) > 1 for pair in self.pairs.values()))
    @rule(number=LANES)
    def disconnect(self, number: int) -> None:
        lane = self.pairs[number].lane
        if lane.connected:
            lane.disconnect()

    @rule(number=LANES, credit=COUNTS)
    def take(self, number: int, credit: int) -> None:
        self.connect(number)
        self.pairs[number].lane.take(credit)

    @rule(number=LANES, chosen=st.sets(st.integers(0, 5), min_size=1))
    def acknowledge(self, number: int, chosen: set[int]) -> None:
        """Only the memory's release lets the lane go on."""
        lane, model = self.pairs[number]
        done = [sequence for index, sequence in enumerate(lane.in_flight) if index in chosen]
        lane.acknowledge(done)
        for sequence in done:
            del model.announced[sequence]

    @rule(number=LANES, chosen=st.sets(st.integers(0, 5), min_size=1))
    def give_back(self, number: int, chosen: set[int]) -> None:
        lane = self.pairs[number].lane
        lane.give_back([sequence for index, sequence in enumerate(lane.in_flight) if index in chosen])
        lane.dispatch()

    # Others.

    @rule(number=LANES, chosen=st.sets(st.integers(0, 9), min_size=1))
    def purge(self, number: int, chosen: set[int]) -> None:
        """Messages are taken out, by expiry say."""
        lane, model = self.pairs[number]
        free = [message for sequence, message in model.announced.items() if sequence not in lane.in_flight]
        gone = [message for index, message in enumerate(free) if index in chosen]
        lane.purge(gone)
        for message in gone:
            del model.announced[message.sequence]

    @rule(size=SIZES)
    def take_memory(self, size: int) -> None:
        self.elsewhere.reserve(size)

    @precondition(lambda self: self.elsewhere.used)
    @rule()
    def free_memory(self) -> None:
        self.elsewhere.release(self.elsewhere.used)

    @rule()
    def turn(self) -> None:
        """The end of the broker's turn: cursors that were refused are woken; who does not go on has a reason."""
        self.host.memory.wake()
        self.receipts_are_right()
        for lane, model in self.pairs.values():
            waiting = [message for sequence, message in model.announced.items() if sequence not in lane.in_flight]
            if waiting and lane.connected and lane.credit and not lane.settling and not lane.cursor.excluded:
                assert lane.cursor.blocked_since is not None
                assert lane.in_flight
                assert charge(waiting[0]) > lane.memory.available()

    # What is always true.

    @invariant()
    def receipts_are_right(self) -> None:
        """Each message given out was the next one, and flagged if it was given out before."""
        for lane, model in self.pairs.values():
            fresh, model.checked = lane.received[model.checked :], len(lane.received)
            expected = [
                sequence
                for sequence in model.announced
                if sequence not in lane.in_flight or any(sequence == receipt.sequence for receipt in fresh)
            ]
            assert [receipt.sequence for receipt in fresh] == expected[: len(fresh)]
            for receipt in fresh:
                assert receipt.redelivered == (receipt.sequence in model.seen)
                model.seen.add(receipt.sequence)
                assert lane.in_flight[receipt.sequence].content == model.announced[receipt.sequence].content

    @invariant()
    def the_memory_is_what_is_resident(self) -> None:
        giants = 0
        for lane, model in self.pairs.values():
            admitted = [*lane.in_flight.values(), *lane.returned, *lane.cursor.window]
            coming = lane.open.appends + (lane.written or Part()).appends
            kept = [m for m in (*model.announced.values(), *coming) if not m.stored]
            assert lane.memory.used == charge(*{id(m): m for m in (*admitted, *kept)}.values())
            giant = max([charge(message) for message in admitted], default=0)
            assert lane.memory.used <= LANE_LIMIT + giant
            giants += giant
        assert self.host.memory.used <= BROKER_LIMIT + giants

    @invariant()
    def the_store_has_what_it_must(self) -> None:
        for number, model in self.models.items():
            assert [link.sequence for link in walk(self.store, number)] == sorted(model.stored)

    def teardown(self) -> None:
        """Let all consumers take everything: it comes, and nothing is left."""
        try:
            self.elsewhere.release(self.elsewhere.used)
            for number, (lane, _) in self.pairs.items():
                self.connect(number)
                lane.credit = EVERYTHING
            left = sum(len(lane.open.appends) + len(model.announced) for lane, model in self.pairs.values())
            for _ in range(left + 20):
                self.drain()
            assert not any(model.announced or model.stored for model in self.models.values())
            assert self.host.memory.used == 0
            assert self.host.spool.used == 0
        finally:
            self.patch.stop()

    def drain(self) -> None:
        """One step of it."""
        for number, (lane, _) in self.pairs.items():
            self.announce(number)
            self.write(number)
            self.announce(number)
            self.receipts_are_right()
            self.acknowledge(number, set(range(len(lane.in_flight))))
        self.turn()


TestCursorMachine = pytest.mark.slow(CursorMachine.TestCase)
TestCursorMachine.settings = settings(max_examples=300, stateful_step_count=80, deadline=None)
