"""What a transaction may not exceed: how many messages, how many bytes, how long."""

from collections.abc import Callable

import pytest

from quire.scheduler import Timer
from quire.testing.stepped import SteppedBroker, SteppedClient
from tests.unit.broker.harness import consumer, filled, settings

IN_T = {"transaction": "t"}


def begin(stepped: SteppedBroker) -> SteppedClient:
    client = stepped.connect()
    client.frame("BEGIN", IN_T)
    return client


def test_transactions_that_do_not_fit_into_memory_together_are_refused() -> None:
    stepped = SteppedBroker(settings(memory={"limit": 5000}))
    client, other = begin(stepped), begin(stepped)
    client.send("q", b"x" * 3000, IN_T)
    other.send("q", b"x" * 3000, IN_T)
    assert other.errors() == ["transaction-too-large"]
    assert client.errors() == []
    assert 3000 < stepped.broker.core.transaction_bytes < 4000
    client.vanish()
    assert stepped.broker.core.transaction_bytes == 0


def test_a_transaction_with_more_bytes_than_the_setting_allows_is_refused() -> None:
    stepped = SteppedBroker(settings(transaction={"max_size": 1000}))
    client, other = begin(stepped), begin(stepped)
    client.send("q", b"x" * 600, IN_T)
    other.send("q", b"x" * 600, IN_T)
    assert other.errors() == []
    client.send("q", b"x" * 600, IN_T)
    assert client.errors() == ["transaction-too-large"]


def test_a_transaction_with_more_messages_than_the_setting_allows_is_refused() -> None:
    stepped = filled(2, transaction={"max_messages": 2})
    receiver = consumer(stepped)
    receiver.frame("BEGIN", IN_T)
    receiver.send("other", b"", IN_T)
    first, second = receiver.take("MESSAGE")
    receiver.ack(first, IN_T)
    receiver.ack(first, IN_T)  # it is in the transaction already
    assert receiver.errors() == []
    receiver.ack(second, IN_T)
    assert receiver.errors() == ["transaction-too-large"]
    stepped.run()
    assert stepped.queue("q").depth == 2


def test_a_transaction_at_its_limits_is_committed() -> None:
    stepped = filled(2, transaction={"max_messages": 3})
    receiver = consumer(stepped)
    receiver.frame("BEGIN", IN_T)
    receiver.send("other", b"", IN_T)
    for message in receiver.take("MESSAGE"):
        receiver.ack(message, IN_T)
    receiver.frame("COMMIT", {**IN_T, "receipt": "r"})
    stepped.run()
    assert receiver.receipts() == ["r"]
    assert (stepped.queue("q").depth, stepped.queue("other").depth) == (0, 1)


def test_what_open_transactions_hold_counts_against_the_limit_of_the_store() -> None:
    stepped = SteppedBroker(settings(store={"limit": 5000}))
    client, plain = begin(stepped), stepped.connect()
    client.send("q", b"x" * 4000, IN_T)
    plain.send("q", b"y" * 2000)
    plain.send("q", b"z", {"receipt": "r"})
    stepped.run()
    assert [hold.cause for hold in stepped.broker.core.flow.holds.values()] == ["store-limit"]
    client.frame("ABORT", IN_T)
    stepped.run()
    assert plain.receipts() == ["r"]


def test_a_commit_is_possible_at_the_limit_of_the_store() -> None:
    stepped = SteppedBroker(settings(store={"limit": 5000}))
    client, plain = begin(stepped), stepped.connect()
    client.send("q", b"x" * 3000, IN_T)
    plain.send("q", b"y" * 3000)
    stepped.run()
    assert stepped.broker.core.is_restricted
    client.frame("COMMIT", {**IN_T, "receipt": "r"})
    stepped.run()
    assert client.receipts() == ["r"]
    assert stepped.queue("q").depth == 2


def test_a_send_in_a_transaction_waits_for_consumers_that_can_make_room() -> None:
    stepped = SteppedBroker(settings(store={"limit": 5000}))
    client, plain = begin(stepped), stepped.connect()
    plain.send("q", b"y" * 3000)
    client.send("q", b"x" * 3000, IN_T)
    client.send("q", b"z", IN_T)
    client.frame("COMMIT", {**IN_T, "receipt": "r"})
    stepped.run()
    assert (client.receipts(), client.errors()) == ([], [])
    receiver = consumer(stepped)
    receiver.ack(receiver.take("MESSAGE")[0])
    stepped.run()
    assert client.receipts() == ["r"]
    assert stepped.queue("q").depth == 2


def test_transactions_that_fill_the_store_alone_are_refused_at_once() -> None:
    """Their COMMIT would wait behind a SEND that no consumer can make room for."""
    stepped = SteppedBroker(settings(store={"limit": 5000}))
    client, other = begin(stepped), begin(stepped)
    client.send("q", b"x" * 3000, IN_T)
    other.send("q", b"x" * 3000, IN_T)
    other.send("q", b"x", IN_T)
    assert other.errors() == ["transaction-too-large"]
    client.send("q", b"x", {**IN_T})
    client.frame("COMMIT", {**IN_T, "receipt": "r"})
    stepped.run()
    assert client.receipts() == ["r"]
    assert stepped.queue("q").depth == 2


@pytest.mark.parametrize("late", ["COMMIT", "SEND", "ACK"])
def test_a_transaction_that_is_open_for_too_long_is_rolled_back_and_the_client_is_told_when_it_goes_on(
    late: str,
) -> None:
    stepped = filled(2, transaction={"max_age": 60.0})
    other = consumer(stepped, prefetchSize="1")
    receiver = consumer(stepped, prefetchSize="1")
    first, second = other.take("MESSAGE"), receiver.take("MESSAGE")
    receiver.frame("BEGIN", IN_T)
    receiver.send("q", b"never", IN_T)
    receiver.ack(second[0], IN_T)
    other.ack(first[0])
    stepped.run()
    stepped.advance(59.9)
    stepped.run()
    assert stepped.queue("q").in_flight == 1
    stepped.advance(0.1)
    stepped.run()
    (again,) = other.take("MESSAGE") + receiver.take("MESSAGE")
    assert (again.body, again.headers["JMSXDeliveryCount"]) == (b"1", "2")
    assert stepped.broker.core.transaction_bytes == 0
    assert receiver.errors() == []
    if late == "SEND":
        receiver.send("q", b"", IN_T)
    elif late == "ACK":
        receiver.frame("SUBSCRIBE", {"id": "more", "destination": "/queue/more", "ack": "client-individual"})
        receiver.send("more", b"")
        stepped.run()
        receiver.ack(next(message for message in receiver.take("MESSAGE") if not message.body), IN_T)
    else:
        receiver.frame("COMMIT", IN_T)
    assert receiver.errors() == ["transaction-timed-out"]
    stepped.run()
    assert stepped.queue("q").depth == 1


def test_aborting_a_transaction_that_was_open_for_too_long_is_no_error() -> None:
    stepped = SteppedBroker(settings(transaction={"max_age": 60.0}))
    client = begin(stepped)
    stepped.advance(61)
    client.frame("ABORT", {**IN_T, "receipt": "r"})
    client.frame("BEGIN", IN_T)
    client.send("q", b"1", IN_T)
    client.frame("COMMIT", IN_T)
    stepped.run()
    assert (client.receipts(), client.errors(), stepped.queue("q").depth) == (["r"], [], 1)


def test_each_transaction_has_its_own_time() -> None:
    stepped = SteppedBroker(settings(transaction={"max_age": 60.0}))
    first = begin(stepped)
    stepped.advance(40)
    second = begin(stepped)
    stepped.advance(40)
    for client in (first, second):
        client.frame("COMMIT", {**IN_T, "receipt": "r"})
    stepped.run()
    assert (first.errors(), second.receipts()) == (["transaction-timed-out"], ["r"])
    third = begin(stepped)
    stepped.advance(61)
    third.frame("COMMIT", IN_T)
    assert third.errors() == ["transaction-timed-out"]


def test_a_transaction_without_a_limit_is_open_for_ever() -> None:
    stepped = SteppedBroker(settings(transaction={"max_age": 0.0}))
    client = begin(stepped)
    client.send("q", b"1", IN_T)
    stepped.advance(10 * 86_400)
    client.frame("COMMIT", {**IN_T, "receipt": "r"})
    stepped.run()
    assert client.receipts() == ["r"]


def test_transactions_that_end_leave_no_timers_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    stepped = SteppedBroker(settings(transaction={"max_age": 60.0}))
    client = stepped.connect()
    timers: list[float] = []
    call_later = stepped.scheduler.call_later

    def noting(delay: float, call: Callable[[], None]) -> Timer:
        timers.append(delay)
        return call_later(delay, call)

    monkeypatch.setattr(stepped.scheduler, "call_later", noting)
    for _ in range(100):
        client.frame("BEGIN", IN_T)
        client.frame("COMMIT", IN_T)
    stepped.run()
    assert timers == [60.0]
