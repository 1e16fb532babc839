"""How XA branches begin and end: sessions that come and go, time, and an operator who decides."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from quire.broker.transactions.xa import XaBranch
from quire.errors import HeuristicOutcome, TransactionTimedOut, UnknownXid, WrongTransactionState
from quire.resources import Prepared
from quire.testing.stepped import SteppedBroker
from tests.unit.broker.core_consumer import CoreConsumer
from tests.unit.broker.harness import consumer, filled, numbers
from tests.unit.broker.recipients import Recipient
from tests.unit.broker.xa import XID, acknowledged, depths, send_in, start, xid

# Sessions come and go.


def test_a_branch_that_is_not_prepared_ends_with_its_session() -> None:
    stepped, receiver, branch = acknowledged(2)
    send_in(stepped, branch, "/queue/out", b"1")
    branch.end()
    stepped.broker.xa.lost(Recipient(stepped))
    assert stepped.broker.xa.branch(XID) is branch
    stepped.broker.xa.lost(receiver.session)
    receiver.leave(lost=True)
    stepped.run()
    with pytest.raises(UnknownXid):
        stepped.broker.xa.branch(XID)
    again = CoreConsumer(stepped).take()
    assert [(message.body, message.failures) for message in again] == [(b"0", 1), (b"1", 0), (b"2", 0)]
    assert stepped.broker.core.transaction_bytes == 0


def test_a_prepared_branch_stays_when_its_session_goes() -> None:
    stepped, receiver, branch = acknowledged(1)
    branch.prepare()
    stepped.broker.xa.lost(receiver.session)
    assert stepped.broker.xa.recover() == [XID]


def test_a_branch_can_be_joined_after_its_end() -> None:
    stepped = filled(0)
    first, second = Recipient(stepped), Recipient(stepped)
    branch = start(stepped, first)
    assert start(stepped, first) is branch
    with pytest.raises(WrongTransactionState):
        start(stepped, second)
    branch.end()
    with pytest.raises(WrongTransactionState):
        branch.end()
    with pytest.raises(WrongTransactionState):
        send_in(stepped, branch, "/queue/out", b"")
    assert start(stepped, second) is branch
    send_in(stepped, branch, "/queue/out", b"1")
    branch.prepare()
    branch.commit()
    stepped.run()
    assert depths(stepped) == {"out": 1}


def resume(stepped: SteppedBroker, branch: XaBranch) -> None:
    start(stepped, branch.session)


def prepare(stepped: SteppedBroker, branch: XaBranch) -> None:
    branch.prepare()


def commit(stepped: SteppedBroker, branch: XaBranch) -> None:
    branch.commit(one_phase=True)


@pytest.mark.parametrize("step", [resume, prepare, commit])
def test_a_branch_that_is_open_for_too_long_is_rolled_back(step: Callable[[SteppedBroker, XaBranch], None]) -> None:
    stepped, receiver, branch = acknowledged(1, transaction={"max_age": 60.0})
    receiver.take()
    branch.end()
    stepped.advance(60)
    stepped.run()
    assert receiver.bodies() == numbers(0)
    with pytest.raises(TransactionTimedOut):
        step(stepped, branch)
    with pytest.raises(UnknownXid):
        stepped.broker.xa.branch(XID)


def test_a_prepared_branch_has_all_the_time_there_is() -> None:
    stepped, receiver, branch = acknowledged(1, transaction={"max_age": 60.0})
    branch.prepare()
    stepped.advance(86_400)
    stepped.run()
    assert stepped.broker.xa.recover() == [XID]
    branch.commit()
    stepped.run()
    receiver.leave()
    stepped.run()
    assert consumer(stepped).messages() == numbers(1)


def test_rolling_back_what_was_open_for_too_long_is_no_error() -> None:
    stepped, _, branch = acknowledged(1, transaction={"max_age": 60.0})
    stepped.advance(60)
    branch.roll_back()
    assert stepped.broker.xa.recover() == []


# An operator decides.


def test_what_is_prepared_is_listed_the_oldest_first() -> None:
    stepped, _, branch = acknowledged(2)
    send_in(stepped, branch, "/queue/out", b"1")
    size = branch.transaction.size
    branch.prepare()
    stepped.advance(5)
    second = start(stepped, branch=b"2")
    send_in(stepped, second, "/queue/out", b"2")
    second.prepare()
    stepped.advance(1)
    start(stepped, branch=b"3")
    first, last = stepped.broker.xa.prepared()
    assert replace(first, age_seconds=round(first.age_seconds, 3)) == Prepared(
        str(XID), "prepared", "", 6.0, 1, 2, size
    )
    assert (last.xid, last.age_seconds, last.messages, last.acknowledgements) == (str(xid(b"2")), 1.0, 1, 0)


@pytest.mark.parametrize("outcome", ["commit", "rollback"])
def test_an_operators_decision_is_done_and_told_until_it_is_forgotten(outcome: str) -> None:
    stepped, receiver, branch = acknowledged(2)
    send_in(stepped, branch, "/queue/out", b"1")
    branch.prepare()
    receiver.leave()
    stepped.run()
    getattr(stepped.broker.xa, outcome)(XID)
    stepped.run()
    assert depths(stepped) == ({"q": 1, "out": 1} if outcome == "commit" else {"q": 3})
    stepped = stepped.reopen()
    branch = stepped.broker.xa.branch(XID)
    assert stepped.broker.xa.recover() == [XID]
    assert [(entry.state, entry.outcome) for entry in stepped.broker.xa.prepared()] == [("decided", outcome)]
    for settle in (branch.commit, branch.roll_back):
        with pytest.raises(HeuristicOutcome) as error:
            settle()
        assert error.value.data == {"xid": str(XID), "outcome": outcome}
    with pytest.raises(WrongTransactionState):
        stepped.broker.xa.commit(XID)
    branch.forget()
    stepped.run()
    assert (stepped.broker.xa.recover(), stepped.store.marks("xa/")) == ([], [])
    assert stepped.reopen().broker.xa.recover() == []
    assert consumer(stepped).messages() == (numbers(2) if outcome == "commit" else numbers(0, 1, 2))


def test_an_operator_decides_only_over_what_is_prepared() -> None:
    stepped, _, _ = acknowledged(1)
    with pytest.raises(WrongTransactionState):
        stepped.broker.xa.rollback(XID)
    with pytest.raises(UnknownXid):
        stepped.broker.xa.commit(xid(b"other"))


def test_only_what_an_operator_has_decided_can_be_forgotten() -> None:
    _, _, branch = acknowledged(1)
    with pytest.raises(WrongTransactionState):
        branch.forget()
    branch.prepare()
    with pytest.raises(WrongTransactionState):
        branch.forget()
