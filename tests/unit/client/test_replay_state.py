"""What a new connection is told of the one that was lost."""

from typing import Any

from quire.client.channel import ReplayState
from quire.protocols.openwire.commands import (
    ActiveMQBytesMessage,
    ActiveMQQueue,
    ActiveMQTempQueue,
    ConnectionId,
    ConnectionInfo,
    ConsumerId,
    ConsumerInfo,
    DestinationInfo,
    DestinationOperation,
    LocalTransactionId,
    MessageAck,
    ProducerId,
    ProducerInfo,
    RemoveInfo,
    SessionId,
    SessionInfo,
    TransactionInfo,
    TransactionType,
)

CONNECTION = ConnectionId("ID:c")
SESSION = SessionInfo(session_id=SessionId("ID:c", 1))
PRODUCER = ProducerInfo(producer_id=ProducerId("ID:c", 1, 1))
CONSUMER = ConsumerInfo(consumer_id=ConsumerId("ID:c", 1, 1), prefetch_size=7, destination=ActiveMQQueue("q"))
TEMPORARY = DestinationInfo(destination=ActiveMQTempQueue("ID:c:1"), operation_type=int(DestinationOperation.ADD))
KEY = LocalTransactionId(1, CONNECTION)
BEGIN = TransactionInfo(transaction_id=KEY, type=int(TransactionType.BEGIN))
COMMIT = TransactionInfo(command_id=9, transaction_id=KEY, type=int(TransactionType.COMMIT_ONE_PHASE))


def message(number: int, transaction: LocalTransactionId | None = None, **fields: Any) -> ActiveMQBytesMessage:
    return ActiveMQBytesMessage(
        command_id=number, producer_id=PRODUCER.producer_id, transaction_id=transaction, **fields
    )


def opened(*commands: Any, **options: Any) -> ReplayState:
    state = ReplayState(**options)
    state.track(ConnectionInfo(connection_id=CONNECTION))
    for command in commands:
        state.track(command)
    return state


def test_the_connection_says_that_it_comes_again() -> None:
    info = opened().connection()
    assert (info.connection_id, info.failover_reconnect, info.response_required) == (CONNECTION, True, True)


def test_what_was_opened_is_opened_again_in_order() -> None:
    state = opened(SESSION, CONSUMER, PRODUCER, TEMPORARY)
    temporary, session, producer, consumer = state.replay()
    assert (temporary, session, producer) == (TEMPORARY, SESSION, PRODUCER)
    assert isinstance(consumer, ConsumerInfo)
    assert (consumer.consumer_id, consumer.prefetch_size) == (CONSUMER.consumer_id, 0)
    (control,) = state.resume()
    assert (control.consumer_id, control.prefetch, control.destination) == (CONSUMER.consumer_id, 7, ActiveMQQueue("q"))


def test_a_pull_consumer_is_given_no_prefetch() -> None:
    state = opened(ConsumerInfo(consumer_id=ConsumerId("ID:c", 1, 2)))
    assert state.resume() == []


def test_what_was_closed_or_refused_is_left_out() -> None:
    state = opened(SESSION, CONSUMER, PRODUCER, TEMPORARY)
    state.track(RemoveInfo(object_id=PRODUCER.producer_id))
    state.track(RemoveInfo(object_id=SESSION.session_id))
    state.track(DestinationInfo(destination=TEMPORARY.destination, operation_type=int(DestinationOperation.REMOVE)))
    state.refused(CONSUMER)
    assert state.replay() == []


def test_browsers_acknowledgements_and_lasting_destinations_are_not_replayed() -> None:
    state = opened()
    assert not state.track(ConsumerInfo(consumer_id=CONSUMER.consumer_id, browser=True))
    assert not state.track(MessageAck())
    assert not state.track(DestinationInfo(destination=ActiveMQQueue("q")))
    assert state.replay() == []


def test_an_open_transaction_is_replayed_with_its_messages() -> None:
    sent = [message(1, KEY), message(2, KEY)]
    assert opened(SESSION, PRODUCER, BEGIN, *sent).replay() == [SESSION, PRODUCER, BEGIN, *sent]


def test_a_producer_that_closed_inside_the_transaction_is_opened_for_it() -> None:
    sent = message(1, KEY)
    state = opened(SESSION, PRODUCER, BEGIN, sent, RemoveInfo(object_id=PRODUCER.producer_id))
    assert state.replay() == [SESSION, PRODUCER, BEGIN, sent, RemoveInfo(object_id=PRODUCER.producer_id)]


def test_a_transaction_whose_end_is_unanswered_is_in_doubt_and_not_replayed() -> None:
    state = opened(BEGIN, message(1, KEY), COMMIT)
    assert state.replay() == []
    assert state.endings_in_doubt() == [COMMIT]
    assert state.endings_in_doubt() == []


def test_an_ended_transaction_is_forgotten() -> None:
    state = opened(BEGIN, message(1, KEY), COMMIT)
    state.ended(COMMIT)
    assert (state.endings_in_doubt(), state.replay()) == ([], [])


def test_unanswered_messages_are_kept_within_a_limit_if_asked_for() -> None:
    assert opened(message(1)).replay() == []
    kept = opened(*(message(number, content=b"x" * 1000) for number in range(5)), keeps_messages=True, kept_bytes=5000)
    assert [command.command_id for command in kept.replay()] == [3, 4]
    answered = opened(message(1, response_required=True), keeps_messages=True, kept_bytes=5000)
    assert answered.replay() == []
