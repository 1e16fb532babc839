"""Local transactions: begun, committed, rolled back, failed, and left behind."""

import pytest

from quire.errors import StoreFull
from quire.protocols.openwire.commands import (
    AckType,
    ActiveMQQueue,
    ConnectionId,
    ExceptionResponse,
    LocalTransactionId,
    MessageDispatch,
    Response,
    TransactionType,
)
from tests.unit.broker.harness import settings
from tests.unit.server.openwire.rig import OpenWireClient, Rig, fault_tolerant, thrown

COMMIT, ROLLBACK = TransactionType.COMMIT_ONE_PHASE, TransactionType.ROLLBACK


def given(count: int) -> tuple[Rig, OpenWireClient, list[MessageDispatch]]:
    """A client whose consumer was given some messages."""
    rig = Rig(settings())
    client = rig.client()
    client.consumer()
    client.send(*map(str, range(count)))
    return rig, client, client.take(MessageDispatch)


def in_one(client: OpenWireClient, id: LocalTransactionId, *texts: str) -> None:
    client.tell(*[client.message(text, transaction_id=id) for text in texts])


def test_a_commit_is_answered_when_it_is_durable() -> None:
    rig = Rig()
    client = rig.client()
    client.producer(ActiveMQQueue("q"))
    id = client.begin()
    in_one(client, id, "1")
    client.request(client.step(COMMIT, id))
    rig.turn()
    assert client.take(Response) == []
    rig.run()
    assert len(client.take(Response)) == 1
    assert rig.reopen().depth() == 1


def test_what_was_acknowledged_stays_in_flight_after_a_rollback_for_the_client_to_deliver_again() -> None:
    rig, client, dispatches = given(2)
    id = client.begin()
    client.acks(dispatches, transaction=id)
    client.done(client.step(ROLLBACK, id))
    client.acks(dispatches, AckType.REDELIVERED)
    assert client.messages() == []
    id = client.begin(2)
    client.acks(dispatches, transaction=id)
    client.done(client.step(COMMIT, id))
    assert client.errors() == []
    assert rig.depth() == 0


@pytest.mark.parametrize("type", [COMMIT, ROLLBACK])
def test_an_unknown_transaction_does_not_end(type: TransactionType) -> None:
    client = Rig().client()
    unknown = LocalTransactionId(9, ConnectionId(client.id))
    assert client.refused(client.step(type, unknown)) == ("JMSException", "unknown-transaction")
    id = client.begin()
    client.done(client.step(type, id))
    assert client.refused(client.step(type, id))[1] == "unknown-transaction"


def test_a_step_needs_an_id_and_a_local_transaction_has_not_all_of_them() -> None:
    client = Rig().client()
    id = client.begin()
    assert client.refused(client.step(COMMIT, None))[1] == "unknown-transaction"
    for type in (TransactionType.PREPARE, TransactionType.COMMIT_TWO_PHASE, TransactionType.FORGET):
        assert client.refused(client.step(type, id))[1] == "unknown-transaction"
    unknown = client.step(COMMIT, id)
    unknown.type = 9
    assert client.refused(unknown)[1] == "protocol-violation"
    client.done(client.step(TransactionType.END, id))


def test_a_send_in_an_unknown_transaction_is_refused() -> None:
    rig = Rig()
    client = rig.client()
    in_one(client, LocalTransactionId(9, ConnectionId(client.id)), "1")
    rig.run()
    assert client.errors() == ["unknown-transaction"]
    assert rig.depth() == 0


def test_a_send_that_failed_fails_the_commit_of_its_transaction() -> None:
    rig = Rig()
    client = rig.client()
    id = client.begin()
    in_one(client, id, "1")
    client.tell(client.message("2", ActiveMQQueue(","), transaction_id=id))
    in_one(client, id, "3")
    rig.run()
    assert client.errors() == ["invalid-destination"]
    assert client.refused(client.step(COMMIT, id)) == ("TransactionRolledBackException", "transaction-rolled-back")
    assert rig.depth() == rig.broker.core.transaction_bytes == 0
    assert client.refused(client.step(COMMIT, id))[1] == "unknown-transaction"


def test_an_acknowledgement_that_failed_fails_the_commit_of_its_transaction() -> None:
    rig, client, dispatches = given(2)
    client.acks(dispatches[:1])
    id = client.begin()
    client.acks(dispatches[:1], transaction=id)
    client.acks(dispatches[1:], transaction=id)
    assert client.errors() == ["unknown-message"]
    assert client.refused(client.step(COMMIT, id))[0] == "TransactionRolledBackException"
    assert rig.depth() == 1
    client.acks(dispatches[1:])
    assert client.errors() == []


def test_a_fault_tolerant_client_that_acknowledges_what_it_does_not_have_begins_anew() -> None:
    rig = Rig()
    client = fault_tolerant(rig)
    client.consumer()
    client.send("1", "2")
    stale, other = client.take(MessageDispatch)
    client.acks([stale])
    id = client.begin()
    client.acks([stale, other], transaction=id)
    assert client.refused(client.step(COMMIT, id))[0] == "TransactionRolledBackException"
    assert not client.is_open()
    again = fault_tolerant(rig)
    again.consumer()
    assert again.messages() == ["2"]


def test_a_fault_tolerant_client_whose_send_failed_keeps_its_connection() -> None:
    rig = Rig()
    client = fault_tolerant(rig)
    id = client.begin()
    client.tell(client.message("1", ActiveMQQueue(","), transaction_id=id))
    assert client.refused(client.step(COMMIT, id))[0] == "TransactionRolledBackException"
    assert client.is_open()


def test_a_commit_whose_store_fails_is_told_and_closed() -> None:
    rig, client, dispatches = given(1)
    id = client.begin()
    client.acks(dispatches, transaction=id)
    in_one(client, id, "new")
    client.request(client.step(COMMIT, id))
    rig.turn()
    rig.commit(StoreFull("no space left"))
    rig.run_turns()
    assert client.take(Response) == []
    assert client.errors() == ["store-full"]
    assert client.connection.closed
    rig.advance(1)
    rig.run()
    other = rig.client()
    other.consumer()
    assert other.messages() == ["0"]


def test_a_response_says_the_number_of_the_command_that_failed() -> None:
    client = Rig().client()
    step = client.step(COMMIT, LocalTransactionId(9, ConnectionId(client.id)))
    response = client.ask(step)
    assert isinstance(response, ExceptionResponse)
    assert response.correlation_id == step.command_id
    assert thrown(response)[1] == "unknown-transaction"
