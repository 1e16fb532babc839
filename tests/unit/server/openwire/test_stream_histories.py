"""Members of a group over OpenWire through any history: each message is settled once, and none is lost."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.protocols.openwire.commands import AckType, ActiveMQTopic, ConsumerId, MessageDispatch, TransactionType
from quire.protocols.openwire.negotiation import WireFormat
from tests.unit.broker.harness import settings
from tests.unit.server.openwire.rig import OpenWireClient, Rig, id_of, texts

S = ActiveMQTopic("stream://s")

SILENT = WireFormat(inactivity_ms=0)
"""Of clients that send no signs of life."""


class Application:
    """A client with one member at a time: what it has, and what it has acknowledged."""

    def __init__(self, rig: Rig, settled: list[str]) -> None:
        self._rig = rig
        self._settled = settled
        self.client: OpenWireClient = rig.client(format=SILENT)
        self.has: list[MessageDispatch] = []
        self.consumer: ConsumerId | None = None

    def join(self, prefetch: int = 3) -> None:
        if self.consumer is None:
            self.consumer = self.client.consumer(S, prefetch, subscription_name="g", retroactive=True)
        self.look()

    def look(self) -> None:
        self.has += [dispatch for dispatch in self.client.take(MessageDispatch) if dispatch.message is not None]

    def leave(self, last: int) -> None:
        """Close the member; ``last`` of its messages were seen."""
        if self.consumer is not None:
            seen = id_of(self.has[last % len(self.has)]).broker_sequence_id if self.has else -1
            self.client.remove(self.consumer, seen)
            self.client.take(MessageDispatch)
            self.consumer, self.has = None, []

    def vanish(self) -> None:
        self.client.vanish()
        self._rig.run()
        self.client, self.consumer, self.has = self._rig.client(format=SILENT), None, []

    def one(self, index: int) -> None:
        """Acknowledge one message."""
        if self.has:
            self._acknowledge([self.has.pop(index % len(self.has))], AckType.INDIVIDUAL)

    def range(self, count: int) -> None:
        """Acknowledge the first messages."""
        some, self.has = self.has[: count + 1], self.has[count + 1 :]
        if some:
            self._acknowledge(some, AckType.STANDARD)

    def delivered(self, count: int) -> None:
        if self.has:
            self.client.acks(self.has[: count + 1], AckType.DELIVERED)

    def poison(self) -> None:
        if self.has:
            self.client.acks([self.has.pop(0)], AckType.POISON)

    def transaction(self, count: int) -> None:
        """Acknowledge the first messages in a transaction that is committed, or rolled back if the number is odd."""
        some = self.has[: count + 1]
        if not some:
            return
        id = self.client.begin(1)
        self.client.acks(some, transaction=id)
        if count % 2:
            self.client.done(self.client.step(TransactionType.ROLLBACK, id))
        else:
            del self.has[: count + 1]
            self._note(some, lambda: self.client.done(self.client.step(TransactionType.COMMIT_ONE_PHASE, id)))

    def _acknowledge(self, some: list[MessageDispatch], type: AckType) -> None:
        self._note(some, lambda: self.client.acks(some, type))

    def _note(self, some: list[MessageDispatch], settle: Callable[[], None]) -> None:
        """Count as settled what the group has finished by this."""
        group = self._rig.broker.stream("s").groups["g"]
        before = group.lag + (group.retries.depth if group.retries else 0)
        settle()
        after = group.lag + (group.retries.depth if group.retries else 0)
        assert 0 <= before - after <= len(some)
        self._settled += ["done"] * (before - after)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["send", "join", "join", "leave", "vanish", "one", "range", "range", "delivered", "poison",
                         "transaction", "time"]),
        st.integers(0, 1), st.integers(0, 4),
    ),
    min_size=5, max_size=40,
)  # fmt: skip


@pytest.mark.slow
@given(STEPS)
def test_each_message_is_settled_once_and_none_is_lost(steps: list[tuple[str, int, int]]) -> None:
    rig = Rig(settings(policy={
        "partitions": 2, "rebalance_initial_delay": 0.0, "consume_timeout": 5.0, "retry_delays": "1s",
        "retry_maximum": 1000,
    }))  # fmt: skip
    settled: list[str] = []
    sender = rig.client("sender", SILENT)
    sender.producer(S)
    applications = [Application(rig, settled), Application(rig, settled)]
    applications[0].join()
    sent = 6
    sender.send(*map(str, range(sent)), destination=S)
    for step, who, number in steps:
        application = applications[who]
        match step:
            case "send":
                sender.send(*[str(sent + index) for index in range(number + 1)], destination=S)
                sent += number + 1
            case "time":
                rig.advance(number + 0.5)
            case "join" | "vanish" | "poison":
                getattr(application, step)()
            case _:
                getattr(application, step)(number)
        rig.run()
        for known in applications:
            known.look()
    for application in applications:
        application.leave(0)
    applications[0].join(100)
    for _ in range(20):
        rig.advance(1.1)
        rig.run()
        applications[0].look()
        applications[0].range(1000)
    group = rig.broker.stream("s").groups["g"]
    assert group.retries is not None
    assert (group.lag, group.retries.depth) == (0, 0)
    assert len(settled) == sent
    assert not [code for application in applications for code in application.client.errors()]
    assert not texts(applications[0].client.take(MessageDispatch))
