"""XA branches as an OpenWire client drives them: two phases, one phase, recovery, errors with XA's numbers."""

import pytest

from quire.broker.transactions.decisions import Xid
from quire.protocols.openwire.commands import (
    ActiveMQQueue,
    DataArrayResponse,
    ExceptionResponse,
    IntegerResponse,
    MessageDispatch,
    Response,
    TransactionType,
    XATransactionId,
)
from quire.sessions.session import LocalSession
from quire.sessions.transactions import branch_tx
from tests.unit.server.openwire.rig import OpenWireClient, Rig

BEGIN, END, PREPARE = TransactionType.BEGIN, TransactionType.END, TransactionType.PREPARE
ONE, TWO = TransactionType.COMMIT_ONE_PHASE, TransactionType.COMMIT_TWO_PHASE
ROLLBACK, RECOVER, FORGET = TransactionType.ROLLBACK, TransactionType.RECOVER, TransactionType.FORGET

XID = XATransactionId(4660, b"global", b"branch")


def begun(client: OpenWireClient, *texts: str) -> None:
    """A branch in which messages were sent."""
    client.done(client.step(BEGIN, XID))
    client.tell(*[client.message(text, transaction_id=XID) for text in texts])


def prepared(rig: Rig) -> OpenWireClient:
    """A client with a branch that was prepared: it sends a message and has acknowledged another one."""
    client = rig.client()
    client.send("old")
    client.consumer()
    dispatches = client.take(MessageDispatch)
    begun(client, "new")
    client.acks(dispatches, transaction=XID)
    client.done(client.step(END, XID))
    response = client.ask(client.step(PREPARE, XID))
    assert isinstance(response, IntegerResponse)
    assert response.result == 0
    return client


def recovered(client: OpenWireClient) -> list[XATransactionId]:
    response = client.ask(client.step(RECOVER, None))
    assert isinstance(response, DataArrayResponse)
    assert response.data is not None
    return [xid for xid in response.data if isinstance(xid, XATransactionId)]


def xa_error(client: OpenWireClient, type: TransactionType, xid: XATransactionId = XID) -> str:
    """The number of the error that answers a step."""
    response = client.ask(client.step(type, xid))
    assert isinstance(response, ExceptionResponse)
    assert response.exception is not None
    assert response.exception.class_name == "javax.transaction.xa.XAException"
    return (response.exception.message or "").rpartition(" xaErrorCode:")[2]


def test_a_branch_is_committed_in_two_phases() -> None:
    rig = Rig()
    client = prepared(rig)
    other = rig.client()
    other.consumer()
    assert other.messages() == []
    client.done(client.step(TWO, XID))
    assert other.messages() == ["new"]
    assert rig.depth() == 1
    assert client.errors() == []


def test_a_branch_is_committed_in_one_phase() -> None:
    rig = Rig()
    client = rig.client()
    begun(client, "1")
    client.done(client.step(END, XID))
    client.done(client.step(ONE, XID))
    assert rig.depth() == 1


def test_a_branch_that_did_nothing_is_read_only_and_forgotten() -> None:
    client = Rig().client()
    begun(client)
    client.done(client.step(END, XID))
    response = client.ask(client.step(PREPARE, XID))
    assert isinstance(response, IntegerResponse)
    assert response.result == 3
    assert xa_error(client, TWO) == "-4"


def test_a_branch_is_rolled_back_before_it_is_prepared_and_the_client_delivers_again() -> None:
    rig = Rig()
    client = rig.client()
    client.send("old")
    client.consumer()
    dispatches = client.take(MessageDispatch)
    begun(client, "new")
    client.acks(dispatches, transaction=XID)
    client.done(client.step(ROLLBACK, XID))
    assert client.messages() == []
    client.acks(dispatches)
    assert client.errors() == []
    assert rig.depth() == 0


def test_a_prepared_branch_is_rolled_back_and_its_messages_are_there_again() -> None:
    rig = Rig()
    client = prepared(rig)
    client.done(client.step(ROLLBACK, XID))
    other = rig.client()
    other.consumer()
    assert client.messages() + other.messages() == ["old"]
    assert recovered(client) == []


def test_a_prepare_is_answered_when_it_is_durable() -> None:
    rig = Rig()
    client = rig.client()
    begun(client, "1")
    rig.run()
    client.request(client.step(PREPARE, XID))
    rig.turn()
    assert client.take(Response) == []
    rig.run()
    assert len(client.take(IntegerResponse)) == 1


@pytest.mark.parametrize("type", [END, PREPARE, ONE, TWO, ROLLBACK, FORGET])
def test_an_unknown_branch_is_said_to_be_unknown(type: TransactionType) -> None:
    assert xa_error(Rig().client(), type) == "-4"  # XAER_NOTA


def test_steps_in_the_wrong_order_are_said_to_be_so() -> None:
    client = prepared(Rig())
    assert xa_error(client, PREPARE) == "-6"  # XAER_PROTO
    assert xa_error(client, FORGET) == "-6"
    other = XATransactionId(1, b"g", b"b")
    client.done(client.step(BEGIN, other))
    client.tell(client.message("1", transaction_id=other))
    assert xa_error(client, TWO, other) == "-6"


def test_an_identifier_that_is_too_long_is_refused() -> None:
    client = Rig().client()
    assert xa_error(client, BEGIN, XATransactionId(1, b"g" * 65, b"b")) == "-3"  # XAER_RMERR


@pytest.mark.parametrize("type", [PREPARE, ONE])
def test_a_send_that_failed_fails_its_branch(type: TransactionType) -> None:
    rig = Rig()
    client = rig.client()
    begun(client, "1")
    client.tell(client.message("2", ActiveMQQueue(","), transaction_id=XID))
    rig.run()
    assert client.errors() == ["invalid-destination"]
    client.done(client.step(END, XID))
    assert xa_error(client, type) == "100"  # XA_RBROLLBACK
    assert xa_error(client, TWO) == "-4"
    assert rig.depth() == 0


def test_a_send_in_a_branch_that_has_ended_is_refused() -> None:
    rig = Rig()
    client = rig.client()
    begun(client, "1")
    client.done(client.step(END, XID))
    client.tell(client.message("2", transaction_id=XID))
    rig.run()
    assert client.errors() == ["wrong-transaction-state"]


def test_sends_in_branches_that_do_not_exist_are_refused_and_leave_nothing_behind() -> None:
    rig = Rig()
    client = rig.client()
    for number in range(5):
        unknown = XATransactionId(number, b"g" * (20 * number), b"b")
        client.tell(client.message("1", transaction_id=unknown))
    rig.run()
    assert len(client.errors()) == 5
    assert client.is_open()
    begun(client, "2")
    client.done(client.step(ONE, XID))
    begun(client)
    client.tell(client.message("1", ActiveMQQueue(","), transaction_id=XID))
    rig.run()
    session = client.session.session
    assert isinstance(session, LocalSession)
    assert session.transactions._failed_branches.keys() == {branch_tx(Xid(4660, b"global", b"branch"))}
