"""XA transactions over crashes and over stores that fail: what was prepared stays so until its outcome is stored."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from quire.broker.transactions.xa import XaBranch
from quire.errors import BrokerStopping, StoreCorrupt, StoreFull, UnknownXid, WrongTransactionState
from quire.store.base import Store, WriteBatch
from quire.store.lmdb import LmdbStore
from quire.store.memory import MemoryStore
from quire.testing.stepped import SteppedBroker
from tests.unit.broker.core_consumer import CoreConsumer
from tests.unit.broker.harness import consumer, drain, numbers, settings
from tests.unit.broker.recipients import acknowledge
from tests.unit.broker.xa import XID, depths, send_in, start

FULL = StoreFull("no space")

BEFORE, STORED, DONE = "before the commit", "before it is announced", "after the commit"
"""When the broker dies."""


@pytest.fixture(params=["memory", "lmdb"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    store: Store = MemoryStore() if request.param == "memory" else LmdbStore(tmp_path / "store")
    store.open()
    yield store
    store.close()


def working(store: Store) -> tuple[SteppedBroker, XaBranch]:
    """Messages 0 to 3 in ``q``; a branch has acknowledged 0 and 2, and sends one message to ``out``."""
    stepped = SteppedBroker(settings(), store)
    client = stepped.connect()
    for number in range(4):
        client.send("q", b"%d" % number)
    stepped.run()
    receiver = CoreConsumer(stepped)
    branch = start(stepped, receiver.session)
    for sequence in (1, 3):
        acknowledge(receiver.subscription, sequence, transaction=branch.transaction)
    send_in(stepped, branch, "/queue/out", b"1")
    stepped.run()
    return stepped, branch


def crash(stepped: SteppedBroker, when: str) -> SteppedBroker:
    """Let the broker die around the commit of what was done last, and start it again on the same store."""
    stepped.turn()
    if when == STORED:
        stepped.writer.apply()
    elif when == DONE:
        stepped.run()
    if isinstance(stepped.store, LmdbStore):  # what is read from now on comes from its files
        stepped.store.close()
        stepped.store.open()
    return stepped.reopen()


def settle(stepped: SteppedBroker, outcome: str) -> None:
    getattr(stepped.broker.xa.branch(XID), outcome)()


def left(stepped: SteppedBroker) -> tuple[list[bytes], list[bytes]]:
    """What is in the two queues, as consumers get it; after that nothing may be left."""
    got = drain(stepped, consumer(stepped, "q")), drain(stepped, consumer(stepped, "out"))
    assert depths(stepped) == {}
    assert stepped.broker.core.memory.used == 0
    return got


COMMITTED = (numbers(1, 3), [b"1"])
ROLLED_BACK: tuple[list[bytes], list[bytes]] = (numbers(0, 1, 2, 3), [])
OUTCOMES = {"commit": COMMITTED, "roll_back": ROLLED_BACK}


def test_a_branch_that_was_not_prepared_is_gone_after_a_crash(store: Store) -> None:
    stepped, _ = working(store)
    stepped = stepped.reopen()
    assert stepped.broker.xa.recover() == []
    assert left(stepped) == ROLLED_BACK


def test_a_prepare_that_was_not_stored_is_gone_after_a_crash(store: Store) -> None:
    stepped, branch = working(store)
    branch.prepare()
    stepped = crash(stepped, BEFORE)
    assert stepped.broker.xa.recover() == []
    assert left(stepped) == ROLLED_BACK


@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize("when", [STORED, DONE])
def test_what_is_prepared_is_prepared_after_a_crash(store: Store, when: str, outcome: str) -> None:
    stepped, branch = working(store)
    branch.prepare()
    stepped = crash(stepped, when)
    assert stepped.broker.xa.recover() == [XID]
    (entry,) = stepped.broker.xa.prepared()
    assert (entry.messages, entry.acknowledgements, entry.bytes) == (1, 2, len(b"message-id:ID\\c1\ntimestamp:1\n\n1"))
    receiver = CoreConsumer(stepped)
    assert receiver.bodies() == numbers(1, 3)
    assert depths(stepped) == {"q": 4}
    settle(stepped, outcome)
    stepped.run()
    receiver.leave()
    stepped.run()
    assert left(stepped) == OUTCOMES[outcome]
    assert stepped.reopen().broker.xa.recover() == []


@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize("when", [BEFORE, STORED, DONE])
@pytest.mark.parametrize("again", [False, True], ids=["same life", "after a restart"])
def test_an_outcome_is_stored_as_a_whole_or_not_at_all(store: Store, when: str, outcome: str, again: bool) -> None:
    stepped, branch = working(store)
    branch.prepare()
    stepped.run()
    if again:
        stepped = stepped.reopen()
    settle(stepped, outcome)
    stepped = crash(stepped, when)
    if when == BEFORE:
        assert stepped.broker.xa.recover() == [XID]
        settle(stepped, outcome)
        stepped.run()
    assert stepped.broker.xa.recover() == []
    assert left(stepped) == OUTCOMES[outcome]


@pytest.mark.parametrize("outcome", ["commit", "rollback"])
@pytest.mark.parametrize("when", [BEFORE, STORED, DONE])
def test_an_operators_decision_is_stored_as_a_whole_or_not_at_all(store: Store, when: str, outcome: str) -> None:
    stepped, branch = working(store)
    branch.prepare()
    stepped.run()
    getattr(stepped.broker.xa, outcome)(XID)
    stepped = crash(stepped, when)
    (entry,) = stepped.broker.xa.prepared()
    if when == BEFORE:
        assert (entry.state, entry.outcome) == ("prepared", "")
        getattr(stepped.broker.xa, outcome)(XID)
        stepped.run()
    else:
        assert (entry.state, entry.outcome) == ("decided", outcome)
    stepped.broker.xa.branch(XID).forget()
    assert left(stepped) == (COMMITTED if outcome == "commit" else ROLLED_BACK)
    assert stepped.reopen().broker.xa.recover() == []


def test_messages_that_were_hidden_come_back_flagged(store: Store) -> None:
    stepped, branch = working(store)
    branch.prepare()
    stepped.run()
    stepped.stop(BrokerStopping("it stops"))
    stepped = stepped.reopen()
    settle(stepped, "roll_back")
    stepped.run()
    came = CoreConsumer(stepped).take()
    assert [(message.body, message.redelivered) for message in came if message.body in (b"0", b"2")] == [
        (b"0", True), (b"2", True),
    ]  # fmt: skip


def test_what_was_known_of_the_deliveries_of_hidden_messages_is_not_forgotten(store: Store) -> None:
    stepped, branch = working(store)
    branch.roll_back()
    stepped.run()
    receiver = stepped.queue("q").subscriptions[0]
    branch = start(stepped, receiver.session)
    acknowledge(receiver, 3, transaction=branch.transaction)
    branch.prepare()
    stepped.run()
    stepped = stepped.reopen()
    settle(stepped, "roll_back")
    stepped.run()
    known = {message.sequence: (message.deliveries, message.failures) for message in CoreConsumer(stepped).take()}
    assert known == {1: (1, 1), 2: (0, 0), 3: (2, 1), 4: (0, 0)}


# The store fails.


def fail(stepped: SteppedBroker) -> None:
    """The commit of what was done last fails."""
    stepped.turn()
    stepped.commit(FULL)


def recover(stepped: SteppedBroker) -> None:
    """The store takes writes again."""
    stepped.advance(1)
    stepped.run()


def test_a_prepare_that_the_store_refuses_is_rolled_back(store: Store) -> None:
    stepped, branch = working(store)
    branch.prepare()
    fail(stepped)
    recover(stepped)
    with pytest.raises(UnknownXid):
        stepped.broker.xa.branch(XID)
    assert stepped.store.marks("xa/") == []
    stepped = stepped.reopen()
    assert left(stepped) == ROLLED_BACK


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_an_outcome_that_the_store_refuses_is_stored_when_it_takes_it(store: Store, outcome: str) -> None:
    stepped, branch = working(store)
    branch.prepare()
    stepped.run()
    settle(stepped, outcome)
    for _ in range(2):
        fail(stepped)
        assert stepped.broker.xa.recover() == [XID]
        settle(stepped, outcome)  # once more changes nothing
        with pytest.raises(WrongTransactionState):
            settle(stepped, "roll_back" if outcome == "commit" else "commit")
        stepped.advance(1)
        stepped.run_turns()
    stepped.run()
    assert stepped.broker.xa.recover() == []
    stepped = stepped.reopen()
    assert left(stepped) == OUTCOMES[outcome]


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_a_broker_that_dies_with_a_refused_outcome_has_it_prepared(store: Store, outcome: str) -> None:
    stepped, branch = working(store)
    branch.prepare()
    stepped.run()
    settle(stepped, outcome)
    fail(stepped)
    stepped = stepped.reopen()
    assert stepped.broker.xa.recover() == [XID]
    settle(stepped, outcome)
    stepped.run()
    assert left(stepped) == OUTCOMES[outcome]


@pytest.mark.parametrize("outcome", ["commit", "rollback"])
def test_an_operators_decision_while_the_prepare_is_being_refused_stands(store: Store, outcome: str) -> None:
    stepped, branch = working(store)
    branch.prepare()
    stepped.turn()
    getattr(stepped.broker.xa, outcome)(XID)
    stepped.commit(FULL)
    recover(stepped)
    (entry,) = stepped.reopen().broker.xa.prepared()
    assert (entry.state, entry.outcome) == ("decided", outcome)
    assert left(stepped.reopen()) == (COMMITTED if outcome == "commit" else ROLLED_BACK)


def test_a_one_phase_commit_that_the_store_refuses_is_rolled_back(store: Store) -> None:
    stepped, branch = working(store)
    branch.commit(one_phase=True)
    stepped.broker.core.sent(stepped.queue("q").subscriptions[0].session)
    fail(stepped)
    recover(stepped)
    with pytest.raises(UnknownXid):
        stepped.broker.xa.branch(XID)
    stepped = stepped.reopen()
    assert left(stepped) == ROLLED_BACK


# The mark is damaged.


@pytest.mark.parametrize("key", [f"xa/{XID}", "xa/nobody"])
def test_a_mark_that_cannot_be_read_keeps_no_broker_from_starting(
    store: Store, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    stepped, _ = working(store)
    stepped.broker.core.set_mark(key, b"damaged")
    stepped.run()
    stepped = stepped.reopen()
    assert stepped.broker.xa.recover() == []
    assert "a prepared transaction cannot be read and is ignored" in caplog.text
    assert stepped.store.mark(key) == b"damaged"
    assert left(stepped) == ROLLED_BACK


def test_a_commit_whose_mark_is_gone_does_nothing(store: Store) -> None:
    stepped, branch = working(store)
    branch.prepare()
    stepped.run()
    stepped.broker.core.set_mark(f"xa/{XID}", None)
    stepped.run()
    with pytest.raises(StoreCorrupt):
        branch.commit()
    assert depths(stepped) == {"q": 4}
    branch.roll_back()
    stepped.run()
    stepped = stepped.reopen()
    assert left(stepped) == ROLLED_BACK


def test_hidden_messages_that_are_gone_after_a_repair_are_left_out(store: Store) -> None:
    stepped, branch = working(store)
    branch.prepare()
    stepped.run()
    batch = WriteBatch()
    batch.lane(stepped.queue("q").lanes[0].id).removals.append(1)
    store.apply(batch)
    stepped = stepped.reopen()
    settle(stepped, "commit")
    stepped.run()
    assert left(stepped) == COMMITTED
