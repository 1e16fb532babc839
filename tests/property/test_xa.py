"""Any history of XA transactions, consumers and crashes: everybody gets what is there, and nothing that is hidden."""

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from quire.broker.transactions.xa import XaBranch
from quire.testing.stepped import SteppedBroker
from tests.unit.broker.core_consumer import CoreConsumer
from tests.unit.broker.harness import settings
from tests.unit.broker.recipients import acknowledge
from tests.unit.broker.xa import send_in, start, xid

NAMES = st.sampled_from([b"1", b"2", b"3"])
INDEX = st.integers(0, 5)
SELECTORS = st.sampled_from(["", "", "color = 'red'", "color = 'blue'"])


class XaMachine(RuleBasedStateMachine):
    """A queue, its consumers, and branches, beside what a plain model says is in the queue."""

    def __init__(self) -> None:
        super().__init__()
        # Two messages fit into memory.
        self.stepped = SteppedBroker(settings(policy={"maximum_redeliveries": -1}, memory={"limit": 1000}))
        self.waiting: set[bytes] = set()
        self.held: dict[bytes, set[bytes]] = {}
        self.sends: dict[bytes, set[bytes]] = {}
        self.prepared: set[bytes] = set()
        self.consumers: list[CoreConsumer] = []
        self.count = 0

    # Messages and consumers come and go.

    def new_body(self) -> bytes:
        self.count += 1
        return b"%d" % self.count

    @rule(color=st.sampled_from(["red", "blue"]))
    def send(self, color: str) -> None:
        body = self.new_body()
        self.stepped.connect().send("q", body, {"color": color})
        self.stepped.clients.pop().vanish()
        self.waiting.add(body)
        self.stepped.run()

    @rule(prefetch=st.integers(1, 4), wanted=SELECTORS)
    def come(self, prefetch: int, wanted: str) -> None:
        if len(self.consumers) < 3:
            self.consumers.append(CoreConsumer(self.stepped, prefetch=prefetch, wanted=wanted))

    @precondition(lambda self: self.consumers)
    @rule(index=INDEX, lost=st.booleans())
    def leave(self, index: int, lost: bool) -> None:
        consumer = self.consumers.pop(index % len(self.consumers))
        for name in self.open_branches():
            if self.stepped.broker.xa.branch(xid(name)).session is consumer.session:
                self.forget(name)
        self.stepped.broker.xa.lost(consumer.session)
        consumer.leave(lost=lost)
        self.stepped.run()

    @precondition(lambda self: self.consumers)
    @rule(index=INDEX)
    def finish(self, index: int) -> None:
        consumer = self.consumers[index % len(self.consumers)]
        if free := self.free(consumer):
            message = consumer.subscription.in_flight[free[0]]
            self.waiting.discard(message.content.rpartition(b"\n")[2])
            acknowledge(consumer.subscription, free[0])
            self.stepped.run()

    def free(self, consumer: CoreConsumer) -> list[int]:
        """What a consumer has that no branch has acknowledged."""
        return [
            sequence for sequence in consumer.subscription.in_flight if sequence not in consumer.subscription.extended
        ]

    @rule()
    def pause_or_resume(self) -> None:
        queue = self.stepped.queue("q")
        queue.paused = not queue.paused
        queue.wake()
        self.stepped.run()

    # Branches.

    def open_branches(self) -> list[bytes]:
        return [name for name in self.held if name not in self.prepared]

    def branch(self, name: bytes) -> XaBranch:
        return self.stepped.broker.xa.branch(xid(name))

    def forget(self, name: bytes) -> tuple[set[bytes], set[bytes]]:
        self.prepared.discard(name)
        return self.held.pop(name), self.sends.pop(name)

    @precondition(lambda self: self.consumers)
    @rule(name=NAMES, index=INDEX, sends=st.booleans(), most=st.integers(0, 3))
    def work(self, name: bytes, index: int, sends: bool, most: int) -> None:
        consumer = self.consumers[index % len(self.consumers)]
        if name in self.prepared:
            return
        if name in self.held and self.branch(name).session is not consumer.session:
            return
        branch = start(self.stepped, consumer.session, branch=name)
        held, sent = self.held.setdefault(name, set()), self.sends.setdefault(name, set())
        for sequence in self.free(consumer)[:most]:
            held.add(consumer.subscription.in_flight[sequence].content.rpartition(b"\n")[2])
            acknowledge(consumer.subscription, sequence, transaction=branch.transaction)
        if sends:
            body = self.new_body()
            send_in(self.stepped, branch, "/queue/q", body)
            sent.add(body)
        self.stepped.run()

    @rule(name=NAMES)
    def prepare(self, name: bytes) -> None:
        if name in self.open_branches():
            if self.branch(name).prepare():
                self.prepared.add(name)
            else:
                self.forget(name)
            self.stepped.run()

    @rule(name=NAMES)
    def commit(self, name: bytes) -> None:
        if name in self.held:
            self.branch(name).commit(one_phase=True)
            held, sent = self.forget(name)
            self.waiting = self.waiting - held | sent
            self.stepped.run()

    @rule(name=NAMES)
    def roll_back(self, name: bytes) -> None:
        if name in self.held:
            self.branch(name).roll_back()
            self.forget(name)
            self.stepped.run()

    @rule()
    def crash(self) -> None:
        for name in self.open_branches():
            self.forget(name)
        self.consumers = []
        self.stepped = self.stepped.reopen()
        self.stepped.run()

    # What is so at any time.

    @invariant()
    def is_as_the_model_says(self) -> None:
        queue = self.stepped.queue("q")
        hidden = set().union(*[self.held[name] for name in self.prepared])
        assert queue.depth == len(self.waiting)
        assert sorted(self.stepped.broker.xa.recover(), key=str) == sorted([xid(n) for n in self.prepared], key=str)
        for consumer in self.consumers:
            in_flight = consumer.subscription.in_flight.values()
            assert {message.content.rpartition(b"\n")[2] for message in in_flight} <= self.waiting - hidden

    def teardown(self) -> None:
        """Whatever happened, everything is delivered once its branch is settled."""
        self.stepped.queue("q").paused = False
        for name in list(self.held):
            self.commit(name)
        for _ in range(len(self.consumers)):
            self.leave(0, False)
        last = CoreConsumer(self.stepped)
        got: list[bytes] = []
        while came := last.take():
            got += [message.body for message in came]
            for message in came:
                acknowledge(last.subscription, message.sequence)
            self.stepped.run()
        assert sorted(got) == sorted(self.waiting)
        assert (self.stepped.queue("q").depth, self.stepped.broker.core.memory.used) == (0, 0)
        assert self.stepped.store.marks("xa/") == []


TestXaMachine = XaMachine.TestCase
TestXaMachine.settings = hypothesis_settings(max_examples=100, stateful_step_count=40)
TestXaMachine = pytest.mark.slow(TestXaMachine)
