"""A consumer of several shards that answer late: nothing is lost, no consumer starves, each pull ends."""

from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.broker.core.subscription import AckMode
from quire.broker.routing.addresses import Address
from quire.cluster.spread_consumer import SpreadConsumer, SpreadPart
from quire.destination import Destination, DestinationKind
from quire.errors import InvalidArgument, InvalidHeader, UnknownMessage
from quire.message import Message
from quire.sessions.base import (
    ACCEPTED,
    DELIVERED,
    RELEASED,
    UNKNOWN,
    Consumer,
    Part,
    Seen,
    Settlement,
    SettlementKind,
    Step,
    SubscribeSpec,
    These,
    UpTo,
)

SPEC = SubscribeSpec("c", (Address(DestinationKind.QUEUE, ">"),), ack=AckMode.INDIVIDUAL)


@dataclass(eq=False)
class FakePart:
    """A part at a shard."""

    number: int
    shard: "FakeShard"
    consumer: Any = None
    writer: Any = None
    partition: int | None = None
    epoch: int = 0
    destination: Destination = field(default_factory=lambda: Destination(DestinationKind.QUEUE, "q"))
    in_flight: dict[int, Message] = field(default_factory=dict)

    def acknowledge(self, sequences: list[int]) -> list[int]:
        """Tell the shard."""
        self.shard.settle(These(self, sequences), ACCEPTED)
        return []


class FakeShard:
    """A shard at the end of a slow link: what is said to it, and what it says, comes when the test carries it."""

    def __init__(self, number: int, model: "Model") -> None:
        self.number = number
        self.model = model
        self.part = FakePart(100 + number, self)
        self.to: deque[Any] = deque()
        self.back: deque[Any] = deque()
        self.waiting: deque[int] = deque()
        self.has: set[int] = set()
        self.window = 0
        self.granted = self.pull_number = 0
        self.deadline: float | None = None  # of the pull that is open; infinite for ever
        self.credits = 0
        self.released = 0

    # As a session: said at the entry.

    def credit(self, consumer: Consumer, prefetch: int) -> None:
        """A window."""
        self.credits += 1
        self.to.append(partial(self._credit, prefetch))

    def pull(self, consumer: Consumer, count: int, wait_ms: int) -> None:
        """Grants."""
        self.model.pulls[self.number] += 1
        self.to.append(partial(self._pull, self.model.pulls[self.number], count, wait_ms))

    def settle(self, what: Any, how: Settlement) -> bool:
        """Messages are settled."""
        if how == RELEASED:
            self.released += len(what.sequences)
        self.to.append(partial(self._settle, what.sequences, how))
        return True

    # At the shard.

    def _credit(self, prefetch: int) -> None:
        self.window = prefetch

    def _pull(self, number: int, count: int, wait_ms: int) -> None:
        self.pull_number, self.granted = number, count
        self.deadline = float("inf") if wait_ms == 0 else self.model.time + max(wait_ms, 0) / 1000
        self.dispatch()
        if not count or wait_ms < 0:
            self._end_pull()

    def _settle(self, sequences: list[int], how: Settlement) -> None:
        self.has -= set(sequences)
        if how == RELEASED:
            self.waiting.extendleft(reversed(sequences))

    def _end_pull(self) -> None:
        if self.deadline is not None:
            self.deadline = None
            self.back.append(("end", self.pull_number))
            self.granted = 0

    def dispatch(self) -> None:
        """Give what may be given."""
        room = self.granted if self.deadline is not None else self.window - len(self.has)
        run = [self.waiting.popleft() for _ in range(min(max(room, 0), len(self.waiting)))]
        if run:
            self.has.update(run)
            self.back.append(("given", run))
        if self.deadline is not None:
            self.granted -= len(run)
            if not self.granted or self.model.time >= self.deadline:
                self._end_pull()

    def carry(self) -> bool:
        """One thing that was said arrives."""
        if not self.to:
            return False
        self.to.popleft()()
        self.dispatch()
        return True

    def carry_back(self) -> bool:
        """One thing that it says arrives."""
        if not self.back:
            return False
        kind, what = self.back.popleft()
        consumer = self.model.consumer
        if kind == "given":
            shown = consumer.given(self.model.shown[self.number], [Message(s, b"") for s in what])
            self.model.got += [(self.number, message.sequence) for message in shown]
        elif what == self.model.pulls[self.number]:
            consumer.pull_ended(self.part)  # type: ignore[arg-type]
        return True


class Model:
    """One consumer of some shards, and its client."""

    def __init__(self, shards: int, prefetch: int, spec: SubscribeSpec = SPEC) -> None:
        self.time = 0.0
        self.pulls = dict.fromkeys(range(shards), 0)
        self.ended: list[int] = []
        self.got: list[tuple[int, int]] = []  # what the client has, and has not settled
        self.sent = self.settled = self.most = 0
        self.consumer = SpreadConsumer(
            spec,
            prefetch,
            shards,
            extends=True,
            now=lambda: self.time,
            pull_ended=lambda _, left: self.ended.append(left),
        )
        self.shards = [FakeShard(number, self) for number in range(shards)]
        self.shown: dict[int, SpreadPart] = {}
        for shard in self.shards:
            self.consumer.subscribed(shard.number, shard, shard.part)  # type: ignore[arg-type]
            self.shown[shard.number] = self.consumer.part_added(shard.number, shard.part)
            shard.window = self.consumer.share

    def produce(self, shard: int, count: int = 1) -> None:
        """Messages come to a shard."""
        for _ in range(count):
            self.sent += 1
            self.shards[shard].waiting.append(self.sent)
        self.shards[shard].dispatch()

    def settle(self, count: int) -> None:
        """The client settles the oldest messages that it has, each by itself."""
        done, self.got = self.got[:count], self.got[count:]
        for shard, sequence in done:
            self.shown[shard].acknowledge([sequence])
        self.settled += len(done)

    def run(self) -> None:
        """Carry all there is."""
        while any([shard.carry() or shard.carry_back() for shard in self.shards]):
            self.most = max(self.most, len(self.got))

    def later(self, seconds: float) -> None:
        """Time goes by."""
        self.time += seconds
        for shard in self.shards:
            shard.dispatch()


Steps = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.integers(1, 12)), max_size=80)


def play(model: Model, steps: list[tuple[int, int, int]], *, lots_of: int = 1) -> None:
    """Have a random history: messages come, links carry one thing each, the client settles."""
    for what, where, many in steps:
        shard = model.shards[where % len(model.shards)]
        if what == 0:
            model.produce(shard.number, many)
        elif what in (1, 2):
            shard.carry() if what == 1 else shard.carry_back()
        elif what == 3 and len(model.got) >= lots_of:
            model.settle(lots_of)
        elif what == 4:
            model.later(many / 10)
        model.most = max(model.most, len(model.got))


@pytest.mark.slow
@settings(max_examples=150)
@given(st.integers(1, 4), st.integers(1, 12), Steps, st.booleans())
def test_no_consumer_starves_and_none_has_too_much(
    shards: int, prefetch: int, steps: list[tuple[int, int, int]], in_lots: bool
) -> None:
    model = Model(shards, prefetch)
    lots_of = prefetch if in_lots else 1  # a client that settles only lots of its whole prefetch must not wait for ever
    play(model, steps, lots_of=lots_of)
    model.run()
    while model.sent - model.settled >= lots_of:
        model.run()
        assert len(model.got) >= lots_of, "the client waits for ever"
        model.settle(lots_of)
    model.run()
    assert len(model.got) == model.sent - model.settled
    assert len({*model.got}) == len(model.got), "a message came twice"
    assert model.most <= 3 * max(prefetch, shards)


def test_a_shard_that_alone_has_messages_gives_the_whole_prefetch() -> None:
    model = Model(4, 20)
    model.produce(2, 100)
    model.run()
    assert len(model.got) == 20
    model.settle(20)
    model.run()
    assert len(model.got) == 20


def test_raised_windows_go_back_when_the_client_has_too_much() -> None:
    model = Model(2, 10)
    model.produce(0, 100)
    model.run()
    assert model.shards[0].window == 10
    model.produce(1, 100)
    model.run()
    assert len(model.got) == 15
    assert [shard.window for shard in model.shards] == [5, 5]


def test_few_windows_are_set_for_many_messages() -> None:
    model = Model(3, 30)
    for _ in range(100):
        for shard in range(3):
            model.produce(shard, 10)
        model.run()
        model.settle(30)
    model.run()
    assert sum([shard.credits for shard in model.shards]) < 0.3 * model.sent


@pytest.mark.slow
@settings(max_examples=250)
@given(
    st.integers(1, 4),
    Steps,
    st.lists(st.tuples(st.integers(1, 6), st.sampled_from([-1, 0, 300])), min_size=1, max_size=8),
)
def test_pulls_lose_nothing_and_each_of_them_ends(
    shards: int, steps: list[tuple[int, int, int]], pulls: list[tuple[int, int]]
) -> None:
    model = Model(shards, 0)
    per_pull = len(steps) // len(pulls)
    for number, (count, wait) in enumerate(pulls):
        before, ended = len(model.got), len(model.ended)
        model.consumer.pull(count, wait)
        play(model, [(what, at, n) for what, at, n in steps[number * per_pull :][:per_pull] if what != 3])
        model.run()
        if wait == 0 and len(model.ended) == ended:  # it waits until so many have come
            assert len(model.got) - before < count
            model.produce(0, count)
            model.run()
        model.later(1.0)
        model.run()
        assert len(model.ended) == ended + 1, "a pull has no end, or two"
        assert model.ended[-1] == count - (len(model.got) - before), "another number was told than has come"
        assert len(model.got) - before <= count
    left = model.sent - len(model.got)
    assert sum([len(shard.waiting) for shard in model.shards]) == left, (
        "a message is lost at a consumer that did not ask"
    )
    assert len({*model.got}) == len(model.got), "a message came twice"


@pytest.mark.slow
@given(Steps)
def test_a_pull_in_the_place_of_another_one_ends_alone(steps: list[tuple[int, int, int]]) -> None:
    model = Model(3, 0)
    model.consumer.pull(4, 0)
    play(model, [step for step in steps if step[0] != 3])
    before, ended = len(model.got), len(model.ended)
    model.consumer.pull(3, -1)
    model.run()
    assert len(model.ended) == ended + 1
    assert model.ended[-1] == 3 - (len(model.got) - before)
    model.produce(0, 5)
    model.run()
    assert sum([len(shard.waiting) for shard in model.shards]) == model.sent - len(model.got)


def test_the_shard_that_gave_last_is_asked_first() -> None:
    model = Model(3, 0)
    model.produce(2, 5)
    model.consumer.pull(1, -1)
    model.run()
    asked = dict(model.pulls)
    model.consumer.pull(1, -1)
    model.run()
    assert {number: model.pulls[number] - asked[number] for number in range(3)} == {0: 0, 1: 0, 2: 1}


def test_what_comes_beyond_a_pull_is_released() -> None:
    model = Model(2, 0)
    model.consumer.pull(1, 0)
    model.run()
    model.produce(0)
    model.produce(1)
    model.run()
    assert model.got == [(0, 1)]
    assert [shard.released for shard in model.shards] == [0, 1]
    assert list(model.shards[1].waiting) == [2]


def test_a_consumer_with_a_prefetch_does_not_pull() -> None:
    with pytest.raises(InvalidHeader):
        Model(2, 5).consumer.pull(1, 0)


# What is said of messages, over both shards: 1 and 3 are of the first one, 2 and 4 of the second one.


def four() -> Model:
    """A client that has four messages, in turn of two shards."""
    model = Model(2, 10)
    for shard in (0, 1, 0, 1):
        model.produce(shard)
        model.run()
    return model


def covered(
    model: Model, what: These | UpTo, how: Settlement = ACCEPTED, tx: bytes | None = None
) -> dict[int, list[int]]:
    """The messages that are meant, by shard."""
    found = model.consumer.settled(what, how, tx)
    return {part.number - 100: sequences for part, sequences in found.items()}


def up_to(model: Model, first: int | None, last: int, expected: int = 0) -> UpTo:
    """What is meant by two messages, of which one says their shards."""
    parts: list[Part] = [model.shown[1], model.shown[0]]
    return UpTo(parts[last % 2], first, last, expected, None if first is None else parts[first % 2])


def test_all_up_to_a_message_are_those_of_all_shards_in_the_order_they_came() -> None:
    model = four()
    assert covered(model, up_to(model, None, 3)) == {0: [1, 3], 1: [2]}
    assert covered(model, up_to(model, None, 4)) == {1: [4]}


def test_a_range_begins_with_its_first_message() -> None:
    model = four()
    assert covered(model, up_to(model, 2, 3)) == {1: [2], 0: [3]}
    model = four()
    assert covered(model, up_to(model, 3, 3)) == {0: [3]}
    model = four()
    assert covered(model, up_to(model, None, 3, 1)) == {0: [3]}


def test_of_a_range_whose_first_message_is_gone_there_are_as_many_as_expected() -> None:
    model = four()
    covered(model, up_to(model, None, 1))
    assert covered(model, up_to(model, 1, 4, 2)) == {0: [3], 1: [4]}
    model = four()  # or is not known any more
    assert covered(model, up_to(model, None, 4, 2)) == {0: [3], 1: [4]}


def test_a_range_that_is_turned_round_and_a_message_that_is_not_there_are_refused() -> None:
    model = four()
    with pytest.raises(InvalidArgument):
        covered(model, up_to(model, 4, 3))
    with pytest.raises(UnknownMessage):
        covered(model, up_to(model, None, 6))
    assert covered(model, up_to(model, None, 4)) == {0: [1, 3], 1: [2, 4]}


def test_what_a_client_had_before_is_covered_first_in_the_order_of_its_marks() -> None:
    model = four()
    for number in (3, 2):
        assert covered(model, up_to(model, None, number, 1), DELIVERED) == {(number + 1) % 2: [number]}
    assert list(covered(model, up_to(model, 3, 4, 3)).items()) == [(0, [3, 1]), (1, [2, 4])]


def test_messages_that_are_delivered_take_no_credit() -> None:
    model = Model(2, 4)
    model.produce(0, 10)
    model.run()
    assert len(model.got) == 4
    covered(model, UpTo(model.shown[0], None, 4), DELIVERED)
    model.shards[0].has -= {1, 2, 3, 4}  # they take no credit there
    model.shards[0].dispatch()
    model.run()
    assert len(model.got) == 8


def test_what_a_transaction_acknowledges_is_not_covered_again_and_stays_if_the_client_keeps_it() -> None:
    model = four()
    assert covered(model, up_to(model, None, 2), ACCEPTED, b"l1") == {0: [1], 1: [2]}
    assert covered(model, up_to(model, None, 3), ACCEPTED, b"l1") == {0: [3]}
    model.consumer.transaction_ended(b"l1", Step.ROLLBACK_KEEP)
    assert covered(model, up_to(model, None, 3), ACCEPTED, b"l2") == {0: [1, 3], 1: [2]}
    model.consumer.transaction_ended(b"l2", Step.COMMIT)
    assert covered(model, up_to(model, None, 4)) == {1: [4]}


def test_a_rejection_with_a_delay_in_a_transaction_waits_too() -> None:
    model = four()
    covered(model, up_to(model, None, 4), Settlement(SettlementKind.REJECTED), b"l1")
    model.consumer.transaction_ended(b"l1", Step.ROLLBACK_KEEP)
    assert covered(model, up_to(model, None, 4)) == {0: [1, 3], 1: [2, 4]}


def test_each_shard_is_told_of_its_own_last_message_that_was_seen() -> None:
    model = four()
    seen = Seen(True, 3, model.shown[0])
    assert model.consumer.seen(0, seen) == Seen(True, 3, model.shards[0].part)
    assert model.consumer.seen(1, seen) == Seen(True, 2, model.shards[1].part)
    assert model.consumer.seen(1, Seen(True, 1, model.shown[0])) == Seen(True)
    assert model.consumer.seen(1, UNKNOWN) == UNKNOWN
    assert model.consumer.seen(0, Seen(True)) == Seen(True)


def test_if_the_last_one_that_was_seen_is_done_with_the_others_were_not_seen() -> None:
    model = four()
    covered(model, up_to(model, None, 2))
    assert [model.consumer.seen(shard, Seen(True, 2, model.shown[1])) for shard in (0, 1)] == [Seen(True)] * 2
    alone = Seen(True, 2, model.shown[1], True)
    assert [model.consumer.seen(shard, alone) for shard in (0, 1)] == [
        UNKNOWN,
        Seen(True, 2, model.shards[1].part, True),
    ]


def test_what_a_lost_shard_gave_is_gone() -> None:
    model = four()
    assert [part.number for part in model.consumer.lost(0)] == [100]
    assert [part.number for part in model.consumer.parts] == [101]
    assert covered(model, up_to(model, None, 4)) == {1: [2, 4]}
